"""The context of tests of a paper's tables; modules that need another have their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.core.context import Context


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """With hardly any time for trainings, and a cache of its own."""
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path / "cache"))
    return Context(out=tmp_path, quiet=True, seconds=0.01)
