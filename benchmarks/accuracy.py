"""Test accuracy of every method beside one device, on real graphs, with verdicts on what the papers claim.

Run `python -m benchmarks.accuracy [--cells FILE.csv] [--graphs a,b] [--parts 4,8] [--seeds 3] [--jobs 2]` with
HALOSCOPE_DATA set. Every cell is a loopback run: the same losses as on a cluster, without a clock. The file holds one
line per finished cell, named by its settings; those are not run again, so a study may be stopped and resumed.
`--report` only prints the finished cells.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.accuracy_claims import verdicts
from harness.config import from_mapping
from harness.errors import HaloscopeError
from harness.machine import Died, map_on_processes
from harness.running import _runner as runner


@dataclass(frozen=True)
class Case:
    """How one graph is trained: split, feature scaling, epochs, learning rate."""

    split: str
    features: str
    epochs: int
    lr: float = 0.02


CASES = {
    "cora": Case("counts:1408/300/1000", "row", 60),
    "citeseer": Case("auto", "row", 60),
    "amazon_computers": Case("random:0.6/0.2/0.2", "standard", 60),
    "coauthor_physics": Case("random:0.6/0.2/0.2", "projected", 40),
    "facebook_pages": Case("random:0.6/0.2/0.2", "projected", 40),
    "github_social": Case("random:0.6/0.2/0.2", "projected", 40),
    "mnist_knn15": Case("random:0.6/0.2/0.2", "projected", 25),
}
DROPOUT = 0.0
"""None: on the input it acts before or after the first neighbour sum, as a method serves that, and the exact methods
would no longer train the same model."""
CELLS = Path(__file__).parents[1] / "docs" / "accuracy.csv"
QUICK = ("cora", "citeseer", "amazon_computers")
SLOWEST = "coauthor_physics"  # 8,415 features
ROWS = {
    "single": "single",
    "vanilla": "vanilla",
    "EC Non-cp": "ec-graph:fp=exact:bp=exact",
    "EC Cp-fp-1": "ec-graph:fp=compressed:bits=1:bp=exact",
    "EC ReqEC-FP-1": "ec-graph:fp=trend:bits=1:tune=false:bp=exact",
    "EC Cp-fp-2": "ec-graph:fp=compressed:bits=2:bp=exact",
    "EC ReqEC-FP-2": "ec-graph:fp=trend:bits=2:tune=false:bp=exact",
    "EC Cp-bp-2": "ec-graph:fp=exact:bp=compressed:backward_bits=2",
    "EC ResEC-BP-2": "ec-graph:fp=exact:bp=residual:backward_bits=2",
    "ec-graph": "ec-graph",
    "ec-graph-s": "ec-graph-s:fanouts=10/5/5",
    "overlap 0 %": "subgraph-approximation:overlap=0",
    "overlap 50 %": "subgraph-approximation:overlap=0.5",
    "overlap 50 % loss on copies": "subgraph-approximation:overlap=0.5:loss=all",
    "sylvie-s 1 bit": "sylvie-s:bits=1",
    "sylvie all 1 bit": "sylvie-s:bits=1:scope=all",
    "sylvie-a 1 bit": "sylvie-a:bits=1",
    "sylvie-a 1 bit, staleness 4": "sylvie-a:bits=1:staleness=4",
    "bns p=0": "bns-gcn:p=0.0",
    "bns p=0.1": "bns-gcn:p=0.1",
    "BES p=0.1": "bns-gcn:p=0.1:sampling=bes",
    "DropEdge p=0.1": "bns-gcn:p=0.1:sampling=dropedge",
    "cdfgnn exact": "cdfgnn:cache=false:quantise=false",
    "cdfgnn cache": "cdfgnn:quantise=false",
    "cdfgnn quantise": "cdfgnn:cache=false",
    "cdfgnn": "cdfgnn",
}


@dataclass(frozen=True)
class Cell:
    """One training run of the study."""

    graph: str
    parts: int
    row: str
    seed: int

    def settings(self) -> dict[str, Any]:
        """The settings of the run; `single` has one part in every column."""
        case = CASES[self.graph]
        shape = {"model": "gcn", "layers": 3, "hidden": 32, "norm": "layer", "dropout": DROPOUT, "lr": case.lr}
        data = {"dataset": self.graph, "split": case.split, "features": case.features, "seed": self.seed}
        place = {"parts": 1 if self.row == "single" else self.parts, "threads": 1, "method": ROWS[self.row]}
        return {**shape, **data, **place, "epochs": case.epochs, "eval_every": 5}

    @property
    def key(self) -> str:
        """The name of the settings, which does not change when RunConfig gets a new field."""
        return hashlib.sha256(json.dumps(self.settings(), sort_keys=True).encode()).hexdigest()[:16]


COLUMNS = ("key", "graph", "parts", "method", "seed", "state", "test", "sent", "sent_early", "sent_late")
"""Of the file: test accuracy in percent at the best validation; shares of rows sent by caches, mean over layers, of all
epochs, and of the first and the last quarter of them."""


def train(cell: Cell) -> dict[str, Any]:
    """Run a cell; returns its line of the file, or {"failure": the reason}."""
    try:
        record = runner.run(from_mapping(cell.settings())).to_dict()
    except HaloscopeError as error:
        return {"failure": str(error)}
    epochs = record["epochs"][1:]
    sent = [statistics.fmean(v) for e in epochs if (v := [e["observed"][k] for k in _sent(e)])]
    quarter, test = max(1, len(sent) // 4), record["summary"]["test_at_best_val"]
    pieces = (sent, sent[:quarter], sent[-quarter:])
    shares = [f"{statistics.fmean(piece):.4f}" if piece else "" for piece in pieces]
    accuracy = f"{100 * test:.3f}" if test is not None else ""
    found = (cell.key, cell.graph, cell.parts, ROWS[cell.row], cell.seed, record["state"], accuracy, *shares)
    return dict(zip(COLUMNS, found, strict=True))


def _sent(epoch: Mapping[str, Any]) -> list[str]:
    return [name for name in epoch.get("observed", {}) if name.startswith("sent")]


def finished(path: Path) -> dict[str, dict[str, Any]]:
    """Key -> line of the cells in the file."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {line["key"]: line for line in csv.DictReader(file)}


