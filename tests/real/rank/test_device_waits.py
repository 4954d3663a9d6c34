"""Exchanges on a device have deadlines, and end when another rank has failed; with stand-ins for the library's work."""

from __future__ import annotations

import gc
import queue
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributed import HashStore  # type: ignore[attr-defined]

from real.rank import _background
from real.rank import connection as connections
from real.rank._background import SecondThread
from real.rank._device_waits import DeviceWaits
from real.rank._transport import Endpoint
from real.rank.health import LastWords, RankLost

CPU = torch.device("cpu")


class _Moment:
    """A place in a stream, which the device has come past once it is told so."""

    def __init__(self) -> None:
        self.past = False

    def query(self) -> bool:
        return self.past


class _Watched:
    """A watched stream; `moments` are those before and behind every wait that was queued."""

    def __init__(self) -> None:
        self.store = HashStore()
        self.ends = queue.Queue[RankLost]()
        self.other = LastWords(self.store, 1, 2)
        self.words = LastWords(self.store, 0, 2)
        self.moments: list[_Moment] = []
        self.waits = DeviceWaits(self.words, CPU, self.ends.put, 0.01, self._moment)

    def _moment(self, device: torch.device) -> _Moment:
        self.moments.append(_Moment())
        return self.moments[-1]

    def queue(self, patience_s: float, what: str = "AllReduce 'x'") -> tuple[_Moment, _Moment]:
        self.waits.queue(lambda: None, what, patience_s)
        return self.moments[-2], self.moments[-1]


@pytest.fixture
def watched() -> _Watched:
    return _Watched()


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_failure_elsewhere_ends_the_wait(watched: _Watched) -> None:
    watched.queue(60)
    watched.other.leave("failed", "boom")
    said = str(watched.ends.get(timeout=20))
    assert said == "rank 1 failed: boom (rank 0 waits in AllReduce 'x': gave up because rank 1 failed)"


def test_an_exchange_has_a_deadline(watched: _Watched) -> None:
    """Of its own: one that is complete by then does not count."""
    for moment in watched.queue(0.0, "Broadcast 'y'"):
        moment.past = True
    time.sleep(0.05)
    assert watched.ends.empty()
    watched.other.leave("returned", "")
    reached, _ = watched.queue(0.05)
    watched.queue(0.01, "AllToAll 'behind'")
    reached.past = True
    said = str(watched.ends.get(timeout=20))
    assert said == "rank 0 waits in AllReduce 'x': had no answer within 0.05 s; rank 1 has returned"


def test_the_time_counts_from_when_the_device_has_come_to_the_wait(watched: _Watched) -> None:
    """The host may be an epoch ahead: what the device computes before is not the exchange's."""
    watched.other.leave("returned", "")
    reached, done = watched.queue(0.1)
    time.sleep(0.4)
    assert watched.ends.empty()
    reached.past = True
    until(lambda: watched.waits._waits[0].since is not None)
    done.past = True
    until(lambda: not watched.waits._waits)
    assert watched.ends.empty()
    watched.queue(0.1)[0].past = True
    assert "had no answer within 0.1 s" in str(watched.ends.get(timeout=20))


def test_completed_exchanges_are_forgotten(watched: _Watched) -> None:
    for moment in watched.queue(0.2):
        moment.past = True
    until(lambda: not watched.waits._waits)
    watched.waits.close()
    time.sleep(0.3)
    assert watched.ends.empty()
    assert watched.waits._thread is not None
    watched.waits._thread.join(20)
    assert not watched.waits._thread.is_alive()


class _Work:
    """An exchange as NCCL's: it keeps the tensors that it writes."""

    def __init__(self, target: Tensor) -> None:
        self.outputs = [target]

    def wait(self) -> None:
        pass


class _Channel:
    """Starts exchanges that nothing carries out."""

    def all_to_all(self, target: Tensor, source: Tensor, received: list[int], sent: list[int]) -> _Work:
        return _Work(target)


