"""Seconds of every effect over small clusters, against closed forms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.effects import Rows
from harness.rank import Rank
from sims.cluster import load_cluster
from sims.device import load_device
from sims.study import idle_links
from sims.study._remarks import notes
from tests.support.simulated import (
    BANDWIDTH,
    LATENCY,
    each,
    everyone_sends,
    exchange_once,
    gpus,
    plain,
    seconds_of,
    timed,
    work,
)


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
    together = timed(exchange_once, 3, plain(tmp_path, 3), shapes_only=True)
    assert together.makespan_s == pytest.approx(LATENCY + 2 * 1000 / BANDWIDTH)


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
    simulation = timed(exchange_once, 3, plain(tmp_path, 3, transport=costs), shapes_only=True)
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
    # Less than a chunk: a buffer of 1024 bytes is filled before it leaves. The kernel takes 6.6 us to start.
    assert direct.makespan_s == pytest.approx(2e-3 + 6.6e-6 + (1024 + 1000) / 10e6)
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
    """A slow exchange is in flight while the rank first computes 1 ms and then blocks in an all-reduce."""

    async def program(rank: Rank) -> None:
        exchange = rank.all_to_all(everyone_sends(rank, 25_000), label="h", direction="forward", layer=0)
        handle = await rank.start(exchange)
        work(rank, 1e-3)
        await rank.all_reduce(torch.empty(2, device="meta"), label="g")
        await rank.wait(handle)

    seconds = seconds_of(timed(program, 2, plain(tmp_path), shapes_only=True))
    assert seconds["hidden"] == pytest.approx(1e-3)
    assert seconds["reduce"] > 0 and seconds["epoch"] == pytest.approx(LATENCY + 100e3 / BANDWIDTH, rel=1e-3)


def test_counts_that_only_senders_know_are_staged_too(tmp_path: Path) -> None:
    """Bytes to the host and back do not depend on whether the receiver knows the counts beforehand."""

    async def program(rank: Rank) -> None:
        await rank.all_to_all(everyone_sends(rank, 250, known=False), label="h")

    bus = 1e-3 + load_device("rtx-3090").launch.value + 1000 / 10e6
    simulation = timed(program, 2, gpus(tmp_path, "gloo"), shapes_only=True)
    assert simulation.makespan_s == pytest.approx(2 * bus + 2 * 5e-3 + (2000 + 16) / 1e6)


def test_half_the_bits_are_half_the_bytes_and_half_the_time_that_bytes_take(tmp_path: Path) -> None:
    def program(width: int) -> Callable[[Rank], Awaitable[None]]:
        async def run(rank: Rank) -> None:
            counts = each(rank.size, 1000, rank.index)
            rows = Rows(torch.empty(int(counts.sum()), width, dtype=torch.uint8, device="meta"), counts, counts)
            await rank.all_to_all([rows], label="h", direction="forward", layer=0)

        return run

    whole, half = (timed(program(width), 3, plain(tmp_path, 3), shapes_only=True) for width in (64, 32))
    assert {link: 2 * nbytes for link, nbytes in half.link_bytes.items()} == whole.link_bytes
    assert whole.makespan_s - LATENCY == pytest.approx(2 * (half.makespan_s - LATENCY))


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.integers(1, 2000), min_size=2, max_size=2, unique=True),
    st.sampled_from(["nic", "loopback", "process"]),
    st.integers(0, 99),
    st.booleans(),
)
def test_more_bandwidth_never_slows_a_synchronous_program(
    speeds: list[int], kind: str, seed: int, deterministic: bool
) -> None:
    """Three rounds of uneven compute, an uneven exchange and an all-reduce on two hosts of two ranks."""

    async def program(rank: Rank) -> None:
        random = np.random.default_rng(seed)
        for layer in range(3):
            counts = random.integers(0, 400, (rank.size, rank.size))
            work(rank, 1e-3 * float(random.random(rank.size)[rank.index]))
            send, recv = counts[rank.index], counts[:, rank.index].copy()
            rows = Rows(torch.empty(int(send.sum()), 8, device="meta"), send, recv)
            await rank.all_to_all([rows], label="h", direction="forward", layer=layer)
            await rank.all_reduce(torch.empty(1000, device="meta"), label="g")

    keys = {"nic": "links.nic.bandwidth", "loopback": "links.loopback.bandwidth", "process": "transport.process"}
    changes = [f"hosts.count=2:hosts.devices=2:{keys[kind]}={speed}MB/s" for speed in sorted(speeds)]
    slow, fast = (
        timed(
            program, 4, load_cluster(f"sylvie-2x8:{change}"), shapes_only=True, deterministic=deterministic
        ).makespan_s
        for change in changes
    )
    assert fast <= slow * (1 + 1e-9)


@pytest.mark.parametrize(("size", "idle"), [(2, ["bus", "nic"]), (4, ["bus"])])
def test_links_that_nothing_crossed_are_knobs_without_effect(size: int, idle: list[str]) -> None:
    """Shapes of a CPU run: nothing crosses a bus. Two ranks on one host use no network."""
    cluster = load_cluster("sylvie-2x8:hosts.device=cpu-epyc-1core:hosts.devices=2:hosts.spread=false")
    simulation = timed(exchange_once, size, cluster, shapes_only=True)
    assert idle_links(simulation) == idle
    assert any("between hosts" in note for note in notes(cluster, simulation, {}, {})) == ("nic" in idle)
    faster = load_cluster(f"{cluster.name}:links.nic.bandwidth=900Gb/s")
    changed = timed(exchange_once, size, faster, shapes_only=True).makespan_s != simulation.makespan_s
    assert changed == ("nic" not in idle)


def longer(cluster: str) -> float:
    """The factor on the work of a cluster's ranks where they share cores."""
    return load_device(load_cluster(cluster).device).sharing.value


