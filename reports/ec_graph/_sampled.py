"""What EC-Graph-S samples of a graph that is not at hand: expected shares, from fan-outs, degrees and hash parts.

Taken for independent: which neighbours a node keeps, whether it is needed, and its degree. So a lower layer's nodes,
which are read the more often the more neighbours they have, are held for average ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from harness.workloads import Degrees


def kept(degrees: Degrees, fanout: int, z: float = 1.0) -> tuple[float, float]:
    """Of min(degree, fanout): its mean, and its generating function at z. Needs `mean` and a spread above Poisson's."""
    shape = 1 / (degrees.spread**2 - 1 / degrees.mean)
    count = np.arange(fanout)
    ways = np.array([math.lgamma(k + shape) - math.lgamma(k + 1) for k in count]) - math.lgamma(shape)
    at_least = math.log(degrees.mean / (shape + degrees.mean))
    fewer = np.exp(ways + shape * math.log(shape / (shape + degrees.mean)) + count * at_least)  # P(degree = count)
    rest = 1 - fewer.sum()
    return float(fewer @ count + fanout * rest), float(fewer @ z**count + z**fanout * rest)


def expected_shares(degrees: Degrees, train: float, fanouts: Sequence[int], num_parts: int) -> dict[str, float]:
    """What `Sample.observe` would say, in expectation.

    Args:
        train: share of nodes that train; those the last layer must know.
        fanouts: by hop from the training nodes, so the last layer's first.

    Returns:
        "nodes needed", and by layer "sampled own edges/l", "sampled halo edges/l", "rows read/l", "rows reading/l":
        shares of the part's own.
    """
    outside, needed = 1 - 1 / num_parts, train
    boundary = 1 - degrees.generating(outside)  # of the nodes elsewhere, those with an edge into a part
    found = dict[str, float]()
    for hop, fanout in enumerate(fanouts):
        mean, missed = kept(degrees, fanout, outside)
        edges = needed * mean / degrees.mean  # of all edges, those that somebody needed keeps
        shares = {
            "sampled own edges": edges,
            "sampled halo edges": edges,
            "rows read": (1 - degrees.generating(1 - edges / num_parts)) / boundary,
            "rows reading": needed * (1 - missed) / boundary,
        }
        layer = len(fanouts) - 1 - hop
        found |= {f"{name}/{layer}": min(share, 1.0) for name, share in shares.items()}
        needed = 1 - (1 - needed) * degrees.generating(1 - edges)
    return found | {"nodes needed": needed}
