"""Pending effects: matched by the rendezvous and timed by the transport; an effect ends when both have completed.

This module decides when an effect begins and ends; the driver decides what the rank does meanwhile and where blocked
time is booked. On devices that cannot compute and communicate at full speed at once, the rank's concurrent compute
makes an effect longer: first the network carries it as if there were no compute, then the time that it lost to
compute is added. Other ranks are not affected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy
from torch import Tensor

from harness.effects import Component, Effect, HostCopy, Received, component_of
from harness.errors import ProgramError
from harness.rendezvous import Meeting, Rendezvous
from sims.cluster import Placement
from sims.device import DeviceProfile, LiveMemory
from sims.engine._clock import NEGLIGIBLE, SimClock
from sims.engine._observer import Observer, TransferHooks, listeners
from sims.network import FluidNetwork
from sims.transport import Library, Operation, Transport, incoming_bytes

SimProcess = Generator[simpy.Event, Any, Any]


@dataclass(eq=False)
class PendingEffect:
    """One effect of one rank that has begun.

    Attributes:
        process: the generator that carries it out and returns its result.
        held: bytes counted for the effect's result.
        busy_at_start, busy_at_end: the rank's compute seconds when the effect began and ended.
        finish: the SimPy process of a started effect, which returns the result in a list, because SimPy refers to the
            list while the rank continues; a rank that blocks in an effect runs the generator itself.
    """

    effect: Effect
    process: SimProcess
    held: int
    busy_at_start: float
    busy_at_end: float = math.inf
    finish: simpy.Event | None = None

    @property
    def component(self) -> Component:
        """The component under which blocking in the effect is booked."""
        return component_of(self.effect)


class _MeetingState:
    """The simulation's data of a meeting (see `harness.rendezvous`)."""

    def __init__(self, env: simpy.Environment, paused: bool, ranks: int) -> None:
        self.operation, self.everyone, self.paused = Operation(ranks), env.event(), paused


