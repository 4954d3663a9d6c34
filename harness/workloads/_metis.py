"""Edges of METIS partitions of which only the boundary nodes are known: laws measured by `benchmarks.boundary_edges`.

METIS balances own nodes alone, here with the objective that BNS-GCN uses (communication volume). In P parts whose part i
has b_i boundary nodes per own node

    cut edges of part i = E_i (1 - 1/P) (1 - exp(-CUT_RATE b_i / (1 - 1/P))),   E_i in proportion to b_i ^ EDGE_POWER,

so that the cut share rises by CUT_RATE per boundary node of an own node and ends at 1 - 1/P, the share of a random cut.
Neither the mean degree nor P improve the fit: of a graph of higher degree METIS leaves more boundary nodes, and they
say it already. A boundary node has one cut edge at least, and a part no more cut edges than edges.

Measured on 12 real graphs and 6 synthetic stand-ins in 2 to 16 parts: mean degree 4 to 490, 0.01 to 15 boundary nodes
per own node. The residual is that of one partition's total of cut edges, a factor of one standard deviation.
"""

from __future__ import annotations

import numpy as np

CUT_RATE = 0.275
EDGE_POWER = 0.82
RESIDUAL = 0.38  # standard deviation of log(cut edges by the law / counted)
HALO_SPREAD = (0.6, 2.3)  # coefficient of variation of the parts' boundary nodes: c (1 - 1/P) ** m

METIS_LAW = (
    f"cut edges of METIS parts: a measured law, E_i (1 - 1/P) (1 - exp(-{CUT_RATE:g} b / (1 - 1/P))) for b boundary nodes "
    f"per own node, E_i in proportion to b ^ {EDGE_POWER:g} (python -m benchmarks.boundary_edges; real graphs and "
    f"stand-ins in 2 to 16 parts, a factor of {np.exp(RESIDUAL):.2f} is one standard deviation)"
)
RANDOM_LAW = "cut edges of random parts: the closed form, 1 - 1/P of all edges"


def metis_edges(inner: np.ndarray, boundary: np.ndarray, num_edges: int) -> tuple[np.ndarray, np.ndarray]:
    """int64 [P] edges into the nodes of every part of METIS, and int64 [P] those of them that are cut.

    Args:
        inner, boundary: [P], own and boundary nodes of every part.
        num_edges: directed edges of the graph.
    """
    per_node = boundary / np.maximum(inner, 1)
    weights = inner * np.maximum(per_node, 1e-9) ** EDGE_POWER if boundary.any() else inner.astype(float)
    edges = np.round(num_edges * weights / max(weights.sum(), 1e-300)).astype(np.int64)
    cut = np.round(edges * cut_share(per_node, len(inner))).astype(np.int64)
    return edges, np.clip(cut, np.minimum(boundary, edges), edges)


def cut_share(per_node: np.ndarray, num_parts: int, rate: float = CUT_RATE) -> np.ndarray:
    """Share of a part's edges that METIS cuts, [P], for `per_node` [P] boundary nodes per own node."""
    random = 1 - 1 / num_parts
    if not random:
        return np.zeros_like(per_node)
    share: np.ndarray = random * -np.expm1(-rate * per_node / random)
    return share


def halo_spread(num_parts: int) -> float:
    """Coefficient of variation of the boundary nodes of METIS' parts: the median of the graphs measured."""
    scale, power = HALO_SPREAD
    return float(scale * (1 - 1 / num_parts) ** power)
