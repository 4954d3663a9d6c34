"""Rings and trees of one NCCL communicator, of all ranks or a group: who sends to whom, and how long it takes.

The algorithm and protocol of an operation are those of least time in NCCL's own tuning model (`_tuning`). Each ring and
tree exists once per network adapter of a host, entering and leaving at another device, with an equal share of the
bytes. Simplification: rings keep the order of ranks, so a mesh of NVLinks may be used worse than by NCCL.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sims.cluster import Placement
from sims.network import run_flows
from sims.transport._collectives import Flows
from sims.transport._tuning import PROTOCOLS, Tuning

LL128_ON_ONE_HOST = 7 / 9  # of a tree's bandwidth, instead of 120 / 128


@dataclass(frozen=True)
class Algorithm:
    """The flows of one algorithm: a ring, a tree or a broadcast.

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
    """

    def __init__(
        self, ranks: np.ndarray, placement: Placement, capacity: np.ndarray, constants: Tuning, intra: str
    ) -> None:
        self.ranks, self.placement, self.capacity, self.constants = ranks, placement, capacity, constants
        self.size, self._intra = len(ranks), intra
        _, self._on_host = np.unique(placement.host[ranks], return_counts=True)
        self.hosts, self._per_host = len(self._on_host), int(self._on_host.max())
        self._channels = max(1, min(placement.cluster.nics, self._per_host)) if self.hosts > 1 else 1
        self._algorithms: dict[str, Algorithm] = {}

    def fastest(self, nbytes: int, algorithms: tuple[str, ...]) -> Flows:
        """The flows of the algorithm and protocol that are fastest for `nbytes` on an idle network."""
        ways = [(name, protocol) for name in algorithms for protocol in PROTOCOLS if self._offered(protocol)]
        times = [self.seconds(nbytes, *way) for way in ways]
        best = times.index(min(times, key=sum))
        chosen, latency = self.algorithm(ways[best][0]), times[best][0]
        ideal = nbytes * chosen.seconds_per_byte
        share = ideal / times[best][1] if ideal else 1.0
        return Flows(chosen.routes, chosen.shares * nbytes, latency, share)

    def seconds(self, nbytes: int, algorithm: str, protocol: str) -> tuple[float, float]:
        """Latency, and transfer time after it, in seconds on an idle network.

        `algorithm`: "ring", "tree", or "from R", the broadcast of rank R.
        """
        flows, tuning = self.algorithm(algorithm), self.constants
        kind = "tree" if algorithm == "tree" else "ring"
        constants = tuning.seconds[kind]
        latency = constants["base"][protocol].value + sum(
            count * max(constants[hop][protocol].value, self._link_latency(hop)) for hop, count in flows.hops.items()
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
            limit = tuning.limits["LL" if self.hosts == 1 else "LL_network"].value
            moved = max(moved, float(flows.shares.max()) * self._channels * nbytes / limit)
        return latency, moved

    def _offered(self, protocol: str) -> bool:
        """Whether a protocol is available: LL128 needs atomic stores of 128 bytes, that is, NVLink."""
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
            src, dst, shares = self._tree() if name == "tree" else self._rings(name)
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

    def _orders(self) -> list[np.ndarray]:
        """The ranks in ring order, once per channel: each channel rotates the ranks of every host."""
        first = np.concatenate([[0], np.cumsum(self._on_host)])
        orders = []
        for channel in range(self._channels):
            hosts = []
            for begin, end in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
                hosts.append(np.roll(self.ranks[begin:end], -(channel * (end - begin) // self._channels)))
            orders.append(np.concatenate(hosts))
        return orders

    def _rings(self, algorithm: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        orders, size = self._orders(), self.size
        src, dst = np.concatenate(orders), np.concatenate([np.roll(order, -1) for order in orders])
        share = (2 * (size - 1) / size if algorithm == "ring" else 1.0) / self._channels
        kept = np.ones(len(src), np.bool_) if algorithm == "ring" else dst != int(algorithm.removeprefix("from "))
        return src[kept], dst[kept], np.full(int(kept.sum()), share)

    def _tree(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Chains inside the hosts; between their heads two binary trees, each with half of the bytes."""
        child, parent, shares = [], [], []
        starts = np.concatenate([[0], np.cumsum(self._on_host)])[:-1]
        for order in self._orders():
            host = self.placement.host[order]
            chain = host[1:] == host[:-1]
            child.append(order[1:][chain])
            parent.append(order[:-1][chain])
            shares.append(np.full(int(chain.sum()), 1 / self._channels))
            for up in binary_trees(self.hosts):
                inner = np.flatnonzero(up >= 0)
                child.append(order[starts[inner]])
                parent.append(order[starts[up[inner]]])
                shares.append(np.full(len(inner), 0.5 / self._channels))
        low, high, share = (np.concatenate(column) for column in (child, parent, shares))
        return np.concatenate([low, high]), np.concatenate([high, low]), np.concatenate([share, share])


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
