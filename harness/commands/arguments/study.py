"""Arguments of the commands that study accuracy; imports nothing heavy."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.commands.arguments.engines import add_engine
from harness.commands.arguments.numbers import MOST_JOBS, SEEDS_AT_MOST, number, whole_in


def _add_shared(parser: argparse.ArgumentParser, budget: str) -> None:
    text = f"begin no run that is expected to end later: 90s, 1h30m (default: {budget})"
    parser.add_argument("--budget", default=budget, metavar="TIME", help=text)
    text = (
        "factor on the numbers of nodes of the stand-ins, above 0; smaller ones are quicker and have a file of their "
        "own (default: 1)"
    )
    parser.add_argument("--scale", type=number, default=1.0, metavar="X", help=text)
    parser.add_argument(
        "--json", metavar="FILE", help="also write the result here; - for stdout, with the tables on stderr"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress, no tables")


def add_study(parser: argparse.ArgumentParser) -> None:
    """`haloscope study`."""
    text = "a paper's claims (`haloscope study list`), all of them, or a .toml file of your own"
    parser.add_argument("name", metavar="NAME", help=text)
    text = "claims whose key contains one of these texts, with semicolons between (default: all)"
    parser.add_argument("--only", metavar="TEXT;...", help=text)
    most = "seeds of a claim at most (default: 40)"
    parser.add_argument("--most", type=whole_in(1, SEEDS_AT_MOST), default=40, metavar="N", help=most)
    text = (
        "width of the 95 %% interval, as a share of the printed difference or of twice the margin, down to which seeds "
        "are added: of every claim that can reach it within the budget, decided or not (default: 0.5)"
    )
    parser.add_argument("--precision", type=number, default=0.5, metavar="X", help=text)
    parser.add_argument("--refresh", action="store_true", help="run cells again whose code or graph has changed")
    text = (
        "where code has changed, run one seed of each kind of run again, every method first: if it comes out as "
        "before, the other seeds count as today's"
    )
    parser.add_argument("--recheck", action="store_true", help=text)
    text = "what there is to run, and what it takes, without running it"
    parser.add_argument("--dry-run", action="store_true", help=text)
    parser.add_argument("--report", action="store_true", help="run nothing, judge the runs that are finished")
    text = "file of the runs (default: in the project, or beside your own file of claims)"
    parser.add_argument("--file", type=Path, metavar="FILE.csv", help=text)
    add_engine(parser, "runs")
    _add_shared(parser, "1h")


def add_standin(parser: argparse.ArgumentParser) -> None:
    """`haloscope standin`."""
    text = "list the designs; fit one, so that two printed scores come out; draw how scores move with each parameter"
    parser.add_argument("what", choices=("list", "fit", "figure"), help=text)
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="name of the design to fit or to draw")
    text = "graphs and initial weights per point (default: 3); a fit is confirmed with 5"
    parser.add_argument("--seeds", type=whole_in(1, SEEDS_AT_MOST), default=3, metavar="N", help=text)
    text = "points of the search at most (default: 12)"
    parser.add_argument("--evaluations", type=whole_in(1, SEEDS_AT_MOST), default=12, metavar="N", help=text)
    text = "parameters that a figure shows (default: signal,label_noise,homophily,agreement,degree,train)"
    parser.add_argument("--knobs", metavar="A,B", help=text)
    text = "folder of fitted stand-ins, or of the figure (default: in the project; standins/)"
    parser.add_argument("--out", type=Path, metavar="DIR", help=text)
    text = "file of finished runs, with which a search goes on (default: standins/NAME.csv)"
    parser.add_argument("--file", type=Path, metavar="FILE.csv", help=text)
    parser.add_argument(
        "--jobs", type=whole_in(0, MOST_JOBS), default=0, metavar="N", help="processes (default: one per core)"
    )
    _add_shared(parser, "2h")
