"""What the functions of `import harness` return: results with a pandas frame, a matplotlib figure and a table in HTML.

A notebook shows the table by itself. Numbers are in SI units, accuracies in [0, 1]; nothing is computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from harness.commands.shared.tables import (
    ROW_SETTINGS,
    columns_of,
    comparison_report,
    note_lines,
    run_report,
    said_once,
    unlike_lines,
)
from harness.commands.what_if import Explored
from harness.running import Prepared
from harness.running.alike import limit_lines
from harness.running.intervals import order_lines
from harness.running.summary import UNLIKE, comparison, row_of, standing_apart
from harness.trackers import TrackedRun, export_records, log_to_wandb, tracked_run
from reports.draw.figures import COMPONENT_COLOURS, INCHES, STYLE, breakdown_figure
from reports.draw.what_if import what_if_figure

NAMED = 5
"""Runs that the `repr` of a comparison names."""

SURE = (
    "low and high: 90 % intervals of predictions, of speed-ups with the same errors of both; of runs measured in "
    "rounds the least and most of these"
)


@dataclass(frozen=True, eq=False, repr=False)
class RunOutcome:
    """One run.

    Attributes:
        record: the content of the result file, which is at `path`.
    """

    record: dict[str, Any]
    path: Path

    @property
    def summary(self) -> dict[str, Any]:
        """The run in one row: seconds and bytes of an epoch, accuracy, peak memory."""
        return row_of(self.record)

    def frame(self) -> pd.DataFrame:
        """A row per epoch: loss, scores (`train`, `val`, `test`) in [0, 1], seconds by component, bytes.

        Scores are accuracies, or micro-F1 where nodes have several labels (`summary["score"]`).
        """
        return pd.json_normalize(self.record["epochs"])

    def plot(self) -> Figure:
        """The epoch by component, and the test score against training time."""
        return breakdown_figure([self.record])

    def export(self, tracker: str, folder: str | Path, title: str = "haloscope") -> list[Path]:
        """Write it for mlflow, wandb or tensorboard, as `haloscope export` does; returns what was written."""
        return export_records([tracked_run(self.record, self.path)], tracker, Path(folder), title)

    def _repr_html_(self) -> str:
        rows = comparison([self.record])
        return _html([said_once(rows), *note_lines(self.record)], _times(rows))

    def __str__(self) -> str:
        return _printed(run_report(self.record))

    def __repr__(self) -> str:
        return f"RunOutcome({_named(self.record)}, {len(self.record['epochs'])} epochs, {str(self.path)!r})"


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Several runs.

    Attributes:
        records: the contents of their result files.
        paths: those files.
        left_out: why files of a loaded folder are not among them.
    """

    records: list[dict[str, Any]]
    paths: list[Path]
    left_out: list[str] = field(default_factory=list)

    @property
    def order(self) -> list[str]:
        """What the intervals of predictions allow to say about which method is faster than which, of runs that may be
        compared (`harness.running.alike`)."""
        return order_lines(self.records)

    def frame(self) -> pd.DataFrame:
        """A row per run, as `comparison/table.csv` has it: seconds, bytes, scores (`test`, `best_test`) in [0, 1]; the
        column `score` says of what they are.

        `speedup` is over the run that `base` names, the first of the same mode, graph, model, parts and cluster. A run
        that no other may be compared with has 1 or, beside several numbers of parts, none.
        """
        return pd.DataFrame(comparison(self.records))

    def plot(self) -> Figure:
        """Epochs by component, and test scores against training time."""
        return breakdown_figure(self.records)

    def export(self, tracker: str, folder: str | Path, title: str = "haloscope") -> list[Path]:
        """Write all runs for mlflow, wandb or tensorboard, as `haloscope export` does; returns a folder per run."""
        return export_records(self._tracked(), tracker, Path(folder), title)

    def log_to_wandb(self, project: str, **settings: Any) -> None:
        """Log all runs to Weights & Biases, whose package has to be installed.

        Args:
            settings: more arguments of `wandb.init`, such as mode="offline".

        Raises:
            InputError: the package is not there.
        """
        log_to_wandb(self._tracked(), project, **settings)

    def _tracked(self) -> list[TrackedRun]:
        return [tracked_run(record, path) for record, path in zip(self.records, self.paths, strict=True)]

    def _repr_html_(self) -> str:
        rows = comparison(self.records)
        common, apart = standing_apart(rows)
        shown = [{**row, "method": f"{row['method']} {UNLIKE}"} if at in apart else row for at, row in enumerate(rows)]
        said = f"all rows{f' but {UNLIKE}' if apart else ''}: {said_once(rows, columns_of(rows))}"
        sure = [*self.order, *([SURE] if self.order or any(row["epoch_low_seconds"] for row in rows) else [])]
        lines = [said, *limit_lines(self.records), *unlike_lines(rows, common, apart), *sure, *self.left_out]
        return _html(lines, _times(shown))

    def __str__(self) -> str:
        return _printed([*comparison_report(comparison(self.records)), *limit_lines(self.records), *self.order])

    def __repr__(self) -> str:
        more = [f"{len(self.records) - NAMED} more"] if len(self.records) > NAMED else []
        return f"Comparison({'; '.join([*map(_named, self.records[:NAMED]), *more])})"


