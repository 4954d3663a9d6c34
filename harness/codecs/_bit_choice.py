"""Bits of groups of rows, by the variance that they leave against the time that their messages take.

AdaQP's assignment: minimise w V + (1 - w) Z, V the summed variance of all groups and Z the time of all messages, each
scaled by its best and worst value. Messages are sent in ring shifts, and a shift takes as long as its slowest pair. All
pairs are taken to be equally fast, so that Z is a sum of bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.codecs._mixed import MIXED_SIDE_BYTES
from harness.kernels.packed import MIXED_BITS, code_bytes


@dataclass(frozen=True, eq=False)
class BitGroups:
    """The groups of one layer and direction, of all pairs of ranks.

    Attributes:
        sender, receiver: int64 [K].
        rows: int64 [K], rows of a group.
        variance: float64 [K], a group's variance is this / (2^bits - 1)^2.
        width: values per row.
    """

    sender: np.ndarray
    receiver: np.ndarray
    rows: np.ndarray
    variance: np.ndarray
    width: int

    def costs(self, bits: int) -> np.ndarray:
        """Bytes of every group with that many bits, float64 [K]."""
        return self.rows * float(code_bytes(self.width, bits) + MIXED_SIDE_BYTES)

    def left(self, bits: int) -> np.ndarray:
        """Variance of every group with that many bits, float64 [K]."""
        spread: np.ndarray = self.variance / float(2**bits - 1) ** 2
        return spread


def choose_bits(groups: BitGroups, weight: float, size: int) -> np.ndarray:
    """Bits of every group, uint8 [K]; `weight` is that of the variance, from 0 (2 bits) to 1 (8 bits).

    Greedy within a pair: of all steps from 2 to 4 and from 4 to 8 bits those that save most variance per byte, as many
    as fit in the time of the shift. The time of a shift is the best among those at which some pair takes its next step.
    O(K log K).
    """
    low, high = MIXED_BITS[0], MIXED_BITS[-1]
    if weight in (0.0, 1.0) or not len(groups.rows):
        return np.full(len(groups.rows), high if weight == 1.0 else low, np.uint8)
    shift = (groups.receiver - groups.sender) % size
    pair = shift * size + groups.sender
    steps = len(MIXED_BITS) - 1
    gain = np.concatenate([groups.left(a) - groups.left(b) for a, b in zip(MIXED_BITS, MIXED_BITS[1:], strict=False)])
    cost = np.concatenate([groups.costs(b) - groups.costs(a) for a, b in zip(MIXED_BITS, MIXED_BITS[1:], strict=False)])
    group = np.tile(np.arange(len(groups.rows)), steps)
    least, most = (np.bincount(pair, groups.costs(bits), size * size) for bits in (low, high))
    slowest = [by_pair.reshape(size, size).max(1) for by_pair in (least, most)]
    worst_time, worst_variance = float((slowest[1] - slowest[0]).sum()), float(gain.sum())
    if worst_variance <= 0 or worst_time <= 0:
        return np.full(len(groups.rows), low if worst_variance <= 0 else high, np.uint8)
    order = np.lexsort((np.arange(len(group)), -gain / np.maximum(cost, 1e-9), pair[group]))
    of_step = pair[group[order]]
    spent = np.cumsum(cost[order])
    begins = np.flatnonzero(np.diff(of_step, prepend=-1))
    before = np.repeat(spent[begins] - cost[order][begins], np.diff(np.append(begins, len(order))))
    time = np.maximum(least[of_step] + spent - before, slowest[0][of_step // size])
    taken = np.zeros(len(order), bool)
    for k in np.unique(shift):
        mine = np.flatnonzero((of_step // size == k) & (gain[order] > 0))
        value = weight * gain[order][mine] / worst_variance
        taken[mine] = _within_best_time(time[mine], value, float(slowest[0][k]), (1 - weight) / worst_time)
    raised = np.bincount(group[order][taken], minlength=len(groups.rows))
    return np.asarray(MIXED_BITS, np.uint8)[raised]


def _within_best_time(time: np.ndarray, value: np.ndarray, least: float, price: float) -> np.ndarray:
    """Steps to take, bool: those within the time T of a shift for which their value less `price` (T - least) is
    greatest; `time` is that of the shift once a step is taken."""
    order = np.argsort(time, kind="stable")
    worth = np.cumsum(value[order]) - price * (time[order] - least)
    ends = np.flatnonzero(np.append(np.diff(time[order]) > 0, True)) if len(order) else order
    if not len(ends) or worth[ends].max() <= 0:
        return np.zeros(len(time), bool)
    within: np.ndarray = time <= time[order][ends[worth[ends].argmax()]]
    return within
