"""The `haloscope` command: parses arguments, imports the command's module, turns failures into one line and a code.

Exit codes: 0 done, 1 the program failed, 2 bad input, 3 stopped on request with a checkpoint, 130 interrupted, 141
broken pipe on stdout, 143 ended by SIGTERM. No heavy module is imported here, so that `--help` is fast.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from harness.commands.arguments import check_settings, ignored_keys, parse_arguments
from harness.errors import HaloscopeError, InputError
from harness.steps import steps_told

REFUSALS = frozenset(
    {
        errno.EACCES, errno.EAGAIN, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ELOOP, errno.EMFILE, errno.ENAMETOOLONG,
        errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EPERM, errno.EROFS, errno.ESTALE,
    }
)  # fmt: skip
"""Errors of the operating system that no code mends."""

NO_MEMORY = ("failed to map segment", "allocate memory", "out of memory", "Unable to allocate")
"""Parts of messages by which libraries say that there is no more memory."""

LITTLE = 64 << 20
"""Bytes with which libraries fail without a reason: some raise SystemError where an allocation has failed."""

FEW = 16
"""Open files with which libraries fail without a reason: an event loop alone takes several."""

LONGEST = 4000
"""Characters of an error message: a text that somebody gave may be in it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. With `HALOSCOPE_DEBUG=1` the traceback of a failure is printed first."""
    try:
        args = parse_arguments(sys.argv[1:] if argv is None else argv)
        check_settings(args)
        _say_ignored(args)
        with steps_told(_say_nothing if getattr(args, "quiet", False) else _say):
            code = int(import_module(f"harness.commands.{args.command.replace('-', '_')}").main(args))
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # argparse, after --help and --version; SIGTERM
        code = int(stop.code or 0)
        return _fail(_ended("ended by SIGTERM", stop), code) if code == 128 + signal.SIGTERM else code
    except KeyboardInterrupt as stop:
        return _fail(_ended("interrupted", stop), 130)
    except BrokenPipeError:
        _forget_stdout()
        return 141
    except InputError as error:
        return _fail(str(error), 2)
    except HaloscopeError as error:
        return _fail(str(error), 1)
    except Exception as error:
        if lacking := _lacking(error):
            return _fail(lacking, 2)
        return _fail(f"{type(error).__name__}: {error} (a defect; HALOSCOPE_DEBUG=1 shows where)", 1)


def _say_ignored(args: argparse.Namespace) -> None:
    """Name the keys of a config file that this command does not take from it."""
    keys = ignored_keys(args)
    if keys and not getattr(args, "quiet", False):
        _say(f"{', '.join(keys)}: not taken from {args.config}, since {args.command} decides or does without them")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _say_nothing(line: str) -> None:
    pass


def _ended(how: str, stop: BaseException) -> str:
    """How a signal ended the command, and what is left of its run."""
    return "; ".join([how, *(note for note in getattr(stop, "__notes__", []) if note.startswith("result: "))])


def _lacking(error: Exception) -> str:
    """What the machine lacks or refuses, where that is the error; else empty."""
    if isinstance(error, OSError) and error.strerror and error.errno in REFUSALS:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError) or any(text in str(error) for text in NO_MEMORY):
        return f"not enough memory: {error}" if str(error) else "not enough memory"
    first = str(error).partition("\n")[0]  # of torch's the rest is a stack of C++
    if isinstance(error, SystemError):
        from harness.machine import memory_left  # here, since hardly a command needs it

        left = memory_left()
        if left is not None and left < LITTLE:
            return f"not enough memory: {left / 1e6:.1f} MB were left where a library failed ({first})"
    if isinstance(error, RuntimeError):
        from harness.machine import files_left  # as above

        if files_left(FEW) < FEW:
            return f"too many open files: {files_left(FEW)} more could be opened where a library failed ({first})"
    return ""


def _forget_stdout() -> None:
    """Discard buffered output: the interpreter flushes at exit, and the pipe has no reader any more."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _fail(message: str, code: int) -> int:
    if os.environ.get("HALOSCOPE_DEBUG") == "1":
        traceback.print_exc()
    line = " ".join(message.split())
    print(f"haloscope: error: {line if len(line) <= LONGEST else f'{line[:LONGEST]}...'}", file=sys.stderr)
    return code
