"""The simulated driver: components, spans, memory, and results equal to loopback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import loopback
from harness.effects import Received, Rows
from harness.rank import COMPONENTS, Rank
from sims.cluster import load_cluster, place
from sims.engine import Simulation, simulate
from tests.support.background import halved
from tests.support.observers import Spans
from tests.support.simulated import each, everyone_sends, plain, seconds_of, timed, work


async def busy_program(rank: Rank) -> float:
    """Some of everything, in uneven amounts."""
    x = torch.ones(40 + 10 * rank.index, 8)
    total = torch.zeros(())
    for epoch in range(2):
        rank.epoch = epoch
        counts = each(rank.size, 5, rank.index)
        with rank.span("sample"):
            rows = x[: int(counts.sum())] * (rank.index + 1)
        handle = await rank.start(
            rank.all_to_all([Rows(rows, counts, counts)], label="a", direction="forward", layer=0)
        )
        with rank.span("codec"):
            x = (x @ torch.ones(8, 8)).relu() / 8
        got = await rank.wait(handle)
        total = await rank.all_reduce(got.tensors[0].sum() + x.sum(), label="g")
        with rank.off_the_clock():
            await rank.all_reduce(torch.ones(1000) @ torch.ones(1000, 1000), label="evaluation", direction="other")
        await rank.host_copy(x, to_host=True, label="swap")
    return float(total)


@pytest.mark.parametrize("name", ["local", "ethernet-1g", "cdfgnn-2x8a800"])
def test_components_sum_to_the_epoch(name: str) -> None:
    size = 3
    simulation = timed(busy_program, size, load_cluster(name))
    for rank in range(size):
        seconds = seconds_of(simulation, rank)
        assert set(seconds) == {*COMPONENTS, "hidden", "epoch"}
        assert seconds["epoch"] == pytest.approx(sum(seconds[c] for c in COMPONENTS), rel=1e-12)
        assert seconds["epoch"] <= simulation.makespan_s * (1 + 1e-12)
        assert all(seconds[c] > 0 for c in ("compute", "codec", "sample", "reduce"))
        assert seconds["halo"] + seconds["hidden"] > 0


def test_spans_tile_the_epoch_of_a_rank_that_blocks(tmp_path: Path) -> None:
    spans = Spans()

    async def program(rank: Rank) -> None:
        for layer in range(2):
            work(rank, 1e-3 * (rank.index + 1))
            with rank.span("codec"):
                work(rank, 1e-3)
            await rank.all_to_all(everyone_sends(rank, 250), label=f"h{layer}", direction="forward", layer=layer)
        await rank.all_reduce(torch.empty(10, device="meta"), label="g")
        with rank.off_the_clock():
            await rank.all_reduce(torch.empty(10, device="meta"), label="evaluation")

    simulation = timed(program, 2, plain(tmp_path), shapes_only=True, observers=[spans])
    mine = sorted((s for s in spans.found if s[0] == 0), key=lambda s: s[3])
    assert [(s[1], s[2], s[5]) for s in mine] == [
        ("compute", "compute", 0), ("codec", "codec", 0), ("halo", "h0", 1000),
        ("compute", "compute", 0), ("codec", "codec", 0), ("halo", "h1", 1000), ("reduce", "g", 40),
    ]  # fmt: skip
    assert mine[0][3] == 0.0 and mine[-1][4] == pytest.approx(seconds_of(simulation)["epoch"])
    for before, after in zip(mine, mine[1:], strict=False):
        assert before[4] == pytest.approx(after[3])


def test_epochs_begin_at_zero(tmp_path: Path) -> None:
    async def program(rank: Rank) -> list[dict[str, float]]:
        epochs = []
        work(rank, 7.0)
        for _ in range(2):
            rank.clock.begin_epoch()
            work(rank, 1e-3)
            await rank.all_reduce(torch.empty(2, device="meta"), label="g")
            work(rank, 1e-3)
            epochs.append(rank.clock.end_epoch())
        return epochs

    simulation = simulate(program, place(plain(tmp_path), 2), shapes_only=True)
    first, second = simulation.results[0]
    assert first == pytest.approx(second) and first["compute"] == pytest.approx(2e-3)
    assert simulation.makespan_s == pytest.approx(7.0 + 2 * first["epoch"])


@pytest.mark.parametrize("factor", [2, 10])
def test_more_bandwidth_is_never_slower(tmp_path: Path, factor: int) -> None:
    times = [
        timed(busy_program, 4, plain(tmp_path, 4, nic=f"{speed} kB/s")).makespan_s for speed in (10, 10 * factor, 1e6)
    ]
    assert times == sorted(times, reverse=True) and times[0] > times[1]


# -- the same numbers as loopback ------------------------------------------------------------------------------------

Step = tuple[str, int]


def random_program(steps: list[Step], seed: int) -> Callable[[Rank], Any]:
    """A program that mixes effects and arithmetic according to `steps`; returns every received value."""

    async def run(rank: Rank) -> list[torch.Tensor]:
        random = np.random.default_rng([seed, rank.index])
        counts = np.random.default_rng(seed).integers(0, 4, (rank.size, rank.size))
        x = torch.from_numpy(random.standard_normal((6, 3)).astype(np.float32))
        seen, handles = [], []
        for at, (kind, number) in enumerate(steps):
            rank.epoch = at
            send, recv = counts[rank.index], counts[:, rank.index].copy()
            rows = x[torch.from_numpy(random.integers(0, len(x), int(send.sum())))] * 0.9
            exchange = [Rows(rows, send, None if number % 2 else recv)]
            if kind == "exchange":
                x = torch.cat([x, (await rank.all_to_all(exchange, label="x")).tensors[0]])[-8:]
            elif kind == "start":
                handles.append(await rank.start(rank.all_to_all(exchange, label="s")))
            elif kind == "beside":
                handles.append(await halved(rank, rows, send, recv, label="c"))
            elif kind == "wait" and handles:
                x = torch.cat([rows_of(await rank.wait(handles.pop(0))), x])[:8]
            elif kind == "reduce":
                x = x + await rank.all_reduce(x.sum(0) / 7, label="g")
            elif kind == "broadcast":
                x = x * 0.5 + await rank.broadcast(x.mean(0), root=number % rank.size, label="b")
            elif kind == "ring" and rank.size > 1:
                right, left = (rank.index + 1) % rank.size, (rank.index - 1) % rank.size
                handle = await rank.start(rank.send(x[0] * 3, to=right, label="r"))
                x = x - await rank.recv(torch.empty(3), source=left, label="r")
                await rank.wait(handle)
            elif kind == "gradient":
                w = torch.ones(3, 3, requires_grad=True)
                x = x + torch.autograd.grad(torch.tanh(x @ w).sum(), w)[0].sum(0)
            elif kind == "no_grad":
                with torch.no_grad():
                    await rank.all_reduce(x, label="e")
            seen.append(x)
            seen.append(torch.tensor(torch.is_grad_enabled()))
        for handle in handles:
            seen.append(rows_of(await rank.wait(handle)))
        return seen

    return run


def rows_of(result: Received | torch.Tensor) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else result.tensors[0]


KINDS = ["exchange", "start", "beside", "wait", "reduce", "broadcast", "ring", "gradient"]


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 9)), min_size=1, max_size=8),
    st.integers(1, 6),
    st.sampled_from(["local", "ec-graph", "sylvie-2x8", "cdfgnn-2x8a800"]),
    st.booleans(),
    st.integers(0, 99),
)
def test_results_are_those_of_loopback_bit_for_bit(
    steps: list[Step], size: int, name: str, deterministic: bool, seed: int
) -> None:
    program = random_program(steps, seed)
    expected = loopback.run_ranks(program, size)
    simulation = simulate(program, place(load_cluster(name), size), deterministic=deterministic)
    for mine, theirs in zip(simulation.results, expected, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_gradient_mode_belongs_to_the_rank() -> None:
    """A rank suspended inside no_grad does not change the mode of other ranks, nor its own afterwards."""
    steps = [("no_grad", 0), ("gradient", 0), ("no_grad", 0), ("gradient", 0)]
    simulation = simulate(random_program(steps, 3), place(load_cluster("local"), 3))
    assert all(bool(flag) for seen in simulation.results for flag in seen[1::2])
    assert torch.is_grad_enabled()


def test_shapes_only_costs_what_real_tensors_cost() -> None:
    async def program(rank: Rank) -> tuple[int, int]:
        x = torch.ones(300, 16, device=rank.device, requires_grad=True)
        w = torch.ones(16, 16, device=rank.device)
        counts = each(rank.size, 20, rank.index)
        h = (x @ w).relu()
        got = await rank.all_to_all([Rows(h.detach()[: int(counts.sum())], counts, counts)], label="h")
        g = torch.autograd.grad((h.sum() + got.tensors[0].sum()), x)[0]
        await rank.all_reduce(g, label="g")
        return rank.clock.peak_memory(), int(rank.traffic.to.sum())

    real, shapes = (timed(program, 3, load_cluster("ec-graph"), shapes_only=s) for s in (False, True))
    assert shapes.results == real.results
    assert shapes.makespan_s == real.makespan_s and shapes.link_bytes == real.link_bytes
    assert shapes.class_seconds == real.class_seconds and not shapes.unknown_ops
    assert shapes.peak_memory == [peak for (peak, _), _ in shapes.results]
    assert shapes.out_of_memory == []


def test_receive_buffers_in_flight_count_as_memory(tmp_path: Path) -> None:
    async def program(rank: Rank) -> None:
        handle = await rank.start(rank.all_to_all(everyone_sends(rank, 250), label="h"))
        torch.empty(250, device="meta").mul_(2)  # 1000 bytes beside what is sent and what is received
        work(rank, 1.0)
        await rank.wait(handle)

    assert timed(program, 2, plain(tmp_path), shapes_only=True).peak_memory == [3000, 3000]


def test_a_prediction_may_be_out_of_memory() -> None:
    async def program(rank: Rank) -> None:
        torch.empty(2**33 * (rank.index + 1), device="meta").mul_(2)  # 32 GiB, 64 GiB

    simulation = simulate(program, place(load_cluster("sylvie-2x8"), 2), shapes_only=True)
    assert simulation.memory == [24 * 2**30] * 2 and simulation.out_of_memory == [0, 1]


SHARED_GPU = "sylvie-2x8:hosts.devices=1:hosts.ranks_per_host=4:hosts.spread=false"


@pytest.mark.parametrize(
    ("cluster", "fits"),
    [("local", 2), ("lab:4xunshaped", 2), ("ethernet-1g", 8), (SHARED_GPU, 3), ("sylvie-2x8", 8)],
)
def test_ranks_that_share_a_device_need_its_memory_together(cluster: str, fits: int) -> None:
    """Devices of 24 to 26 GB, ranks of 8.6 GB: two or three on one device, any number on one each."""

    async def program(rank: Rank) -> None:
        torch.empty(2**31, device="meta").mul_(2)

    def run(size: int) -> Simulation:
        return simulate(program, place(load_cluster(cluster), size), shapes_only=True)

    assert not run(fits).too_large
    if fits < 8:
        found = run(fits + 1)
        assert found.out_of_memory == list(range(fits + 1))
        assert f"the {fits + 1} ranks that share a device need" in found.too_large


def test_kernels_of_ranks_that_share_a_gpu_take_turns() -> None:
    async def program(rank: Rank) -> None:
        for _ in range(5):
            torch.empty(2**28, device="meta").mul_(2)

    def makespan(cluster: str, size: int) -> float:
        return simulate(program, place(load_cluster(cluster), size), shapes_only=True).makespan_s

    alone = makespan(SHARED_GPU, 1)
    assert makespan("sylvie-2x8", 4) == pytest.approx(alone)
    assert makespan(SHARED_GPU, 2) == pytest.approx(2 * alone) and makespan(SHARED_GPU, 4) == pytest.approx(4 * alone)


def test_a_copy_for_the_device_is_the_tensor_itself_on_a_cpu() -> None:
    async def program(rank: Rank) -> None:
        here = torch.ones(1000, device=rank.device)
        there = await rank.host_copy(here, to_host=True, label="out")
        await rank.host_copy(there, to_host=False, label="in")

    peaks = {name: simulate(program, place(load_cluster(name), 1), shapes_only=True).peak_memory
             for name in ("local", "sylvie-2x8")}  # fmt: skip
    assert peaks == {"local": [4000], "sylvie-2x8": [8000]}


def test_many_ranks_on_meta_tensors() -> None:
    """192 ranks exchange with everyone; equal sizes are few events however many transfers there are."""

    async def program(rank: Rank) -> None:
        for layer in range(2):
            await rank.all_to_all(everyone_sends(rank, 16), label="h", direction="forward", layer=layer)
        await rank.all_reduce(torch.empty(1000, device="meta"), label="g")

    simulation = timed(program, 192, load_cluster("bns-32x6v100"), shapes_only=True)
    assert sum(simulation.tiers.values()) == 192 * 191 * (2 * 64) + 2 * 191 * 4000
    assert len({round(seconds_of(simulation, r)["epoch"], 9) for r in range(192)}) <= 3
