"""Observers: how recordings, replayed epochs, traces and tests follow a simulation.

When ranks are added, the engine collects the hooks that observers override in one tuple per hook: a hook that no
observer overrides costs the iteration over an empty tuple. Live memory is not an observer, because the engine itself
needs it at every operator (peaks in results, predicted out-of-memory).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Concatenate, ParamSpec

import numpy as np

from harness.effects import Background, Effect
from sims.device import Work
from sims.engine._clock import SimClock
from sims.engine._ledger import Ledger
from sims.network import FluidNetwork

P = ParamSpec("P")


class Observer:
    """Base of all observers: every hook does nothing. Times are seconds on the modelled clock.

    Hooks must not change the simulation. `sims.replay.Repeats`, which also replays epochs, does so as part of the
    program, not in its hooks.
    """

    def network_added(self, network: FluidNetwork) -> None:
        """The network was made; called before ranks are added."""

    def rank_added(self, rank: int, clock: SimClock, ledger: Ledger) -> None:
        """A rank was set up; called in rank order, before anything runs."""

    def epoch_began(self, rank: int, now: float) -> None:
        """The rank's program began an epoch; compute that was charged before may not have elapsed yet."""

    def epoch_ended(self, rank: int, seconds: dict[str, float]) -> None:
        """The rank's program ended an epoch; `seconds` as `SimClock.end_epoch` returns them."""

    def charged(self, rank: int, component: str, work: Work, seconds: float) -> None:
        """An operator was charged to a component of time; not called off the clock."""

    def converting(self, rank: int, effect: Background, received: bool, work: Work, seconds: float) -> None:
        """An operator was charged to a rank's second thread: it encodes what a background exchange sends, or decodes
        what it has received; not called off the clock."""

    def issued(self, rank: int, effect: Effect, paused: bool) -> None:
        """The rank's compute before an effect has elapsed, and the effect begins; `paused`: off the clock.

        Effects that are started or waited for are passed as `Start` and `Wait`.
        """

    def computed(self, rank: int, component: str, start: float, end: float) -> None:
        """A stretch of compute has elapsed; called for one component of the stretch after the other."""

    def converted(self, rank: int, effect: Background, start: float, end: float) -> None:
        """The rank's second thread has encoded or decoded the rows of a background exchange."""

    def carried_out(self, rank: int, component: str, effect: Effect, start: float, end: float, nbytes: int) -> None:
        """An effect has ended, on the clock; `nbytes` is what the rank sent or copied.

        Blocking in it is booked under `component`. The times are those of the whole effect, so that a started effect
        overlaps the compute that hides it.
        """

    def transfers_began(self, now: float, links: np.ndarray, nbytes: np.ndarray, latency: np.ndarray) -> None:
        """Transfers began: links int32 [transfers, width] padded with -1, bytes and seconds [transfers]."""

    def transfers_ended(self, finish: np.ndarray) -> None:
        """All transfers that began since the last call have ended, at `finish` seconds [transfers]."""

    def copied(self, start: float, finish: float, link: int, nbytes: int, latency: float) -> None:
        """A copy has crossed a link that carries copies only."""


def listeners(
    observers: Sequence[Observer], hook: Callable[Concatenate[Observer, P], None]
) -> tuple[Callable[P, None], ...]:
    """The observers' methods that override a hook such as `Observer.issued`."""
    name = hook.__name__
    return tuple(getattr(one, name) for one in observers if getattr(type(one), name) is not hook)


def listeners_of(
    rank: int, observers: Sequence[Observer], hook: Callable[Concatenate[Observer, int, P], None]
) -> tuple[Callable[P, None], ...]:
    """`listeners` of a hook of ranks, with the rank bound."""
    return tuple(partial(call, rank) for call in listeners(observers, hook))


class TransferHooks:
    """Passes a network's transfers on to observers; implements the watch of `sims.network.FluidNetwork`."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._began = listeners(observers, Observer.transfers_began)
        self._ended = listeners(observers, Observer.transfers_ended)
        self._copied = listeners(observers, Observer.copied)

    @property
    def wanted(self) -> bool:
        """Whether any observer overrides these hooks; a network that is not watched skips their bookkeeping."""
        return bool(self._began or self._ended or self._copied)

    def begun(self, now: float, routes: np.ndarray, nbytes: np.ndarray, latency: np.ndarray) -> None:
        """Transfers begin."""
        for notify in self._began:
            notify(now, routes, nbytes, latency)

    def ended(self, finish: np.ndarray) -> None:
        """All transfers that began since the last call have ended."""
        for notify in self._ended:
            notify(finish)

    def copied(self, start: float, finish: float, link: int, nbytes: int, latency: float) -> None:
        """A copy has crossed its link."""
        for notify in self._copied:
            notify(start, finish, link, nbytes, latency)