class PendingEffects:
    """All pending effects of the ranks of one run.

    Args:
        profiles: the ranks' devices.
        clocks, memories: of the ranks, in rank order; filled while ranks are added.
        guard: wraps a process so that its exception is kept.
        rendezvous: matches the ranks' effects and computes what each receives.
        work: begins seconds of work on the cores that a rank shares; returns its end.
        library: takes the place of the cluster's own.

    Attributes:
        tiers: kinds of link.
        sent: int64 [tiers], bytes sent across each, without effects off the clock.
    """

    def __init__(
        self,
        env: simpy.Environment,
        placement: Placement,
        profiles: Sequence[DeviceProfile],
        clocks: list[SimClock],
        memories: list[LiveMemory],
        guard: Callable[[SimProcess], SimProcess],
        rendezvous: Rendezvous,
        observers: Sequence[Observer],
        work: Callable[[int, float], simpy.Event] | None = None,
        library: type[Library] | None = None,
    ) -> None:
        self.env, self.profiles, self.clocks, self.memories = env, profiles, clocks, memories
        self.guard, self.rendezvous = guard, rendezvous
        self._carried_out = listeners(observers, Observer.carried_out)
        self.network = FluidNetwork(env, placement.capacity, placement.segments)
        transfers = TransferHooks(observers)
        self.network.watch = transfers if transfers.wanted else None
        self.transport = Transport(env, self.network, placement, profiles, work, library)
        self.tiers, self._tier_of = placement.tier_matrix()
        self.sent = np.zeros(len(self.tiers), np.int64)

    def begin(self, rank: int, effect: Effect, *, later: bool = False, paid: bool = False) -> PendingEffect:
        """Begin an effect; its process is not run yet, and with `later` will only be after some time. `paid`: the rank
        has spent its software.

        Raises ProgramError if it does not match the other ranks'.
        """
        clock = self.clocks[rank]
        paused = clock.paused
        if isinstance(effect, HostCopy):
            carry = self._host_copy(rank, effect, paused)
        else:
            meeting = self.rendezvous.post(rank, effect)
            carry = self._exchange(rank, effect, meeting, self._state_of(rank, effect, meeting, paused), paid)
        # on a CPU the copy for the device is the tensor itself
        held = 0 if isinstance(effect, HostCopy) and self.profiles[rank].kind == "cpu" else incoming_bytes(effect, rank)
        self.memories[rank].sending(effect.tensors())
        self.memories[rank].hold(held)
        pending = PendingEffect(effect, carry, held, clock.busy() if later else clock.effect_began())
        pending.process = self._run(rank, pending, carry, paused, later)
        return pending

    def run_beside(self, pending: PendingEffect) -> None:
        """Run a pending effect concurrently with its rank."""
        pending.finish = self.env.process(self.guard(_in_list(pending.process)))

    def deliver(self, rank: int, pending: PendingEffect, result: Any) -> None:
        """Count the memory reserved for a result under its tensors."""
        effect, memory = pending.effect, self.memories[rank]
        memory.release(pending.held)
        if not (isinstance(effect, HostCopy) and effect.to_host):
            tensors = result.tensors if isinstance(result, Received) else (result,)
            memory.received(t for t in tensors if isinstance(t, Tensor))

    def _run(self, rank: int, pending: PendingEffect, carry: SimProcess, paused: bool, later: bool) -> SimProcess:
        """Carry out an effect, record its end, and notify observers."""
        if later:
            pending.busy_at_start = self.clocks[rank].effect_began()
        effect, start = pending.effect, self.env.now
        if not paused:
            self._count(rank, effect.sent(rank, len(self._tier_of)))
        result = yield from carry
        if not paused:
            yield from self._catch_up(rank, pending)
        pending.busy_at_end = self.clocks[rank].effect_ended()
        if self._carried_out and not paused:
            to = effect.sent(rank, len(self._tier_of))
            sent = effect.copied_bytes if isinstance(effect, HostCopy) else int(to.sum())
            for notify in self._carried_out:
                notify(rank, pending.component, effect, start, self.env.now, sent)
        return result

    def _count(self, rank: int, sent: np.ndarray) -> None:
        """Count the bytes that a rank sends to every rank, by tier; to itself it sends none."""
        by_tier = np.bincount(self._tier_of[rank] + 1, sent, len(self.sent) + 1)  # sums below 2^53 are exact
        self.sent += by_tier[1:].astype(np.int64)

    def _catch_up(self, rank: int, pending: PendingEffect) -> SimProcess:
        """Add the time that an effect lost to concurrent compute, and in turn what it loses during that time."""
        lost_share = 1 - 1 / self.profiles[rank].slowdown("communication")
        before = pending.busy_at_start
        while lost_share:
            busy = self.clocks[rank].busy()
            lost = (busy - before) * lost_share
            if lost <= NEGLIGIBLE * self.env.now:
                return
            before = busy
            yield self.env.timeout(lost)

    def _state_of(self, rank: int, effect: Effect, meeting: Meeting, paused: bool) -> _MeetingState:
        """The simulation's data of a meeting; triggers its event when the last rank has arrived."""
        if meeting.driver_state is None:
            meeting.driver_state = _MeetingState(self.env, paused, len(meeting.expected))
        state: _MeetingState = meeting.driver_state
        if state.paused != paused:
            here, there = ("off", "on") if paused else ("on", "off")
            raise ProgramError(f"rank {rank} is {here} the clock, others are {there} the clock, in {effect}")
        if meeting.results is not None:
            state.everyone.succeed()
        return state

    def _exchange(self, rank: int, effect: Effect, meeting: Meeting, state: _MeetingState, paid: bool) -> SimProcess:
        """A rank's part of an exchange: its transfers, then the arrival of all ranks, whose values it needs."""
        if not state.paused:
            yield from self.transport.carry(state.operation, rank, effect, paid=paid)
        yield state.everyone
        assert meeting.results is not None
        return meeting.results.pop(rank)

    def _host_copy(self, rank: int, effect: HostCopy, paused: bool) -> SimProcess:
        if self.profiles[rank].kind == "cpu":
            return effect.tensor
        if not paused:
            yield from self.transport.copy(rank, effect.copied_bytes, to_host=effect.to_host)
        copy = effect.tensor.clone()
        if effect.to_host:
            self.memories[rank].exclude(copy)
        return copy


def _in_list(process: SimProcess) -> SimProcess:
    return [(yield from process)]
