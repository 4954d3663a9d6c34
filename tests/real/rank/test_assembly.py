"""Ranks meet in a store, compare what they run, and take no verdict of an earlier attempt for their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from harness.errors import InputError
from real.rank._assembly import Assembly, _Arrival, assemble, compared
from real.rank.health import COUNTER, LastWords, RankLost, Words, leave_words, withdraw_words

LATE = "had not prepared its data within {:g} s"


class _Counting:
    """A store that counts the calls on it."""

    def __init__(self, store: Store) -> None:
        self.store, self.calls = store, 0

    def __getattr__(self, name: str) -> Any:
        self.calls += 1
        return getattr(self.store, name)


@pytest.fixture
def store() -> Iterator[Callable[[], Store]]:
    """Connections to one empty store."""
    first = [TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=10), wait_for_workers=False)]
    yield lambda: PrefixStore("haloscope", first[0].clone())
    first.clear()


def _meet(
    store: Callable[[], Store], ranks: int, facts: Callable[[int], dict[str, str]], **more: Any
) -> list[Future[tuple[Assembly, str]]]:
    """What `assemble` returns on each of several ranks."""
    given: dict[str, Any] = {"limit_s": 5.0, "hosted": True, "rounds": True, "backend": "gloo"} | more
    with ThreadPoolExecutor(ranks) as pool:
        return [pool.submit(assemble, store(), rank, ranks, facts(rank), **given) for rank in range(ranks)]


def _arrivals(rows: list[dict[str, str]], backend: str = "gloo") -> list[_Arrival]:
    return [_Arrival(str(rank), f"host{rank}", row, backend) for rank, row in enumerate(rows)]


@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=3), min_size=1, max_size=5),
)
def test_a_verdict_names_what_differs_and_nothing_else(rows: list[dict[str, str]]) -> None:
    said = compared(_arrivals(rows)).error
    differing = [name for name in "abc" if len({row.get(name) for row in rows}) > 1]
    assert bool(said) == bool(differing)
    for name in "abc":
        assert (f"{name} is " in said) == (name in differing)


def test_a_verdict_names_values_ranks_and_hosts() -> None:
    rows = [{"--lr": "0.01", "torch": "2"}] * 2 + [{"--lr": "0.02", "torch": "2"}] * 2
    assert compared(_arrivals(rows)).error == (
        "the ranks do not run the same: --lr is 0.01 on rank 0 (host0) and 0.02 on rank 2 (host2) and 1 more"
    )


def test_many_differences_are_counted() -> None:
    rows = [{str(n): "1" for n in range(10)}, {str(n): "2" for n in range(10)}]
    assert compared(_arrivals(rows)).error.endswith("; 2 more")


def test_nccl_only_where_every_rank_can() -> None:
    arrivals = _arrivals([{}, {}], "nccl")
    assert compared(arrivals).backend == "nccl"
    arrivals[1].backend = "gloo"
    assert compared(arrivals).backend == "gloo"


@pytest.mark.parametrize(("gpus", "shared"), [("abcd", False), ("abab", True), ("aaaa", True)])
def test_ranks_that_have_the_same_gpu_use_gloo(gpus: str, shared: bool) -> None:
    for asked, expected in (("auto", "gloo" if shared else "nccl"), ("nccl", "" if shared else "nccl")):
        arrivals = _arrivals([{"--backend": asked}] * len(gpus), "nccl")
        for arrival, gpu in zip(arrivals, gpus, strict=True):
            arrival.gpu = gpu
        verdict = compared(arrivals)
        assert verdict.backend == expected
        assert ("two ranks have the same GPU" in verdict.error) == (shared and asked == "nccl")
        for arrival in arrivals:
            arrival.gpu = ""  # ranks on CPUs, or ranks that may share
        assert compared(arrivals).backend == "nccl"


def test_what_one_rank_cannot_do_ends_all(store: Callable[[], Store]) -> None:
    with ThreadPoolExecutor(2) as pool:
        limits: dict[str, Any] = {"limit_s": 30.0, "hosted": True, "rounds": True}
        begun = time.monotonic()
        ranks = [pool.submit(assemble, store(), r, 2, {}, error="no GPU" * r, **limits) for r in range(2)]
    for rank in ranks:
        with pytest.raises(InputError, match=r"rank 1 on .*: no GPU"):
            rank.result()
    assert time.monotonic() - begun < 10


def test_ranks_that_agree_go_on_and_compare_their_data(store: Callable[[], Store]) -> None:
    met = [found.result() for found in _meet(store, 3, lambda rank: {"--lr": "0.01"})]
    assert [backend for _, backend in met] == ["gloo"] * 3
    with ThreadPoolExecutor(3) as pool:
        done = [pool.submit(assembly.agree, "data", {"graph": "a"}, 5.0, LATE) for assembly, _ in met]
    assert [found.result() for found in done] == [None] * 3
    with ThreadPoolExecutor(3) as pool:
        done = [pool.submit(assembly.agree, "more", {"graph": "ab"[rank // 2]}, 5.0, LATE)
                for rank, (assembly, _) in enumerate(met)]  # fmt: skip
    for found in done:
        with pytest.raises(InputError, match=r"graph is a on rank 0 \(.*\) and b on rank 2"):
            found.result()


def test_ranks_that_do_not_come_are_named_on_all(store: Callable[[], Store]) -> None:
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(assemble, store(), r, 4, {}, limit_s=1.0, hosted=True, rounds=True) for r in (0, 2)]
    for rank, future in zip((0, 2), found, strict=True):
        with pytest.raises(RankLost, match=f"rank {rank}: rank 1, 3 did not come within 1 s"):
            future.result()


def test_a_rank_that_runs_is_heard(store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its counting is where others look for it, so that a slow rank is told from a frozen one."""
    monkeypatch.setattr(LastWords, "beat", lambda words, store: store.set(f"beat/{words.rank}", "17"))  # no thread
    first, second = (found.result()[0] for found in _meet(store, 2, lambda rank: {}))
    assert first.words.beats([1]) == {}
    second.beat()
    assert first.words.beats([1]) == {1: b"17"}


