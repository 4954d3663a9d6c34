"""What a method is: declared facts, hyperparameters as dataclass fields, and how it trains one epoch.

A method object holds nothing between calls. What `setup` prepares can be prepared again and is not saved; what one
epoch leaves for the next (error feedback, caches, stale halos) is the `Memory`, a plain tree of tensors that a
checkpoint saves beside the model and the optimizer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from harness.errors import InputError
from harness.exchanges import Memory
from harness.graphs import Part, Totals
from harness.nn import GNN, adam, training_loss
from harness.rank import Rank
from harness.registry import Optioned
from harness.tape import Tape


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a method promises. Every promise selects checks of `harness.conformance`; one that selects none fails.

    These are the promises under default options; `Method.promises` has those of other options.

    Attributes:
        cut: edges are cut (nodes have one owner), parts overlap (copies of foreign nodes are local), vertices are cut
            (edges have one owner), or the graph is whole ("none").
        exact: gradients equal those of one process on the whole graph.
        exact_when: options that make it exact, and their values.
        vanishes_with: options with which gradients are exact on a connected graph that leaves no part empty, for
            methods whose loss comes from what a part lacks.
        staleness: epochs by which received rows may be old.
        settles: epochs after which what is sent no longer depends on the start, on data of the usual kind, one whole
            period included; what-if records as many.
        lossy: what is received differs from what was sent, or from all of it.
        unbiased: a lossy method's mean aggregation, and the gradients that it sends back, equal the exact ones in
            expectation.
        bounded: no received value is off by more than `Method.error_bound`.
        isolated: no rank's logits depend on the features of nodes that other ranks own, within an epoch.
        compensated: with frozen weights, gradients averaged over epochs approach those of `Method.lossless` as one over
            the number of epochs.
        repeats: with shapes only, every epoch after the first does the same: neither data, nor random draws, nor the
            number of the epoch decide what is computed or sent.
        timed: what is sent depends on when messages arrive, so a recorded run cannot be re-timed.
        paper: where it is described.
    """

    cut: Literal["none", "edge", "overlap", "vertex"]
    exact: bool
    staleness: int = 0
    settles: int = 0
    lossy: bool = False
    unbiased: bool = False
    bounded: bool = False
    compensated: bool = False
    isolated: bool = False
    repeats: bool = False
    timed: bool = False
    exact_when: Mapping[str, object] = field(default_factory=dict)
    vanishes_with: Mapping[str, object] = field(default_factory=dict)
    paper: str = ""


def options_text(options: Mapping[str, object]) -> str:
    """Options as a method's text has them, `cache=false:quantise=false`."""
    values = {name: str(value).lower() if isinstance(value, bool) else value for name, value in options.items()}
    return ":".join(f"{name}={value}" for name, value in values.items())


@dataclass(frozen=True, eq=False)
class Seen:
    """One rank in one epoch, as a formula of bytes may know it.

    Attributes:
        part, state: what the rank trains on, and what `Method.setup` made of it.
        observed: name (with "/layer", where it belongs to one) -> [part, whole] that the rank observed in the epoch.
    """

    part: Any
    state: Any
    observed: Mapping[str, Sequence[float]]


WireBytes = dict[str, dict[int, int]]
"""Direction -> layer (-1 where it belongs to none) -> bytes."""


def all_reduce_bytes(model: GNN, num_ranks: int) -> int:
    """Bytes over all ranks of the all-reduce of gradients and loss in fp32: 8 (P - 1) (parameters + 1)."""
    return 8 * (num_ranks - 1) * (sum(p.numel() for p in model.parameters()) + 1)


