"""Splits into training, validation and test nodes: a dataset's public split, a seeded random one, or one by position.

A split depends on the labelled nodes and, if random, on the seed only, so it is equal for all methods and partitions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from harness.errors import InputError, unknown
from harness.graphs import UNLABELLED, Graph

DEFAULT = "random:0.6/0.2/0.2"
KEEP = ":keep="
_KINDS = ("auto", "public", "random:0.6/0.2/0.2", "counts:1408/300/1000", "position:1408/300/1000")


def apply(graph: Graph, split: str, seed: int) -> Graph:
    """`graph` with the split that `split` describes.

    `public` keeps the dataset's own; `random:0.6/0.2/0.2` draws shares of the labelled nodes for training, validation
    and test; `counts:1408/300/1000` draws numbers of nodes (EC-Graph, Sec. V-A). `position:1408/300/1000` (or shares:
    `position:0.6/0.2/0.2`) takes them in the order of their numbers: the first train, the next validate, the next are
    the test. That is the split of EC-Graph's code, whose workers each take the leading share of their own nodes: with a
    hash partition (number modulo parts) the two differ by at most one node per part and boundary. `auto` is public
    where there is one, else random:0.6/0.2/0.2. A graph without labels takes from all its nodes. `:keep=0.3` after any
    of them keeps that share of its training nodes, drawn from the same seed, and changes nothing about the others.

    Raises:
        InputError: no such split, or one that the graph is too small for.
    """
    split, thinned, share = split.partition(KEEP)
    if thinned:
        return _thinned(apply(graph, split, seed), share, seed)
    public = graph.train is not None
    if split == "auto":
        split = "public" if public else DEFAULT
    kind, _, sizes = split.partition(":")
    if kind == "public" and not sizes:
        if not public:
            raise InputError(f"graph {graph.name} has no public split; use --split {DEFAULT}")
        return graph
    if kind not in ("random", "counts", "position") or not sizes:
        raise unknown("split", split, _KINDS)
    pool = _labelled(graph)
    by_share = kind == "random" or (kind == "position" and "." in sizes)
    counts = _shares(split, sizes, len(pool)) if by_share else _counts(split, sizes)
    if sum(counts) > len(pool):
        raise InputError(f"split {split!r} needs {sum(counts)} nodes, graph {graph.name} has {len(pool)} labelled ones")
    order = pool if kind == "position" else np.random.default_rng([seed, 0x5711]).permutation(pool)
    ends = np.cumsum(counts)
    train, val, test = (np.sort(part) for part in np.split(order[: ends[-1]], ends[:-1]))
    return replace(graph, train=train, val=val, test=test)


def _thinned(graph: Graph, text: str, seed: int) -> Graph:
    """`graph` with a share of its training nodes; what a smaller share keeps, a larger one keeps too."""
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1 or graph.train is None:
        raise InputError(f"split ...{KEEP}{text}: give the share of training nodes to keep, as in {DEFAULT}{KEEP}0.3")
    order = np.random.default_rng([seed, 0x7E3D]).permutation(graph.train)
    return replace(graph, train=np.sort(order[: round(share * len(order))]))


def _labelled(graph: Graph) -> np.ndarray:
    if graph.y is None or graph.y.ndim == 2:
        return np.arange(graph.num_nodes)
    return np.flatnonzero(graph.y != UNLABELLED)


def _counts(split: str, sizes: str) -> list[int]:
    try:
        counts = [int(part) for part in sizes.split("/")]
    except ValueError:
        counts = []
    if len(counts) != 3 or min(counts) < 0:
        raise InputError(f"split {split!r}: give three numbers of nodes, as in 1408/300/1000")
    return counts


def _shares(split: str, sizes: str, total: int) -> list[int]:
    """Numbers of nodes from shares, rounded cumulatively, so that shares which sum to one use every node."""
    try:
        shares = [float(part) for part in sizes.split("/")]
    except ValueError:
        shares = []
    if len(shares) != 3 or not all(0 <= share <= 1 for share in shares) or sum(shares) > 1 + 1e-9:
        raise InputError(f"split {split!r}: give three shares that sum to at most 1, as in {DEFAULT}")
    ends = [min(round(total * end), total) for end in np.cumsum(shares)]
    return [ends[0], ends[1] - ends[0], ends[2] - ends[1]]
