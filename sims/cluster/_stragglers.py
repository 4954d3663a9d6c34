"""Ranks and hosts with slow compute, and jitter of the compute of all ranks.

Factors multiply compute only; the effect of a slow rank on the others follows from the simulation. Jitter is drawn from
a separate stream per rank, so that equal seeds give equal times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from harness.errors import InputError
from sims.records import Content, factor, key
from sims.units import Table


def _factors(inside: Table, key: str) -> dict[int, float]:
    """A table of `NUMBER = FACTOR`."""
    found = inside.table(key)
    for number in found.values:
        if not number.isdigit():
            raise InputError(f"{found.where}: the key must be the number of a rank or host, not {number!r}")
    return {int(number): found.quantity(number, "number").value for number in found.values}


FACTORS = Content("table: NUMBER = number", _factors, each=factor())
SPREAD = Content("number from 0", lambda table, key: table.quantity(key, "number", zero=True).value)


@dataclass(frozen=True)
class Stragglers:
    """Factors on compute seconds. The fields are the keys of `[stragglers]` in a cluster file."""

    ranks: Mapping[int, float] = key("number of a rank -> factor on its compute seconds", FACTORS, default={})
    hosts: Mapping[int, float] = key(
        "number of a host -> factor; a rank on a slow host has both its own and the host's", FACTORS, default={}
    )
    jitter: float = key(
        "standard deviation of the logarithm of a factor with mean 1, drawn for every stretch of compute between two "
        "effects; 0 draws none",
        SPREAD,
        default=0.0,
    )

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
