"""How far predictions from brief calibrations are off: what their intervals hold, and what these would have to be.

    python -m benchmarks.brief [--times 8] [--depth brief] [--rounds 3] [--out DIR]
    python -m benchmarks.brief --show DIR

Again and again: this machine is calibrated, every method is predicted on four workloads, and measured there in rounds,
all in turn. No calibration sees these runs. Printed are the errors of epochs, of components of more than 5 % of their
epoch and of the ratios of two methods' epochs, how many of them the intervals hold, and what the model left open would
have to be for 90 % of them, from all calibrations and with each left out in turn. What was measured is kept in the
folder, and a later call goes on.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from harness.commands.calibrate import REFERENCE, measure
from harness.commands.compare import cells_of, run_all
from harness.config import RunConfig
from harness.machine import Depth
from harness.running.intervals import SHARE, ends, left_open, ratio_ends, rounds_of, widened
from harness.running.validation import MATTERS, VALIDATED_COMPONENTS
from sims.uncertainty import REPLAYS

METHODS = "vanilla,bns-gcn:p=0.1,sylvie-s:bits=1,pipegcn,ec-graph"
EPOCHS = 15

WORKLOADS = {
    "cut": {
        "dataset": "synthetic:nodes=12000,degree=10,classes=16,features=64,signal=0.7",
        "model": "gcn", "layers": 3, "hidden": 128, "partitioner": "hash",
    },
    "dense": {
        "dataset": "synthetic:nodes=8000,degree=50,classes=8,features=128,signal=0.7",
        "model": "sage", "layers": 2, "hidden": 64, "partitioner": "metis",
    },
    "narrow": {
        "dataset": "synthetic:nodes=40000,degree=6,classes=8,features=32,signal=0.7",
        "model": "gcn", "layers": 3, "hidden": 16, "partitioner": "hash",
    },
    "wide": {
        "dataset": "synthetic:nodes=6000,degree=20,classes=30,features=160,signal=0.7",
        "model": "sage", "layers": 3, "hidden": 192, "partitioner": "hash",
    },
}  # fmt: skip
"""Graphs and models that the runs of a calibration do not have."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=8, help="calibrations (default: 8; some three minutes each)")
    parser.add_argument("--depth", default="brief", choices=("brief", "quick", "full"), help="of each calibration")
    parser.add_argument("--rounds", type=int, default=3, help="how often every run is measured")
    parser.add_argument("--out", type=Path, default=Path("brief"), help="folder of what is measured (default: brief)")
    parser.add_argument("--show", type=Path, metavar="DIR", help="measure nothing: what is kept in this folder")
    args = parser.parse_args()
    if args.show is None:
        for number in range(args.times):
            repeat(args.out / str(number + 1), cast(Depth, args.depth), args.rounds, f"{number + 1}/{args.times}")
    for title, found in collected(args.show or args.out).items():
        print(*lines(title, found), sep="\n")


def repeat(folder: Path, depth: Depth, rounds: int, title: str) -> None:
    """Calibrate, predict and measure, as far as `folder` has it not."""
    kept = folder / "epochs.csv"
    if kept.exists():
        return
    print(f"calibration {title}", flush=True)
    cluster = folder / "cluster.toml"
    if not (folder / REFERENCE).exists():  # which is written last
        measure(folder, depth=depth)
    found = []
    for name, workload in WORKLOADS.items():
        config = RunConfig.of(**workload, parts=2, epochs=EPOCHS, eval_every=-1, lr=0.01, cluster=str(cluster))
        runs = cells_of(config, METHODS, ("sim", "real"))
        records = [run.record for run in run_all(runs, folder / name, reuse="any", replays=REPLAYS, rounds=rounds)]
        by_mode = {mode: [r for r in records if r["config"]["mode"] == mode] for mode in ("sim", "real")}
        found += [cell_of(name, *pair) for pair in zip(by_mode["sim"], by_mode["real"], strict=True)]
    pd.DataFrame(found).to_csv(kept, index=False)


def cell_of(workload: str, sim: Mapping[str, Any], real: Mapping[str, Any]) -> dict[str, Any]:
    """A method on a workload: seconds of the epoch and of its components, and the ends of what was drawn."""
    interval, seconds = sim["facts"]["interval"], sim["summary"]["seconds"]
    depth = interval.get("depth", "")
    more, cell = left_open(depth), {"workload": workload, "method": sim["config"]["method"], "depth": depth}
    cell["draws"] = joined(interval["ratios"])
    cell["rounds"] = joined(rounds_of(real) or [real["summary"]["epoch_seconds"]])
    for name in VALIDATED_COMPONENTS:
        low, high = interval["seconds"][name]
        cell |= {f"{name}_predicted": seconds[name], f"{name}_measured": real["summary"]["seconds"][name]}
        if seconds[name]:
            narrower = [narrowed(seconds[name], end, more.seconds[name]) for end in (low, high)]
            cell |= {f"{name}_low": narrower[0], f"{name}_high": narrower[1]}
    return cell


