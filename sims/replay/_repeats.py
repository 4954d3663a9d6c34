"""Epochs that repeat: with shapes only, a synchronous method does in every epoch what it did in the one before.

What a rank is charged and asks for in one epoch is noted, and told again in later ones instead of computed anew, on the
same clocks, transport and network. Methods say of themselves that their epochs repeat (`Method.repeats`), and are
checked: a rank tells again only what began with the same memory, and the first rank computes one epoch more than the
others and compares.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field, replace
from types import coroutine
from typing import Any, NamedTuple, cast

import torch
from msgspec import structs
from torch import Tensor
from torch.utils._mode_utils import no_dispatch

from harness.effects import AllReduce, AllToAll, Broadcast, Effect, Handle, HostCopy, Recv, Send, Start, Wait
from harness.errors import ProgramError
from harness.methods.base import Method
from harness.rank import Rank
from sims.engine import Ledger, SimClock
from sims.replay._recording import exchange_of


class Charge(NamedTuple):
    """One operator as the ledger charged it: component of time, class, seconds, and its name if it is not known."""

    component: str
    kind: str
    seconds: float
    unknown: str


@dataclass(frozen=True)
class Step:
    """What a rank is charged up to its next effect, and that effect; None at the end of the epoch.

    Attributes:
        stretch: component -> seconds and operators, summed up as a clock does.
        handle: of a `Wait`, the number of the started effect, counted from the beginning of the epoch.
    """

    charges: tuple[Charge, ...]
    stretch: dict[str, tuple[float, int]]
    effect: Effect | None
    handle: int = -1

    def again(self, epoch: int, handles: list[Handle]) -> Effect:
        """The effect as one of another epoch."""
        effect = self.effect
        assert effect is not None
        if isinstance(effect, Wait):
            return Wait(tag=handles[self.handle].effect.tag, handle=handles[self.handle])
        tag = effect.tag._replace(epoch=epoch)
        if isinstance(effect, Start):
            return Start(tag=tag, effect=replace(effect.effect, tag=tag))
        return replace(effect, tag=tag)

    def signature(self, counts: dict[bytes, int]) -> object:
        """What makes two steps the same; `counts` numbers the arrays of both."""
        effect = self.effect
        if effect is None or isinstance(effect, Wait):
            return (self.charges, effect is None, self.handle)
        exchange = exchange_of(effect.effect if isinstance(effect, Start) else effect, counts)
        return (self.charges, isinstance(effect, Start), structs.replace(exchange, tag=exchange.tag._replace(epoch=0)))


@dataclass
class Script:
    """One epoch of one rank."""

    steps: list[Step] = field(default_factory=list)
    observed: dict[str, list[float]] = field(default_factory=dict)
    loss: Tensor | None = None
    _open: list[Charge] = field(default_factory=list)
    _started: list[weakref.ref[Effect]] = field(default_factory=list)  # their tensors live no longer for this

    def charged(self, component: str, kind: str, seconds: float, unknown: str) -> None:
        """An operator was charged."""
        self._open.append(Charge(component, kind, seconds, unknown))

    def close(self, effect: Effect | None) -> None:
        """The stretch of compute is over: the rank asks for an effect, or is through."""
        charges, stretch, handle = tuple(self._open), dict[str, tuple[float, int]](), -1
        for component, _, seconds, _ in charges:
            so_far, operators = stretch.get(component, (0.0, 0))
            stretch[component] = (so_far + seconds, operators + 1)
        if isinstance(effect, Start):
            self._started.append(weakref.ref(effect.effect))
        if isinstance(effect, Wait):
            started = [known() for known in self._started]
            if effect.handle.effect not in started:
                raise ProgramError(f"{effect} was started in another epoch: such epochs do not repeat")
            handle = started.index(effect.handle.effect)
        self.steps.append(Step(charges, stretch, None if effect is None else _stand_in(effect), handle))
        self._open = []

    def noted(self, course: Coroutine[Any, Any, Tensor]) -> Generator[Effect, Any, Tensor]:
        """Run an epoch and note it."""
        answer = None
        while True:
            try:
                effect = course.send(answer)
            except StopIteration as stop:
                self.close(None)
                return cast(Tensor, stop.value)
            self.close(effect)
            answer = yield effect

    def same(self, other: Script) -> bool:
        """Whether another epoch was the same."""
        counts: dict[bytes, int] = {}
        mine, theirs = ([step.signature(counts) for step in script.steps] for script in (self, other))
        return mine == theirs and self.observed == other.observed


class Repeater:
    """One rank's epochs, from the second on.

    Args:
        checks: whether to compute one epoch more and compare.
    """

    def __init__(self, ledger: Ledger, clock: SimClock, checks: bool) -> None:
        self.ledger, self.clock, self.memory = ledger, clock, ledger.memory
        self._checks, self._tells = checks, False
        self._script: Script | None = None
        self._start: dict[str, int] = {}

    async def epoch(self, rank: Rank, compute: Callable[[], Coroutine[Any, Any, Tensor]]) -> Tensor:
        """An epoch: computed, or told again once one begins as the one before did."""
        if rank.epoch == 0:
            return await compute()
        start, before = self.memory.contents(), self._script
        if before is None or not (self._tells or start == self._start) or self._checks:
            self._script, begins_alike = await self._computed(rank, compute), start == self._start
            if before is not None and begins_alike:
                self._checks = False
                if not self._script.same(before):
                    raise ProgramError(
                        f"rank {rank.index}: epoch {rank.epoch} does not repeat the one before, as its method promises"
                    )
            self._start = start
            return cast(Tensor, self._script.loss)
        self._tells = self.memory.known = True  # what was freed since, nobody will ask for
        for name, sums in before.observed.items():
            rank.observe(name, sums[0], sums[1])
        return await self._told(before, rank.epoch)

    async def _computed(self, rank: Rank, compute: Callable[[], Coroutine[Any, Any, Tensor]]) -> Script:
        """Compute an epoch and note it; its loss is the script's."""
        script = self.ledger.script = Script()
        try:
            loss = await coroutine(script.noted)(compute())
        finally:
            self.ledger.script = None
        script.loss = _like(loss)
        script.observed = rank.take_observed()
        for name, sums in script.observed.items():
            rank.observe(name, sums[0], sums[1])
        return script

    @coroutine
    def _told(self, script: Script, epoch: int) -> Generator[Effect, Any, Tensor]:
        """Charge and ask for what the script says."""
        clock, seconds, prices = self.clock, self.ledger.seconds, self.ledger.prices
        handles: list[Handle] = []
        for step in script.steps:
            for _, kind, cost, unknown in step.charges:
                seconds[kind] += cost
                if unknown:
                    prices.unknown[unknown] += 1
            for clock.kind, (cost, operators) in step.stretch.items():
                clock.charge(cost, operators)
            clock.kind = "compute"
            if step.effect is not None:
                answer = yield step.again(epoch, handles)
                if isinstance(answer, Handle):
                    handles.append(answer)
        return cast(Tensor, script.loss)


