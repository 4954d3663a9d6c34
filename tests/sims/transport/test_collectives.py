"""Collectives of every library, compared with closed forms, with their single steps, and with tuning values."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.config import PAYLOAD_SHARE
from harness.errors import InputError
from harness.rank import Rank
from sims.cluster import Cluster, load_cluster, place
from sims.engine import Simulation
from sims.transport._communicator import binary_trees
from sims.transport._gloo import Segments
from sims.transport._tuning import FILE, PROTOCOLS, load_tuning
from tests.support.simulated import BANDWIDTH, LATENCY, everyone_sends, plain, seconds_of, timed, work


async def reduce_once(rank: Rank) -> None:
    work(rank, 1e-3 * rank.index)
    await rank.all_reduce(torch.empty(840, device="meta"), label="g")


def reduced(cluster: Cluster, size: int, elements: int) -> Simulation:
    """One all-reduce by the library's own algorithm."""

    async def program(rank: Rank) -> None:
        await rank.all_reduce(torch.empty(elements, device="meta"), label="g")

    return timed(program, size, cluster, shapes_only=True, deterministic=False)


def rings_and_trees(name: str) -> Cluster:
    """A shipped cluster whose switches do not add."""
    return replace(load_cluster(name), sharp=False)


# -- any library -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 5])
def test_all_reduce_in_rank_order_is_two_all_to_alls(tmp_path: Path, size: int) -> None:
    async def program(rank: Rank) -> None:
        await rank.all_reduce(torch.empty(60, device="meta"), label="g")

    simulation = timed(program, size, plain(tmp_path, size), shapes_only=True)
    chunk = 240 / size
    expected = 2 * (LATENCY + (size - 1) * chunk / BANDWIDTH)
    assert seconds_of(simulation)["reduce"] == pytest.approx(expected)
    assert sum(simulation.tiers.values()) == 2 * (size - 1) * 240


@pytest.mark.parametrize(("size", "hops", "drains"), [(2, 1, 1), (3, 1, 2), (4, 2, 3), (5, 2, 4), (8, 3, 6)])
@pytest.mark.parametrize("root", [0, 1])
def test_broadcast_is_a_binomial_tree(tmp_path: Path, size: int, hops: int, drains: int, root: int) -> None:
    """A rank sends to all its children at once: of 8, the root to 3, the first of these then to 2, one of them to 1."""

    async def program(rank: Rank) -> None:
        await rank.broadcast(torch.empty(250, device="meta"), root=root, label="b")

    simulation = timed(program, size, plain(tmp_path, size), shapes_only=True)
    assert simulation.makespan_s == pytest.approx(hops * LATENCY + drains * 1000 / BANDWIDTH)


