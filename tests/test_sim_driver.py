"""The simulated driver: closed forms, components, the same numbers as loopback, and messages that say where."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
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
from sims.device import load_device
from sims.driver import Simulation, simulate
from sims.topology import Cluster, load_cluster

BANDWIDTH, LATENCY = 1e6, 1e-3  # of the plain cluster, from host to host


def plain(tmp_path: Path, hosts: int = 2, *, transport: str = "", nic: str = "1 MB/s") -> Cluster:
    """CPU hosts with one rank each and nothing but a NIC."""
    path = tmp_path / "plain.toml"
    path.write_text(
        f'[hosts]\ncount = {hosts}\ndevice = "cpu-epyc-1core"\n[links.nic]\nbandwidth = "{nic}"\nlatency = "500 us"\n'
        f'[transport]\nkind = "gloo"\n{transport}'
    )
    return load_cluster(path)


def gpus(tmp_path: Path, kind: str) -> Cluster:
    """One host with two GPUs; the bus carries 10 MB/s, host memory 1 MB/s."""
    path = tmp_path / "gpus.toml"
    path.write_text(
        '[hosts]\ncount = 1\ndevices = 2\ndevice = "rtx-3090"\n'
        '[links.bus]\nbandwidth = "10 MB/s"\nlatency = "1 ms"\n'
        '[links.loopback]\nbandwidth = "1 MB/s"\nlatency = "5 ms"\n'
        f'[transport]\nkind = "{kind}"\n'
    )
    return load_cluster(path)


def work(rank: Rank, seconds: float) -> None:
    """Compute that takes so long on the modelled clock."""
    rank.clock.charge(seconds)  # type: ignore[attr-defined]


def each(size: int, rows: int, own: int = -1) -> np.ndarray:
    """`rows` for every rank but `own`."""
    counts = np.full(size, rows, np.int64)
    if own >= 0:
        counts[own] = 0
    return counts


def everyone_sends(rank: Rank, rows: int, *, known: bool = True) -> list[Rows]:
    """A one-column all-to-all of `rows` rows per pair; nothing stays at home."""
    counts = each(rank.size, rows, rank.index)
    return [Rows(torch.empty(int(counts.sum()), 1, device="meta"), counts, counts if known else None)]


def timed(program: Callable[[Rank], Any], size: int, cluster: Cluster, **options: Any) -> Simulation:
    """Run with one epoch around the program; every result is (value, seconds)."""

    async def run(rank: Rank) -> Any:
        rank.clock.begin_epoch()
        value = await program(rank)
        return value, rank.clock.end_epoch()

    return simulate(run, size, cluster=cluster, **options)


def seconds_of(simulation: Simulation, rank: int = 0) -> dict[str, float]:
    found: dict[str, float] = simulation.results[rank][1]
    return found


# -- closed forms --------------------------------------------------------------------------------------------------


def test_two_ranks_exchange(tmp_path: Path) -> None:
    async def program(rank: Rank) -> None:
        await rank.all_to_all(everyone_sends(rank, 250), label="h", direction="forward", layer=0)

    simulation = timed(program, 2, plain(tmp_path), shapes_only=True)
    assert simulation.makespan_s == pytest.approx(LATENCY + 1000 / BANDWIDTH)
    assert seconds_of(simulation)["halo"] == pytest.approx(2e-3)
    assert simulation.link_bytes == dict.fromkeys(
        ["host0.nic.tx", "host1.nic.tx", "host0.nic.rx", "host1.nic.rx"], 1000
    )
    assert simulation.tiers == {"ethernet": 2000}


def test_counts_travel_first_when_only_the_sender_knows(tmp_path: Path) -> None:
    async def program(rank: Rank) -> None:
        await rank.all_to_all(everyone_sends(rank, 250, known=False), label="h")

    simulation = timed(program, 2, plain(tmp_path), shapes_only=True)
    assert simulation.makespan_s == pytest.approx(2 * LATENCY + 1008 / BANDWIDTH)


def test_a_transfer_waits_for_both_ends(tmp_path: Path) -> None:
    """Rank 1 arrives 10 ms late: its pairs wait for it, and the others use the network meanwhile."""

    async def program(rank: Rank) -> None:
        work(rank, 10e-3 if rank.index == 1 else 0.0)
        await rank.all_to_all(everyone_sends(rank, 250), label="h", direction="forward", layer=0)

    simulation = timed(program, 3, plain(tmp_path, 3), shapes_only=True)
    late = 10e-3 + LATENCY + 2 * 1000 / BANDWIDTH  # rank 1 has two messages on its own links
    assert simulation.makespan_s == pytest.approx(late)
    assert seconds_of(simulation, 1) == pytest.approx(seconds_of(simulation, 1) | {"compute": 10e-3, "epoch": late})
    assert seconds_of(simulation, 0)["halo"] == pytest.approx(late)
    together = timed(program_without_delay, 3, plain(tmp_path, 3), shapes_only=True)
    assert together.makespan_s == pytest.approx(LATENCY + 2 * 1000 / BANDWIDTH)


async def program_without_delay(rank: Rank) -> None:
    await rank.all_to_all(everyone_sends(rank, 250), label="h", direction="forward", layer=0)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_all_reduce_in_rank_order_is_two_all_to_alls(tmp_path: Path, size: int) -> None:
    async def program(rank: Rank) -> None:
        await rank.all_reduce(torch.empty(60, device="meta"), label="g")

    simulation = timed(program, size, plain(tmp_path, size), shapes_only=True)
    chunk = 240 / size
    expected = 2 * (LATENCY + (size - 1) * chunk / BANDWIDTH)
    assert seconds_of(simulation)["reduce"] == pytest.approx(expected)
    assert sum(simulation.tiers.values()) == 2 * (size - 1) * 240


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_ring_all_reduce(tmp_path: Path, size: int) -> None:
    async def program(rank: Rank) -> None:
        work(rank, 1e-3 * rank.index)
        await rank.all_reduce(torch.empty(840, device="meta"), label="g")

    simulation = timed(program, size, plain(tmp_path, size), shapes_only=True, deterministic=False)
    ring = 2 * (size - 1) * (LATENCY + 3360 / size / BANDWIDTH)
    assert simulation.makespan_s == pytest.approx(1e-3 * (size - 1) + ring)
    assert sum(simulation.tiers.values()) == 2 * (size - 1) * 3360
    assert simulation.link_bytes["host0.nic.tx"] == 2 * (size - 1) * 3360 // size


@pytest.mark.parametrize(("size", "rounds"), [(2, 1), (3, 2), (4, 2), (5, 3), (8, 3)])
@pytest.mark.parametrize("root", [0, 1])
def test_broadcast_is_a_binomial_tree(tmp_path: Path, size: int, rounds: int, root: int) -> None:
    async def program(rank: Rank) -> None:
        await rank.broadcast(torch.empty(250, device="meta"), root=root, label="b")

    simulation = timed(program, size, plain(tmp_path, size), shapes_only=True)
    assert simulation.makespan_s == pytest.approx(rounds * (LATENCY + 1000 / BANDWIDTH))


def test_send_and_receive(tmp_path: Path) -> None:
    async def program(rank: Rank) -> None:
        like = torch.empty(250, device="meta")
        if rank.index == 0:
            await rank.send(like, to=1, label="s")
        else:
            work(rank, 5e-3)
            await rank.recv(like, source=0, label="s")

    simulation = timed(program, 2, plain(tmp_path), shapes_only=True)
    assert simulation.makespan_s == pytest.approx(5e-3 + LATENCY + 1000 / BANDWIDTH)
    assert simulation.link_bytes["host0.nic.tx"] == 1000 and simulation.link_bytes["host1.nic.tx"] == 0


def test_software_costs_and_the_ceiling_of_a_process(tmp_path: Path) -> None:
    costs = 'operation = "3 ms"\nmessage = "2 ms"\nprocess = "500 kB/s"\n'
    simulation = timed(program_without_delay, 3, plain(tmp_path, 3, transport=costs), shapes_only=True)
    assert simulation.makespan_s == pytest.approx(3e-3 + 2 * 2e-3 + LATENCY + 2 * 1000 / 500e3)


def test_rows_that_stay_at_home_cost_a_copy(tmp_path: Path) -> None:
    async def program(rank: Rank) -> None:
        counts = np.asarray([1_000_000])
        await rank.all_to_all([Rows(torch.empty(1_000_000, 1, device="meta"), counts, counts)], label="h")

    profile = load_device("cpu-epyc-1core")
    simulation = timed(program, 1, plain(tmp_path), shapes_only=True)
    expected = profile.launch.value + 8e6 / profile.bandwidth["copy"].value
    assert simulation.makespan_s == pytest.approx(expected)
    assert simulation.tiers == {"ethernet": 0}


def test_gloo_stages_the_tensors_of_a_gpu_through_the_host(tmp_path: Path) -> None:
    async def program(rank: Rank) -> None:
        await rank.all_to_all(everyone_sends(rank, 250), label="h")

    bus = 1e-3 + load_device("rtx-3090").launch.value + 1000 / 10e6
    over_host = timed(program, 2, gpus(tmp_path, "gloo"), shapes_only=True)
    # Both messages share the host's memory.
    assert over_host.makespan_s == pytest.approx(2 * bus + 5e-3 + 2000 / 1e6)
    direct = timed(program, 2, gpus(tmp_path, "nccl"), shapes_only=True)
    assert direct.makespan_s == pytest.approx(2e-3 + 1000 / 10e6)
    assert direct.tiers == {"pcie": 2000} and over_host.tiers == {"loopback": 2000}


def test_host_copies_are_swap_time_on_a_gpu_and_free_on_a_cpu(tmp_path: Path) -> None:
    async def program(rank: Rank) -> bool:
        x = torch.ones(250)
        there = await rank.host_copy(x, to_host=True, label="offload")
        return torch.equal(await rank.host_copy(there, to_host=False, label="fetch"), x)

    on_gpu = timed(program, 1, gpus(tmp_path, "nccl"))
    bus = 1e-3 + load_device("rtx-3090").launch.value + 1000 / 10e6
    assert seconds_of(on_gpu)["swap"] == pytest.approx(2 * bus)
    on_cpu = timed(program, 1, plain(tmp_path))
    assert seconds_of(on_cpu)["swap"] == 0.0
    assert on_gpu.results[0][0] and on_cpu.results[0][0]
    assert on_gpu.peak_memory == [2000], "the copy in host memory does not count"


def test_a_started_host_copy_hides_too(tmp_path: Path) -> None:
    async def program(rank: Rank) -> None:
        handle = await rank.start(rank.host_copy(torch.empty(25_000, device="meta"), to_host=True, label="offload"))
        work(rank, 4e-3)
        await rank.wait(handle)

    seconds = seconds_of(timed(program, 1, gpus(tmp_path, "nccl"), shapes_only=True))
    copy = 1e-3 + load_device("rtx-3090").launch.value + 100e3 / 10e6
    assert (seconds["hidden"], seconds["swap"]) == pytest.approx((4e-3, copy - 4e-3))


@pytest.mark.parametrize(("compute", "hidden", "exposed"), [(1e-3, 1e-3, 1e-3), (5e-3, 2e-3, 0.0), (0.0, 0.0, 2e-3)])
def test_a_started_exchange_hides_behind_compute(tmp_path: Path, compute: float, hidden: float, exposed: float) -> None:
    async def program(rank: Rank) -> None:
        exchange = rank.all_to_all(everyone_sends(rank, 250), label="h", direction="forward", layer=0)
        handle = await rank.start(exchange)
        work(rank, compute)
        await rank.wait(handle)

    seconds = seconds_of(timed(program, 2, plain(tmp_path), shapes_only=True))
    assert (seconds["hidden"], seconds["halo"]) == pytest.approx((hidden, exposed))
    assert seconds["epoch"] == pytest.approx(compute + exposed)


def test_time_blocked_in_other_effects_hides_nothing(tmp_path: Path) -> None:
    """A slow exchange flies while the rank first computes 1 ms and then blocks in an all-reduce."""

    async def program(rank: Rank) -> None:
        exchange = rank.all_to_all(everyone_sends(rank, 25_000), label="h", direction="forward", layer=0)
        handle = await rank.start(exchange)
        work(rank, 1e-3)
        await rank.all_reduce(torch.empty(2, device="meta"), label="g")
        await rank.wait(handle)

    seconds = seconds_of(timed(program, 2, plain(tmp_path), shapes_only=True))
    assert seconds["hidden"] == pytest.approx(1e-3)
    assert seconds["reduce"] > 0 and seconds["epoch"] == pytest.approx(LATENCY + 100e3 / BANDWIDTH, rel=1e-3)


def test_ranks_of_a_host_share_its_cores(tmp_path: Path) -> None:
    async def program(rank: Rank) -> None:
        torch.ones(1000, 100) @ torch.ones(100, 100)

    cluster = load_cluster("local")
    alone, crowded = (seconds_of(timed(program, size, cluster))["compute"] for size in (1, 4))
    assert crowded == pytest.approx(4 * alone)


# -- components ----------------------------------------------------------------------------------------------------


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
        assert all(seconds[c] > 0 for c in ("compute", "codec", "sample", "halo", "reduce"))


def test_spans_tile_the_epoch_of_a_rank_that_blocks(tmp_path: Path) -> None:
    spans: list[tuple[int, str, str, float, float, int]] = []

    async def program(rank: Rank) -> None:
        for layer in range(2):
            work(rank, 1e-3 * (rank.index + 1))
            with rank.span("codec"):
                work(rank, 1e-3)
            await rank.all_to_all(everyone_sends(rank, 250), label=f"h{layer}", direction="forward", layer=layer)
        await rank.all_reduce(torch.empty(10, device="meta"), label="g")
        with rank.off_the_clock():
            await rank.all_reduce(torch.empty(10, device="meta"), label="evaluation")

    simulation = timed(program, 2, plain(tmp_path), shapes_only=True, on_span=lambda *span: spans.append(span))
    mine = sorted((s for s in spans if s[0] == 0), key=lambda s: s[3])
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

    simulation = simulate(program, 2, cluster=plain(tmp_path), shapes_only=True)
    first, second = simulation.results[0]
    assert first == pytest.approx(second) and first["compute"] == pytest.approx(2e-3)
    assert simulation.makespan_s == pytest.approx(7.0 + 2 * first["epoch"])


def test_a_wrong_span_is_refused(tmp_path: Path) -> None:
    async def program(rank: Rank) -> None:
        with rank.span("encode"):
            pass

    with pytest.raises(ProgramError, match="'encode'"):
        simulate(program, 1, cluster=plain(tmp_path))


@pytest.mark.parametrize("factor", [2, 10])
def test_more_bandwidth_is_never_slower(tmp_path: Path, factor: int) -> None:
    times = [
        timed(busy_program, 4, plain(tmp_path, 4, nic=f"{speed} kB/s")).makespan_s for speed in (10, 10 * factor, 1e6)
    ]
    assert times == sorted(times, reverse=True) and times[0] > times[1]


# -- the same numbers as loopback ------------------------------------------------------------------------------------

Step = tuple[str, int]


def random_program(steps: list[Step], seed: int) -> Callable[[Rank], Any]:
    """A program that mixes effects and arithmetic as `steps` say; answers every number it saw."""

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
            elif kind == "wait" and handles:
                x = torch.cat([(await rank.wait(handles.pop(0))).tensors[0], x])[:8]
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
            seen.append((await rank.wait(handle)).tensors[0])
        return seen

    return run


KINDS = ["exchange", "start", "wait", "reduce", "broadcast", "ring", "gradient"]


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
    expected = loopback.run(program, size)
    simulation = simulate(program, size, cluster=load_cluster(name), deterministic=deterministic)
    for mine, theirs in zip(simulation.results, expected, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_gradient_mode_belongs_to_the_rank() -> None:
    """A rank suspended inside no_grad leaves the others, and itself afterwards, as they were."""
    steps = [("no_grad", 0), ("gradient", 0), ("no_grad", 0), ("gradient", 0)]
    simulation = simulate(random_program(steps, 3), 3, cluster=load_cluster("local"))
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

    simulation = simulate(program, 2, cluster=load_cluster("sylvie-2x8"), shapes_only=True)
    assert simulation.memory == 24 * 2**30 and simulation.out_of_memory == [0, 1]


def test_many_ranks_on_meta_tensors() -> None:
    """192 ranks exchange with everyone; equal sizes are few events however many transfers there are."""

    async def program(rank: Rank) -> None:
        for layer in range(2):
            await rank.all_to_all(everyone_sends(rank, 16), label="h", direction="forward", layer=layer)
        await rank.all_reduce(torch.empty(1000, device="meta"), label="g")

    simulation = timed(program, 192, load_cluster("bns-32x6v100"), shapes_only=True)
    assert sum(simulation.tiers.values()) == 192 * 191 * (2 * 64) + 2 * 191 * 4000
    assert len({round(seconds_of(simulation, r)["epoch"], 9) for r in range(192)}) <= 3


# -- messages ------------------------------------------------------------------------------------------------------


def failing(program: Callable[[Rank], Any], size: int, kind: type[Exception] = ProgramError) -> Exception:
    with pytest.raises(kind) as caught:
        simulate(program, size, cluster=load_cluster("ec-graph"))
    return caught.value


def line_of(marker: str) -> int:
    """The line of this file that ends with a comment."""
    lines = Path(__file__).read_text().splitlines()
    return next(at for at, text in enumerate(lines, 1) if text.endswith(f"# {marker}"))


def test_a_deadlock_names_ranks_lines_labels_and_epoch() -> None:
    async def program(rank: Rank) -> None:
        rank.epoch = 4
        if rank.index < 2:
            await rank.all_reduce(torch.ones(1), label="lonely")  # deadlock

    message = str(failing(program, 3))
    site = f"{Path(__file__)}:{line_of('deadlock')}"
    assert message.startswith("deadlock: ")
    for rank in (0, 1):
        assert f"rank {rank} waits in AllReduce 'lonely' (reduce, epoch 4) at {site}" in message
    assert "rank 2 has returned" in message


def test_a_mismatch_names_both_sides() -> None:
    async def program(rank: Rank) -> None:
        if rank.index == 0:
            await rank.all_reduce(torch.ones(1), label="this")  # one side
        else:
            await rank.broadcast(torch.ones(1), root=0, label="that")  # other side

    message = str(failing(program, 2))
    assert re.search(rf"rank 0 is in AllReduce 'this' .*:{line_of('one side')}", message)
    assert re.search(rf"rank 1 is in Broadcast 'that' .*:{line_of('other side')}", message)


class Odd(Exception):
    """An exception that cannot be built from its arguments, as SimPy would try."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")
        self.pair = (one, two)


