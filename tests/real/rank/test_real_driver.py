"""The real driver against loopback, bit for bit, and its messages when ranks err, fail, die or freeze."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import loopback
from harness.effects import Rows
from harness.errors import InputError, ProgramError
from harness.rank import COMPONENTS, Rank
from real.launch import launch
from real.launch._launcher import RankFailed
from real.rank import run_program
from real.rank._transport import flat_bytes, from_bytes
from real.rank.connection import SHARING, _backend, _gpu, connect
from tests.support import programs
from tests.support.heap import EPOCHS

DTYPES = [
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.uint8,
    torch.bool,
    torch.int64,
    torch.int32,
]


def start(
    name: str, folder: Path, parts: int, timeout_s: float = 30.0, grace_s: float = 10.0, where: tuple[str, ...] = ()
) -> list[Any]:
    """Run a program of tests/support/programs.py in processes; returns the results of each rank."""
    arguments = ["-m", "tests.support.programs", name, str(folder), str(timeout_s), *where]
    launch(arguments, parts, threads=1, deadline_s=60, grace_s=grace_s, fork=not where)
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(parts)]


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Results of three gloo ranks for the programs that succeed."""
    return start("tour", tmp_path_factory.mktemp("tour"), 3)


@pytest.mark.processes
class TestThreeRanks:
    @pytest.mark.parametrize("name", ["everything", "debug"])
    def test_equals_loopback_bit_for_bit(self, tour: list[Any], name: str) -> None:
        expected = loopback.run_ranks(programs.everything, 3, seed=7)
        for rank in range(3):
            for mine, theirs in zip(tour[rank][name]["epochs"], expected[rank]["epochs"], strict=True):
                assert mine["found"] == theirs["found"]
                assert mine["layers"] == theirs["layers"]
                assert mine["to"] == theirs["to"]
                assert sum(mine["to"]) > 0

    def test_the_second_thread_is_gone_after_a_run(self, tour: list[Any]) -> None:
        for answers in tour:
            assert "background-exchange" not in answers["threads"] and "MainThread" in answers["threads"]

    def test_background_exchanges_keep_nothing(self, tour: list[Any]) -> None:
        """Neither rows nor buffers, in cycles of references that only a collection would end."""
        assert [answers["freed"] for answers in tour] == [[0, 0, 0]] * 3

    def test_only_the_program_holds_tensors(self, tour: list[Any]) -> None:
        """Not the driver, while the program computes: they are most of the memory of some layers."""
        assert [answers["let go"] for answers in tour] == [[[]] * 3] * 3

    def test_finished_sums_keep_no_buffers(self, tour: list[Any]) -> None:
        """In rank order and in the library's, awaited at once and started: until the next sum would be too long."""
        assert [answers["left of sums"] for answers in tour] == [[[0, 0], [0, 0]]] * 3

    def test_collectives_keep_nothing_in_the_heap(self, tour: list[Any]) -> None:
        """Such as torch's record of each with its Python stack: 0.6 KiB, of the last 2,000."""
        assert max(answers["heap"] for answers in tour) < 100 * EPOCHS

    def test_library_order_sums(self, tour: list[Any]) -> None:
        expected = loopback.run_ranks(programs.sums, 3, make_rank=lambda i: Rank(i, 3, deterministic=False))
        assert [answers["sums"] for answers in tour] == expected

    def test_seconds(self, tour: list[Any]) -> None:
        for answers in tour:
            for epoch in answers["everything"]["epochs"]:
                seconds = epoch["seconds"]
                assert sum(seconds[name] for name in COMPONENTS) == seconds["epoch"]
                assert seconds["codec"] >= 0.01 and seconds["compute"] >= 0.02  # what the program slept
                assert min(seconds["halo"], seconds["reduce"], seconds["hidden"]) > 0
                assert seconds["wait"] == seconds["sample"] == 0
            assert answers["everything"]["peak_memory"] > 0


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Results of three gloo ranks whose messages go in batches, as over NCCL."""
    return start("batches", tmp_path_factory.mktemp("batches"), 3)


@pytest.mark.processes
class TestMessagesInBatches:
    def test_equal_loopback_bit_for_bit(self, batches: list[Any]) -> None:
        everything = loopback.run_ranks(programs.everything, 3, seed=7)
        crossed = loopback.run_ranks(programs.crossed, 3, seed=3)
        for rank in range(3):
            for mine, theirs in zip(batches[rank]["everything"]["epochs"], everything[rank]["epochs"], strict=True):
                assert (mine["found"], mine["to"]) == (theirs["found"], theirs["to"])
            assert batches[rank]["crossed"] == batches[rank]["debug"] == crossed[rank]

    def test_leave_no_threads(self, batches: list[Any]) -> None:
        for answers in batches:
            assert not [name for name in answers["threads"] if name.startswith(("meets", "listens"))]

    def test_name_the_rank_that_was_killed(self, tmp_path: Path) -> None:
        with pytest.raises(RankFailed, match="rank 1 was killed by SIGKILL in epoch 2"):
            start("killed_between", tmp_path, 3)


@pytest.mark.processes
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_gpu_ranks_equal_loopback(tmp_path: Path, backend: str, parts: int) -> None:
    """Ranks that share a GPU, over gloo staged through host memory; over NCCL as if each had a host of its own."""
    found = start("everything", tmp_path, parts, where=("cuda", backend))
    expected = loopback.run_ranks(programs.everything, parts)
    for mine, theirs in zip(found, expected, strict=True):
        for a, b in zip(mine["epochs"], theirs["epochs"], strict=True):
            assert (a["found"], a["layers"], a["to"]) == (b["found"], b["layers"], b["to"])
            assert sum(a["seconds"][name] for name in COMPONENTS) == a["seconds"]["epoch"] > 0


@pytest.mark.processes
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_a_killed_gpu_rank_is_named(tmp_path: Path, backend: str) -> None:
    with pytest.raises(RankFailed, match="rank 1 was killed by SIGKILL in epoch 2"):
        start("killed", tmp_path, 3, where=("cuda", backend))


@pytest.fixture(scope="module")
def slips(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """Messages of two ranks for every error that both of them detect."""
    return start("slips", tmp_path_factory.mktemp("slips"), 2)


@pytest.mark.processes
class TestSlips:
    PATTERNS = {
        "early_return": r"rank 0 is in AllReduce 'alone' \(reduce, epoch 0\) at HERE, but rank 1 has returned",
        "extra_collective": r"is in Broadcast 'extra' .*epoch 0\) at HERE, but rank 1 is in AllReduce 'common' .*HERE",
        "wrong_shape": r"shape or dtype: rank 0 has .*\(2,\).* in AllReduce 'shape' .* HERE, but rank 1 has .*\(3,\)",
        "wrong_dtype": r"bfloat16.* in AllToAll 'dtype' \(forward, layer 3, epoch 0\).* rank 1 has .*float16",
        "wrong_counts": r"rank 1 expects 2 rows from rank 0, which sends 1, in AllToAll 'counts' .* at HERE",
        "wrong_layer": r"rank 0 is in AllToAll 'layer' .*layer 0.*, but rank 1 is in AllToAll 'layer' .*layer 1.* HERE",
        "wrong_path": r"before epoch 2: rank 0 was in AllReduce 'of rank 0' .* HERE, "
        r"rank 1 was in AllReduce 'of rank 1' .* HERE",
        "wrong_late_shape": r"before epoch 2: rank 0 was in AllReduce 'same bytes' .* HERE with .*\(3, 2\).*, "
        r"rank 1 was in AllReduce 'same bytes' \(reduce, epoch 1\) at HERE with .*\(2, 3\)",
        "wrong_late_counts": r"rank 1 expects 2 rows from rank 0, which sends 1, "
        r"in AllToAll 'late counts' .*epoch 2\) at HERE",
        "wrong_last_message": r"messages differ: rank 0 sent rank 1 Send 'first' .*; Send 'second' .* at HERE, "
        r"but rank 1 received Recv 'first' .*; Recv 'third' .*epoch 2\) at HERE",
        "written_to": r"a tensor was written to before the wait for AllReduce 'written' .* at HERE",
        "beside_written_to": r"a tensor was written to before Background 'rows' .*background.py:\d+ had encoded it",
        "beside_undeclared": r"Background 'narrow' .* at HERE was declared to send .*\(2, 2\).* payload is .*\(2, 3\)",
        "beside_on_one": r"rank 0 is in Background 'rows' .*background.py:\d+, but rank 1 is in AllToAll 'rows'",
        "to_itself": r"'self' at HERE names rank \d as its peer",
    }

    @pytest.mark.parametrize("name", PATTERNS)
    def test_every_rank_says_who_and_where(self, slips: list[dict[str, str]], name: str) -> None:
        for rank in range(2):
            pattern = self.PATTERNS[name].replace("HERE", r"\S*tests/support/slips\.py:\d+")
            assert re.search(pattern, slips[rank][name]), slips[rank][name]


@pytest.mark.processes
class TestFailures:
    def test_exception(self, tmp_path: Path) -> None:
        with pytest.raises(RankFailed) as caught:
            start("exception", tmp_path, 2)
        text = str(caught.value)
        assert "ValueError: a row of nan" in text
        assert "rank 1 of 2, epoch 2, after AllReduce 'gradients'" in text
        assert text.count("programs.py:") == 2  # the effect before, and where it was raised
        assert (caught.value.rank, caught.value.kind) == (1, "ValueError")

    def test_killed_rank_is_named_within_ten_seconds(self, tmp_path: Path) -> None:
        with pytest.raises(RankFailed) as caught:
            start("killed", tmp_path, 3)
        assert since_connected(tmp_path) < 10
        text = str(caught.value)
        assert "rank 1 was killed by SIGKILL in epoch 2, compute, after AllReduce 'gradients' (reduce, epoch 1)" in text
        for survivor in (0, 2):
            where = rf"rank {survivor} waits in AllReduce 'gradients' \(reduce, epoch 2\) at \S*programs.py:\d+: "
            assert re.search(where, text), text
            code, line = caught.value.exits[survivor].code, caught.value.exits[survivor].line
            said = rf"^rank 1 was killed by SIGKILL in epoch 2.* \(rank {survivor} waits in"
            assert code == 1 and re.search(said, line), line

    def test_a_rank_that_is_killed_beside_its_compute_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(RankFailed) as caught:
            start("killed_beside", tmp_path, 3)
        assert since_connected(tmp_path) < 10
        text = str(caught.value)
        assert re.search(r"rank 1 was killed by SIGKILL in epoch [12]", text), text
        where = r"rank [02] waits in the wait for Background 'rows' \(forward, layer 1, epoch 1\) at \S*py:"
        assert re.search(where, text), text

    def test_what_cannot_be_encoded_is_told_at_the_wait(self, tmp_path: Path) -> None:
        """And no later exchange takes the place of the one that was not started."""
        with pytest.raises(RankFailed) as caught:
            start("nan_beside", tmp_path, 3)
        text = str(caught.value)
        assert re.search(
            r"ValueError: a row of nan; in Background 'rows 0' \(forward, layer 1, epoch 1\) at \S*py:", text
        )
        assert (caught.value.rank, caught.value.kind) == (1, "ValueError")
        for survivor in (0, 2):
            line = caught.value.exits[survivor].line
            assert line.startswith("rank 1 failed: ValueError: a row of nan"), line
            assert f"(rank {survivor} waits in the wait for Background 'rows 0'" in line

    def test_frozen_rank_is_named_after_the_timeout(self, tmp_path: Path) -> None:
        with pytest.raises(RankFailed) as caught:
            start("frozen", tmp_path, 2, timeout_s=2)
        assert since_connected(tmp_path) < 2 + 5
        text = str(caught.value)
        assert re.search(
            r"rank 1 is stopped by a signal in epoch 2, compute, .*; rank 0 waits in .*within 2 s", text
        ), text
        assert caught.value.rank == 1
        assert caught.value.exits[0].line.startswith("rank 1 is stopped by a signal in epoch 2")

    def test_messages_that_were_mistaken_are_told_in_the_next_epoch(self, tmp_path: Path) -> None:
        with pytest.raises(RankFailed) as caught:
            start("strayed", tmp_path, 2)
        text = str(caught.value)
        assert re.search(
            r"messages differ: rank 0 sent rank 1 .*; Send 'one' .*epoch 1\) at \S*programs.py:\d+; Send 'two' .*, "
            r"but rank 1 received .*; Recv 'two' .*; Recv 'one' .*epoch 1\) at \S*programs.py:\d+",
            text,
        ), text
        assert (caught.value.rank, caught.value.kind) == (1, "ProgramError")

    def test_a_slow_disk_may_take_longer_than_an_exchange(self, tmp_path: Path) -> None:
        assert start("slow_disk", tmp_path, 2, timeout_s=1.5) == ["done", "done"]

    def test_a_rank_that_freezes_at_its_disk_is_named_after_the_timeout(self, tmp_path: Path) -> None:
        """Although a slow rank may take 30 s."""
        with pytest.raises(RankFailed, match=r"rank 1 is stopped by a signal in epoch 1, checkpoint, .*within 2 s"):
            start("frozen_at_disk", tmp_path, 2, timeout_s=2)
        assert since_connected(tmp_path) < 2 + 5

    def test_ranks_that_wait_for_each_other_are_told_apart(self, tmp_path: Path) -> None:
        """Long before the timeout: within the epoch."""
        with pytest.raises(RankFailed) as caught:
            start("parted", tmp_path, 2, timeout_s=60)
        assert since_connected(tmp_path) < 15
        text = str(caught.value)
        for pattern in (
            r"in AllReduce 'norms' \(reduce, epoch 1\) at \S*programs.py:\d+",
            r"Broadcast 'one more' .*programs.py:\d+",
        ):
            assert re.search(pattern, text), text
        assert "ranks disagree: rank " in text

    def test_members_of_other_groups_that_wait_for_each_other(self, tmp_path: Path) -> None:
        """Rank 0 waits for rank 1 in one group, rank 1 for rank 2 in another; messages name both groups."""
        with pytest.raises(RankFailed) as caught:
            start("other_members", tmp_path, 3, timeout_s=20)
        text = str(caught.value)
        assert re.search(r"AllReduce 'row' \(reduce, epoch 0\) of ranks (0, 1|1, 2) at \S*py:\d+", text), text

    def test_shapes_are_compared_within_a_group(self, tmp_path: Path) -> None:
        with pytest.raises(RankFailed) as caught:
            start("other_shape_in_group", tmp_path, 3, timeout_s=60)
        assert since_connected(tmp_path) < 15
        said = (
            r"before epoch 2: rank 1 was in Broadcast 'same bytes' \(other, epoch 1\) of ranks 1, 2 at \S* with "
            r".*\(2, 3\).*, rank 2 was in Broadcast 'same bytes' .* of ranks 1, 2 at \S* with .*\(3, 2\)"
        )
        assert re.search(said, str(caught.value)), caught.value

    def test_a_rank_that_skips_a_group_is_named(self, tmp_path: Path) -> None:
        """Long before the timeout: the one waits in the group, the other in a collective of all."""
        with pytest.raises(RankFailed) as caught:
            start("one_call_less", tmp_path, 3, timeout_s=60)
        assert since_connected(tmp_path) < 15
        said = r"ranks disagree: rank [01] is in AllReduce .*, but rank [01] is in AllReduce '(all|rows)' .*epoch 1\)"
        assert re.search(said, str(caught.value)), caught.value
        assert "of ranks 0, 1 at" in str(caught.value)

    def test_a_rank_that_is_killed_in_a_group_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(RankFailed) as caught:
            start("killed_in_group", tmp_path, 3)
        assert since_connected(tmp_path) < 10
        text = str(caught.value)
        assert "rank 1 was killed by SIGKILL in epoch 2, compute, after AllReduce 'gradients' (reduce, epoch 1)" in text
        assert re.search(r"rank 0 waits in AllReduce 'rows' \(reduce, epoch 2\) of ranks 0, 1 at \S*py:", text), text
        assert re.search(r"rank 2 waits in AllReduce 'gradients' \(reduce, epoch 2\) at \S*py:", text), text


def since_connected(folder: Path) -> float:
    """Seconds since the last rank had joined."""
    return time.time() - max(file.stat().st_mtime for file in folder.glob("*.joined"))


def test_one_rank_needs_no_process_group() -> None:
    async def program(rank: Rank) -> list[Any]:
        send = np.asarray([3])
        received = await rank.all_to_all(
            [Rows(torch.arange(6.0).view(3, 2), send, None)], label="x", direction="forward"
        )
        handle = await rank.start(rank.all_reduce(torch.ones(2), label="sum"))
        rank.clock.begin_epoch()
        copy = await rank.host_copy(torch.ones(1), to_host=True, label="copy")
        seconds = rank.clock.end_epoch()
        assert sum(seconds[name] for name in COMPONENTS) == seconds["epoch"] > 0
        return [programs.show(t) for t in (*received.tensors, await rank.wait(handle), copy)]

    async def lonely(rank: Rank) -> None:
        await rank.recv(torch.ones(1), source=0, label="nobody")

    async def forgotten(rank: Rank) -> None:
        rank.all_reduce(torch.ones(4), label="lost")

    with connect() as connection:
        assert connection.backend == "none" and not torch.distributed.is_initialized()
        assert run_program(program, connection) == [
            programs.show(t) for t in (torch.arange(6.0).view(3, 2), torch.ones(2), torch.ones(1))
        ]
        with pytest.raises(ProgramError, match="'nobody' at .* names rank 0 as its peer"):
            run_program(lonely, connection)
        with pytest.raises(ProgramError, match=r"a forgotten await: AllReduce 'lost' .*epoch 0\) at .*driver.py:\d+"):
            run_program(forgotten, connection)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WORLD_SIZE": "2", "RANK": "0"}, "MASTER_ADDR and MASTER_PORT are not set"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two'"),
    ],
)
def test_bad_environment_is_one_line(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], message: str) -> None:
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=message), connect():
        pass


@pytest.mark.parametrize(
    ("name", "device", "expected"),
    [
        ("auto", "cpu", "gloo"),
        ("gloo", "cuda", "gloo"),
        ("auto", "cuda", "nccl"),
        ("nccl", "cuda", "nccl"),
        ("nccl", "cpu", "needs --device cuda"),
    ],
)
def test_backend_follows_the_device(monkeypatch: pytest.MonkeyPatch, name: str, device: str, expected: str) -> None:
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    if " " in expected:
        with pytest.raises(InputError, match=expected):
            _backend(name, torch.device(device))
    else:
        assert _backend(name, torch.device(device)) == expected


def test_ranks_say_which_gpu_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not its number: under Slurm each may see its own only, as number 0."""
    monkeypatch.delenv(SHARING, raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=f"uuid of {device}"))
    assert _gpu("auto", torch.device("cpu")) == ""
    for name in ("auto", "gloo", "nccl"):
        assert _gpu(name, torch.device("cuda:0")) == "uuid of cuda:0"
    monkeypatch.setenv(SHARING, "1")
    assert _gpu("nccl", torch.device("cuda:0")) == "", "whoever sets it may share"
    assert _gpu("auto", torch.device("cuda:0")) != ""


def test_the_library_starts_exchanges_without_waiting() -> None:
    """By default, which `Channel` relies on: options differ by version."""
    for options in (torch.distributed.AllToAllOptions, torch.distributed.AllreduceOptions):
        assert options().asyncOp  # type: ignore[attr-defined]


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_no_gpu_is_an_input_error() -> None:
    with pytest.raises(InputError, match="no usable GPU"), connect(device="cuda"):
        pass


@settings(deadline=None, max_examples=50)
@given(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), min_size=1, max_size=3), st.integers(0, 2**32))
def test_bytes_and_back(dtype: torch.dtype, shape: list[int], seed: int) -> None:
    noise = torch.from_numpy(np.random.default_rng(seed).integers(0, 2, size=shape)).to(dtype)
    for tensor in (noise, noise.transpose(0, -1)):
        data = flat_bytes(tensor)
        assert data.dtype == torch.uint8 and data.numel() == tensor.numel() * tensor.element_size()
        back = from_bytes(data.clone(), dtype, tuple(tensor.shape))
        assert torch.equal(back, tensor)
