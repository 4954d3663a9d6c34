"""What `benchmarks.soak` calls growth, on made-up samples; and that it samples a process."""

from __future__ import annotations

import os
import random

import pytest

from benchmarks.soak import LEAST, Sample, drift, growth, sample


def samples(slope: float, noise: float, threads: int = 0, files: int = 0) -> list[Sample]:
    """100 of them; a rank fills its heap in the first half."""
    dice = random.Random(1)
    return [
        Sample(at, int(1e8 + min(at, 50) * 1e6 + slope * at + dice.gauss(0, noise)), 9 + threads * at, 20 + files * at)
        for at in range(100)
    ]


@pytest.mark.parametrize(
    ("found", "flat"),
    [
        (samples(0, 0), True),
        (samples(0, 3e6), True),
        (samples(LEAST / 60, 0), True),
        (samples(LEAST / 20, 1e4), False),
        (samples(0, 0, threads=1), False),
        (samples(0, 0, files=1), False),
        (samples(-1e5, 0), True),
    ],
)
def test_growth_is_told_from_noise(found: list[Sample], flat: bool) -> None:
    assert growth(found).flat == flat, growth(found)


def computing(slower: float, machine: float = 0.0) -> list[Sample]:
    """400 samples whose epochs take `slower` more at the end; of a machine that is `machine` slower by then."""
    cpu, found = 0.0, []
    for at in range(400):
        pace = 1 + machine * at / 400
        cpu += (1.0 + 0.01 * (at % 5)) * (1 + slower * at / 400) * pace
        found.append(Sample(at, 1, 1, 1, cpu, pace))
    return found


@pytest.mark.parametrize(("slower", "machine", "told"), [(0.0, 0.0, False), (1.0, 0.0, True), (0.0, 1.0, False)])
def test_epochs_that_get_slower_are_told(slower: float, machine: float, told: bool) -> None:
    ratio, allowed = drift(computing(slower, machine))
    assert (ratio > allowed) == told
    assert told or ratio == pytest.approx(1.0, abs=0.02)


def test_a_process_is_sampled() -> None:
    before = sample(os.getpid(), 3)
    with open(os.devnull):
        now = sample(os.getpid(), 4)
    assert now.files == before.files + 1 and now.epoch == 4
    assert before.memory > 1 << 20 and before.threads >= 1
