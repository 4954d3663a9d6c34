"""Compiled operators on neighbour lists by address: drawing them, putting them in order, numbering their nodes.

An *address* is the number of a node in the whole graph and the rank that owns it in one int64, `node << 16 | rank`:
ordered by address is ordered by node, and the owner of a node that was found two hops away needs no table. All arrays
are the host's, and the operators are priced as its work; exchanges are in `_remote`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numba import njit
from torch import Tensor

from harness.graphs import position_dtype
from harness.kernels.boundary import Written
from harness.kernels.csr import edge_map, transpose
from harness.kernels.custom_operator import custom_operator
from harness.kernels.random import mix64
from harness.kernels.work import Work, bytes_of, declare_work
from harness.sampling._neighbours import sample_neighbours

OWNER_BITS = 16
MAX_RANKS = 1 << OWNER_BITS


def addresses(nodes: Tensor, owner: int | Tensor) -> Tensor:
    """The addresses of nodes, by their numbers in the whole graph, that `owner` owns."""
    return (nodes << OWNER_BITS) | owner


def node_of(ids: Tensor) -> Tensor:
    """The numbers in the whole graph of the nodes at these addresses."""
    return ids >> OWNER_BITS


@dataclass(frozen=True)
class Scattered:
    """Work of the host: random accesses for every entry of one result, and all results written.

    Attributes:
        entries: position among the results of the one whose entries are looked up one by one.
        line: what the accesses of an entry cost, in bytes that are written; `benchmarks.samplers` puts charged beside
            measured. 64 is a line of memory that is in no cache.
    """

    entries: int
    line: int = 64
    kind: ClassVar[str] = "host"

    def __call__(self, args: Sequence[Any], inputs: list[Tensor], outputs: list[Tensor]) -> Work:
        return Work(self.kind, bytes_of(outputs) + self.line * outputs[self.entries].numel())


@custom_operator(
    "haloscope::draw_lists",
    "(Tensor columns, Tensor indptr, Tensor rows, Tensor ids, int fanout, int key, int expected) -> (Tensor, Tensor)",
)
def draw_lists(
    columns: Tensor, indptr: Tensor, rows: Tensor, ids: Tensor, fanout: int, key: int, expected: int
) -> tuple[Tensor, Tensor]:
    """(int32 [n] entries of each list, int64 [E] addresses) of at most `fanout` in-neighbours of the nodes `ids`.

    Args:
        columns, indptr: int64, the lists of a rank's own nodes.
        rows: int64 [n], which of them are wanted.
        ids: int64 [n], the addresses of their nodes.
        key: which entries are kept depends on it and on the node alone.
        expected: E where tensors have no numbers; ignored where they have.
    """
    names = ids.numpy() >> OWNER_BITS
    starts, drawn = sample_neighbours(indptr.numpy(), columns.numpy(), rows.numpy(), fanout, key, names)
    return torch.from_numpy(np.diff(starts).astype(np.int32)), torch.from_numpy(drawn)


@draw_lists.register_fake
def _(
    columns: Tensor, indptr: Tensor, rows: Tensor, ids: Tensor, fanout: int, key: int, expected: int
) -> tuple[Tensor, Tensor]:
    return ids.new_empty(ids.shape[0], dtype=torch.int32), ids.new_empty(expected)


declare_work("haloscope::draw_lists", Scattered(entries=1, line=16))


@custom_operator(
    "haloscope::draw_from_lists",
    "(Tensor columns, Tensor indptr, Tensor ids, int fanout, int key, int expected) -> (Tensor, Tensor)",
)
def draw_from_lists(
    columns: Tensor, indptr: Tensor, ids: Tensor, fanout: int, key: int, expected: int
) -> tuple[Tensor, Tensor]:
    """What `draw_lists` draws, as CSR (int64), where a rank has the lists (int64 CSR) of the nodes `ids` itself."""
    names = ids.numpy() >> OWNER_BITS
    starts, drawn = sample_neighbours(indptr.numpy(), columns.numpy(), np.arange(len(names)), fanout, key, names)
    return torch.from_numpy(starts), torch.from_numpy(drawn)


@draw_from_lists.register_fake
def _(columns: Tensor, indptr: Tensor, ids: Tensor, fanout: int, key: int, expected: int) -> tuple[Tensor, Tensor]:
    return torch.empty_like(indptr), columns.new_empty(expected)


declare_work("haloscope::draw_from_lists", Scattered(entries=1, line=16))


@custom_operator("haloscope::last_of_each", "(Tensor rows) -> Tensor")
def last_of_each(rows: Tensor) -> Tensor:
    """Positions of the last occurrence of every value in `rows`, int64; as many as `rows` without numbers."""
    _, first = np.unique(rows.numpy()[::-1], return_index=True)
    return torch.from_numpy(len(rows) - 1 - first)


@last_of_each.register_fake
def _(rows: Tensor) -> Tensor:
    return torch.empty_like(rows)


declare_work("haloscope::last_of_each", Scattered(entries=0, line=80))


@custom_operator("haloscope::own_rows", "(Tensor nodes, Tensor rows, Tensor starts, Tensor ids, int shift) -> Tensor")
def own_rows(nodes: Tensor, rows: Tensor, starts: Tensor, ids: Tensor, shift: int) -> Tensor:
    """int64 [n] local rows of the own nodes at the addresses `ids`.

    Args:
        nodes, rows: int64, the own nodes' numbers in the whole graph, ascending, and the local row of each.
        starts: position in `nodes` of the first whose number, without its lowest `shift` bits, is at least i.
    """
    return torch.from_numpy(_found(nodes.numpy(), rows.numpy(), starts.numpy(), ids.numpy(), shift))


@njit(cache=True, nogil=True)
def _found(nodes: np.ndarray, rows: np.ndarray, starts: np.ndarray, ids: np.ndarray, shift: int) -> np.ndarray:
    found = np.empty_like(ids)
    for i in range(len(ids)):
        name = ids[i] >> OWNER_BITS
        at = starts[name >> shift]
        while nodes[at] < name:
            at += 1
        found[i] = rows[at]
    return found


@own_rows.register_fake
def _(nodes: Tensor, rows: Tensor, starts: Tensor, ids: Tensor, shift: int) -> Tensor:
    return torch.empty_like(ids)


declare_work("haloscope::own_rows", Scattered(entries=0, line=16))


@custom_operator("haloscope::by_owner", "(Tensor ids, int own, int size) -> (Tensor, Tensor)")
def by_owner(ids: Tensor, own: int, size: int) -> tuple[Tensor, Tensor]:
    """(int64 [n] order, int64 [size] counts): positions of the rank's own addresses, then of the others' rank by rank.

    Ranks keep the order of `ids`.
    """
    order, counts = _by_owner(ids.numpy(), own, size)
    return torch.from_numpy(order), torch.from_numpy(counts)


@by_owner.register_fake
def _(ids: Tensor, own: int, size: int) -> tuple[Tensor, Tensor]:
    return torch.empty_like(ids), ids.new_empty(size)


declare_work("haloscope::by_owner", Written(draws=False))


@njit(cache=True, nogil=True)
def _by_owner(ids: np.ndarray, own: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    counts = np.zeros(size, np.int64)
    for address in ids:
        counts[address & (MAX_RANKS - 1)] += 1
    cursor = np.zeros(size, np.int64)
    at = counts[own]
    for rank in range(size):
        if rank != own:
            cursor[rank] = at
            at += counts[rank]
    order = np.empty(len(ids), np.int64)
    for i in range(len(ids)):
        rank = ids[i] & (MAX_RANKS - 1)
        order[cursor[rank]] = i
        cursor[rank] += 1
    return order, counts


@custom_operator("haloscope::ordered_lists", "(Tensor counts, Tensor columns, Tensor order) -> (Tensor, Tensor)")
def ordered_lists(counts: Tensor, columns: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Lists one after the other (int32 [n] entries of each, int64 [E]) as CSR whose row `order[i]` is list i.

    Returns int64 [n+1] and int64 [E].
    """
    return tuple(torch.from_numpy(array) for array in _ordered(counts.numpy(), columns.numpy(), order.numpy()))  # type: ignore[return-value]


