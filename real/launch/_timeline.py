"""Runs a config for real with tracing, to record what every rank did when; see `real.rank.spans`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import msgspec

from harness.errors import InputError
from harness.machine import run_folder
from harness.running import Plan, Progress, make_job
from harness.running.trace import Trace
from real.launch._execute import execute_locally
from real.rank.spans import TRACE_VARIABLE, RankSpans


def measured_timeline(plan: Plan, progress: Progress | None = None) -> Trace:
    """Carry out a plan on this machine and return the spans of its ranks; time 0 is the start of the first span.

    Raises:
        InputError, HaloscopeError: as `harness.running.run`.
    """
    job, _ = make_job(plan, progress)
    before = os.environ.get(TRACE_VARIABLE)
    with run_folder() as folder:
        os.environ[TRACE_VARIABLE] = str(folder)
        try:
            execute_locally(job)
        finally:
            if before is None:
                del os.environ[TRACE_VARIABLE]
            else:
                os.environ[TRACE_VARIABLE] = before
        return gathered(folder)


def gathered(folder: Path) -> Trace:
    """The trace of all ranks that wrote into a folder. Raises InputError where a file is not readable."""
    try:
        files = [msgspec.json.decode(path.read_bytes(), type=RankSpans) for path in sorted(folder.glob("*.json"))]
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"cannot read the ranks' spans in {folder}: {error}") from None
    ranks = sorted(files, key=lambda file: file.rank)
    begin = min((span.start_s for rank in ranks for span in rank.spans), default=0.0)
    trace = Trace([rank.host for rank in ranks])
    for rank in ranks:
        trace.spans += [replace(s, start_s=s.start_s - begin, end_s=s.end_s - begin) for s in rank.spans]
    return trace