def keep(path: Path, line: Mapping[str, Any]) -> None:
    """Add a line to the file."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(line)


def collected(cells: list[Cell], lines: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """One row per finished cell; accuracies of runs that diverged are nan."""
    found = []
    for cell in cells:
        if (line := lines.get(cell.key)) is not None:
            numbers = {name: float(line[name] or "nan") for name in COLUMNS[6:]}
            if line["state"] != "done":
                numbers["test"] = float("nan")
            place = {"graph": cell.graph, "parts": cell.parts, "row": cell.row, "seed": cell.seed}
            found.append({**place, "state": line["state"], **numbers})
    return pd.DataFrame(found, columns=["graph", "parts", "row", "seed", "state", *COLUMNS[6:]])


def table(frame: pd.DataFrame, parts: int) -> str:
    """Mean and spread (sample standard deviation over seeds) of the test accuracy in percent; rows x graphs.

    Cells with fewer finished runs than seeds show the number of finished and of diverged runs.
    """
    here, seeds = frame[frame.parts == parts], frame.seed.nunique()
    graphs = [g for g in CASES if g in set(here.graph)]
    lines = ["| P = " + f"{parts} | " + " | ".join(graphs) + " |", "|---|" + "---:|" * len(graphs)]
    for row in ROWS:
        mine = here[here.row == row]
        cells = [_written(mine[mine.graph == graph].test, seeds) for graph in graphs]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _written(tests: pd.Series, seeds: int) -> str:
    """One cell of the table from the accuracies of its runs, nan for those that diverged."""
    values = tests.dropna()
    if values.empty:
        return "diverged" if len(tests) else "-"
    spread = f" ± {values.std():.1f}" if len(values) > 1 else ""
    lost = f", {len(tests) - len(values)} diverged" if len(values) < len(tests) else ""
    short = f" ({len(values)} of {seeds}{lost})" if len(values) < seeds else ""
    return f"{values.mean():.1f}{spread}{short}"


def report(cells: list[Cell], lines: Mapping[str, Mapping[str, Any]]) -> str:
    """Tables and verdicts of the finished cells."""
    frame = collected(cells, lines)
    seeds, done = len(set(frame.seed)), len(frame)
    head = f"Test accuracy (%) at the best validation, mean ± standard deviation over {seeds} seeds; {done} runs."
    model = "3-layer GCN, hidden 32, LayerNorm, Adam, no dropout; split, epochs and rate per graph as in CASES."
    tables = [table(frame, parts) for parts in sorted(set(frame[frame.row != "single"].parts))]
    return "\n\n".join([head, model, *tables, verdicts(frame)])


def whole_study() -> list[Cell]:
    """The cells of the default arguments."""
    return all_cells(_parser().parse_args([]))


def all_cells(given: argparse.Namespace) -> list[Cell]:
    """Cells in the order of `_worth`."""
    order = [g for g in CASES if g in given.graphs.split(",")]
    rows = [r for r in ROWS if given.rows == "all" or r in given.rows.split(",")]
    parts = [int(p) for p in given.parts.split(",")]
    cells = [Cell(graph, p, row, seed) for seed in range(given.seeds) for p in parts for graph in order for row in rows]
    return sorted(cells, key=lambda cell: _worth(cell, parts[0]))


def _worth(cell: Cell, first: int) -> tuple[int, bool]:
    """Quick graphs with all seeds, then every graph once, on the first number of parts before the others; the rest."""
    if cell.graph in QUICK:
        return int(cell.parts != first), False
    return (2 if cell.seed == 0 else 4) + (cell.parts != first), cell.graph == SLOWEST


def _parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cells", type=Path, default=CELLS, help="of those finished (default: docs/accuracy.csv)")
    options.add_argument("--graphs", default=",".join(CASES))
    options.add_argument("--rows", default="all")
    options.add_argument("--parts", default="4,8")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--budget", type=float, default=float("inf"), help="minutes after which no cell is begun")
    options.add_argument("--report", action="store_true", help="run nothing, print what is finished")
    return options


def main() -> None:
    given = _parser().parse_args()
    cells, done, begin = all_cells(given), finished(given.cells), time.monotonic()
    todo = {} if given.report else {cell.key: cell for cell in cells if cell.key not in done}
    goes_on = lambda _: time.monotonic() - begin < 60 * given.budget  # noqa: E731
    for at, (cell, answer) in enumerate(map_on_processes(train, todo.values(), given.jobs, goes_on), 1):
        line = {"failure": answer.why} if isinstance(answer, Died) else answer
        if "failure" not in line:
            keep(given.cells, line)
        left = (time.monotonic() - begin) / at * (len(todo) - at) / 60
        place = f"{cell.graph}, P = {cell.parts}, {cell.row}, seed {cell.seed}"
        print(f"{at}/{len(todo)} {place} {line.get('failure', 'done')}; {left:.0f} min left", flush=True)
    print(report(cells, finished(given.cells)))


if __name__ == "__main__":
    main()
