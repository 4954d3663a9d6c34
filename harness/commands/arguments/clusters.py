"""Arguments of the commands about hosts: `haloscope lab`, `haloscope launch`. Imports no torch.

Both take another command's arguments after `--`, which `split_arguments` separates before argparse parses the rest.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.commands.arguments.numbers import MOST_RANKS, whole_in


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


OF_SCHEDULER: dict[str, dict[str, str]] = {
    "slurm": {
        "time": "time limit, e.g. 02:00:00; the job leaves a checkpoint and is queued again when it is reached",
        "partition": "Slurm partition",
        "account": "Slurm account",
        "venv": "folder of the Python environment to activate",
    },
    "kubernetes": {
        "image": "container image with haloscope and torchrun (needed)",
        "claim": "volume claim, ReadWriteMany, that all pods mount as their working folder (needed): graphs in data/, "
        "results and checkpoints",
        "memory": "memory of each pod, e.g. 64Gi",
        "namespace": "namespace (default: that of kubectl's context)",
        "queue": "local queue of Kueue, which starts all pods at once or none",
        "retries": "how often all pods may be made anew after failures (default: 3)",
        "port": "port of the first pod at which ranks meet (default: 29400)",
    },
}
"""Flags that one scheduler takes alone, with their help."""

NUMBERS = {"retries": 1_000_000, "port": 65_535}
"""Those of them that are numbers, with the largest."""


def add_launch(parser: argparse.ArgumentParser) -> None:
    """Arguments of `haloscope launch`."""
    parser.add_argument("scheduler", choices=tuple(OF_SCHEDULER), help="whose job file to write")
    parser.set_defaults(words=[])
    parser.epilog = "haloscope launch slurm|kubernetes [OPTIONS] -- FLAGS...: the flags are those of haloscope run."
    counts = {
        "nodes": (1, "nodes"),
        "gpus-per-node": (0, "GPUs of each node, one rank on each"),
        "ranks-per-node": (1, "ranks of each node without GPUs"),
        "cpus-per-node": (0, "CPU cores of each node; 0: whole nodes of Slurm, and what Kubernetes gives"),
    }
    for flag, (default, text) in counts.items():
        parser.add_argument(
            f"--{flag}", type=whole_in(0, MOST_RANKS), default=default, metavar="N", help=f"{text} (default: {default})"
        )
    interface = "network interface that gloo and NCCL use, e.g. ib0"
    parser.add_argument("--interface", default="", metavar="TEXT", help=interface)
    parser.add_argument("--name", default="haloscope", metavar="TEXT", help="name of the job (default: haloscope)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the job file here (default: to stdout)")
    for scheduler, flags in OF_SCHEDULER.items():
        group = parser.add_argument_group(f"{scheduler} only")
        for flag, text in flags.items():
            kind: dict[str, Any] = {"metavar": "TEXT"}
            if flag in NUMBERS:
                kind = {"type": whole_in(0, NUMBERS[flag]), "metavar": "N"}
            group.add_argument(f"--{flag}", help=text, **kind)