class Repeats:
    """The ranks of one run of a method whose epochs repeat.

    Attributes:
        method: to be run in its place.
    """

    def __init__(self, method: Method) -> None:
        self.method = cast(Method, _Repeated(method, self))
        self.ranks: list[Repeater] = []

    def add(self, ledger: Ledger, clock: SimClock) -> None:
        """The next rank."""
        self.ranks.append(Repeater(ledger, clock, checks=not self.ranks))


class _Repeated:
    """A method in all but its epochs."""

    def __init__(self, method: Method, repeats: Repeats) -> None:
        self._method, self._repeats = method, repeats

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    async def epoch(self, rank: Rank, *given: Any) -> Tensor:
        """See `Method.epoch`."""
        return await self._repeats.ranks[rank.index].epoch(rank, lambda: self._method.epoch(rank, *given))


def _like(tensor: Tensor) -> Tensor:
    """A tensor of the same shape and type that is nobody's memory."""
    with no_dispatch():
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


def _stand_in(effect: Effect) -> Effect:
    """The effect with tensors that are nobody's memory."""
    if isinstance(effect, Start):
        return replace(effect, effect=_stand_in(effect.effect))
    if isinstance(effect, Wait):
        return replace(effect, handle=Handle(_stand_in(effect.handle.effect)))
    if isinstance(effect, AllToAll):
        return replace(effect, parts=tuple(replace(part, tensor=_like(part.tensor)) for part in effect.parts))
    if isinstance(effect, Recv):
        return replace(effect, like=_like(effect.like))
    assert isinstance(effect, AllReduce | Broadcast | HostCopy | Send)
    return replace(effect, tensor=_like(effect.tensor))
