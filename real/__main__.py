"""One rank of a run: `torchrun -m real` with the flags of `haloscope run`, or what our own launcher starts.

    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint FIRST_HOST:29500 -m real
        --dataset ogb:ogbn-products --method bns-gcn:p=0.1
    python -m real --config FILE.json --result FILE --progress FILE        (the launcher)
    python -m real --fork                                                  (the process it forks ranks from)

Exit codes: 0 done, 1 the program failed, 2 bad input; of rank 0 under torchrun also 3: it was
asked to stop and has written a checkpoint. 143: SIGTERM has ended it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.config import laid_over
from harness.errors import InputError
from harness.keys import read_table
from harness.machine import restart_in_allocator_environment, write_atomically

if TYPE_CHECKING:  # with it comes torch, before which `restart_in_allocator_environment` is called
    from harness.running.results import RankEpoch


def main(argv: Sequence[str]) -> int:
    """Run this process's rank; returns the exit code, after one line on stderr where it is not 0."""
    from harness.trampoline import blame
    from real.launch import ERROR_PREFIX, serve

    if argv == ["--fork"]:
        serve()
        return 0
    try:
        return _launched(argv) if "--result" in argv else _torchrun(argv)
    except SystemExit as stop:  # argparse; SIGTERM, after which an orderly exit would wait for exchanges in flight
        code = stop.code if isinstance(stop.code, int) else 1
        if code == 128 + signal.SIGTERM:
            print(
                "; ".join([f"{ERROR_PREFIX}ended by SIGTERM", *getattr(stop, "__notes__", [])]),
                file=sys.stderr,
                flush=True,
            )
        return code
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get("HALOSCOPE_DEBUG") == "1":
            traceback.print_exc()
        print(ERROR_PREFIX + " ".join(blame(error).split()), file=sys.stderr, flush=True)
        return 2 if isinstance(error, InputError) else 1


def _launched(argv: Sequence[str]) -> int:
    """A rank started by haloscope's launcher: reads its config from a file, writes outcome and epochs to files."""
    from harness.running import stopping
    from real.launch import CheckpointSettings, run_rank

    parser = argparse.ArgumentParser(prog="python -m real")
    for flag in ("--config", "--result", "--progress"):
        parser.add_argument(flag, type=Path, required=True)
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args(argv)
    with suppress(OSError):
        Path("/proc/self/comm").write_text(f"rank{os.environ['RANK']}")  # for top and ps
    config = laid_over(msgspec.json.decode(args.config.read_bytes()))
    keep = None if args.keep is None else _kept_in(args.keep)
    if args.checkpoints is None:
        outcome = run_rank(config, _append_to(args.progress), keep=keep)
    else:
        settings = msgspec.json.decode(args.checkpoints.read_bytes(), type=CheckpointSettings)
        with stopping.stop_requests() as stop:
            outcome = run_rank(config, _append_to(args.progress), settings.options(stop), keep)
    if outcome is not None:
        write_atomically(args.result, msgspec.msgpack.encode(outcome[0]), durable=False)
    return 0


def _torchrun(argv: Sequence[str]) -> int:
    """A rank started by torchrun; rank 0 writes and prints what `haloscope run` would."""
    from harness.commands.arguments import config_of, parse_arguments
    from harness.commands.run import checkpoints_of, exit_code, report, stoppable
    from harness.commands.shared.cells import deliver, json_target, writable
    from harness.running import finish, open_run, with_room
    from harness.running.results import ResultFile, load_result
    from real.launch import KeptRecords, run_rank, torchrun_config

    args = parse_arguments(["run", *argv])
    args.mode = "real"  # before the config is checked: not every setting is valid in every mode
    size, rank = os.environ.get("WORLD_SIZE", "1"), os.environ.get("RANK", "0")
    config = torchrun_config(config_of(args), int(size) if size.isdigit() else 1, _names_parts(args))
    writable(args.out, folder=True)
    json_target(args.json)
    checkpoints = checkpoints_of(args)
    if args.restarts:
        raise InputError("--restarts is for haloscope run; torchrun has --max-restarts")
    if checkpoints is not None and _restarted():
        checkpoints = replace(checkpoints, resume=True)
    file = ResultFile(config, args.out)
    with stoppable(checkpoints) as options, file if rank == "0" else nullcontext() as mine:
        inputs = {} if mine is None else open_run(config).inputs()  # before they are read
        kept = KeptRecords(config, file.path, int(rank) if rank.isdigit() else 0)
        try:
            returned = run_rank(config, with_room(mine, None), options, kept.keep, kept.prepare)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            with suppress(InputError):  # the run's own error is the one to be raised
                kept.leave(mine, error, inputs)
            raise
        if returned is None:
            return 0
        outcome, prepared = returned
        file.write(replace(finish(config, prepared, outcome.execution()), inputs=inputs))
        kept.remove()
    record = load_result(file.path)
    deliver(record, report(record, f"result: {file.path}"), args.json, args.quiet)
    return exit_code(record)


def _restarted() -> bool:
    """Whether torchrun restarted these ranks after a failure."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"


def _names_parts(args: argparse.Namespace) -> bool:
    """Whether a flag or the config file sets the number of parts."""
    file = getattr(args, "config", None)
    return hasattr(args, "parts") or (file is not None and "parts" in read_table(Path(file), "config file"))


def _append_to(path: Path) -> Callable[[RankEpoch], None]:
    """A progress callback that writes one JSON line per epoch for the launcher."""

    def report(record: RankEpoch) -> None:
        with path.open("ab") as stream:
            stream.write(msgspec.json.encode(record) + b"\n")

    return report


def _kept_in(folder: Path) -> Callable[[int, RankEpoch], None]:
    """A callback that writes one JSON line per epoch to the file of the rank, for the result of a run that fails."""
    return lambda rank, record: _append_to(folder / str(rank))(record)


def _run() -> None:
    """This process from its first line to its end."""
    if "WORLD_SIZE" in os.environ and "--result" not in sys.argv:  # torchrun's, whose environment is not ours
        restart_in_allocator_environment()
    from real.rank.health import end_process

    end_process(main(sys.argv[1:]))


if __name__ == "__main__":
    _run()