@dataclass(frozen=True, eq=False, repr=False)
class WhatIf:
    """Epoch times over a range of a bandwidth or a latency.

    Attributes:
        explored: curves, points and sentences.
    """

    explored: Explored

    @property
    def said(self) -> list[str]:
        """Sentences on crossovers, and on what changes nothing."""
        return self.explored.said

    def frame(self) -> pd.DataFrame:
        """A row per method and point: the knob in B/s or s, seconds by component, bytes, speed-up over the first."""
        return pd.DataFrame(self.explored.rows())

    def plot(self) -> Figure:
        """Epoch times and speed-ups along the range."""
        return what_if_figure(self.explored.rows(), **self.explored.drawing())

    def _repr_html_(self) -> str:
        frame = self.frame()
        times = frame.pivot_table(index="value", columns=["variant", "method"], values="epoch_seconds", sort=False)
        times.index = [self.explored.knob.formatted(value) for value in times.index]
        times.columns = [" ".join(filter(None, reversed(column))) for column in times.columns]
        spans = frame.pivot_table(
            index="value", columns=["variant", "method"], values=["epoch_low_seconds", "epoch_high_seconds"], sort=False
        )
        if len(spans.columns) == 2 * len(times.columns):
            low, high = (spans[name].to_numpy() for name in ("epoch_low_seconds", "epoch_high_seconds"))
            shown = [[f"{v:.4g} ({a:.3g} to {b:.3g})" for v, a, b in zip(*row, strict=True)]
                     for row in zip(times.to_numpy(), low, high, strict=True)]  # fmt: skip
            times = pd.DataFrame(shown, index=times.index, columns=times.columns)
            return _html(["epoch seconds (90 % interval)", *self.said], times)
        return _html(self.said, times)

    def __str__(self) -> str:
        return _printed(self.explored.report())

    def __repr__(self) -> str:
        methods = ", ".join(dict.fromkeys(curve.label for curve in self.explored.curves))
        return f"WhatIf({methods} over {len(self.explored.xs)} values of {self.explored.knob.key})"


@dataclass(frozen=True, eq=False, repr=False)
class CutResult:
    """A partition.

    Attributes:
        prepared: where its parts lie, and the graph's sizes.
    """

    prepared: Prepared

    @property
    def summary(self) -> dict[str, Any]:
        """The quality of the cut in all: boundary nodes, cut edges, balance, ..."""
        return dict(self.prepared.train.quality.summary())

    def frame(self) -> pd.DataFrame:
        """A row per part: own nodes, halo nodes, rows sent, edges, cut edges."""
        return pd.DataFrame(self.prepared.train.quality.rows())

    def plot(self) -> Figure:
        """What every part holds and sends: bars by part."""
        frame = self.frame().set_index("part")
        with matplotlib.rc_context(STYLE):
            figure = Figure(figsize=(INCHES, 2.6), layout="constrained")
            names = list(frame.columns)
            for axes, name, colour in zip(
                figure.subplots(1, len(names)), names, COMPONENT_COLOURS.values(), strict=False
            ):
                axes.bar([str(part) for part in frame.index], frame[name], color=colour)
                axes.set_title(name, loc="left")
        return figure

    def _repr_html_(self) -> str:
        graph, folder = self.prepared.graph, self.prepared.train
        size = f"{graph['num_nodes']:,} nodes, {graph['num_edges']:,} directed edges"
        said = [f"{graph['name']}: {size}, by {folder.settings['partitioner']}"]
        said += [f"{name.replace('_', ' ')}: {value}" for name, value in self.summary.items()]
        return _html([*said, *(f"note: {note}" for note in graph["notes"])], self.frame())

    def __repr__(self) -> str:
        name, settings = self.prepared.graph["name"], self.prepared.train.settings
        return f"CutResult({name!r} in {len(self.frame())} parts by {settings['partitioner']})"


def _named(record: dict[str, Any]) -> str:
    """A run in a few words."""
    config = record["config"]
    return f"{config['method']}, {config['mode']}, {config['parts']} parts, {record['state']}"


def _times(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """The rows of runs without what all share, and without columns that are empty or zero."""
    frame = pd.DataFrame(rows).drop(columns="run_id")
    kept = ["method", *columns_of(rows), *(name for name in frame.columns if name not in (*ROW_SETTINGS, "method"))]
    frame = frame[kept].dropna(axis="columns", how="all")
    return frame.loc[:, [bool((frame[name] != 0).any()) for name in frame.columns]]


def _html(lines: Sequence[str], frame: pd.DataFrame) -> str:
    """Lines of text over a table."""
    said = "".join(f"<div>{escape(line)}</div>" for line in lines)
    return said + str(frame.to_html(float_format=lambda value: f"{value:.4g}", na_rep="-", border=0))


def _printed(items: Sequence[Any]) -> str:
    """What the command would print."""
    import io

    from rich.console import Console

    from harness.console import FILE_WIDTH, show

    console = Console(file=io.StringIO(), width=FILE_WIDTH)
    show(items, console)
    return str(console.file.getvalue())  # type: ignore[attr-defined]
