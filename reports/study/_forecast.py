"""Seconds and memory of a run before it starts, and the time left of many.

A formula of the graph's size and the model gives both; runs that are finished correct it, the most similar ones
first. On a machine that is shared the correction contains what the others take.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from harness.datasets import load, size_of
from reports.core.train import work_seconds
from reports.study._cells import RunLine, StudyCell, without_seed

SET_UP_S = 4.0  # of a run: generating and cutting the graph, compiled kernels from the cache
EVALUATION = 0.4  # of an epoch: one forward pass over the whole graph
BASE_MB = 450.0  # of a process with torch and compiled kernels
NEAREST = 5  # finished runs that correct a forecast


@cache
def graph_size(dataset: str) -> tuple[int, int, int]:
    """Nodes, directed edges, features: from the recipe of a generated graph, else from the file."""
    known = size_of(dataset)
    if known is not None:
        return known
    graph = load(dataset)
    return graph.num_nodes, graph.num_edges, graph.num_features


@cache  # a forecast reads it for every finished run
def formula(cell: StudyCell) -> tuple[float, float]:
    """Seconds on an idle core, and MB, by formula."""
    config = cell.config
    nodes, edges, wide = graph_size(config.data.dataset)
    evaluations = config.training.epochs / max(config.run.eval_every, 1) if config.run.eval_every >= 0 else 0
    epochs = config.training.epochs + EVALUATION * evaluations
    seconds = SET_UP_S + epochs * work_seconds(config, nodes, edges, wide)
    hidden = config.model.hidden * config.model.heads
    values = nodes * (3 * wide + 6 * hidden * config.model.layers)
    if config.model.name == "gat":
        values += 6 * edges * config.model.heads * config.model.layers
    return seconds, BASE_MB + (4 * values + 24 * edges) / 1e6


@dataclass
class Forecast:
    """Forecasts of cells from the formula and from finished runs.

    Attributes:
        finished: (cell, its line) of runs whose cost is known.
    """

    finished: list[tuple[StudyCell, RunLine]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._corrections: dict[tuple[str, str, int], float] = {}  # of all seeds alike, with so many runs finished

    def seconds(self, cell: StudyCell) -> float:
        """Seconds that a run of the cell is expected to take."""
        return formula(cell)[0] * self._correction(cell, "seconds", 0)

    def memory(self, cell: StudyCell) -> float:
        """Peak memory in MB that it is expected to have; finished runs never lower it below the formula."""
        return formula(cell)[1] * max(1.0, self._correction(cell, "memory", 1))

    def left(self, cells: Iterable[StudyCell], jobs: int) -> float:
        """Seconds until all cells are done on `jobs` processes."""
        each = [self.seconds(cell) for cell in cells]
        return max(sum(each) / max(jobs, 1), max(each, default=0.0))

    def _correction(self, cell: StudyCell, column: str, which: int) -> float:
        """Median of measured over formula, of the finished runs that are most similar."""
        kind = (json.dumps(without_seed(cell.settings), sort_keys=True), column, len(self.finished))
        if kind not in self._corrections:
            self._corrections[kind] = self._median_ratio(cell, column, which)
        return self._corrections[kind]

    def _median_ratio(self, cell: StudyCell, column: str, which: int) -> float:
        ratios = [(_unlike(cell, other), float(line[column]) / formula(other)[which]) for other, line in self.finished]
        if not ratios:
            return 1.0
        closest = min(distance for distance, _ in ratios)
        return statistics.median([ratio for distance, ratio in ratios if distance == closest][-NEAREST:])


def _unlike(cell: StudyCell, other: StudyCell) -> int:
    """In how much two cells differ: 0 where only their seeds do."""
    ours, theirs = without_seed(cell.settings), without_seed(other.settings)
    if ours == theirs:
        return 0
    name = [str(s["method"]).partition(":")[0] for s in (ours, theirs)]
    weights: Mapping[str, int] = {"dataset": 2, "model": 4, "hidden": 4, "parts": 1}
    return 1 + sum(w for key, w in weights.items() if ours.get(key) != theirs.get(key)) + 3 * (name[0] != name[1])


def free_memory() -> float:
    """MB of this machine's memory that are not in use."""
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        return float(lines["MemAvailable"].split()[0]) / 1e3
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e6


def cost_lines(cells: Sequence[StudyCell], forecast: Forecast, jobs: int) -> list[str]:
    """What the cells are expected to take, in lines for the terminal."""
    if not cells:
        return ["nothing is left to run"]
    largest = max(cells, key=forecast.memory)
    longest = max(cells, key=forecast.seconds)
    return [
        f"{len(cells)} runs, about {forecast.left(cells, jobs) / 60:.0f} min on {jobs} processes",
        f"longest: {forecast.seconds(longest):.0f} s ({longest.title})",
        f"largest: {forecast.memory(largest):.0f} MB ({largest.title})",
    ]
