"""Arguments of the commands that measure this machine; imports nothing heavy."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from harness.commands.arguments.numbers import MOST_EPOCHS, MOST_RANKS, MOST_REPLAYS, MOST_WIDTH, whole_in


def add_calibrate(parser: argparse.ArgumentParser) -> None:
    """`haloscope calibrate`."""
    where = "folder (default: kept for this machine, as --cluster here; calibration/ with --lab or --device cuda)"
    parser.add_argument("--out", type=Path, metavar="DIR", help=where)
    text = (
        "what runs will train on: cpu, or cuda: the first GPU of this host is measured; not with --lab (default: cpu)"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help=text)
    text = "measure collectives between the hosts of a lab instead, unshaped (root)"
    parser.add_argument("--lab", metavar="lab:3x1gbit", help=text)
    depth = parser.add_mutually_exclusive_group()
    parser.set_defaults(depth="quick")
    depths = {
        "brief": "1 to 2 minutes: operators of vanilla, bns-gcn, sylvie-s, ec-graph; others by class; as the demo does",
        "quick": "five to ten minutes: operators of every method (default)",
        "full": "longer: four times as many epochs of every operator, narrower errors",
    }
    for name, text in depths.items():
        depth.add_argument(f"--{name}", dest="depth", action="store_const", const=name, help=text)
    text = "also write every number of the cluster here; - for stdout, with the tables on stderr"
    parser.add_argument("--json", metavar="FILE", help=text)
    parser.add_argument("--quiet", action="store_true", help="no progress, no tables")


NOT_OF_STUDY = ("methods", "cluster", "datasets", "parts", "model", "layers", "hidden", "partitioner")
"""Flags of `haloscope validate` that choose cells, which --study chooses itself."""

OF_NAMED_GRAPHS: dict[str, str | int] = {"model": "gcn", "layers": 3, "hidden": 64, "partitioner": "auto"}
"""Flags about graphs that are no workload of its own, which have a model and a partitioner, with their defaults."""


def add_validate(parser: argparse.ArgumentParser) -> None:
    """`haloscope validate`. The flags of `NOT_OF_STUDY` are None where they are not given."""
    _add_cells(parser)
    text = "precision of every run, measured and predicted: fp32 (default), or bf16"
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help=text)
    text = "folder of a calibration of this machine, as calibrate --out DIR writes it (default: measured now)"
    parser.add_argument("--calibration", type=Path, metavar="DIR", help=text)
    runs = "real runs of a cell, minutes apart, whose median counts (default: 5)"
    parser.add_argument("--runs", type=whole_in(1, MOST_REPLAYS), default=5, metavar="N", help=runs)
    replays = "replays that the 90 %% interval of a prediction rests on; 0: no intervals (default: 40)"
    parser.add_argument("--replays", type=whole_in(0, MOST_REPLAYS), metavar="N", help=replays)
    budget = "do not begin cells that would end later, calibrations apart: 90m, 4h (default: 4h); a later call goes on"
    parser.add_argument("--budget", default="4h", metavar="TIME", help=budget)
    parser.add_argument("--force", action="store_true", help="measure and predict again")
    code = "measurements in --out that count: those of the same code (default), or of any"
    parser.add_argument("--reuse", choices=("same", "any"), default="same", help=code)
    text = "also predict every cell without every mechanism of the model, and show what each is worth"
    parser.add_argument("--ablation", action="store_true", help=text)
    parser.add_argument(
        "--out", type=Path, default=Path("validation"), metavar="DIR", help="folder (default: validation/)"
    )
    parser.add_argument(
        "--json", metavar="FILE", help="also write the records here; - for stdout, with the tables on stderr"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress, no tables")


def _add_cells(parser: argparse.ArgumentParser) -> None:
    """What is measured and predicted: the cells of the study, or those that the other flags describe."""
    where = "local, or a lab such as lab:3x1gbit (root); several with spaces between (default: local)"
    parser.add_argument("--cluster", nargs="+", metavar="NAME", help=where)
    labs = (
        "labs of 2, 3 and 4 hosts on links of many rates, four workloads, every method in turn (root); it chooses its "
        "cells, so that flags about them are refused"
    )
    parser.add_argument("--study", action="store_true", help=labs)
    text = "round of the study to begin with, of 4 of 30 cells each: others than an earlier study's (default: 1)"
    parser.add_argument("--from-round", type=whole_in(1, 4), default=1, metavar="N", help=text)
    parser.add_argument("--methods", metavar="A,B:OPTION=VALUE,...", help="methods (default: all of several ranks)")
    graphs = (
        "heavy, balanced, attention, narrow, or any graph of `haloscope run`; several with spaces between (default: "
        "heavy balanced)"
    )
    parser.add_argument("--datasets", nargs="+", metavar="NAME", help=graphs)
    ranks = "ranks (default: all of a lab; 2 on local)"
    parser.add_argument("--parts", type=whole_in(0, MOST_RANKS), metavar="N", help=ranks)
    epochs = "epochs; the first 5 warm up (default: 25)"
    parser.add_argument("--epochs", type=whole_in(1, MOST_EPOCHS), default=25, metavar="N", help=epochs)
    what = {"model": "model", "layers": "number of layers", "hidden": "hidden width", "partitioner": "partitioner"}
    for name, default in OF_NAMED_GRAPHS.items():
        text = f"{what[name]} on graphs other than heavy, balanced, attention and narrow (default: {default})"
        kind: dict[str, Any] = {"metavar": "TEXT"}
        if isinstance(default, int):
            kind = {"type": whole_in(1, MOST_WIDTH), "metavar": "N"}
        parser.add_argument(f"--{name}", help=text, **kind)
