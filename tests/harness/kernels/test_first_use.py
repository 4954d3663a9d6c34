"""Compiling is announced once, when it is long, and never where kernels are loaded."""

from __future__ import annotations

import pytest
from numba import njit

from harness.kernels import first_use


@pytest.mark.parametrize(("limit", "lines"), [(0.0, [first_use.MESSAGE]), (1e9, [])])
def test_long_compiling_is_said_once(monkeypatch: pytest.MonkeyPatch, limit: float, lines: list[str]) -> None:
    monkeypatch.setattr(first_use, "LONG_S", limit)
    said: list[str] = []

    @njit
    def inner(x: float) -> float:
        return x + 1

    @njit
    def outer(x: float) -> float:
        return inner(x) + 1

    with first_use.compiling_said(said.append):
        assert outer(1) == 3 and said == lines
        assert outer(1.5) == 3.5 and said == lines, "another type compiles again, and is not said again"
    monkeypatch.setattr(first_use, "LONG_S", 0.0)
    assert outer(1 + 1j) == 3 + 1j and said == lines, "nobody listens any more"
