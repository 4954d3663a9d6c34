"""Test accuracy of every method beside one device, on real graphs, with verdicts on what the papers claim.

Run `python -m benchmarks.accuracy --out DIR [--graphs a,b] [--parts 4,8] [--seeds 3] [--jobs 2]` with HALOSCOPE_DATA
set.
Cells that are finished are not run again, so it may be stopped and go on; `--report` only prints what there is. Every
cell is a loopback run: the same losses as on a cluster, without a clock.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from benchmarks.accuracy_claims import verdicts
from harness import results, runner
from harness.errors import HaloscopeError
from harness.spec import from_mapping
from harness.workers import Died, each


@dataclass(frozen=True)
class Case:
    """How one graph is trained: split, feature scaling, epochs, learning rate."""

    split: str
    features: str
    epochs: int
    lr: float = 0.01
    dropout: float = 0.3


CASES = {
    "cora": Case("counts:1408/300/1000", "row", 60, lr=0.02),
    "citeseer": Case("auto", "row", 60, lr=0.02),
    "amazon_computers": Case("random:0.6/0.2/0.2", "standard", 60, lr=0.02),
    "coauthor_physics": Case("random:0.6/0.2/0.2", "standard", 10, lr=0.02, dropout=0.0),
    "facebook_pages": Case("random:0.6/0.2/0.2", "standard", 20, lr=0.02, dropout=0.0),
    "github_social": Case("random:0.6/0.2/0.2", "standard", 20, lr=0.02, dropout=0.0),
    "mnist_knn15": Case("random:0.6/0.2/0.2", "standard", 25, lr=0.02, dropout=0.0),
}
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
    "overlap 0 %": "subgraph-approximation:overlap=0",
    "overlap 50 %": "subgraph-approximation:overlap=0.5",
    "overlap 50 % loss on copies": "subgraph-approximation:overlap=0.5:loss=all",
    "sylvie-s 1 bit": "sylvie-s:bits=1",
    "sylvie all 1 bit": "sylvie-s:bits=1:scope=all",
    "sylvie-a 1 bit": "sylvie-a:bits=1",
    "bns p=0": "bns-gcn:p=0.0",
    "bns p=0.1": "bns-gcn:p=0.1",
    "cdfgnn exact": "cdfgnn:cache=false:quantise=false",
    "cdfgnn cache": "cdfgnn:quantise=false",
    "cdfgnn": "cdfgnn",
}


@dataclass(frozen=True)
class Cell:
    """One training run of the study."""

    graph: str
    parts: int
    row: str
    seed: int
    out: Path

    def settings(self) -> dict[str, Any]:
        """What is run; `single` has one part, whatever the column."""
        case = CASES[self.graph]
        shape = {"model": "gcn", "layers": 3, "hidden": 32, "norm": "layer", "dropout": case.dropout, "lr": case.lr}
        data = {"dataset": self.graph, "split": case.split, "features": case.features, "seed": self.seed}
        place = {"parts": 1 if self.row == "single" else self.parts, "threads": 1, "method": ROWS[self.row]}
        return {**shape, **data, **place, "epochs": case.epochs, "eval_every": 5}

    @property
    def path(self) -> Path:
        """Named by the settings alone: a new field of RunConfig does not make finished cells strangers."""
        text = json.dumps(self.settings(), sort_keys=True)
        return self.out / f"{hashlib.sha256(text.encode()).hexdigest()}.json"


def train(cell: Cell) -> str:
    """Run a cell and keep its result; answers what went wrong, or nothing."""
    try:
        record = runner.run(from_mapping(cell.settings())).to_dict()
        cell.out.mkdir(parents=True, exist_ok=True)
        results.write_atomically(cell.path, msgspec.json.encode(record))
    except HaloscopeError as error:
        return str(error)
    return ""


def collected(cells: list[Cell]) -> pd.DataFrame:
    """One row per finished cell: test accuracy in percent at the best validation, and the share of rows sent."""
    found = []
    for cell in cells:
        if not cell.path.exists():
            continue
        record = results.load(cell.path)
        sent = [v for e in record["epochs"][1:] for k, v in e.get("observed", {}).items() if k.startswith("sent")]
        test = record["summary"]["test_at_best_val"]
        accuracy = 100 * test if test is not None else float("nan")
        shown = {"state": record["state"], "test": accuracy, "sent": statistics.fmean(sent) if sent else float("nan")}
        found.append({"graph": cell.graph, "parts": cell.parts, "row": cell.row, "seed": cell.seed, **shown})
    columns = ["graph", "parts", "row", "seed", "state", "test", "sent"]
    return pd.DataFrame(found, columns=columns)


def table(frame: pd.DataFrame, parts: int) -> str:
    """Mean and spread (sample standard deviation over seeds) of the test accuracy in percent; rows x graphs."""
    here = frame[frame.parts == parts]
    graphs = [g for g in CASES if g in set(here.graph)]
    lines = ["| P = " + f"{parts} | " + " | ".join(graphs) + " |", "|---|" + "---:|" * len(graphs)]
    for row in ROWS:
        cells = []
        for graph in graphs:
            values = here[(here.row == row) & (here.graph == graph)].test.dropna()
            spread = f" ± {values.std():.1f}" if len(values) > 1 else ""
            cells.append(f"{values.mean():.1f}{spread}" if len(values) else "-")
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def report(cells: list[Cell]) -> str:
    """Tables and verdicts of what is finished."""
    frame = collected(cells)
    seeds, done = len(set(frame.seed)), len(frame)
    head = f"Test accuracy (%) at the best validation, mean ± standard deviation over {seeds} seeds; {done} runs."
    model = "3-layer GCN, hidden 32, LayerNorm, Adam; split, epochs, rate and dropout per graph as in CASES."
    tables = [table(frame, parts) for parts in sorted(set(frame.parts))]
    return "\n\n".join([head, model, *tables, verdicts(frame)])


def all_cells(given: argparse.Namespace) -> list[Cell]:
    """Cells in the order of their worth: see `_worth`."""
    order = [g for g in CASES if g in given.graphs.split(",")]
    rows = [r for r in ROWS if given.rows == "all" or r in given.rows.split(",")]
    parts = [int(p) for p in given.parts.split(",")]
    cells = [
        Cell(graph, p, row, seed, given.out)
        for seed in range(given.seeds)
        for p in parts
        for graph in order
        for row in rows
    ]
    return sorted(cells, key=lambda cell: _worth(cell, parts[0]))


def _worth(cell: Cell, first: int) -> tuple[int, bool]:
    """On the first number of parts quick graphs with all seeds, then every graph once; the same on the others."""
    quick, once = cell.graph in QUICK, cell.seed == 0
    rank = 0 if quick else 1 if once else 4
    return rank if cell.parts == first else rank + 2, cell.graph == SLOWEST


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, required=True, help="folder of result files")
    options.add_argument("--graphs", default=",".join(CASES))
    options.add_argument("--rows", default="all")
    options.add_argument("--parts", default="4,8")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--budget", type=float, default=float("inf"), help="minutes after which no cell is begun")
    options.add_argument("--report", action="store_true", help="run nothing, print what is finished")
    given = options.parse_args()
    cells, begin = all_cells(given), time.monotonic()
    todo = {} if given.report else {replace(c, out=given.out).path: c for c in cells if not c.path.exists()}
    goes_on = lambda _: time.monotonic() - begin < 60 * given.budget  # noqa: E731
    for at, (cell, answer) in enumerate(each(train, todo.values(), given.jobs, goes_on), 1):
        spent = time.monotonic() - begin
        failure = "its process died" if isinstance(answer, Died) else answer
        left = spent / at * (len(todo) - at) / 60
        place = f"{cell.graph}, P = {cell.parts}, {cell.row}, seed {cell.seed}"
        print(f"{at}/{len(todo)} {place} {failure or 'done'}; {left:.0f} min left", flush=True)
    print(report(cells))


if __name__ == "__main__":
    main()
