"""Arguments of `haloscope advise`, without those of a run; imports nothing heavy."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.commands.arguments.engines import add_engine
from harness.commands.arguments.numbers import MOST_NODES, SEEDS_AT_MOST, number_in, whole_in

ADVISED = (
    "method", "parts", "mode", "eval_every", "evaluate", "device", "backend", "timeout", "startup_timeout",
    "prepare_timeout", "shapes_only", "rates", "deterministic",
)  # fmt: skip
"""Settings of a run that are decided, or mean nothing, here."""


def add_advise(parser: argparse.ArgumentParser) -> None:
    """What is asked, and what may be spent."""
    group = parser.add_argument_group("advice")
    text = "numbers of devices to try (default: up to three powers of two that the cluster has, 16 at most)"
    group.add_argument("--parts", dest="devices", default="", metavar="2,4,8", help=text)
    text = "methods to try (default: a list of promising ones); single and vanilla are always compared"
    group.add_argument("--methods", default="", metavar="A,B:OPTION=VALUE,...", help=text)
    text = "points of accuracy that may be lost against exact training (default: 0.5)"
    group.add_argument("--within", type=number_in(0, 100), default=0.5, metavar="POINTS", help=text)
    text = "time that everything may take here: 90s, 15m, 2h (default: 15m)"
    group.add_argument("--budget", default="15m", metavar="TIME", help=text)
    text = "paired seeds of the finalists (default: 5)"
    group.add_argument("--seeds", type=whole_in(1, SEEDS_AT_MOST), default=5, metavar="N", help=text)
    text = "price of one device for one hour, in any currency, such as 2.5; adds the cost of every candidate"
    group.add_argument("--price", type=number_in(0, 1e9), default=0.0, metavar="X", help=text)
    text = "train on a part of the graph with so many nodes (default: the whole, or as many as the budget allows)"
    group.add_argument("--sample", type=whole_in(0, MOST_NODES), default=0, metavar="N", help=text)
    add_engine(group, "trainings")
    text = "folder of recordings and trainings, which are used again, of table and figure (default: advice/)"
    group.add_argument("--out", type=Path, default=Path("advice"), metavar="DIR", help=text)
    text = "also write the advice here; - for stdout, with the tables on stderr"
    group.add_argument("--json", metavar="FILE", help=text)
    group.add_argument("--quiet", action="store_true", help="no progress, no tables")
