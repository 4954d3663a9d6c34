"""Arguments of the commands that replay recordings: what-if, serve, explain, and the intervals of predictions."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.commands.arguments.numbers import MOST_POINTS, MOST_RECORDED, MOST_REPLAYS, whole_in

BANDWIDTH = "nic=1Gb/s..400Gb/s"
"""The range that what-if varies unless another one is asked for."""


def add_replays(parser: argparse.ArgumentParser) -> None:
    what = (
        "replays of a recording, with uncertain inputs drawn anew, that the 90 %% interval of a prediction rests on; 0"
    )
    parser.add_argument(
        "--replays",
        type=whole_in(0, MOST_REPLAYS),
        metavar="N",
        help=f"{what}: no interval (default: 40, of what-if 20 at each of 5 values; fewer above 40 ranks)",
    )


def add_what_if(parser: argparse.ArgumentParser) -> None:
    knob = parser.add_mutually_exclusive_group()
    knob.add_argument(
        "--bandwidth", default=BANDWIDTH, metavar="LINK=LOW..HIGH",
        help=f"a link of the cluster (nic, bus, peer, ...) and the range to vary it over (default: {BANDWIDTH})",
    )  # fmt: skip
    knob.add_argument("--latency", metavar="LINK=LOW..HIGH", help="vary a latency instead, e.g. nic=1us..1ms")
    points = "points of the range, at least 2 (default: 25)"
    parser.add_argument("--points", type=whole_in(2, MOST_POINTS), default=25, metavar="N", help=points)
    page = "also write a page with sliders that needs no network (extra `serve`); fewer --points make it smaller"
    parser.add_argument("--html", type=Path, metavar="FILE", help=page)
    add_replays(parser)
    _add_recordings(parser)
    parser.add_argument(
        "--json", metavar="FILE", help="also write the result here; - for stdout, with the tables on stderr"
    )


def add_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=whole_in(0, 65_535), default=8765, metavar="N", help="0 takes a free one (default: 8765)"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS",
        help="address to listen on (default: 127.0.0.1, which only this machine reaches)",
    )  # fmt: skip
    add_replays(parser)
    _add_recordings(parser)


def _add_recordings(parser: argparse.ArgumentParser) -> None:
    """What is recorded, and where it is kept."""
    parser.add_argument(
        "--methods", required=True, metavar="A,B:OPTION=VALUE,...", help="methods; the first is the baseline"
    )
    parser.add_argument("--bits", metavar="1,2,4,8", help="variants of every method that has the option bits")
    parser.add_argument("--devices", metavar="A,B", help="also time it on these devices (names or files of profiles)")
    parser.add_argument("--transports", metavar="A,B", help="also time it over these libraries: gloo, nccl, grpc")
    parser.add_argument(
        "--ranks",
        metavar="2,4,8",
        help="numbers of ranks of the page with sliders, that is of serve or --html (default: --parts)",
    )
    scores = (
        "folder of results: test scores of these methods on the same graph, split, model and number of ranks, "
        "which the page with sliders (serve, --html) draws against time"
    )
    parser.add_argument("--results", type=Path, metavar="DIR", help=scores)
    parser.add_argument(
        "--recorded",
        type=whole_in(0, MOST_RECORDED),
        metavar="N",
        help="epochs to record; times exclude the first (default: 2, more for methods that settle late)",
    )
    parser.add_argument("--force", action="store_true", help="record again even if a recording exists")
    parser.add_argument(
        "--out", type=Path, default=Path("what-if"), metavar="DIR", help="folder of results (default: what-if/)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress, no tables")
