"""Runs a config: prepares data, the rank program that every driver runs, evaluation, checkpoints, result files.

`open_run` resolves the names in a config, once; `run_opened` runs the result. Public modules beside them: `results`
(the result file), `summary` (a row per run), `sweep` and `submitted` (grids of runs), `validation` (predicted beside
measured), `trace` (timelines), `stopping`. Imported by drivers, reports and commands only.
"""

from harness.running._checkpoint import last_epochs, started_anew
from harness.running._evaluation import Judge, whole_graph
from harness.running._job import Checkpoints, Epochs, Execution, Job, Progress
from harness.running._opened import Driver, OpenedRun, Plan, data_inputs, open_run, plan_of
from harness.running._prepare import Prepared, comparable_partitioners, cuts_by, prepare
from harness.running._recorded import RecordedEpochs
from harness.running._runner import cut_short, finish, leave_result, make_job, run, run_opened, with_room
from harness.running._threads import cpu_threads, threads_per_rank
from harness.running._training import program

__all__ = [
    "Checkpoints",
    "Driver",
    "Epochs",
    "Execution",
    "Job",
    "Judge",
    "OpenedRun",
    "Plan",
    "Prepared",
    "Progress",
    "RecordedEpochs",
    "comparable_partitioners",
    "cpu_threads",
    "cut_short",
    "cuts_by",
    "data_inputs",
    "finish",
    "last_epochs",
    "leave_result",
    "make_job",
    "open_run",
    "plan_of",
    "prepare",
    "program",
    "run",
    "run_opened",
    "started_anew",
    "threads_per_rank",
    "whole_graph",
    "with_room",
]
