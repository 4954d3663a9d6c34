"""How fast the machine is, and who else uses it."""

from __future__ import annotations

import time

import pytest

from harness.running import drift
from harness.running.drift import watching


def test_load_of_others_is_what_is_busy_and_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 core seconds that passed, 12 were busy and 9 of them ours."""
    seen = iter([((100.0, 1000.0), 50.0), ((112.0, 1020.0), 59.0)])
    monkeypatch.setattr(drift, "_busy", lambda: next(seen))
    with watching() as load:
        pass
    assert load.foreign == pytest.approx(3 / 20)


def test_the_kernel_tells_how_busy_the_machine_is() -> None:
    before, begin = drift._busy(), time.process_time()
    while time.process_time() - begin < 0.2:
        pass
    after = drift._busy()
    assert 0.2 <= after[1] - before[1] < 60  # ours, in core seconds
    if before[0] is not None and after[0] is not None:
        assert after[0][0] - before[0][0] >= 0.1  # of the machine: ours are among them
        assert 0 < after[0][0] < after[0][1]
