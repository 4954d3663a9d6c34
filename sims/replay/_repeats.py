"""Repeated epochs: with shapes only, every epoch of a synchronous method performs the same actions as the one before.

One epoch of each rank is recorded, and replayed in later epochs instead of computed, on the same clocks, transport and
network. A method declares that its epochs repeat (`Facts.repeats`), which is checked: a rank replays only epochs that
begin with the same memory, and the first rank computes one more epoch than the others and compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from types import coroutine
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch

from harness.effects import Background, Effect, Start
from harness.errors import ProgramError
from harness.rank import COMPONENTS, Rank
from sims.device import Work
from sims.engine import Ledger, Observer, Prices, SimClock
from sims.replay._notation import Action, Tables, Track, counts_of, in_epoch
from sims.replay._player import Stretch, charge, folded, replay_actions

Compute = Callable[[], Coroutine[Any, Any, Tensor]]


class Repeats(Observer):
    """Runs the epochs of a method whose epochs repeat; implements `harness.running.Epochs`.

    It must be one of the simulation's observers, because it records the epoch that it replays.
    """

    def __init__(self) -> None:
        self._table = _EffectTable()
        self._ranks: list[_RankEpochs] = []

    @property
    def played(self) -> list[list[int]]:
        """The epochs that were replayed, per rank."""
        return [rank.played for rank in self._ranks]

    async def epoch(self, rank: Rank, compute: Compute) -> Tensor:
        """The loss of one epoch, which `compute` runs unless it is replayed.

        Raises:
            ProgramError: the epoch differs from the one before, or waits for an effect of another epoch.
        """
        return await self._ranks[rank.index].epoch(rank, compute)

    def rank_added(self, rank: int, clock: SimClock, ledger: Ledger) -> None:
        """See `Observer`."""
        self._ranks.append(_RankEpochs(clock, ledger, self._table, checks=not self._ranks))

    def charged(self, rank: int, component: str, work: Work, seconds: float) -> None:
        """See `Observer`."""
        track = self._ranks[rank].track
        if track is not None:
            track.operator(component, work)

    def issued(self, rank: int, effect: Effect, paused: bool) -> None:
        """See `Observer`. Raises ProgramError for a wait for an effect of another epoch, and a background exchange."""
        track = self._ranks[rank].track
        if track is not None:
            try:
                if isinstance(effect, Start) and isinstance(effect.effect, Background):
                    raise ProgramError(f"{effect.effect} runs beside its epoch: such epochs do not repeat")
                track.effect(effect, paused)
            except ProgramError as error:
                error.add_note(f"on rank {rank}")
                raise


@dataclass(frozen=True)
class _Epoch:
    """A rank's actions of one epoch, the ratios that it observed, and its loss as a meta tensor."""

    actions: list[Action]
    observed: dict[str, list[float]]
    loss: Tensor

    def same(self, other: _Epoch) -> bool:
        """Whether another epoch, recorded with the same tables, is equal."""
        return self.actions == other.actions and self.observed == other.observed


class _RankEpochs:
    """One rank's epochs.

    Args:
        checks: whether to compute one more epoch and compare.

    Attributes:
        track: records the epoch that is being computed.
        played: epochs that were replayed.
    """

    def __init__(self, clock: SimClock, ledger: Ledger, table: _EffectTable, checks: bool) -> None:
        self.clock, self.ledger, self.memory, self.table = clock, ledger, ledger.memory, table
        self.track: Track | None = None
        self.played: list[int] = []
        self._checks = checks
        self._last: _Epoch | None = None
        self._start: dict[str, int] = {}  # memory at its beginning

    async def epoch(self, rank: Rank, compute: Compute) -> Tensor:
        """Run an epoch: compute it, or replay it once an epoch begins with the same memory as the one before."""
        if rank.epoch == 0:
            return await compute()
        start, last = self.memory.contents(), self._last
        if last is not None and not self._checks and (self.played or start == self._start):
            return await self._play(last, rank)
        epoch = await self._record(rank, compute)
        if last is not None and start == self._start:
            self._checks = False
            if not epoch.same(last):
                raise ProgramError(
                    f"rank {rank.index}: epoch {rank.epoch} does not repeat the one before, as its method declares"
                )
        self._last, self._start = epoch, start
        return epoch.loss

    async def _record(self, rank: Rank, compute: Compute) -> _Epoch:
        """Compute an epoch and record it."""
        self.track = track = Track(self.table.tables)
        try:
            loss = await compute()
        finally:
            self.track = None
        observed = rank.take_observed()
        for name, (part, whole) in observed.items():
            rank.observe(name, part, whole)
        return _Epoch(track.close(), observed, _like(loss))

    @coroutine
    def _play(self, epoch: _Epoch, rank: Rank) -> Generator[Effect, Any, Tensor]:
        """Replay the recorded epoch; returns its loss."""
        clock, table = self.clock, self.table
        self.memory.played = True  # memory freed from now on is not allocated again
        self.played.append(rank.epoch)
        for name, (part, whole) in epoch.observed.items():
            rank.observe(name, part, whole)

        def pause(paused: bool) -> None:
            rank.paused = paused
            clock.pause(paused)

        yield from replay_actions(
            epoch.actions, lambda number: in_epoch(table.effect(number), rank.epoch), self._charge, clock, pause
        )
        return epoch.loss

    def _charge(self, number: int) -> None:
        """Charge a recorded stretch of compute: to the clock its sums, to the ledger its operators."""
        operators, stretch = self.table.stretch(number, self.ledger.prices)
        for component, work, seconds in operators:
            self.ledger.count(component, work, seconds)
        charge(self.clock, stretch)


class _EffectTable:
    """Replayed values by number: effects on the meta device, and stretches of compute with their seconds per device.

    Computed on first use, and shared by all ranks.
    """

    def __init__(self) -> None:
        self.tables = Tables()
        self._effects: dict[int, Effect] = {}
        self._counts: list[np.ndarray] = []
        self._stretches: dict[tuple[Prices, int], tuple[list[tuple[str, Work, float]], Stretch]] = {}

    def effect(self, number: int) -> Effect:
        """An effect whose tensors count in no rank's memory."""
        if number not in self._effects:
            with no_dispatch():
                self._counts += counts_of(self.tables.counts.values[len(self._counts) :])
                self._effects[number] = self.tables.effects.values[number].effect(self._counts)
        return self._effects[number]

    def stretch(self, number: int, prices: Prices) -> tuple[list[tuple[str, Work, float]], Stretch]:
        """Component, work and seconds of its operators, and their sums."""
        found = self._stretches.get((prices, number))
        if found is None:
            raw, works = self.tables.stretches.values[number], self.tables.works.values
            seconds, launches = np.zeros(len(works)), np.zeros(len(works))
            operators = []
            for component, work in np.frombuffer(raw, np.int32).reshape(-1, 2).tolist():
                seconds[work], launches[work] = prices.seconds(works[work]), prices.profile.launches(works[work])
                operators.append((COMPONENTS[component], works[work], float(seconds[work])))
            found = self._stretches[prices, number] = operators, folded(raw, seconds, launches)
        return found


def _like(tensor: Tensor) -> Tensor:
    """A meta tensor of the same shape and type, which counts in no rank's memory."""
    with no_dispatch():
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
