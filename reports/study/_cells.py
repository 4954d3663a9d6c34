"""One training run of a study, the line that it leaves in the study's file, and the file.

The file is CSV, a line per finished run: scores, cost, and what they came from (command, hash of the code and of the
graph). A line is written when its run ends, so a study that is killed loses only the runs in progress.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import re
import resource
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from harness.config import RunConfig, from_mapping
from harness.datasets import data_folder, size_of, source_state
from harness.errors import HaloscopeError, InputError
from harness.machine import keep_heap, write_atomically
from harness.running import run
from reports.core.context import Context
from reports.study._code import code_of
from reports.study._curves import curve_text

COLUMNS = (
    "key", "dataset", "parts", "method", "seed", "state", "test", "best", "last", "val", "megabytes", "epochs",
    "seconds", "memory", "step", "code", "graph", "command", "curve",
)  # fmt: skip
"""Of the file: scores in per cent (test at the best validation, the best and the last test score, the best validation
score), megabytes sent per epoch, seconds and peak memory (MB) of the run's process, the step in which the score can
change (100 / test nodes), hashes of code and graph, and the test scores of all evaluations (`curve_text`)."""
COMPUTED = ("state", "test", "best", "last", "val", "megabytes", "epochs", "curve")
"""What a run computes: equal for equal settings and code."""
NUMBERS = ("test", "best", "last", "val", "megabytes", "epochs", "seconds", "memory", "step")
FINAL = ("done", "diverged")
"""States that the same run would have again."""


@dataclass(frozen=True)
class StudyCell:
    """One run: keys of `RunConfig`, the seed among them."""

    settings: Mapping[str, Any] = field(hash=False)
    key: str = field(init=False)

    def __post_init__(self) -> None:
        known = json.dumps(dict(self.settings), sort_keys=True)
        object.__setattr__(self, "key", hashlib.sha256(known.encode()).hexdigest()[:16])

    @property
    def config(self) -> RunConfig:
        """The settings with all defaults. Raises InputError for bad ones."""
        return from_mapping(self.settings)

    @property
    def title(self) -> str:
        """Method, graph, parts and seed in one line."""
        s = self.settings
        return f"{s['method']}, {s['dataset']}, {s.get('parts', 1)} parts, seed {s['seed']}"

    @property
    def method(self) -> str:
        """The text of the method."""
        return str(self.settings["method"])


RunLine = dict[str, Any]


def train_cell(cell: StudyCell) -> RunLine:
    """Run a cell in this process; returns its line, or {"failure": the reason}."""
    begin = time.monotonic()
    keep_heap()  # as ranks of a real run do: a run of one part otherwise has a page fault for every 4 KiB of each epoch
    try:
        record = run(cell.config).to_dict()
    except HaloscopeError as error:
        return {"failure": str(error)}
    if record["state"] not in FINAL:
        return {"failure": f"{record['state']}: {record['message']}"}
    summary = record["summary"]
    curve = [(at, 100 * e["test"]) for at, e in enumerate(record["epochs"], 1) if e["test"] is not None]
    tests = record["graph"].get("num_test")
    line: RunLine = {
        "key": cell.key,
        "dataset": cell.settings["dataset"],
        "parts": cell.settings.get("parts", 1),
        "method": cell.method,
        "seed": cell.settings["seed"],
        "state": record["state"],
        "test": _per_cent(summary["test_at_best_val"]),
        "best": _per_cent(summary["best_test"]),
        "last": f"{curve[-1][1]:.4f}" if curve else "",
        "val": _per_cent(summary["best_val"]),
        "megabytes": f"{summary['bytes_per_epoch'] / 1e6:.6g}" if summary["bytes_per_epoch"] is not None else "",
        "epochs": len(record["epochs"]),
        "seconds": f"{time.monotonic() - begin:.1f}",
        "memory": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f}",
        "step": f"{100 / tests:.4g}" if tests else "",
        "code": code_of(cell.method),
        "graph": graph_state(str(cell.settings["dataset"])),
        "command": Context(Path()).text_of(cell.settings),
        "curve": curve_text(curve),
    }
    return line


def _per_cent(score: float | None) -> str:
    return "" if score is None else f"{100 * score:.4f}"


@cache
def graph_state(dataset: str) -> str:
    """16 hexadecimal digits that change with the graph; "" for one that is not here.

    Of a generated graph its recipe is hashed, of a file its content, wherever it lies.
    """
    try:
        generated = size_of(dataset) is not None
    except InputError:  # a stand-in that is not fitted
        return ""
    if generated:
        return hashlib.sha256(source_state(dataset).encode()).hexdigest()[:16]
    path = Path(dataset) if dataset.endswith(".npz") else data_folder() / f"{dataset}.npz"
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else ""


@dataclass
class Store:
    """The file of a study; where a run is in it twice, the later line counts.

    Attributes:
        shared: lines of other studies; the same run is not made twice.
    """

    path: Path
    lines: dict[str, RunLine] = field(default_factory=dict)
    shared: dict[str, RunLine] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, others: Sequence[Path] = ()) -> Store:
        """The lines of a file, none where there is no file.

        Args:
            others: files of other studies, whose runs count too.

        Raises:
            InputError: the file has other columns.
        """
        store = cls(path, _lines_of(path))
        for other in others:
            store.shared |= _lines_of(other)
        return store

    def keep(self, line: RunLine) -> None:
        """Add the line of a finished run."""
        text = {name: str(line[name]) for name in COLUMNS}
        self.lines[text["key"]] = text
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            if file.read() not in (b"", b"\n"):  # the line of a study that was killed
                file.seek(0)
                size = file.truncate(file.read().rfind(b"\n") + 1)
            file.write(_text_of([text], header=not size).encode())

    def tidy(self) -> None:
        """Write the file anew, sorted, with one line for every run."""
        if not self.path.exists():
            return
        ordered = sorted(self.lines.values(), key=lambda line: (line["dataset"], line["method"], line["command"]))
        write_atomically(self.path, _text_of(ordered, header=True).encode())

    def finished(self, cell: StudyCell) -> RunLine | None:
        """The line of a cell; one of another study where this one has none."""
        return self.lines.get(cell.key) or self.shared.get(cell.key)

    def stale(self, cells: Iterable[StudyCell]) -> list[StudyCell]:
        """Finished cells whose code or graph is not today's."""
        return [cell for cell in cells if (line := self.finished(cell)) is not None and outdated(line)]


