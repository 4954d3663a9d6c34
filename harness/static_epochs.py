"""Records one epoch of a rank program as segments of compute joined by effects, and replays it in all later epochs.

For methods whose epochs are static (`Facts.static`): then a replay computes the same numbers, and the program itself
(Python, autograd, the dispatch of every operator) does not run any more. What a segment is, whoever makes them decides:
a CUDA graph in real runs on GPUs, a list of operators in the check of the fact.

Effects are issued anew in every epoch, with the tensors of the recorded epoch; what they return is copied to where the
recorded epoch found it. Keys that operators were given are drawn anew.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from harness.effects import Effect, Handle, Received, Start, Wait
from harness.errors import ProgramError
from harness.rank import Rank

BEFORE_RECORDING = 2
"""Epochs that run as they are before one is recorded: the first may differ, and kernels are compiled in them."""


class EpochSegment(Protocol):
    """What a rank computes between two effects."""

    def recording(self) -> AbstractContextManager[None]:
        """Record what is computed inside, once."""
        ...

    def run(self) -> None:
        """Compute it, for the first time after recording or again."""
        ...


class EpochSegments(Protocol):
    """Makes the segments of one rank."""

    def warming_up(self) -> AbstractContextManager[None]:
        """Around an epoch that runs as it is."""
        ...

    def new(self) -> EpochSegment:
        """A segment to be recorded, behind those that were."""
        ...

    def renew(self, keys: Mapping[int, int]) -> None:
        """From now on segments use, instead of every key of the recorded epoch, the one that it is mapped to."""
        ...

    def ended(self) -> None:
        """The last segment of an epoch runs: raise what its operators would have raised."""
        ...


@dataclass
class _Recording:
    """A recorded epoch.

    Attributes:
        steps: a segment, the effect behind it, and what that returned in the recorded epoch.
        last: the segment behind the last effect.
        drawn: see `Rank.drawn`.
        observed: what the rank observed.
    """

    steps: list[tuple[EpochSegment, Effect, Any]]
    last: EpochSegment
    loss: Tensor
    drawn: Mapping[int, tuple[str, int, bool]]
    observed: Mapping[str, list[float]]


@dataclass
class StaticEpochs:
    """Runs the epochs of one rank; implements `harness.running.Epochs`.

    Attributes:
        segments: makes the segments.
        replayed: epochs that were replayed so far.
    """

    segments: EpochSegments
    replayed: int = 0
    _seen: int = 0
    _recorded: _Recording | None = field(default=None, repr=False)

    async def epoch(self, rank: Rank, compute: Callable[[], Coroutine[Any, Any, Tensor]]) -> Tensor:
        """The loss of one epoch: as it is, recorded, or replayed.

        Raises:
            ProgramError: the epoch that is recorded draws on the host, or continues an effect of an earlier epoch.
            Exception: whatever `compute` raises, and whatever recording does where epochs are not static.
        """
        self._seen += 1
        if self._seen <= BEFORE_RECORDING:
            with self.segments.warming_up():
                return await compute()
        if self._recorded is None:
            self._recorded = await self._record(rank, compute())
            return self._recorded.loss
        self.replayed += 1
        await self._replay(rank, self._recorded)
        return self._recorded.loss

    async def _record(self, rank: Rank, program: Coroutine[Any, Any, Tensor]) -> _Recording:
        """Run an epoch segment by segment, each of which is recorded before it is computed."""
        steps: list[tuple[EpochSegment, Effect, Any]] = []
        results: list[Any] | None = None
        rank.drawn = {}
        try:
            while True:
                segment = self.segments.new()
                with segment.recording():
                    effect, loss = _step(program, results)
                self.segments.renew({key: key for key in rank.drawn})
                segment.run()
                if effect is None:
                    self.segments.ended()
                    return _Recording(steps, segment, loss, rank.drawn, rank.observed())
                result = await effect
                steps.append((segment, effect, result))
                results = [result]
        finally:
            program.close()
            rank.drawn = None

    async def _replay(self, rank: Rank, recorded: _Recording) -> None:
        """An epoch from what was recorded of another."""
        self.segments.renew({key: rank.key(*what[:2], per_rank=what[2]) for key, what in recorded.drawn.items()})
        handles: dict[Handle, Handle] = {}
        for segment, effect, result in recorded.steps:
            segment.run()
            again = await _again(effect, rank.epoch, handles)
            if isinstance(again, Handle):
                handles[result] = again
            else:
                _put(result, again)
        recorded.last.run()
        self.segments.ended()
        for name, (part, whole) in recorded.observed.items():
            rank.observe(name, part, whole)


def _step(program: Coroutine[Any, Any, Tensor], results: list[Any] | None) -> tuple[Effect | None, Any]:
    """The next effect of a program, or what it returned."""
    try:
        return program.send(results), None
    except StopIteration as stop:
        return None, stop.value


def _again(effect: Effect, epoch: int, handles: Mapping[Handle, Handle]) -> Effect:
    """An effect of the recorded epoch as one of another epoch."""
    tag = effect.tag._replace(epoch=epoch)
    if isinstance(effect, Start):
        return replace(effect, tag=tag, effect=_again(effect.effect, epoch, handles))
    if isinstance(effect, Wait):
        if effect.handle not in handles:
            raise ProgramError(f"{effect} was started in an earlier epoch: these epochs cannot be replayed")
        return replace(effect, tag=tag, handle=handles[effect.handle])
    return replace(effect, tag=tag)


def _put(before: Any, now: Any) -> None:
    """Copy the tensors of a result to those of the result that segments were recorded with."""
    if isinstance(before, Tensor):
        with torch.no_grad():
            before.copy_(now)
    elif isinstance(before, Received):
        for old, new in zip(before.tensors, now.tensors, strict=True):
            _put(old, new)
    elif before is not None:
        raise ProgramError(f"a {type(before).__name__} is no result that a replayed epoch can continue with")