@dataclass(frozen=True, kw_only=True)
class Method(Optioned, ABC):
    """Base of all methods. Fields of a subclass are its options on the command line and in config files."""

    facts: ClassVar[Facts]

    def promises(self) -> Facts:
        """The facts that hold with these options; by default they change with `exact_when` only."""
        facts = self.facts
        if not facts.exact_when:
            return facts
        if all(getattr(self, name) == value for name, value in facts.exact_when.items()):
            return replace(facts, exact=True, lossy=False, unbiased=False, bounded=False, compensated=False)
        return replace(facts, exact=False)

    def lossless(self) -> Method:
        """The same method with options that lose nothing of what is sent, or as little as the options allow."""
        return replace(self, **self.facts.exact_when)

    def error_bound(self, num_ranks: int) -> float:
        """Largest error of a received value with these options, as a share of the largest absolute value sent.

        Asked of methods that are `bounded`. Over all ranks that one value is put together from, under frozen weights
        and after `Facts.settles` epochs.
        """
        raise NotImplementedError(f"{self.name} declares `bounded` and states no error_bound")

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes | None:
        """The docstring's formula: bytes of one epoch over all ranks, fp32 rows; None where no formula is stated."""
        return None

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        """Raise InputError where the method cannot run this model on this graph, in so many parts."""
        if not totals.num_features or not totals.num_classes:
            raise InputError("this graph has no features or no labels; training needs both")

    def cycle(self) -> int:
        """Epochs after which what an epoch does comes round again; 1 where all are alike."""
        return 1

    def part_settings(self) -> dict[str, Any]:
        """Options that decide what the parts hold; they belong to the key under which parts are cached."""
        return {}

    def exact(self) -> Method | None:
        """The method that evaluates exactly on the same kind of parts; None = vanilla on an edge cut."""
        return None

    async def setup(self, rank: Rank, part: Part, model: GNN) -> Any:
        """What is prepared once before training (and exchanged once); handed to `forward` as `state`."""
        return None

    def remember(self, rank: Rank, part: Part, model: GNN, state: Any) -> Memory:
        """The memory before the first epoch."""
        return {}

    async def settle(self, rank: Rank, memory: Memory) -> None:  # noqa: B027
        """Finish what is in flight, so that the memory holds tensors only."""

    def optimizer(self, rank: Rank, model: GNN, lr: float, weight_decay: float) -> torch.optim.Optimizer:
        """What `epoch` steps: Adam over all parameters."""
        return adam(model.parameters(), lr, weight_decay)

    def measures(self, part: Part, model: GNN, state: Any) -> dict[str, float]:
        """Numbers about this rank's set-up, by name with the unit in it, that the result lists rank by rank."""
        return {}

    def trained(self, part: Part, state: Any) -> Part:
        """The part that epochs run on: the rank's own, or what its training nodes need of it."""
        return part

    @abstractmethod
    async def forward(self, rank: Rank, part: Part, model: GNN, state: Any, memory: Memory, tape: Tape) -> Tensor:
        """Logits of the part's own nodes, [n_own, classes]; `part` as `trained` answers it."""

    async def epoch(
        self, rank: Rank, part: Part, model: GNN, state: Any, memory: Memory, optimizer: torch.optim.Optimizer
    ) -> Tensor:
        """One training epoch; answers the loss summed over all ranks' training nodes, a scalar tensor.

        Loss is the sum over local training nodes; gradients are summed over ranks and divided by the global number of
        training nodes, so nothing depends on the number of ranks.
        """
        part = self.trained(part, state)
        optimizer.zero_grad(set_to_none=True)
        tape = Tape(rank, model.parameters())
        loss = await tape.backward(training_loss(await self.forward(rank, part, model, state, memory, tape), part))
        loss = await self.reduce(rank, part, model, loss)
        optimizer.step()
        return loss

    async def reduce(self, rank: Rank, part: Part, model: GNN, loss: Tensor) -> Tensor:
        """Sum gradients and loss over ranks in one all-reduce of 4 (parameters + 1) bytes; answers the global loss."""
        parameters = list(model.parameters())
        flat = torch.cat([*[_gradient(p).reshape(-1) for p in parameters], loss.reshape(1)])
        flat = await rank.all_reduce(flat, label="gradients")
        pieces = (flat[:-1] / max(part.totals.num_train, 1)).split([p.numel() for p in parameters])
        for parameter, piece in zip(parameters, pieces, strict=True):
            parameter.grad = piece.view_as(parameter)
        total: Tensor = flat[-1]
        return total


def _gradient(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
