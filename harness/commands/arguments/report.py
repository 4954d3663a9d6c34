"""Arguments of `haloscope report`; imports nothing heavy."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.commands.arguments.engines import add_engine


def add_report(parser: argparse.ArgumentParser) -> None:
    """What is made, how long it may train, and where it is written."""
    what = "make the report (default), list its items, or write the page of what --out holds and make nothing"
    parser.add_argument("what", nargs="?", choices=("all", "list", "page"), default="all", help=what)
    only = (
        "make only these tables, figures or papers, keys of `haloscope report list`: sylvie/table3,bns-gcn (default: "
        "all)"
    )
    parser.add_argument("--only", metavar="KEY,...", help=only)
    parser.add_argument("--html", action="store_true", help="also write index.html: one page that needs no network")
    budget = (
        "time for the training of all tables on two cores: 90s, 1h (default: 10m). Every table that trains has a "
        "fourteenth of it, on one core, also where --only, --jobs or --on make fewer tables or more at a time, so that "
        "a table made alone and one made with all others are the same"
    )
    parser.add_argument("--budget", default="10m", metavar="TIME", help=budget)
    parser.add_argument("--full", action="store_true", help="the papers' epochs, seeds and graphs; hours to days")
    add_engine(parser, "tables and figures")
    text = "folder of results (default: report/)"
    parser.add_argument("--out", type=Path, default=Path("report"), metavar="DIR", help=text)
    text = "also write the summary here; - for stdout, with the tables on stderr"
    parser.add_argument("--json", metavar="FILE", help=text)
    parser.add_argument("--force", action="store_true", help="make an item again even if it is finished")
    parser.add_argument("--quiet", action="store_true", help="no progress, no tables")
