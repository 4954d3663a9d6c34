"""How far the model is off on clusters of a kind, as validated, and whether the order of two candidates survives it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from reports.advice._pricing import Priced
from sims.cluster import Cluster
from sims.device import load_device
from sims.study import quantities

VALIDATED = Path(__file__).with_name("validated.toml")
EXCHANGES = ("halo", "reduce")
"""Components of an epoch that the error of exchanges applies to."""


@dataclass(frozen=True)
class ModelError:
    """Errors of predictions that were compared with measurements, in per cent.

    Attributes:
        what: what was compared.
        epoch: errors are of whole epochs; else of exchanges alone.
        command: makes the comparison.
    """

    what: str
    median: float
    ninetieth: float
    epoch: bool
    command: str

    def sentence(self) -> str:
        """What the error is, for people."""
        return (
            f"the model was off by {self.median:g} % in the median and {self.ninetieth:g} % at the 90th percentile for "
            f"{self.what} ({self.command}; docs/validation.md)"
        )

    def survives(self, quicker: tuple[Priced, float], slower: tuple[Priced, float], per_cent: float) -> bool:
        """Whether one (candidate, its epochs) stays quicker than the other if the error is against it on both sides."""
        factor = 1 + per_cent / 100
        return quicker[1] * self._epoch(quicker[0], factor) < slower[1] * self._epoch(slower[0], 1 / factor)

    def _epoch(self, priced: Priced, factor: float) -> float:
        if self.epoch:
            return priced.epoch * factor
        return priced.epoch + (factor - 1) * sum(priced.seconds[name] for name in EXCHANGES)


def error_of(cluster: Cluster) -> ModelError:
    """What is known of the errors on clusters of this kind: those that were calibrated, and all others."""
    kinds = tomllib.loads(VALIDATED.read_text())
    measured = all(quantity.source == "measured" for name, quantity in cluster.quantities())
    cpus = all(load_device(name).kind == "cpu" for name in dict.fromkeys(cluster.profiles))
    calibrated = cpus and cluster.transport.kind == "gloo" and (cluster.one_machine or measured)
    return ModelError(**kinds["calibrated" if calibrated else "described"])


def assumed(cluster: Cluster) -> tuple[int, int]:
    """How many of the cluster's numbers are assumed, and how many there are."""
    sources = [quantity.source for quantity in quantities(cluster)]
    return sources.count("assumed"), len(sources)
