"""Ranks on the hosts and devices of a cluster, the directed links there, and the links that each transfer crosses.

Links are numbered from 0 in blocks by kind. A route is two segments: its head, on the sender's side, and its tail, on
the receiver's. They depend only on the relation of the two ranks (see `_relations`), so that a table of a few segments
per rank holds all routes. All functions work on arrays of rank pairs. Times of transfers are computed elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.errors import InputError
from sims.cluster._cluster import Cluster
from sims.cluster._relations import (
    CORE,
    HOST,
    MESH,
    PEER,
    RACK,
    RELATIONS,
    SELF,
    SWITCH,
    Places,
    relations,
    segments_of,
    sum_over,
)

Ints = np.ndarray  # int32 [n]

NO_LINK = -1
"""Padding of routes that are shorter than the width of their table."""

PAIRS = 1 << 20
"""Pairs of ranks whose relations are computed at a time."""


class Placement:
    """`size` ranks on a cluster.

    Attributes:
        host, device: int32 [size], host and device of each rank; devices are numbered inside their host.
        switch, nic: int32 [size], PCIe switch and network adapter of each rank, numbered inside their host.
        rack: int32 [size].
        profile_of: the device profile of each rank, by name or path.
        capacity: float64 [links], bytes/s of every directed link.
        latency_s: float64 [links], seconds for crossing it.
        names: the links' names, such as "host0.nic.tx".
        segments: int32 [segments, width], links of each, padded with NO_LINK; segment 0 is empty. See `segments_of`.
        staged: messages start and end in host memory, not in device memory.
        ranks_on_host: int64 [hosts].
        memory: int32 [size], number of the device, and so of the memory, that each rank has or shares with others; all
            ranks of a lab share that of the one machine.
        ranks_on_device: int64 [size], ranks that have the device of each rank.
    """

    def __init__(self, cluster: Cluster, size: int) -> None:
        self.cluster, self.size = cluster, size
        self.host: Ints = _hosts_of_ranks(cluster, size)
        self.ranks_on_host = np.bincount(self.host)
        before = np.cumsum(self.ranks_on_host) - self.ranks_on_host
        self.slot: Ints = (np.arange(size) - before[self.host]).astype(np.int32)  # index among the ranks of its host
        self.device: Ints = self.slot % cluster.devices
        self.switch: Ints = self.device // (cluster.devices_per_switch or cluster.devices)
        own_device = self.host * cluster.devices + self.device
        self.memory: Ints = np.zeros_like(own_device) if cluster.one_machine else own_device
        self.ranks_on_device = np.bincount(self.memory)[self.memory]
        self.nic: Ints = self.device // (cluster.devices // cluster.nics)
        self.rack: Ints = self.host // (cluster.per_rack or cluster.hosts)
        self.profile_of = [
            cluster.profile(h, d) for h, d in zip(self.host.tolist(), self.device.tolist(), strict=True)
        ]  # fmt: skip
        self.staged = cluster.transport.staged
        self.names: list[str] = []
        self._capacity: list[float] = []
        self._latency: list[float] = []
        self._slots = int(self.ranks_on_host.max())
        self._places = self._where()
        self._lay_links()
        self.capacity = np.asarray(self._capacity)
        self.latency_s = np.asarray(self._latency)
        self.segments = self._lay_segments(self._places.first)
        self._segment_latency = np.where(self.segments >= 0, self.latency_s[self.segments], 0.0).sum(axis=1)
        self._segment_capacity = np.where(self.segments >= 0, self.capacity[self.segments], np.inf).min(axis=1)

    def _where(self) -> Places:
        """The data that relations depend on; transports through host memory use no link between devices."""
        cluster, joined = self.cluster, () if self.staged else self.cluster.links
        mesh = (
            self.device // (cluster.devices // cluster.mesh_groups) if "mesh" in joined else np.full_like(self.host, -1)
        )
        switched = bool(cluster.devices_per_switch) and not self.staged and "peer" not in joined
        inside = PEER if "peer" in joined else HOST
        first = np.full(len(RELATIONS) + 1, -1, np.int64)
        return Places(
            self.host, self.rack, self.switch, self.device, self.slot, mesh, inside, switched, self._slots, first
        )

    def _present(self) -> set[int]:
        """The relations that ranks may have with each other."""
        places, hosts = self._places, int(self.host.max()) + 1
        racks = int(self.rack.max()) + 1
        return {
            relation
            for relation, found in (
                (MESH, bool((places.mesh >= 0).any())), (SWITCH, places.switched), (places.inside, self._slots > 1),
                (RACK, hosts > racks), (CORE, racks > 1),
            )
            if found
        }  # fmt: skip

    def _lay_links(self) -> None:
        """Number the links; every `self._<kind>_<direction>` is int32 [size], each rank's link of that kind."""
        cluster, hosts = self.cluster, range(int(self.host.max()) + 1)
        devices = [f"host{h}.device{d}" for h in hosts for d in range(cluster.devices)]
        switches = int(self.switch.max()) + 1
        nic = [f"{i}" if cluster.nics > 1 else "" for i in range(cluster.nics)]
        each_host = [f"host{h}" for h in hosts]
        slot = self.host * cluster.devices + self.device
        self._bus = self._pair("bus", [f"{d}.bus" for d in devices], slot)
        self._switch = self._pair(
            "switch", [f"{h}.switch{s}" for h in each_host for s in range(switches)], self.host * switches + self.switch
        )
        self._peer = self._pair("peer", [f"{d}.peer" for d in devices], slot)
        self._root = self._pair("root", [f"{h}.root" for h in each_host], self.host)
        self._nic = self._pair(
            "nic", [f"{h}.nic{i}" for h in each_host for i in nic], self.host * cluster.nics + self.nic, ("tx", "rx")
        )
        for host, rate in enumerate(cluster.nic_rates[: len(hosts)]):
            for link in {int(end[r]) for end in self._nic for r in np.flatnonzero(self.host == host)}:
                self._capacity[link] = rate * cluster.shaped.value
        self._rack = self._pair("rack", [f"rack{r}" for r in range(int(self.rack.max()) + 1)], self.rack)
        self._loopback = self._block("loopback", [f"{h}.loopback" for h in each_host], self.host)
        self._spine = self._block("spine", ["spine"], np.zeros(self.size, np.int32))
        self._mesh = self._block("mesh", self._mesh_names(each_host), self.host * len(self._mesh_pairs()))
        self._process = (self._processes("tx"), self._processes("rx"))

    def _mesh_pairs(self) -> list[tuple[int, int]]:
        """Ordered pairs of devices of a host that a mesh link joins: all pairs of a group."""
        each, devices = self.cluster.devices // self.cluster.mesh_groups, range(self.cluster.devices)
        return [(a, b) for a in devices for b in devices if a // each == b // each and a != b]

    def _mesh_names(self, hosts: list[str]) -> list[str]:
        return [f"{host}.device{a}.mesh.device{b}" for host in hosts for a, b in self._mesh_pairs()]

    def _pair(
        self, kind: str, owners: list[str], of_rank: Ints, ends: tuple[str, str] = ("up", "down")
    ) -> tuple[Ints, Ints]:
        """Two directed links per owner."""
        out, back = ([f"{owner}.{end}" for owner in owners] for end in ends)
        return self._block(kind, out, of_rank), self._block(kind, back, of_rank)

    def _block(self, kind: str, names: list[str], of_rank: Ints) -> Ints:
        """One directed link per name; returns the link number of every rank, or NO_LINK if the cluster has none."""
        link = self.cluster.links.get(kind)
        if link is None:
            return np.full(self.size, NO_LINK, np.int32)
        return self._lay(names, link.bandwidth.value, link.latency.value, of_rank)

    def _processes(self, end: str) -> Ints:
        """One link per rank for the bandwidth ceiling of its process."""
        ceiling = self.cluster.transport.process
        if ceiling is None:
            return np.full(self.size, NO_LINK, np.int32)
        names = [f"rank{r}.process.{end}" for r in range(self.size)]
        return self._lay(names, ceiling.value, 0.0, np.arange(self.size))

    def _lay(self, names: list[str], bandwidth: float, latency: float, of_rank: Ints) -> Ints:
        first = len(self.names)
        self.names += names
        self._capacity += [bandwidth] * len(names)
        self._latency += [latency] * len(names)
        return (of_rank + first).astype(np.int32)

    def _lay_segments(self, first: np.ndarray) -> np.ndarray:
        """Segments: the empty one; per relation that ranks have the heads of all senders, then the tails of all
        receivers; a head per mesh pair. Fills `first` of `Places`."""
        (process_out, process_in), (bus_up, bus_down) = self._process, self._bus
        out, back = [self._nic[0]], [self._nic[1]]
        if not self.staged:
            inner_up, inner_down = [self._switch[0], self._root[0]], [self._root[1], self._switch[1]]
            across = ([bus_up, *inner_up], [*inner_down, bus_down])
            if self.cluster.nics_on == "root":
                out, back = [*inner_up, *out], [*back, *inner_down]
            out, back = [bus_up, *out], [*back, bus_down]
        else:
            across = ([self._loopback], [])
        core = [*out, self._rack[0], self._spine], [self._rack[1], *back]
        nowhere, peer = np.full(self.size, NO_LINK, np.int32), ([self._peer[0]], [self._peer[1]])
        ways = {MESH: ([], []), PEER: peer, SWITCH: ([bus_up], [bus_down]), HOST: across, RACK: (out, back), CORE: core}
        rows: list[Sequence[Ints]] = [[nowhere[:1]]]
        for relation in sorted(self._present()):
            first[relation] = 1 + (len(rows) - 1) * self.size
            head, tail = ways[relation]
            rows += [[process_out, *head], [*tail, process_in]]
        if first[MESH] >= 0:
            first[-1] = 1 + (len(rows) - 1) * self.size
            number = np.full((self.cluster.devices, self.cluster.devices), NO_LINK, np.int32)
            number[tuple(np.transpose(self._mesh_pairs()))] = np.arange(len(self._mesh_pairs()))
            to = number[self.device][:, np.arange(self._slots) % self.cluster.devices]
            pair = np.where(to >= 0, self._mesh[:, None] + to, np.int32(NO_LINK)).ravel().astype(np.int32)
            rows.append([np.repeat(process_out, self._slots), pair])
        return _padded(rows)

    def shared_cores(self, rank: int, wanted: int) -> int | None:
        """The host (of a lab: 0 for all hosts) whose cores a rank shares, because its ranks want more than there are.

        Args:
            wanted: cores that each rank keeps busy.

        Returns:
            None where every rank has its cores to itself, or the cluster has no number of cores.
        """
        if not self.cluster.cores:
            return None
        host = 0 if self.cluster.one_machine else int(self.host[rank])
        return host if self.core_ranks(rank) * wanted > self.cluster.cores else None

    def core_ranks(self, rank: int) -> int:
        """Number of ranks on the host of a rank (of a lab: on all hosts), whose cores they all have."""
        return self.size if self.cluster.one_machine else int(self.ranks_on_host[self.host[rank]])

    def relations(self, src: Ints, dst: Ints) -> np.ndarray:
        """Relations of src[i] and dst[i]: int8 [n], indices into `_relations.RELATIONS`."""
        found: np.ndarray = relations(self._places, src, dst)
        return found

    def segments_of(self, src: Ints, dst: Ints) -> tuple[np.ndarray, np.ndarray]:
        """Head and tail of the routes of messages src[i] -> dst[i], numbers of `segments`: two int32 [n]."""
        head, tail = np.empty(len(src), np.int32), np.empty(len(src), np.int32)
        segments_of(self._places, src, dst, head, tail)
        return head, tail

    def routes(self, src: Ints, dst: Ints) -> np.ndarray:
        """Links that messages src[i] -> dst[i] cross, in order: int32 [n, width], padded with NO_LINK.

        A message of a rank to itself crosses none.
        """
        head, tail = self.segments_of(src, dst)
        return np.concatenate([self.segments[head], self.segments[tail]], axis=1)

    def copy_routes(self, ranks: Ints, to_host: bool) -> np.ndarray:
        """Links that copies between devices and host memory cross, int32 [n, width]; all NO_LINK without bus."""
        end = 0 if to_host else 1
        columns = [self._bus[end], self._switch[end], self._root[end]]
        crossed = [c for c in columns if (c != NO_LINK).any()] or columns[:1]
        return np.stack([column[ranks] for column in (crossed if to_host else crossed[::-1])], axis=1)

    def latencies(self, routes: np.ndarray) -> np.ndarray:
        """Latency of every route, in seconds: the sum over its links, float64 [n]."""
        total: np.ndarray = np.where(routes >= 0, self.latency_s[np.maximum(routes, 0)], 0.0).sum(axis=1)
        return total

    def route_latencies(self, head: np.ndarray, tail: np.ndarray) -> np.ndarray:
        """`latencies` of routes given by their segments, float64 [n]."""
        total = np.empty(len(head))
        sum_over(self._segment_latency, head, tail, total)
        return total

    def route_capacities(self, head: np.ndarray, tail: np.ndarray) -> np.ndarray:
        """Bytes/s of the slowest link of routes given by their segments, float64 [n]; inf for one without links."""
        total: np.ndarray = np.minimum(self._segment_capacity[head], self._segment_capacity[tail])
        return total

    def route(self, src: int, dst: int) -> list[int]:
        """Links that a message src -> dst crosses, in order; empty for src = dst."""
        return [int(link) for link in self._one(src, dst)[0] if link != NO_LINK]

    def latency(self, src: int, dst: int) -> float:
        """Seconds of latency from src to dst; 0 for src = dst."""
        return float(self.latencies(self._one(src, dst))[0])

    def tier(self, src: int, dst: int) -> str:
        """Name of the kind of link that src -> dst is counted under; "self" for src = dst."""
        relation = self.relations(np.asarray([src]), np.asarray([dst]))
        return self._tier_of()[int(relation[0])]

    def tier_matrix(self, size: int | None = None) -> tuple[tuple[str, ...], np.ndarray]:
        """Tier names, and int8 [size, size] of indices into them by (from, to); -1 on the diagonal.

        `size` takes the first ranks only; all by default.
        """
        size = self.size if size is None else size
        tier_of = self._tier_of()
        names = tuple(dict.fromkeys(name for relation, name in tier_of.items() if relation != SELF))
        number = np.asarray([names.index(tier_of[r]) if r != SELF and r in tier_of else -1 for r in range(CORE + 1)])
        ranks, code = np.arange(size), np.empty((size, size), np.int8)
        for some in np.array_split(ranks, -(-size * size // PAIRS)):
            related = self.relations(np.repeat(some, size), np.tile(ranks, len(some)))
            code[some] = number[related].reshape(-1, size)
        return names, code

    def _tier_of(self) -> dict[int, str]:
        """Relation -> tier, for the relations in the cluster; transfers between racks have a separate tier."""
        links = self.cluster.links
        kinds = {HOST: "loopback"} if self.staged else {MESH: "mesh", PEER: "peer"}
        if not self.staged and "peer" not in links and ("mesh" not in links or self.cluster.mesh_groups > 1):
            kinds |= {SWITCH: "bus", HOST: "bus"}
        kinds |= {RACK: "nic", CORE: "rack" if "rack" in links else "spine"}
        return {SELF: "self"} | {relation: links[kind].tier for relation, kind in kinds.items() if kind in links}

    def _one(self, src: int, dst: int) -> np.ndarray:
        return self.routes(np.asarray([src], np.int32), np.asarray([dst], np.int32))


def _hosts_of_ranks(cluster: Cluster, size: int) -> Ints:
    """The host of every rank, int32 [size], rising: hosts filled one after the other, or all as equally as can be."""
    if not cluster.spread:
        return np.arange(size, dtype=np.int32) // np.int32(cluster.ranks_per_host)
    least, more = divmod(size, cluster.hosts)
    hosts = np.arange(cluster.hosts, dtype=np.int32)
    return np.repeat(hosts, least + (hosts < more))


def _padded(rows: list[Sequence[Ints]]) -> np.ndarray:
    """Blocks of rows, each given by its columns, as one padded table without the empty columns of each block."""
    kept = [[c for c in columns if (c != NO_LINK).any()] or [columns[0]] for columns in rows]
    width = max(map(len, kept))
    table = np.full((sum(len(columns[0]) for columns in kept), width), NO_LINK, np.int32)
    at = 0
    for columns in kept:
        end = at + len(columns[0])
        table[at:end, : len(columns)] = np.stack(columns, axis=1)
        at = end
    return table


def place(cluster: Cluster, size: int) -> Placement:
    """Ranks 0..size-1 on the hosts and devices of a cluster, hosts in order.

    Raises:
        InputError: the cluster has too few places.
    """
    if size > cluster.capacity:
        raise InputError(
            f"cluster {cluster.name} takes {cluster.capacity} ranks ({cluster.hosts} hosts x "
            f"{cluster.ranks_per_host}), not {size}; use fewer parts or another cluster"
        )
    return Placement(cluster, size)
