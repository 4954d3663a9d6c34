"""Samples a degree-corrected stochastic block model with many millions of edges on one core, in a few bytes per edge.

Model: Karrer and Newman, Phys. Rev. E 83, 016107 (2011): an end of an edge falls on a node in proportion to its
weight, and a fixed share of the edges stays inside a community. Communities are contiguous ranges of nodes here;
`_synthetic` adds labels, features and the public order of nodes. Of the edges between communities a share may be drawn
between communities of one class: what a partition cuts says something about labels then.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit

from harness.kernels.edges import mirror, sort_pairs, union, unique_pairs

MAX_FILL = 0.5  # share of all pairs inside a community; above it, drawing enough distinct pairs takes too long
_TOLERANCE = 0.002  # of the requested edges
_LOWEST_RATE = 0.02  # caps a round at 50 draws for every missing edge
_ANY, _SAME_CLASS, _OTHER_CLASS = 0, 1, 2  # which other community an edge between communities ends in
_THIRD = 2**31  # first stream of edges between communities of one class

Pairs = tuple[np.ndarray, np.ndarray]


def weights(num_nodes: int, mean_degree: float, exponent: float, rng: np.random.Generator) -> np.ndarray:
    """float64 [N], Pareto with density ~ w**-exponent, exponent > 2.

    The largest expected degree is cut at sqrt(N * mean degree): beyond this structural cutoff two hubs would have to
    share more than one edge (Chung and Lu, Ann. Comb. 6, 2002).
    """
    drawn = (1.0 - rng.random(num_nodes)) ** (-1.0 / (exponent - 1.0))
    cut = (exponent - 1.0) / (exponent - 2.0) * np.sqrt(num_nodes / mean_degree)
    return np.minimum(drawn, max(cut, 1.0))


def bounds(num_nodes: int, communities: int) -> np.ndarray:
    """int64 [K+1]: community c holds nodes `bounds[c]` to `bounds[c+1] - 1`; sizes differ by one at most."""
    return np.arange(communities + 1, dtype=np.int64) * num_nodes // communities


def homophily_range(weight: np.ndarray, bound: np.ndarray, num_pairs: int) -> tuple[float, float]:
    """The smallest and the largest share of `num_pairs` edges inside communities that `sample` can reach.

    Neither a community nor the rest of the graph may be filled beyond MAX_FILL of its pairs; the smallest exceeds the
    largest if the edges do not fit.
    """
    size = np.diff(bound).astype(np.float64)
    expected = num_pairs * np.add.reduceat(weight, bound[:-1]) / weight.sum()
    most = min(1.0, (MAX_FILL * size * (size - 1) / 2 / expected).min())
    outside = (size.sum() ** 2 - (size**2).sum()) / 2
    return max(0.0, 1.0 - MAX_FILL * outside / num_pairs), float(most)


def most_akin(bound: np.ndarray, classes: int, num_pairs: int) -> float:
    """The largest share of `num_pairs` edges between communities of one class that `sample` can reach."""
    size = np.diff(bound).astype(np.float64)
    whole = np.bincount(np.arange(len(size)) % classes, size, classes)
    pairs = ((whole**2).sum() - (size**2).sum()) / 2
    return float(min(1.0, MAX_FILL * pairs / num_pairs))


def sample(
    weight: np.ndarray,
    bound: np.ndarray,
    num_pairs: int,
    homophily: float,
    number: np.ndarray,
    seed: int,
    *,
    akin: float = 0.0,
    classes: int = 1,
) -> Pairs:
    """Symmetric CSR `(indptr, indices)` without self loops or repeats, with 2 * `num_pairs` edges to within 0.2 %.

    `homophily` is the share of edges inside communities, `akin` that of edges between different communities of one
    class (community modulo `classes`); where there are such, all others are between classes. Node i of the model is
    node `number[i]` of the result, and `number` has the dtype of the indices. The draw depends on `seed` alone.
    """
    mass = np.add.reduceat(weight, bound[:-1])
    tables = (*_alias(weight, bound), *_alias(mass, np.array([0, len(mass)])))
    inside, related = round(num_pairs * homophily), round(num_pairs * akin)
    rest = _OTHER_CLASS if related else _ANY

    def within(count: int, stream: int) -> Pairs:
        return _draw_within(count, _key(seed, 2 * stream), bound, *tables, number)

    def between(count: int, stream: int) -> Pairs:
        return _draw_between(count, _key(seed, 2 * stream + 1), bound, *tables, number, classes, rest)

    def among_class(count: int, stream: int) -> Pairs:
        return _draw_between(count, _key(seed, _THIRD + stream), bound, *tables, number, classes, _SAME_CLASS)

    wanted = (
        (inside, within, _key(seed, -1)),
        (num_pairs - inside - related, between, _key(seed, -2)),
        (related, among_class, _key(seed, -3)),
    )
    parts = [_distinct(count, draw, len(number), key) for count, draw, key in wanted if count > 0]
    if not parts:
        return np.zeros(len(number) + 1, np.int64), number[:0].copy()
    whole = parts[0]
    for part in parts[1:]:
        whole = union(*whole, *part)
    return mirror(*whole)


def _distinct(target: int, draw: Callable[[int, int], Pairs], num_nodes: int, key: np.uint64) -> Pairs:
    """CSR of `target` distinct pairs, each at its smaller end, by drawing, removing repeats, and drawing again.

    The share of new pairs falls from round to round, so the last round rarely draws too many; excess is removed.
    """
    distinct: Pairs | None = None
    stream, rate = 0, 1.0
    while distinct is None or len(distinct[1]) < target * (1 - _TOLERANCE):
        have = 0 if distinct is None else len(distinct[1])
        count = max(1, int((target - have) / max(rate, _LOWEST_RATE)))
        low, high = draw(count, stream)
        fresh = unique_pairs(*sort_pairs(high, low, num_nodes))
        distinct = fresh if distinct is None else union(*distinct, *fresh)
        rate = (len(distinct[1]) - have) / count
        stream += 1
    return distinct if len(distinct[1]) <= target else _thin(*distinct, target, key)


def _key(seed: int, stream: int) -> np.uint64:
    return np.uint64(np.random.SeedSequence([seed, stream % 2**32]).generate_state(1, np.uint64)[0])


@njit(cache=True, nogil=True)
def _alias(weight: np.ndarray, bound: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One alias table per segment (Vose 1991): keep slot i when 32 random bits are below `keep[i]`, else `other[i]`."""
    keep = np.full(len(weight), 2**32 - 1, np.uint32)
    other = np.arange(len(weight)).astype(np.int32)
    stack = np.empty(len(weight), np.int32)
    scaled = np.empty(len(weight), np.float64)
    for c in range(len(bound) - 1):
        start, end = bound[c], bound[c + 1]
        total = 0.0
        for i in range(start, end):
            total += weight[i]
        small, large = start, end  # two stacks that grow towards each other inside the segment
        for i in range(start, end):
            scaled[i] = weight[i] / total * (end - start)
            if scaled[i] < 1.0:
                stack[small] = i
                small += 1
            else:
                large -= 1
                stack[large] = i
        while small > start and large < end:
            small -= 1
            i, j = stack[small], stack[large]
            keep[i] = np.uint32(scaled[i] * (2**32 - 1))
            other[i] = j
            scaled[j] -= 1.0 - scaled[i]
            if scaled[j] < 1.0:
                large += 1
                stack[small] = j
                small += 1
    return keep, other


