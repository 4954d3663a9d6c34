"""Builds workloads from their descriptions: fills in what is not said, marks it as assumed, and checks the counts."""

from __future__ import annotations

from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from harness import datasets
from harness.errors import InputError
from harness.halo import Totals
from harness.partition import partitioned
from harness.workloads.closed_form import Degrees, hash_boundary, random_replication, shares
from harness.workloads.description import Description, Numbers, Shape, Sources, read, read_description
from harness.workloads.margins import fit, spread_rows
from harness.workloads.workload import Provenance, VertexWorkload, Workload

EDGES_PER_BOUNDARY_NODE = 2.0
MIRRORS_PER_SHARED_MASTER = 2.0


def load_workload(dataset: str, num_parts: int, *, cut: str = "edge", seed: int = 0) -> Workload | VertexWorkload:
    """The described workload in `num_parts` parts, for methods that cut edges or vertices.

    Raises:
        InputError: unknown name, unreadable file, unknown or contradicting keys, another number of parts, or a kind of
            cut that the description does not cover; one line that names file and key.
    """
    path, description, sources = read_description(dataset)
    builder = _Builder(path, description, sources, num_parts, seed)
    try:
        return builder.vertices() if cut == "vertex" else builder.edges(cut)
    except InputError as error:
        named = str(error).startswith("workload ")
        raise error if named else InputError(f"workload {path.name}: {error}") from None


