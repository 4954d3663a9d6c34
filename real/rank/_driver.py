"""The driver that measures: one rank of a run per process, its effects carried out on torch.distributed.

`run_program` steps one rank program inside `connect`. A run of one rank touches no process group at all. Processes are
started elsewhere (`real.launch`); this module does not depend on graphs or methods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from harness.effects import (
    AllReduce,
    AllToAll,
    Background,
    Broadcast,
    Effect,
    EffectName,
    Handle,
    HostCopy,
    Recv,
    Send,
    Start,
    Wait,
    component_of,
)
from harness.errors import HaloscopeError, ProgramError
from harness.machine import keep_heap
from harness.rank import Rank
from harness.rendezvous import Rendezvous
from harness.trampoline import Finished, Program, Stepper
from real.rank import spans as tracing
from real.rank._agreement import Agreement
from real.rank._background import SecondThread
from real.rank._channel import Channel
from real.rank._clocks import CudaClock, HostClock, Mark
from real.rank._exchanges import start_exchange
from real.rank._meetings import Meetings
from real.rank._transport import Endpoint, Pending, Silence
from real.rank.connection import Connection
from real.rank.health import raised_at, refuse_sigterm


def run_program(
    program: Program, connection: Connection, *, seed: int = 0, deterministic: bool = True, debug: bool = False
) -> Any:
    """Run this process's rank of `program` and return its result. Call it inside `connect`.

    Args:
        seed, deterministic: see `Rank`.
        debug: check every exchange for agreement, and started tensors for writes, in all epochs.

    Raises:
        ProgramError: the ranks disagree, or a rule of the seam was broken; names ranks, file, line, label and epoch.
        RankLost: another rank failed, died or froze; names it.
        Exception: whatever the program raises, with rank, epoch and place added as notes.
    """
    keep_heap()
    clock = tracing.clock_of(connection.device, connection.rank, connection.size)
    rank = Rank(
        connection.rank,
        connection.size,
        seed=seed,
        device=connection.device,
        clock=clock,
        deterministic=deterministic,
        debug=debug,
    )
    connection.activity.follow(rank)
    clock.activity = connection.activity
    network = _Alone() if connection.size == 1 else _Network(rank, clock, connection)
    stepper = Stepper(rank, program)
    tracing.watch(clock, stepper)
    try:
        value = _drive(stepper, clock, network)
        connection.activity.before("shutdown")
        tracing.leave(clock, connection.host)
        return value
    except Silence as silence:
        refuse_sigterm()
        where = "has returned and waits for the others" if stepper.done else f"waits in {_in_words(stepper.last)}"
        raise connection.words.explain(f"{where}: {silence}") from silence
    except Exception as error:
        if not isinstance(error, HaloscopeError):
            error.add_note(f"raised at {raised_at(error)}")
        raise
    finally:
        stepper.close()
        network.close()


def _drive(stepper: Stepper, clock: HostClock | CudaClock, network: _Network | _Alone) -> Any:
    """Step a program to its end: carry out its effects, and count their time under their components."""
    results: list[Any] | None = None
    while True:
        effect = stepper.step(results)
        if isinstance(effect, Finished):
            network.finish()
            return effect.value
        component = component_of(effect)
        network.enter()
        with clock.blocked(component):
            clock.activity.effect(effect, component)
            results = [_perform(effect, stepper.rank.device, clock, network)]
        del effect  # only the program refers to its tensors now


def _perform(effect: Effect, device: torch.device, clock: HostClock | CudaClock, network: _Network | _Alone) -> Any:
    if isinstance(effect, Wait):
        started: _Started = effect.handle.driver_state
        effect.handle.driver_state = None  # a method may keep its handle; the buffers must be freed with the result
        clock.overlapped(started.mark, started.pending.completed())
        return started.pending.result()
    wire = effect.wire
    pending = _copy(wire, device) if isinstance(wire, HostCopy) else network.begin(wire, wire is not effect)
    if not isinstance(effect, Start):
        return pending.result()
    handle = Handle(wire)
    handle.driver_state = _Started(pending, clock.mark())
    pending.watch()
    return handle


def _copy(effect: HostCopy, device: torch.device) -> Pending:
    """Copy between device and host; on a CPU rank the tensor itself."""
    tensor = effect.tensor
    if device.type == "cpu":
        return Pending(lambda: tensor)
    if not effect.to_host:
        copy = tensor.to(device, non_blocking=True)
        return Pending(lambda: copy)
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return Pending(lambda: host, event.synchronize)


@dataclass(eq=False)
class _Started:
    """What a handle keeps: the exchange in flight, and when it began."""

    pending: Pending
    mark: Mark


class _Network:
    """Exchanges with other ranks, in an order that is the same on all of them."""

    def __init__(self, rank: Rank, clock: HostClock | CudaClock, connection: Connection) -> None:
        self.words = connection.words
        self.words.withdraw()
        self.doing: EffectName | None = None
        self.endpoint = Endpoint(connection, clock, Channel(connection.group))
        self.endpoint.doing = lambda: self.doing
        self.meetings = Meetings(self.endpoint) if connection.batched else None
        self.endpoint.batches = self.meetings
        self.second = SecondThread(connection, clock, self.endpoint, rank.debug)
        self.agreement = Agreement(self.endpoint, rank)
        self.advance: Callable[[], None] = lambda: None  # starts the half that is left of an all-reduce in flight

    def enter(self) -> None:
        """The program has reached its next effect, or its end."""
        self.agreement.enter()

    def begin(self, effect: Effect, started: bool) -> Pending:
        """Start an exchange, after checking that the ranks agree on it. `started`: the program continues meanwhile."""
        self.doing = effect.name
        if isinstance(effect, Send):
            return self.agreement.send(effect)
        if isinstance(effect, Recv):
            return self.agreement.recv(effect, started)
        if effect.among is not None and len(effect.among) == 1:
            return Pending(effect.tensors()[0].detach().clone)
        self.advance()
        endpoint = self.endpoint
        if isinstance(effect, AllToAll | AllReduce | Broadcast):
            endpoint = self.agreement.collective(effect)
        if isinstance(effect, Background):
            return self.second.start(effect)
        pending = start_exchange(endpoint, effect)
        if isinstance(effect, AllReduce):
            self.advance = pending.advance
        return pending

    def finish(self) -> None:
        """The program has returned: check that it has on all ranks."""
        self.enter()
        self.advance()
        self.words.leave("returned", "")
        self.agreement.returned()
        if self.meetings is not None:
            self.meetings.leave()

    def close(self) -> None:
        """End what the rank has beside its program."""
        self.second.close()
        self.endpoint.device_waits.close()


class _Alone:
    """A run of one rank: nothing is sent, and no rank can disagree."""

    def __init__(self) -> None:
        self.rendezvous = Rendezvous(1)

    def enter(self) -> None:
        """Nothing to do: there is no other rank."""

    def begin(self, effect: Effect, started: bool) -> Pending:
        """The result of an effect from this rank's own arguments."""
        if isinstance(effect, Background):
            effect = effect.with_payload(effect.conversion.encode())
        results = self.rendezvous.post(0, effect).results
        if results is None:
            raise ProgramError(f"rank 0 of 1 waits for another rank in {effect}")
        pending = Pending(lambda: results[0])
        return pending.then(effect.conversion.decode) if isinstance(effect, Background) else pending

    def finish(self) -> None:
        """Nothing to do: there is no other rank to wait for."""

    def close(self) -> None:
        """Nothing to do: everything is done in the program's own thread."""


def _in_words(effect: Effect | None) -> str:
    """An effect as error messages name it: for a wait, the effect that is waited for."""
    return f"the wait for {effect.handle.effect}" if isinstance(effect, Wait) else str(effect)