def _text_of(lines: Iterable[RunLine], *, header: bool) -> str:
    written = io.StringIO()
    writer = csv.DictWriter(written, COLUMNS, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(lines)
    return written.getvalue()


def _lines_of(path: Path) -> dict[str, RunLine]:
    """The lines of a file by key; one that was cut off is left out."""
    if not path.exists():
        return {}
    try:
        text = path.read_text()
        reader = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise InputError(f"{path}: not the file of a study: its columns must be {', '.join(COLUMNS)}")
        return {line["key"]: _checked(line, path) for line in reader if line["curve"] is not None}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {path}: {error}") from None


def _checked(line: RunLine, path: Path) -> RunLine:
    """The line itself. Raises InputError where a number is none, which would change a verdict."""
    for name in NUMBERS:
        try:
            good = not line[name] or math.isfinite(float(line[name])) or line["state"] != "done"
        except ValueError:
            good = False
        if not good:
            where = f"{path}: the line of {line['dataset']}, {line['method']}, seed {line['seed']}"
            raise InputError(f"{where}: {name} is {line[name][:40]!r}; remove the line, and the run is made again")
    return line


def outdated(line: RunLine) -> bool:
    """Whether the code of the line's method or its graph has changed since; a graph that is not here is not known."""
    graph = graph_state(line["dataset"])
    return line["code"] != code_of(line["method"]) or (bool(graph) and line["graph"] != graph)


def line_score(line: RunLine, metric: str = "test") -> float:
    """A number of a line; a run that diverged, or was not evaluated, has the score 0."""
    if line["state"] != "done" and metric != "megabytes":
        return 0.0
    return float(line[metric] or 0.0)


def without_seed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that runs of several seeds share: also the seed in the name of a generated graph is left out."""
    shared = {key: value for key, value in settings.items() if key != "seed"}
    return {**shared, "dataset": re.sub(r",seed=\d+", "", str(shared["dataset"]))}
