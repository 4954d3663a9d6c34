"""Cluster files, units, placement of ranks, and the links that transfers cross."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.errors import InputError
from sims.cluster import Cluster, Placement, known_clusters, load_cluster, place
from sims.device import load_device
from sims.units import SOURCES, format_quantity, parse, quantity

GPUS = """
[hosts]
count = 2
devices = 3
device = "rtx-3090"

[links.bus]
bandwidth = "10 GB/s"
latency = "5 us"

[links.root]
bandwidth = "16 GB/s"
latency = "1 us"

[links.nic]
tier = "infiniband"
bandwidth = { value = "100 Gb/s", from = "datasheet", note = "EDR" }
latency = "2 us"

[transport]
kind = "nccl"
"""


def cluster(tmp_path: Path, text: str = GPUS, old: str = "", new: str = "") -> Cluster:
    """A cluster from a file with one replacement made in its text."""
    assert old in text
    path = tmp_path / "lab.toml"
    path.write_text(text.replace(old, new) if old else text)
    return load_cluster(path)


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("25 GB/s", "bandwidth", 25e9),
        ("100 Gb/s", "bandwidth", 12.5e9),
        ("1 GiB/s", "bandwidth", 2**30),
        ("5 us", "time", 5e-6),
        ("0 s", "time", 0.0),
        ("1.5e3 ns", "time", 1.5e-6),
        ("24GiB", "size", 24 * 2**30),
        ("35.6 Tflop/s", "rate", 35.6e12),
    ],
)
def test_units(text: str, dimension: str, value: float) -> None:
    assert parse(text, dimension, "here") == value
    assert parse(format_quantity(value, dimension), dimension, "here") == value


@pytest.mark.parametrize("text", ["25", "25 Gbps", "5 us", "GB/s", "-1 GB/s", "0 GB/s", "1.2.3 GB/s", "nan GB/s", ""])
def test_bad_bandwidths(text: str) -> None:
    with pytest.raises(InputError, match="^links.nic: ") as error:
        parse(text, "bandwidth", "links.nic")
    assert "\n" not in str(error.value)


def test_a_value_remembers_its_source() -> None:
    assert quantity("1 GB/s", "bandwidth", "x").source == "assumed"
    marked = quantity({"value": "1 GB/s", "from": "measured", "note": "n"}, "bandwidth", "x")
    assert (marked.value, marked.source, marked.note) == (1e9, "measured", "n")
    with pytest.raises(InputError, match="'mesured'; did you mean 'measured'"):
        quantity({"value": "1 GB/s", "from": "mesured"}, "bandwidth", "x")


@pytest.mark.parametrize("name", known_clusters())
def test_every_preset_loads_and_says_where_its_numbers_are_from(name: str) -> None:
    preset = load_cluster(name)
    assert preset.name == name and preset.summary
    assert all(value.source in SOURCES for _, value in preset.quantities())
    device = load_device(preset.device)
    assert ("bus" in preset.links) == (device.kind == "gpu")
    placement = place(preset, preset.capacity)
    some = np.unique(np.linspace(0, preset.capacity - 1, 192).astype(np.int32))
    src, dst = np.meshgrid(some, some, indexing="ij")
    routes = placement.routes(src.ravel(), dst.ravel()).reshape(len(some), len(some), -1)
    crossed = (routes >= 0).any(axis=2)
    assert (crossed == (src != dst)).all(), "every pair has a path, and only pairs have one"
    assert (placement.capacity > 0).all()


def test_presets_of_the_papers() -> None:
    assert {
        "local", "ethernet-1g", "ethernet-10g", "ec-graph", "sylvie-2x8", "bns-10x2080ti", "bns-32x6v100",
        "cdfgnn-2x8a800", "h100-8", "a100-8",
    } <= set(known_clusters())  # fmt: skip
    published = load_cluster("cdfgnn-2x8a800").links
    assert (published["bus"].bandwidth.value, published["nic"].bandwidth.value) == (22.70e9, 8.27e9)
    assert load_cluster("ethernet-1g").links["nic"].bandwidth.value == 125e6
    assert [load_cluster(n).capacity for n in ("ec-graph", "sylvie-2x8", "bns-10x2080ti", "bns-32x6v100")] == [
        6, 16, 10, 192,
    ]  # fmt: skip


def test_routes_latencies_and_tiers(tmp_path: Path) -> None:
    placement = place(cluster(tmp_path), 6)
    named = [[placement.names[link] for link in placement.route(0, to)] for to in (0, 1, 5)]
    assert named == [
        [],
        ["host0.device0.bus.up", "host0.root.up", "host0.root.down", "host0.device1.bus.down"],
        ["host0.device0.bus.up", "host0.root.up", "host0.nic.tx", "host1.nic.rx", "host1.root.down",
         "host1.device2.bus.down"],
    ]  # fmt: skip
    assert [placement.latency(0, to) for to in (0, 1, 5)] == pytest.approx([0, 12e-6, 16e-6])
    assert [placement.tier(0, to) for to in (0, 1, 5)] == ["self", "pcie", "infiniband"]
    assert placement.capacity[placement.names.index("host1.nic.rx")] == 12.5e9
    names, code = placement.tier_matrix()
    assert all(
        code[i, j] == -1 if i == j else names[code[i, j]] == placement.tier(i, j) for i in range(6) for j in range(6)
    )
    to_host = [placement.names[link] for link in placement.copy_routes(np.asarray([4]), True)[0]]
    assert to_host == ["host1.device1.bus.up", "host1.root.up"]


def test_device_to_device_links_leave_the_bus_to_the_network(tmp_path: Path) -> None:
    peer = '[links.peer]\nbandwidth = "300 GB/s"\nlatency = "1 us"\n\n[transport]'
    placement = place(cluster(tmp_path, old="[transport]", new=peer), 6)
    assert [placement.names[link] for link in placement.route(0, 1)] == [
        "host0.device0.peer.up", "host0.device1.peer.down",
    ]  # fmt: skip
    assert placement.tier(0, 1) == "nvlink"
    assert placement.names[placement.route(0, 3)[0]] == "host0.device0.bus.up"


def test_host_transports_stay_off_the_bus(tmp_path: Path) -> None:
    loopback = '[links.loopback]\nbandwidth = "8 GB/s"\nlatency = "9 us"\n\n[transport]\nprocess = "1 GB/s"'
    text = GPUS.replace("[transport]", loopback)
    placement = place(cluster(tmp_path, text, '"nccl"', '"gloo"'), 6)
    assert [placement.names[link] for link in placement.route(0, 1)] == [
        "rank0.process.tx", "host0.loopback", "rank1.process.rx",
    ]  # fmt: skip
    assert [placement.names[link] for link in placement.route(1, 5)] == [
        "rank1.process.tx", "host0.nic.tx", "host1.nic.rx", "rank5.process.rx",
    ]  # fmt: skip


def test_ranks_fill_hosts_in_order_or_spread(tmp_path: Path) -> None:
    assert place(cluster(tmp_path), 4).host.tolist() == [0, 0, 0, 1]
    assert place(cluster(tmp_path, old="devices = 3", new="devices = 3\nspread = true"), 4).host.tolist() == [
        0,
        0,
        1,
        1,
    ]
    spread = load_cluster("sylvie-2x8:hosts.count=5:hosts.spread=true")
    for size in (1, 4, 5, 7, 12, 20):
        found = place(spread, size)
        counts = np.bincount(found.host, minlength=5)
        assert counts.max() - counts.min() <= 1 and counts.sum() == size, "as equally as can be"
        assert all(found.slot[found.host == host].tolist() == list(range(counts[host])) for host in range(5))
        assert all(len(found.route(0, other)) > 0 for other in range(1, size))
    packed = place(cluster(tmp_path, old="devices = 3", new="devices = 3\nranks_per_host = 6"), 8)
    assert packed.host.tolist() == [0] * 6 + [1] * 2
    assert packed.device.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]


def test_too_many_ranks_name_the_capacity() -> None:
    with pytest.raises(InputError, match=r"cluster ec-graph takes 6 ranks \(6 hosts x 1\), not 7"):
        place(load_cluster("ec-graph"), 7)


def names(placement: Placement, src: int, dst: int) -> list[str]:
    return [placement.names[link] for link in placement.route(src, dst)]


RACKS = GPUS.replace("count = 2", "count = 5\nper_rack = 2").replace(
    "[transport]",
    '[links.rack]\nbandwidth = "40 Gb/s"\nlatency = "3 us"\n\n'
    '[links.spine]\nbandwidth = "60 Gb/s"\nlatency = "4 us"\n\n[transport]',
)


def test_racks_share_an_uplink_and_the_spine(tmp_path: Path) -> None:
    placement = place(cluster(tmp_path, RACKS), 15)
    assert placement.rack.tolist() == [0] * 6 + [1] * 6 + [2] * 3
    inner = ["host0.device0.bus.up", "host0.root.up", "host0.nic.tx"]
    assert names(placement, 0, 3) == [*inner, "host1.nic.rx", "host1.root.down", "host1.device0.bus.down"]
    assert names(placement, 0, 14) == [
        *inner, "rack0.up", "spine", "rack2.down", "host4.nic.rx", "host4.root.down", "host4.device2.bus.down",
    ]  # fmt: skip
    assert placement.latency(0, 14) - placement.latency(0, 3) == pytest.approx(2 * 3e-6 + 4e-6)
    assert [placement.tier(0, to) for to in (1, 3, 14)] == ["pcie", "infiniband", "rack"]
    assert placement.capacity[placement.names.index("spine")] == 7.5e9
    without = place(cluster(tmp_path, RACKS.replace("per_rack = 2", "per_rack = 5")), 15)
    assert names(without, 0, 14)[2:4] == ["host0.nic.tx", "host4.nic.rx"]


SWITCHES = (
    GPUS.replace("devices = 3", "devices = 4\ndevices_per_switch = 2\nnics = 2")
    .replace("[transport]", '[links.switch]\nbandwidth = "12 GB/s"\nlatency = "1 us"\n\n[transport]')
)  # fmt: skip


def test_switches_and_adapters_are_dealt_in_blocks(tmp_path: Path) -> None:
    placement = place(cluster(tmp_path, SWITCHES), 8)
    assert placement.switch.tolist() == placement.nic.tolist() == [0, 0, 1, 1] * 2
    assert names(placement, 0, 1) == ["host0.device0.bus.up", "host0.device1.bus.down"]
    assert names(placement, 0, 2) == [
        "host0.device0.bus.up", "host0.switch0.up", "host0.root.up",
        "host0.root.down", "host0.switch1.down", "host0.device2.bus.down",
    ]  # fmt: skip
    assert names(placement, 2, 4) == [
        "host0.device2.bus.up", "host0.switch1.up", "host0.root.up", "host0.nic1.tx",
        "host1.nic0.rx", "host1.root.down", "host1.switch0.down", "host1.device0.bus.down",
    ]  # fmt: skip
    copies = [placement.names[link] for link in placement.copy_routes(np.asarray([7]), False)[0]]
    assert copies == ["host1.root.down", "host1.switch1.down", "host1.device3.bus.down"]
    direct = place(cluster(tmp_path, SWITCHES, "nics = 2", 'nics = 2\nnics_on = "switch"'), 8)
    assert names(direct, 2, 4) == [
        "host0.device2.bus.up", "host0.nic1.tx", "host1.nic0.rx", "host1.device0.bus.down",
    ]  # fmt: skip


def test_mesh_links_join_the_pairs_of_a_group(tmp_path: Path) -> None:
    mesh = '[links.mesh]\ngroups = 2\nbandwidth = "50 GB/s"\nlatency = "2 us"\n\n[transport]\nprocess = "9 GB/s"'
    placement = place(cluster(tmp_path, GPUS.replace("devices = 3", "devices = 6"), "[transport]", mesh), 12)
    assert names(placement, 7, 8) == ["rank7.process.tx", "host1.device1.mesh.device2", "rank8.process.rx"]
    assert placement.latency(7, 8) == 2e-6
    assert names(placement, 7, 9)[1:3] == ["host1.device1.bus.up", "host1.root.up"]
    assert [placement.tier(7, to) for to in (7, 8, 9, 0)] == ["self", "nvlink", "pcie", "infiniband"]
    assert sum(".mesh." in name for name in placement.names) == 2 * 2 * 3 * 2
    tiers, code = placement.tier_matrix()
    assert tiers == ("nvlink", "pcie", "infiniband") and code[7, 6:].tolist() == [0, -1, 0, 1, 1, 1]
    assert placement.tier_matrix(4)[1].tolist() == code[:4, :4].tolist()


def test_grpc_is_staged_like_gloo(tmp_path: Path) -> None:
    text = GPUS.replace("[transport]", '[links.loopback]\nbandwidth = "8 GB/s"\nlatency = "9 us"\n\n[transport]')
    placement = place(cluster(tmp_path, text, '"nccl"', '"grpc"'), 6)
    assert placement.staged and names(placement, 0, 5) == ["host0.nic.tx", "host1.nic.rx"]


@pytest.mark.parametrize(
    ("device", "profiles"),
    [
        ("v100-16gb", ["v100-16gb"] * 6),
        ("a100-80gb x 1, v100-16gb x 2", ["a100-80gb", "v100-16gb", "v100-16gb"] * 2),
        ("a100-80gb x 3, v100-16gb x 3", ["a100-80gb"] * 3 + ["v100-16gb"] * 3),
    ],
)
def test_devices_may_differ(tmp_path: Path, device: str, profiles: list[str]) -> None:
    mixed = cluster(tmp_path, old='"rtx-3090"', new=f'"{device}"')
    assert place(mixed, 6).profile_of == profiles
    assert mixed.device == profiles[0]


def test_lanes_are_the_halves_of_routes(tmp_path: Path) -> None:
    for text in (GPUS, RACKS, SWITCHES):
        placement = place(cluster(tmp_path, text), 6)
        src, dst = (axis.ravel() for axis in np.indices((6, 6)))
        head, tail = placement.segments_of(src, dst)
        assert (
            np.concatenate([placement.segments[head], placement.segments[tail]], 1) == placement.routes(src, dst)
        ).all()
        assert placement.route_latencies(head, tail) == pytest.approx(placement.latencies(placement.routes(src, dst)))
        assert (placement.segments[0] == -1).all()


@pytest.mark.parametrize(("size", "relations"), [(1, 0), (8, 1), (16, 2)])
def test_only_relations_that_ranks_have_take_segments(size: int, relations: int) -> None:
    """Peers on one host, and hosts of one rack; a message to itself crosses the empty segment."""
    placement = place(load_cluster("h100-512x8"), size)
    assert len(placement.segments) == 1 + 2 * size * relations
    assert [part.tolist() for part in placement.segments_of(np.arange(1), np.arange(1))] == [[0], [0]]


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (RACKS, "[links.rack]", "[links.switch]", "links.switch needs hosts.devices_per_switch"),
        (RACKS, "per_rack = 2", "", "links.rack needs hosts.per_rack"),
        (GPUS, "count = 2", "count = 2\nper_rack = 1", "missing rack or spine"),
        (GPUS, "count = 2", "count = 2\ndevices_per_switch = 1", "missing switch"),
        (GPUS, "count = 2", "count = 2\nnics = 2", "hosts.nics does not deal 3 devices in equal blocks"),
        (SWITCHES, "per_switch = 2", "per_switch = 3", "devices_per_switch does not deal 4 devices"),
        (SWITCHES, "nics = 2", 'nics = 1\nnics_on = "switch"', "needs switches, each with as many"),
        (SWITCHES, "nics = 2", 'nics_on = "bus"', "nics_on: 'bus'"),
        (GPUS, "[links.root]", "[links.mesh]\ngroups = 3", "groups of at least two"),
        (GPUS, '"rtx-3090"', '"rtx-3090 x 4, a100-80gb x 1"', "lists 5 devices; a host has 3, all hosts 6"),
        (GPUS, '"rtx-3090"', '"rtx-3090 x two"', "'rtx-3090 x two' is not a profile"),
        (GPUS, '"nccl"', '"grpc"', "missing loopback .grpc between"),
    ],
)
def test_counts_that_do_not_fit_give_one_line(tmp_path: Path, text: str, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        cluster(tmp_path, text, old, new)
    assert "lab.toml" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("latency", "latncy", "'latncy'; did you mean 'latency'"),
        ("[links.bus]", "[links.bux]", "'bux'; did you mean 'bus'"),
        ('kind = "nccl"', 'kind = "ncl"', "transport.kind: 'ncl'; did you mean 'nccl'"),
        ('"10 GB/s"', '"10 Gbps"', "links.bus.bandwidth: '10 Gbps' is not a bandwidth"),
        ('"10 GB/s"', "10", "must be a string with a unit"),
        ("count = 2", "count = 0", "hosts.count: must be a whole number of at least 1, not 0"),
        ("count = 2", "", "hosts.count: a whole number is missing"),
        ("[links.nic]", "[links.loopback]", "missing nic"),
        ("[links.bus]", "[links.peer]", "missing bus"),
        ('"nccl"', '"gloo"', "missing loopback"),
        ("[hosts]", "[host]", "'host'; did you mean 'hosts'"),
        ('[transport]\nkind = "nccl"', "", r"transport: the table \[transport\] is missing"),
        ("[transport]", "color = 1\n\n[transport]", "'color'"),
        ("[hosts]", "[hosts", "is not TOML"),
        ('kind = "nccl"', 'kind = "nccl"\nmessage = "5 GB/s"', "'5 GB/s' is not a time"),
    ],
)
def test_bad_cluster_files_give_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        cluster(tmp_path, old=old, new=new)
    assert "lab.toml" in str(error.value) and "\n" not in str(error.value)


def test_unknown_and_unreadable_clusters(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown cluster 'sylvie-2x9'; did you mean 'sylvie-2x8'"):
        load_cluster("sylvie-2x9")
    with pytest.raises(InputError, match="cannot read cluster file .*nowhere.toml"):
        load_cluster(tmp_path / "nowhere.toml")
    with pytest.raises(InputError, match="unknown cluster '2 hosts x 8 h100, 10 Gb/s'; on a line it reads hosts=4"):
        load_cluster("2 hosts x 8 h100, 10 Gb/s")


def test_a_cluster_may_bring_its_own_device(tmp_path: Path) -> None:
    assert cluster(tmp_path, old='"rtx-3090"', new='"mine.toml"').device == str(tmp_path / "mine.toml")
