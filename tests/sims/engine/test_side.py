"""The second thread of a modelled rank: what it hides, what it takes from the rank's own compute, what it holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.effects import Conversion, Received, Rows
from harness.rank import COMPONENTS, Rank
from sims.cluster import Cluster, Stragglers, load_cluster
from sims.device import load_device
from sims.device._profile import DEVICES
from sims.engine import Observer, Simulation
from tests.support.simulated import each, gpus, plain, seconds_of, timed, work

SENT_S = 2e-3  # 250 rows of 4 bytes per pair on the plain cluster, with its latency
OPERATORS = 4
NUMBERS = 2_000_000


def one(rank: Rank) -> float:
    """Seconds of one operator of a conversion on the plain cluster's device."""
    profile = load_device("cpu-epyc-1core")
    return profile.launch.value + 8 * NUMBERS / profile.bandwidth["elementwise"].value


CODED_S = OPERATORS * one(Rank(0, 1))  # encoding takes this, and decoding half of it: about 2.4 ms and 1.2 ms


def exchanged(rank: Rank, rows: int = 250) -> Any:
    """A background exchange with work before and after it."""
    counts = each(rank.size, rows, rank.index)
    payload = torch.empty(int(counts.sum()), 1, device="meta")

    def pass_over(times: int) -> None:
        block = torch.empty(NUMBERS, device="meta")
        for _ in range(times):
            block.mul_(2)

    def encode() -> tuple[torch.Tensor, ...]:
        pass_over(OPERATORS)
        return (torch.empty_like(payload),)

    def decode(received: Received) -> torch.Tensor:
        pass_over(OPERATORS // 2)
        return received.tensors[0]

    declared = [Rows(payload, counts, counts)]
    return rank.background(declared, Conversion(encode, decode, ()), label="h", direction="forward", layer=0)


def beside(seconds: float, exchanges: int = 1) -> Callable[[Rank], Any]:
    """A program whose own compute takes `seconds` while background exchanges are under way."""

    async def program(rank: Rank) -> None:
        handles = [await exchanged(rank) for _ in range(exchanges)]
        work(rank, seconds)
        for handle in handles:
            await rank.wait(handle)

    return program


def with_factor(folder: Path, factor: float) -> Cluster:
    """The plain cluster with devices that state how they share themselves."""
    text = (DEVICES / "cpu-epyc-1core.toml").read_text()
    (folder / "device.toml").write_text(f"{text}\n[overlap]\nbackground = {factor}\n")
    plain(folder)
    return load_cluster(f"{folder / 'plain.toml'}:hosts.device={folder / 'device.toml'}")


def adds_up(simulation: Simulation) -> dict[str, float]:
    seconds = seconds_of(simulation)
    assert seconds["epoch"] == pytest.approx(sum(seconds[c] for c in COMPONENTS), rel=1e-12)
    assert seconds["epoch"] == pytest.approx(simulation.makespan_s)
    assert seconds["codec"] == 0, "the rank itself converts nothing"
    return seconds


def test_a_rank_that_does_nothing_waits_for_all_of_it(tmp_path: Path) -> None:
    seconds = adds_up(timed(beside(0.0), 2, plain(tmp_path), shapes_only=True))
    assert seconds["halo"] == pytest.approx(1.5 * CODED_S + SENT_S)
    assert (seconds["compute"], seconds["hidden"]) == (0, 0)


@pytest.mark.parametrize(
    ("factor", "longer"),
    [(2.0, 1.5), (1.0, 0.0), (1.5, 0.75)],  # conversions that take all their time, none, half of it from the rank
)
def test_what_compute_loses_to_conversions(tmp_path: Path, factor: float, longer: float) -> None:
    seconds = adds_up(timed(beside(0.1), 2, with_factor(tmp_path, factor), shapes_only=True))
    assert seconds["compute"] == seconds["epoch"] == pytest.approx(0.1 + longer * CODED_S)
    assert seconds["hidden"] == pytest.approx(1.5 * factor * CODED_S + SENT_S)


def test_a_device_that_says_nothing_shares_its_cores(tmp_path: Path) -> None:
    plainly, shared = (
        timed(beside(0.01), 2, cluster, shapes_only=True) for cluster in (plain(tmp_path), with_factor(tmp_path, 2.0))
    )
    assert plainly.results == shared.results


def test_compute_is_slower_only_while_rows_are_converted(tmp_path: Path) -> None:
    """Compute that ends while the rows are on their way costs the encoding, and no more."""
    seconds = adds_up(timed(beside(CODED_S + SENT_S / 2), 2, plain(tmp_path), shapes_only=True))
    assert seconds["compute"] == pytest.approx(2 * CODED_S + SENT_S / 2)
    assert seconds["halo"] == pytest.approx(SENT_S / 2 + CODED_S / 2)


def test_conversions_come_one_after_the_other_and_transfers_in_between(tmp_path: Path) -> None:
    """The second exchange is encoded while the first is on its way: what arrives first waits for its turn."""
    seconds = adds_up(timed(beside(0.0, exchanges=2), 2, plain(tmp_path), shapes_only=True))
    assert CODED_S > SENT_S
    assert seconds["halo"] == pytest.approx(2 * CODED_S + SENT_S + CODED_S / 2)


def test_ranks_that_share_too_few_cores_share_them_with_the_second_thread_too(tmp_path: Path) -> None:
    plain(tmp_path, 1)
    path = tmp_path / "plain.toml"
    path.write_text(
        path.read_text()
        .replace("count = 1", "count = 1\ndevices = 2\ncores = 1")
        .replace("links.nic", "links.loopback")
    )
    cluster = load_cluster(path)
    simulation, longer = timed(beside(0.1), 2, cluster, shapes_only=True), load_device(cluster.device).sharing.value
    assert longer > 1
    assert simulation.makespan_s == pytest.approx(2 * longer * (0.1 + 1.5 * CODED_S), rel=1e-3)


def test_slow_ranks_convert_slowly(tmp_path: Path) -> None:
    slow = timed(beside(0.0), 2, plain(tmp_path), shapes_only=True, stragglers=Stragglers(ranks={0: 3.0}))
    assert seconds_of(slow, 0)["halo"] == pytest.approx(4.5 * CODED_S + SENT_S)
    assert seconds_of(slow, 1)["halo"] == pytest.approx(3 * CODED_S + SENT_S + CODED_S / 2)


def test_starting_the_exchange_costs_the_second_thread(tmp_path: Path) -> None:
    cluster = plain(tmp_path, transport='[transport.measured.started]\n2 = "3 ms"\n')
    seconds = adds_up(timed(beside(0.0), 2, cluster, shapes_only=True))
    assert seconds["halo"] == pytest.approx(1.5 * CODED_S + SENT_S + 3e-3)
    assert adds_up(timed(beside(0.1), 2, cluster, shapes_only=True))["halo"] == 0


def test_a_gpu_that_waits_for_launches_has_room(tmp_path: Path) -> None:
    """Launches of small kernels leave the device idle; kernels that fill it share it."""

    def program(numbers: int) -> Callable[[Rank], Any]:
        async def run(rank: Rank) -> None:
            handle = await exchanged(rank)
            block = torch.empty(numbers, device="meta")
            for _ in range(2000):
                block.mul_(2)
            await rank.wait(handle)

        return run

    profile = load_device("rtx-3090")
    kernel = 8 * NUMBERS / profile.bandwidth["elementwise"].value
    assert kernel > profile.launch.value
    small, large = (timed(program(numbers), 2, gpus(tmp_path, "nccl"), shapes_only=True) for numbers in (1, NUMBERS))
    alone = 2000 * profile.launch.value
    assert alone <= adds_up(small)["compute"] < alone + 0.1 * kernel
    assert adds_up(large)["compute"] == pytest.approx(2000 * kernel + 1.5 * OPERATORS * kernel)


def test_nothing_is_booked_off_the_clock(tmp_path: Path) -> None:
    async def quiet(rank: Rank) -> None:
        with rank.off_the_clock():
            await rank.wait(await exchanged(rank))

    simulation = timed(quiet, 2, plain(tmp_path), shapes_only=True)
    assert seconds_of(simulation)["epoch"] == 0 == simulation.makespan_s
    assert not simulation.class_seconds and sum(simulation.tiers.values()) == 0


def test_a_payload_is_held_until_it_is_sent(tmp_path: Path) -> None:
    """1000 bytes sent and 1000 received; rows that were encoded are not kept until the wait."""

    class Watched(Observer):
        def __init__(self) -> None:
            self.contents: list[dict[str, int]] = []

        def rank_added(self, rank: int, clock: Any, ledger: Any) -> None:
            self.memory = ledger.memory

        def carried_out(self, *_: Any) -> None:
            self.contents.append(self.memory.contents())

    async def program(rank: Rank) -> None:
        handle = await exchanged(rank)
        await rank.wait(handle)

    seen = Watched()
    timed(program, 2, plain(tmp_path), shapes_only=True, observers=[seen])
    assert max(found["payloads"] for found in seen.contents) == 1000
    assert max(found["halo"] for found in seen.contents) == 1000


def test_observers_see_the_second_thread(tmp_path: Path) -> None:
    class Seen(Observer):
        def __init__(self) -> None:
            self.spans: list[tuple[float, float]] = []
            self.work: list[tuple[bool, str]] = []

        def charged(self, rank: int, component: str, *_: Any) -> None:
            raise AssertionError("the rank's own thread computes nothing")

        def converting(self, rank: int, effect: Any, received: bool, work: Any, seconds: float) -> None:
            self.work.append((received, work.name))

        def converted(self, rank: int, effect: Any, start: float, end: float) -> None:
            self.spans += [(start, end)] * (rank == 0)

    seen = Seen()
    simulation = timed(beside(0.0), 2, plain(tmp_path), shapes_only=True, observers=[seen])
    assert seen.spans == [
        pytest.approx((0, CODED_S)),
        pytest.approx((CODED_S + SENT_S, 1.5 * CODED_S + SENT_S)),
    ]
    assert sorted(seen.work) == 2 * OPERATORS * [(False, "mul_")] + OPERATORS * [(True, "mul_")]
    assert simulation.class_seconds["elementwise"] == pytest.approx(2 * 1.5 * CODED_S)
