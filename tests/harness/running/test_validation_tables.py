"""Tables over all cells of a study: errors as predicted and at the machine's pace, and what runs differ by."""

from __future__ import annotations

import math
from typing import Any

from harness.commands.validation.tables import summaries
from tests.support.validation_cells import made


def test_tables_tell_the_machines_change_from_the_models_error() -> None:
    """A cell that took twice as long when the machine had half the pace is predicted well at that pace."""
    records = [made("vanilla", 1.0, 1.0), made("vanilla", 1.0, 2.0), made("sylvie-s", 1.0, 1.0), made("sar", 1.0, 1.0)]
    for record, pace in zip(records, (1.0, 2.0, 1.0, 1.0), strict=True):
        record |= {"at_pace": {name: s * pace for name, s in record["predicted"].items()}}
        record |= {"without": {"jitter": {name: 0.5 * s for name, s in record["predicted"].items()}}}
    shown = {str(each.title): each for each in summaries(records)}
    by_method = rows_of(shown["errors of epochs by method"])
    assert by_method["vanilla"][:5] == ["2", "25.0%", "45.0%", "0.0%", "0.0%"]
    assert by_method["all"][0] == "4"
    assert "runs of the same cells (standard deviation)" not in shown
    without = rows_of(next(each for title, each in shown.items() if "mechanisms" in title))
    assert without["nothing"][0].startswith("0.0%") and without["jitter"][0].startswith("50.0%")
    assert without["jitter"][-1] == "50.0%"
    assert summaries(records[:2]) == []


def test_the_table_of_runs_tells_what_error_their_differences_make() -> None:
    """Two runs a factor of 1.21 apart: a standard deviation of ln(1.21) / sqrt(2), none of it at a pace that moved as
    much, all of it and more at one that moved the other way."""
    for beside, paced in (((1.0, 1.21), "0.0%"), ((1.0, 1.0), "13.5%"), ((1.21, 1.0), "27.0%")):
        records = [made(name, 1.0, 1.0) for name in ("vanilla", "sylvie-s", "sar", "cagnet")]
        for record in records:
            record["runs"] = [{"epoch": e, "reference": r} for e, r in zip((1.0, 1.21), beside, strict=True)]
        shown = {str(each.title): each for each in summaries(records)}
        found = rows_of(shown["runs of the same cells (standard deviation)"])
        error = 1.2533 * math.log(1.21) / 2
        off = [f"{100 * part * error:.1f}%" for part in (0.6745, 1.6449)]
        assert found["loopback"] == found["all"] == ["4", "8", "13.5%", paced, *off]


def rows_of(shown: Any) -> dict[str, list[str]]:
    """The rows of a table by their first cell."""
    columns = [list(column.cells) for column in shown.columns]
    return {str(row[0]): [str(cell) for cell in row[1:]] for row in zip(*columns, strict=True)}