def narrowed(value: float, end: float, more: float) -> float:
    """The end of an interval before `harness.running.intervals.widened` moved it."""
    off = math.log(end / value)
    return value * math.exp(math.copysign(math.sqrt(max(off * off - more * more, 0.0)), off))


def collected(folder: Path) -> dict[str, pd.DataFrame]:
    """Of all calibrations in a folder: epochs, their components, and ratios of pairs in rows of `row`."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in (*VALIDATED_COMPONENTS, "ratios")}
    for kept in sorted(folder.glob("*/epochs.csv"), key=lambda path: int(path.parent.name)):
        cells = pd.read_csv(kept).to_dict("records")
        for cell in cells:
            for name in VALIDATED_COMPONENTS:
                value, measured = cell[f"{name}_predicted"], cell[f"{name}_measured"]
                if min(value, measured) > MATTERS * cell["epoch_measured"]:
                    drawn = cell[f"{name}_low"], cell[f"{name}_high"]
                    inside = widened(value, *drawn, left_open(cell["depth"]).seconds[name])
                    where = kept.parent.name, cell["workload"], cell["method"]
                    found[name].append(row(where, value, measured, drawn, inside))
        for a, b in pairs(cells):
            drawn = values(a["draws"]) * a["epoch_predicted"] / (values(b["draws"]) * b["epoch_predicted"])
            measured = float(np.median(values(a["rounds"]) / values(b["rounds"])))
            where = kept.parent.name, a["workload"], f"{a['method']} / {b['method']}"
            both = ends(drawn), ratio_ends(drawn, left_open(a["depth"]))
            found["ratios"].append(row(where, float(np.median(drawn)), measured, *both))
    return {name: pd.DataFrame(rows) for name, rows in found.items()}


def joined(numbers: Sequence[float]) -> str:
    return " ".join(map(str, numbers))


def values(text: str) -> np.ndarray:
    return np.asarray(str(text).split(), np.float64)


def pairs(cells: Sequence[Mapping[Any, Any]]) -> Iterator[tuple[Mapping[Any, Any], Mapping[Any, Any]]]:
    """Cells of one workload, two by two."""
    return ((a, b) for a, b in combinations(cells, 2) if a["workload"] == b["workload"])


def row(
    where: tuple[str, str, str], predicted: float, measured: float, drawn: tuple[float, float],
    interval: tuple[float, float],
) -> dict[str, Any]:  # fmt: skip
    """One number: its error, whether its intervals hold it, and what these lack (`lacking`). `where`: calibration,
    workload, method or methods."""
    (low, high), error = drawn, predicted / measured - 1
    return {
        **dict(zip(("calibration", "workload", "what"), where, strict=True)), "error": error,
        "drawn": low <= measured <= high, "inside": interval[0] <= measured <= interval[1],
        "told": interval[0] > 1 or interval[1] < 1, "right": (interval[0] > 1) == (measured > 1),
        "lacking": lacking(predicted, measured, low, high),
    }  # fmt: skip


def lacking(predicted: float, measured: float, low: float, high: float) -> float:
    """The least term with which `widened` moves the end of an interval to what was measured, as a logarithm."""
    off = math.log(measured / predicted)
    end = max(math.log(high / predicted) if off > 0 else -math.log(low / predicted), 0.0)
    return math.sqrt(max(off * off - end * end, 0.0))


def lines(title: str, found: pd.DataFrame) -> list[str]:
    """What one kind of numbers says, for people."""
    apart, errors = found[found["told"]], found["error"].abs()
    needed = float(found["lacking"].quantile(SHARE))
    held = [
        (rest["lacking"] <= found[found["calibration"] != left]["lacking"].quantile(SHARE)).mean()
        for left, rest in found.groupby("calibration")
    ]
    said = [
        f"{title}: {len(found)} of {found['calibration'].nunique()} calibrations; error {errors.median():.1%} in the "
        f"median, {errors.quantile(0.9):.1%} at the 90th percentile",
        f"  held by draws alone {found['drawn'].mean():.0%}, by the interval {found['inside'].mean():.0%}; 90 % need "
        f"{needed:.2f} beyond the draws (a factor of {math.exp(needed):.2f}), and those of all other calibrations hold "
        f"{np.mean(held):.0%}",
    ]
    if title == "ratios":
        said.append(f"  told apart {len(apart)}, rightly {int(apart['right'].sum())}")
    if title in ("epoch", "ratios"):
        for name in ("what", "workload"):
            either = found.groupby(name)["error"].agg(["median", lambda errors: errors.abs().median()])
            said += [f"  {each}: {mean:+.1%} ({off:.1%} either way)" for each, mean, off in either.itertuples()]
    return said


if __name__ == "__main__":
    main()