def test_ranks_of_a_host_share_its_cores() -> None:
    """The last of them ends when all are done, and each takes longer for the caches that the others use."""

    async def program(rank: Rank) -> None:
        torch.ones(1000, 100) @ torch.ones(100, 100)
        await rank.all_reduce(torch.ones(1), label="together")

    def last(size: int, cluster: str) -> float:
        return max(seconds["compute"] for _, seconds in timed(program, size, load_cluster(cluster)).results)

    alone = last(1, "local")
    assert last(4, "local") == pytest.approx(4 * longer("local") * alone)
    assert last(4, "lab:4x1gbit") == pytest.approx(4 * longer("lab:4x1gbit") * alone)  # hosts of one machine


def test_a_rank_that_waits_leaves_its_share_of_the_cores() -> None:
    """Two ranks on one core: work shorter than a turn is not divided, and the second has the core once the first is
    done."""

    async def program(rank: Rank) -> None:
        for _ in range(1 + 2 * rank.index):
            torch.ones(1000, 100) @ torch.ones(100, 100)
        await rank.all_reduce(torch.ones(1), label="together")

    cluster = load_cluster("local:hosts.cores=2")
    one = longer(cluster.name) * seconds_of(timed(program, 1, cluster))["compute"]
    short, long = (seconds["compute"] for _, seconds in timed(program, 2, cluster).results)
    assert short == pytest.approx(one, rel=0.02)
    assert long == pytest.approx(4 * one, rel=0.02)  # the first one's piece and its own three


def test_what_a_rank_waits_for_a_core_after_an_exchange_is_part_of_it() -> None:
    """It has not returned from it: two ranks on one core that leave an exchange at once compute as long as one does."""

    async def program(rank: Rank) -> None:
        await rank.all_reduce(torch.ones(1), label="before")
        torch.ones(1000, 100) @ torch.ones(100, 100)
        await rank.all_reduce(torch.ones(1), label="after")

    one, two = (timed(program, size, load_cluster("local:hosts.cores=2")).results for size in (1, 2))
    alone = longer("local") * one[0][1]["compute"]
    assert [seconds["compute"] for _, seconds in two] == pytest.approx(2 * [alone], rel=0.02)
    first, second = sorted(seconds["reduce"] for _, seconds in two)
    assert second == pytest.approx(first, rel=0.01), "one waits for its core, the other at the next exchange"
    assert first > alone
