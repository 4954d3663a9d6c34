"""Vertex cuts cached on disk under a key of their content: the graph, and the partitioner's settings and code.

The conventions are those of `edge._store`: one entry for the whole and one per part, so that a rank reads its own
arrays only and a build that was killed resumes where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from harness.graphs import Block, Graph, HaloPlan, Totals, VertexPart
from harness.machine import building, cache_root, load_arrays, load_meta, store_arrays
from harness.partition.edge import (
    WHOLE,
    export_partition,
    features,
    missing_parts,
    part_name,
    read_part,
    read_whole,
    tell_of_changed_code,
)
from harness.partition.partitioners import undirected_pairs
from harness.partition.vertex._assign import assign_edges, edge_settings
from harness.partition.vertex._build import build_vertex_part, lay_out_vertices
from harness.partition.vertex._masters import masters
from harness.partition.vertex._quality import VertexQuality, vertex_quality
from harness.steps import begin_step

FORMAT = 1  # of the arrays below; raise it when their meaning changes


@dataclass(frozen=True, eq=False)
class VertexFolder:
    """A vertex cut in the cache: quality and settings in memory, assignment and parts on disk.

    M undirected edges, N nodes.
    """

    path: Path
    quality: VertexQuality
    settings: dict[str, Any]  # partitioner with its options, num_parts, seed, hosts
    seconds: float  # that the partitioner took

    @property
    def num_parts(self) -> int:
        return self.quality.num_parts

    @property
    def part_of_edge(self) -> np.ndarray:
        """The part of every edge as `undirected_pairs` lists them, int32 [M].

        Memory-mapped anew at every use. Raises InputError if missing or damaged.
        """
        return read_whole(self.path)["part_of_edge"]

    @property
    def owner(self) -> np.ndarray:
        """The part of every node's master, int32 [N]; memory-mapped and errors as for `part_of_edge`."""
        return read_whole(self.path)["owner"]

    def part(self, rank: int) -> VertexPart:
        """The part of `rank`; reads only its own arrays. Raises InputError if the entry is missing or damaged."""
        return _part(*read_part(self.path, rank, self.num_parts))

    def export(self, folder: Path) -> None:
        """Write `part_of_edge.npy` (int32 [M]), `owner.npy` (int32 [N]) and `partition.json` into `folder`."""
        listing = {"settings": self.settings, "quality": self.quality.summary(), "parts": self.quality.rows()}
        export_partition(folder, {"part_of_edge": self.part_of_edge, "owner": self.owner}, listing)


def vertex_partitioned(graph: Graph, name: str, num_parts: int, seed: int = 0, hosts: int = 1) -> VertexFolder:
    """The vertex cut of `graph` by partitioner `name` (with options), from the cache or made now, part by part.

    Of several processes one builds it and the others wait. At most one part is in memory in addition to graph and
    assignment. Errors are those of `assign_edges`.
    """
    with _building(graph, name, num_parts, seed, hosts) as (made, part_of_edge, owner, pairs):
        missing = missing_parts(made.path, range(num_parts))
        if missing:
            begin_step(f"building {len(missing)} parts of {graph.name}", graph.num_edges)
            pairs = undirected_pairs(graph) if pairs is None else pairs
            layout = lay_out_vertices(graph, pairs, part_of_edge, owner, num_parts)
            for rank in missing:
                built = build_vertex_part(graph, layout, rank, with_x=False)
                store_arrays(made.path / part_name(rank), *_arrays(built, features(graph, layout.nodes(rank))))
    return made


def vertex_assigned(graph: Graph, name: str, num_parts: int, seed: int = 0, hosts: int = 1) -> VertexFolder:
    """The assignment and its quality, from the cache or made now; the folder of `vertex_partitioned`, possibly without
    parts."""
    with _building(graph, name, num_parts, seed, hosts) as (made, *_):
        return made


