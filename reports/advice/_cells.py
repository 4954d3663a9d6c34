"""One training in this process, and the file that keeps what came out; a longer one goes on from a shorter one.

Only validation and test scores are kept. A file belongs to the settings, the graph, the code and the libraries that
made it, so that an advice that is stopped and asked for again repeats nothing.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.config import RunConfig
from harness.errors import HaloscopeError, InputError
from harness.machine import code_version, kept_json, write_atomically
from harness.running import Checkpoints, data_inputs, plan_of, prepare, run
from harness.running.results import environment

CHECKPOINT_EVERY = 20
"""Epochs between checkpoints, from which a training that is stopped goes on."""


@dataclass(frozen=True)
class TrainingJob:
    """A training to be carried out, in this or another process.

    Attributes:
        config: in mode loopback, with the epochs to train.
        folder: where its file and checkpoints are.
        whole: no longer training follows, so that its checkpoints can go.
    """

    config: RunConfig
    folder: Path
    whole: bool


class Training(msgspec.Struct, frozen=True):
    """What a training left.

    Attributes:
        epochs: how many were trained; fewer than asked for only where it diverged.
        scores: (epochs trained, validation score, test score) of every evaluation, in per cent.
        seconds: that all its epochs took here.
        failure: why there is no more; empty for a training that went well.
    """

    epochs: int
    scores: list[tuple[int, float, float]]
    seconds: float
    failure: str = ""

    def best(self, epochs: int | None = None) -> tuple[float, float]:
        """The best validation score of the first epochs (of all), and the test score there."""
        known = [(val, test) for at, val, test in self.scores if epochs is None or at <= epochs]
        return max(known, default=(0.0, 0.0), key=lambda pair: pair[0])

    def epochs_to(self, target: float) -> int | None:
        """Epochs until an evaluation has reached a validation score; None if none has."""
        return next((at for at, val, _ in self.scores if val >= target), None)


def key_of(config: RunConfig) -> str:
    """The name of a training's file."""
    plan = plan_of(config)
    data = [*prepare(config, plan.cut).made_of(), data_inputs(plan)]
    made_by = [environment()["versions"], code_version("harness")]
    stamp = [made_by, config.training_id(), config.run.eval_every, *data]
    return hashlib.sha256(json.dumps(stamp, sort_keys=True).encode()).hexdigest()[:32]


def kept_training(job: TrainingJob) -> Training | None:
    """The training, if it was carried out earlier for as many epochs or ended by itself."""
    try:
        path = job.folder / "trainings" / f"{key_of(job.config)}.json"
    except InputError:
        return None
    found = kept_json(path, Training)
    return found if found is not None and (found.failure or found.epochs >= job.config.training.epochs) else None


def carry_out(job: TrainingJob) -> Training:
    """Carry out a training, or what is missing of it; the file is written when it ends."""
    config, begin = job.config, time.monotonic()
    try:
        key = key_of(config)
        path, checkpoints = job.folder / "trainings" / f"{key}.json", job.folder / "checkpoints" / key
        before = _seconds_so_far(path)
        result = run(config, None, Checkpoints(checkpoints, every=CHECKPOINT_EVERY, keep=1))
    except HaloscopeError as error:
        return Training(0, [], time.monotonic() - begin, str(error))
    scores = [(e["epoch"] + 1, 100 * e["val"], 100 * (e["test"] or 0.0)) for e in result.epochs if e["val"] is not None]
    failure = "" if result.state == "done" else f"{result.state}: {result.message}"
    found = Training(len(result.epochs), scores, before + time.monotonic() - begin, failure)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, msgspec.json.encode(found), durable=False)
    if job.whole or failure:
        shutil.rmtree(checkpoints, ignore_errors=True)
    return found


def _seconds_so_far(path: Path) -> float:
    found = kept_json(path, Training)
    return found.seconds if found is not None else 0.0
