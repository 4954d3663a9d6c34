"""Runs epochs of a method on all ranks in process and records the data that checks need."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from harness import loopback
from harness.conformance._segments import OperatorSegments
from harness.effects import AllToAll, Effect
from harness.errors import HaloscopeError
from harness.exchanges import Memory
from harness.methods.bases.base import Method
from harness.nn import GNN
from harness.rank import Rank
from harness.static_epochs import StaticEpochs
from harness.tape import Tape
from harness.traffic import Traffic
from harness.trampoline import blame


class NotKept(HaloscopeError):
    """A method lacks a declared property; the message names the property and the case."""


@dataclass
class EpochSeen:
    """One rank's epoch.

    Attributes:
        loss: of all ranks.
        parameters: after the epoch; with `frozen`, the gradients that the method would have stepped by.
        traffic: bytes this rank sent.
        steps: effects in order, and with shapes only the operators between them.
    """

    loss: float
    parameters: list[Tensor]
    traffic: Traffic
    observed: Mapping[str, Sequence[float]]
    steps: list[object] = field(default_factory=list)


@dataclass
class RankSeen:
    """The epochs of one rank, and the state it leaves for a later run."""

    part: Any
    state: Any
    epochs: list[EpochSeen]
    left: tuple[Memory, dict[str, Any], dict[str, Any]]


class Reveal(torch.optim.Optimizer):
    """Writes gradients into the parameters, where checks can read them whichever rank computes the step."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        super().__init__([{"params": list(parameters)}], {})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Replace parameters by their gradients, or by zero if there is none."""
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)


class AnyRate(dict[str, float]):
    """Recorded rates for shapes-only runs: 0.4 for every name."""

    def __contains__(self, name: object) -> bool:
        return True

    def __getitem__(self, name: str) -> float:
        return 0.4


@dataclass(frozen=True)
class EpochSettings:
    """How epochs are run.

    Attributes:
        first, last: epochs first .. last - 1.
        frozen: weights are restored after every epoch, and `EpochSeen.parameters` are gradients.
        shapes_only: run on meta tensors and record every operator.
        order: the order in which ranks begin.
        saved: the state that an earlier run left on each rank, from which this one continues.
        replayed: record an epoch and replay it in the others, as `StaticEpochs` does.
    """

    last: int
    first: int = 0
    frozen: bool = False
    shapes_only: bool = False
    order: Sequence[int] | None = None
    saved: Sequence[tuple[Memory, dict[str, Any], dict[str, Any]]] | None = None
    lr: float = 0.05
    seed: int = 0
    replayed: bool = False


def run_epochs(method: Method, model: GNN, parts: Sequence[Any], settings: EpochSettings) -> list[RankSeen]:
    """Run the epochs on all ranks.

    Raises:
        NotKept: a rank raised an exception, or the ranks deadlock.
    """
    device = "meta" if settings.shapes_only else "cpu"

    def make_rank(index: int) -> Rank:
        rank = Rank(index, len(parts), seed=settings.seed, device=device)
        rank.rates = AnyRate()
        return rank

    def program(rank: Rank) -> Any:
        steps: list[object] = []
        return _noted(_epochs(rank, method, model, parts[rank.index], settings, steps), steps, settings.shapes_only)

    found: list[RankSeen] = guarded(
        lambda: loopback.run_ranks(program, len(parts), make_rank=make_rank, order=settings.order)
    )
    return found


def guarded(run: Callable[[], Any]) -> Any:
    """Call `run`; raises NotKept, with cause and place, for any exception."""
    try:
        return run()
    except NotKept:
        raise
    except Exception as error:
        raise NotKept(blame(error)) from error


async def _epochs(
    rank: Rank, method: Method, shared: GNN, part: Any, settings: EpochSettings, steps: list[object]
) -> RankSeen:
    model = copy.deepcopy(shared)
    if settings.shapes_only:
        model, part = model.to("meta"), part.shapes_only()
    saved = None if settings.saved is None else settings.saved[rank.index]
    rank.epoch = -1
    if saved is not None:
        model.load_state_dict(saved[1])
    state = await method.setup(rank, part, model)
    memory = method.remember(rank, part, model, state)
    optimizer = method.optimizer(rank, model, settings.lr, 0.0)
    if saved is not None:
        memory = plain(saved[0])
        optimizer.load_state_dict(saved[2])
    if settings.frozen:
        optimizer = Reveal([p for group in optimizer.param_groups for p in group["params"]])
    weights, seen = copy.deepcopy(model.state_dict()), []
    rank.traffic.take()
    rank.take_observed()
    steps.clear()
    epochs = StaticEpochs(OperatorSegments()) if settings.replayed else None
    for rank.epoch in range(settings.first, settings.last):
        model.train()
        compute = partial(method.epoch, rank, part, model, state, memory, optimizer)
        loss = await (compute() if epochs is None else epochs.epoch(rank, compute))
        after = [p.detach().clone() for p in model.parameters()]
        value = 0.0 if loss.is_meta else float(loss)
        seen.append(EpochSeen(value, after, rank.traffic.take(), rank.take_observed(), list(steps)))
        steps.clear()
        if settings.frozen:
            model.load_state_dict(weights)
    await method.settle(rank, memory)
    left = (memory, copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict()))
    return RankSeen(part, state, seen, left)