class _Builder:
    """One description on its way to counts."""

    def __init__(self, path: Path, description: Description, sources: Sources, num_parts: int, seed: int) -> None:
        self.path, self.graph, self.parts, self.sources = path, description.graph, description.parts, sources
        self.description, self.size, self.seed = description, num_parts, seed
        if self.parts.count not in (0, num_parts):
            raise InputError(f"workload {path.name} describes {self.parts.count} parts: use --parts {self.parts.count}")

    def edges(self, cut: str) -> Workload:
        """An edge cut."""
        if cut == "overlap":
            raise InputError("describes an edge cut; overlapping parts need a graph")
        if self.parts.replication is not None or self.parts.cut == "random":
            raise InputError("describes a vertex cut; this method cuts edges")
        if self.graph.dataset:
            return self._from_dataset()
        if self.parts.partition:
            return self._from_partition()
        inner, boundary, halo_edges = self._hash() if self.parts.cut == "hash" else self._counted()
        if isinstance(self.parts.pairs, list):
            received = np.asarray(self.parts.pairs, np.int64)
            if received.shape != (self.size, self.size) or (received.sum(1) != boundary).any() or received.trace():
                raise InputError(f"parts.pairs must be {self.size} rows with the boundaries as sums and 0 for itself")
        else:
            weights = inner if self.parts.pairs == "proportional" else np.ones(self.size)
            received = spread_rows(boundary, weights.astype(float))
        edges = np.round(self.graph.edges * (inner / max(inner.sum(), 1))).astype(np.int64)
        halo_edges = np.minimum(halo_edges, edges)
        return Workload(self._provenance(), self._totals(), inner, received, edges - halo_edges, halo_edges)

    def _counted(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Inner and boundary nodes and boundary edges per rank, from counts or their distribution."""
        parts = self.parts
        if (parts.boundary is None) == (parts.ratio is None):
            raise InputError("needs parts.boundary or parts.ratio (one of them), parts.partition, or parts.cut")
        inner = self._inner()
        if parts.ratio is not None:
            boundary = np.round(inner * self._numbers("ratio", parts.ratio)).astype(np.int64)
        else:
            boundary = np.round(self._numbers("boundary", parts.boundary)).astype(np.int64)
        each = self._default("edges_per_boundary_node", parts.edges_per_boundary_node, EDGES_PER_BOUNDARY_NODE)
        return inner, boundary, np.round(boundary * each).astype(np.int64)

    def _inner(self) -> np.ndarray:
        """Own nodes per rank, with the graph's number of nodes as their sum."""
        if self.parts.inner is None:
            self._assume("parts.inner", "equal")
            return shares(self.graph.nodes, self.size)
        found = np.round(self._numbers("inner", self.parts.inner)).astype(np.int64)
        given, wanted = int(found.sum()), self.graph.nodes
        if abs(given - wanted) > 0.05 * wanted:
            raise InputError(f"parts.inner sum to {given}, but graph.nodes is {wanted}")
        return found

    def _hash(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same in expectation for a hash partition."""
        inner = shares(self.graph.nodes, self.size)
        expected = round(hash_boundary(self.graph.nodes, self._degrees(), self.size))
        edges = self.graph.edges / self.size * (1 - 1 / self.size)
        return inner, np.full(self.size, expected, np.int64), np.full(self.size, round(edges), np.int64)

    def _degrees(self) -> Degrees:
        """The degree distribution; regular, and marked as assumed, where none is given."""
        given, mean = self.parts.degrees, self.graph.edges / max(self.graph.nodes, 1)
        if isinstance(given, list):
            return Degrees([degree for degree, _ in given], [count for _, count in given])
        if not given or "spread" not in given:
            self._assume("parts.degrees", "every node has the mean degree: the boundary is an upper bound")
        return Degrees(mean=(given or {}).get("mean", mean), spread=(given or {}).get("spread", 0.0))

    def _from_partition(self) -> Workload:
        """Counts of an exported partition; who sends how much to whom is fitted to both sums of every rank."""
        path = self.path.parent / self.parts.partition
        rows = read(path).get("parts")
        names = ("inner", "halo", "sent", "edges", "cut")
        if not isinstance(rows, list) or not all(isinstance(row, dict) and set(names) <= set(row) for row in rows):
            raise InputError(f"{path} is not a partition.json with inner, halo, sent, edges and cut of every part")
        if len(rows) != self.size:
            raise InputError(f"{path.name} has {len(rows)} parts: use --parts {len(rows)}")
        inner, halo, sent, edges, cut = (np.asarray([row[name] for row in rows], np.int64) for name in names)
        self.sources["parts"] = {
            "value": self.parts.partition,
            "from": "measured",
            "note": "counts of a real partition",
        }
        self._assume("parts.pairs", "fitted to what each rank sends and receives")
        self.graph.nodes, self.graph.edges = int(inner.sum()), int(edges.sum())
        return Workload(self._provenance(), self._totals(), inner, fit(halo, sent), edges - cut, cut)

    def _from_dataset(self) -> Workload:
        """A real topology with its real partition, and features, labels and split of assumed sizes."""
        graph = datasets.load(self.graph.dataset)
        folder = partitioned(graph, self.parts.partitioner or "metis-cut", self.size, self.seed, 0)
        parts = [folder.part(rank).shapes_only() for rank in range(self.size)]
        self.graph.nodes, self.graph.edges = graph.num_nodes, graph.num_edges
        self.graph.symmetric = graph.is_symmetric()
        note = f"{folder.settings['partitioner']} partition of {graph.name}, {graph.fingerprint()[:12]}"
        self.sources["parts"] = {"value": self.graph.dataset, "from": "measured", "note": note}
        columns = [[p.graph.num_own, p.graph.own.nnz, p.graph.halo.nnz] for p in parts]
        inner, own_edges, halo_edges = np.asarray(columns, np.int64).T
        received = np.stack([part.plan.recv_counts for part in parts])
        return Workload(self._provenance(), self._totals(), inner, received, own_edges, halo_edges)

    def vertices(self) -> VertexWorkload:
        """A vertex cut, from its replication factor or the closed form of a random one."""
        parts, nodes = self.parts, self.graph.nodes
        if parts.replication is None and parts.cut != "random":
            raise InputError('describes no vertex cut: give parts.replication, or parts.cut = "random" with degrees')
        factor = parts.replication
        if factor is None:
            factor = random_replication(self._degrees(), self.size)
        if not 1 <= factor <= self.size:
            raise InputError(f"parts.replication must be between 1 and the number of parts, not {factor:g}")
        masters = shares(nodes, self.size)
        mirrors = np.round(masters * (factor - 1)).astype(np.int64)
        if parts.mirrors is not None:
            mirrors = np.round(self._numbers("mirrors", parts.mirrors)).astype(np.int64)
        matrix = spread_rows(mirrors, np.ones(self.size))
        each = self._default("mirrors_per_shared_master", parts.mirrors_per_shared_master, MIRRORS_PER_SHARED_MASTER)
        most = matrix.max(0)  # no rank holds two mirrors of one master
        shared = np.minimum(np.maximum(np.ceil(matrix.sum(0) / each).astype(np.int64), most), masters)
        edges = shares(self.graph.edges // 2, self.size)
        return VertexWorkload(self._provenance(), self._totals(), masters, shared, matrix, edges)

    def _numbers(self, name: str, given: Numbers) -> np.ndarray:
        """float64 [P] of a number, a list or a distribution."""
        size = self.size
        if isinstance(given, list):
            if len(given) != size:
                raise InputError(f"parts.{name} lists {len(given)} numbers for {size} parts")
            found = np.asarray(given, float)
        elif isinstance(given, Shape):
            found = _dealt(given, size)
        else:
            found = np.full(size, 0.0 if given is None else given)
        if (found < 0).any() or not np.isfinite(found).all():
            raise InputError(f"parts.{name} must not be negative")
        return found

    def _default(self, name: str, given: float | None, default: float) -> float:
        if given is None:
            self._assume(f"parts.{name}", default)
        return default if given is None else given

    def _assume(self, name: str, value: Any) -> None:
        self.sources.setdefault(name, {"value": value, "from": "assumed", "note": "not in the description"})

    def _totals(self) -> Totals:
        g = self.graph
        if g.nodes < 1 or g.train + g.val + g.test > g.nodes:
            raise InputError("graph.nodes must be positive and hold train + val + test")
        splits = (g.train, g.val, g.test)
        return Totals(g.nodes, g.edges, *splits, g.features, g.classes, g.multilabel, g.symmetric)

    def _provenance(self) -> Provenance:
        d = self.description
        return Provenance(self.path, d.name or self.path.stem, d.summary, d.reference, self.sources, tuple(d.notes))


def _dealt(shape: Shape, size: int) -> np.ndarray:
    """The quantiles of a distribution, one per rank, in a seeded order."""
    if shape.quantiles:
        at, values = np.asarray(sorted(shape.quantiles), float).T
        found = np.interp(np.linspace(0, 1, size), at, values)
    else:
        sigma = float(np.sqrt(np.log1p(shape.spread**2)))
        normal = NormalDist()
        found = np.exp([sigma * normal.inv_cdf((rank + 0.5) / size) for rank in range(size)])
        found *= shape.mean / found.mean()
    order = np.random.Generator(np.random.Philox(shape.seed)).permutation(size)
    dealt: np.ndarray = found[order]
    return dealt
