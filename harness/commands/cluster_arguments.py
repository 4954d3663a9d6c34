"""Arguments of the commands about hosts: `haloscope lab`, `haloscope launch`. Imports no torch.

Both take another command's arguments after `--`, which `split_arguments` separates before argparse parses the rest.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from harness.commands.flag_numbers import whole


def split_arguments(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments before and after the first `--`, for the commands that accept it; otherwise all and none."""
    words = list(argv)
    if "--" not in words or words[0] not in ("lab", "launch"):
        return words, []
    bar = words.index("--")
    return words[:bar], words[bar + 1 :]


def add_lab(parser: argparse.ArgumentParser) -> None:
    """Arguments of `haloscope lab`."""
    what = "COUNTxRATE,... with rates in mbit or gbit, or unshaped; then :ranks=N, :delay=TIME"
    parser.add_argument("spec", nargs="?", metavar="lab:3x1gbit", help=f"the lab: {what}")
    parser.set_defaults(words=[])
    parser.epilog = "haloscope lab SPEC -- COMMAND... runs a command on host 0 instead of measuring the links."
    parser.add_argument("--check", action="store_true", help="check what this machine can build, and build nothing")
    parser.add_argument("--clean", action="store_true", help="remove namespaces left by labs of dead processes")


def add_launch(parser: argparse.ArgumentParser) -> None:
    """Arguments of `haloscope launch`."""
    parser.add_argument("scheduler", choices=("slurm",), help="whose job script to write")
    parser.set_defaults(words=[])
    parser.epilog = "haloscope launch slurm [OPTIONS] -- FLAGS...: the flags are those of haloscope run."
    counts = {
        "nodes": (1, "nodes"),
        "gpus-per-node": (0, "GPUs of each node, one rank on each"),
        "ranks-per-node": (1, "ranks of each node without GPUs"),
        "cpus-per-node": (0, "CPU cores of each node; 0 leaves it to Slurm"),
    }
    for flag, (default, text) in counts.items():
        parser.add_argument(f"--{flag}", type=whole, default=default, metavar="N", help=f"{text} (default: {default})")
    words = {
        "time": "time limit, e.g. 02:00:00; the job leaves a checkpoint and is queued again when it is reached",
        "partition": "Slurm partition",
        "account": "Slurm account",
        "venv": "folder of the Python environment to activate",
        "interface": "network interface that gloo and NCCL use, e.g. ib0",
    }
    for flag, text in words.items():
        parser.add_argument(f"--{flag}", default="", metavar="TEXT", help=text)
    parser.add_argument("--name", default="haloscope", metavar="TEXT", help="name of the job (default: haloscope)")
    parser.add_argument("--out", type=Path, metavar="FILE.sh", help="write the script here (default: to stdout)")
