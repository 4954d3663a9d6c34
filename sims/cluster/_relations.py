"""Compiled: how pairs of ranks are related, and which segments make up the routes between them (see `_placement`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

RELATIONS = ("self", "mesh", "peer", "switch", "host", "rack", "core")
"""How two ranks are related: the same one; devices of one host joined by mesh or peer links, or that share a PCIe
switch, or only the host; hosts of one rack; hosts of different racks."""

SELF, MESH, PEER, SWITCH, HOST, RACK, CORE = range(len(RELATIONS))


class Places(NamedTuple):
    """Where the ranks sit, and what joins them.

    Attributes:
        host, rack, switch, device, slot: int32 [size]; see `_placement.Placement`.
        mesh: int32 [size], the group of devices that mesh links join, -1 without.
        inside: relation of devices of a host that neither a mesh nor a switch joins, PEER or HOST.
        switched: a PCIe switch joins devices.
        slots: most ranks on a host.
        first: int64 [relations + 1], the first segment of every relation that ranks have, -1 for others and SELF: heads
            of all senders, then tails of all receivers. The last entry is the first head of a mesh pair.
    """

    host: np.ndarray
    rack: np.ndarray
    switch: np.ndarray
    device: np.ndarray
    slot: np.ndarray
    mesh: np.ndarray
    inside: int
    switched: bool
    slots: int
    first: np.ndarray


@njit(cache=True, nogil=True)
def _related(places: Places, a: int, b: int) -> int:
    if a == b:
        return SELF
    if places.host[a] != places.host[b]:
        return RACK if places.rack[a] == places.rack[b] else CORE
    if places.mesh[a] >= 0 and places.mesh[a] == places.mesh[b] and places.device[a] != places.device[b]:
        return MESH
    if places.switched and places.switch[a] == places.switch[b]:
        return SWITCH
    return places.inside


@njit(cache=True, nogil=True)
def relations(places: Places, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """How src[i] and dst[i] are related: int8 [n], indices into RELATIONS."""
    found = np.empty(src.shape[0], np.int8)
    for at in range(src.shape[0]):
        found[at] = _related(places, src[at], dst[at])
    return found


@njit(cache=True, nogil=True)
def segments_of(places: Places, src: np.ndarray, dst: np.ndarray, head: np.ndarray, tail: np.ndarray) -> None:
    """`Placement.segments_of` for src[i] -> dst[i] into `head` and `tail`, int32 [n]."""
    size = places.host.shape[0]
    for at in range(src.shape[0]):
        relation = _related(places, src[at], dst[at])
        if relation == SELF:
            head[at] = tail[at] = 0
            continue
        head[at] = places.first[relation] + src[at]
        tail[at] = places.first[relation] + size + dst[at]
        if relation == MESH:
            head[at] = places.first[len(RELATIONS)] + src[at] * places.slots + places.slot[dst[at]]


@njit(cache=True, nogil=True)
def sum_over(values: np.ndarray, head: np.ndarray, tail: np.ndarray, total: np.ndarray) -> None:
    """Values [segments] of the two segments of every route, summed into `total` [n]."""
    for at in range(head.shape[0]):
        total[at] = values[head[at]] + values[tail[at]]
