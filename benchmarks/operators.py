"""Operators of the validation's workloads, measured in this process, beside what a calibration prices them at.

    python -m benchmarks.operators [--methods vanilla,sylvie-s:bits=1] [--workloads heavy,narrow] [--copies 1]
                                  [--calibration DIR]

Times operators as `haloscope calibrate` does, on its own graphs, fits their costs, then times the operators of the
workloads of `haloscope validate` in the same way and prints both by operator: calls, milliseconds of an epoch of all
ranks, predicted over measured. What ranks take from each other is in neither, so that what is left is the fit: widths,
sizes and operators that the calibration has not met. Neighbour sums are fitted to other graphs here than in `validate`,
which times them on the run's own blocks.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from harness.config import RunConfig
from harness.running import validation
from sims.device import OperatorCost, Work, load_device
from sims.study._profiling import SKIPPED_EPOCHS
from sims.study.calibrated import measure_operators, workloads

EPOCHS = 7


def compared(
    samples: Mapping[str, Mapping[Work, Sequence[float]]], costs: Mapping[str, OperatorCost], epochs: int
) -> list[tuple[str, int, float, float]]:
    """(operator, calls, measured, predicted seconds) of an epoch, longest first; nan where it was never timed."""
    found = []
    for name, calls in samples.items():
        count = sum(map(len, calls.values()))
        measured = sum(median(times) * len(times) for times in calls.values())
        cost = costs.get(name)
        predicted = math.nan if cost is None else sum(cost.seconds(w) * len(times) for w, times in calls.items())
        found.append((name, count // epochs, measured / epochs, predicted / epochs))
    return sorted(found, key=lambda row: -row[2])


def main() -> None:
    """Print one table per workload and method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--methods", default="vanilla,sylvie-s:bits=1,bns-gcn:p=0.1")
    parser.add_argument("--workloads", default=",".join(validation.WORKLOADS))
    parser.add_argument("--copies", type=int, default=1, help="processes at once, as ranks that share the cores")
    parser.add_argument("--calibration", type=Path, metavar="DIR", help="take the costs from DIR/device.toml instead")
    parser.add_argument("--rows", type=int, default=12, help="operators of a table")
    args = parser.parse_args()
    if args.calibration is None:
        costs = measure_operators("epochs", workloads(1, True), args.copies).costs()
    else:
        costs = load_device(args.calibration / "device.toml").operators
    for name in args.workloads.split(","):
        for method in args.methods.split(","):
            config = RunConfig.of(
                **validation.WORKLOADS[name], method=method, parts=2, epochs=EPOCHS, eval_every=-1, threads=1
            )  # fmt: skip
            observed = measure_operators("epochs", [config], args.copies)
            counted = (EPOCHS - SKIPPED_EPOCHS) * args.copies
            rows = compared(observed.samples, costs, counted)
            known = [row for row in rows if not math.isnan(row[3])]
            measured, predicted = (sum(row[at] for row in known) for at in (2, 3))
            print(f"{name}, {method}: {measured * 1e3:.1f} ms measured, {predicted * 1e3:.1f} ms predicted "
                  f"({predicted / measured - 1:+.0%})")  # fmt: skip
            for operator, calls, took, priced in rows[: args.rows]:
                error = costs[operator].error.value if operator in costs else math.nan
                print(f"  {operator:<36}{calls:>6} calls {took * 1e3:>9.3f} ms {priced * 1e3:>9.3f} ms "
                      f"{priced / took - 1:>+8.0%}   fit {error:.0%}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
