"""The base of all methods: declared facts, hyperparameters as dataclass fields, and how one epoch is trained.

A method object keeps no state between calls. The result of `setup` can be computed again and is not saved; state that
one epoch leaves for the next (error feedback, caches, stale halos) is in the `Memory`, a tree of tensors that a
checkpoint saves with the model and the optimizer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from harness.errors import InputError, ProgramError
from harness.exchanges import Memory
from harness.graphs import Part, RankGrid, Totals
from harness.nn import GNN, Dense, GCNConv, SAGEConv, adam, training_loss
from harness.rank import Rank
from harness.registry import Optioned
from harness.tape import Tape


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Declared properties of a method. Each selects checks of `harness.conformance`; one that selects none fails.

    They hold for default options; `Method.promises` returns those for other options.

    Attributes:
        cut: "edge" (nodes have one owner), "overlap" (parts hold copies of foreign nodes), "vertex" (edges have one
            owner), or "none" (the whole graph).
        exact: gradients equal those of one process on the whole graph.
        exact_when: options that make it exact, and their values.
        vanishes_with: options with which gradients are exact on a connected graph without empty parts, for methods
            whose error comes from nodes that a part lacks.
        severed_with: options with which gradients are exact on the graph without the edges between ranks, for methods
            that train every rank on its own part alone.
        staleness: age of received rows, in epochs.
        settles: the first epoch (counted from 0) from which traffic on typical data no longer depends on the start;
            recordings are timed from there on.
        lossy: received rows differ from the sender's rows, or some are missing.
        unbiased: the mean aggregation of a lossy method and the gradients that it returns equal the exact ones in
            expectation.
        bounded: the error of every received value is at most `Method.error_bound`.
        isolated: no rank's logits depend on the features of nodes that other ranks own, within an epoch.
        compensated: with frozen weights, gradients averaged over n epochs approach those of `Method.lossless` as 1/n.
        repeats: with shapes only, every epoch after the first is equal: computation and traffic depend neither on data,
            nor on random draws, nor on the number of the epoch.
        static: in runs with numbers, too, epochs after the second are the same operations on tensors of the same shapes
            and in the same memory, but for keys of `Rank.key` that operators are given: the method keeps nothing from
            epoch to epoch and draws nothing on the host, so that epochs can be recorded and replayed.
        adaptive: which messages are sent depends on the data, so epochs have no cycle.
        timed: traffic depends on when messages arrive, so a recorded run cannot be timed on another cluster.
        paper: the source.
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
    static: bool = False
    adaptive: bool = False
    timed: bool = False
    exact_when: Mapping[str, object] = field(default_factory=dict)
    vanishes_with: Mapping[str, object] = field(default_factory=dict)
    severed_with: Mapping[str, object] = field(default_factory=dict)
    paper: str = ""


def options_text(options: Mapping[str, object]) -> str:
    """Options in the syntax of a method's text, `cache=false:quantise=false`."""
    values = {name: str(value).lower() if isinstance(value, bool) else value for name, value in options.items()}
    return ":".join(f"{name}={value}" for name, value in values.items())


@dataclass(frozen=True, eq=False)
class Seen:
    """One rank in one epoch: the arguments of a byte formula.

    Attributes:
        part, state: the part that the rank trains on, and the result of `Method.setup`.
        observed: name (with "/layer" if it belongs to one) -> [part, whole] that the rank observed in the epoch.
    """

    part: Any
    state: Any
    observed: Mapping[str, Sequence[float]]


WireBytes = dict[str, dict[int, int]]
"""Direction -> layer (-1 for none) -> bytes."""


def all_reduce_bytes(model: GNN, num_ranks: int) -> int:
    """Bytes over all ranks of the all-reduce of gradients and loss in fp32: 8 (P - 1) (parameters + 1)."""
    return 8 * (num_ranks - 1) * (sum(p.numel() for p in model.parameters()) + 1)


