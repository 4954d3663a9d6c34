"""Fits stand-ins: designs say what is set and searched; the result is a file of `harness/datasets/standins`.

Every evaluation trains the two methods of the design with some seeds, each on a graph of its own. Lines of finished
runs are kept, so that a search that was stopped goes on by asking for the same points again.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness import keys
from harness.datasets import STANDINS, FitRecord, FittedScore
from harness.errors import InputError, unknown
from harness.machine import write_atomically
from reports.core.context import Context
from reports.statistics import FEWEST_SEEDS, Estimate, estimate
from reports.study._cells import StudyCell, line_score
from reports.study._printed import printed_score, source
from reports.study._runs import BUDGET_SPENT, Runs
from reports.study._search import FreeParameter, Goal, Point, nearest_point, proposed

DESIGNS = Path(__file__).with_name("designs") / "standins.toml"
SHARED = {"threads": 1, "eval_every": 5, "partitioner": "metis-cut"}
"""Settings of every run of a stand-in, unless the design or a claim has others."""
TRAIN_SHARE, MODEL_WIDTH = "train", "hidden"


@dataclass(frozen=True, kw_only=True)
class Aim:
    """A method, and the row of the design's table that prints its score."""

    method: str = keys.key("the method that is trained")
    where: dict[str, Any] = keys.key("column -> value of the row that prints its score")


@dataclass(frozen=True, kw_only=True)
class Design:
    """A stand-in to be fitted."""

    paper: str = keys.key("the paper whose scores are fitted")
    table: str = keys.key("the published table that prints them")
    note: str = keys.key("what differs from the paper's set-up")
    graph: dict[str, Any] = keys.key("parameters of the graph that are set")
    search: dict[str, list[float]] = keys.key("the two parameters that are searched: lowest, first and highest value")
    training: dict[str, Any] = keys.key("settings of the runs")
    full: Aim = keys.key("exact training")
    isolated: Aim = keys.key("training that is cut off")

    @property
    def knobs(self) -> tuple[FreeParameter, FreeParameter]:
        """The two parameters that are searched."""
        first, second = (FreeParameter(name, *values) for name, values in self.search.items())
        return first, second

    @property
    def goal(self) -> Goal:
        """The two printed scores."""
        return Goal((printed_score(self.table, self.full.where), printed_score(self.table, self.isolated.where)))

    def settings(self, values: Mapping[str, float], method: str, seed: int, scale: float = 1.0) -> dict[str, Any]:
        """A run at some values of the parameters; a seed draws the graph, its split and everything of the training.

        `values` may also have the share of training nodes (`TRAIN_SHARE`) and the width of the model (`MODEL_WIDTH`).
        """
        graph = {key: value for key, value in self.graph.items() if key not in ("standin", "split")}
        graph |= {key: value for key, value in values.items() if key not in (TRAIN_SHARE, MODEL_WIDTH)}
        graph |= {"nodes": round(graph["nodes"] * scale), "seed": seed}
        described = ",".join(f"{key}={value:g}" for key, value in graph.items())
        train, val, test = self.graph["split"]
        train = values.get(TRAIN_SHARE, train)
        split = "random:" + "/".join(f"{share:g}" for share in (train, val, min(test, 1 - train - val)))
        settings = {**SHARED, **self.training, "dataset": f"synthetic:{described}", "split": split, "method": method}
        if MODEL_WIDTH in values:
            settings["hidden"] = round(values[MODEL_WIDTH])
        return {**settings, "seed": seed, **({"parts": 1} if method == "single" else {})}


@cache
def designs(path: Path = DESIGNS) -> dict[str, Design]:
    """Every design by name."""
    return {
        name: keys.convert(table, Design, f"design {name}") for name, table in tomllib.loads(path.read_text()).items()
    }


def design_of(name: str) -> Design:
    """A design. Raises InputError for an unknown name."""
    if name not in designs():
        raise unknown("stand-in", name, designs())
    return designs()[name]


