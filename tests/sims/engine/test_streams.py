"""Concurrency of a device: launches and kernels, compute and communication; and slow ranks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import InputError
from harness.rank import COMPONENTS, Rank
from sims.cluster import Cluster, Stragglers, load_cluster, place
from sims.device import load_device
from sims.device._profile import DEVICES
from sims.engine import Simulation, simulate
from sims.units import Quantity
from tests.support.simulated import (
    BANDWIDTH,
    LATENCY,
    everyone_sends,
    exchange_once,
    plain,
    seconds_of,
    sent_beside_compute,
    timed,
    work,
)


def overlapping(tmp_path: Path, compute: float, communication: float, hosts: int = 2) -> Cluster:
    """The plain cluster with devices that slow down while they compute and communicate."""
    text = (DEVICES / "cpu-epyc-1core.toml").read_text()
    device = tmp_path / "device.toml"
    device.write_text(f"{text}\n[overlap]\ncompute = {compute}\ncommunication = {communication}\n")
    plain(tmp_path, hosts)
    return load_cluster(f"{tmp_path / 'plain.toml'}:hosts.device={device}")


def started(seconds: float, rows: int = 250) -> Callable[[Rank], Any]:
    """Compute of `seconds` concurrent with an exchange of `rows` rows per pair, which takes 2 ms for 250."""

    async def program(rank: Rank) -> None:
        exchange = rank.all_to_all(everyone_sends(rank, rows), label="h", direction="forward", layer=0)
        handle = await rank.start(exchange)
        work(rank, seconds)
        await rank.wait(handle)

    return program


def adds_up(simulation: Simulation) -> None:
    for rank in range(len(simulation.results)):
        seconds = seconds_of(simulation, rank)
        assert seconds["epoch"] == pytest.approx(sum(seconds[c] for c in COMPONENTS), rel=1e-12)
        assert seconds["epoch"] == pytest.approx(simulation.makespan_s)


# -- launches and kernels --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "bound"), [(8, "launch"), (4_000_000, "kernel")])
def test_a_gpu_takes_its_launches_or_its_kernels_whichever_are_longer(rows: int, bound: str) -> None:
    async def program(rank: Rank) -> None:
        x = torch.empty(rows, 16, device="meta")
        for _ in range(10):
            x = x * 2
        with rank.span("codec"):
            for _ in range(30):
                x = x * 2

    profile = load_device("rtx-3090")
    simulation = timed(program, 1, load_cluster("sylvie-2x8"), shapes_only=True)
    kernel = rows * 16 * 4 * 2 / profile.bandwidth["elementwise"].value
    each = profile.launch.value if bound == "launch" else kernel
    assert (profile.launch.value > kernel) == (bound == "launch")
    seconds = seconds_of(simulation)
    assert (seconds["compute"], seconds["codec"]) == pytest.approx((10 * each, 30 * each))
    adds_up(simulation)


def test_launches_run_ahead_only_until_the_next_effect() -> None:
    """A long kernel hides the launches behind it, but not those on the other side of an exchange."""

    async def program(rank: Rank, split: bool) -> None:
        x, y = torch.empty(10_000_000, device="meta"), torch.empty(1, device="meta")
        x.mul(2)
        if split:
            await rank.host_copy(torch.empty(0, device="meta"), to_host=True, label="nothing")
        for _ in range(10):
            y.mul(2)

    whole, cut = (
        seconds_of(timed(lambda r, s=s: program(r, s), 1, load_cluster("h100-8"), shapes_only=True))["compute"]  # type: ignore[misc]
        for s in (False, True)
    )
    profile = load_device("h100-80gb")
    kernel = 8e7 / profile.bandwidth["elementwise"].value
    assert kernel < 11 * profile.launch.value
    assert whole == pytest.approx(11 * profile.launch.value)
    assert cut == pytest.approx(max(kernel, profile.launch.value) + 10 * profile.launch.value)


def test_a_cpu_launches_and_works_in_turn(tmp_path: Path) -> None:
    async def program(rank: Rank) -> None:
        x = torch.empty(1000, device="meta")
        for _ in range(10):
            x = x * 2

    profile = load_device("cpu-epyc-1core")
    simulation = timed(program, 1, plain(tmp_path), shapes_only=True)
    expected = 10 * (profile.launch.value + 8000 / profile.bandwidth["elementwise"].value)
    assert seconds_of(simulation)["compute"] == pytest.approx(expected)


# -- compute beside communication ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factor", "compute", "expected"),
    [
        (2.0, 0.5e-3, {"compute": 1e-3, "halo": 1e-3, "hidden": 1e-3}),  # slow all the way
        (2.0, 3e-3, {"compute": 4e-3, "halo": 0.0, "hidden": 2e-3}),  # 1 ms of it took the 2 ms of the exchange
        (1.5, 0.0, {"compute": 0.0, "halo": 2e-3, "hidden": 0.0}),
    ],
)
def test_compute_slows_down_beside_an_exchange(
    tmp_path: Path, factor: float, compute: float, expected: dict[str, float]
) -> None:
    simulation = timed(started(compute), 2, overlapping(tmp_path, factor, 1.0), shapes_only=True)
    seconds = seconds_of(simulation)
    assert {key: seconds[key] for key in expected} == pytest.approx(expected)
    adds_up(simulation)


@pytest.mark.parametrize(
    ("factor", "compute", "expected"),
    [
        (2.0, 1e-3, {"halo": 1.5e-3, "hidden": 1e-3}),  # half of 1 ms was lost
        (2.0, 9e-3, {"halo": 0.0, "hidden": 4e-3}),  # it takes twice as long and hides nevertheless
        (1.25, 0.0, {"halo": 2e-3, "hidden": 0.0}),
    ],
)
def test_an_exchange_slows_down_beside_compute(
    tmp_path: Path, factor: float, compute: float, expected: dict[str, float]
) -> None:
    simulation = timed(started(compute), 2, overlapping(tmp_path, 1.0, factor), shapes_only=True)
    seconds = seconds_of(simulation)
    assert {key: seconds[key] for key in expected} == pytest.approx(expected, abs=1e-12)
    assert seconds["compute"] == pytest.approx(compute)
    adds_up(simulation)


@settings(deadline=None, max_examples=30)
@given(
    st.floats(1, 4),
    st.floats(1, 4),
    st.lists(st.tuples(st.floats(0, 5e-3), st.integers(1, 2000)), min_size=1, max_size=4),
)
def test_overlap_costs_something_and_less_than_doing_things_in_turn_would(
    tmp_path_factory: pytest.TempPathFactory, compute: float, communication: float, steps: list[tuple[float, int]]
) -> None:
    async def program(rank: Rank) -> None:
        for seconds, rows in steps:
            await started(seconds, rows)(rank)

    folder = tmp_path_factory.mktemp("devices")
    free, slowed = (
        timed(program, 2, overlapping(folder, *factors), shapes_only=True)
        for factors in ((1, 1), (compute, communication))
    )
    adds_up(slowed)
    assert slowed.makespan_s >= free.makespan_s * (1 - 1e-9)
    worst = sum(seconds * compute + (LATENCY + 4 * rows / BANDWIDTH) * communication for seconds, rows in steps)
    assert slowed.makespan_s <= worst * (1 + 1e-9)
    assert slowed.link_bytes == free.link_bytes


def test_what_a_rank_spends_on_a_hidden_exchange_is_not_hidden(tmp_path: Path) -> None:
    """`[transport.measured.started]` is booked as halo of the rank; nothing off the clock."""
    free = timed(started(0.05), 2, plain(tmp_path), shapes_only=True)
    cluster = plain(tmp_path, transport='[transport.measured.started]\n2 = "3 ms"\n')
    paid = timed(started(0.05), 2, cluster, shapes_only=True)
    for rank in range(2):
        assert seconds_of(free, rank)["halo"] == 0
        assert seconds_of(paid, rank)["halo"] == pytest.approx(3e-3)
        assert seconds_of(paid, rank)["epoch"] == pytest.approx(seconds_of(free, rank)["epoch"] + 3e-3)
    adds_up(paid)

    async def unbooked(rank: Rank) -> None:
        rank.clock.pause(True)
        await started(0.0)(rank)
        rank.clock.pause(False)

    quiet = timed(unbooked, 2, cluster, shapes_only=True)
    assert [seconds_of(quiet, rank)["epoch"] for rank in range(2)] == [0, 0]


def test_bytes_of_a_hidden_exchange_cost_compute(tmp_path: Path) -> None:
    """`beside` is booked as compute of the rank that sends, in proportion to the bytes sent."""
    free, paid = (
        timed(started(0.05), 2, plain(tmp_path, transport=more), shapes_only=True)
        for more in ("", 'beside = "1 MB/s"\n')
    )
    sent = sum(free.link_bytes.values()) / len(free.link_bytes)  # both ranks send the same
    assert sent > 0
    for rank in range(2):
        before, after = seconds_of(free, rank), seconds_of(paid, rank)
        assert after["halo"] == before["halo"] == 0
        assert after["compute"] - before["compute"] == pytest.approx(sent / 1e6)
    adds_up(paid)


@pytest.mark.parametrize("cores", [1, 2, 0])
def test_what_hidden_exchanges_take_is_seconds_of_cores(tmp_path: Path, cores: int) -> None:
    """Where two ranks share one core, the start and the bytes take twice as long, and the bytes longer by `sharing`, as
    the compute that they are charged to."""
    clusters = [
        replace(plain(tmp_path, transport=more), cores=cores, one_machine=True)
        for more in ("", 'beside = "1 MB/s"\nmeasured.started = { 2 = "3 ms" }\n')
    ]
    free, paid = (timed(started(0.05), 2, cluster, shapes_only=True) for cluster in clusters)
    sent = sum(free.link_bytes.values()) / len(free.link_bytes)
    ranks, longer = (2, load_device(clusters[0].device).sharing.value) if cores == 1 else (1, 1.0)
    assert paid.makespan_s - free.makespan_s == pytest.approx((sent / 1e6 * longer + 3e-3) * ranks, rel=1e-3)


# -- stragglers and jitter -------------------------------------------------------------------------------------------


async def busy(rank: Rank) -> None:
    for layer in range(3):
        work(rank, 2e-3)
        await rank.all_to_all(everyone_sends(rank, 250), label="h", direction="forward", layer=layer)


@pytest.mark.parametrize("cores", [1, 2])
def test_cores_that_ranks_share_run_the_software_of_collectives(tmp_path: Path, cores: int) -> None:
    """Two ranks with a core each pay at once, as a delay; with one core, one after the other, booked as halo."""
    clusters = [
        replace(plain(tmp_path, transport=more), cores=cores, one_machine=True)
        for more in ("", '[transport.measured.all_to_all]\n2 = "3 ms"\n')
    ]
    free, paid = (timed(busy, 2, cluster, shapes_only=True) for cluster in clusters)
    shared = 2.0 if cores == 1 else 1.0  # not longer by `sharing`: it was measured among ranks that share
    assert paid.makespan_s - free.makespan_s == pytest.approx(3 * 3e-3 * shared)
    assert paid.blocked_s["h"] > free.blocked_s["h"] + 8e-3
    for rank in range(2):
        assert seconds_of(paid, rank)["halo"] > seconds_of(free, rank)["halo"] + 8e-3
    adds_up(paid)


@pytest.mark.parametrize(("cores", "last", "explained"), [(1, 3e-3, 2e-3), (2, 2e-3, 4e-3 / 3), (3, 0.0, 0.0)])
def test_what_runs_on_shared_cores_delays_no_transfer(
    tmp_path: Path, cores: int, last: float, explained: float
) -> None:
    """Of 6 ms that a collective of three ranks takes, 1 ms runs on a core. On one core they have had their turns after
    1, 2 and 3 ms, so that 2 ms on average are explained, and the rest is a delay. Ranks with a core each have all of it
    as a delay."""
    software = '[transport.measured.all_to_all]\n3 = "6 ms"\n[transport.cores.all_to_all]\n3 = "1 ms"\n'
    free, paid = (
        timed(exchange_once, 3, replace(plain(tmp_path, 3, transport=more), cores=cores, one_machine=True),
              shapes_only=True)
        for more in ("", software)
    )  # fmt: skip
    assert paid.makespan_s - free.makespan_s == pytest.approx(last + 6e-3 - explained)


def test_ranks_of_other_hosts_explain_nothing(tmp_path: Path) -> None:
    """Two hosts with a core and two ranks each: of 6 ms, 1 ms runs on a core, and two ranks have had it after 1.5 ms on
    average, however many ranks there are elsewhere."""
    software = '[transport.measured.all_to_all]\n4 = "6 ms"\n[transport.cores.all_to_all]\n4 = "1 ms"\n'
    clusters = [
        replace(plain(tmp_path, transport=more, nic="1 GB/s"), cores=1, ranks_per_host=2) for more in ("", software)
    ]
    free, paid = (timed(exchange_once, 4, cluster, shapes_only=True) for cluster in clusters)
    assert paid.makespan_s - free.makespan_s == pytest.approx(2e-3 + 6e-3 - 1.5e-3, rel=1e-3)


@pytest.mark.parametrize(("cores", "times"), [(1, 3.0), (2, 1.5), (3, 0.0)])
def test_copies_between_ranks_take_the_cores_that_these_share(tmp_path: Path, cores: int, times: float) -> None:
    """Ranks on a fast network move a byte in 10 us: three of them on one core take three times as long as one would, on
    two cores half of that. Ranks with a core each wait for the network only, whose rate was measured with them."""
    cluster = replace(plain(tmp_path, 3, nic="1 GB/s"), cores=cores, one_machine=True)
    slow = replace(cluster, transport=replace(cluster.transport, copying=Quantity(1e5)))
    free, paid = (timed(exchange_once, 3, each, shapes_only=True) for each in (cluster, slow))
    sent = sum(free.link_bytes.values()) / len(free.link_bytes)
    assert paid.makespan_s == pytest.approx(max(times * sent / 1e5, free.makespan_s), rel=0.1)
    for rank in range(3):
        assert seconds_of(paid, rank)["epoch"] == pytest.approx(seconds_of(paid, rank)["halo"])


def test_copies_take_cores_from_a_rank_that_computes(tmp_path: Path) -> None:
    """Two ranks exchange while the third has their only core for its compute, which takes as much longer."""

    program = sent_beside_compute(5000, 0.5)
    cluster = replace(plain(tmp_path, 3, nic="1 GB/s"), cores=1, one_machine=True)
    slow = replace(cluster, transport=replace(cluster.transport, copying=Quantity(1e5)))
    free, paid = (timed(program, 3, each, shapes_only=True) for each in (cluster, slow))
    longer = seconds_of(paid, 2)["compute"] - seconds_of(free, 2)["compute"]
    assert longer == pytest.approx(20_000 / 1e5, rel=0.05)
    adds_up(paid)


def test_a_ring_takes_as_many_seconds_of_cores_as_its_bytes(tmp_path: Path) -> None:
    """Two ranks on one core: each sends and receives what it sends, one after the other."""

    async def ring(rank: Rank) -> None:
        await rank.all_reduce(torch.empty(2500, device="meta"), label="g")

    cluster = replace(plain(tmp_path, 2, nic="1 GB/s"), cores=1, one_machine=True)
    slow = replace(cluster, transport=replace(cluster.transport, copying=Quantity(1e5)))
    simulation = timed(ring, 2, slow, shapes_only=True, deterministic=False)
    assert simulation.makespan_s == pytest.approx(2 * 10_000 / 1e5, rel=0.02)
    framed = replace(slow, framing=Quantity(1e5))
    assert timed(ring, 2, framed, shapes_only=True, deterministic=False).makespan_s == pytest.approx(0.4, rel=0.02)


def compute_of(simulation: Simulation) -> list[float]:
    return [seconds_of(simulation, rank)["compute"] for rank in range(len(simulation.results))]


def test_stragglers_slow_exactly_their_own_compute(tmp_path: Path) -> None:
    cluster = plain(tmp_path, 4)
    usual = timed(busy, 4, cluster, shapes_only=True)
    slow = timed(busy, 4, cluster, shapes_only=True, stragglers=Stragglers(ranks={2: 1.5}, hosts={2: 2.0, 3: 1.25}))
    assert compute_of(slow) == pytest.approx([6e-3, 6e-3, 18e-3, 7.5e-3])
    assert compute_of(usual) == pytest.approx([6e-3] * 4)
    assert slow.makespan_s == pytest.approx(usual.makespan_s + 12e-3), "everyone waits for the slowest"
    assert seconds_of(slow, 0)["halo"] == pytest.approx(seconds_of(usual, 0)["halo"] + 12e-3)
    adds_up(slow)


def test_jitter_belongs_to_its_seed(tmp_path: Path) -> None:
    cluster, noise = plain(tmp_path, 3), Stragglers(jitter=0.1)
    runs = [timed(busy, 3, cluster, shapes_only=True, stragglers=noise, seed=seed) for seed in (1, 1, 2)]
    first, again, other = map(compute_of, runs)
    assert first == again and runs[0].makespan_s == runs[1].makespan_s
    assert len({*first, *other}) == 6, "every rank and seed draws its own"
    adds_up(runs[0])


def test_jitter_has_mean_one_and_the_spread_it_says() -> None:
    pace = Stragglers(jitter=0.2, ranks={1: 3.0}).pace(1, 0, key=5)
    assert pace is not None
    draws = torch.tensor([pace() / 3 for _ in range(20_000)], dtype=torch.float64)
    assert float(draws.mean()) == pytest.approx(1.0, abs=5 * 0.2 / 20_000**0.5)
    assert float(draws.log().std()) == pytest.approx(0.2, abs=5 * 0.2 / 40_000**0.5)
    assert Stragglers(ranks={1: 3.0}).pace(0, 0, key=5) is None


def test_a_cluster_file_names_its_stragglers(tmp_path: Path) -> None:
    plain(tmp_path, 3)
    path = tmp_path / "plain.toml"
    text = path.read_text()
    path.write_text(f"{text}\n[stragglers]\njitter = 0.05\n[stragglers.ranks]\n0 = 2.0\n[stragglers.hosts]\n2 = 1.5\n")
    cluster = load_cluster(path)
    assert cluster.stragglers == Stragglers({0: 2.0}, {2: 1.5}, 0.05)
    calm = timed(busy, 3, cluster, shapes_only=True, stragglers=Stragglers())
    rough = timed(busy, 3, cluster, shapes_only=True)
    assert compute_of(rough)[0] > 1.5 * compute_of(calm)[0]
    with pytest.raises(InputError, match="there is no host 2; 2 are used"):
        timed(busy, 2, cluster, shapes_only=True)
    for bad, message in (
        ("jitter = -0.1", "stragglers.jitter: must be a number of at least zero"),
        ("jiter = 0.1", "'jiter'; did you mean 'jitter'"),
        ("[stragglers.ranks]\nfirst = 2.0", "the key must be the number of a rank or host, not 'first'"),
        ("[stragglers.ranks]\n1 = -2.0", "ranks.1: must be a number more than zero"),
    ):
        path.write_text(f"{text}\n[stragglers]\n{bad}\n")
        with pytest.raises(InputError, match=message):
            load_cluster(path)
    path.write_text(f"{text}\n[stragglers]\njitter = 0.05\n")
    assert load_cluster(f"{path}:stragglers.jitter=0").stragglers == Stragglers(), "zero is none"


# -- different devices -----------------------------------------------------------------------------------------------


def test_every_rank_has_its_own_device() -> None:
    async def program(rank: Rank) -> int:
        torch.empty(10_000_000, device="meta").mul_(2)
        torch.empty(2**33 // 4, device="meta").mul_(2)  # 8 GiB
        return rank.index

    cluster = load_cluster("bns-10x2080ti:hosts.device=rtx-2080ti x 9, rtx-3090 x 1")
    simulation = timed(program, 10, cluster, shapes_only=True)
    slow, fast = (load_device(name).bandwidth["elementwise"].value for name in ("rtx-2080ti", "rtx-3090"))
    compute = compute_of(simulation)
    assert compute[0] / compute[9] == pytest.approx(fast / slow)
    assert simulation.memory == [11 * 2**30] * 9 + [24 * 2**30]
    assert simulation.source_seconds == pytest.approx({"assumed": sum(compute)})
    assert json.dumps(simulation.source_seconds)


def test_measured_time_is_told_from_the_rest(tmp_path: Path) -> None:
    async def program(rank: Rank) -> None:
        torch.empty(1000, 100, device="meta") @ torch.empty(100, 10, device="meta")
        torch.empty(1000, device="meta").mul_(2)

    text = (DEVICES / "cpu-epyc-1core.toml").read_text()
    lines = [
        line.replace('"measured"', '"datasheet"') if line.startswith("peak") else line for line in text.splitlines()
    ]
    (tmp_path / "device.toml").write_text("\n".join(lines))
    plain(tmp_path, 2)
    cluster = load_cluster(f"{tmp_path / 'plain.toml'}:hosts.device={tmp_path / 'device.toml'}, cpu-epyc-1core")
    simulation = simulate(program, place(cluster, 2), shapes_only=True)
    gemm, rest = simulation.class_seconds["gemm"], simulation.class_seconds["elementwise"]
    assert simulation.source_seconds == pytest.approx({"datasheet": gemm / 2, "measured": gemm / 2 + rest})
