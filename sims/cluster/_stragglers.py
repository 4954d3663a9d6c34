"""Ranks and hosts with slow compute, and jitter of the compute of all ranks.

Factors multiply compute only; the effect of a slow rank on the others follows from the simulation. Jitter is drawn from
a separate stream per rank, so that equal seeds give equal times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from harness.errors import InputError
from sims.units import Quantity, Table


@dataclass(frozen=True)
class Stragglers:
    """Factors on compute seconds.

    Attributes:
        ranks, hosts: number -> factor; a rank on a slow host has both.
        jitter: standard deviation of the logarithm of a factor with mean 1, drawn for every stretch of compute between
            two effects; 0 draws none.
    """

    ranks: Mapping[int, float] = field(default_factory=dict)
    hosts: Mapping[int, float] = field(default_factory=dict)
    jitter: float = 0.0

    def check(self, ranks: int, hosts: int) -> None:
        """Raise InputError for factors of ranks or hosts that do not exist."""
        for what, factors, size in (("rank", self.ranks, ranks), ("host", self.hosts, hosts)):
            for number in factors:
                if not 0 <= number < size:
                    raise InputError(f"stragglers: there is no {what} {number}; {size} are used, from 0")

    def pace(self, rank: int, host: int, key: int) -> Callable[[], float] | None:
        """A function that returns the factor of the rank's next stretch of compute; None if it is always 1.

        `key`: key of the rank's random stream.
        """
        fixed = self.ranks.get(rank, 1.0) * self.hosts.get(host, 1.0)
        if not self.jitter:
            return None if fixed == 1.0 else lambda: fixed
        random = np.random.Generator(np.random.Philox(key))
        mean = fixed * math.exp(-(self.jitter**2) / 2)
        return lambda: mean * math.exp(self.jitter * random.standard_normal())


def read_stragglers(table: Table | None) -> Stragglers:
    """`[stragglers]` of a cluster file: `jitter = 0.05`, and tables `ranks` and `hosts` of `number = factor`.

    Raises:
        InputError: unknown key, a factor that is not a positive number, or a jitter below zero.
    """
    if table is None:
        return Stragglers()
    ranks, hosts = (_factors(table.table(key)) for key in ("ranks", "hosts"))
    jitter = table.quantity("jitter", "number", Quantity(0.0), zero=True).value
    table.close()
    return Stragglers(ranks, hosts, jitter)


def _factors(table: Table | None) -> dict[int, float]:
    if table is None:
        return {}
    for key in table.values:
        if not key.isdigit():
            raise InputError(f"{table.where}: the key must be the number of a rank or host, not {key!r}")
    return {int(key): table.quantity(key, "number").value for key in table.values}
