"""BNS-GCN's Table 2 measured: `python -m benchmarks.variance [--graphs ...] [--draws 200]`.

Sampled sums over neighbours against the whole ones, E |Z~ - Z|^2 / |Z|^2 over the METIS parts of real graphs, on the
rows of a model trained for some epochs: measured over many draws beside the closed form, with the standard error and
the squared bias. Budgets A, B and C give every sampler as many draws, rows, or edges as BNS-GCN. Needs HALOSCOPE_DATA.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from rich.table import Table

from harness.console import stdout
from harness.numbers import significant
from reports.bns_gcn._variances import BUDGETS, Variance, measured

GRAPHS = ("amazon_computers", "coauthor_physics", "facebook_pages", "github_social", "mnist_knn15")


def table_of(graph: str, found: Sequence[Variance]) -> Table:
    """All estimators on one graph."""
    table = Table("sampler", "budget", "measured", "+-", "formula", "off by", "bias^2", "drawn", title=graph)
    for one in found:
        off = "" if one.formula is None or not one.error else f"{(one.measured - one.formula) / one.error:+.1f} se"
        table.add_row(
            one.name, one.budget, significant(one.measured), significant(one.error), significant(one.formula), off,
            f"{one.bias:.1g}", f"{one.drawn:.0f}",
        )  # fmt: skip
    return table


def main() -> None:
    """One table for each graph."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--graphs", nargs="*", default=GRAPHS, help="names of datasets")
    options.add_argument("--p", type=float, default=0.1, help="BNS-GCN's share of boundary nodes")
    options.add_argument("--parts", type=int, default=8)
    options.add_argument("--epochs", type=int, default=30, help="epochs that the model is trained for")
    options.add_argument("--draws", type=int, default=200)
    given = options.parse_args()
    torch.set_num_threads(1)
    for name in given.graphs:
        found = measured(name, given.parts, given.epochs, given.p, given.draws)
        stdout().print(table_of(name, found))
    for budget, meaning in BUDGETS.items():
        stdout().print(f"{budget}: {meaning}")


if __name__ == "__main__":
    main()
