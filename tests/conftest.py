"""Fixtures every test inherits: a private cache folder, a clean environment, and the leak police."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# Examples are few and derived from the test's name, so that every run of the suite tests the same ones.
settings.register_profile("haloscope", deadline=None, derandomize=True, max_examples=20, database=None)
settings.load_profile("haloscope")

# Tests are small: a second thread costs more than it brings, and several test processes share the cores.
torch.set_num_threads(1)

REPOSITORY = Path(__file__).resolve().parent.parent


def real_data() -> Path:
    """The folder of real graphs, or a skip that says how to get them."""
    folder = Path(os.environ.get("HALOSCOPE_DATA") or REPOSITORY.parent / "shared" / "data")
    if not (folder / "cora.npz").exists():
        pytest.skip(f"no real graphs in {folder}: set HALOSCOPE_DATA to a folder of npz graphs")
    return folder


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache for the whole test session, never the user's."""
    folder = tmp_path_factory.mktemp("haloscope-cache")
    before = os.environ.get("HALOSCOPE_CACHE")
    os.environ["HALOSCOPE_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["HALOSCOPE_CACHE"]
    else:
        os.environ["HALOSCOPE_CACHE"] = before


def _children() -> set[str]:
    tasks = Path("/proc/self/task")
    if not tasks.exists():
        return set()
    found: set[str] = set()
    for task in tasks.iterdir():
        with contextlib.suppress(OSError):  # a thread that is just ending can be listed but not read
            found.update((task / "children").read_text().split())
    return found


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a process, a Python thread or an environment variable behind."""
    environment, threads, children = dict(os.environ), set(threading.enumerate()), _children()
    yield
    changed = {k for k in set(environment) | set(os.environ) if environment.get(k) != os.environ.get(k)}
    changed -= {"PYTEST_CURRENT_TEST", "KMP_INIT_AT_FORK", "KMP_DUPLICATE_LIB_OK", "TORCHINDUCTOR_CACHE_DIR"}
    assert not changed, f"environment variables left changed: {sorted(changed)}"
    left = [t.name for t in set(threading.enumerate()) - threads if t.is_alive() and not t.daemon]
    assert not left, f"threads left running: {left}"
    assert not _children() - children, f"processes left running: {sorted(_children() - children)}"
