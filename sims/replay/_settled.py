"""Which epochs of a recording count: those after all that only the beginning of a run has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from harness.config import RunConfig
from harness.methods.registry import parse_method
from harness.static_epochs import BEFORE_RECORDING


@dataclass(frozen=True)
class SettledEpochs:
    """The epochs that stand for all later ones.

    Attributes:
        first: the first of them. Before it rows may be those of no epoch, caches fill, bits be those of the start, and
            operators be launched one by one that CUDA graphs launch later.
        cycle: how many of them make up a whole period.
    """

    first: int
    cycle: int

    @property
    def recorded(self) -> int:
        """Epochs of a recording that holds one period of them."""
        return self.first + self.cycle

    def of(self, num_epochs: int) -> range:
        """Those among so many epochs, in whole periods; where there are too few, all after the first epoch."""
        periods = (num_epochs - self.first) // self.cycle
        if periods > 0:
            return range(self.first, self.first + periods * self.cycle)
        return range(min(1, num_epochs - 1), num_epochs)


def settled_epochs(config: RunConfig) -> SettledEpochs:
    """Those of a config's method. Raises InputError for a bad method."""
    return _settled(config.training.method, config.training.layer0, config.run.cuda_graphs)


@cache
def _settled(text: str, layer0: str, cuda_graphs: bool) -> SettledEpochs:
    method = parse_method(text, layer0=layer0)
    facts = method.promises()
    graphs = BEFORE_RECORDING + 1 if cuda_graphs else 0
    return SettledEpochs(max(1, facts.staleness + 1, facts.settles, graphs), method.cycle())
