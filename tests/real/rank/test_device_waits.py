"""Exchanges on a device have deadlines, and end when another rank has failed; with stand-ins for the library's work."""

from __future__ import annotations

import queue
import time

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from real.rank._device_waits import DeviceWaits
from real.rank.health import LastWords, RankLost


class _Work:
    """An exchange that is complete once it is told to be."""

    def __init__(self) -> None:
        self.complete, self.asked = False, 0

    def is_completed(self) -> bool:
        self.asked += 1
        return self.complete


class _Watched:
    def __init__(self) -> None:
        self.store = HashStore()
        self.ends = queue.Queue[RankLost]()
        self.other = LastWords(self.store, 1, 2)
        self.waits = DeviceWaits(LastWords(self.store, 0, 2), lambda: "AllReduce 'x'", self.ends.put, look_s=0.01)


@pytest.fixture
def watched() -> _Watched:
    return _Watched()


def test_a_failure_elsewhere_ends_the_wait(watched: _Watched) -> None:
    watched.waits.add(_Work(), 60)
    watched.other.leave("failed", "boom")
    said = str(watched.ends.get(timeout=20))
    assert said == "rank 1 failed: boom (rank 0 waits in AllReduce 'x': gave up because rank 1 failed)"


def test_an_exchange_has_a_deadline(watched: _Watched) -> None:
    """Of its own: one that is complete by then does not count."""
    done, late = _Work(), _Work()
    done.complete = True
    watched.waits.add(done, 0.0)
    time.sleep(0.05)
    assert watched.ends.empty()
    watched.other.leave("returned", "")
    watched.waits.add(late, 0.05)
    said = str(watched.ends.get(timeout=20))
    assert said == "rank 0 waits in AllReduce 'x': had no answer within 0.05 s; rank 1 has returned"


def test_completed_exchanges_are_forgotten(watched: _Watched) -> None:
    work = _Work()
    watched.waits.add(work, 0.2)
    work.complete = True
    end = time.monotonic() + 20
    while watched.waits._works:
        assert time.monotonic() < end
        time.sleep(0.01)
    watched.waits.close()
    time.sleep(0.3)
    assert watched.ends.empty()
    assert watched.waits._thread is not None
    watched.waits._thread.join(20)
    assert not watched.waits._thread.is_alive()
