"""Clusters that are described on one line: what they say, what is assumed, and what is refused."""

from __future__ import annotations

import pytest

from harness.errors import InputError
from sims.cluster import load_cluster, place
from sims.study import quantities


def test_a_line_is_a_cluster() -> None:
    line = "hosts=4,devices=8,device=a100-80gb,nic=100Gb/s,bus=24GB/s,peer=240GB/s,nics=2,latency=2us"
    cluster = load_cluster(line)
    assert (cluster.hosts, cluster.devices, cluster.nics, cluster.capacity) == (4, 8, 2, 32)
    assert cluster.links["nic"].bandwidth.value == 12.5e9 and cluster.links["nic"].latency.value == 2e-6
    assert cluster.links["peer"].bandwidth.value == 240e9
    assert cluster.transport.kind == "nccl" and cluster.device == "a100-80gb" and cluster.name == line
    said = {name for name, quantity in cluster.quantities() if quantity.source == "datasheet"}
    assert said == {"links.nic.bandwidth", "links.nic.latency", "links.bus.bandwidth", "links.peer.bandwidth"}
    assert quantities(cluster)
    assert list(place(cluster, 10).ranks_on_host) == [8, 2]


def test_hosts_of_processors_talk_over_gloo() -> None:
    cluster = load_cluster("hosts=2,devices=2,device=cpu-epyc-1core,nic=1Gb/s")
    assert cluster.transport.kind == "gloo" and set(cluster.links) == {"nic", "loopback"}
    assert cluster.transport.operation == load_cluster("ethernet-10g").transport.operation


def test_it_can_be_changed_like_a_file() -> None:
    cluster = load_cluster("hosts=2,device=cpu-epyc-1core,nic=1Gb/s:links.nic.bandwidth=10Gb/s:hosts.count=3")
    assert cluster.hosts == 3 and cluster.links["nic"].bandwidth.value == 1.25e9


@pytest.mark.parametrize(
    ("nodes", "count"), [("gpu[01-04]", 4), ("gpu[01-04,07],login1", 6), ("a,b,c", 3), ("rack1-[1-2,5]", 3)]
)
def test_a_node_list_counts_its_nodes(nodes: str, count: int) -> None:
    assert load_cluster(f"device=cpu-epyc-1core,nic=1Gb/s,nodes={nodes}").hosts == count


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("hosts=4,device=cpu-epyc-1core", "without links between them; add nic="),
        ("hosts=4,nic=1Gb/s", "say which device"),
        ("hosts=4,devcies=8,device=l4,nic=1Gb/s", "did you mean 'devices'"),
        ("hosts=many,device=cpu-epyc-1core,nic=1Gb/s", "must be a whole number"),
        ("hosts=0,device=cpu-epyc-1core,nic=1Gb/s", "hosts"),
        ("hosts=2,device=cpu-epyc-1core,nic=1Gb", "is not a bandwidth"),
        ("hosts=2,device=cpu-epyc-1core,nic=1Gb/s,library=mpi", "unknown library"),
        ("hosts=2,hosts=3,device=l4,nic=1Gb/s", "needs one value"),
        ("nodes=gpu[4-1],device=l4,nic=1Gb/s", "is no range"),
        ("nodes=gpu[1-2],hosts=2,device=l4,nic=1Gb/s", "leave hosts= out"),
        ("hosts=1,devices=2,device=l4,library=nccl", "missing bus"),
        ("hosts=2,device=l4,nic=1Gb/s,library=nccl", "missing bus"),
    ],
)
def test_a_bad_line_is_refused(line: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        load_cluster(line)
    assert "\n" not in str(error.value)
