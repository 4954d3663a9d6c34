"""Killed and stopped ranks in real runs: messages and delays. `benchmarks.faults` tries every phase."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import HashStore, Store  # type: ignore[attr-defined]

from benchmarks import faults
from harness.effects import AllReduce, Rows, Site, Tag
from harness.errors import ProgramError
from harness.rank import Rank
from real.launch._child import Child
from real.rank import place
from real.rank._assembly import Assembly
from real.rank._clocks import HostClock
from real.rank._journal import CollectiveJournal, unbalanced
from real.rank._receives import Receives
from real.rank._transport import Pending, Silence
from real.rank.connection import Connection
from real.rank.health import LastWords, RankLost, read_words
from tests.conftest import REPOSITORY


@pytest.fixture
def store() -> Store:
    """A key-value store of this process alone."""
    return HashStore()


def _ones(count: int) -> torch.Tensor:
    return torch.ones(count)


def _until(child: Child, store: Store, reached: Callable[[], bool]) -> None:
    """Poll a process as its launcher does, until a condition holds."""
    deadline = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < deadline
        child.poll(store)
        time.sleep(0.01)


@pytest.mark.alone
@pytest.mark.processes
@pytest.mark.parametrize(
    ("number", "phase", "parts", "victim"),
    [
        ("SIGKILL", "preparation", 2, 0),
        ("SIGKILL", "evaluation", 2, 0),
        ("SIGKILL", "checkpoint", 2, 1),
        ("SIGKILL", "exchange", 4, 2),
        ("SIGSTOP", "set-up", 2, 1),
        ("SIGSTOP", "checkpoint", 2, 1),
    ],
)
def test_survivors_end_in_time_and_name_the_rank(number: str, phase: str, parts: int, victim: int) -> None:
    found = faults.trial(phase, parts, victim, number, dataset="synthetic:nodes=300")
    assert len(found.exits) == parts - 1
    assert found.kept, (found.gone_s, found.codes)
    assert found.named, (found.message, found.lines)
    if phase == "evaluation":
        assert (
            "rank 0 was killed by SIGKILL in epoch 2, evaluation, in AllToAll 'h1' (forward, layer 1" in found.message
        )


@pytest.mark.alone
@pytest.mark.processes
def test_without_a_launcher_the_survivor_names_the_rank(tmp_path: Path) -> None:
    """Ranks started manually: the store is in rank 0 and ends with it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    arguments = [sys.executable, "-m", "tests.support.programs", "killed_first", str(tmp_path), "30"]
    ranks = []
    for rank in range(2):
        env = {**os.environ, **common, "RANK": str(rank), "TORCH_CPP_LOG_LEVEL": "ERROR"}
        ranks.append(subprocess.Popen(arguments, cwd=REPOSITORY, env=env, stderr=subprocess.PIPE, text=True))
    try:
        _, first = ranks[0].communicate(timeout=90)
        dead = time.monotonic()
        _, survivor = ranks[1].communicate(timeout=30)
        assert time.monotonic() - dead < faults.PROMISE_S
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert (ranks[0].returncode, ranks[1].returncode, first) == (-signal.SIGKILL, 1, "")
    assert "rank 1 waits in AllReduce 'gradients' (reduce, epoch 2)" in survivor
    assert "rank 0, which keeps it, is dead or frozen" in survivor


