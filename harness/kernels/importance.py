"""Importance draws of nodes by given probabilities, as functions of (key, node): which are drawn, and their weights.

For `replace`, `poisson` and `ordered` the weighted sum over the drawn nodes has the sum over all nodes as its mean,
whatever the summands. Nothing depends on threads, ranks or earlier draws. A core of the host draws, also where the rank
computes on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from numba import njit
from torch import Tensor

from harness.kernels.custom_operator import custom_operator
from harness.kernels.random import GOLDEN, mix64, signed64, stream_of
from harness.kernels.work import Work, bytes_of, declare_work

Draw = Literal["replace", "poisson", "ordered", "authors"]
"""How nodes are drawn with probabilities q, s in all.

`replace`: s independent draws; weight m / (s q) of a node drawn m times. `poisson`: every node alone, with probability
min(1, c q), s in the mean; weight 1 / probability. `ordered`: s draws without replacement with the weights of Des Raj
(1956), which depend on the order of the draws. `authors`: without replacement with the weight 1 / (s q) of draws with
replacement, as in the code of FastGCN and LADIES; biased.
"""
DRAWS: tuple[str, ...] = get_args(Draw)

_GOLDEN, _S11 = np.uint64(GOLDEN), np.uint64(11)


def importance_draw(q: Tensor, nodes: Tensor, count: int, draw: str, key: int, expected: int) -> tuple[Tensor, Tensor]:
    """Positions of the drawn nodes, ascending int64 [k], and their weights, float64 [k].

    Args:
        q: float64 [n], 0 or more, in proportion to the probabilities; a node with 0 is never drawn.
        nodes: int64 [n], ascending global ids, which the random numbers belong to.
        count: how many are drawn, s above; with repetitions where `draw` is "replace".
        draw: one of `DRAWS`.
        expected: k where tensors have no numbers; ignored where they have.
    """
    found: tuple[Tensor, Tensor] = torch.ops.haloscope.draw_nodes(q, nodes, count, draw, signed64(key), expected)
    return found


@custom_operator(
    "haloscope::draw_nodes", "(Tensor q, Tensor nodes, int count, str draw, int key, int expected) -> (Tensor, Tensor)"
)
def draw_nodes(q: Tensor, nodes: Tensor, count: int, draw: str, key: int, expected: int) -> tuple[Tensor, Tensor]:
    """See `importance_draw`."""
    share, ids, stream = q.numpy(), nodes.numpy(), stream_of(key)
    support = np.flatnonzero(share > 0)
    if not len(support) or count < 1:
        return torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.float64)
    share = share[support] / share[support].sum()
    if draw == "replace":
        times = np.bincount(_with_replacement(share, count, stream), minlength=len(support))
        places = np.flatnonzero(times)
        weights = times[places] / (count * share[places])
    elif draw == "poisson":
        chance = inclusion(share, count)
        places = np.flatnonzero(_uniform_of(ids[support], stream) < chance)
        weights = 1.0 / chance[places]
    else:
        places = _without_replacement(share, ids[support], count, stream)
        weights = _des_raj(share[places], len(support)) if draw == "ordered" else 1 / (len(places) * share[places])
        order = np.argsort(places)
        places, weights = places[order], weights[order]
    return torch.from_numpy(support[places]), torch.from_numpy(weights)


@draw_nodes.register_fake
def _(q: Tensor, nodes: Tensor, count: int, draw: str, key: int, expected: int) -> tuple[Tensor, Tensor]:
    return nodes.new_empty(expected), q.new_empty(expected)


@dataclass(frozen=True)
class DrawnNodes:
    """Work of the host: a random number and a probability for every node, and what is drawn."""

    kind: ClassVar[str] = "host"

    def __call__(self, args: Sequence[Any], inputs: list[Tensor], outputs: list[Tensor]) -> Work:
        return Work(self.kind, 16 * inputs[0].numel() + bytes_of(outputs))


declare_work("haloscope::draw_nodes", DrawnNodes())


def inclusion(q: np.ndarray, count: int) -> np.ndarray:
    """Probabilities min(1, c q) with c such that they sum to `count`, or all 1 where there are no more nodes than that.

    Args:
        q: float64 [n], positive.
    """
    chance = np.ones(len(q))
    if count >= len(q):
        return chance
    free = np.ones(len(q), np.bool_)
    while True:  # those above 1 are certain, and the rest share what is left: at most n rounds, a few in practice
        left = count - (len(q) - free.sum())
        chance[free] = q[free] * (left / q[free].sum())
        above = free & (chance >= 1)
        if not above.any():
            return chance
        chance[above], free = 1.0, free & ~above


def _with_replacement(q: np.ndarray, count: int, stream: np.uint64) -> np.ndarray:
    """`count` independent positions by their probabilities q: draw i is a function of (key, i)."""
    bounds = np.cumsum(q)
    found = np.searchsorted(bounds, _uniform_of(np.arange(count), stream) * bounds[-1], side="right")
    places: np.ndarray = np.minimum(found, len(q) - 1)
    return places


def _without_replacement(q: np.ndarray, nodes: np.ndarray, count: int, stream: np.uint64) -> np.ndarray:
    """Positions in the order in which they are drawn one after the other, each by the probabilities of those left.

    The `count` smallest of independent exponential times with rates q come in that order.
    """
    times = -np.log(_uniform_of(nodes, stream)) / q
    count = min(count, len(q))
    first: np.ndarray = np.argpartition(times, count - 1)[:count]
    return first[np.argsort(times[first], kind="stable")]


@njit(cache=True, nogil=True)
def _uniform_of(items: np.ndarray, stream: np.uint64) -> np.ndarray:
    """One number of 53 bits for every item, strictly between 0 and 1."""
    found = np.empty(len(items), np.float64)
    for i in range(len(items)):
        bits = mix64(stream + np.uint64(items[i]) * _GOLDEN) >> _S11
        found[i] = (np.float64(bits) + 0.5) / 9007199254740992.0
    return found


@njit(cache=True, nogil=True)
def _des_raj(q: np.ndarray, candidates: int) -> np.ndarray:
    """Weights of nodes drawn without replacement; q are their probabilities in the order of the draws, and `candidates`
    sum to 1.

    Draw i alone, with the earlier ones known, gives the estimate t_i = (sum of the earlier) + y_i (1 - their q) / q_i.
    The estimates are joined one by one with shares a_i = n / ((i + 1) (n - i)), which sets every weight to 1 once all n
    are drawn.
    """
    weights = np.empty(len(q))
    left = 1.0
    for i in range(len(q)):
        weights[i] = max(left, 0.0) / q[i]
        left -= q[i]
    if len(q) == candidates:
        return np.ones(len(q))
    factor, added = 1.0, 0.0  # what later draws make of a weight: factor * weight + added
    for i in range(len(q) - 1, -1, -1):
        share = candidates / ((i + 1.0) * (candidates - i))
        weights[i] = factor * share * weights[i] + added
        added += factor * share
        factor *= 1.0 - share
    return weights