def plain(memory: Memory) -> Memory:
    """A deep copy of a method's memory. Raises NotKept unless it is a tree of tensors with text keys."""
    copied: Memory = {}
    for name, value in memory.items():
        if not isinstance(name, str) or "/" in name:
            raise NotKept(f"the memory has a key {name!r}; keys are text without '/'")
        if not isinstance(value, Tensor | dict):
            raise NotKept(
                f"the memory holds a {type(value).__name__} under {name!r}; it may hold tensors and trees only"
            )
        copied[name] = plain(value) if isinstance(value, dict) else value.detach().clone()
    return copied


class _Operators(TorchDispatchMode):
    """Records every operator with the shapes of its tensors."""

    def __init__(self, steps: list[object]) -> None:
        super().__init__()
        self.steps = steps

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.steps.append((str(func), tuple(tuple(a.shape) for a in args if isinstance(a, Tensor))))
        return func(*args, **(kwargs or {}))


async def _noted(program: Any, steps: list[object], shapes_only: bool) -> Any:
    """The program, with its effects (and operators) recorded."""
    return await _Noted(program, steps, shapes_only)


class _Noted:
    def __init__(self, program: Any, steps: list[object], shapes_only: bool) -> None:
        self.program, self.steps, self.shapes_only = program, steps, shapes_only

    def __await__(self) -> Generator[Any, Any, Any]:
        results = None
        try:
            while True:
                try:
                    effect = self._send(results)
                except StopIteration as stop:
                    return stop.value
                self.steps.append(described(effect, sizes=self.shapes_only))
                results = yield effect
        finally:
            self.program.close()

    def _send(self, results: list[Any] | None) -> Effect:
        if not self.shapes_only:
            found: Effect = self.program.send(results)
            return found
        with _Operators(self.steps):
            found = self.program.send(results)
        return found


def described(effect: Effect, *, sizes: bool) -> tuple[object, ...]:
    """An effect's kind, name and the types of its tensors; with `sizes`, also the sizes by rank."""
    inner = effect.wire
    said: list[object] = [effect.kind, inner.kind, inner.tag.label, inner.tag.direction, inner.tag.layer]
    if isinstance(inner, AllToAll):
        said.append(tuple((str(p.tensor.dtype), p.recv is None) for p in inner.parts))
    if sizes:
        said.append(tuple(tuple(t.shape) for t in inner.tensors()))
        if isinstance(inner, AllToAll):
            said.append(tuple(tuple(p.send.tolist()) for p in inner.parts))
    return tuple(said)


def first_logits(method: Method, model: GNN, parts: Sequence[Any]) -> list[Tensor]:
    """Logits of the first epoch's forward pass, rank by rank."""

    async def program(rank: Rank) -> Tensor:
        mine, part = copy.deepcopy(model).train(), parts[rank.index]
        rank.epoch = -1
        state = await method.setup(rank, part, mine)
        memory, rank.epoch = method.remember(rank, part, mine, state), 0
        out = await method.forward(rank, method.trained(part, state), mine, state, memory, Tape(rank))
        await method.settle(rank, memory)
        return out.detach()

    found: list[Tensor] = guarded(
        lambda: loopback.run_ranks(program, len(parts), make_rank=lambda i: Rank(i, len(parts)))
    )
    return found


def grow(model: GNN, factor: float) -> None:
    """Multiply weights and bias of the first layer."""
    with torch.no_grad():
        for parameter in model.layers[0].parameters():
            parameter.mul_(factor)


@dataclass
class Passed:
    """Logits [T, N, C] and gradients of the dense layer's weights [T, d, N] of T passes through `one_exchange`."""

    logits: Tensor
    gradients: Tensor


def passes(
    method: Method,
    model: GNN,
    parts: Sequence[Any],
    upstream: Tensor,
    epochs: int,
    seed: int = 0,
    drift: float = 0.0,
) -> Passed:
    """Forward and backward passes of one exchange without training, with the loss sum(upstream * logits).

    Weights and bias of the first layer, and with them what is sent, grow by the factor 1 + `drift` from epoch to epoch.
    """

    async def program(rank: Rank) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        mine, part = copy.deepcopy(model), parts[rank.index]
        rank.epoch = -1
        state = await method.setup(rank, part, mine)
        memory, weight = method.remember(rank, part, mine, state), next(mine.parameters())
        logits, gradients = [], []
        for rank.epoch in range(epochs):
            if rank.epoch:
                grow(mine, 1.0 + drift)
            mine.zero_grad(set_to_none=True)
            mine.train()
            tape, trained = Tape(rank, mine.parameters()), method.trained(part, state)
            out = await method.forward(rank, trained, mine, state, memory, tape)
            held = getattr(trained, "num_masters", len(out))
            await tape.backward((out[:held] * upstream[trained.nodes[:held]]).sum())
            logits.append(out.detach()[:held])
            gradients.append(torch.zeros_like(weight) if weight.grad is None else weight.grad.clone())
        await method.settle(rank, memory)
        return trained.nodes[:held], logits, gradients

    results = guarded(
        lambda: loopback.run_ranks(program, len(parts), make_rank=lambda i: Rank(i, len(parts), seed=seed))
    )
    logits = torch.zeros(epochs, *upstream.shape, dtype=upstream.dtype)
    for nodes, found, _ in results:
        logits[:, nodes] = torch.stack(found).to(upstream.dtype)
    gradients = torch.stack([torch.stack(found) for _, _, found in results]).sum(0)
    return Passed(logits, gradients / method.replicas())