def test_data_are_waited_for_until_every_host_has_them(store: Callable[[], Store]) -> None:
    """The first one is there long before the other one."""
    first, second = (found.result()[0] for found in _meet(store, 2, lambda rank: {}))
    with ThreadPoolExecutor(2) as pool:
        early = pool.submit(first.agree, "data", {}, 20.0, LATE)
        time.sleep(2.5)
        assert not early.done()
        pool.submit(second.agree, "data", {}, 20.0, LATE).result()
        assert early.result() is None
        late = pool.submit(first.agree, "again", {}, 0.5, LATE)
        with pytest.raises(RankLost, match="rank 1 had not prepared its data within 0.5 s"):
            late.result()


class TestAttempts:
    def test_a_rank_waits_for_the_new_attempt(self, store: Callable[[], Store]) -> None:
        """Everything of the dead attempt is in the store: its name, its verdict, and the words of a failure."""
        for found in _meet(store, 2, lambda rank: {"--lr": "0.01"}):
            found.result()[0].words.leave("failed", "of old")
        with ThreadPoolExecutor(2) as pool:
            early = pool.submit(assemble, store(), 1, 2, {}, limit_s=10.0, hosted=True, rounds=True)
            time.sleep(1.0)
            assert not early.done()
            first = pool.submit(assemble, store(), 0, 2, {}, limit_s=10.0, hosted=True, rounds=True).result()[0]
            second = early.result()[0]
        assert first.words.hindrance() is None and second.words.hindrance() is None
        first.store.set("seen", "by both")
        assert second.store.get("seen") == b"by both"

    def test_a_process_of_the_dead_attempt_takes_no_place(self, store: Callable[[], Store]) -> None:
        """A rank that its agent has not ended yet joins the new attempt; the one that replaces it is told apart."""
        with ThreadPoolExecutor(3) as pool:
            old = pool.submit(assemble, store(), 1, 2, {}, limit_s=5.0, hosted=True, rounds=True)
            pool.submit(assemble, store(), 0, 2, {}, limit_s=5.0, hosted=True, rounds=True).result()
            old.result()
            new = pool.submit(assemble, store(), 1, 2, {}, limit_s=0.5, hosted=True, rounds=True)
            with pytest.raises(RankLost):
                new.result()

    def test_without_attempts_keys_are_where_the_launcher_looks(self, store: Callable[[], Store]) -> None:
        for found in _meet(store, 2, lambda rank: {}, rounds=False):
            found.result()
        assert store().check(["0/start/verdict"])


class TestWaiting:
    def test_a_failure_ends_the_wait(self, store: Callable[[], Store]) -> None:
        first = Assembly(store(), LastWords(store(), 0, 3), 0, 3, True)
        LastWords(store(), 2, 3).leave("failed", "no file")
        with pytest.raises(RankLost, match=r"rank 2 failed: no file \(rank 0 waited for the others to start\)"):
            first.wait(["never"], 30.0)

    def test_a_stopped_rank_ends_it_until_it_goes_on(self, store: Callable[[], Store]) -> None:
        words = LastWords(store(), 0, 3)
        leave_words(store(), Words(2, "stopped", "is stopped"))
        leave_words(store(), Words(1, "stopped", "is stopped"))
        found = words.hindrance()
        assert found is not None and found.rank == 2
        withdraw_words(store(), 1)
        assert words.hindrance() is not None
        withdraw_words(store(), 2)
        assert words.hindrance() is None

    def test_calls_of_a_waiting_rank_do_not_grow_with_the_ranks(self, store: Callable[[], Store]) -> None:
        calls = []
        for size in (4, 400):
            counting = _Counting(store())
            words = LastWords(counting, 0, size)
            assert words.hindrance() is None
            calls.append(counting.calls)
        assert calls[0] == calls[1] <= 6

    def test_a_culprit_is_found_in_few_calls_among_many_ranks(self, store: Callable[[], Store]) -> None:
        counting = _Counting(store())
        words = LastWords(counting, 0, 1000)
        leave_words(store(), Words(7, "killed", "was killed"))
        assert str(words.explain("waits in X")) == "rank 7 was killed (rank 0 waits in X)"
        assert counting.calls < 20 and store().add(COUNTER, 0) == 2


def test_two_ranks_meet_without_a_store_of_a_launcher(store: Callable[[], Store]) -> None:
    """Rank 0 keeps its store until the other has read why the run cannot begin."""
    ended = list[float]()

    def run(rank: int) -> None:
        time.sleep(0.5 * rank)
        with pytest.raises(InputError, match="--seed is 0 on rank 0"):
            assemble(store(), rank, 2, {"--seed": str(rank)}, limit_s=5.0, hosted=False, rounds=False)
        ended.append(time.monotonic())

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended) == 2
