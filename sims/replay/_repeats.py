"""Repeated epochs: with shapes only, an epoch of a synchronous method performs the same actions as others of its kind.

One epoch of each kind is recorded on every rank, and replayed in later epochs instead of computed, on the same clocks,
transport and network. A method declares which epochs are of one kind (`Method.epoch_kind`), which is checked: a rank
replays only epochs that begin with the same memory, and the first rank computes one more epoch of each kind than the
others and compares the two. Epoch 0 serves where a method leaves nothing in it for later ones.

In the steady state (`_steady`) a replayed epoch would last as long as an earlier one as well. Then it is a copy of it:
of its seconds, its bytes and what it observed, without a simulation. The epoch in which the state is found is played to
its end, because its effects are under way, but on a network that takes no time, and its seconds are copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Hashable
from dataclasses import dataclass
from types import coroutine
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch

from harness.effects import Background, Effect, Start
from harness.errors import ProgramError
from harness.methods.bases.base import Method
from harness.rank import COMPONENTS, Rank
from harness.traffic import Traffic
from sims.device import Work
from sims.engine import Ledger, Observer, Prices, SimClock
from sims.network import FluidNetwork
from sims.replay._notation import Action, Tables, Track, in_epoch
from sims.replay._player import Stretch, charge, folded, replay_actions
from sims.replay._steady import SteadyState

Compute = Callable[[], Coroutine[Any, Any, Tensor]]
_Pairs = set[tuple[int | None, int | None]]


class Repeats(Observer):
    """Runs the epochs of a method whose epochs repeat; implements `harness.running.Epochs`.

    It must be one of the simulation's observers, because it records the epochs that it replays.

    Args:
        copying: whether epochs of the steady state are copied; other observers would miss what happens in them, and
            with jitter there is no such state.
    """

    def __init__(self, method: Method, *, copying: bool = False) -> None:
        self._table = _EffectTable()
        self._method, self._copying = method, copying
        kinds = [method.epoch_kind(epoch) for epoch in range(1, 2 + method.cycle())]
        self._pairs = set(zip(kinds, kinds[1:], strict=False))
        self._ranks: list[_RankEpochs] = []
        self._steady: SteadyState | None = None

    @property
    def played(self) -> list[list[int]]:
        """The epochs that were replayed, per rank."""
        return [rank.played for rank in self._ranks]

    @property
    def copies(self) -> list[list[int]]:
        """The epochs whose seconds were copied, per rank."""
        return [rank.copied for rank in self._ranks]

    async def epoch(self, rank: Rank, compute: Compute) -> Tensor:
        """The loss of one epoch, which `compute` runs unless it is replayed.

        Raises:
            ProgramError: the epoch differs from the one before, or waits for an effect of another epoch.
        """
        return await self._ranks[rank.index].epoch(rank, compute)

    def network_added(self, network: FluidNetwork) -> None:
        """See `Observer`."""
        if self._copying:
            self._steady = SteadyState(self._method.cycle(), lambda: network.resolution, network.stop_timing)

    def rank_added(self, rank: int, clock: SimClock, ledger: Ledger) -> None:
        """See `Observer`."""
        if self._steady is not None:
            self._steady.add_rank(shared=clock.shared)
        epochs = _RankEpochs(
            clock, ledger, self._table, self._method, self._pairs, self._steady, checks=not self._ranks
        )  # fmt: skip
        self._ranks.append(epochs)

    def epoch_ended(self, rank: int, seconds: dict[str, float]) -> None:
        """See `Observer`."""
        self._ranks[rank].end(seconds)

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


@dataclass
class _Epoch:
    """A rank's actions of one epoch, the ratios that it observed, and its loss as a meta tensor.

    Attributes:
        unchecked: the rank has to compute another one that is equal before it replays this one.
        traffic: the bytes that the rank sent; None if no copy of the epoch will be asked for.
    """

    actions: list[Action]
    observed: dict[str, list[float]]
    loss: Tensor
    unchecked: bool
    traffic: Traffic | None

    def same(self, other: _Epoch) -> bool:
        """Whether another epoch, recorded with the same tables, is equal."""
        return self.actions == other.actions and self.observed == other.observed


@dataclass
class _Simulated:
    """A simulated epoch that may be copied: what it was, and how long it took.

    Attributes:
        seconds: as `SimClock.end_epoch` returned them; None while it runs.
        blocked: label of effects -> seconds that the rank waited for them.
    """

    number: int
    epoch: _Epoch
    seconds: dict[str, float] | None = None
    blocked: dict[str, float] | None = None


class _RankEpochs:
    """One rank's epochs.

    What an epoch begins with is known by its memory; after one that was replayed, in which no tensor came or went, by
    the kinds of both.

    Args:
        pairs: the kinds of all epochs that follow each other, after the first.
        steady: decides for all ranks which epochs are copied; None for none.
        checks: whether to compute one more epoch of each kind and compare.

    Attributes:
        track: records the epoch that is being computed.
        played: epochs that were replayed.
        copied: epochs that were copied, with the one in whose middle the steady state was found.
    """

    def __init__(
        self, clock: SimClock, ledger: Ledger, table: _EffectTable, method: Method, pairs: _Pairs,
        steady: SteadyState | None, checks: bool,
    ) -> None:  # fmt: skip
        self.clock, self.ledger, self.memory, self.table = clock, ledger, ledger.memory, table
        self.track: Track | None = None
        self.played: list[int] = []
        self.copied: list[int] = []
        self._steady, self._cycle = steady, method.cycle()
        self._simulated: deque[_Simulated] = deque(maxlen=self._cycle + 1)
        self._kind, self._checks, self._pairs = method.epoch_kind, checks, pairs
        self._by_memory: dict[Hashable, _Epoch] = {}
        self._by_kinds: dict[Hashable, _Epoch] = {}

    async def epoch(self, rank: Rank, compute: Compute) -> Tensor:
        """Run an epoch: compute it, or replay one of its kind that began with the same memory."""
        number = rank.epoch
        source = None if self._steady is None else self._steady.source(number)
        if source is not None:
            return self._copy(self._of(source), rank)
        epoch, loss = await self._simulate(rank, number, compute)
        self._simulated.append(_Simulated(number, epoch))
        source = None if self._steady is None else self._steady.source(number)
        if source is not None:  # found to be steady in the middle of it: its seconds are those of the source
            self._repeat_seconds(self._of(source))
            self.copied.append(number)
        return loss

    def end(self, seconds: dict[str, float]) -> None:
        """The epoch ended on the clock."""
        if self._simulated and self._simulated[-1].seconds is None:
            self._simulated[-1].seconds, self._simulated[-1].blocked = seconds, self.clock.blocked

    async def _simulate(self, rank: Rank, number: int, compute: Compute) -> tuple[_Epoch, Tensor]:
        """Replay or compute an epoch; also returns its loss."""
        kind, before = self._kind(number), self._kind(number - 1) if number else None
        start = kind, tuple(self.memory.contents().items())
        known = self._by_kinds.get((before, kind)) if number - 1 in self.played[-1:] else None
        if known is None:
            known = self._by_memory.get(start)
        if self._steady is not None and number:
            alike = number >= self.clock.first_alike + self._cycle
            self._steady.begin(rank.index, number, self.clock.begins_at(), repeats=known is not None and alike)
        if known is not None and not known.unchecked:
            self._by_kinds.setdefault((before, kind), known)
            await self._play(known, rank)
            return known, known.loss
        epoch, loss = await self._record(rank, compute)
        if known is not None:
            known.unchecked = False
            if not epoch.same(known):
                raise ProgramError(
                    f"rank {rank.index}: epoch {number} does not repeat an earlier one, as its method declares"
                )
        else:
            self._by_memory[start] = epoch
            if number > 1:
                self._by_kinds[before, kind] = epoch
        return epoch, loss

    async def _record(self, rank: Rank, compute: Compute) -> tuple[_Epoch, Tensor]:
        """Compute an epoch and record it; also returns its loss, which is in the rank's memory."""
        self.track = track = Track(self.table.tables)
        try:
            loss = await compute()
        finally:
            self.track = None
        observed = rank.take_observed()
        for name, (part, whole) in observed.items():
            rank.observe(name, part, whole)
        traffic = rank.traffic.copy() if self._steady is not None else None
        return _Epoch(track.close(), observed, _like(loss), self._checks, traffic), loss

    def _copy(self, simulated: _Simulated, rank: Rank) -> Tensor:
        """Repeat what an epoch came to; returns its loss."""
        assert simulated.epoch.traffic is not None
        self._repeat_seconds(simulated)
        rank.traffic.add_all(simulated.epoch.traffic)
        for name, (part, whole) in simulated.epoch.observed.items():
            rank.observe(name, part, whole)
        self.copied.append(rank.epoch)
        return simulated.epoch.loss

    def _repeat_seconds(self, simulated: _Simulated) -> None:
        assert simulated.seconds is not None and simulated.blocked is not None
        self.clock.repeat_epoch(simulated.seconds, simulated.blocked)

    def _of(self, number: int) -> _Simulated:
        """A simulated epoch of the last cycle."""
        return next(each for each in self._simulated if each.number == number)

    @coroutine
    def _play(self, epoch: _Epoch, rank: Rank) -> Generator[Effect, Any, None]:
        """Replay the recorded epoch."""
        clock, table = self.clock, self.table
        self.memory.replaying = True
        known = [self._by_kinds.get(pair) for pair in self._pairs]
        # then nothing is computed any more: memory that is freed is not allocated again
        self.memory.played = all(epoch is not None and not epoch.unchecked for epoch in known)
        self.played.append(rank.epoch)
        for name, (part, whole) in epoch.observed.items():
            rank.observe(name, part, whole)

        def pause(paused: bool) -> None:
            rank.paused = paused
            clock.pause(paused)

        yield from replay_actions(
            epoch.actions, lambda number: in_epoch(table.effect(number), rank.epoch), self._charge, clock, pause
        )
        self.memory.replaying = False

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
        self._stretches: dict[tuple[Prices, int], tuple[list[tuple[str, Work, float]], Stretch]] = {}

    def effect(self, number: int) -> Effect:
        """An effect whose tensors count in no rank's memory."""
        if number not in self._effects:
            with no_dispatch():
                self._effects[number] = self.tables.effects.values[number].effect(self.tables.counts.values)
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
