"""`haloscope explain`: where a predicted epoch comes from, which inputs it depends on, and what measuring them buys.

A few epochs of the run are recorded; everything else is replays of that recording.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.commands.arguments import config_of, settings_given
from harness.commands.shared.cells import deliver, json_target, writable
from harness.commands.shared.tables import table
from harness.config import RunConfig, from_record
from harness.console import count_progress, progress_of
from harness.errors import InputError
from harness.numbers import significant, time_unit
from harness.running import results
from harness.running.alike import preset_notes
from harness.running.intervals import epoch_ends
from reports.draw import timeline
from sims.explain import STEP, CriticalPath, Influence, critical_path, influences, replays_of_influences
from sims.replay import refusal, traced
from sims.study import open_driver
from sims.uncertainty import Draws, RecordedPrediction, left_open_on, predicted, recorded_epochs, replays_for

SHOWN = 12
"""Inputs of the table; the JSON has all."""

SAID = 3
"""Inputs that sentences name."""

LITTLE = 0.0005
"""Relative change of an epoch below which an input is not named."""


@dataclass(frozen=True)
class Explanation:
    """What was found about a predicted epoch; seconds.

    Attributes:
        epochs: how many the path covers.
        interval: 90 % of the epoch.
        large: which ranks do not fit their devices, as a message; empty if all do.
    """

    prediction: RecordedPrediction
    seconds: dict[str, float]
    interval: tuple[float, float]
    path: CriticalPath
    epochs: int
    inputs: list[Influence]
    large: str = ""


def main(args: argparse.Namespace) -> int:
    """Record, follow the critical path, replay with changed inputs, say what was found."""
    config = _config(args)
    writable(args.out, folder=False)
    json_target(args.json)
    driver = open_driver(config)
    count = replays_for(config.cut.parts, args.replays)
    if not count:
        raise InputError("no replays, so that nothing would say which inputs matter: give --replays 8 or more")
    with progress_of(f"recording {config.training.method}", recorded_epochs(config), args.quiet) as progress:
        prediction = predicted(config, driver.placement, progress)
    if prediction.replay.recording.timed:
        raise refusal(config.training.method)
    trace = traced(prediction.replay, driver.cluster)
    window = timeline.after_first_epoch(trace)
    path = critical_path(trace, window)
    epochs = max(prediction.config.training.epochs - 1, 1)
    draws = Draws(count)
    replays = 1 + count + replays_of_influences(prediction, count)
    with count_progress(f"replays of {config.training.method}", replays, args.quiet) as replayed:
        watched = replace(prediction, replayed=replayed)
        seconds = watched.seconds({})
        drawn = np.asarray([each["epoch"] for each in watched.draws(draws)])
        interval = epoch_ends(drawn, seconds["epoch"], left_open_on(driver.cluster))
        moved = influences(watched, draws)
    large = str(prediction.replay.time(prediction.cluster).simulation.too_large)
    found = Explanation(prediction, seconds, interval, path, epochs, moved, large)
    written = []
    if args.out is not None:
        method, cluster = config.training.method, driver.cluster.name
        trace.facts["title"] = f"{method} on {config.cut.parts} ranks of {cluster}; black: the critical path"
        args.out.parent.mkdir(parents=True, exist_ok=True)
        written.append(f"written: {timeline.timeline(trace, args.out, window, _line(path))}")
    said = explanation_lines(found)
    notes = [f"note: {note}" for note in preset_notes(config.cluster.name)]
    deliver(content(found, said), [*said, *_tables(found), *notes, *written], args.json, args.quiet)
    return 0


def _config(args: argparse.Namespace) -> RunConfig:
    """The config of a result file, or of the flags. Raises InputError for both, and a run without modelled times."""
    if args.run is None:
        args.mode = "sim"  # before the config is checked: it may be shapes only
        return config_of(args)
    if given := settings_given(args):
        flags = ", ".join(f"--{key.replace('_', '-')}" for key in sorted(given))
        raise InputError(f"{args.run} says what was run, so that {flags} would change nothing: give one or the other")
    record = results.load_result(args.run)
    config = from_record(record["config"], source=args.run.name)
    if config.run.mode != "sim":
        raise InputError(
            f"{args.run}: a run in mode {config.run.mode}; predictions (--mode sim) are explained, "
            "and haloscope trace shows where measured time goes"
        )
    return config


def _line(path: CriticalPath) -> list[tuple[int, float, float, str]]:
    return [(step.rank, step.start_s, step.end_s, step.component) for step in path.steps]


def explanation_lines(found: Explanation) -> list[str]:
    """What was found, in plain sentences."""
    epoch, (low, high) = found.seconds["epoch"], found.interval
    factor, unit = time_unit([epoch])
    method = found.prediction.config.training.method
    span = f"{significant(low * factor)} to {significant(high * factor)} {unit}"
    said = [f"an epoch of {method} takes {significant(epoch * factor)} {unit}; 90 %: {span}"]
    if found.large:
        said.append(f"it does not fit: {found.large}")
    whole = found.path.seconds or 1.0
    parts = [f"{100 * s / whole:.0f} % {name}" for name, s in found.path.by("component").items() if s > 0.005 * whole]
    ranks = found.path.by("rank")
    most = next(iter(ranks), "0")
    said.append(
        f"its critical path is {', '.join(parts)}; it passes from rank to rank "
        f"{significant(found.path.changes / found.epochs, 2)} times an epoch and is longest on rank {most} "
        f"({100 * ranks.get(most, 0.0) / whole:.0f} %)"
    )
    links = found.path.by("link")
    if links:
        total = sum(links.values())
        shares = [f"{100 * s / total:.0f} % {name}" for name, s in links.items()]
        said.append(f"exchanges on it ({100 * total / whole:.0f} % of it) take as long as: {', '.join(shares)}")
    moving = sorted((each for each in found.inputs if abs(each.change) > LITTLE), key=lambda each: -abs(each.change))
    for each in moving[:SAID]:
        said.append(f"+{STEP:.0%} {_named(each)}: {100 * each.change:+.1f} % epoch")
    left = 1 - sum(each.share for each in found.inputs)
    said.append(f"what the model left open in cells that it had not seen is {100 * left:.0f} % of the variance")
    return [*said, *_worth(found)]


def _worth(found: Explanation) -> list[str]:
    """What measuring the inputs buys that widen the interval most."""
    whole = found.interval[1] - found.interval[0]
    tried = [(each, each.without) for each in found.inputs if each.without is not None]
    better = [(each, held) for each, held in tried if held[1] - held[0] < 0.98 * whole]
    better.sort(key=lambda row: row[1][1] - row[1][0])
    if not better:
        return ["no single input, known exactly, would narrow the interval by 2 %"]
    now = _relative(found.interval, found.seconds["epoch"])
    return [
        f"knowing {_named(each)} exactly would narrow the interval from {now} to "
        f"{_relative(held, found.seconds['epoch'])}"
        for each, held in better[:SAID]
    ]


def _named(each: Influence) -> str:
    what = each.input
    return f"{what.name} ({what.value}, {what.source})"


def _relative(interval: tuple[float, float], epoch: float) -> str:
    low, high = (100 * (end / epoch - 1) for end in interval)
    return f"{low:+.0f} .. {high:+.0f} %"


def _tables(found: Explanation) -> list[Any]:
    epoch = found.seconds["epoch"]
    factor, unit = time_unit([epoch])
    whole = found.path.seconds or 1.0

    def rows(kind: str, values: Mapping[str, float]) -> list[list[str]]:
        each = 1 / found.epochs
        return [[f"{kind} {n}", significant(s * each * factor), f"{100 * s / whole:.1f}"] for n, s in values.items()]

    path = rows("component", found.path.by("component")) + rows("link", found.path.by("link"))
    path += rows("rank", dict(list(found.path.by("rank").items())[:SHOWN]))
    inputs = [
        [
            each.input.name,
            each.input.value,
            each.input.source,
            f"x{each.input.low:.2f} to x{each.input.high:.2f}",
            "-" if each.input.is_scatter else f"{100 * each.change:+.1f} %",
            f"{100 * each.share:.0f} %",
            "-" if each.without is None else _relative(each.without, epoch),
        ]
        for each in found.inputs[:SHOWN]
    ]
    heading = ["input", "value", "source", "90 % range", f"+{STEP:.0%}: epoch", "of the variance", "interval without"]
    return [
        table("", ["critical path, of an epoch", unit, "%"], path),
        table("", heading, inputs, left=3),
    ]


def content(found: Explanation, said: Sequence[str]) -> dict[str, Any]:
    """The JSON: seconds of an epoch, its path per epoch, all inputs, and the sentences."""
    path = {
        f"{name}s": {key: s / found.epochs for key, s in found.path.by(name).items()}
        for name in ("component", "link", "rank")
    }
    return {
        "method": found.prediction.config.training.method,
        "cluster": found.prediction.cluster.name,
        "seconds": found.seconds,
        "interval": list(found.interval),
        "critical_path": {**path, "changes": found.path.changes / found.epochs},
        "inputs": [
            {
                "name": each.input.name,
                "value": each.input.value,
                "from": each.input.source,
                "range": [each.input.low, each.input.high],
                "basis": each.input.basis,
                "step": STEP,
                "change": None if each.input.is_scatter else each.change,
                "share": each.share,
                "interval_without": None if each.without is None else list(each.without),
            }
            for each in found.inputs
        ],
        "said": list(said),
    }
