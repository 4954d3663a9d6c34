"""Ranks on the hosts and devices of a cluster, the directed links there, and the links that each transfer crosses.

Links are numbered from 0 in blocks by kind. Routes are computed for whole arrays of rank pairs at a time. How long a
transfer takes is not decided here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from sims.topology import Cluster

Ints = np.ndarray  # int32 [n]

NO_LINK = -1
"""Fills routes shorter than their table is wide."""


class Placement:
    """`size` ranks on a cluster.

    Attributes:
        host, device: int32 [size], where each rank sits; devices are numbered inside their host.
        capacity: float64 [links], bytes/s of every directed link.
        latency_s: float64 [links], seconds for crossing it.
        names: the links' names, such as "host0.nic.tx".
        staged: messages start and end in host memory, away from the devices.
        ranks_on_host: int64 [hosts].
    """

    def __init__(self, cluster: Cluster, size: int) -> None:
        self.cluster, self.size = cluster, size
        per_host = -(-size // cluster.hosts) if cluster.spread else cluster.ranks_per_host
        ranks = np.arange(size, dtype=np.int32)
        self.host: Ints = ranks // per_host
        self.device: Ints = ranks % per_host % cluster.devices
        self.ranks_on_host = np.bincount(self.host)
        self.staged = cluster.transport.kind == "gloo"
        self.names: list[str] = []
        self._capacity: list[float] = []
        self._latency: list[float] = []
        self._lay_links()
        self.capacity = np.asarray(self._capacity)
        self.latency_s = np.asarray(self._latency)

    def _lay_links(self) -> None:
        """Number the links; every `self._<kind>_<direction>` is int32 [size], each rank's link of that kind."""
        hosts = range(int(self.host.max()) + 1)
        slot = self.host * self.cluster.devices + self.device
        devices = [f"host{h}.device{d}" for h in hosts for d in range(self.cluster.devices)]
        each_host = [f"host{h}" for h in hosts]
        self._bus_up, self._bus_down = self._pair("bus", ("up", "down"), devices, slot)
        self._peer_up, self._peer_down = self._pair("peer", ("up", "down"), devices, slot)
        self._root_up, self._root_down = self._pair("root", ("up", "down"), each_host, self.host)
        self._nic_tx, self._nic_rx = self._pair("nic", ("tx", "rx"), each_host, self.host)
        self._loopback = self._block("loopback", "", each_host, self.host)
        self._process_tx = self._process("tx")
        self._process_rx = self._process("rx")

    def _pair(self, kind: str, ends: tuple[str, str], owners: list[str], of_rank: Ints) -> tuple[Ints, Ints]:
        return self._block(kind, f".{ends[0]}", owners, of_rank), self._block(kind, f".{ends[1]}", owners, of_rank)

    def _block(self, kind: str, end: str, owners: list[str], of_rank: Ints) -> Ints:
        """One directed link per owner; answers the number of every rank's, or NO_LINK where the cluster has none."""
        link = self.cluster.links.get(kind)
        if link is None:
            return np.full(self.size, NO_LINK, np.int32)
        first = len(self.names)
        for owner in owners:
            self.names.append(f"{owner}.{kind}{end}")
            self._capacity.append(link.bandwidth.value)
            self._latency.append(link.latency.value)
        return (of_rank + first).astype(np.int32)

    def _process(self, end: str) -> Ints:
        """One link per rank for what its process can move."""
        ceiling = self.cluster.transport.process
        if ceiling is None:
            return np.full(self.size, NO_LINK, np.int32)
        first = len(self.names)
        self.names += [f"rank{r}.process.{end}" for r in range(self.size)]
        self._capacity += [ceiling.value] * self.size
        self._latency += [0.0] * self.size
        return np.arange(first, first + self.size, dtype=np.int32)

    def routes(self, src: Ints, dst: Ints) -> np.ndarray:
        """Links that messages src[i] -> dst[i] cross, in order: int32 [n, width], padded with NO_LINK.

        A message of a rank to itself crosses none.
        """
        same, inter = self.host[src] == self.host[dst], self.host[src] != self.host[dst]

        def where(mask: np.ndarray, links: Ints) -> Ints:
            return np.where(mask & (src != dst), links, np.int32(NO_LINK))

        network = [where(inter, self._nic_tx[src]), where(inter, self._nic_rx[dst])]
        tx, rx = where(same | inter, self._process_tx[src]), where(same | inter, self._process_rx[dst])
        if self.staged:
            columns = [tx, where(same, self._loopback[src]), *network, rx]
        else:
            peer = same & (self._peer_up[src] != NO_LINK)
            columns = [
                tx,
                where(peer, self._peer_up[src]),
                where(~peer, self._bus_up[src]),
                where(~peer, self._root_up[src]),
                *network,
                where(~peer, self._root_down[dst]),
                where(~peer, self._bus_down[dst]),
                where(peer, self._peer_down[dst]),
                rx,
            ]
        return np.stack(columns, axis=1).astype(np.int32)

    def copy_routes(self, ranks: Ints, to_host: bool) -> np.ndarray:
        """Links that copies between the ranks' devices and their hosts cross, int32 [n, 2]; all NO_LINK without bus."""
        columns = (self._bus_up, self._root_up) if to_host else (self._root_down, self._bus_down)
        return np.stack([column[ranks] for column in columns], axis=1)

    def latencies(self, routes: np.ndarray) -> np.ndarray:
        """Seconds before the first byte of every route arrives: the sum over its links, float64 [n]."""
        total: np.ndarray = np.where(routes >= 0, self.latency_s[np.maximum(routes, 0)], 0.0).sum(axis=1)
        return total

    def route(self, src: int, dst: int) -> list[int]:
        """Links that a message src -> dst crosses, in order; empty for src = dst."""
        return [int(link) for link in self._one(src, dst)[0] if link != NO_LINK]

    def latency(self, src: int, dst: int) -> float:
        """Seconds of latency from src to dst; 0 for src = dst."""
        return float(self.latencies(self._one(src, dst))[0])

    def tier(self, src: int, dst: int) -> str:
        """Name of the kind of link that src -> dst is counted under; "self" for src = dst."""
        if src == dst:
            return "self"
        return self._tier_names()[int(self.host[src] != self.host[dst])]

    def tier_matrix(self, size: int | None = None) -> tuple[tuple[str, ...], np.ndarray]:
        """Tier names, and int8 [size, size] of indices into them by (from, to); -1 on the diagonal.

        `size` takes the first ranks only; all by default.
        """
        inside, outside = self._tier_names()
        names = tuple(dict.fromkeys(name for name in (inside, outside) if name))
        host = self.host[:size]
        code = np.where(host[:, None] == host[None, :], names.index(inside) if inside else 0, 0)
        if outside:
            code = np.where(host[:, None] != host[None, :], names.index(outside), code)
        np.fill_diagonal(code, -1)
        return names, code.astype(np.int8)

    def _tier_names(self) -> tuple[str, str]:
        """Tiers inside a host and between hosts; "" where there is no such link."""
        links = self.cluster.links
        inside = ("loopback",) if self.staged else ("peer", "bus")
        within = next((links[kind].tier for kind in inside if kind in links), "")
        return within, links["nic"].tier if "nic" in links else ""

    def _one(self, src: int, dst: int) -> np.ndarray:
        return self.routes(np.asarray([src], np.int32), np.asarray([dst], np.int32))