@contextmanager
def _building(
    graph: Graph, name: str, num_parts: int, seed: int, hosts: int
) -> Iterator[tuple[VertexFolder, np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray] | None]]:
    """The folder, under its lock, parts of edges and nodes, and the graph's pairs if the assignment was made now."""
    settings = edge_settings(name, num_parts, seed, hosts)
    key = json.dumps([FORMAT, graph.fingerprint(), settings], sort_keys=True)
    path = cache_root() / "partitions" / hashlib.sha256(key.encode()).hexdigest()
    with building(path):
        known = _stored(path)
        if known is not None:
            yield *known, None
            return
        tell_of_changed_code(graph, settings)
        what = f"cutting {graph.num_edges:,} directed edges of {graph.name} into {num_parts} parts by {name}"
        begin_step(what, graph.num_edges)
        pairs = undirected_pairs(graph)
        begin = perf_counter()
        part = assign_edges(graph, name, num_parts, seed, hosts)
        seconds = perf_counter() - begin
        counts = vertex_quality(graph, part, num_parts, hosts)
        owner = masters(*pairs, part, graph.num_nodes, num_parts, hosts)
        meta: dict[str, object] = {"quality": asdict(counts), "seconds": seconds, "settings": settings}
        store_arrays(path / WHOLE, {"part_of_edge": part, "owner": owner}, meta)
        yield VertexFolder(path, counts, settings, seconds), part, owner, pairs


def open_vertex_partition(path: Path, parts: Iterable[int] | None = None) -> VertexFolder | None:
    """The vertex cut cached in `path`, or None if an entry of it is missing; as `open_partition` of edge cuts."""
    meta = load_meta(path / WHOLE)
    if meta is None:
        return None
    found = _folder(path, meta)
    return None if missing_parts(path, range(found.num_parts) if parts is None else parts) else found


def _stored(path: Path) -> tuple[VertexFolder, np.ndarray, np.ndarray] | None:
    """The folder and the memory-mapped parts of edges and nodes of the entry of the whole, or None."""
    entry = load_arrays(path / WHOLE)
    return None if entry is None else (_folder(path, entry[1]), entry[0]["part_of_edge"], entry[0]["owner"])


def _folder(path: Path, kept: dict[str, object]) -> VertexFolder:
    """The folder that the meta of its entry of the whole describes."""
    meta = dict[str, Any](kept)
    columns = {name: tuple(value) if isinstance(value, list) else value for name, value in meta["quality"].items()}
    quality = VertexQuality(**columns)
    return VertexFolder(path, quality, meta["settings"], meta["seconds"])


_TENSORS = ("nodes", "degree", "looped", "train", "val", "test")


def _arrays(part: VertexPart, x: np.ndarray | sp.csr_matrix | None) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    """A part as named arrays and JSON values: one half of the symmetric block; sparse features stay sparse."""
    arrays = {name: getattr(part, name).numpy() for name in _TENSORS}
    arrays |= {"indptr": part.block.indptr.numpy(), "indices": part.block.indices.numpy()}
    plan = part.plan
    arrays |= {"send_rows": plan.send_rows.numpy(), "send_counts": plan.send_counts, "recv_counts": plan.recv_counts}
    if part.y is not None:
        arrays["y"] = part.y.numpy()
    if isinstance(x, sp.csr_matrix):
        arrays |= {"x_indptr": x.indptr, "x_indices": x.indices, "x_data": x.data}
    elif x is not None:
        arrays["x"] = x
    counts = {name: getattr(part, name) for name in ("rank", "num_parts", "num_inner", "num_masters")}
    return arrays, {**counts, "totals": asdict(part.totals)}


def _part(arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> VertexPart:
    """The inverse of `_arrays`; mapped arrays stay mapped."""
    totals = Totals(**meta.pop("totals"))
    if "x_data" in arrays:
        shape = (len(arrays["nodes"]), totals.num_features)
        sparse = sp.csr_matrix((arrays["x_data"], arrays["x_indices"], arrays["x_indptr"]), shape=shape)
        arrays["x"] = sparse.toarray()
    counts = {name: np.array(arrays.pop(name)) for name in ("send_counts", "recv_counts")}
    found = {name: torch.from_numpy(array) for name, array in arrays.items()}
    tensors: dict[str, Any] = {name: found[name] for name in _TENSORS}
    return VertexPart(
        **meta,
        block=Block(*(found[name] for name in ("indptr", "indices", "indptr", "indices"))),
        plan=HaloPlan(found["send_rows"], **counts),
        x=found.get("x"),
        y=found.get("y"),
        totals=totals,
        **tensors,
    )
