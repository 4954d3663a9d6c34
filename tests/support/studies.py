"""Studies without training: runs whose scores are a formula of the cell, and a small file of claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from reports.study import Runs, Store, StudyCell
from reports.study._cells import COLUMNS, code_of, graph_state

Score = Callable[[StudyCell], float]

GRAPH = "synthetic:nodes=300,degree=6,classes=3,features=8"
CLAIMS = f"""
paper = "mine"

[graphs]
small = {{ dataset = "{GRAPH}", settings = {{ layers = 2, hidden = 4, epochs = 3, parts = 2 }} }}

[[claims]]
name = "sampling"
text = "sampling is no worse"
judge = ["no worse"]
margin = 0.5
margin_from = "half a point"
first = {{ method = "bns-gcn:p=0.1" }}
second = {{ method = "vanilla" }}
each = [{{ dataset = "small" }}]

[[claims]]
name = "isolation"
text = "isolation is worse"
judge = ["order"]
first = {{ method = "vanilla" }}
second = {{ method = "bns-gcn:p=0" }}
each = [{{ dataset = "small" }}]
"""


def line_of(cell: StudyCell, score: float, state: str = "done", **changes: object) -> dict[str, str]:
    """The line of a cell as if it had been run today."""
    made = {
        "key": cell.key, "dataset": cell.settings["dataset"], "parts": cell.settings.get("parts", 1),
        "method": cell.method, "seed": cell.settings["seed"], "state": state, "test": score, "best": score + 1,
        "last": score, "val": score, "megabytes": 2.0, "epochs": 3, "seconds": 1.0, "memory": 300, "step": 0.01,
        "code": code_of(cell.method), "graph": graph_state(str(cell.settings["dataset"])), "command": "haloscope run",
        "curve": "1: 10 20 / 3",
    }  # fmt: skip
    return {name: str({**made, **changes}[name]) for name in COLUMNS}


class MadeUpRuns(Runs):
    """Runs that take no time: the score of a cell is `formula(cell)`; nan stands for a run that diverged.

    Attributes:
        made: the cells that were run, in order.
    """

    formula: Score
    made: list[StudyCell]

    @classmethod
    def of(cls, formula: Score, path: Path, **settings: object) -> MadeUpRuns:
        """Runs with an empty file."""
        runs = cls(Store.open(path), jobs=1, **settings)  # type: ignore[arg-type]
        runs.formula, runs.made = formula, []
        return runs

    def make(self, cells: Sequence[StudyCell], again: bool = False) -> bool:
        """Write the lines of cells that have none."""
        for cell in dict.fromkeys(cells):
            if again or self.store.finished(cell) is None:
                score = self.formula(cell)
                diverged = score != score
                self.store.keep(line_of(cell, 0.0 if diverged else score, "diverged" if diverged else "done"))
                self.made.append(cell)
        self.know(cells)
        return True