@dataclass(frozen=True, kw_only=True)
class Method(Optioned, ABC):
    """Base of all methods. Fields of a subclass are its options on the command line and in config files."""

    facts: ClassVar[Facts]
    bf16: ClassVar[bool] = False
    """Whether it can train models that compute in bfloat16."""
    default_partitioner: ClassVar[str] = "auto"
    """What partitioner auto means for this method; auto is the default of its kind of cut."""

    def promises(self) -> Facts:
        """The facts that hold with these options; by default they change with `exact_when` only."""
        facts = self.facts
        if not facts.exact_when:
            return facts
        if all(getattr(self, name) == value for name, value in facts.exact_when.items()):
            return replace(facts, exact=True, lossy=False, unbiased=False, bounded=False, compensated=False)
        return replace(facts, exact=False)

    def typical(self, layers: int) -> Method:
        """The options under which studies of all methods run it on a model of so many layers; by default its own."""
        return self

    def lossless(self) -> Method:
        """The same method with options that send rows without loss, or with the least loss that the options allow."""
        return replace(self, **self.facts.exact_when)

    def error_bound(self, num_ranks: int) -> float:
        """Largest error of a received value with these options, as a share of the largest absolute value sent.

        For methods that are `bounded`: the total over all ranks that contribute to a value, with frozen weights and
        after `Facts.settles` epochs.
        """
        raise ProgramError(f"{self.name} declares `bounded` and states no error_bound")

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes | None:
        """Bytes of one epoch over all ranks by the docstring's formula, for fp32 rows; None if no formula is stated."""
        return None

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        """Raise InputError if the method cannot run this model on this graph in `num_parts` parts."""
        if not totals.num_features or not totals.num_classes:
            raise InputError("this graph has no features or no labels; training needs both")
        if model.precision == "bf16":
            self._check_bf16(model)

    def _check_bf16(self, model: GNN) -> None:
        if not self.bf16:
            raise InputError(f"{self.name} computes in fp32 only; use --precision fp32")
        if not all(isinstance(layer, GCNConv | SAGEConv | Dense) for layer in model.layers):
            raise InputError("only layers of gcn, gcn-no-loop and sage compute in bf16; use --precision fp32")

    def treats_input(self, model: GNN) -> str | None:
        """What is done every epoch about input features of other ranks' nodes, as `layer0` names it; None: nothing."""
        return None

    def orders(self, model: GNN) -> list[str]:
        """Which of linear map and aggregation is first in every layer that reads neighbours, once `setup` is done."""
        read = (l for l in range(model.depth) if model.exchanges(l))
        return ["linear-first" if self.maps_first(model, l) else "aggregate-first" for l in read]

    def maps_first(self, model: GNN, l: int) -> bool:
        """Whether layer l multiplies by its weights before it aggregates."""
        return model.linear_first(l)

    def cycle(self) -> int:
        """Period of the epochs' schedule, in epochs; 1 if all epochs are alike."""
        return 1

    def epoch_kind(self, epoch: int) -> int | None:
        """With shapes only, epochs of one kind that begin with the same memory perform the same actions.

        They are numbered from 0. None if nothing is known of them; they are all alike where `Facts.repeats` says so,
        but for what the first computes and leaves in memory.
        """
        return 0 if self.promises().repeats else None

    def part_settings(self) -> dict[str, Any]:
        """Options that the content of the parts depends on; part of the key under which parts are cached."""
        return {}

    def plugins(self) -> tuple[object, ...]:
        """What these options name that runs beside the method, such as a sampler: like the method's own code, its code
        is part of the key under which results are kept."""
        return ()

    def replicas(self) -> int:
        """Ranks that hold the same part; there are as many parts as ranks divided by it."""
        return 1

    def exact(self) -> Method | None:
        """The exact method for evaluation on the same kind of parts; None for vanilla on an edge cut."""
        return None

    async def setup(self, rank: Rank, part: Part, model: GNN) -> Any:
        """Prepare once before training, with exchanges if needed; the result is passed to `forward` as `state`."""
        return None

    def remember(self, rank: Rank, part: Part, model: GNN, state: Any) -> Memory:
        """The memory before the first epoch."""
        return {}

    async def settle(self, rank: Rank, memory: Memory) -> None:  # noqa: B027
        """Complete pending exchanges, so that the memory holds tensors only."""

    def optimizer(self, rank: Rank, model: GNN, lr: float, weight_decay: float) -> torch.optim.Optimizer:
        """The optimizer that `epoch` steps: by default Adam over all parameters."""
        return adam(model.parameters(), lr, weight_decay)

    def measures(self, part: Part, model: GNN, state: Any) -> dict[str, float]:
        """Numbers about this rank's set-up, by name including the unit, that the result lists by rank."""
        return {}

    def trained(self, part: Part, state: Any) -> Part:
        """The part that epochs run on: the rank's own, or the subset that its training nodes need."""
        return part

    @abstractmethod
    async def forward(self, rank: Rank, part: Part, model: GNN, state: Any, memory: Memory, tape: Tape) -> Tensor:
        """Logits of the part's own nodes, [n_own, classes]; `part` is the result of `trained`."""

    def tape(self, rank: Rank, part: Part, model: GNN, state: Any) -> Tape:
        """The tape that `epoch` records one forward pass on."""
        return Tape(rank, model.parameters())

    async def epoch(
        self, rank: Rank, part: Part, model: GNN, state: Any, memory: Memory, optimizer: torch.optim.Optimizer
    ) -> Tensor:
        """Train one epoch; returns the loss summed over all ranks' training nodes, a scalar tensor.

        Loss is the sum over local training nodes; gradients are summed over ranks and divided by the global number of
        training nodes, so nothing depends on the number of ranks.
        """
        part = self.trained(part, state)
        tape = self.tape(rank, part, model, state)
        loss = await tape.backward(training_loss(await self.forward(rank, part, model, state, memory, tape), part))
        loss = await self.reduce(rank, part, model, loss, tape)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)  # every epoch begins without gradients, as the first does
        return loss

    async def reduce(self, rank: Rank, part: Part, model: GNN, loss: Tensor, tape: Tape) -> Tensor:
        """Sum gradients and loss over ranks in one all-reduce of 4 (parameters + 1) bytes; returns the global loss.

        Args:
            tape: the one that the epoch was recorded on.
        """
        return await self.sum_gradients(rank, part, list(model.parameters()), loss)

    async def sum_gradients(self, rank: Rank, part: Part, parameters: Sequence[Tensor], loss: Tensor) -> Tensor:
        """Sum the loss and the gradients of these parameters over ranks, and set these to their sum over the number of
        training nodes.

        Where several ranks hold the same part, ranks sum over their column, which holds every part once.
        """
        flat = flat_gradients(parameters, loss)
        replicas = self.replicas()
        column = RankGrid(rank.size, replicas).column(rank.index) if replicas > 1 else None
        flat = await rank.all_reduce(flat, label="gradients", group=column)
        set_gradients(parameters, flat[:-1] / max(part.totals.num_train, 1))
        total: Tensor = flat[-1]
        return total


def flat_gradients(parameters: Sequence[Tensor], *more: Tensor) -> Tensor:
    """The gradients of at least one parameter, one after the other in one dimension; zeros where there is none.

    `more`: tensors of any shape, whose values follow.
    """
    return torch.cat([*map(_flat_gradient, parameters), *(each.reshape(-1) for each in more)])


def set_gradients(parameters: Sequence[Tensor], flat: Tensor) -> None:
    """Set gradients to the pieces of one tensor, as `flat_gradients` makes it."""
    for parameter, piece in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        parameter.grad = piece.view_as(parameter)


def _flat_gradient(parameter: Tensor) -> Tensor:
    return (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).reshape(-1)