@ordered_lists.register_fake
def _(counts: Tensor, columns: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    return order.new_empty(order.shape[0] + 1), torch.empty_like(columns)


declare_work("haloscope::ordered_lists", Written(draws=False))


@njit(cache=True, nogil=True)
def _ordered(counts: np.ndarray, columns: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    indptr = np.zeros(len(order) + 1, np.int64)
    for i in range(len(order)):
        indptr[order[i] + 1] = counts[i]
    for row in range(len(order)):
        indptr[row + 1] += indptr[row]
    out = np.empty_like(columns)
    at = 0
    for i in range(len(order)):
        start = indptr[order[i]]
        for e in range(counts[i]):
            out[start + e] = columns[at + e]
        at += counts[i]
    return indptr, out


@custom_operator(
    "haloscope::list_block",
    "(Tensor columns, Tensor indptr, Tensor ids, int num_nodes, int expected)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def list_block(columns: Tensor, indptr: Tensor, ids: Tensor, num_nodes: int, expected: int) -> tuple[Tensor, ...]:
    """The arrays of a block with edge map whose rows are lists, and the addresses in the lists that are not in `ids`.

    Columns of the block are positions in `ids` (int64, distinct) followed by the new addresses, which are numbered
    in the order in which the lists first name them. `num_nodes` bounds the distinct addresses; `expected` is the number
    of new ones where tensors have no numbers, and ignored where they have.
    """
    kind = np.int32 if position_dtype(columns.shape[0]) == torch.int32 else np.int64
    room = min(len(ids) + len(columns), num_nodes)
    indices = np.empty(len(columns), kind)
    new = _number(columns.numpy(), ids.numpy(), max(room, 1), indices)
    starts = indptr.numpy().astype(kind)
    turned = transpose(starts, indices, len(ids) + len(new))
    arrays = (starts, indices, *turned, edge_map(indices, turned[0]), new)
    return tuple(torch.from_numpy(array) for array in arrays)


@list_block.register_fake
def _(columns: Tensor, indptr: Tensor, ids: Tensor, num_nodes: int, expected: int) -> tuple[Tensor, ...]:
    kind, entries = position_dtype(columns.shape[0]), columns.shape[0]
    sizes = (indptr.shape[0], entries, ids.shape[0] + expected + 1, entries, entries)
    return (*(ids.new_empty(size, dtype=kind) for size in sizes), ids.new_empty(expected))


declare_work("haloscope::list_block", Scattered(entries=1, line=16))


@njit(cache=True, nogil=True)
def _number(columns: np.ndarray, ids: np.ndarray, room: int, indices: np.ndarray) -> np.ndarray:
    """Write the number of every column into `indices`; returns the new addresses. Open addressing, half full at most.

    `room` bounds the distinct addresses in `ids` and `columns`.
    """
    size = 1
    while size < 2 * room:
        size *= 2
    mask = np.uint64(size - 1)
    held, number = np.full(size, -1, np.int64), np.empty(size, np.int64)
    for i in range(len(ids)):
        slot = mix64(np.uint64(ids[i])) & mask
        while held[slot] != -1:
            slot = (slot + np.uint64(1)) & mask
        held[slot], number[slot] = ids[i], i
    new, count = np.empty(max(room - len(ids), 0), np.int64), 0
    for e in range(len(columns)):
        address = columns[e]
        slot = mix64(np.uint64(address)) & mask
        while held[slot] != -1 and held[slot] != address:
            slot = (slot + np.uint64(1)) & mask
        if held[slot] == -1:
            held[slot], number[slot] = address, len(ids) + count
            new[count] = address
            count += 1
        indices[e] = number[slot]
    return new[:count].copy()


@njit(cache=True, nogil=True)
def merge_lists(
    own_indptr: np.ndarray,
    own_indices: np.ndarray,
    halo_indptr: np.ndarray,
    halo_indices: np.ndarray,
    own: np.ndarray,
    halo: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """CSR (int64) of two blocks side by side, whose columns have the addresses `own` and `halo`, ascending in a row.

    This is the order of the whole graph's lists, whatever the partition.
    """
    count = len(own_indptr) - 1
    indptr, columns = np.zeros(count + 1, np.int64), np.empty(len(own_indices) + len(halo_indices), np.int64)
    at = 0
    for row in range(count):
        start, ascending = at, True
        for e in range(own_indptr[row], own_indptr[row + 1]):
            columns[at] = own[own_indices[e]]
            ascending = ascending and (at == start or columns[at - 1] <= columns[at])
            at += 1
        for e in range(halo_indptr[row], halo_indptr[row + 1]):
            columns[at] = halo[halo_indices[e]]
            ascending = ascending and (at == start or columns[at - 1] <= columns[at])
            at += 1
        if not ascending:
            columns[start:at] = np.sort(columns[start:at])
        indptr[row + 1] = at
    return indptr, columns
