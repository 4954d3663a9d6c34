"""One run as every rank gets it: config, method, parts, and who looks on. Values only; `_training` runs it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from harness.config import RunConfig
from harness.errors import InputError
from harness.graphs import Totals
from harness.methods.bases.base import Method
from harness.nn import GNN
from harness.rank import Rank
from harness.running._rates import Rates
from harness.running.results import RankEpoch, RankResult

Progress = Callable[[RankEpoch], None]


class PartSource(Protocol):
    """Where a rank gets its part of the graph."""

    @property
    def totals(self) -> Totals:
        """Counts of the graph trained on."""
        ...

    def training(self, rank: int) -> Any:
        """The part trained on."""
        ...

    def evaluation(self, rank: int) -> Any:
        """The part evaluated on; the training part itself where the protocol is transductive."""
        ...


class Spare(Protocol):
    """A process that evaluates beside the ranks; a driver that has one gives it to rank 0."""

    def submit(self, epoch: int, parameters: Mapping[str, Tensor]) -> None:
        """Ask for the counts of an epoch; copies the parameters and returns."""
        ...

    def counts(self, epoch: int, patience_s: float) -> list[list[float]] | None:
        """Wait a while for them; None when they have not come by then. Raises HaloscopeError if the process ended."""
        ...


class Epochs(Protocol):
    """Who may stand in for the epochs of a method.

    Without numbers, of one that repeats itself (`Facts.repeats`); with numbers, of one that is `Facts.static`.
    """

    async def epoch(self, rank: Rank, compute: Callable[[], Coroutine[Any, Any, Tensor]]) -> Tensor:
        """The loss of one epoch, which `compute` runs."""
        ...


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Checkpoints:
    """Where and how often; no part of the config, because it changes nothing about the numbers.

    Attributes:
        folder: holds one folder per run.
        every: epochs between checkpoints; 0 = only when stopped, and at the end.
        resume: go on from the newest complete checkpoint of the same training; else remove those and start anew.
        keep: how many complete ones stay.
        restarts: how often failed ranks are started again (real mode).
        stop: asked after every epoch on every rank; one rank's yes stops all of them.
    """

    folder: Path
    every: int = 10
    resume: bool = True
    keep: int = 2
    restarts: int = 0
    stop: Callable[[], bool] = _never

    def __post_init__(self) -> None:
        for name, least in (("every", 0), ("keep", 1), ("restarts", 0)):
            if getattr(self, name) < least:
                raise InputError(f"checkpoints: {name} must be at least {least}")
            if getattr(self, name) >= 2**63:
                raise InputError(f"checkpoints: {name} must have fewer than 19 digits")


@dataclass(frozen=True)
class Job:
    """One run as every rank gets it."""

    config: RunConfig
    method: Method
    parts: PartSource
    model: GNN  # with its initial values; ranks of shapes only copy it, others build their own
    progress: Progress | None = None  # called on rank 0 after every epoch
    keep: Callable[[int, RankEpoch], None] | None = None  # called on every rank, with its index, for all its epochs
    rates: Rates | None = None  # what a recorded run observed, for runs that follow shapes only
    epochs: Epochs | None = None  # runs the method's epochs; None is the method itself
    spare: Spare | None = None  # rank 0's process that evaluates, where the config asks for one
    checkpoints: Checkpoints | None = None  # where to keep them, if they are kept
    data: str = ""  # key of graph and partition, by which a checkpoint knows its own


@dataclass(frozen=True)
class Execution:
    """What a driver returns: the ranks' records, and between which ranks bytes cross which tier."""

    ranks: list[RankResult]
    tiers: list[str]
    tier_of: np.ndarray  # int [from, to], index into tiers
    facts: dict[str, Any] = field(default_factory=dict)
    out_of_memory: str = ""  # which ranks would not have fitted their device, and by how much
