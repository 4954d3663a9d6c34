"""What `benchmarks.soak` calls growth, on made-up samples; and that it samples a process."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks import soak
from benchmarks.soak import LEAST, Sample, Soaked, bytes_of, drift, growth, kept, line_of, sample
from harness.running.results import RankEpoch

EVERY = 20
"""Epochs from one sample to the next, as in 2,000 epochs."""


def samples(slope: float, noise: float, threads: int = 0, files: int = 0, step: float = 0.0) -> list[Sample]:
    """100 of them; a rank fills its heap in the first half. `slope`: bytes per epoch; `step`: bytes at once."""
    dice = random.Random(1)
    memory = [
        1e8 + min(at, 50) * 1e6 + slope * EVERY * at + step * (at > 80) + dice.gauss(0, noise) for at in range(100)
    ]
    return [Sample(EVERY * at, int(has), 9 + threads * at, 20 + files * at) for at, has in enumerate(memory)]


@pytest.mark.parametrize(
    ("found", "flat"),
    [
        (samples(0, 0), True),
        (samples(0, 3e6), True),
        (samples(LEAST / 1200, 0), True),
        (samples(1024, 1e5), False),
        (samples(0, 1e4, step=4e6), True),
        (samples(0, 0, threads=1), False),
        (samples(0, 0, files=1), False),
        (samples(-1e3, 0), True),
    ],
)
def test_growth_is_told_from_noise(found: list[Sample], flat: bool) -> None:
    """A leak of 1 kB an epoch is; a step, such as that of a heap that is laid out anew, is none."""
    assert growth(found).flat == flat, growth(found)


def test_one_more_thread_of_a_pool_is_a_step() -> None:
    late = [each._replace(threads=each.threads + (at > 88)) for at, each in enumerate(samples(0, 0))]
    assert growth(late).flat
    assert growth(samples(0, 0, threads=1)).threads == 25, "one every 20 epochs"
    assert not growth([each._replace(threads=9 + at // 20) for at, each in enumerate(samples(0, 0))]).flat


def test_the_records_of_epochs_may_be_kept_and_nothing_else() -> None:
    assert growth(samples(2000, 1e4), 2000).flat
    assert not growth(samples(2000 + 1024, 1e4), 2000).flat


def test_a_record_has_the_bytes_of_what_it_holds() -> None:
    record = RankEpoch(3, 0.5, {"compute": 0.1}, {"forward": {1: 4096}}, bytes(16), None, 1 << 40)
    assert bytes_of([record, record]) > 2 * bytes_of(record) > 2 * bytes_of(record.layers) > 0
    assert bytes_of(0.5) == 32 > sys.getsizeof(0.5), "blocks of 16 bytes"
    assert bytes_of("text") == bytes_of(None) == bytes_of(7) == 0 < bytes_of(1 << 40)


def epochs(cost: Callable[[int], float], load: Callable[[int], float] = lambda at: 1.0) -> list[Sample]:
    """Samples of a rank whose epoch takes `cost` ms, on a machine that makes all work `load` times as long."""
    dice, cpu, found = random.Random(2), 0.0, []
    for at in range(100):
        found.append(Sample(EVERY * at, 10**8, 9, 20, cpu, 1e-4 * load(at) * dice.uniform(1, 1.1)))
        cpu += EVERY * cost(at) * 1e-3 * load(at) * dice.uniform(1, 1.15)
    return found


@pytest.mark.parametrize(
    ("found", "longer"),
    [
        (epochs(lambda _: 20), False),
        (epochs(lambda _: 20, lambda at: 1 + 0.5 * (at > 70)), False),
        (epochs(lambda at: 20 * (1 + 0.3 * (40 < at < 60))), False),
        (epochs(lambda at: 20 * (1 + at / 250)), True),
        (epochs(lambda at: 20 * (1 + at / 250), lambda at: 1 + 0.5 * (at < 30)), True),
    ],
    ids=["steady", "other work later", "other work for a while", "a list that is scanned", "beside work that ends"],
)
def test_epochs_that_get_longer_are_told_from_a_loaded_machine(found: list[Sample], longer: bool) -> None:
    ratio, allowed = drift(found)
    assert (ratio > allowed) == longer, (ratio, allowed)


@pytest.mark.alone
def test_a_list_that_is_scanned_every_epoch_is_found() -> None:
    """Real work of this process: its epochs take longer, and those without the scan do not."""

    def soaked(scan: bool) -> list[Sample]:
        found, grown = [], list[int]()
        for at in range(120):
            found.append(sample(os.getpid(), at))
            for _ in range(4):
                sum(range(12_000))
            grown += range(150)
            if scan:
                for _ in range(4):
                    sum(grown)
        return found

    def longer(scan: bool) -> bool:
        ratio, allowed = drift(soaked(scan))
        return ratio > allowed

    # Other work on the machine can hide either once; a drift of its own, and none, come back.
    assert any(longer(scan=True) for _ in range(4))
    assert any(not longer(scan=False) for _ in range(4))


def test_what_was_sampled_is_kept_and_judged_anew(tmp_path: Path) -> None:
    state, done = tmp_path / "state.jsonl", Soaked([samples(4096, 1e4), samples(0, 1e4)], 100.0)
    state.write_text(json.dumps({"method": "vanilla", "epochs": 2000, "parts": 2, **asdict(done)}) + "\n")
    assert kept(state, 2000, 2) == {"vanilla": done}
    with state.open("a") as stream:
        stream.write('{"method": "sar", "epo')
    assert kept(state, 2000, 2) == {"vanilla": done}
    assert kept(state, 1000, 2) == kept(None, 2000, 2) == kept(tmp_path / "none", 2000, 2) == {}
    assert "GROWS" in line_of("vanilla", kept(state, 2000, 2)["vanilla"].growth())
    assert "GROWS" not in line_of("vanilla", Soaked([samples(0, 1e4)], 0.0).growth())


def test_a_process_is_sampled() -> None:
    before = sample(os.getpid(), 3)
    with open(os.devnull):
        now = sample(os.getpid(), 4)
    assert now.files == before.files + 1 and now.epoch == 4
    assert before.memory > 1 << 20 and before.threads >= 1
    assert now.cpu_s > before.cpu_s > 0 and before.reference_s > 0


LONGER, STEADY = epochs(lambda at: 20 * (1 + at / 250)), epochs(lambda _: 20)


@pytest.mark.parametrize(
    ("runs", "code"),
    [
        ([[STEADY]], 0),
        ([[LONGER], [STEADY]], 0),
        ([[LONGER], [LONGER]], 1),
        ([[samples(1024, 1e5)]], 1),
    ],
    ids=["flat", "other work", "its own", "memory comes first"],
)
def test_epochs_that_get_longer_must_do_so_twice(
    runs: list[list[list[Sample]]], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, made = tmp_path / "state.jsonl", iter(runs)
    monkeypatch.setattr("sys.argv", ["soak", "--epochs", "2000", "--methods", "vanilla", "--state", str(state)])
    monkeypatch.setattr(soak, "soak", lambda *_: Soaked(next(made), 0.0))
    assert soak.main() == code and not list(made)
    assert soak.main() == code, "what is in the file is not made anew"
    assert kept(state, 2000, 2)["vanilla"].second == (len(runs) == 2)
