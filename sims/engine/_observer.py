"""Looking on: the one way in which recordings, played epochs, traces and tests learn what a simulation does.

The engine finds out once, when ranks are added, which hooks an observer overrides, and keeps a tuple of those per hook:
a hook that nobody overrides costs the iteration over an empty tuple. Live memory is no observer: the engine itself asks
for it (peaks in results, predicted out-of-memory), at every operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Concatenate, ParamSpec

import numpy as np

from harness.effects import Effect
from sims.device import Work
from sims.engine._clock import SimClock
from sims.engine._ledger import Ledger

P = ParamSpec("P")


class Observer:
    """Base of all observers: every hook does nothing. Times are seconds on the modelled clock.

    An observer changes nothing that the simulation goes by; one that also plays epochs (`sims.replay.Repeats`) does so
    as part of the program, not in its hooks.
    """

    def rank_added(self, rank: int, clock: SimClock, ledger: Ledger) -> None:
        """A rank was set up; they come in rank order, before anything runs."""

    def epoch_began(self, rank: int, now: float) -> None:
        """The rank's program began an epoch; compute that was charged before may still have to pass."""

    def epoch_ended(self, rank: int, seconds: dict[str, float]) -> None:
        """The rank's program ended an epoch; `seconds` as `SimClock.end_epoch` returns them."""

    def charged(self, rank: int, component: str, work: Work, seconds: float) -> None:
        """An operator was charged to a component of time; off the clock none is."""

    def issued(self, rank: int, effect: Effect, paused: bool) -> None:
        """The rank's compute up to an effect has passed, and the effect begins; `paused`: off the clock.

        Effects that are started or waited for come as `Start` and `Wait`.
        """

    def computed(self, rank: int, component: str, start: float, end: float) -> None:
        """A stretch of compute has passed; several components of one stretch follow each other."""

    def carried_out(self, rank: int, component: str, effect: Effect, start: float, end: float, nbytes: int) -> None:
        """An effect has ended its flight, on the clock; `nbytes` is what the rank sent or copied.

        `component` is the one that blocking in it belongs to. The times are those of the whole flight, so that a
        started effect lies beside the compute that hides it.
        """

    def transfers_began(self, now: float, links: np.ndarray, nbytes: np.ndarray, latency: np.ndarray) -> None:
        """Transfers began: links int32 [transfers, width] padded with -1, bytes and seconds [transfers]."""

    def transfers_ended(self, finish: np.ndarray) -> None:
        """All transfers that began since the last call have ended, at these times [transfers]."""

    def copied(self, start: float, finish: float, link: int, nbytes: int, latency: float) -> None:
        """A copy has crossed a link that carries copies alone."""


def listeners(
    observers: Sequence[Observer], hook: Callable[Concatenate[Observer, P], None]
) -> tuple[Callable[P, None], ...]:
    """Those observers' own methods for a hook, such as `Observer.issued`, that do something."""
    name = hook.__name__
    return tuple(getattr(one, name) for one in observers if getattr(type(one), name) is not hook)


def listeners_of(
    rank: int, observers: Sequence[Observer], hook: Callable[Concatenate[Observer, int, P], None]
) -> tuple[Callable[P, None], ...]:
    """`listeners` of a hook about a rank, to be called without it."""
    return tuple(partial(call, rank) for call in listeners(observers, hook))


class TransferHooks:
    """Passes a network's transfers on to observers; implements what a network calls its watch."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._began = listeners(observers, Observer.transfers_began)
        self._ended = listeners(observers, Observer.transfers_ended)
        self._copied = listeners(observers, Observer.copied)

    @property
    def wanted(self) -> bool:
        """Whether any observer wants to know; a network that is not watched takes short cuts."""
        return bool(self._began or self._ended or self._copied)

    def begun(self, now: float, routes: np.ndarray, nbytes: np.ndarray, latency: np.ndarray) -> None:
        """Transfers begin."""
        for tell in self._began:
            tell(now, routes, nbytes, latency)

    def ended(self, finish: np.ndarray) -> None:
        """All transfers that began since the last call have ended."""
        for tell in self._ended:
            tell(finish)

    def copied(self, start: float, finish: float, link: int, nbytes: int, latency: float) -> None:
        """A copy has crossed its link."""
        for tell in self._copied:
            tell(start, finish, link, nbytes, latency)
