"""What of a result a tracker shows: parameters, values by epoch, values of the whole run, a name and a state."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.running.summary import row_of

SCORES = ("loss", "train", "val", "test")


@dataclass(frozen=True)
class TrackedRun:
    """One result, ready for a tracker.

    Attributes:
        record: the content of a result file.
        time: when it was finished, in seconds since 1970; results hold no time of their own.
    """

    record: dict[str, Any]
    time: float

    @property
    def run_id(self) -> str:
        """The first 32 hexadecimal digits of the result's own: the same result is the same run wherever it goes."""
        return str(self.record["run_id"])[:32]

    @property
    def name(self) -> str:
        """Method, graph, ranks and mode, for people."""
        row, config = row_of(self.record), self.record["config"]
        return f"{row['method']} {row['dataset']} x{config['parts']} {row['mode']}"

    @property
    def done(self) -> bool:
        """Whether the run ended as it should."""
        return bool(self.record["state"] == "done")

    def parameters(self) -> dict[str, Any]:
        """Every setting of the run; None is left out."""
        return {key: value for key, value in self.record["config"].items() if value is not None}

    def series(self) -> list[tuple[int, dict[str, float]]]:
        """Every epoch's number and its values by name; what an epoch did not measure, or is no number, is left out.

        Names: loss and scores in [0, 1] as in results, `seconds/NAME`, `bytes/NAME` (sums over ranks and layers),
        `observed/NAME`, `peak_memory` in bytes of the fullest rank.
        """
        return [(int(epoch["epoch"]), _finite(_values(epoch))) for epoch in self.record["epochs"]]

    def summary(self) -> dict[str, float]:
        """The numbers of the run's row in tables: the steady epoch by component, bytes, scores, memory."""
        numbers = {key: value for key, value in row_of(self.record).items() if isinstance(value, int | float)}
        return _finite({f"run/{key}": value for key, value in numbers.items() if key not in self.record["config"]})


def tracked_run(record: dict[str, Any], path: Path) -> TrackedRun:
    """A result that was read from a file, finished when the file was written; all that a tracker needs is in it.

    Raises:
        InputError: it is not; or its identity is none, which becomes the name of a folder.
    """
    run = TrackedRun(record, path.stat().st_mtime)
    try:
        for read in (run.parameters, run.series, run.summary, run.name.strip):
            read()
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"result {path} is damaged: {type(error).__name__}: {error}") from None
    if not re.fullmatch(r"[0-9a-f]{32,}", str(record["run_id"])):
        raise InputError(f"result {path} is damaged: its run_id is no hash")
    return run


def _values(epoch: dict[str, Any]) -> dict[str, float | None]:
    sent = {
        name: sum(value) if isinstance(value, list) else value
        for name, value in epoch["bytes"].items()
        if not isinstance(value, dict)
    }
    return {
        **{name: epoch.get(name) for name in SCORES},
        **{f"seconds/{name}": value for name, value in epoch["seconds"].items()},
        **{f"bytes/{name}": value for name, value in sent.items()},
        **{f"observed/{name}": value for name, value in epoch.get("observed", {}).items()},
        "peak_memory": max(epoch["peak_memory"], default=None),
    }


def _finite(values: dict[str, float | None]) -> dict[str, float]:
    """Those that a tracker can draw; a run that diverged has others."""
    return {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}
