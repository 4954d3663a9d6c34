"""Parts of the real driver that need no process: clocks, headers, last words."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed import HashStore  # type: ignore[attr-defined]

from harness.rank import COMPONENTS, NoClock
from real.rank import _clocks as clocks
from real.rank._clocks import HostClock
from real.rank._headers import HEADER_BYTES, Header, shortened
from real.rank.health import LastWords, Words, leave_words

pytestmark = pytest.mark.alone


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=400), st.text(max_size=400), st.integers(1, 2**31))
def test_headers_survive_the_wire(text: str, signature: str, length: int) -> None:
    text, signature = text.replace("\0", ""), signature.replace("\0", "")
    header = Header(0, b"8 bytes!", b"shapehsh", b"pathhash", length, 2**64 - length, text, signature)
    row = header.pack()
    back = Header.unpack(row)
    assert row.numel() == HEADER_BYTES
    assert back[:6] == header[:6]
    assert back.text == (text if len(text.encode()) <= 288 else shortened(text, 288).decode(errors="replace"))
    assert len(shortened(text, 50)) <= 50


def test_long_texts_keep_label_and_line() -> None:
    text = f"AllToAll 'label' (forward, layer 1, epoch 3) at /{'very/' * 100}long.py:1234"
    short = shortened(text, 288).decode()
    assert short.startswith("AllToAll 'label' (forward, layer 1, epoch 3)") and short.endswith("long.py:1234")


class TestLastWords:
    def test_the_culprit_is_named(self) -> None:
        store = HashStore()
        ranks = [LastWords(store, rank, 3) for rank in range(3)]
        assert ranks[0].failure() is None and ranks[0].heard() == {}
        ranks[2].leave("failed", "ValueError:\n boom", "ValueError")
        failure = ranks[0].failure()
        assert failure is not None and (failure.rank, failure.text, failure.kind) == (
            2,
            "ValueError: boom",
            "ValueError",
        )
        assert ranks[2].failure() is None  # its own
        error = ranks[0].explain("waits in X: connection closed")
        assert str(error) == "rank 2 failed: ValueError: boom (rank 0 waits in X: connection closed)"

    def test_silence_is_named_too(self) -> None:
        ranks = [LastWords(HashStore(), 0, 1)] + [LastWords(store := HashStore(), 0, 4), LastWords(store, 1, 4)]
        ranks[2].leave("returned", "")
        begin = time.monotonic()
        text = str(ranks[1].explain("waits in X: no answer"))
        assert 1.5 < time.monotonic() - begin < 4
        assert (
            text
            == "rank 0 waits in X: no answer; rank 1 has returned; ranks 2, 3 are dead or frozen, without last words"
        )

    def test_the_first_to_fail_is_named_whatever_the_clocks_say(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Clocks of hosts differ, and jump; a signal comes before an error all the same."""
        store = HashStore()
        ranks = [LastWords(store, rank, 4) for rank in range(4)]
        for rank, now in ((2, 9e9), (1, 0.0)):
            monkeypatch.setattr(time, "time", lambda now=now: now)
            ranks[rank].leave("failed", f"error {rank}")
        monkeypatch.undo()
        assert str(ranks[0].explain("waits in X")).startswith("rank 2 failed: error 2")
        leave_words(store, Words(3, "killed", "was killed"))
        assert str(ranks[0].explain("waits in X")).startswith("rank 3 was killed")

    def test_a_slow_rank_is_told_from_a_frozen_one(self) -> None:
        """The slow one still counts; the frozen one did so once."""
        store = HashStore()
        ranks = [LastWords(store, rank, 4) for rank in range(4)]
        end = threading.Event()

        class Until(HashStore):  # type: ignore[misc]
            def set(self, key: str, value: str) -> None:
                if end.is_set():
                    raise RuntimeError("gone")
                store.set(key, value)

        ranks[1].beat(Until(), every_s=0.02)
        store.set("beat/2", "17")
        text = str(ranks[0].explain("waits in X"))
        end.set()
        assert text == (
            "rank 0 waits in X; ranks 2, 3 are dead or frozen, without last words; "
            "rank 1 is running, but not in that exchange"
        )

    def test_a_store_that_hangs_is_given_up(self) -> None:
        class Hanging(HashStore):  # type: ignore[misc]
            def check(self, keys: list[str]) -> bool:
                time.sleep(6)
                return False

        words = LastWords(Hanging(), 0, 2)
        begin = time.monotonic()
        assert words.failure() is None
        assert words.failure() is None  # not asked again
        assert time.monotonic() - begin < 3


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from(["codec", "sample", "halo", "leave", "pause", "go"]), max_size=30))
def test_components_sum_to_the_epoch(steps: list[str]) -> None:
    clock = HostClock()
    begin = time.perf_counter()
    clock.begin_epoch()
    open_spans: list[AbstractContextManager[None]] = []
    for step in steps:
        if step in ("pause", "go"):
            clock.pause(step == "pause")
        elif step == "leave":
            if open_spans:
                open_spans.pop().__exit__(None, None, None)
        else:
            open_spans.append(clock.span(step))
            open_spans[-1].__enter__()
    seconds = clock.end_epoch()
    took = time.perf_counter() - begin
    assert sum(seconds[name] for name in COMPONENTS) == seconds["epoch"] <= took
    assert all(seconds[name] >= 0 for name in seconds)
    used = {step for step in steps if step in COMPONENTS}
    assert {name for name in COMPONENTS if seconds[name] > 0} <= used | {"compute"}


