"""The `haloscope` command: parses arguments, imports the command's module, turns failures into one line and a code.

Exit codes: 0 done, 1 the program failed, 2 the user can mend it, 3 asked to stop and left a
checkpoint, 130 interrupted, 141 the reader of stdout went away.
Nothing heavy is imported here, so that `--help` is quick.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from harness.commands.arguments import parse_arguments
from harness.errors import HaloscopeError, InputError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; answers the exit code. `HALOSCOPE_DEBUG=1` prints the traceback of a failure first."""
    try:
        args = parse_arguments(sys.argv[1:] if argv is None else argv)
        code = int(import_module(f"harness.commands.{args.command.replace('-', '_')}").main(args))
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # argparse, after --help and --version
        return int(stop.code or 0)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        _forget_stdout()
        return 141
    except InputError as error:
        return _fail(str(error), 2)
    except HaloscopeError as error:
        return _fail(str(error), 1)
    except Exception as error:
        return _fail(f"{type(error).__name__}: {error} (a defect; HALOSCOPE_DEBUG=1 shows where)", 1)


def _forget_stdout() -> None:
    """Send what is still buffered nowhere: the interpreter flushes at exit, and nobody is there to read it."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _fail(message: str, code: int) -> int:
    if os.environ.get("HALOSCOPE_DEBUG") == "1":
        traceback.print_exc()
    print(f"haloscope: error: {' '.join(message.split())}", file=sys.stderr)
    return code
