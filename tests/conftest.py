"""Fixtures of all tests: a private cache folder, a clean environment, checks for leaks; and a limit of skipped
tests."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import Phase, settings

from harness.kernels import first_use
from tests.support import kernel_devices, leaks, skips

# Examples are few and derived from the test's name, so that every run of the suite tests the same ones.
settings.register_profile("haloscope", deadline=None, derandomize=True, max_examples=20, database=None)
settings.register_profile("unshrunk", settings.get_profile("haloscope"), phases=(Phase.explicit, Phase.generate))
settings.load_profile("haloscope")

# Tests are small: a second thread does not pay, and several test processes share the cores.
torch.set_num_threads(1)

# Which test compiles a kernel depends on the order of tests: none but its own should meet the message about it.
first_use.LONG_S = math.inf

REPOSITORY = Path(__file__).resolve().parent.parent


def real_data() -> Path:
    """The folder of real graphs; skips the test with instructions if there is none."""
    folder = Path(os.environ.get("HALOSCOPE_DATA") or REPOSITORY.parent / "shared" / "data")
    if not (folder / "cora.npz").exists():
        pytest.skip(f"no real graphs in {folder}: set HALOSCOPE_DATA to a folder of npz graphs")
    return folder


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache for the whole test session, separate from the user's."""
    folder = tmp_path_factory.mktemp("haloscope-cache")
    before = os.environ.get("HALOSCOPE_CACHE")
    os.environ["HALOSCOPE_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["HALOSCOPE_CACHE"]
    else:
        os.environ["HALOSCOPE_CACHE"] = before


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for temporary files of this test process only, in which leftovers of a test are detected."""
    leaks.open_what_stays()
    folder = tmp_path_factory.mktemp("temporary")
    before, place = os.environ.get("TMPDIR"), tempfile.tempdir
    os.environ["TMPDIR"], tempfile.tempdir = str(folder), str(folder)
    yield folder
    tempfile.tempdir = place
    if before is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = before


@pytest.fixture(params=kernel_devices.AVAILABLE)
def where(request: pytest.FixtureRequest) -> kernel_devices.KernelDevice:
    """Where GPU kernels run in this test; see `support.kernel_devices`."""
    return kernel_devices.KernelDevice(request.param)


@pytest.fixture(autouse=True)
def nothing_left_behind(temporary_folder: Path) -> Iterator[None]:
    """Fail a test that leaves anything behind: see `support.leaks`."""
    before = leaks.state(temporary_folder)
    yield
    left = leaks.left(before, leaks.state(temporary_folder))
    assert not left, "; ".join(left)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report kinds of skips above their limit; see `support.skips`."""
    for line in skips.over(_reasons(terminalreporter)) if skips.whole(config) else ():
        terminalreporter.write_line(f"SKIPPED TOO OFTEN: {line}", red=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run of the whole suite that skips more than the limit."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    over = reporter is not None and skips.whole(session.config) and skips.over(_reasons(reporter))
    if over and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _reasons(reporter: pytest.TerminalReporter) -> list[str]:
    """The reason of each skipped test."""
    return [str(report.longrepr[2]) for report in reporter.stats.get("skipped", [])]
