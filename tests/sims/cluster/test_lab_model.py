"""The simulator's model of labs: links, shared cores of one machine, and the resulting times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.config import ACKNOWLEDGED, AHEAD_BYTES, PAYLOAD_SHARE, QUEUE_S, RunConfig, framing_rate
from harness.effects import Rows
from harness.errors import InputError
from harness.rank import Rank
from harness.running import run
from sims.cluster import load_cluster, place, varied
from sims.device import OperatorCost, load_device, save_device
from sims.replay import Replay, record
from sims.units import Quantity
from tests.real.measure.test_calibrate import MEASURED, files
from tests.support.simulated import everyone_sends, sent_beside_compute, timed


def test_links_carry_payload_at_the_rate_of_frames() -> None:
    cluster = load_cluster("lab:3x1gbit")
    placement = place(cluster, 3)
    assert (cluster.hosts, cluster.capacity, cluster.one_machine, cluster.name) == (3, 3, True, "lab:3x1gbit")
    rate = placement.capacity[placement.names.index("host1.nic.tx")]
    assert rate == pytest.approx(125e6 * PAYLOAD_SHARE * cluster.shaped.value)  # of two cores
    assert placement.tier(0, 2) == "ethernet"
    names = [placement.names[link] for link in placement.route(0, 2)]
    assert names == ["rank0.process.tx", "host0.nic.tx", "spine", "host2.nic.rx", "rank2.process.rx"]


@pytest.mark.parametrize(("lab", "kept"), [
    ("lab:2x1gbit", True), ("lab:3x1gbit", False), ("lab:4x300mbit", False), ("lab:4x100mbit", True),
    ("lab:2x1gbit,100mbit", True),
])  # fmt: skip
def test_fast_links_of_more_hosts_than_cores_are_not_kept_full(lab: str, kept: bool) -> None:
    cluster = load_cluster(lab)
    assert cluster.cores == 2 and (cluster.shaped.value == 1) == kept
    assert load_cluster("lab:3x1gbit").shaped.factors[0] < 1 < load_cluster("lab:3x1gbit").shaped.factors[1]


@pytest.mark.parametrize("lab", ["lab:3x1gbit", "lab:2x100mbit", "lab:1gbit,100mbit,unshaped", "lab:2xunshaped"])
@pytest.mark.parametrize("rate", [12.5e6, 125e6])
def test_another_rate_of_links_is_another_setting_of_the_shapers(lab: str, rate: float) -> None:
    cluster = load_cluster(lab)
    text = {12.5e6: "100mbit", 125e6: "1gbit"}[rate]
    wanted = load_cluster(f"lab:{cluster.hosts}x{text}")
    found = varied(cluster, "nic", "bandwidth", rate)
    assert replace(found, name="", summary="") == replace(wanted, name="", summary="")
    slower = varied(cluster, "nic", "latency", 0.01)
    assert slower.nic_rates == cluster.nic_rates and slower.links["nic"].latency.value == 0.01


def test_the_knob_of_a_measured_latency_holds_the_launch_of_a_copy_too() -> None:
    """At the file's own value a copy takes as long as without the knob."""
    cluster = load_cluster("h200-1")
    known = cluster.links["bus"].latency

    async def program(rank: Rank) -> None:
        await rank.host_copy(torch.ones(1, device=rank.device), to_host=True, label="swap")

    spans = [timed(program, 1, each).makespan_s for each in (cluster, varied(cluster, "bus", "latency", known.value))]
    assert known.source == "measured" and spans[0] == spans[1] > 0


def test_ranks_of_a_host_talk_over_its_loopback() -> None:
    placement = place(load_cluster("lab:2x1gbit:ranks=2"), 4)
    assert placement.host.tolist() == [0, 0, 1, 1]
    assert (placement.tier(0, 1), placement.tier(1, 2)) == ("loopback", "ethernet")


def test_hosts_of_several_rates() -> None:
    placement = place(load_cluster("lab:1gbit,100mbit,unshaped"), 3)
    share = {name: rate for name, rate in zip(placement.names, placement.capacity, strict=True) if ".nic." in name}
    for end in ("tx", "rx"):
        assert share[f"host0.nic.{end}"] == pytest.approx(125e6 * PAYLOAD_SHARE)
        assert share[f"host1.nic.{end}"] == pytest.approx(12.5e6 * PAYLOAD_SHARE)
        assert share[f"host2.nic.{end}"] == load_cluster("local").links["loopback"].bandwidth.value


def test_a_calibration_is_what_is_not_shaped(tmp_path: Path) -> None:
    files(tmp_path, MEASURED)
    lab = load_cluster(f"lab:2xunshaped:calibration={tmp_path}")
    machine = load_cluster(tmp_path / "cluster.toml")
    assert lab.transport == machine.transport and lab.profiles == machine.profiles and lab.cores == machine.cores
    assert place(lab, 2).capacity.min() == pytest.approx(machine.transport.process.value)  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"cluster\.toml"):
        load_cluster(f"lab:2xunshaped:calibration={tmp_path / 'none'}")


@pytest.mark.parametrize("rate", ["100mbit", "1gbit"])
def test_a_slow_link_decides_what_an_exchange_takes(rate: str) -> None:
    async def program(rank: Rank) -> None:
        await rank.all_to_all(everyone_sends(rank, 1 << 18), label="h")

    cluster = load_cluster(f"lab:3x{rate}")
    simulation = timed(program, 3, cluster)
    nbytes = sum(part.send[1] * part.row_bytes for part in everyone_sends(Rank(0, 3), 1 << 18))
    link = place(cluster, 3).capacity.min()
    assert simulation.makespan_s >= 2 * nbytes / link
    assert simulation.makespan_s == pytest.approx(2 * nbytes / link, rel=0.1, abs=2e-3)