class Hand:
    """Replaces the module `time` by a clock that is advanced explicitly (milliseconds)."""

    def __init__(self) -> None:
        self.ns = 5

    def perf_counter_ns(self) -> int:
        return self.ns

    def pass_ms(self, milliseconds: int) -> None:
        self.ns += milliseconds * 10**6


def test_clock_books_where_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    hand, clock = Hand(), HostClock()
    monkeypatch.setattr(clocks, "time", hand)
    clock.begin_epoch()
    hand.pass_ms(1)
    begun = clock.mark()  # an exchange that is waited for in the next epoch
    hand.pass_ms(2)
    assert clock.end_epoch() == pytest.approx(
        dict.fromkeys(COMPONENTS, 0) | {"compute": 3e-3, "epoch": 3e-3, "hidden": 0}
    )
    hand.pass_ms(1000)
    clock.begin_epoch()
    with clock.span("codec"):
        hand.pass_ms(20)
        with clock.blocked("halo"):
            hand.pass_ms(30)
    clock.pause(True)
    hand.pass_ms(1000)
    clock.pause(False)
    hand.pass_ms(5)
    done = clock.now()
    hand.pass_ms(2)
    clock.overlapped(begun, done)
    seconds = clock.end_epoch()
    spent = {"codec": 20e-3, "halo": 30e-3, "compute": 7e-3, "epoch": 57e-3, "hidden": 57e-3}
    assert seconds == pytest.approx(dict.fromkeys(COMPONENTS, 0) | spent)


def test_clock_knows_its_own_cost() -> None:
    clock = HostClock()
    assert clocks.overhead(clock, torch.device("cpu")) == {}
    assert clocks.overhead(NoClock(), torch.device("cpu")) == {}
    for _ in range(2):
        clock.begin_epoch()
        with clock.span("codec"):
            time.sleep(0.02)
        clock.end_epoch()
    found = clocks.overhead(clock, torch.device("cpu"))
    assert found["clock_stamps"] == 4  # the epoch's ends and the span's
    assert 0 < found["clock_overhead_seconds"] < 4 * 500e-6
    assert found["clock_overhead_share"] == pytest.approx(2 * found["clock_overhead_seconds"] / clock.seconds)
    assert 0.04 <= clock.seconds < 4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_clock_knows_its_own_cost() -> None:
    device = torch.device("cuda")
    clock = clocks.CudaClock(device)
    clock.begin_epoch()
    with clock.span("codec"):
        torch.ones(1 << 20, device=device).sum()
    clock.end_epoch()
    found = clocks.overhead(clock, device)
    assert found["clock_stamps"] == 4 and 0 < found["clock_overhead_seconds"] < 4 * 500e-6


def test_peak_memory_is_what_was_added() -> None:
    """In a process of its own, as ranks are: where something larger was held before, the peak does not rise."""
    code = """
import torch
from real.rank._clocks import HostClock
clock = HostClock()
held = torch.ones(32 << 20)  # 128 MiB
print(clock.peak_memory() / held.nbytes)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert 0.9 < float(done.stdout) < 2
