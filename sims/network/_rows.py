"""Routes by number: a growing table of rows of links, in which equal routes are found by hashing."""

from __future__ import annotations

import numpy as np
from numba import njit

from sims.network._rates import Fabric, Ints, rows_by_link


class Rows:
    """A growing table of rows of links; equal rows that are added are kept once.

    Args:
        capacity: [links], B/s.
        rows: int32 [rows, width], the first rows, padded with -1; row 0 must be empty. None for the empty row alone.
    """

    def __init__(self, capacity: np.ndarray, rows: np.ndarray | None = None) -> None:
        self._capacity = np.ascontiguousarray(capacity, np.float64)
        self._table = np.full((1, 1), -1, np.int32) if rows is None else np.ascontiguousarray(rows, np.int32)
        self._given = self._used = len(self._table)
        self._slot = np.full(2, -1, np.int64)  # hash table: row numbers, or -1
        self._fabric: Fabric | None = None

    def fabric(self) -> Fabric:
        """The table as the kernels take it."""
        if self._fabric is None:
            rows = self._table[: self._used]
            self._fabric = Fabric(self._capacity, rows, *rows_by_link(rows, len(self._capacity)))
        return self._fabric

    def intern(self, routes: np.ndarray) -> np.ndarray:
        """Numbers of the rows that equal `routes` int32 [n, width], int32 [n]; new ones are added."""
        if not len(routes):
            return np.empty(0, np.int32)
        links = np.ascontiguousarray(routes, np.int32).reshape(len(routes), -1)
        self._reserve(*links.shape)
        numbers, used = np.empty(len(links), np.int32), self._used
        self._used = _intern(self._table, used, self._slot, links, numbers)
        if self._used > used:
            self._fabric = None
        return numbers

    def _reserve(self, more: int, width: int) -> None:
        """Room for so many new rows; the hash table stays at most half full."""
        have, wide = self._table.shape
        if self._used + more <= have and width <= wide and 2 * (self._used + more) <= len(self._slot):
            return
        old, wide = self._table[: self._used], max(wide, width)
        table = np.full((2 * (self._used + more), wide), -1, np.int32)
        table[: self._given, : old.shape[1]] = old[: self._given]
        self._table, self._slot = table, np.full(1 << (4 * (self._used + more)).bit_length(), -1, np.int64)
        numbers = np.empty(self._used - self._given, np.int32)
        self._used = _intern(table, self._given, self._slot, np.ascontiguousarray(old[self._given :]), numbers)


@njit(cache=True, nogil=True)
def _intern(table: Ints, used: int, slot: Ints, routes: Ints, numbers: Ints) -> int:
    """Look every route up in the hash table, appending what is not there to `table`; answers the rows used then."""
    line, mask = np.empty(table.shape[1], np.int32), slot.shape[0] - 1
    for at in range(routes.shape[0]):
        line[:] = -1
        crossed, mixed = 0, np.uint64(1469598103934665603)  # FNV-1a
        for link in routes[at]:
            if link >= 0:
                line[crossed] = link
                crossed += 1
                mixed = (mixed ^ np.uint64(link)) * np.uint64(1099511628211)
        if crossed == 0:
            numbers[at] = 0
            continue
        place = np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(mask))
        while slot[place] >= 0 and not np.array_equal(table[slot[place]], line):
            place = (place + 1) & mask
        if slot[place] < 0:
            slot[place], table[used] = used, line
            used += 1
        numbers[at] = slot[place]
    return used