def nccl_like(watched: _Watched) -> Endpoint:
    """An endpoint whose waits are the device's, on a CPU."""
    connection: Any = SimpleNamespace(
        rank=0, size=2, device=CPU, words=watched.words, timeout_s=60.0, startup_s=300.0, backend="nccl", beside=None
    )
    clock: Any = SimpleNamespace(epochs=1)
    channel: Any = _Channel()
    return Endpoint(connection, clock, channel, host=channel, device_waits=watched.waits)


def test_what_was_received_is_freed_before_the_thread_looks_again(watched: _Watched) -> None:
    """An exchange that is watched must not keep its buffers: they would pile up on the device between two looks."""
    endpoint, counts = nccl_like(watched), np.array([0, 8])
    pending = endpoint.all_to_all(torch.zeros(8, dtype=torch.uint8), counts, counts)
    received = pending.result()
    kept = weakref.ref(received)
    assert len(watched.waits._waits) == 1
    del pending, received
    gc.collect()
    assert kept() is None and len(watched.waits._waits) == 1


def test_a_wait_names_the_effect_that_started_the_exchange(watched: _Watched) -> None:
    """By the time of the wait the rank may be in another effect, and a background exchange has a thread of its own."""
    endpoint, counts = nccl_like(watched), np.array([0, 8])
    endpoint.doing = lambda: "AllToAll 'early'"
    pending = endpoint.all_to_all(torch.zeros(8, dtype=torch.uint8), counts, counts)
    endpoint.doing = lambda: "AllReduce 'later'"
    pending.result()
    assert watched.waits._waits[0].what == "AllToAll 'early'"


def test_background_exchanges_are_watched_with_the_others(watched: _Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the one thread, which `_Network.close` ends, and under their own names."""
    endpoint = nccl_like(watched)
    endpoint.doing = lambda: "AllReduce 'of the rank itself'"
    second = SecondThread(endpoint.connection, endpoint.clock, endpoint, debug=False)
    monkeypatch.setattr(_background, "start_exchange", lambda end, encoded: (end.device_waits, end.doing()))
    effect: Any = SimpleNamespace(name="Background 'rows'")
    assert second.exchange(effect, lambda: effect) == (watched.waits, "Background 'rows'")


def test_the_end_of_a_late_exchange_is_an_event_behind_it(watched: _Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a stream of its own: the one that computes comes to its wait later, perhaps after an evaluation."""
    calls: list[str] = []
    streams = ["own"]

    @contextmanager
    def inside(stream: str) -> Iterator[None]:
        streams.append(stream)
        yield
        streams.pop()

    def event(enable_timing: bool = False) -> Any:
        return SimpleNamespace(record=lambda stream: calls.append(f"{enable_timing} event on {stream}"))

    for name, stand_in in (("Stream", lambda device: "beside"), ("stream", inside), ("Event", event)):
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(_Work, "wait", lambda work: calls.append(f"wait on {streams[-1]}"))
    endpoint, counts = nccl_like(watched), np.array([0, 8])
    pending = endpoint.all_to_all(torch.zeros(8, dtype=torch.uint8), counts, counts)
    assert pending.completed() is None
    pending.watch()
    assert calls == ["wait on beside", "True event on beside"] and pending.completed() is not None
    assert len(pending.result()) == 8 and calls[2:] == ["wait on own"]


def test_the_library_gives_up_long_after_this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL counts from the call of the host, which may be an epoch ahead of its device."""
    limits: list[float] = []
    dist: Any = SimpleNamespace(
        init_process_group=lambda *_, **__: None,
        new_group=lambda backend, timeout: limits.append(timeout.total_seconds()),
    )
    monkeypatch.setattr(connections, "dist", dist)
    for name in ("schedule_gloo_threads", "_without_recorder"):
        monkeypatch.setattr(connections, name, lambda: None)
    connections._join_groups("nccl", HashStore(), 0, 2, 60.0, 300.0)
    assert len(limits) == 2 and min(limits) >= 3600