@pytest.mark.parametrize(("nbytes", "held"), [(100_000, 100_000), (8_000_000, 956_000)])
def test_a_sender_is_done_before_its_receiver_by_what_buffers_hold(nbytes: int, held: int) -> None:
    """At 100 Mb/s they hold 80 ms' worth: all of a short message, which its sender need only copy."""
    cluster = load_cluster("lab:2x100mbit")
    payload = 0.1e9 / 8 * PAYLOAD_SHARE
    copied = 1 - payload / cluster.links["loopback"].bandwidth.value

    async def broadcast(rank: Rank) -> None:
        await rank.broadcast(torch.empty(nbytes // 4, device="meta"), root=0, label="b")

    async def pair(rank: Rank) -> None:
        tensor = torch.empty(nbytes // 4, device="meta")
        await (rank.recv(tensor, source=0, label="p") if rank.index else rank.send(tensor, to=1, label="p"))

    for program in (broadcast, pair):
        first, last = (seconds_of(timed(program, 2, cluster, shapes_only=True), rank)["halo"] for rank in range(2))
        assert (last - first) * payload == pytest.approx(min(held, nbytes * copied), rel=1e-3)
        alone = timed(program, 2, replace(cluster, buffers=None), shapes_only=True)
        assert seconds_of(alone, 0)["halo"] == seconds_of(alone, 1)["halo"] == pytest.approx(last)


@pytest.mark.parametrize("deterministic", [True, False], ids=["chunks", "ring"])
@pytest.mark.parametrize("name", ["plain", "h100-8"])
def test_a_group_is_as_fast_as_a_run_of_its_ranks(tmp_path: Path, name: str, deterministic: bool) -> None:
    """Nobody else is waited for, and disjoint groups do not delay each other."""
    cluster, options = plain(tmp_path, 6) if name == "plain" else load_cluster(name), {"deterministic": deterministic}

    async def both(rank: Rank, group: tuple[int, ...] | None) -> None:
        await rank.all_reduce(torch.empty(6000, device="meta"), label="g", group=group)
        await rank.broadcast(torch.empty(6000, device="meta"), root=(group or (0,))[0], label="b", group=group)

    async def thirds(rank: Rank) -> None:
        if rank.index < 3:
            work(rank, 1.0)
        await both(rank, (0, 1, 2) if rank.index < 3 else (3, 4, 5))

    alone = timed(lambda rank: both(rank, None), 3, cluster, shapes_only=True, **options)
    halves = timed(thirds, 6, cluster, shapes_only=True, **options)
    assert seconds_of(halves, 3)["epoch"] == pytest.approx(alone.makespan_s, rel=1e-6)
    assert seconds_of(halves, 0)["epoch"] == pytest.approx(1.0 + alone.makespan_s, rel=1e-6)
    assert sum(halves.tiers.values()) == 2 * sum(alone.tiers.values()) == 2 * 24000 * (2 * 2 + 2)


def test_groups_that_overlap_share_links(tmp_path: Path) -> None:
    """Rank 1 receives two tensors at once."""

    async def program(rank: Rank) -> None:
        handles = []
        for root, group in ((0, (0, 1)), (2, (1, 2))):
            if rank.index in group:
                tensor = torch.empty(250_000, device="meta")
                handles.append(await rank.start(rank.broadcast(tensor, root=root, label="b", group=group)))
        for handle in handles:
            await rank.wait(handle)

    simulation = timed(program, 3, plain(tmp_path, 3), shapes_only=True)
    assert simulation.makespan_s == pytest.approx(LATENCY + 2 * 1_000_000 / BANDWIDTH)
    assert simulation.link_bytes["host1.nic.rx"] == 2_000_000


def test_a_ring_within_one_host_of_two_does_not_use_the_network() -> None:
    async def program(rank: Rank) -> None:
        mine = range(8) if rank.index < 8 else range(8, 16)
        await rank.all_reduce(torch.empty(2**20, device="meta"), label="g", group=mine)

    simulation = timed(program, 16, load_cluster("h100-8x"), shapes_only=True, deterministic=False)
    alone = reduced(load_cluster("h100-8"), 8, 2**20)
    assert all(not carried for link, carried in simulation.link_bytes.items() if ".nic" in link)
    assert sum(simulation.tiers.values()) == 2 * sum(alone.tiers.values())


@pytest.mark.parametrize("size", [2, 4, 7])
def test_everyone_sending_to_one_is_an_incast(tmp_path: Path, size: int) -> None:
    """The receiver's link carries all bytes."""

    async def program(rank: Rank) -> None:
        like = torch.empty(250, device="meta")
        if rank.index:
            await rank.send(like, to=0, label="s")
            return
        handles = [await rank.start(rank.recv(like, source=r, label="s")) for r in range(1, rank.size)]
        for handle in handles:
            await rank.wait(handle)

    simulation = timed(program, size, plain(tmp_path, size), shapes_only=True)
    assert simulation.makespan_s == pytest.approx(LATENCY + (size - 1) * 1000 / BANDWIDTH)
    assert simulation.link_bytes["host0.nic.rx"] == (size - 1) * 1000


# -- gloo ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_the_ring_waits_for_the_last_and_moves_the_least(tmp_path: Path, size: int) -> None:
    simulation = timed(reduce_once, size, plain(tmp_path, size), shapes_only=True, deterministic=False)
    steps, segment = 2 * (size - 1), math.ceil(840 / (2 * size)) * 4  # two segments per rank and round
    stalls = (2 * steps - 4) / 2 * max(LATENCY - segment / BANDWIDTH, 0.0)
    ring = 2 * LATENCY + stalls + 2 * (size - 1) / size * 3360 / BANDWIDTH
    assert simulation.makespan_s == pytest.approx(1e-3 * (size - 1) + ring)
    assert sum(simulation.tiers.values()) == 2 * (size - 1) * 3360
    assert simulation.link_bytes["host0.nic.tx"] == 2 * (size - 1) * 3360 // size


@settings(max_examples=60)
@given(st.integers(2, 9), st.integers(1, 3_000_000), st.floats(1e-6, 5e-3), st.floats(1e5, 1e9))
def test_the_ring_is_the_time_of_its_segments(size: int, elements: int, hop: float, bandwidth: float) -> None:
    """Segment by segment: sent after the one before on the socket, and after the arrival of the one two before."""
    segments = Segments.of(4 * elements, 4, size)
    assert segments.per_rank >= 2 and segments.nbytes <= 2**20 and segments.nbytes % 4 == 0
    assert segments.per_rank * segments.nbytes * size >= 4 * elements
    begin = np.zeros(size)
    for _ in range(2):
        arrived = [begin.copy(), begin.copy()]
        socket = begin.copy()
        for step in range((size - 1) * segments.per_rank):
            sent, got = arrived[step % 2], np.roll(arrived[step % 2], -1)  # to the left, from the right
            ready = np.maximum(np.maximum(sent, got), np.roll(np.maximum(sent, got), 1))
            socket = np.maximum(socket, ready + hop) + segments.nbytes / bandwidth
            arrived[step % 2] = socket
        begin = np.full(size, socket.max())
    moved = 2 * (size - 1) * segments.per_rank * segments.nbytes / bandwidth
    assert segments.latency(size, hop, bandwidth) + moved == pytest.approx(begin.max())


def test_the_ring_shares_its_links_with_other_traffic(tmp_path: Path) -> None:
    async def program(rank: Rank) -> None:
        exchange = rank.all_to_all(everyone_sends(rank, 250_000), label="h", direction="forward", layer=0)
        handle = await rank.start(exchange)
        await rank.all_reduce(torch.empty(250_000, device="meta"), label="g")
        await rank.wait(handle)

    simulation = timed(program, 2, plain(tmp_path), shapes_only=True, deterministic=False)
    assert seconds_of(simulation)["reduce"] == pytest.approx(2.0, rel=1e-2), "1 MB at half of 1 MB/s"
    assert simulation.makespan_s == pytest.approx(2.0, rel=1e-2)


# -- NCCL ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", range(1, 40))
def test_two_binary_trees_reach_everyone_and_share_the_work(nodes: int) -> None:
    trees = binary_trees(nodes)
    for up in trees:
        assert int((up < 0).sum()) == 1
        at, steps = np.arange(nodes), 0
        while (up[at] >= 0).any():
            at, steps = np.where(up[at] >= 0, up[at], at), steps + 1
        assert len(set(at.tolist())) == 1 and steps <= nodes.bit_length()
        assert np.bincount(up[up >= 0], minlength=nodes).max(initial=0) <= 2
    first, second = (set(up[up >= 0].tolist()) for up in trees)
    assert len(first & second) <= 1 + (nodes == 2)


@pytest.mark.parametrize(("name", "bus"), [("h100-8", 370e9), ("a100-8", 240e9)])
def test_large_all_reduces_reach_the_bandwidth_of_the_links(name: str, bus: float) -> None:
    nbytes = 4 * 2**28
    seconds = reduced(rings_and_trees(name), 8, nbytes // 4).makespan_s
    assert nbytes * 2 * 7 / 8 / seconds == pytest.approx(bus, rel=0.02)


@pytest.mark.parametrize(
    ("name", "size", "bus"),
    [("h100-8", 8, 2 * 0.85 * 40e9 * 7), ("h100-8x", 16, 8 * 57.7e9)],
)
def test_switches_that_add_move_fewer_bytes_over_each_link(name: str, size: int, bus: float) -> None:
    """A device sends its bytes once and its part of the sums, not almost twice; small tensors are left to trees."""
    nbytes = 2**33
    simulation = reduced(load_cluster(name), size, nbytes // 4)
    assert nbytes * 2 * (size - 1) / size / simulation.makespan_s == pytest.approx(bus, rel=0.02)
    assert simulation.link_bytes["host0.device3.peer.up"] == pytest.approx(nbytes * 9 / 8, rel=1e-6)
    small = [reduced(cluster, size, 2**10).makespan_s for cluster in (load_cluster(name), rings_and_trees(name))]
    assert small[0] == small[1]


def test_sums_in_switches_go_up_and_down_trees_between_hosts() -> None:
    """Four hosts are two levels: four hops between hosts; rings are faster for large tensors."""
    cluster, nbytes = load_cluster("h100-8x"), 2**26
    found = reduced(cluster, 32, nbytes // 4).makespan_s
    latency = cluster.transport.operation.value + 25e-6 + 4 * 20.9e-6
    assert found == pytest.approx(latency + nbytes * 2 * 31 / 32 / (8 * 45.5e9), rel=1e-3)
    large = [reduced(each, 32, 2**31).makespan_s for each in (cluster, rings_and_trees("h100-8x"))]
    assert large[0] == large[1]


@pytest.mark.parametrize(("size", "links"), [(2, 1), (3, 2), (4, 3), (5, 4), (6, 2), (7, 6)])
def test_rings_use_every_link_of_a_mesh(tmp_path: Path, size: int, links: int) -> None:
    """Six devices have rings in two directions only: no other equal step reaches all of them."""
    path = tmp_path / "mesh.toml"
    path.write_text(
        '[hosts]\ncount = 1\ndevices = 8\ndevice = "v100-16gb"\n'
        '[links.mesh]\nbandwidth = "40 GB/s"\nlatency = "1 us"\n[links.bus]\nbandwidth = "12 GB/s"\nlatency = "1 us"\n'
        '[transport]\nkind = "nccl"\n'
    )
    nbytes = 2**32
    simulation = reduced(load_cluster(path), size, nbytes // 4)
    assert nbytes * 2 * (size - 1) / size / simulation.makespan_s == pytest.approx(links * 40e9, rel=0.01)
    used = [carried for carried in simulation.link_bytes.values() if carried]
    assert used == pytest.approx([2 * (size - 1) / size * nbytes / links] * (size * links), rel=1e-6)


def test_rings_between_hosts_use_every_adapter() -> None:
    """16 ranks on two hosts with 8 adapters each: the slowest link is an adapter, and it carries an eighth."""
    nbytes = 4 * 2**28
    simulation = reduced(rings_and_trees("h100-8x"), 16, nbytes // 4)
    share = 2 * 15 / 16 * nbytes / 8
    loads = [simulation.link_bytes[f"host{h}.nic{n}.{end}"] for h in range(2) for n in range(8) for end in ("tx", "rx")]
    assert loads == pytest.approx([share] * 32, rel=1e-6)
    assert simulation.makespan_s == pytest.approx(8 * share / 370e9, rel=0.02), "the ring inside a host is slower"


@pytest.mark.parametrize(("nbytes", "expected"), [(8, "LL"), (2**16, "LL"), (2**30, "Simple")])
def test_small_messages_take_the_quick_protocol_and_large_ones_the_full_one(nbytes: int, expected: str) -> None:
    """The time is the least over algorithms and protocols: base, hops and bytes as in NCCL's own model.

    What small tensors lose under LL, because they use few channels, is not part of the choice.
    """
    tuning, simulation = load_tuning(), reduced(rings_and_trees("h100-8"), 8, nbytes // 4)
    ring, few = {}, {}
    for protocol in PROTOCOLS:
        constants = tuning.seconds["ring"]
        latency = constants["base"][protocol].value + 14 * max(constants["nvlink"][protocol].value, 0.6e-6)
        rate = 370e9 * tuning.efficiency["ring"][protocol].value
        rate = min(rate, tuning.limits["LL"].value) if protocol == "LL" else rate
        ring[protocol] = few[protocol] = latency + 2 * 7 / 8 * nbytes / rate
    channel = tuning.limits["LL"].value / tuning.channels.full.value
    few["LL"] += 2 * 7 / 8 * nbytes / (channel * max(nbytes // (8 * 4096), 1))
    assert min(ring, key=lambda p: ring[p]) == expected
    launch = load_cluster("h100-8").transport.operation.value
    assert simulation.makespan_s <= launch + few[expected] * (1 + 1e-9), "a tree may be faster still"
    assert simulation.makespan_s >= launch + 2 * 7 / 8 * nbytes / 370e9
    used = [carried for carried in simulation.link_bytes.values() if carried]
    assert min(used) >= nbytes and max(used) <= 2 * nbytes, "payload, whatever the protocol adds"


@pytest.mark.parametrize(("nbytes", "channels"), [(2**12, 1), (2**14, 2), (2**15, 4)])
def test_a_small_tensor_uses_few_channels(tmp_path: Path, nbytes: int, channels: int) -> None:
    """Two devices: a ring under LL takes one channel more for every 2 x 4 KiB."""
    path = tmp_path / "pair.toml"
    path.write_text(
        '[hosts]\ncount = 1\ndevices = 2\ndevice = "a100-80gb"\n'
        '[links.peer]\nbandwidth = "240 GB/s"\nlatency = "0.3 us"\n'
        '[links.bus]\nbandwidth = "12 GB/s"\nlatency = "1 us"\n'
        '[transport]\nkind = "nccl"\n'
    )
    found = reduced(load_cluster(path), 2, nbytes // 4).makespan_s
    assert found == pytest.approx(6.6e-6 + 2 * 0.6e-6 + nbytes / (channels * 87.7e9 / 24), rel=1e-3)


def test_trees_win_on_many_hosts_and_rings_on_large_tensors() -> None:
    """The ring's latency grows with the ranks, the tree's with the logarithm of the hosts."""
    cluster = rings_and_trees("h100-8x")
    few, many = (reduced(cluster, size, 2**16).makespan_s for size in (16, 128))
    ring = load_tuning().seconds["ring"]
    assert many < few * 3 and many < 2 * 127 * ring["nvlink"]["LL"].value + 2 * 15 * ring["network"]["LL"].value
    large = reduced(cluster, 128, 2**32)
    assert 2**34 * 2 * 127 / 128 / large.makespan_s == pytest.approx(370e9, rel=0.03)


def test_a_broadcast_is_pipelined_along_the_ring() -> None:
    async def program(rank: Rank) -> None:
        await rank.broadcast(torch.empty(2**30, device="meta"), root=3, label="b")

    simulation = timed(program, 8, load_cluster("h100-8"), shapes_only=True)
    assert simulation.makespan_s == pytest.approx(2**32 / 370e9, rel=0.01), "not three times, as a binomial tree"
    assert simulation.link_bytes["host0.device3.peer.down"] == 0
    assert simulation.link_bytes["host0.device2.peer.up"] == 0


@pytest.mark.parametrize(("rows", "hops", "protocol"), [(4096, 1, "LL"), (1, 2, "LL"), (2**15, 1, "Simple")])
def test_grouped_sends_go_in_rounds_when_there_are_many_peers(rows: int, hops: int, protocol: str) -> None:
    """95 peers are more than are served at once: a second hop, unless the first round still moves bytes meanwhile.

    Up to 16 KiB a message goes under LL.
    """

    async def program(rank: Rank) -> None:
        await rank.all_to_all(everyone_sends(rank, rows), label="h", direction="forward", layer=0)

    cluster = load_cluster("h100-8x")
    simulation = timed(program, 96, cluster, shapes_only=True)
    sent = 88 * rows * 4  # to 88 devices elsewhere, over an adapter of its own
    assert simulation.link_bytes["host3.nic5.tx"] == sent
    ring = load_tuning().seconds["ring"]
    software = cluster.transport.operation.value + 95 * cluster.transport.message.value + ring["base"][protocol].value
    hop = max(place(cluster, 96).latency(0, 8), ring["network"][protocol].value)
    moved = (sent + rows * 4) / 48e9  # the first message fills a buffer
    assert simulation.makespan_s == pytest.approx(software + hops * hop + moved, rel=1e-3)


def test_tuning_files_are_checked(tmp_path: Path) -> None:
    text = FILE.read_text()
    for old, new, message in (
        ("[ring.pci]", "[ring.pcie]", "'pcie'; did you mean 'pci'"),
        ("LL = [1.0", 'LL = ["1.0"', "correction.LL: must be a list of factors"),
        ('value = "6.6 us"', 'value = "6.6 GB/s"', "is not a time"),
        ("[channels]", "[channel]", "'channel'; did you mean 'channels'"),
        ("speeds = [60.0", 'speeds = ["60"', "nvls.speeds: must be a list of factors"),
    ):
        assert old in text
        path = tmp_path / "nccl.toml"
        path.write_text(text.replace(old, new, 1))
        load_tuning.cache_clear()
        with pytest.raises(InputError, match=message):
            load_tuning(path)
    load_tuning.cache_clear()


# -- gRPC ------------------------------------------------------------------------------------------------------------


def served(tmp_path: Path, hosts: int) -> Cluster:
    """The plain cluster over gRPC, 10 ms a message."""
    plain(tmp_path, hosts, transport='message = "10 ms"\n')
    path = tmp_path / "plain.toml"
    path.write_text(path.read_text().replace('"gloo"', '"grpc"'))
    return load_cluster(path)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("size", [2, 4])
def test_parameters_are_pushed_to_servers_and_pulled(tmp_path: Path, size: int, deterministic: bool) -> None:
    async def program(rank: Rank) -> None:
        await rank.all_reduce(torch.empty(60, device="meta"), label="g")

    simulation = timed(program, size, served(tmp_path, size), shapes_only=True, deterministic=deterministic)
    messages, moved = (size - 1) * 10e-3, (size - 1) * 240 / size / BANDWIDTH
    assert simulation.makespan_s == pytest.approx(2 * (messages + 2 * LATENCY + moved))


@pytest.mark.parametrize("size", [2, 5])
def test_a_broadcast_is_pulled_from_the_root(tmp_path: Path, size: int) -> None:
    async def program(rank: Rank) -> None:
        await rank.broadcast(torch.empty(250, device="meta"), root=1, label="b")

    simulation = timed(program, size, served(tmp_path, size), shapes_only=True)
    assert simulation.makespan_s == pytest.approx((size - 1) * (10e-3 + 1000 / BANDWIDTH) + 2 * LATENCY)


@pytest.mark.parametrize("size", [2, 4])
def test_a_response_says_its_own_length(tmp_path: Path, size: int) -> None:
    """Counts that only the sender knows cost their bytes over gRPC, and a round of messages over gloo."""

    def exchanged(cluster: Cluster, *, known: bool) -> Simulation:
        async def program(rank: Rank) -> None:
            work(rank, 1e-3 * rank.index)
            await rank.all_to_all(everyone_sends(rank, 250, known=known), label="h", direction="forward", layer=0)

        return timed(program, size, cluster, shapes_only=True)

    counts = (size - 1) * 8 / BANDWIDTH
    message = (size - 1) * 10e-3
    for kind, more in (("grpc", counts), ("gloo", counts + message + LATENCY)):
        served(tmp_path, size)
        path = tmp_path / "plain.toml"
        path.write_text(path.read_text().replace('"grpc"', f'"{kind}"'))
        plainly, counted = (exchanged(load_cluster(path), known=known) for known in (True, False))
        assert counted.makespan_s == pytest.approx(plainly.makespan_s + more)
        assert sum(counted.tiers.values()) == sum(plainly.tiers.values()) + size * (size - 1) * 8