@njit(cache=True, nogil=True, inline="always")
def _bits(counter: np.uint64) -> np.uint64:
    """SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): 64 random bits of a counter."""
    z = counter * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def _thin(indptr: np.ndarray, indices: np.ndarray, target: int, key: np.uint64) -> Pairs:
    """A uniformly random choice of `target` entries (selection sampling: Knuth, TAOCP 2, algorithm S)."""
    new_indptr, kept = np.zeros_like(indptr), np.empty(target, indices.dtype)
    counter, at = key, 0
    for row in range(len(indptr) - 1):
        for e in range(indptr[row], indptr[row + 1]):
            counter += np.uint64(1)
            share = np.float64(_bits(counter) >> np.uint64(11)) / 2.0**53
            if share * (len(indices) - e) < target - at:
                kept[at] = indices[e]
                at += 1
        new_indptr[row + 1] = at
    return new_indptr, kept


@njit(cache=True, nogil=True, inline="always")
def _pick(bits: np.uint64, start: int, size: int, keep: np.ndarray, other: np.ndarray) -> np.int64:
    """A slot of one alias segment: the upper 32 bits choose it, the lower ones decide between it and its alias."""
    slot = np.int64(start) + np.int64(((bits >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32))
    return slot if (bits & np.uint64(0xFFFFFFFF)) < keep[slot] else np.int64(other[slot])


@njit(cache=True, nogil=True)
def _draw_within(
    count: int,
    key: np.uint64,
    bound: np.ndarray,
    keep: np.ndarray,
    other: np.ndarray,
    keep_c: np.ndarray,
    other_c: np.ndarray,
    number: np.ndarray,
) -> Pairs:
    """`count` pairs (smaller, larger id) whose ends share a community; repeats are possible, self loops are not."""
    low, high = np.empty(count, number.dtype), np.empty(count, number.dtype)
    counter, one = key, np.uint64(1)
    for e in range(count):
        c = _pick(_bits(counter), 0, len(keep_c), keep_c, other_c)
        counter += one
        start, size = bound[c], bound[c + 1] - bound[c]
        u = v = _pick(_bits(counter), start, size, keep, other)
        while v == u:
            counter += one
            v = _pick(_bits(counter), start, size, keep, other)
        counter += one
        low[e], high[e] = min(number[u], number[v]), max(number[u], number[v])
    return low, high


@njit(cache=True, nogil=True)
def _draw_between(
    count: int,
    key: np.uint64,
    bound: np.ndarray,
    keep: np.ndarray,
    other: np.ndarray,
    keep_c: np.ndarray,
    other_c: np.ndarray,
    number: np.ndarray,
    classes: int,
    relation: int,
) -> Pairs:
    """As `_draw_within`, with ends in two different communities: any, of one class, or of two classes."""
    low, high = np.empty(count, number.dtype), np.empty(count, number.dtype)
    counter, one = key, np.uint64(1)
    for e in range(count):
        a = b = _pick(_bits(counter), 0, len(keep_c), keep_c, other_c)
        while b == a or (relation != _ANY and ((a - b) % classes == 0) != (relation == _SAME_CLASS)):
            counter += one
            b = _pick(_bits(counter), 0, len(keep_c), keep_c, other_c)
        u = _pick(_bits(counter + one), bound[a], bound[a + 1] - bound[a], keep, other)
        v = _pick(_bits(counter + one + one), bound[b], bound[b + 1] - bound[b], keep, other)
        counter += one + one + one
        low[e], high[e] = min(number[u], number[v]), max(number[u], number[v])
    return low, high
