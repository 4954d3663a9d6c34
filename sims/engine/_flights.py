"""Effects under way: matched by the rendezvous, timed by the transport, over when both are through.

It knows when an effect begins and ends; what a rank does meanwhile, and where its blocked time is booked, is the
driver's business. On devices that cannot compute and communicate at full speed at once, a flight lasts longer by what
the rank's compute took from it: first the network carries it as if nothing else were going on, then it makes up for
the time that it shared. The other ranks do not feel that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy
from torch import Tensor

from harness.effects import Effect, HostCopy, Received
from harness.errors import ProgramError
from harness.rendezvous import Meeting, Rendezvous
from sims.cluster import Placement
from sims.device import DeviceProfile, LiveMemory
from sims.engine._clock import NEGLIGIBLE, SimClock
from sims.engine._observer import Observer, TransferHooks, listeners
from sims.network import FluidNetwork
from sims.transport import Operation, Transport, incoming_bytes

SimProcess = Generator[simpy.Event, Any, Any]


@dataclass(eq=False)
class Flight:
    """One effect of one rank under way.

    Attributes:
        course: what there is to wait for until the result; whoever runs it gets that.
        held: bytes counted for the effect's result.
        busy_at_start, busy_at_end: the rank's compute seconds when the effect began and ended.
        finish: the process that runs the course of a started effect; a rank that blocks runs it itself.
    """

    effect: Effect
    course: SimProcess
    held: int
    busy_at_start: float
    busy_at_end: float = math.inf
    finish: simpy.Event | None = None

    @property
    def component(self) -> str:
        """The component of time that blocking in the effect belongs to."""
        return component_of(self.effect)


class _Meet:
    """What the simulation keeps with a meeting."""

    def __init__(self, env: simpy.Environment, paused: bool) -> None:
        self.operation, self.everyone, self.paused = Operation(), env.event(), paused


class Flights:
    """Everything that the ranks of one run have in the air.

    Args:
        profiles: the ranks' devices.
        clocks, memories: of the ranks, in rank order; filled while ranks are added.
        guard: wraps a process so that what it raises is kept.
        rendezvous: matches the ranks' effects and computes what each receives.

    Attributes:
        sent: int64 [ranks, ranks], bytes from and to, off-the-clock effects left out.
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
    ) -> None:
        self.env, self.profiles, self.clocks, self.memories = env, profiles, clocks, memories
        self.guard, self.rendezvous = guard, rendezvous
        self._carried_out = listeners(observers, Observer.carried_out)
        self.network = FluidNetwork(env, placement.capacity, placement.segments)
        transfers = TransferHooks(observers)
        self.network.watch = transfers if transfers.wanted else None
        self.transport = Transport(env, self.network, placement, profiles)
        self.sent = np.zeros((placement.size, placement.size), np.int64)

    def begin(self, rank: int, effect: Effect) -> Flight:
        """Make an effect ready to run its course. Raises ProgramError when it does not match the other ranks'."""
        clock = self.clocks[rank]
        paused = clock.paused
        if isinstance(effect, HostCopy):
            carry = self._host_copy(rank, effect, paused)
        else:
            meeting = self.rendezvous.post(rank, effect)
            carry = self._exchange(rank, effect, meeting, self._meet(rank, effect, meeting, paused))
        held = incoming_bytes(effect, rank)
        self.memories[rank].sending(effect.tensors())
        self.memories[rank].hold(held)
        flight = Flight(effect, carry, held, clock.take_off())
        flight.course = self._fly(rank, flight, carry, paused)
        return flight

    def leave(self, flight: Flight) -> None:
        """Let a flight run its course beside the rank."""
        flight.finish = self.env.process(self.guard(flight.course))

    def land(self, rank: int, flight: Flight, answer: Any) -> None:
        """Hand the memory held for a result over to its tensors."""
        effect, memory = flight.effect, self.memories[rank]
        memory.release(flight.held)
        if not (isinstance(effect, HostCopy) and effect.to_host):
            tensors = answer.tensors if isinstance(answer, Received) else (answer,)
            memory.received(t for t in tensors if isinstance(t, Tensor))

    def _fly(self, rank: int, flight: Flight, carry: SimProcess, paused: bool) -> SimProcess:
        """See an effect through, note when it ended, and tell who looks on."""
        effect, start = flight.effect, self.env.now
        if not paused:
            self.sent[rank] += effect.sent(rank, len(self.sent))
        answer = yield from carry
        if not paused:
            yield from self._make_up(rank, flight)
        flight.busy_at_end = self.clocks[rank].land()
        if self._carried_out and not paused:
            to = effect.sent(rank, len(self.sent))
            sent = effect.copied_bytes if isinstance(effect, HostCopy) else int(to.sum())
            for tell in self._carried_out:
                tell(rank, flight.component, effect, start, self.env.now, sent)
        return answer

    def _make_up(self, rank: int, flight: Flight) -> SimProcess:
        """Let the time pass that a flight lost to the compute beside it; that beside this time is lost in turn."""
        lost_share = 1 - 1 / self.profiles[rank].slowdown("communication")
        before = flight.busy_at_start
        while lost_share:
            busy = self.clocks[rank].busy()
            lost = (busy - before) * lost_share
            if lost <= NEGLIGIBLE * self.env.now:
                return
            before = busy
            yield self.env.timeout(lost)

    def _meet(self, rank: int, effect: Effect, meeting: Meeting, paused: bool) -> _Meet:
        """The simulation's side of a meeting; the last to arrive lets the others know."""
        if meeting.driver_state is None:
            meeting.driver_state = _Meet(self.env, paused)
        meet: _Meet = meeting.driver_state
        if meet.paused != paused:
            here, there = ("off", "on") if paused else ("on", "off")
            raise ProgramError(f"rank {rank} is {here} the clock, others are {there} the clock, in {effect}")
        if meeting.answers is not None:
            meeting.effects.clear()  # what was sent lives no longer than its sender keeps it
            meet.everyone.succeed()
        return meet

    def _exchange(self, rank: int, effect: Effect, meeting: Meeting, meet: _Meet) -> SimProcess:
        """A rank's part of an exchange: its transfers, then the arrival of all ranks, whose numbers it needs."""
        if not meet.paused:
            yield from self.transport.carry(meet.operation, rank, effect)
        yield meet.everyone
        assert meeting.answers is not None
        return meeting.answers.pop(rank)

    def _host_copy(self, rank: int, effect: HostCopy, paused: bool) -> SimProcess:
        if self.profiles[rank].kind == "cpu":
            return effect.tensor
        if not paused:
            yield from self.transport.copy(rank, effect.copied_bytes, to_host=effect.to_host)
        copy = effect.tensor.clone()
        if effect.to_host:
            self.memories[rank].exclude(copy)
        return copy


def component_of(effect: Effect) -> str:
    """The component of time that blocking in an effect belongs to."""
    if isinstance(effect, HostCopy):
        return "swap"
    return "reduce" if effect.tag.direction == "reduce" else "halo"
