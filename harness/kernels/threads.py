"""Runs a compiled row kernel over contiguous row ranges on as many threads as torch may use.

The kernels release the GIL and are written for one range of rows; short-lived Python threads run the ranges. numba's
own threading layers are avoided on purpose: one of them aborts the process when two threads call it, another when
the process forks. Results never depend on the number of ranges; this module must not reduce across them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

BYTES_PER_THREAD = 1 << 20
"""A thread costs about 50 microseconds to start: the time in which one core moves some hundred kilobytes."""


def num_ranges(num_bytes: int) -> int:
    """How many threads `num_bytes` of traffic are worth, at most `torch.get_num_threads()`."""
    return max(1, min(torch.get_num_threads(), num_bytes // BYTES_PER_THREAD))


def equal_entries(starts: np.ndarray, entries: int, pieces: int) -> list[int]:
    """Bounds of `pieces` ranges of the rows of a sparse matrix that hold about equal numbers of its entries.

    Args:
        starts: first entry of each row, and the number of all, [rows + 1].
    """
    if pieces == 1:
        return [0, len(starts) - 1]
    cuts = np.searchsorted(starts, np.linspace(0, entries, pieces + 1)[1:-1])
    return [0, *(min(int(cut), len(starts) - 1) for cut in cuts), len(starts) - 1]


def run_ranges(kernel: Callable[[int, int], None], bounds: Sequence[int]) -> None:
    """Call kernel(bounds[i], bounds[i + 1]) for every i, the first range on this thread; errors are re-raised."""
    spans = list(zip(bounds[:-1], bounds[1:], strict=True))
    if len(spans) == 1:
        kernel(*spans[0])
        return
    with ThreadPoolExecutor(len(spans) - 1) as pool:
        others = [pool.submit(kernel, *span) for span in spans[1:]]
        kernel(*spans[0])
        for other in others:
            other.result()


def over_rows(kernel: Callable[[int, int], None], num_rows: int, num_bytes: int) -> None:
    """Split [0, num_rows) evenly and run `kernel(start, stop)` on every piece."""
    pieces = num_ranges(num_bytes)
    run_ranges(kernel, [num_rows * i // pieces for i in range(pieces + 1)])
