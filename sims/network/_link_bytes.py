"""Bytes that cross each link, summed over the flows whose routes contain it. Step 1 of `docs/network.md`."""

from __future__ import annotations

import numpy as np
from numba import njit

from sims.network._completions import count_by_segment
from sims.network._routes import Fabric, Ints, RouteTable, over_links

COUNT_AT = 1 << 16
"""Flows whose bytes are counted in one call: a call per batch would take longer than the batch."""


class LinkBytes:
    """Counts the bytes of every link of a table of routes."""

    def __init__(self, table: RouteTable, links: int) -> None:
        self._table = table
        self._counted = np.zeros(links, np.int64)
        self._waiting: list[tuple[np.ndarray, ...]] = []  # heads, tails and bytes that are not counted yet
        self._waiting_flows = 0

    def add(self, head: np.ndarray, tail: np.ndarray, nbytes: np.ndarray) -> None:
        """Count flows over routes given by their segments."""
        self._waiting.append((head, tail, np.asarray(nbytes)))
        self._waiting_flows += len(head)
        if self._waiting_flows > COUNT_AT:
            self.total()

    def add_link(self, link: int, nbytes: int) -> None:
        """Add bytes to one link."""
        self._counted[link] += nbytes

    def total(self) -> np.ndarray:
        """Bytes of every link, int64 [links]; fractions are rounded once per COUNT_AT flows."""
        if self._waiting:
            head, tail, nbytes = (np.concatenate(column) for column in zip(*self._waiting, strict=True))
            _count(self._table.fabric(), head, tail, nbytes, self._counted)
            self._waiting, self._waiting_flows = [], 0
        return self._counted


@njit(cache=True, nogil=True)
def _count(fabric: Fabric, head: Ints, tail: Ints, nbytes: np.ndarray, counted: Ints) -> None:
    """Add the bytes of flows to `counted`, rounded once per link."""
    by_segment = np.zeros(fabric.segments.shape[0])
    count_by_segment(head, tail, nbytes, by_segment)
    total = over_links(fabric, by_segment)
    for link in range(total.shape[0]):
        counted[link] += np.int64(np.rint(total[link]))
