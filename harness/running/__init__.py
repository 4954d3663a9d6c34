"""Runs a config: prepares data, the rank program that every driver runs, evaluation, checkpoints, result files.

`run` is the entry point. Public modules beside it: `results` (the result file), `summary` (a row per run), `sweep` and
`submitted` (grids of runs), `validation` (predicted beside measured), `trace` (timelines), `stopping`. Imported by
drivers, reports and commands only.
"""

from harness.running._checkpoint import last_epochs, started_anew
from harness.running._evaluation import Judge, whole_graph
from harness.running._job import Checkpoints, Job, Progress
from harness.running._prepare import Prepared, prepare
from harness.running._runner import (
    Execution,
    check_driver,
    check_job,
    cpu_threads,
    data_inputs,
    finish,
    inputs,
    make_job,
    run,
    threads_per_rank,
)
from harness.running._training import program

__all__ = [
    "Checkpoints",
    "Execution",
    "Job",
    "Judge",
    "Prepared",
    "Progress",
    "check_driver",
    "check_job",
    "cpu_threads",
    "data_inputs",
    "finish",
    "inputs",
    "last_epochs",
    "make_job",
    "prepare",
    "program",
    "run",
    "started_anew",
    "threads_per_rank",
    "whole_graph",
]
