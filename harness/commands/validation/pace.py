"""How fast the machine was beside the runs of a study, by the trainings that its calibration was fitted to.

A virtual machine changes its speed for minutes, and what it changes most is the memory that training goes through: no
small piece of work tells. So one of these trainings, in turn, follows every run, and the pace of a run is that of the
trainings around it. None of them is of a cell.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle
from pathlib import Path

import msgspec

from harness.machine import kept_json
from sims.study.real_runs import ACCOMPANIED, TRAINED, train_again


class PaceTraining(msgspec.Struct, frozen=True):
    """One of the calibration's trainings, after a run: when (s, any clock), its number and its compute seconds."""

    at: float
    which: int
    seconds: float


def in_turn() -> Iterator[int]:
    """Numbers of the trainings, again and again."""
    return cycle(range(len(ACCOMPANIED)))


def trained_now(which: int, threads: int) -> PaceTraining:
    """Train now. Raises HaloscopeError where a rank fails."""
    return PaceTraining(time.time(), which, train_again(which, threads=threads))


def usual_seconds(folder: Path) -> list[float]:
    """Seconds of every training when the device in `folder` was calibrated; empty where that is not kept."""
    return kept_json(folder / TRAINED, list[float]) or []


def pace_of(runs: Iterable[PaceTraining], known: Sequence[PaceTraining], usual: Sequence[float]) -> float:
    """By which factor the machine was slower around some runs than when it was calibrated, geometric mean.

    Args:
        runs: the trainings after these runs.
        known: those after all runs of the study; as many as there are kinds of them count for a run, the nearest.
        usual: `usual_seconds`.
    """
    logs = []
    for run in runs:
        near = sorted(known, key=lambda each: abs(each.at - run.at))[: len(usual)]
        logs += [math.log(each.seconds / usual[each.which]) for each in near]
    return math.exp(math.fsum(logs) / len(logs))
