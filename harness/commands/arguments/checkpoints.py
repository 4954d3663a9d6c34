"""The flags of `haloscope run` about checkpoints. Imports no torch."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.commands.arguments.numbers import MOST_EPOCHS, whole_in


def add_checkpoints(parser: argparse.ArgumentParser) -> None:
    """Add them as a separate group."""
    group = parser.add_argument_group("checkpoints")
    group.add_argument(
        "--checkpoint", type=Path, metavar="DIR",
        help="keep checkpoints here; SIGTERM or Ctrl-C then stops the run after its epoch, with exit code 3",
    )  # fmt: skip
    group.add_argument(
        "--checkpoint-every", type=whole_in(0, MOST_EPOCHS), metavar="N",
        help="epochs between checkpoints; 0: only when stopped, and at the end (default: 10)",
    )  # fmt: skip
    group.add_argument(
        "--resume", action=argparse.BooleanOptionalAction,
        help="go on from the newest complete checkpoint of this run; --no-resume removes them and starts anew "
        "(default: --resume, but --no-resume with --force)",
    )  # fmt: skip
    group.add_argument(
        "--restarts", type=whole_in(0, MOST_EPOCHS), default=0, metavar="N",
        help="real mode: when a rank fails, start all of them again from the last checkpoint, N times (default: 0)",
    )  # fmt: skip
