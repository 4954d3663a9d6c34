"""Operators that others timed on GPUs, beside their prediction by the device profiles of simulated runs.

    python -m benchmarks.published_operators [--only NAME] [--points] [--ablation]

Numbers of devices come from each table (`sims/published/README.md`): of the rows marked as calibrating, or its median.
Errors are |predicted - published| / published of the other rows. `--ablation` leaves out what is known of caches.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from sims.device import EVEN
from sims.published import OperatorTable, load_operators, without_cache
from sims.units import Quantity


def line(name: str, errors: np.ndarray) -> str:
    """Number of rows, median error, 90th percentile, and median of predicted / published."""
    size = np.abs(errors)
    most = np.quantile(size, 0.9)
    return f"{name:<44}{len(size):>5}{np.median(size):>9.0%}{most:>9.0%}{np.median(1 + errors):>12.2f}"


def groups(table: OperatorTable) -> dict[str, np.ndarray]:
    """Title -> which rows: by what is known of the matrix and width, calibrating rows left out."""
    judged = np.asarray([not row.calibrating for row in table.rows])
    if table.operator == "product":
        return {table.name: judged}
    width = np.asarray([row.work.width for row in table.rows])
    known = np.asarray([row.name.startswith("kron") for row in table.rows])
    found = {}
    for columns in np.unique(width):
        here = judged & (width == columns)
        found[f"{table.name}, {columns} columns, Kronecker"] = here & known
        found[f"{table.name}, {columns} columns, other"] = here & ~known
    return found


def print_points(table: OperatorTable) -> None:
    """Every row of a table."""
    for row, error in zip(table.rows, table.errors(), strict=True):
        mark = "  calibrating" if row.calibrating else ""
        size, published = f"{row.name}, {row.work.width}", row.seconds * 1e6
        print(f"    {size:<34}{published:>12.1f} us {(1 + error) * published:>12.1f} us {error:>+7.0%}{mark}")


def ablate(table: OperatorTable) -> None:
    """Errors without the cache, with all rows alike, and with a cache that is not split in halves."""
    if table.device.cache is None or table.operator == "product":
        return
    whole = replace(table.device.cache, size=Quantity(2 * table.device.cache.size.value))
    alike = replace(table, rows=tuple(replace(row, popularity=EVEN) for row in table.rows))
    cases = {
        "the model": table.errors(),
        "rows read alike": alike.errors(),
        "a cache of twice the size": table.errors(replace(table.device, cache=whole)),
        "no cache": table.errors(without_cache(table.device)),
    }
    for title, rows in groups(table).items():
        print(f"\n{title}")
        for name, errors in cases.items():
            print(line(f"  {name}", errors[rows]))


def main() -> None:
    """Print a line per table and kind of row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="tables whose names contain this")
    parser.add_argument("--points", action="store_true", help="every row")
    parser.add_argument("--ablation", action="store_true", help="errors without each part of the model of caches")
    options = parser.parse_args()
    tables = [table for table in load_operators() if options.only in table.name]
    if not tables:
        parser.error(f"no table has {options.only!r} in its name")
    print(f"{'table':<44}{'rows':>5}{'median':>9}{'90 %':>9}{'predicted /':>12}")
    for table in tables:
        for title, rows in groups(table).items():
            print(line(title, table.errors()[rows]))
        if options.points:
            print_points(table)
    if options.ablation:
        for table in tables:
            ablate(table)


if __name__ == "__main__":
    main()