class TestPlace:
    def test_a_word_follows_the_rank(self, tmp_path: Path) -> None:
        file = tmp_path / "place"
        place.create(file)
        assert str(place.read_activity(file)) == "in start-up"
        rank, clock = Rank(0, 2), HostClock()
        activity = clock.activity = place.Activity(file)
        activity.before("preparation of the data")
        assert str(place.read_activity(file)) == "in preparation of the data"
        activity.follow(rank)
        rank.clock, rank.epoch = clock, 4
        clock.begin_epoch()
        with clock.span("codec"):
            assert str(place.read_activity(file)) == "in epoch 4, codec"
        effect = rank.all_reduce(_ones(3), label="gradients")
        line = r"AllReduce 'gradients' (reduce, epoch 4) at " + str(effect.site)
        with clock.blocked("reduce"):
            activity.effect(effect, "reduce")
            assert str(place.read_activity(file)) == f"in epoch 4, reduce, in {line}"
        assert str(place.read_activity(file)) == f"in epoch 4, compute, after {line}"
        clock.end_epoch()
        with rank.off_the_clock("evaluation"):
            assert str(place.read_activity(file)) == f"in epoch 4, evaluation, after {line}"
        assert place.read_activity(file).stage == ""

    def test_long_and_foreign_texts(self, tmp_path: Path) -> None:
        """Labels of any script and paths of any length: cut, never refused."""
        file = tmp_path / "place"
        place.create(file)
        activity, rank = place.Activity(file), Rank(0, 2)
        activity.follow(rank)
        with rank.off_the_clock("a stage with far too long a name"):
            effect = AllReduce(tag=Tag("λ" * 500, "reduce", -1, 0), site=Site("x" * 500, 1), tensor=_ones(1))
            activity.effect(effect, "reduce")
        found = place.read_activity(file)
        assert found.effect.startswith("AllReduce 'λλλ") and len(found.effect.encode()) <= 403
        assert found.stage == "a stage with far too lon"

    def test_without_a_launcher_nothing_is_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        activity = place.Activity(None)
        activity.before("anything")
        activity.follow(Rank(0, 1))
        activity.component("codec")
        activity.effect(Rank(0, 1).all_reduce(_ones(1), label="x"), "reduce")
        assert not list(tmp_path.iterdir())


class TestChild:
    def test_a_stopped_process_is_spoken_for_until_it_goes_on(self, tmp_path: Path, store: Store) -> None:
        place.create(tmp_path / "place")
        (tmp_path / "log").touch()
        with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
            try:
                child = Child(1, process, tmp_path / "log", tmp_path / "place")
                words = LastWords(store, 0, 2)
                process.send_signal(signal.SIGSTOP)
                _until(child, store, lambda: child.stopped)
                text = str(words.explain("waits in X: no answer within 2 s"))
                assert text == "rank 1 is stopped by a signal in start-up (rank 0 waits in X: no answer within 2 s)"
                assert words.failure() is None  # nobody gives up because of it
                process.send_signal(signal.SIGCONT)
                _until(child, store, lambda: not child.stopped)
                assert words.heard() == {}
            finally:
                process.kill()
            _until(child, store, lambda: child.ended_at is not None)
            failure = words.failure()
            assert failure is not None and str(failure) == "rank 1 was killed by SIGKILL in start-up"
            assert child.killed and child.last_words(store) == "rank 1 was killed by SIGKILL in start-up"
            assert words.failure() == failure
            assert child.exit().code == -9

    def test_an_exit_code_without_words_is_told_too(self, tmp_path: Path, store: Store) -> None:
        place.create(tmp_path / "place")
        (tmp_path / "log").write_text("so long\n\n")
        with subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as process:
            child = Child(0, process, tmp_path / "log", tmp_path / "place")
            _until(child, store, lambda: child.ended_at is not None)
        assert str(read_words(store, 0)) == "rank 0 ended with exit code 3 in start-up"
        assert not child.killed and child.failed and child.exit().line == "so long"


def test_data_are_waited_for_as_long_as_asked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    words, activity, cpu = LastWords(store, 1, 2), place.Activity(None), torch.device("cpu")
    second = Connection(
        1, 2, cpu, "gloo", 60.0, 300.0, 0.2, words, activity, Assembly(store, words, 1, 2, True), None, None, 0
    )
    begun = time.monotonic()
    with pytest.raises(RankLost, match=r"not ready within 0.2 s; raise --prepare-timeout"), second.host_by_host():
        raise AssertionError
    assert time.monotonic() - begun < 20
    store.set("prepared/0", "done")
    with second.host_by_host():
        begun = 0.0
    assert begun == 0.0


