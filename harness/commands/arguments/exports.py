"""Arguments of `haloscope export`, and the flag of `haloscope run` for TensorBoard. Imports no torch."""

from __future__ import annotations

import argparse
from pathlib import Path

FORMATS = ("mlflow", "wandb", "tensorboard")
"""Trackers that results can be written for."""


def add_export(parser: argparse.ArgumentParser) -> None:
    """Add all of them."""
    results = "result files, or folders of them (as --out of run, compare and sweep)"
    parser.add_argument("results", type=Path, nargs="+", metavar="RESULT", help=results)
    what = (
        "mlflow: a file store; wandb: config, history and summary of every run as W&B keeps them; tensorboard: event "
        "files (extra `tensorboard`)"
    )
    parser.add_argument("--to", choices=FORMATS, required=True, help=what)
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to write into (default: mlruns/, wandb/, tb/)")
    title = "experiment or project that the runs belong to (default: haloscope)"
    parser.add_argument("--title", default="haloscope", metavar="NAME", help=title)
    parser.add_argument("--quiet", action="store_true", help="print nothing")


def add_tensorboard(parser: argparse.ArgumentParser) -> None:
    """Add the flag of a run."""
    parser.add_argument(
        "--tensorboard", type=Path, metavar="DIR",
        help="also write the run's epochs for TensorBoard here, when it has ended (extra `tensorboard`)",
    )  # fmt: skip
