"""Rings, trees and sums in NVLink switches of one NCCL communicator, of all ranks or a group: who sends to whom.

The algorithm and protocol of an operation are those of least time in NCCL's own tuning model (`_tuning`). Each ring and
tree exists once per network adapter of a host, entering and leaving at another device, with an equal share of the
bytes. On one host whose devices are joined pair by pair there are as many as it takes to use every link equally.
Simplification: a mesh on several hosts, or in groups, is crossed in the order of ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from sims.cluster import Placement
from sims.network import run_flows
from sims.transport._collectives import Flows
from sims.transport._tuning import PROTOCOLS, Tuning

ALL_RINGS = 5
"""Most devices of a mesh that every ring through all of them is made for; beyond, those of equal steps."""

LL128_ON_ONE_HOST = 7 / 9  # of a tree's bandwidth, instead of 120 / 128


@dataclass(frozen=True)
class Algorithm:
    """The flows of one algorithm: a ring, a tree, sums in switches or a broadcast.

    Attributes:
        src, dst: int64 [flows], ranks.
        shares: float64 [flows], bytes per byte of payload.
        routes: int32 [flows, width].
        seconds_per_byte: per byte of payload, on an idle network.
        hops: kind of hop -> number of consecutive hops.
    """

    src: np.ndarray
    dst: np.ndarray
    shares: np.ndarray
    routes: np.ndarray
    seconds_per_byte: float
    hops: dict[str, int]


class Communicator:
    """Some ranks of a placement.

    Args:
        ranks: int64 [members], ascending; so those of a host are consecutive.
        capacity: bytes per second of the links.
        intra: kind of the hops within a host.
        queued: whether operations follow each other so closely that their number per second counts, not how long one
            takes. Then broadcasts overlap under LL and LL128, whose senders write to buffers without waiting: a rank
            takes up the next one when it has passed its bytes on, so that one takes a hop, not all hops to the last
            rank. Under Simple a sender waits for the memory of its receiver.
    """

    def __init__(
        self,
        ranks: np.ndarray,
        placement: Placement,
        capacity: np.ndarray,
        constants: Tuning,
        intra: str,
        queued: bool = False,
    ) -> None:
        self.ranks, self.placement, self.capacity, self.constants = ranks, placement, capacity, constants
        self.size, self._intra, self.queued = len(ranks), intra, queued
        _, self._on_host = np.unique(placement.host[ranks], return_counts=True)
        self.hosts, self._per_host = len(self._on_host), int(self._on_host.max())
        self._orders = self._mesh_orders() if self.hosts == 1 else self._host_orders()
        self._channels = len(self._orders)
        self._sums = placement.cluster.sharp and int(self._on_host.min()) > 1
        self._algorithms: dict[str, Algorithm] = {}

    def fastest(self, nbytes: int, algorithms: tuple[str, ...]) -> Flows:
        """The flows of the algorithm and protocol that NCCL's model takes for the fastest for `nbytes`."""
        ways = [(name, protocol) for name in algorithms for protocol in PROTOCOLS if self._offered(name, protocol)]
        times = [self.seconds(nbytes, *way) for way in ways]
        best = times.index(min(times, key=sum))
        chosen, (latency, moved) = self.algorithm(ways[best][0]), self.seconds(nbytes, *ways[best], runs=True)
        ideal = nbytes * chosen.seconds_per_byte
        share = ideal / moved if ideal else 1.0
        return Flows(chosen.routes, chosen.shares * nbytes, latency, share)

    def seconds(self, nbytes: int, algorithm: str, protocol: str, runs: bool = False) -> tuple[float, float]:
        """Latency, and transfer time after it, in seconds on an idle network.

        With `runs`, as it runs, otherwise as NCCL's choice of algorithm takes it: for which a small tensor does not use
        fewer channels, and a broadcast takes a hop, not all hops to the last rank.

        `algorithm`: "ring", "tree", "nvls" (sums in switches), or "from R", the broadcast of rank R.
        """
        if algorithm == "nvls":
            return self._switch_seconds(nbytes)
        flows, tuning = self.algorithm(algorithm), self.constants
        kind = "tree" if algorithm == "tree" else "ring"
        hops = flows.hops
        if algorithm.startswith("from") and (not runs or (self.queued and protocol != "Simple")):
            hops = {self._intra if self.hosts == 1 else "network": 1}
        constants = tuning.seconds[kind]
        latency = constants["base"][protocol].value + sum(
            count * max(constants[hop][protocol].value, self._link_latency(hop)) for hop, count in hops.items()
        )
        share = tuning.efficiency[kind][protocol].value
        if kind == "tree":
            if protocol == "LL128" and self.hosts == 1:
                share *= LL128_ON_ONE_HOST / (120 / 128)
            size_class = max(int(math.log2(max(nbytes, 64))) - 6, 0)
            factors = tuning.correction[protocol]
            share *= factors[size_class] if size_class < len(factors) else 1.0
        elif protocol == "Simple" and algorithm == "ring" and self.hosts > 1:
            per_rank = tuning.limits["plateau_from"].value
            latency *= tuning.limits["plateau"].value if nbytes >= per_rank * self.size else 1.0
        moved = nbytes * flows.seconds_per_byte / share
        if protocol == "LL":
            traffic = 2.0 if kind == "tree" else float(flows.shares.max()) * self._channels
            moved = max(moved, traffic * nbytes / self._most_of_ll(nbytes, kind, runs))
        return latency, moved

    def _most_of_ll(self, nbytes: int, kind: str, runs: bool) -> float:
        """Most bytes/s under LL; with `runs`, of the channels that a collective of `nbytes` uses."""
        limits, channels = self.constants.limits, self.constants.channels
        limit = limits["LL" if self.hosts == 1 else "LL_network"].value
        if not runs:
            return limit
        each = channels.LL.value * (1 if kind == "tree" else self.size)
        used = min(max(int(nbytes / each), 1), self._kernel_channels())
        return min(limit, used * limits["LL"].value / channels.full.value)

    def _kernel_channels(self) -> int:
        """Most channels of a collective: two per adapter between hosts, two for every so much of NVLink inside one."""
        cluster = self.placement.cluster
        if self.hosts > 1:
            return 2 * self._channels
        inside = {"peer": 1, "mesh": min(self.size, cluster.devices // cluster.mesh_groups) - 1}
        nvlink = sum(n * cluster.links[kind].bandwidth.value for kind, n in inside.items() if kind in cluster.links)
        return 2 * max(int(nvlink / self.constants.channels.speed.value + 1e-9), 1)

    def _switch_seconds(self, nbytes: int) -> tuple[float, float]:
        """`seconds` of sums in switches: up to them and down again, and between hosts up and down trees.

        Every device has a channel for each device of its host.
        """
        constants, flows, size = self.constants.nvls, self.algorithm("nvls"), self.size
        heads, link = self._per_host, self.placement.cluster.links["peer"].bandwidth.value
        speed = max((s * 1e9 for s in constants.speeds if s * 1e9 * heads <= link), default=link / heads)
        bus = 2 * constants.efficiency.value * speed * (heads - 1)
        latency = constants.inside.value
        if self.hosts > 1:
            most = constants.two_hosts if self.hosts == 2 else constants.more_hosts
            bus = min(bus, heads * most.value)
            hops = 2 * int(math.log2(self.hosts))
            latency += hops * max(constants.between.value, self._link_latency("network"))
        return latency, nbytes * max(flows.seconds_per_byte, 2 * (size - 1) / size / bus)

    def _offered(self, algorithm: str, protocol: str) -> bool:
        """Whether a protocol is available: LL128 needs atomic stores of 128 bytes, that is, NVLink.

        Sums in switches need switches that add, and go under Simple only.
        """
        if algorithm == "nvls":
            return self._sums and protocol == "Simple"
        return protocol != "LL128" or self._intra == "nvlink"

    def _link_latency(self, hop: str) -> float:
        """Latency of the links between neighbours beyond that in NCCL's constants."""
        place, ring = self.placement, self.algorithm("ring")
        across = place.host[ring.src] != place.host[ring.dst]
        chosen = across if hop == "network" else ~across
        return float(place.latencies(ring.routes[chosen]).max(initial=0.0))

    def algorithm(self, name: str) -> Algorithm:
        """The algorithm with a name, cached."""
        if name not in self._algorithms:
            made = {"tree": self._tree, "nvls": self._switched}
            src, dst, shares = made[name]() if name in made else self._rings(name)
            routes = self.placement.routes(src, dst)
            million = run_flows(self.capacity, routes, shares * 1e6).max(initial=0.0)
            hops = self._hops(name)
            self._algorithms[name] = Algorithm(src, dst, shares, routes, float(million) / 1e6, hops)
        return self._algorithms[name]

    def _hops(self, algorithm: str) -> dict[str, int]:
        size, hosts = self.size, self.hosts
        if algorithm == "tree":
            return {self._intra: 2 * (self._per_host - 1), "network": 2 * (hosts - 1).bit_length()}
        rounds, across = (2, hosts - 1) if algorithm == "ring" else (1, hosts - 1)
        return {self._intra: rounds * (size - 1 - across), "network": rounds * across}

    def _host_orders(self) -> list[np.ndarray]:
        """The ranks in ring order, once per adapter of a host: each time the ranks of every host are rotated."""
        cluster = self.placement.cluster
        channels = max(1, min(cluster.nics, self._per_host))
        first = np.concatenate([[0], np.cumsum(self._on_host)])
        orders = []
        for channel in range(channels):
            hosts = []
            for begin, end in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
                hosts.append(np.roll(self.ranks[begin:end], -(channel * (end - begin) // channels)))
            orders.append(np.concatenate(hosts))
        return orders

    def _mesh_orders(self) -> list[np.ndarray]:
        """Ring orders of one host: that of the ranks, or over a mesh those that use every link equally."""
        cluster, size = self.placement.cluster, self.size
        meshed = "mesh" in cluster.links and cluster.mesh_groups == 1 and size <= cluster.devices
        if not meshed or size < 3:
            return [self.ranks]
        if size <= ALL_RINGS:
            return [self.ranks[[0, *rest]] for rest in permutations(range(1, size))]
        return [self.ranks[np.arange(size) * step % size] for step in range(1, size) if math.gcd(step, size) == 1]

    def _rings(self, algorithm: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        orders, size = self._orders, self.size
        src, dst = np.concatenate(orders), np.concatenate([np.roll(order, -1) for order in orders])
        share = (2 * (size - 1) / size if algorithm == "ring" else 1.0) / self._channels
        kept = np.ones(len(src), np.bool_) if algorithm == "ring" else dst != int(algorithm.removeprefix("from "))
        return src[kept], dst[kept], np.full(int(kept.sum()), share)

    def _tree(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Chains inside the hosts; between their heads two binary trees, each with half of the bytes."""
        child, parent, shares = self._between_hosts()
        for order in self._orders:
            host = self.placement.host[order]
            chain = host[1:] == host[:-1]
            child.append(order[1:][chain])
            parent.append(order[:-1][chain])
            shares.append(np.full(int(chain.sum()), 1 / self._channels))
        low, high, share = (np.concatenate(column) for column in (child, parent, shares))
        return np.concatenate([low, high]), np.concatenate([high, low]), np.concatenate([share, share])

    def _between_hosts(self) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
        """Children, parents and shares of two binary trees per channel of which every host is a node."""
        child, parent, shares = [], [], []
        starts = np.concatenate([[0], np.cumsum(self._on_host)])[:-1]
        for order in self._orders:
            for up in binary_trees(self.hosts):
                inner = np.flatnonzero(up >= 0)
                child.append(order[starts[inner]])
                parent.append(order[starts[up[inner]]])
                shares.append(np.full(len(inner), 0.5 / self._channels))
        return child, parent, shares

    def _switched(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sums in switches: a device sends all of its bytes up, and its part of the sums; it receives as many.

        Between hosts the sums go up and down trees. A flow from each device to the next of its host stands for what it
        exchanges with the switches.
        """
        src, dst, shares = [], [], []
        first = np.concatenate([[0], np.cumsum(self._on_host)])
        for begin, end in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
            ranks = self.ranks[begin:end]
            src.append(ranks)
            dst.append(np.roll(ranks, -1))
            shares.append(np.full(len(ranks), 1 + 1 / len(ranks)))
        child, parent, part = self._between_hosts()
        return (
            np.concatenate([*src, *child, *parent]),
            np.concatenate([*dst, *parent, *child]),
            np.concatenate([*shares, *part, *part]),
        )


def binary_trees(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Parents, int64 [nodes] with -1 for the root, of two binary trees whose inner nodes are different ones.

    A node's children are half its lowest set bit away. The second tree is the first one mirrored, or shifted by one
    where the number of nodes is odd.
    """
    number = np.arange(nodes)
    low = number & -number
    up = (number ^ low) | (low << 1)
    up = np.where(up >= nodes, number ^ low, up)
    up[:1] = -1
    if nodes % 2:
        other = np.roll(np.where(up >= 0, (up + 1) % nodes, -1), 1)
    else:
        other = np.where(up >= 0, nodes - 1 - up, -1)[::-1].copy()
    return up, other
