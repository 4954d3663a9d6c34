"""`haloscope demo`: a demonstration in one command, offline, on two cores.

Measures this machine, predicts three methods on it, runs the same three for real, and compares both.
"""

from __future__ import annotations

import argparse

from harness.commands.calibrate import measure
from harness.commands.cells import deliver, writable
from harness.commands.compare import cells_of, publish, run_all
from harness.config import RunConfig
from sims.uncertainty import REPLAYS

METHODS = "vanilla,bns-gcn:p=0.1,sylvie-s:bits=1"
GRAPH = "synthetic:nodes=16000,degree=10,classes=16,features=64,signal=0.7"
CONFIG = RunConfig.of(
    dataset=GRAPH,
    model="gcn",
    layers=3,
    hidden=128,
    lr=0.02,
    partitioner="hash",  # many cut edges: nearly every row is needed by the other rank, so that communication shows
    parts=2,
    epochs=60,
    eval_every=4,
)


def main(args: argparse.Namespace) -> int:
    """Calibrate, simulate, run, compare."""
    writable(args.out, folder=True)
    cluster = measure(args.out, quick=True, quiet=args.quiet, ranks=(CONFIG.cut.parts,))
    cells = run_all(
        cells_of(CONFIG.changed(cluster=str(cluster)), METHODS, ("sim", "real")),
        args.out / "runs",
        force=True,
        quiet=args.quiet,
        replays=REPLAYS,
    )
    tables, content = publish(cells, args.out)
    deliver(content, tables, None, args.quiet)
    return 0 if all(cell.record["state"] == "done" for cell in cells) else 1
