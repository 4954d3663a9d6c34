"""Overlapping parts: an edge cut whose parts also hold copies of nearby foreign nodes (subgraph approximation).

`sample_copies` is Algorithm 1 of the paper, `overlapped` builds and caches the parts. A part is the subgraph induced on
own nodes and copies, with an empty halo: nothing is exchanged in training, and nothing here trains.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np
import torch
from numba import njit

from harness.errors import InputError
from harness.graphs import Graph, HaloPlan, Part
from harness.machine import building
from harness.partition.edge import (
    PartitionFolder,
    Renumber,
    assigned,
    bucket,
    build_part,
    features,
    keep_part,
    keep_whole,
    lay_out,
    missing_parts,
    partition_path,
    quality,
    stored,
)
from harness.partition.overlap._quality import overlap_quality
from harness.rank import random_key

DegreeRule = Literal["local", "full"]
Loss = Literal["own", "all"]
Master = Literal["worker", "apart"]


def overlapped(
    graph: Graph,
    name: str,
    num_parts: int,
    seed: int = 0,
    renumber: Renumber = "auto",
    *,
    overlap: float,
    degrees: DegreeRule = "local",
    loss: Loss = "own",
    master: Master = "worker",
) -> PartitionFolder:
    """The overlapping parts of `graph` by the edge-cut partitioner `name`, from the cache or made now.

    The underlying edge cut is that of `partitioned`. Quality is an `OverlapQuality`; seconds are those of the
    assignment and of Algorithm 1. Of several processes one builds them and the others wait; a killed build is resumed.

    Args:
        overlap: copies a part may hold, per own node (see `sample_copies`).
        degrees: normalise by degrees in the part's subgraph, or in the full graph.
        loss: which training nodes of a part carry loss: its own, or its copies too. Validation and test nodes are
            always own ones.
        master: apart leaves part 0 empty and divides the graph among the others, num_parts - 1 of them.
    """
    check_overlap(overlap)
    if master == "apart" and num_parts < 2:
        raise InputError("a master apart from the workers needs a second part")
    cut = assigned(graph, name, num_parts - (master == "apart"), seed, renumber)
    owner = cut.owner
    settings = {**cut.settings, "seed": seed, "overlap": float(overlap), "degrees": degrees, "loss": loss}
    if master == "apart":
        owner = owner + np.int32(1)
        settings |= {"num_parts": num_parts, "master": master}
        cut = replace(cut, quality=quality(graph, owner, num_parts))
    with building(partition_path(graph, settings)):
        made, copies = _whole(graph, cut, owner, settings)
        missing = missing_parts(made.path, range(num_parts))
        if missing:
            carriers = _is_training(graph)
            count = int(carriers.sum()) + (sum(int(carriers[nodes].sum()) for nodes in copies) if loss == "all" else 0)
            for rank in missing:
                part = _build(graph, made, owner, copies[rank], rank, count)
                keep_part(made.path, part, features(graph, part.nodes.numpy()))
    return made


def overlapping_parts(
    graph: Graph,
    owner: np.ndarray,
    num_parts: int,
    *,
    overlap: float,
    degrees: DegreeRule = "local",
    loss: Loss = "own",
    master: Master = "worker",
) -> list[Part]:
    """The parts of a small graph with given owners, with features, in memory; arguments as for `overlapped`.

    With a master apart, owners are counted among the other parts, modulo their number.
    """
    check_overlap(overlap)
    if master == "apart":
        owner = 1 + owner % np.int32(num_parts - 1)
    copies = sample_copies(graph, owner, num_parts, overlap, 0, num_parts - (master == "apart"))
    settings = {"renumber": 0, "degrees": degrees, "loss": loss}
    made = PartitionFolder(Path(), quality(graph, owner, num_parts), settings, 0.0)
    carriers = _is_training(graph)
    count = int(carriers.sum()) + (sum(int(carriers[found].sum()) for found in copies) if loss == "all" else 0)
    parts = [_build(graph, made, owner, copies[rank], rank, count) for rank in range(num_parts)]
    return [replace(p, x=torch.from_numpy(np.asarray(features(graph, p.nodes.numpy())))) for p in parts]


def check_overlap(overlap: float) -> None:
    """Raise InputError unless `overlap` is finite and not negative."""
    if not 0.0 <= overlap < float("inf"):
        raise InputError(f"overlap is a share of a part's own nodes, 0 or more, not {overlap}")


def copies_per_part(overlap: float, num_own: int, num_parts: int) -> int:
    """nts of Algorithm 1, line 2: most copies that a part with `num_own` nodes takes from every other part."""
    return int(overlap * num_own / (num_parts - 1) + 1e-9) if num_parts > 1 else 0  # 0.29 * 100 is 28.999...96


def sample_copies(
    graph: Graph, owner: np.ndarray, num_parts: int, overlap: float, seed: int, workers: int | None = None
) -> list[np.ndarray]:
    """The foreign nodes that every part copies, ascending (Algorithm 1 of subgraph approximation).

    For each other part, a breadth-first search from the part against the direction of edges, inside the other part
    only: whole rings (nodes at equal distance) are taken while they fit the budget `copies_per_part`; from the first
    that does not fit, the remaining number is drawn uniformly. Line 12 is read as "if hop is not empty", and hop itself
    as the next candidates: read literally, second-hop nodes are never added. O(E) in all, while the budgets are small.
    `workers` are the parts that may own nodes, by default all.
    """
    offsets, order = bucket(owner, num_parts, graph.indices)
    visited = np.full(graph.num_nodes, -1, np.int32)
    copies = []
    for part in range(num_parts):
        nodes = order[offsets[part] : offsets[part + 1]]
        budget = copies_per_part(overlap, len(nodes), num_parts if workers is None else workers)
        taken = [order[:0]]
        if budget:
            first = np.sort(_boundary(graph.indptr, graph.indices, nodes, owner, part, visited))
            starts, place = bucket(owner[first], num_parts, first)
            for other in np.flatnonzero(np.diff(starts)):
                ring, size = first[place[starts[other] : starts[other + 1]]], offsets[other + 1] - offsets[other]
                whole, last = _rings(graph.indptr, graph.indices, owner, ring, size, budget, part, visited)
                key = random_key(seed, part, -1, int(other), "overlap")
                taken += [whole, _choose(last, budget - len(whole), key)]
        copies.append(np.sort(np.concatenate(taken)))
    return copies


def _choose(ring: np.ndarray, count: int, key: int) -> np.ndarray:
    """`count` nodes of a ring drawn uniformly, or all if there are no more."""
    if len(ring) <= count:
        return ring
    return np.random.Generator(np.random.Philox(key)).choice(np.sort(ring), count, replace=False)


def _whole(
    graph: Graph, cut: PartitionFolder, owner: np.ndarray, settings: dict[str, Any]
) -> tuple[PartitionFolder, list[np.ndarray]]:
    """The folder of the parts and every part's copies, from the cache or made now."""
    path = partition_path(graph, settings)
    entry = stored(path)
    if entry is not None:
        folder, arrays = entry
        return folder, np.split(arrays["copies"], arrays["ends"][:-1])
    begin = perf_counter()
    workers = cut.num_parts - (settings.get("master") == "apart")
    copies = sample_copies(graph, owner, cut.num_parts, settings["overlap"], settings["seed"], workers)
    seconds = cut.seconds + perf_counter() - begin
    counts = overlap_quality(graph, owner, cut.quality, copies)
    made = PartitionFolder(path, counts, settings, seconds)
    ends = np.cumsum([len(nodes) for nodes in copies], dtype=np.int64)
    keep_whole(made, owner=owner, copies=np.concatenate(copies), ends=ends)
    return made, copies