def test_acknowledgements_share_a_link_with_what_goes_their_way() -> None:
    """One direction alone gets what frames leave; in two, each also carries the acknowledgements of the other."""
    nbytes = 1 << 22

    async def one_way(rank: Rank) -> None:
        await rank.broadcast(torch.empty(nbytes // 4, device="meta"), root=0, label="h")

    async def both_ways(rank: Rank) -> None:
        await rank.all_to_all(everyone_sends(rank, 1 << 20), label="h")

    def seconds(program: Any) -> float:
        return timed(program, 2, load_cluster("lab:2x100mbit"), shapes_only=True).makespan_s

    exchanged = sum(part.send[1] * part.row_bytes for part in everyone_sends(Rank(0, 2), 1 << 20))
    fluid = 1 / (12.5e6 * PAYLOAD_SHARE)
    assert seconds(one_way) == pytest.approx(nbytes * fluid, rel=0.01)
    assert seconds(both_ways) == pytest.approx(exchanged * (1 + ACKNOWLEDGED) * fluid, rel=0.01)


def test_senders_of_an_all_to_all_are_done_before_their_receivers() -> None:
    """A rank that sends more than it receives goes on while its last 3 MiB are on their way; its receiver waits for
    them. With two such messages at once over a slow link, each has half of the link's queue."""
    rows = 1 << 21  # 8 MiB

    async def program(rank: Rank) -> None:
        others = rank.size - 1
        to, back = (
            ([0, *[rows] * others], [0] * rank.size) if rank.index == 0 else ([0] * rank.size, [rows, *[0] * others])
        )
        part = Rows(torch.empty(sum(to), 1, device="meta"), np.asarray(to), np.asarray(back))
        await rank.all_to_all([part], label="h")

    def ends(lab: str) -> list[float]:
        cluster = load_cluster(lab)
        size = cluster.hosts
        return [seconds["epoch"] for _, seconds in timed(program, size, cluster, shapes_only=True).results]

    sender, receiver = ends("lab:2x1gbit")
    rate = place(load_cluster("lab:2x1gbit"), 2).capacity.min()
    assert receiver == pytest.approx(4 * rows / rate, rel=0.02)
    assert receiver - sender == pytest.approx(AHEAD_BYTES / rate, rel=0.02)
    sender, *receivers = ends("lab:3x100mbit")
    assert max(receivers) - sender == pytest.approx(QUEUE_S, rel=0.02)  # both halves of the queue, over one link


@pytest.mark.parametrize(
    ("lab", "seconds"), [("lab:3x1gbit", (8 << 20) / framing_rate(125e6)), ("lab:3xunshaped", 0.0)]
)
def test_frames_of_shaped_links_are_work_of_the_cores_of_all(lab: str, seconds: float) -> None:
    """A message between two hosts makes the compute of a third one longer, on the only place for ranks of two cores."""

    program = sent_beside_compute(2 << 20, 0.5)
    plain = load_cluster(lab)
    assert plain.cores == 2 and plain.transport.copying is None and (plain.framing is None) == (seconds == 0)
    whole, less = (
        timed(program, 3, each, shapes_only=True).results[2][1] for each in (plain, replace(plain, framing=None))
    )
    assert whole["compute"] - less["compute"] == pytest.approx(seconds, rel=0.05, abs=1e-9)


def test_hosts_share_the_cores_of_one_machine() -> None:
    async def program(rank: Rank) -> None:
        torch.ones(2000, 64) @ torch.ones(64, 64)
        await rank.all_reduce(torch.ones(1), label="together")

    def compute(hosts: int) -> float:
        cluster = load_cluster(f"lab:{hosts}xunshaped")
        return max(seconds["compute"] for _, seconds in timed(program, hosts, cluster).results)

    assert compute(3) == pytest.approx(1.5 * compute(2))  # the last of three ranks of two cores each, on two cores


def test_a_recording_takes_on_a_lab_what_a_simulation_does(tmp_path: Path) -> None:
    """Shared cores, costs by operator and by effect, and measured collectives are in both."""
    files(tmp_path, MEASURED)
    device = tmp_path / "device.toml"
    cost = OperatorCost(Quantity(2e-5), {1: Quantity(1e-10)}, {8: Quantity(1e-10)}, Quantity(0.1))
    profile = replace(load_device(device), effect=Quantity(2e-4), operators={"haloscope::gather_sum": cost})
    save_device(profile, device)
    config = RunConfig.of(
        dataset="synthetic:nodes=300,degree=6,classes=4,features=8", hidden=8, parts=3, threads=1, epochs=3,
        eval_every=-1, method="sylvie-a", mode="sim", cluster=f"lab:3x1gbit:calibration={tmp_path}",
    )  # fmt: skip
    simulated = run(config).epochs
    replayed = Replay(record(config)).time(load_cluster(config.cluster.name)).epochs
    assert [epoch["seconds"] for epoch in replayed] == [epoch["seconds"] for epoch in simulated]
    slower = load_cluster(f"lab:3x10mbit:calibration={tmp_path}")
    assert Replay(record(config)).time(slower).epochs[-1]["seconds"]["epoch"] > simulated[-1]["seconds"]["epoch"]
