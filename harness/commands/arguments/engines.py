"""Arguments of the commands that run many cells: where, and how many at a time. Imports nothing heavy."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from harness.commands.arguments.numbers import MOST_JOBS, whole_in
from harness.console import show, stderr
from harness.errors import InputError


def add_engine(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup, what: str = "cells", here: str = "one per core"
) -> None:
    """`--on` and `--jobs`; `here` is how many run at a time on this machine where nothing is asked for."""
    text = (
        f"where {what} run: local, processes of this machine (default); slurm, a job each, with submitit's parameters "
        "as in slurm:timeout_min=60,slurm_partition=gpu (extra slurm); dask:HOST:PORT, workers of a Dask cluster, or "
        "dask, workers on this machine (extra dask)"
    )
    parser.add_argument("--on", default="local", metavar="WHERE", help=text)
    text = (
        f"{what} at a time (default: {here}; slurm: all; dask:HOST:PORT: one per worker); on this machine always one "
        "where one is in mode real, which measures it"
    )
    parser.add_argument("--jobs", type=whole_in(0, MOST_JOBS), default=0, metavar="N", help=text)


def telling(quiet: bool) -> Callable[[str], None]:
    """What takes lines of progress, for stderr."""
    return (lambda _: None) if quiet else (lambda line: show([line], stderr()))


def real_jobs(on: str, jobs: int, say: Callable[[str], None]) -> int:
    """Cells at a time where some measure real time: one here, as many as asked for as jobs of a scheduler.

    `say` gets a line where that is not what was asked for.

    Raises:
        InputError: on workers that share their machines with each other.
    """
    if on.partition(":")[0] == "dask":
        raise InputError("--on dask: cells in mode real measure the machine that they have to themselves; --on local")
    if on != "local":
        return jobs
    if jobs > 1:
        say(f"--jobs {jobs}: all run one at a time, since some are in mode real and measure this machine")
    return 1
