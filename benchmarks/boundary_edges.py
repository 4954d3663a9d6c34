"""Edges that METIS cuts, by the boundary nodes that it leaves: `python -m benchmarks.boundary_edges`.

Cuts real graphs of HALOSCOPE_DATA and synthetic stand-ins with METIS (communication volume) in 2 to 16 parts, fits the
laws of `harness.workloads` on all graphs but those held out, and prints every partition beside them. A line at the end
has the constants as fitted now, beside those in the code.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from harness import datasets
from harness.console import stdout
from harness.errors import InputError
from harness.partition.edge import Quality, assign, quality
from harness.workloads import MetisLaw, metis_edges

PARTS = (2, 4, 8, 16)
HELD_OUT = ("amazon_computers", "tolokers")
REAL = (
    "cora", "pubmed_nofeat", "facebook_pages", "github_social", "coauthor_physics", "blogcatalog_attr", "flickr_attr",
    "topo_ego_facebook", "mnist_knn15", "topo_4elt", *HELD_OUT,
)  # fmt: skip
MADE = (
    "synthetic:reddit-like,scale=0.02", "synthetic:reddit-like,scale=0.05", "synthetic:products-like,scale=0.01",
    "synthetic:products-like,scale=0.02", "synthetic:yelp-like,scale=0.04", "synthetic:amazon-like,scale=0.01",
)  # fmt: skip
RATES = np.geomspace(0.05, 1.0, 600)  # among which the cut rate is searched


@dataclass(frozen=True)
class Cut:
    """One graph in parts."""

    graph: str
    nodes: int
    edges: int
    quality: Quality

    @property
    def halo(self) -> np.ndarray:
        """Boundary nodes of every part."""
        return np.asarray(self.quality.halo)

    def by(self, law: MetisLaw) -> np.ndarray:
        """The cut edges of every part by a law."""
        return metis_edges(np.asarray(self.quality.inner), self.halo, self.edges, law)[1]

    def residual(self, law: MetisLaw) -> float:
        """log(cut edges by the law / counted), all parts together."""
        return float(np.log(self.by(law).sum() / max(self.quality.edge_cut, 1)))


def measured(names: Iterable[str], parts: Sequence[int] = PARTS) -> list[Cut]:
    """Partitions of the graphs that are there."""
    found = []
    for name in names:
        try:
            graph = datasets.load(name)
        except InputError as error:
            stdout().print(f"left out: {error}")
            continue
        for count in parts:
            cut = quality(graph, assign(graph, "metis", count), count)
            found.append(Cut(name, graph.num_nodes, graph.num_edges, cut))
    return found


def fitted(cuts: Sequence[Cut]) -> MetisLaw:
    """The law of these partitions: first the spreads, of real graphs only, as stand-ins have equal communities; then
    the rate with the least squares of all residuals."""
    real = [cut for cut in cuts if not cut.graph.startswith("synthetic:")]
    edges, halos = (
        np.concatenate([np.log(np.maximum(column, 1)) - np.log(np.maximum(column, 1)).mean() for column in columns])
        for columns in ([np.asarray(cut.quality.edges) for cut in real], [cut.halo for cut in real])
    )
    power = float(edges.std() / halos.std())
    counts = sorted({cut.quality.num_parts for cut in real})
    spreads = [
        np.median([cut.halo.std() / cut.halo.mean() for cut in real if cut.quality.num_parts == count])
        for count in counts
    ]
    slope, level = np.polyfit(np.log(1 - 1 / np.asarray(counts)), np.log(spreads), 1)
    laws = [MetisLaw(float(rate), power, (float(np.exp(level)), float(slope))) for rate in RATES]
    return min(laws, key=lambda law: sum(cut.residual(law) ** 2 for cut in cuts))


def table_of(cuts: Sequence[Cut], law: MetisLaw) -> Table:
    """Every partition beside the law."""
    heads = ("graph", "parts", "degree", "boundary / own", "spread", "cut share", "by the law", "residual", "held out")
    table = Table(*heads)
    for cut in cuts:
        share, count = cut.quality.edge_cut / cut.edges, cut.quality.num_parts
        table.add_row(
            cut.graph, str(count), f"{cut.edges / cut.nodes:.1f}", f"{cut.quality.volume / cut.nodes:.3f}",
            f"{cut.halo.std() / cut.halo.mean():.2f}", f"{share:.3f}", f"{cut.by(law).sum() / cut.edges:.3f}",
            f"{cut.residual(law):+.2f}", "yes" if cut.graph in HELD_OUT else "",
        )  # fmt: skip
    return table


def line_of(what: str, cuts: Sequence[Cut], law: MetisLaw) -> str:
    """The residuals of some partitions in one line."""
    found = np.asarray([cut.residual(law) for cut in cuts])
    gaps = np.asarray([abs(cut.by(law).sum() - cut.quality.edge_cut) / cut.edges for cut in cuts])
    return (
        f"{what}: {len(cuts)} partitions, residual {np.sqrt(np.mean(found**2)):.3f} (root mean square of the log), "
        f"median {np.median(np.abs(found)):.3f}; share of the edges off by {np.median(gaps):.3f} (median)"
    )


def main() -> None:
    """Print the table, the fit and its residuals."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--graphs", nargs="*", default=[*REAL, *MADE], help="names of datasets (default: all)")
    chosen = options.parse_args().graphs
    cuts = measured(chosen)
    kept = [cut for cut in cuts if cut.graph not in HELD_OUT]
    law = fitted(kept)
    console = stdout()
    console.print(table_of(cuts, law))
    for what, some in (("fitted on", kept), ("held out", [cut for cut in cuts if cut.graph in HELD_OUT])):
        if some:
            console.print(line_of(what, some, law))
    console.print(f"fitted now: {law}")
    console.print(f"in the code: {MetisLaw()}")


if __name__ == "__main__":
    main()
