"""Tables of `haloscope validate` over all cells: by links, hosts, method and component, by the machine's pace, and
without every mechanism of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from harness.commands.shared.tables import table
from harness.config import is_lab
from harness.running import validation
from harness.running.validation import MATTERS, VALIDATED_COMPONENTS

CellRecord = Mapping[str, Any]

JUDGED = ("epoch", "compute", "halo", "reduce")
"""Components of the table of mechanisms."""

AT_PACE = ("at the machine's pace", "90th")
"""Columns of errors without what the machine's pace changed between the calibration and the cells."""

INSIDE = "in the interval, at the pace"
"""Column of measurements that lie in the 90 % interval, and in the same around the prediction at the pace."""

MEDIAN_OFF, NORMAL = 1.2533, (0.6745, 1.6449)
"""Standard error of the median of n normal values, times sqrt(n), in their standard deviation; and the median and the
90th percentile of how far a normal value is off, in its own."""

FEWEST = 4
"""Cells below which a study needs no tables of groups."""


def summaries(records: Sequence[CellRecord]) -> list[Any]:
    """The tables, of undisturbed cells; none for a few cells."""
    quiet = [record for record in records if not record["disturbed"]]
    if len(quiet) < FEWEST:
        return []
    made = [_groups("links", quiet, _links), _groups("ranks", quiet, lambda r: str(r["parts"]))]
    made += [_groups("model", quiet, lambda r: f"{r['model']}, {r['partitioner']}")]
    made += [_groups("method", quiet, lambda r: str(r["method"]).partition(":")[0]), _components(quiet)]
    made += [_runs(quiet)] if any(len(record["runs"]) > 1 for record in quiet) else []
    return [*made, *([_ablation(quiet)] if any(record.get("without") for record in quiet) else [])]


def _links(record: CellRecord) -> str:
    name = str(record["cluster"])
    if not is_lab(name):
        return "loopback"
    return name.removeprefix("lab:") + (f", {record['parts']} ranks" if "ranks" in name else "")


def _error(record: CellRecord, name: str = "epoch", side: str = "predicted") -> float:
    return abs(float(record[side][name]) / float(record["measured"][name]) - 1)


def _groups(title: str, records: Sequence[CellRecord], group_of: Callable[[CellRecord], str]) -> Any:
    """Errors of epochs by group: as predicted, and at the pace that the machine had beside the cell."""
    groups: dict[str, list[CellRecord]] = {}
    for record in records:
        groups.setdefault(group_of(record), []).append(record)
    rows = [[name, *_row(each)] for name, each in groups.items()]
    heading = [title, "cells", "median", "90th", *AT_PACE, INSIDE]
    return table(f"errors of epochs by {title}", heading, [*rows, ["all", *_row(records)]])


def _row(records: Sequence[CellRecord]) -> list[str]:
    return [str(len(records)), *_quantiles(records, "epoch"), _inside(records)]


def _inside(records: Sequence[CellRecord], name: str = "epoch") -> str:
    """How many measurements of a component lie in the interval, and in that around the prediction at the pace."""
    (inside, known), (at_pace, _) = (validation.coverage(records, name, at_pace=pace) for pace in (False, True))
    return f"{inside}, {at_pace} of {known}"


def _quantiles(records: Sequence[CellRecord], name: str) -> list[str]:
    """Median and 90th percentile of a component's errors, as predicted and then at the machine's pace."""
    found = []
    for side in ("predicted", "at_pace"):
        errors = [_error(record, name, side) for record in records if side in record]
        found += [_percent(np.median(errors)), _percent(np.quantile(errors, 0.9))] if errors else ["-", "-"]
    return found


def _components(records: Sequence[CellRecord]) -> Any:
    """Errors of components where they matter."""
    rows = []
    for name in VALIDATED_COMPONENTS:
        judged = [r for r in records if r["measured"][name] > MATTERS * r["measured"]["epoch"]]
        if not judged:
            continue
        ratio = np.median([record["predicted"][name] / record["measured"][name] for record in judged])
        rows.append(
            [
                name,
                str(len(judged)),
                *_quantiles(judged, name),
                f"{ratio:.2f}",
                _inside(judged, name),
            ]
        )
    heading = ["component", "cells", "median", "90th", *AT_PACE, "predicted / measured", INSIDE]
    return table(f"errors of components that are over {MATTERS:.0%} of the epoch", heading, rows)


def _runs(records: Sequence[CellRecord]) -> Any:
    """By how much runs of the same cell differ, as measured and over the fixed work beside each, and what errors the
    former alone makes of a prediction that is right: of a median of normal values, on a logarithmic scale."""
    groups: dict[str, list[CellRecord]] = {}
    for record in records:
        if len(record["runs"]) > 1:
            groups.setdefault(_links(record), []).append(record)
    rows = [[name, *_differences(found)] for name, found in groups.items()]
    rows.append(["all", *_differences([record for found in groups.values() for record in found])])
    heading = ["links", "cells", "runs", "runs differ by", "over the fixed work", "error by that: median", "90th"]
    return table("runs of the same cells (standard deviation)", heading, rows)


def _differences(records: Sequence[CellRecord]) -> list[str]:
    runs = sum(len(record["runs"]) for record in records)
    freedom, squares = runs - len(records), np.zeros(2)
    for record in records:
        epochs, beside = (np.log([run[name] for run in record["runs"]]) for name in ("epoch", "reference"))
        squares += [np.sum((each - each.mean()) ** 2) for each in (epochs, epochs - beside)]
    plain, paced = np.sqrt(squares / freedom)
    error = MEDIAN_OFF * plain * float(np.mean([1 / np.sqrt(len(record["runs"])) for record in records]))
    half, most = (_percent(part * error) for part in NORMAL)
    return [str(len(records)), str(runs), _percent(plain), _percent(paced), half, most]


def _ablation(records: Sequence[CellRecord]) -> Any:
    """Errors of epochs and components without every mechanism, over the cells for which it was left out."""
    known = [record for record in records if record.get("without")]
    rows = [["nothing", *_errors([record["predicted"] for record in known], known)]]
    for name in known[0]["without"]:
        rows.append([name, *_errors([record["without"][name] for record in known], known)])
    heading = [
        "without",
        *(f"{name} median, 90th" for name in ("epoch", "compute", "halo", "reduce")),
        "epochs changed",
    ]
    plain = [record["predicted"]["epoch"] for record in known]
    for row, name in zip(rows, ["", *known[0]["without"]], strict=True):
        epochs = [record["without"][name]["epoch"] if name else record["predicted"]["epoch"] for record in known]
        row.append(_percent(np.median(np.abs(np.asarray(epochs) / plain - 1))))
    return table(f"the model without one of its mechanisms, {len(known)} cells", heading, rows)


def _errors(predictions: Sequence[Mapping[str, float]], records: Sequence[CellRecord]) -> list[str]:
    found = []
    for name in JUDGED:
        errors = [
            abs(seconds[name] / record["measured"][name] - 1)
            for seconds, record in zip(predictions, records, strict=True)
            if record["measured"][name] > MATTERS * record["measured"]["epoch"]
        ]
        found.append(f"{_percent(np.median(errors))}, {_percent(np.quantile(errors, 0.9))}" if errors else "-")
    return found


def _percent(value: float) -> str:
    return f"{100 * float(value):.1f}%"