def test_a_rank_s_own_exception_comes_out_with_a_note() -> None:
    async def program(rank: Rank) -> None:
        rank.epoch = 2
        await rank.all_reduce(torch.ones(1), label="fine")
        if rank.index == 1:
            raise Odd(3, 4)
        await rank.all_reduce(torch.ones(1), label="never")

    error = failing(program, 2, Odd)
    assert isinstance(error, Odd) and error.pair == (3, 4)
    (note,) = error.__notes__
    assert "rank 1 of 2" in note and "epoch 2" in note and "AllReduce 'fine'" in note
    assert any(frame.name == "program" for frame in error_frames(error))


def error_frames(error: BaseException) -> list[Any]:
    import traceback

    return list(traceback.extract_tb(error.__traceback__))


def test_a_forgotten_await_is_detected() -> None:
    async def built_only(rank: Rank) -> None:
        rank.all_reduce(torch.ones(1), label="lost")
        await rank.all_reduce(torch.ones(1), label="next")

    assert "forgotten await: AllReduce 'lost'" in str(failing(built_only, 2))

    async def inner(rank: Rank) -> None:
        await rank.all_reduce(torch.ones(1), label="x")

    async def outer(rank: Rank) -> None:
        inner(rank)  # type: ignore[unused-coroutine]
        await rank.all_reduce(torch.ones(1), label="y")

    assert "forgotten await" in str(failing(outer, 2))


def test_counts_that_disagree_are_named() -> None:
    async def program(rank: Rank) -> None:
        send = each(2, 2, rank.index)
        await rank.all_to_all([Rows(torch.ones(2, 1), send, send + (rank.index == 1))], label="h")

    assert "expects" in str(failing(program, 2))


def test_ranks_must_leave_the_clock_together() -> None:
    async def program(rank: Rank) -> None:
        if rank.index == 0:
            await rank.all_reduce(torch.ones(1), label="g")
        else:
            with rank.off_the_clock():
                await rank.all_reduce(torch.ones(1), label="g")

    message = str(failing(program, 2))
    assert re.search("rank [01] is (on|off) the clock, others are (off|on) the clock, in AllReduce 'g'", message)


def test_a_tensor_written_to_in_flight_is_detected() -> None:
    async def program(rank: Rank) -> None:
        x = torch.ones(4)
        handle = await rank.start(rank.all_reduce(x, label="g"))
        x.add_(1)
        await rank.wait(handle)

    assert "was written to before the wait" in str(failing(program, 2))


def test_too_many_ranks() -> None:
    with pytest.raises(InputError, match="takes 6 ranks"):
        simulate(program_without_delay, 7, cluster=load_cluster("ec-graph"))
