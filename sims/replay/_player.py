"""Replays what a rank did on its clock: whole runs for `_replay`, single epochs for `_repeats`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from harness.effects import AllToAll, Background, Conversion, Effect, Handle, Start, Wait
from harness.rank import COMPONENTS
from harness.trampoline import Finished
from sims.engine import SimClock
from sims.replay._notation import BEGIN, COMPUTE, END, START, START_BESIDE, WAIT, Action


@dataclass(frozen=True)
class Stretch:
    """A stretch of compute.

    Attributes:
        sums: (component, device seconds, launches), in order of first charge.
        runs: (component, device seconds) in the order in which its operators ran; those of one component that follow
            each other are one run.
    """

    sums: tuple[tuple[str, float, float], ...]
    runs: tuple[tuple[str, float], ...]


Playback = Generator[Effect, list[Any], list[dict[str, float]]]
"""Yields effects, receives their results, and returns the seconds of the epochs."""


def replay_actions(
    actions: Iterable[Action],
    effect_of: Callable[[int], Effect],
    charge: Callable[[int], None],
    clock: SimClock,
    pause: Callable[[bool], None],
    beside: Callable[[int], Effect] | None = None,
) -> Playback:
    """Replay the actions of a rank.

    Args:
        effect_of: returns the effect with a number.
        charge: charges the stretch of compute with a number.
        pause: takes the rank off the clock, and back onto it.
        beside: returns the background exchange with a number; None where there are none.
    """
    handles: list[Handle] = []
    epochs: list[dict[str, float]] = []
    for code, about, paused in actions:
        if code == COMPUTE:
            charge(about)
        elif code == BEGIN:
            clock.begin_epoch()
        elif code == END:
            epochs.append(clock.end_epoch())
        else:
            if paused:
                pause(True)
            if code == WAIT:
                handle = handles[about]
                yield Wait(tag=handle.effect.tag, handle=handle)
            elif code in (START, START_BESIDE):
                effect = effect_of(about) if beside is None or code == START else beside(about)
                handles.append((yield Start(tag=effect.tag, effect=effect)).pop())
            else:
                yield effect_of(about)
            if paused:
                pause(False)
    return epochs


def folded(stretch: bytes, seconds: np.ndarray, launches: np.ndarray) -> Stretch:
    """A stretch's sums by component, added in the order in which a clock adds them, and its runs.

    Args:
        seconds, launches: of each work, float64 [works].
    """
    sums = []
    components, works = np.frombuffer(stretch, np.int32).reshape(-1, 2).T
    for component in dict.fromkeys(components.tolist()):
        mine = works[components == component]
        busy, host = (float(np.cumsum(each[mine])[-1]) for each in (seconds, launches))
        sums.append((COMPONENTS[component], busy, host))
    if len(sums) == 1:
        return Stretch(tuple(sums), ((sums[0][0], sums[0][1]),))
    begins = np.flatnonzero(np.diff(components, prepend=-1))
    each_run = zip(components[begins].tolist(), np.add.reduceat(seconds[works], begins).tolist(), strict=True)
    return Stretch(tuple(sums), tuple((COMPONENTS[component], busy) for component, busy in each_run))


def charge(clock: SimClock, stretch: Stretch) -> None:
    """Charge a stretch to a clock, as its operators were."""
    for clock.kind, seconds, launches in stretch.sums:
        clock.charge(seconds, launches, ran=False)
    clock.kind = "compute"
    for component, seconds in stretch.runs:
        clock.ran(component, seconds)


def replayed(exchange: AllToAll, before: Stretch, after: Stretch, charge: Callable[[float, float], None]) -> Background:
    """A background exchange whose conversion charges what was recorded.

    Args:
        charge: charges seconds and launches to the conversion that runs.
    """

    def encode() -> tuple[Tensor, ...]:
        for _, seconds, launches in before.sums:
            charge(seconds, launches)
        return exchange.tensors()

    def decode(received: object) -> Any:
        for _, seconds, launches in after.sums:
            charge(seconds, launches)

    return Background(tag=exchange.tag, parts=exchange.parts, conversion=Conversion(encode, decode, ()))


class Player:
    """A playback in place of a rank's program; implements the interface that `sims.engine.Simulator` steps."""

    def __init__(self, playback: Playback) -> None:
        self._playback = playback

    def step(self, results: list[Any] | None = None) -> Effect | Finished:
        """Resume with the last effect's result, in a list; returns the next effect, or the end."""
        try:
            return self._playback.send(results)  # type: ignore[arg-type]  # None starts a generator
        except StopIteration as stop:
            return Finished(stop.value)

    def close(self) -> None:
        """End the playback."""
        self._playback.close()
