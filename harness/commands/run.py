"""`haloscope run`: one config, one result file, one page of tables; with --checkpoint, a run that can be stopped."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from harness.commands.arguments import config_of
from harness.commands.shared.cells import deliver, json_target, run_or_reuse, writable
from harness.commands.shared.tables import run_report
from harness.errors import InputError
from harness.machine import ended_by_sigterm
from harness.numbers import byte_text, count_text, duration
from harness.running import Checkpoints, open_run, stopping
from harness.trackers import checked_tracker, export_records, tracked_run
from sims.uncertainty import replays_for


def main(args: argparse.Namespace) -> int:
    """Run, or reuse a result; returns 1 if training diverged, 3 if it was stopped on request.

    SIGTERM and Ctrl-C without --checkpoint leave a result of the epochs so far, in state `killed`.
    """
    config = config_of(args)
    writable(args.out, folder=True)
    json_target(args.json)
    if args.tensorboard is not None:
        checked_tracker("tensorboard")
        writable(args.tensorboard, folder=True)
    checkpoints = checkpoints_of(args)
    if args.restarts and config.run.mode != "real":
        raise InputError("--restarts is for --mode real: elsewhere all ranks are in one process")
    with stoppable(checkpoints) as options:
        cell = run_or_reuse(
            open_run(config), args.out, force=args.force, reuse=args.reuse, quiet=args.quiet, checkpoints=options,
            replays=replays_for(config.cut.parts, args.replays),
        )  # fmt: skip
    lines = []
    if args.tensorboard is not None:
        written = export_records([tracked_run(cell.record, cell.path)], "tensorboard", args.tensorboard)
        lines = [f"for TensorBoard: {place}" for place in written]
    deliver(cell.record, [*report(cell.record, cell.location()), *lines], args.json, args.quiet)
    return exit_code(cell.record)


def checkpoints_of(args: argparse.Namespace) -> Checkpoints | None:
    """Checkpoint settings from the flags; None without --checkpoint. `--force` starts anew unless --resume is given.

    Raises:
        InputError: a flag about checkpoints without --checkpoint, or a folder that cannot be written to.
    """
    if args.checkpoint is None:
        for flag, given in (
            ("--checkpoint-every", args.checkpoint_every is not None),
            ("--resume", args.resume is not None),
            ("--restarts", args.restarts > 0),
        ):
            if given:
                raise InputError(f"{flag} needs --checkpoint DIR")
        return None
    writable(args.checkpoint, folder=True)
    every = 10 if args.checkpoint_every is None else args.checkpoint_every
    resume = not args.force if args.resume is None else args.resume
    return Checkpoints(args.checkpoint.absolute(), every, resume, restarts=args.restarts)


@contextmanager
def stoppable(checkpoints: Checkpoints | None) -> Iterator[Checkpoints | None]:
    """Context in which SIGTERM and Ctrl-C stop the run after its epoch, if it writes checkpoints; else at once."""
    if checkpoints is None:
        with ended_by_sigterm():
            yield None
        return
    # all ranks of torchrun get the signal; one message is enough
    message = stopping.MESSAGE if os.environ.get("RANK", "0") == "0" else ""
    with stopping.stop_requests(message) as stop:
        yield replace(checkpoints, stop=_either(stop, checkpoints.stop))


def report(record: dict[str, Any], where: str) -> list[Any]:
    """The tables and lines that are printed about a run."""
    found = record["facts"].get("checkpoint")
    lines = [record["message"]] if record["state"] == "interrupted" else []
    if found is not None:
        took = f"{duration(found['seconds'])} in all, off the clock" if found["written"] else "none"
        lines.append(f"checkpoints: {found['written']} of {byte_text(found['bytes'])}, {took}")
        lines += [f"resumed after {count_text(epochs, 'epoch')}" for epochs in found["resumed"]]
    lines += [f"restarted: {why}" for why in record["facts"].get("restarts", [])]
    return [*run_report(record), *lines, where]


def exit_code(record: dict[str, Any]) -> int:
    """0 done, 3 interrupted, 1 otherwise."""
    return {"done": 0, "interrupted": stopping.EXIT_CODE}.get(record["state"], 1)


def _either(first: Callable[[], bool], second: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: first() or second()
