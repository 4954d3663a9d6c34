"""Builds workloads from descriptions: fills in missing values, marked as assumed, and checks the counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from harness import datasets
from harness.errors import InputError
from harness.graphs import Totals
from harness.partition.edge import partitioned
from harness.workloads._closed_form import Degrees, hash_boundary, random_replication, round_robin_counts
from harness.workloads._description import (
    Description,
    Numbers,
    Shape,
    Sources,
    Spread,
    read,
    read_description,
)
from harness.workloads._margins import fit_margins, spread_rows
from harness.workloads._metis import METIS_LAW, RANDOM_LAW, metis_edges
from harness.workloads._workload import Provenance, VertexWorkload, Workload

FROM_COUNTS = ("metis", "random")
"""Partitioners whose cut edges follow from counts of nodes: by a measured law, by a closed form."""
MIRRORS_PER_SHARED_MASTER = 2.0
REPLICATION_NEAR = 0.005  # relative; a printed replication factor is rounded


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
    """Computes the counts of one description."""

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
            if isinstance(self.parts.pairs, list):
                raise InputError("parts.pairs and graph.dataset: the partition itself says who sends to whom")
            return self._from_dataset()
        if self.parts.partition:
            return self._from_partition()
        if self.parts.partitioner not in ("", *FROM_COUNTS):
            known = " or ".join(FROM_COUNTS)
            raise InputError(f"parts.partitioner of counts is {known}, not {self.parts.partitioner!r}")
        inner, boundary = self._hash() if self._is_random_alone() else self._counted()
        received = self._pairs(boundary, inner)
        edges, halo_edges = self._edges(inner, boundary)
        return Workload(self._provenance(), self._totals(), inner, received, edges - halo_edges, halo_edges)

    def _is_random_alone(self) -> bool:
        """Whether the boundary of a random cut follows from the degrees, because no count of it is given."""
        parts = self.parts
        counts = parts.boundary is not None or parts.ratio is not None or isinstance(parts.pairs, list)
        return parts.cut == "hash" or (parts.partitioner == "random" and not counts)

    def _edges(self, inner: np.ndarray, boundary: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Edges into the nodes of every rank, and those of them that are cut: given, or by the partitioner's law."""
        parts, total = self.parts, self.graph.edges
        edges = np.round(total * (inner / max(inner.sum(), 1))).astype(np.int64)
        if parts.edges_per_boundary_node is not None:
            return edges, np.minimum(np.round(boundary * parts.edges_per_boundary_node).astype(np.int64), edges)
        if parts.cut == "hash" or parts.partitioner == "random":
            self.sources["cut edges"] = {"value": "random", "from": "derived", "note": RANDOM_LAW}
            return edges, np.round(edges * (1 - 1 / self.size)).astype(np.int64)
        if not parts.partitioner:
            self._assume("parts.partitioner", "metis")
        self.sources["cut edges"] = {"value": "metis", "from": "derived", "note": METIS_LAW}
        return metis_edges(inner, boundary, total)

    def _counted(self) -> tuple[np.ndarray, np.ndarray]:
        """Inner and boundary nodes per rank, from counts or their distribution."""
        parts = self.parts
        matrix = isinstance(parts.pairs, list) and parts.boundary is None and parts.ratio is None
        if not matrix and (parts.boundary is None) == (parts.ratio is None):
            raise InputError("needs parts.boundary or parts.ratio (one of them), pairs, parts.partition, or parts.cut")
        inner = self._inner()
        if matrix:
            boundary = self._matrix().sum(1)
        elif parts.ratio is not None:
            boundary = np.round(inner * self._numbers("ratio", parts.ratio)).astype(np.int64)
        else:
            boundary = np.round(self._numbers("boundary", parts.boundary)).astype(np.int64)
        return inner, boundary

    def _matrix(self) -> np.ndarray:
        """int64 [P, P], parts.pairs as a matrix: row i has the rows that rank i receives from every other."""
        given, size = self.parts.pairs, self.size
        if not isinstance(given, list) or len(given) != size or any(len(row) != size for row in given):
            raise InputError(f"parts.pairs must be {size} rows of {size} numbers")
        matrix = np.asarray(given, np.int64)
        if (matrix < 0).any() or matrix.diagonal().any():
            raise InputError("parts.pairs must not be negative, and 0 for a part and itself")
        return matrix

    def _pairs(self, totals: np.ndarray, owned: np.ndarray) -> np.ndarray:
        """int64 [P, P] with row sums `totals`: the given matrix, or every row spread over the others.

        Args:
            owned: nodes of every rank, an upper bound of the rows that another rank can receive from it.
        """
        if not isinstance(self.parts.pairs, list):
            weights = owned if self.parts.pairs == "proportional" else np.ones(self.size)
            return spread_rows(totals, weights.astype(float))
        matrix = self._matrix()
        off = np.flatnonzero(matrix.sum(1) != totals)
        if len(off):
            rank = int(off[0])
            raise InputError(f"row {rank} of parts.pairs sums to {matrix[rank].sum()}, but its total is {totals[rank]}")
        if (matrix > owned[None, :]).any():
            raise InputError("parts.pairs must not say that a part has more from another than that owns")
        return matrix

    def _inner(self) -> np.ndarray:
        """Own nodes per rank, which sum to the graph's number of nodes."""
        if self.parts.inner is None:
            self._assume("parts.inner", "equal")
            return round_robin_counts(self.graph.nodes, self.size)
        found = np.round(self._numbers("inner", self.parts.inner)).astype(np.int64)
        given, wanted = int(found.sum()), self.graph.nodes
        if abs(given - wanted) > 0.05 * wanted:
            raise InputError(f"parts.inner sum to {given}, but graph.nodes is {wanted}")
        return found

    def _hash(self) -> tuple[np.ndarray, np.ndarray]:
        """Expected inner and boundary nodes per rank of a partition that looks at no edge."""
        inner = round_robin_counts(self.graph.nodes, self.size)
        expected = round(hash_boundary(self.graph.nodes, self._degrees(), self.size))
        return inner, np.full(self.size, expected, np.int64)

    def _degrees(self) -> Degrees:
        """The degree distribution; if none is given, regular and marked as assumed."""
        given, mean = self.parts.degrees, self.graph.edges / max(self.graph.nodes, 1)
        if isinstance(given, list):
            return Degrees([degree for degree, _ in given], [count for _, count in given])
        given = given or Spread()
        if given.spread is None:
            self._assume("parts.degrees", "every node has the mean degree: the boundary is an upper bound")
        return Degrees(mean=mean if given.mean is None else given.mean, spread=given.spread or 0.0)

    def _from_partition(self) -> Workload:
        """Counts of an exported partition; rows per pair of ranks are fitted to the rows each rank sends and
        receives."""
        path = self.path.parent / self.parts.partition
        rows = read(path).get("parts")
        names = ("inner", "halo", "sent", "edges", "cut")
        if not isinstance(rows, list) or not all(isinstance(row, dict) and set(names) <= set(row) for row in rows):
            raise InputError(f"{path} is not a partition.json with inner, halo, sent, edges and cut of every part")
        if len(rows) != self.size:
            raise InputError(f"{path.name} has {len(rows)} parts: use --parts {len(rows)}")
        for at, row in enumerate(rows):
            for name in names:
                _check_count(row[name], f"{path.name}: parts[{at}].{name}")
            if row["cut"] > row["edges"]:
                raise InputError(f"{path.name}: parts[{at}] cuts {row['cut']} of its {row['edges']} edges")
        inner, halo, sent, edges, cut = (np.asarray([row[name] for row in rows], np.int64) for name in names)
        self.sources["parts"] = {
            "value": self.parts.partition,
            "from": "measured",
            "note": "counts of a real partition",
        }
        given = isinstance(self.parts.pairs, list)
        if not given:
            self._assume("parts.pairs", "fitted to what each rank sends and receives")
        received = self._pairs(halo, inner) if given else fit_margins(halo, sent)
        self.graph = replace(self.graph, nodes=int(inner.sum()), edges=int(edges.sum()))
        return Workload(self._provenance(), self._totals(), inner, received, edges - cut, cut)

    def _from_dataset(self) -> Workload:
        """A real graph with its real partition, and features, labels and split of assumed sizes."""
        graph = datasets.load(self.graph.dataset)
        folder = partitioned(graph, self.parts.partitioner or "metis-cut", self.size, self.seed, 0)
        parts = [folder.part(rank).shapes_only() for rank in range(self.size)]
        self.graph = replace(self.graph, nodes=graph.num_nodes, edges=graph.num_edges, symmetric=graph.is_symmetric())
        note = f"{folder.settings['partitioner']} partition of {graph.name}, {graph.fingerprint()[:12]}"
        self.sources["parts"] = {"value": self.graph.dataset, "from": "measured", "note": note}
        columns = [[p.graph.num_own, p.graph.own.nnz, p.graph.halo.nnz] for p in parts]
        inner, own_edges, halo_edges = np.asarray(columns, np.int64).T
        received = np.stack([part.plan.recv_counts for part in parts])
        return Workload(self._provenance(), self._totals(), inner, received, own_edges, halo_edges)

    def vertices(self) -> VertexWorkload:
        """A vertex cut, from its replication factor or the closed form of a random one."""
        parts = self.parts
        masters = round_robin_counts(self.graph.nodes, self.size)
        matrix = self._pairs(self._mirrors(masters), masters)
        each = self._default("mirrors_per_shared_master", parts.mirrors_per_shared_master, MIRRORS_PER_SHARED_MASTER)
        most = matrix.max(0)  # a rank has at most one mirror of a master
        shared = np.minimum(np.maximum(np.ceil(matrix.sum(0) / each).astype(np.int64), most), masters)
        edges = self._shared_out(self.graph.edges // 2)
        return VertexWorkload(self._provenance(), self._totals(), masters, shared, matrix, edges)

    def _shared_out(self, total: int) -> np.ndarray:
        """Undirected edges per rank of a vertex cut; given ones may differ from `total` by rounding."""
        if self.parts.edges is None:
            return round_robin_counts(total, self.size)
        found = np.round(self._numbers("edges", self.parts.edges)).astype(np.int64)
        if abs(int(found.sum()) - total) > 0.01 * total:
            raise InputError(f"parts.edges sum to {found.sum()}, half of graph.edges is {total}")
        return found

    def _mirrors(self, masters: np.ndarray) -> np.ndarray:
        """Mirrors per rank: given, from the pair matrix, or from the replication factor."""
        parts = self.parts
        factor, matrix = parts.replication, isinstance(parts.pairs, list)
        if factor is None and parts.cut == "random":
            factor = random_replication(self._degrees(), self.size)
        if factor is None and not matrix:
            raise InputError(
                "describes no vertex cut: give parts.replication, parts.pairs as a matrix, or "
                'parts.cut = "random" with degrees'
            )
        if factor is not None and not 1 <= factor <= self.size:
            raise InputError(f"parts.replication must be between 1 and the number of parts, not {factor:g}")
        if parts.mirrors is not None:
            return np.round(self._numbers("mirrors", parts.mirrors)).astype(np.int64)
        if not matrix:
            assert factor is not None
            return np.round(masters * (factor - 1)).astype(np.int64)
        mirrors: np.ndarray = self._matrix().sum(1)
        found = 1 + int(mirrors.sum()) / self.graph.nodes
        if factor is not None and abs(found / factor - 1) > REPLICATION_NEAR:
            raise InputError(f"parts.pairs replicate nodes {found:.4g} times, parts.replication says {factor:.4g}")
        return mirrors

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
        return Totals(g.nodes, g.edges, *splits, g.features, g.classes, g.multilabel, g.symmetric, self._skew())

    def _skew(self) -> float:
        """Coefficient of variation of the degrees, 0 where none are given."""
        given = self.parts.degrees
        if isinstance(given, list):
            degree, count = np.asarray(given, float).reshape(-1, 2).T
            mean = np.average(degree, weights=count)
            return float(np.sqrt(np.average((degree - mean) ** 2, weights=count)) / mean) if mean else 0.0
        return float(given.spread or 0.0) if given else 0.0

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


def _check_count(value: object, where: str) -> None:
    """Raise InputError unless a value of a JSON file is a number of things."""
    if type(value) is not int or not 0 <= value < 1 << 48:
        raise InputError(f"{where} must be a whole number from 0 to 2^48, not {value!r:.60}")
