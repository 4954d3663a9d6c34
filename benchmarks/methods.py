"""Every method once: is it the same in all drivers, and what does it cost in accuracy on real graphs?

    python -m benchmarks.methods [--graphs cora,amazon_computers] [--seeds 5] [--epochs 60] [--parts 4] [--only NAME]

Drivers: three epochs of two ranks on a synthetic graph, in loopback, on the modelled cluster, and as gloo processes:
losses must be equal bit for bit and bytes one by one. Accuracy: GraphSAGE, 2 x 64, in loopback runs with as many parts,
mean over the seeds, and the difference from one device on the same seeds with its 95 % interval (Student's, pairs of
seeds). Methods have their typical options (`harness.methods.registry.typical_methods`); every one is trained for as
many epochs, so those that take many steps an epoch are further on. HALOSCOPE_DATA must be set. Exits with 1 where
drivers differ.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.table import Table

from harness.config import RunConfig
from harness.console import stdout
from harness.errors import HaloscopeError
from harness.machine import Died, map_on_processes
from harness.methods.registry import typical_methods
from harness.numbers import duration
from harness.running import run
from reports.statistics import estimate

LAYERS = 2
SHAPE = {"model": "sage", "layers": LAYERS, "hidden": 64, "lr": 0.01, "threads": 1}
GRAPHS: dict[str, dict[str, Any]] = {
    "cora": {"split": "counts:1408/300/1000", "features": "row"},
    "amazon_computers": {"split": "random:0.6/0.2/0.2", "features": "standard"},
}
SMALL = {"dataset": "synthetic:nodes=300,degree=8,classes=4,features=12,seed=1", "hidden": 10, "epochs": 3, "parts": 2}
Mode = Literal["loopback", "sim", "real"]


@dataclass(frozen=True)
class Cell:
    """One method's accuracy on one graph with one seed."""

    method: str
    graph: str
    seed: int
    epochs: int
    parts: int

    def config(self) -> RunConfig:
        """Its run; `single` has one part."""
        parts = 1 if self.method == "single" else self.parts
        return RunConfig.of(
            dataset=self.graph, **GRAPHS[self.graph], **SHAPE, method=self.method, seed=self.seed, epochs=self.epochs,
            parts=parts, eval_every=2,
        )  # fmt: skip


def trained(cell: Cell) -> float | str:
    """Test accuracy at the best validation, in per cent, or why there is none."""
    try:
        record = run(cell.config()).to_dict()
    except HaloscopeError as error:
        return str(error)
    score = record["summary"]["test_at_best_val"]
    return record["state"] if score is None or record["state"] != "done" else 100 * float(score)


def drivers(method: str) -> tuple[str, str]:
    """Whether losses and bytes of (the model, real processes) equal those of loopback: "yes" or what differs."""
    base = outcome(method, "loopback")
    return difference(base, outcome(method, "sim")), difference(base, outcome(method, "real"))


def outcome(method: str, mode: Mode) -> Mapping[str, list[Any]]:
    """Losses and bytes of every epoch of a small run."""
    more: dict[str, Any] = {"cluster": "ethernet-1g"} if mode == "sim" else {}
    shape = {**SHAPE, **SMALL, "parts": 1 if method == "single" else SMALL["parts"]}
    epochs = run(RunConfig.of(**shape, method=method, mode=mode, **more)).to_dict()["epochs"]
    bytes_of = [{name: sent for name, sent in epoch["bytes"].items() if name != "tiers"} for epoch in epochs]
    return {"losses": [epoch["loss"] for epoch in epochs], "bytes": bytes_of}  # tiers name what carries them


def difference(base: Mapping[str, list[Any]], other: Mapping[str, list[Any]]) -> str:
    """ "yes" where two outcomes are equal, otherwise which of their parts differ."""
    return ", ".join(f"{name} differ" for name in base if base[name] != other[name]) or "yes"


def accuracies(cells: Sequence[Cell], jobs: int) -> dict[Cell, float | str]:
    """The scores of all cells, with the time left as they come."""
    begin, found = time.monotonic(), dict[Cell, float | str]()
    for cell, score in map_on_processes(trained, cells, jobs, lambda _: True):
        found[cell] = score.why if isinstance(score, Died) else score
        left = (time.monotonic() - begin) / len(found) * (len(cells) - len(found))
        print(f"{len(found)}/{len(cells)} {cell.method}, {cell.graph}, seed {cell.seed}: {found[cell]}; about "
              f"{duration(left)} left", file=sys.stderr, flush=True)  # fmt: skip
    return found


def beside_one_device(scores: Mapping[Cell, float | str], method: str, graph: str) -> tuple[str, str]:
    """A method's mean score on a graph, and its difference from one device's with the interval."""
    pairs = [
        (score, scores[other])
        for cell, score in scores.items() if (cell.method, cell.graph) == (method, graph)
        for other in scores if (other.method, other.graph, other.seed) == ("single", graph, cell.seed)
    ]  # fmt: skip
    lost = [score for score, _ in pairs if isinstance(score, str)]
    if lost:
        return lost[0], ""
    ours = [float(score) for score, _ in pairs]
    gaps = estimate([float(score) - float(alone) for score, alone in pairs])
    mean = f"{sum(ours) / len(ours):.1f}"
    if method == "single":
        return mean, "0"
    return mean, f"{gaps.mean:+.2f}" + (f" ± {gaps.half_width():.2f}" if gaps.count > 1 else "")


def table(
    methods: Iterable[str], same: Mapping[str, tuple[str, str]], scores: Mapping[Cell, float | str], graphs: list[str]
) -> Table:
    """One row for each method."""
    columns = [f"{graph}{what}" for graph in graphs for what in (" (%)", " - single")]
    shown = Table("method", "sim = loopback", "real = loopback", *columns)
    for method in methods:
        values = [text for graph in graphs for text in beside_one_device(scores, method, graph)]
        shown.add_row(method, *same[method], *values)
    return shown


def main() -> int:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--graphs", default=",".join(GRAPHS))
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--epochs", type=int, default=60)
    options.add_argument("--parts", type=int, default=4)
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--only", default="", help="names of methods with commas between, beside single")
    given = options.parse_args()
    wanted, graphs = [name for name in given.only.split(",") if name], given.graphs.split(",")
    methods = [m for m in typical_methods(LAYERS) if not wanted or m.partition(":")[0] in wanted]
    methods = ["single", *methods]
    same = {method: drivers(method) for method in methods}
    cells = [
        Cell(method, graph, seed, given.epochs, given.parts)
        for graph in graphs for seed in range(given.seeds) for method in methods
    ]  # fmt: skip
    scores = accuracies(cells, given.jobs)
    setting = f"GraphSAGE {LAYERS} x {SHAPE['hidden']}, {given.parts} parts, {given.epochs} epochs, {given.seeds} seeds"
    print(f"{setting}; accuracy in %, differences in points")
    stdout().print(table(methods, same, scores, graphs))
    return 0 if {text for both in same.values() for text in both} == {"yes"} else 1


if __name__ == "__main__":
    sys.exit(main())