class TestJournal:
    @given(st.integers(2, 5), st.integers(1, 4), st.integers(0, 2**32), st.booleans())
    def test_balances_cancel_only_where_ranks_count_the_same(
        self, size: int, steps: int, seed: int, slip: bool
    ) -> None:
        """One rank that expects one row more or less in one of many steps is enough, and the step is known."""
        numbers = np.random.default_rng(seed)
        tables = numbers.integers(0, 1000, (steps, 2, size, size))  # rows of two parts, from rank to rank
        at = tuple(int(numbers.integers(extent)) for extent in (steps, 2, size, size))
        journals, found = [CollectiveJournal(rank, size) for rank in range(size)], []
        for index, journal in enumerate(journals):
            rank = Rank(index, size)
            for step, table in enumerate(tables):
                expected = table.copy()
                if slip and at[0] == step and at[3] == index:
                    expected[at[1:]] += 1
                send = [part[index] for part in table]
                recv = [part[:, index] for part in expected]
                rows = [Rows(torch.empty(int(s.sum()), 1), s, r) for s, r in zip(send, recv, strict=True)]
                effect = rank.all_to_all(rows, label=f"step {step}")
                rank.issued(effect)
                journal.add(effect)
            found.append([step.balance for step in journal.steps])
        wrong = [step for step, row in enumerate(zip(*found, strict=True)) if unbalanced(list(row))]
        assert wrong == ([at[0]] if slip else [])
        assert unbalanced([journal.balance for journal in journals]) == slip

    def test_paths_part_at_the_first_difference(self) -> None:
        rank, journals = Rank(0, 2), [CollectiveJournal(0, 2), CollectiveJournal(1, 2)]
        for label in ("a", "b", "c"):
            for journal in journals:
                effect = rank.all_reduce(_ones(2 if label != "b" or journal is journals[0] else 3), label=label)
                rank.issued(effect)
                journal.add(effect)
        same = [a.path == b.path for a, b in zip(journals[0].steps, journals[1].steps, strict=True)]
        assert same == [True, False, False]
        assert journals[0].steps[2].effect.path == journals[0].steps[1].path

    def test_a_comparison_forgets_all_but_the_latest_step(self) -> None:
        """Which begins after it: its rows are still to be compared."""
        rank, journal, twin = Rank(0, 2), CollectiveJournal(0, 2), CollectiveJournal(0, 2)
        for _ in range(3):
            rows = Rows(torch.ones(3, 1), np.asarray([1, 2]), np.asarray([5, 5]))
            effect = rank.all_to_all([rows], label="x")
            rank.issued(effect)
            journal.add(effect)
            twin.add(effect)
        journal.compared()
        assert (journal.begun, len(journal.steps)) == (2, 1)
        assert journal.balance == twin.steps[2].balance != 0
        assert journal.path == twin.path
        assert journal.end().effect.length == 1
        assert journal.path == twin.end().path


class TestStartedReceives:
    def test_they_begin_in_the_order_of_their_messages(self) -> None:
        """The second message's header is here first; the payload of the first is received before it all the same."""
        receives, may, begun = Receives(), threading.Event(), list[str]()

        def begin(name: str) -> Callable[[], Pending]:
            def answer() -> Pending:
                begun.append(name)
                return Pending(lambda: name)

            return answer

        first = receives.start(1, lambda: None if may.wait(20) else None, begin("first"), 20)
        second = receives.start(1, lambda: None, begin("second"), 20)
        other = receives.start(2, lambda: None, begin("other"), 20)
        assert other.result() == "other"
        assert begun == ["other"]
        may.set()
        receives.settle(1)
        assert begun == ["other", "first", "second"]
        assert (second.result(), first.result()) == ("second", "first")

    def test_what_went_wrong_is_raised_at_the_wait(self) -> None:
        def differs() -> None:
            raise ProgramError("ranks disagree")

        def never() -> Pending:
            raise AssertionError

        receives = Receives()
        wrong = receives.start(0, differs, never, 20)
        with pytest.raises(ProgramError, match="ranks disagree"):
            wrong.result()

    def test_they_have_a_deadline(self) -> None:
        end = threading.Event()
        late = Receives().start(0, lambda: None if end.wait(20) else None, lambda: Pending(lambda: None), 0.05)
        with pytest.raises(Silence, match="no answer within 0.15 s"):
            late.result()
        end.set()
