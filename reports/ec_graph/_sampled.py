"""Expected shares that EC-Graph-S samples of a graph that is not on disk, from fan-outs, degrees and hash parts.

Assumed independent: which neighbours a node keeps, whether it is needed, and its degree. So nodes of lower layers are
taken to have the average degree, although nodes with more neighbours are read more often.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from harness.workloads import Degrees


def sampled_degree(degrees: Degrees, fanout: int, z: float = 1.0) -> tuple[float, float]:
    """Mean of min(degree, fanout), and its generating function at z. Needs `mean` and a spread above Poisson's."""
    shape = 1 / (degrees.spread**2 - 1 / degrees.mean)
    count = np.arange(fanout)
    ways = np.array([math.lgamma(k + shape) - math.lgamma(k + 1) for k in count]) - math.lgamma(shape)
    at_least = math.log(degrees.mean / (shape + degrees.mean))
    fewer = np.exp(ways + shape * math.log(shape / (shape + degrees.mean)) + count * at_least)  # P(degree = count)
    rest = 1 - fewer.sum()
    return float(fewer @ count + fanout * rest), float(fewer @ z**count + z**fanout * rest)


def expected_shares(degrees: Degrees, train: float, fanouts: Sequence[int], num_parts: int) -> dict[str, float]:
    """Expected values of `Sample.observe`.

    Args:
        train: share of training nodes: those that the last layer needs.
        fanouts: by hop from the training nodes, so the last layer's first.

    Returns:
        "nodes needed", and by layer "sampled own edges/l", "sampled halo edges/l", "rows read/l", "rows reading/l":
        shares of the part's own.
    """
    outside, needed = 1 - 1 / num_parts, train
    boundary = 1 - degrees.generating(outside)  # share of the nodes elsewhere that have an edge into a part
    expected = dict[str, float]()
    for hop, fanout in enumerate(fanouts):
        mean, missed = sampled_degree(degrees, fanout, outside)
        edges = needed * mean / degrees.mean  # share of all edges that are kept by a needed node
        shares = {
            "sampled own edges": edges,
            "sampled halo edges": edges,
            "rows read": (1 - degrees.generating(1 - edges / num_parts)) / boundary,
            "rows reading": needed * (1 - missed) / boundary,
        }
        layer = len(fanouts) - 1 - hop
        expected |= {f"{name}/{layer}": min(share, 1.0) for name, share in shares.items()}
        needed = 1 - (1 - needed) * degrees.generating(1 - edges)
    return expected | {"nodes needed": needed}