def _is_training(graph: Graph) -> np.ndarray:
    mask = np.zeros(graph.num_nodes, np.bool_)
    if graph.train is not None:
        mask[graph.train] = True
    return mask


def _build(
    graph: Graph, made: PartitionFolder, owner: np.ndarray, copies: np.ndarray, rank: int, num_train: int
) -> Part:
    """The part of `rank` without features: the subgraph on its nodes, cut into one part, with the graph's node ids."""
    mine = owner == rank
    held = mine.copy()
    held[copies] = True
    nodes = np.flatnonzero(held)
    subgraph = replace(graph, x=None).subgraph(nodes)
    alone = lay_out(subgraph, np.zeros(len(nodes), np.int32), 1, made.settings["renumber"])
    part = build_part(subgraph, alone, 0, with_x=False)
    globally = nodes[part.nodes.numpy()]
    own = torch.from_numpy(mine[globally])
    local = part.graph
    if made.settings["degrees"] == "full":
        local = replace(local, degree=torch.from_numpy(graph.in_degree[globally]))
    nothing = np.zeros(made.num_parts, np.int64)
    val, test = (ids[own[ids]] for ids in (part.val, part.test))
    return replace(
        part,
        rank=rank,
        num_parts=made.num_parts,
        nodes=torch.from_numpy(globally),
        graph=local,
        plan=HaloPlan(part.plan.send_rows, nothing, nothing),
        train=part.train if made.settings["loss"] == "all" else part.train[own[part.train]],
        val=val,
        test=test,
        totals=replace(
            part.totals,
            num_nodes=graph.num_nodes,
            num_edges=graph.num_edges,
            num_train=num_train,
            num_val=0 if graph.val is None else len(graph.val),
            num_test=0 if graph.test is None else len(graph.test),
            num_features=graph.num_features,
            symmetric=graph.is_symmetric(),
        ),
    )


@njit(cache=True, nogil=True)
def _boundary(
    indptr: np.ndarray, indices: np.ndarray, nodes: np.ndarray, owner: np.ndarray, part: int, visited: np.ndarray
) -> np.ndarray:
    """Foreign nodes with an edge into `nodes`, each once, unsorted; they are marked with `part` in `visited`."""
    num_edges = 0
    for v in nodes:
        num_edges += indptr[v + 1] - indptr[v]
    boundary = np.empty(min(num_edges, len(owner)), indices.dtype)
    at = 0
    for v in nodes:
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            if owner[u] != part and visited[u] != part:
                visited[u] = part
                boundary[at] = u
                at += 1
    return boundary[:at].copy()


@njit(cache=True, nogil=True)
def _rings(
    indptr: np.ndarray,
    indices: np.ndarray,
    owner: np.ndarray,
    ring: np.ndarray,
    size: int,
    budget: int,
    part: int,
    visited: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The rings that fit the budget, and the one after them, inside the other part of `size` nodes.

    The queue of the search holds ring after ring, the latest from `begin` to `end`; queued nodes are marked with `part`
    in `visited`, so that they are queued once.
    """
    queue = np.empty(size, ring.dtype)
    queue[: len(ring)] = ring
    other = owner[ring[0]]
    begin, end = 0, len(ring)
    while begin < end and end < budget:
        at = end
        for i in range(begin, end):
            v = queue[i]
            for e in range(indptr[v], indptr[v + 1]):
                u = indices[e]
                if owner[u] == other and visited[u] != part:
                    visited[u] = part
                    queue[at] = u
                    at += 1
        begin, end = end, at
    return queue[:begin].copy(), queue[begin:end].copy()
