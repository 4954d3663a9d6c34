"""Rows per pair of ranks when only totals per rank are known: integer matrices with given margins.

Entry [i, j] is the number of rows that rank i receives from rank j; the diagonal is zero. Row sums are always exact,
column sums if they are given.
"""

from __future__ import annotations

import numpy as np

from harness.errors import InputError

ROUNDS = 60  # of proportional fitting; rounding then meets the margins exactly


def spread_rows(received: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """int64 [P, P] with row sums `received`, every row in proportion to the others' `weights`, O(P^2).

    Rounding assigns the rest to the largest remainders, among equal ones to the next ranks in turn, so that columns
    stay as even as rows.
    """
    size = len(received)
    matrix = np.zeros((size, size), np.int64)
    for rank in range(size):
        order = (rank + 1 + np.arange(size - 1)) % size
        weight = weights[order]
        if not received[rank] or not weight.sum():
            continue
        exact = received[rank] * (weight / weight.sum())
        whole = np.floor(exact).astype(np.int64)
        left = int(received[rank] - whole.sum())
        if left:
            whole[np.argsort(whole - exact, kind="stable")[:left]] += 1
        matrix[rank, order] = whole
    return matrix


def fit_margins(received: np.ndarray, sent: np.ndarray) -> np.ndarray:
    """int64 [P, P] with row sums `received` and column sums `sent`, as even as these allow (proportional fitting).

    Raises:
        InputError: the sums differ, or a rank has more than all others can give or take.
    """
    total = int(received.sum())
    if total != int(sent.sum()):
        raise InputError(f"the ranks receive {total} rows in all but send {int(sent.sum())}")
    if np.any(received + sent > total):
        rank = int(np.argmax(received + sent))
        raise InputError(f"rank {rank} receives {received[rank]} and sends {sent[rank]} rows of {total} in all")
    size = len(received)
    exact = np.ones((size, size)) - np.eye(size)
    for _ in range(ROUNDS):
        exact *= (received / np.maximum(exact.sum(1), 1e-300))[:, None]
        columns = exact.sum(0)
        if np.allclose(columns, sent, rtol=1e-9, atol=0.01):
            break
        exact *= sent / np.maximum(columns, 1e-300)
    matrix = np.floor(exact).astype(np.int64)
    _top_up(matrix, received, sent)
    return matrix


def _top_up(matrix: np.ndarray, received: np.ndarray, sent: np.ndarray) -> None:
    """Change entries in place by as little as necessary to meet both margins."""
    rows, columns = received - matrix.sum(1), sent - matrix.sum(0)
    for rank in np.flatnonzero(rows < 0):
        _take(matrix[rank], columns, -int(rows[rank]))
    for other in np.flatnonzero(columns < 0):
        rows_of = received - matrix.sum(1)
        _take(matrix[:, other], rows_of, -int(columns[other]))
    rows, columns = received - matrix.sum(1), sent - matrix.sum(0)
    for rank in np.argsort(-rows, kind="stable"):
        while rows[rank] > 0:
            open_to = np.flatnonzero((columns > 0) & (np.arange(len(rows)) != rank))
            if not len(open_to):
                _swap(matrix, int(rank), int(rows[rank]))
                columns[rank] -= rows[rank]
                break
            step = max(int(rows[rank]) // len(open_to), 1)
            chosen = open_to[np.argsort(-columns[open_to], kind="stable")[: int(rows[rank])]]
            given = np.minimum(columns[chosen], step)
            matrix[rank, chosen] += given
            columns[chosen] -= given
            rows[rank] -= given.sum()


def _take(entries: np.ndarray, other_margin: np.ndarray, count: int) -> None:
    """Lower `entries` by `count` in all, largest first; `other_margin` is increased by the same amounts."""
    for at in np.argsort(-entries, kind="stable"):
        step = min(count, int(entries[at]))
        entries[at] -= step
        other_margin[at] += step
        count -= step
        if not count:
            return


def _swap(matrix: np.ndarray, rank: int, count: int) -> None:
    """Rank `rank` lacks `count` in its row and in its column: reroute that many rows between others through it."""
    for k, l in zip(*np.nonzero(matrix), strict=True):
        if rank in (k, l):
            continue
        step = min(count, int(matrix[k, l]))
        matrix[k, l] -= step
        matrix[rank, l] += step
        matrix[k, rank] += step
        count -= step
        if not count:
            return
