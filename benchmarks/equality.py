"""Compares two versions of haloscope: losses, bytes, predicted seconds and memory, row by row.

    python -m benchmarks.equality --write before.json             # in a checkout of the one version
    python -m benchmarks.equality --against before.json           # in a checkout of the other

Rows: every setting of the conformance suite in loopback mode and on three modelled clusters; runs of described graphs
on 16 and 192 modelled devices; what-if points. All of them go through the command line, whose flags outlast the
modules behind it. Two reports, kept by `haloscope report`, are compared by `--reports BEFORE AFTER`: every number of
every table that both have. Exits with 1 where anything but rounding differs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.cli import main as haloscope
from tests.support.settings import SETTINGS

BASE = {
    "dataset": "synthetic:nodes=300,degree=8,classes=4,features=12,seed=1", "model": "sage", "layers": 3, "hidden": 10,
    "dropout": 0.3, "norm": "layer", "epochs": 6, "parts": 3, "threads": 1, "eval-every": 3,
}  # fmt: skip
CLUSTERS = ("ethernet-1g", "sylvie-2x8", "ec-graph:stragglers.jitter=0.1")
SHAPES = {"mode": "sim", "model": "sage", "layers": 3, "hidden": 128, "norm": "layer", "epochs": 4, "eval-every": -1}
DESCRIBED: tuple[dict[str, Any], ...] = (
    {"dataset": "workload:papers100m-192", "parts": 192, "cluster": "bns-32x6v100", "method": "vanilla"},
    {"dataset": "workload:papers100m-192", "parts": 192, "cluster": "bns-32x6v100", "method": "bns-gcn:p=0.1"},
    {"dataset": "synthetic:nodes=20000,degree=20", "parts": 16, "cluster": "cdfgnn-2x8a800", "method": "sylvie-a"},
    {"dataset": "synthetic:nodes=20000,degree=20", "parts": 16, "cluster": "ethernet-10g:hosts.count=16",
     "method": "sylvie-s:bits=1"},
    {"dataset": "synthetic:nodes=20000,degree=20", "parts": 16, "cluster": "cdfgnn-2x8a800",
     "method": "cdfgnn:cache=false"},
)  # fmt: skip
WHAT_IF = [
    "what-if", "--methods", "vanilla,sylvie-a,bns-gcn:p=0.1", "--dataset", "synthetic:nodes=5000,degree=12",
    "--parts", "4", "--cluster", "ethernet-10g", "--bandwidth", "nic=1Gb/s..100Gb/s", "--points", "4",
]  # fmt: skip
ROUNDING = 1e-9
"""Relative difference of seconds that another order of summation can cause."""


def call(arguments: list[str], folder: str) -> dict[str, Any]:
    """The JSON output of one command, or its exit code and message if it fails, which must be equal too."""
    told = io.StringIO()
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
        target = Path(folder, "out.json")
        code = haloscope([*arguments, "--json", str(target), "--out", folder])
    if code:
        return {"code": code, "message": told.getvalue()}
    found = json.loads(target.read_text())
    target.unlink()
    return {name: value for name, value in found.items() if name in ("state", "epochs", "summary", "rows", "said")}


def flags(values: dict[str, Any]) -> list[str]:
    """Config values as flags."""
    return [f"--{name}={value}" for name, value in values.items()]


def measured() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every row by its name."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HALOSCOPE_CACHE"] = str(Path(folder, "cache"))
        for row in (row for rows in SETTINGS.values() for row in rows):
            name = ",".join(map(str, row.values()))
            yield f"{name} loopback", call(["run", "--force", *flags({**BASE, **row})], folder)
            for cluster in CLUSTERS:
                values = {**BASE, **row, "mode": "sim", "cluster": cluster}
                yield f"{name} {cluster}", call(["run", "--force", *flags(values)], folder)
        for row in DESCRIBED:
            values = {**SHAPES, **row}
            name = f"{row['method']} {row['dataset']} {row['cluster']}"
            yield name, call(["run", "--force", "--shapes-only", *flags(values)], folder)
        yield "what-if", call(WHAT_IF, folder)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every number and text of nested JSON, with its path."""
    if isinstance(value, dict):
        for key in sorted(value):
            yield from leaves(value[key], f"{path}.{key}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from leaves(each, f"{path}[{index}]")
    else:
        yield path, value


def difference(before: Any, after: Any, ignored: tuple[str, ...] = ()) -> tuple[float, str]:
    """Largest relative difference of two trees and where it is; infinite where anything but numbers differs."""
    one, other = (
        {path: leaf for path, leaf in leaves(tree) if not any(name in path for name in ignored)}
        for tree in (before, after)
    )
    worst, place = 0.0, ""
    for path in one | other:
        a, b = one.get(path, math.inf), other.get(path, -math.inf)
        if a == b:
            continue
        numbers = isinstance(a, int | float) and isinstance(b, int | float) and math.isfinite(a) and math.isfinite(b)
        error = abs(a - b) / max(abs(a), abs(b)) if numbers else math.inf
        if error > worst:
            worst, place = error, f"{path}: {a} -> {b}"
    return worst, place


def compare(before: dict[str, Any], after: dict[str, Any]) -> int:
    """Print a line per row; 1 where one differs by more than rounding."""
    print(f"{'row':<100}{'largest relative difference':>30}")
    wrong = 0
    for name in before | after:
        timed = "loopback" in name  # its seconds are measured
        error, place = difference(before.get(name), after.get(name), (".seconds", "_seconds") if timed else ())
        wrong += error > ROUNDING
        print(f"{name[:98]:<100}{error:>30.1e}" + (f"  {place}" if error > ROUNDING else ""))
    print(f"{len(before | after)} rows, {wrong} differ by more than {ROUNDING:g}")
    return int(wrong > 0)


def kept(folder: Path) -> dict[str, Any]:
    """Every kept table and figure of a report, by key; the flags of commands in alphabetical order."""
    found = {}
    for path in sorted(folder.rglob("*/*.json")):
        item = json.loads(path.read_text())["item"]
        item["commands"] = [flags_of(command) for command in item.get("commands", [])]
        found[f"{path.parent.name}/{path.stem}"] = item
    return found


def flags_of(command: str) -> list[str]:
    """A command's words, each flag with its value."""
    return sorted(re.split(r" (?=--)", command))


def main() -> int:
    """Write the rows, or compare them with written ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", type=Path)
    what.add_argument("--against", type=Path)
    what.add_argument("--reports", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    options = parser.parse_args()
    if options.reports:
        before, after = (kept(folder) for folder in options.reports)
        return compare({key: before[key] for key in before if key in after}, after)
    found = {}
    for name, values in measured():
        found[name] = values
        print(name, values.get("message", ""), file=sys.stderr)
    if options.write:
        options.write.write_text(json.dumps(found))
        return 0
    return compare(json.loads(options.against.read_text()), found)


if __name__ == "__main__":
    sys.exit(main())
