"""Seconds and memory that a shapes-only run takes, against the number of devices, and how they grow.

    python -m benchmarks.scale [--sizes 16,64,192,1024] [--method vanilla] [--epochs 5] [--equal] [--exact 192]

ogbn-papers100M by its counts, GraphSAGE 3 x 128: boundaries that differ from rank to rank (the ratios of
papers100m-192), or the same for all (--equal: a hash partition in expectation). Up to 192 devices on bns-32x6v100, more
on h100-512x8. Every size runs in a process of its own; `first` is everything up to the end of the first epoch after the
imports, `further` the mean of the epochs after it, `last` the last of them, in CPU seconds of one core. Methods whose
epochs repeat (`sims.replay`) compute the second and replay it in later ones.
Once the run is steady, which one with windows is from the third epoch on, epochs are copies (`docs/network.md`, step
8): `last` is what every further one takes, and `further` falls with their number.

Up to --exact devices, `error` compares the modelled epoch with that of a second run in which the network computes every
completion by itself instead of combining those of a window (`docs/network.md`, step 4).
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import tomllib
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

from harness.config import RunConfig
from harness.running import run
from harness.workloads._description import SHIPPED
from sims.engine import _pending_effects
from sims.network import FluidNetwork


def description(folder: Path) -> Path:
    """papers100m-192 for any number of parts: ratios of boundary to inner nodes keep their distribution."""
    table: dict[str, Any] = tomllib.loads((SHIPPED / "papers100m-192.toml").read_text())
    del table["parts"]["count"]
    path = folder / "papers100m-any.json"
    path.write_text(json.dumps(table))
    return path


def measure(size: int, method: str, epochs: int, equal: bool) -> dict[str, float]:
    """One run in this process."""
    ends: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        dataset = "workload:papers100m-hash" if equal else str(description(Path(folder)))
        config = RunConfig.of(
            dataset=dataset, parts=size, method=method, model="sage", layers=3, hidden=128, dropout=0.5, mode="sim",
            shapes_only=True, cluster="bns-32x6v100" if size <= 192 else "h100-512x8", epochs=epochs, eval_every=-1,
        )  # fmt: skip
        begin = process_time()
        result = run(config, lambda record: ends.append(process_time()))
        end = process_time()
    further = (end - ends[0]) / (epochs - 1) if epochs > 1 else math.nan
    first = ends[0] - begin if epochs > 1 else end - begin
    last = ends[-1] - ends[-2] if epochs > 1 else math.nan
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    modelled = float(result.summary()["epoch_seconds"])
    return {"size": size, "first": first, "further": further, "last": last, "peak": peak, "modelled": modelled}


def without_windows() -> None:
    """From now on, the networks of this process compute every completion exactly."""
    _pending_effects.FluidNetwork = partial(FluidNetwork, window=0.0)  # type: ignore[assignment, attr-defined, misc]


def measured_apart(size: int, *more: str) -> dict[str, float]:
    """`measure` in a process of its own, with the flags of this one."""
    flags = [*sys.argv[1:], *more, "--one", "--sizes", str(size)]
    process = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", *flags], stdout=subprocess.PIPE, text=True, check=True
    )  # fmt: skip
    found: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
    return found


def exponents(small: dict[str, float], large: dict[str, float]) -> str:
    """How seconds and memory grow with the number of devices, as powers of it."""
    ratio = math.log(large["size"] / small["size"])
    names = [name for name in ("first", "further", "last", "peak") if not math.isnan(small[name])]
    grown = (f"{name} {math.log(large[name] / small[name]) / ratio:.2f}" for name in names)
    return f"exponents of growth from {small['size']:.0f} to {large['size']:.0f} devices: {', '.join(grown)}"


def main() -> None:
    """Print one line per size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sizes", default="16,64,192,1024")
    parser.add_argument("--method", default="vanilla")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--equal", action="store_true", help="the same boundary on every rank")
    parser.add_argument("--exact", type=int, default=192, metavar="N", help="most devices that are also run exactly")
    parser.add_argument("--without-windows", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    sizes = [int(size) for size in args.sizes.split(",")]
    if args.without_windows:
        without_windows()
    if args.one:
        print(json.dumps(measure(sizes[0], args.method, args.epochs, args.equal)))
        return
    titles = ("first", "further", "last", "per device", "peak", "growth", "modelled epoch", "error")
    print(f"{'devices':>8}" + "".join(f"{title:>{max(len(title) + 2, 10)}}" for title in titles))
    before: dict[str, float] | None = None
    all_found: list[dict[str, float]] = []
    for size in sizes:
        found = measured_apart(size)
        cost = found["further"] if args.epochs > 1 else found["first"]
        growth = ""
        if before is not None:
            last = before["further"] if args.epochs > 1 else before["first"]
            growth = f"{math.log(cost / last) / math.log(size / before['size']):.2f}"
        error = "-"
        if size <= args.exact:
            error = f"{found['modelled'] / measured_apart(size, '--without-windows')['modelled'] - 1:+.3%}"
        print(
            f"{size:>8}{found['first']:>9.1f}s{found['further']:>9.2f}s{found['last']:>9.2f}s"
            f"{cost / size * 1e3:>10.2f}ms{found['peak']:>7.2f}GiB{growth:>10}{found['modelled']:>15.3g}s{error:>10}",
            flush=True,
        )
        before = found
        all_found.append(found)
    if len(all_found) > 1:
        print(exponents(all_found[0], all_found[-1]))


if __name__ == "__main__":
    main()