@dataclass
class Fitting:
    """The search for one stand-in.

    Attributes:
        seeds: per point while searching; the point that is close enough is trained with `FEWEST_SEEDS` at least.
        evaluations: points at most.
        scale: of the number of nodes.
    """

    name: str
    runs: Runs
    seeds: int = 3
    evaluations: int = 12
    scale: float = 1.0

    def __post_init__(self) -> None:
        self.design = design_of(self.name)
        self.points: list[Point] = []

    def cells(self, values: tuple[float, float], seeds: int) -> dict[str, list[StudyCell]]:
        """The runs of one point, by what they are of."""
        named = {knob.name: value for knob, value in zip(self.design.knobs, values, strict=True)}
        aims = {"full": self.design.full, "isolated": self.design.isolated}
        return {
            what: [StudyCell(self.design.settings(named, aim.method, seed, self.scale)) for seed in range(seeds)]
            for what, aim in aims.items()
        }

    def search(self) -> bool:
        """Evaluate points until one is close enough, or the budget or the evaluations end; returns the former.

        Raises:
            InputError: a run failed, so that a point has no score.
        """
        goal = self.design.goal
        while True:
            close = [point for point in self.points if goal.distance(point.scores) <= 1]
            if close and self._confirmed(close[0]):
                return True
            if len(self.points) >= self.evaluations:
                return False
            values = proposed(self.points, self.design.knobs, goal)
            if values is None or not self._evaluate(values, self.seeds):
                return False

    def _confirmed(self, point: Point) -> bool:
        """Whether a point is still close enough with more seeds; its scores are those then."""
        again = self._evaluate(point.values, max(self.seeds, FEWEST_SEEDS))
        return again and self.design.goal.distance(self.points[-1].scores) <= 1

    def _evaluate(self, values: tuple[float, float], seeds: int) -> bool:
        """Train a point, in place of an earlier one with equal values; False where the budget ended first."""
        cells = self.cells(values, seeds)
        if not self.runs.make([cell for each in cells.values() for cell in each]):
            failed = [why for why in self.runs.failures.values() if why != BUDGET_SPENT]
            if failed:
                raise InputError(f"stand-in {self.name}: {failed[0]}")
            return False
        found = self.scores(values, seeds)
        self.points = [point for point in self.points if point.values != values]
        self.points.append(Point(values, (found["full"].mean, found["isolated"].mean)))
        goal, named = self.design.goal, [knob.name for knob in self.design.knobs]
        at = ", ".join(f"{name} {value:g}" for name, value in zip(named, values, strict=True))
        ours, said = self.points[-1].scores, ("full", self.design.isolated.method)
        scores = ", ".join(
            f"{what} {score:.2f} (printed {printed:.2f})"
            for what, score, printed in zip(said, ours, goal.scores, strict=True)
        )
        self.runs.say(f"point {len(self.points)}: {at}: {scores}; {goal.distance(ours):.2f} of what counts as reached")
        return True

    def scores(self, values: tuple[float, float], seeds: int) -> dict[str, Estimate]:
        """Scores of a point that was trained."""
        cells = self.cells(values, seeds)
        lines = {what: [self.runs.store.finished(cell) for cell in each] for what, each in cells.items()}
        return {what: estimate([line_score(line) for line in each if line]) for what, each in lines.items()}

    def _codes(self, values: tuple[float, float], seeds: int) -> list[str]:
        """The hashes of the code that trained a point; several where it changed during the search."""
        lines = [self.runs.store.lines[cell.key] for each in self.cells(values, seeds).values() for cell in each]
        return sorted({line["code"] for line in lines})

    def write(self, command: str, folder: Path = STANDINS) -> Path:
        """Write the file of the best point so far; returns its path."""
        goal, point = self.design.goal, nearest_point(self.points, self.design.goal)
        seeds = self.seeds
        while all(self.runs.store.finished(c) for each in self.cells(point.values, seeds + 1).values() for c in each):
            seeds += 1
        found = self.scores(point.values, seeds)
        aims = {"full": self.design.full, "isolated": self.design.isolated}
        scores = [
            FittedScore(
                what=what, method=aim.method, parts=1 if aim.method == "single" else self.design.training["parts"],
                source=source(self.design.table, aim.where), printed=printed_score(self.design.table, aim.where),
                ours=round(found[what].mean, 2), half_width=round(found[what].half_width(), 2) if seeds > 1 else None,
            )
            for what, aim in aims.items()
        ]  # fmt: skip
        reached = goal.distance((found["full"].mean, found["isolated"].mean)) <= 1 and seeds >= FEWEST_SEEDS
        training = {**SHARED, **self.design.training}
        fit = FitRecord(
            state="reached" if reached else "nearest", command=command, seeds=seeds, evaluations=len(self.points),
            training=Context(Path()).text_of({**training, "method": self.design.full.method}),
            code=" ".join(self._codes(point.values, seeds)), note=self.design.note,
        )  # fmt: skip
        graph = {**self.design.graph, "nodes": round(self.design.graph["nodes"] * self.scale)}
        named = {knob.name: value for knob, value in zip(self.design.knobs, point.values, strict=True)}
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.toml"
        write_atomically(path, _toml(graph, named, scores, fit).encode())
        return path


def _toml(graph: Mapping[str, Any], fitted: Mapping[str, float], scores: list[FittedScore], fit: FitRecord) -> str:
    """The text of a stand-in's file."""
    tables: list[tuple[str, Mapping[str, Any]]] = [("[graph]", graph), ("[fitted]", fitted)]
    tables += [("[[scores]]", {k: v for k, v in vars(one).items() if v is not None}) for one in scores]
    tables.append(("[fit]", vars(fit)))
    lines = ["# Written by the command that [fit] names. The parameters under [fitted] were found, the others set."]
    for head, table in tables:
        lines += ["", head, *(f"{key} = {_value(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' if isinstance(value, str) else repr(value)
