"""Edges of METIS partitions of which only the boundary nodes are known: laws measured by `benchmarks.boundary_edges`.

METIS balances own nodes alone, here with the objective that BNS-GCN uses (communication volume). In P parts whose part
i has b_i boundary nodes per own node,

    cut edges of part i = E_i (1 - 1/P) (1 - exp(-rate b_i / (1 - 1/P))),   edges E_i in proportion to b_i ^ power:

the cut share rises by `rate` per boundary node of an own node and ends at 1 - 1/P, the share of a random cut. Neither
the mean degree nor P improve the fit: in a graph of higher degree METIS leaves more boundary nodes, which say it
already. A boundary node has one cut edge at least, and a part no more cut edges than edges. Edges of parts spread as
much more or less than boundary nodes as `power` says, and go with them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class MetisLaw:
    """The constants, as the command fitted them.

    Fitted on 10 real graphs and 6 synthetic stand-ins in 2 to 16 parts, with mean degrees of 4 to 490 and 0.01 to 15
    boundary nodes per own node; outside of that it is extrapolated.

    Attributes:
        rate: cut share per boundary node of an own node, where there are few.
        power: spread of the logarithm of the parts' edges over that of their boundary nodes.
        spread: (c, m) of c (1 - 1/P) ** m, the median coefficient of variation of the parts' boundary nodes.
    """

    rate: float = 0.248
    power: float = 0.79
    spread: tuple[float, float] = (0.544, 2.72)


LAW = MetisLaw()
RESIDUAL = 0.43  # of LAW: root mean square of log(cut edges by the law / counted), one partition's total

METIS_LAW = (
    f"cut edges of METIS parts: a measured law, E_i (1 - 1/P) (1 - exp(-{LAW.rate:g} b / (1 - 1/P))) for b boundary "
    f"nodes per own node, edges E_i in proportion to b ^ {LAW.power:g} (python -m benchmarks.boundary_edges: real "
    f"graphs and stand-ins in 2 to 16 parts; a factor of {np.exp(RESIDUAL):.2f} is one standard deviation)"
)
RANDOM_LAW = "cut edges of random parts: the closed form, 1 - 1/P of all edges"


def metis_edges(
    inner: np.ndarray, boundary: np.ndarray, num_edges: int, law: MetisLaw = LAW
) -> tuple[np.ndarray, np.ndarray]:
    """int64 [P] edges into the nodes of every part of METIS, and int64 [P] those of them that are cut.

    Args:
        inner, boundary: [P], own and boundary nodes of every part.
        num_edges: directed edges of the graph.
    """
    per_node = boundary / np.maximum(inner, 1)
    one = 1 / np.maximum(inner, 1)  # a part without boundary nodes has edges too
    weights = inner * np.maximum(per_node, one) ** law.power
    edges = np.round(num_edges * weights / max(weights.sum(), 1e-300)).astype(np.int64)
    cut = np.round(edges * metis_cut_share(per_node, len(inner), law)).astype(np.int64)
    return edges, np.clip(cut, np.minimum(boundary, edges), edges)


def metis_cut_share(per_node: np.ndarray, num_parts: int, law: MetisLaw = LAW) -> np.ndarray:
    """Share of a part's edges that METIS cuts, [P], for `per_node` [P] boundary nodes per own node."""
    random = 1 - 1 / num_parts
    if not random:
        return np.zeros_like(per_node)
    share: np.ndarray = random * -np.expm1(-law.rate * per_node / random)
    return share


def halo_spread(num_parts: int) -> float:
    """Coefficient of variation of the boundary nodes of METIS' parts, the median of the graphs measured."""
    scale, power = LAW.spread
    return float(scale * (1 - 1 / num_parts) ** power)
