"""How many of the kept measurements (docs/validation-history.md) lie in 90 % intervals of their predictions.

    python -m benchmarks.coverage [--replays 40]
    python -m benchmarks.coverage --ablation [--calibration DIR]

The kept predictions are taken as they are. The width of each interval is that of the same cell recorded today (shapes
only where these decide its traffic), on the model of the same lab without a calibration: every measured number has the
range of its source. Ranges that a calibration states (residuals of its fits) are not in, for that of the study was not
kept.

With `--ablation`, what each mechanism of the model is worth in these cells: errors of the kept predictions times the
ratio by which leaving it out changes a prediction on a calibration of today.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from harness.config import RunConfig, parse_lab
from harness.errors import InputError
from harness.methods.registry import parse_method
from harness.running.validation import MATTERS, WORKLOADS
from sims.cluster import load_cluster, place
from sims.explain import MECHANISMS, without
from sims.replay import Replay
from sims.uncertainty import RecordedPrediction, interval_of, predicted, prediction_of

PAGE = Path(__file__).resolve().parent.parent / "docs" / "validation-history.md"
LABS = {
    "Unshaped links": "lab:2xunshaped",
    "Links of 1 Gb/s": "lab:2x1gbit",
    "Links of 100 Mb/s": "lab:2x100mbit",
}
NOW = {
    "ec-graph": "ec-graph:wire=product:tuner=pooled:requests=false",
    "sylvie-a": "sylvie-a:quantiser=inline",
}
"""What the methods of the kept rows are called now."""

COMPONENTS = ("compute", "codec", "halo", "reduce", "epoch")


class Cell(NamedTuple):
    """One kept row; milliseconds: component -> (predicted, measured)."""

    lab: str
    method: str
    graph: str
    times: dict[str, tuple[float, float]]
    left_out: bool


def kept_cells(text: str) -> list[Cell]:
    """The cells of the page."""
    found, lab = [], ""
    for line in text.splitlines():
        lab = next(
            (name for start, name in LABS.items() if line.startswith(start)), "" if line.startswith("#") else lab
        )
        row = [part.strip() for part in line.strip("|").split("|")]
        if lab and line.startswith("|") and row[1] in WORKLOADS:
            numbers = [re.sub(",", "", part) for part in row[2:7]]
            pairs = [tuple(float(side) for side in part.split(" / ")) for part in numbers]
            times = {name: (pair[0], pair[1]) for name, pair in zip(COMPONENTS, pairs, strict=True)}
            found.append(Cell(lab, row[0], row[1], times, "left out" in row[-1]))
    return found


def config_of(cell: Cell) -> RunConfig:
    """The cell's run, shapes only."""
    method = NOW.get(cell.method, cell.method)
    cuts_vertices = parse_method(method).facts.cut == "vertex"
    values = {**WORKLOADS[cell.graph], **({"partitioner": "auto"} if cuts_vertices else {})}
    return RunConfig.of(
        **values, method=method, parts=2, cluster=cell.lab, mode="sim", epochs=25, eval_every=-1, threads=1,
        shapes_only=True,
    )  # fmt: skip


def predictions(cells: Sequence[Cell], calibration: str) -> Iterator[tuple[Cell, RecordedPrediction]]:
    """The cells with their predictions today; a method is recorded once per graph."""
    recordings: dict[tuple[str, str], Replay] = {}
    for cell in cells:
        lab = replace(parse_lab(cell.lab), calibration=calibration).name
        config, placement = config_of(cell).changed(cluster=lab), place(load_cluster(lab), 2)
        key = cell.method, cell.graph
        if key not in recordings:
            try:
                recordings[key] = predicted(config, placement).replay
            except InputError:  # its traffic depends on the data
                recordings[key] = predicted(config.changed(shapes_only=False), placement).replay
        short = config.changed(epochs=int(recordings[key].recording.config["epochs"]))
        yield cell, prediction_of(short, recordings[key], placement)


def ablate(cells: Sequence[Cell], calibration: str) -> None:
    """Print the errors of the kept predictions without every mechanism, by component where it matters."""
    errors: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for cell, made in predictions(cells, calibration):
        whole = without(made, "")
        for mechanism in ("", *MECHANISMS):
            less = without(made, mechanism)
            for name in COMPONENTS:
                kept, measured = cell.times[name]
                if whole[name] and measured > MATTERS * cell.times["epoch"][1]:
                    errors[mechanism][name].append(abs(kept * less[name] / whole[name] / measured - 1))
    print(f"{'without':<42}" + "".join(f"{name:>16}" for name in COMPONENTS))
    for mechanism, found in errors.items():
        middle = {name: (np.median(found[name]), np.quantile(found[name], 0.9)) for name in COMPONENTS}
        shown = "".join(f"{f'{median:.1%}, {most:.0%}':>16}" for median, most in middle.values())
        print(f"{mechanism or 'nothing':<42}{shown}", flush=True)


def main() -> None:
    """Print a line per cell and the coverage, or the ablations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replays", type=int, default=40)
    parser.add_argument("--ablation", action="store_true")
    parser.add_argument("--calibration", default="", metavar="DIR", help="of this machine; default: the model `local`")
    options = parser.parse_args()
    replays = options.replays
    cells = [cell for cell in kept_cells(PAGE.read_text()) if not cell.left_out]
    if options.ablation:
        return ablate(cells, options.calibration)
    held: dict[str, list[bool]] = defaultdict(list)
    widths = []
    for cell, made in predictions(cells, options.calibration):
        seconds = {name: value for name, value in made.seconds({}).items() if name in COMPONENTS}
        ends = interval_of(made, seconds, replays)["seconds"]
        for name in COMPONENTS:
            kept, measured = cell.times[name]
            if seconds[name] and measured > MATTERS * cell.times["epoch"][1]:
                low, high = (kept * end / seconds[name] for end in ends[name])
                held[name].append(low <= measured <= high)
        low, high = (end / seconds["epoch"] - 1 for end in ends["epoch"])
        widths.append((low, high))
        off = cell.times["epoch"][1] / cell.times["epoch"][0] - 1
        mark = "in" if held["epoch"][-1] else "OUT"
        print(
            f"{cell.lab:<16}{cell.graph:<10}{cell.method:<28}{off:+7.1%} of {low:+.1%} .. {high:+.1%}  {mark}",
            flush=True,
        )
    low, high = np.median(np.asarray(widths), axis=0)
    print(f"\n{len(cells)} cells; the median interval of an epoch is {low:+.1%} .. {high:+.1%}")
    for name, inside in held.items():
        print(f"{name:<10}{sum(inside)} of {len(inside)} measured times in the interval ({np.mean(inside):.0%})")


if __name__ == "__main__":
    main()
