"""Expected counts of partitions of graphs that do not fit in memory, from the degree distribution only.

A hash partition assigns every node to one of P parts independently of edges. A node u with d edges to others is in the
halo of a part that does not own it if at least one of the d ends is there: with probability 1 - (1 - 1/P)^d. Summed
over nodes this is one value of the generating function G(z) = E[z^degree], at z = 1 - 1/P. A random vertex cut, which
assigns edges instead of nodes, needs the same value of G. Multi-edges and self loops are not modelled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.errors import InputError


@dataclass(frozen=True)
class Degrees:
    """A degree distribution through its generating function.

    Args:
        degrees, counts: a histogram; or
        mean, spread: a negative binomial distribution of this mean and coefficient of variation. Its limits are Poisson
            (spread = mean ** -0.5) and geometric (spread just above 1); spread = 0 is a regular graph, whose boundary
            is the largest of all distributions with the same mean.
    """

    degrees: Sequence[int] = ()
    counts: Sequence[int] = ()
    mean: float = 0.0
    spread: float = 0.0

    @classmethod
    def of(cls, degree: np.ndarray) -> Degrees:
        """The histogram of the degrees of all nodes, int [N]."""
        values, counts = np.unique(degree, return_counts=True)
        return cls(values.tolist(), counts.tolist())

    def average(self) -> float:
        """Edges per node."""
        if not self.degrees:
            return self.mean
        return float(np.dot(self.degrees, self.counts) / max(sum(self.counts), 1))

    def generating(self, z: float) -> float:
        """E[z^degree] for 0 <= z <= 1.

        Raises:
            InputError: a spread below that of the Poisson distribution that is not 0.
        """
        if self.degrees:
            powers = np.power(z, np.asarray(self.degrees, float))
            return float(np.dot(powers, self.counts) / max(sum(self.counts), 1))
        if self.spread == 0.0 or self.mean == 0.0:
            return float(z**self.mean)
        excess = self.spread**2 - 1 / self.mean
        if excess < -1e-9:
            least = f"{self.mean**-0.5:.3g}"
            raise InputError(f"degrees of mean {self.mean:g} have a spread of {least} or more, or 0 (all equal)")
        if excess < 1e-9:
            return math.exp(-self.mean * (1 - z))
        shape = 1 / excess
        return float((1 + self.mean * (1 - z) / shape) ** -shape)


def round_robin_counts(total: int, num_parts: int) -> np.ndarray:
    """Sizes of parts when `total` items are assigned round-robin (id modulo P), int64 [P]."""
    parts = np.arange(num_parts)
    dealt: np.ndarray = total // num_parts + (parts < total % num_parts)
    return dealt.astype(np.int64)


def hash_boundary(num_nodes: int, degrees: Degrees, num_parts: int) -> float:
    """Expected halo nodes of one part of a hash partition: N (1 - 1/P) (1 - G(1 - 1/P)).

    `degrees`: out-degrees, because a node is in the halo of the parts that its edges lead to.
    """
    outside = 1 - 1 / num_parts
    return num_nodes * outside * (1 - degrees.generating(outside))


def random_replication(degrees: Degrees, num_parts: int) -> float:
    """Expected replication factor of a random vertex cut: P (1 - G(1 - 1/P)), and 1 for nodes without edges.

    `degrees`: undirected degrees (PowerGraph, Eq. 5, gives the same sum).
    """
    return num_parts * (1 - degrees.generating(1 - 1 / num_parts)) + degrees.generating(0.0)
