"""Partitions cached on disk under a key of their content: the graph, the settings, METIS's version and
the partitioner's code.

One folder per partition with one entry for the whole and one per part, so that a rank reads its own arrays only and a
build that was killed resumes where it stopped. Entries are never evicted or sent between machines.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from harness.errors import InputError
from harness.graphs import Block, Graph, HaloPlan, LocalGraph, Part, Totals
from harness.machine import (
    ResidentPeak,
    building,
    cache_root,
    has_entry,
    load_arrays,
    load_meta,
    scratch_in,
    store_arrays,
    writing,
)
from harness.partition.edge._assign import assign, node_settings
from harness.partition.edge._build import build_part, features
from harness.partition.edge._changed_code import tell_of_changed_code
from harness.partition.edge._layout import Renumber, lay_out
from harness.partition.edge._memory import BuildMemory, build_memory
from harness.partition.edge._quality import OverlapQuality, Quality, quality
from harness.partition.partitioners import kaminpar_version, metis_version
from harness.steps import begin_step

FORMAT = 3  # of the arrays below; raise it when their meaning, or the order of nodes in a part, changes
TOLD_EDGES = 100_000_000  # directed edges of a graph whose parts take minutes
WHOLE = "whole"  # name of the entry with the assignment and the quality
MAPPED_FROM = 64 << 20  # bytes; smaller parts are read at once, larger ones are mapped and read when touched


@dataclass(frozen=True)
class MemoryOfBuild:
    """What making parts was said to take, and the most that the process had meanwhile, bytes.

    Attributes:
        stated: before anything was made.
        of_parts: once the cut was known.
    """

    stated: BuildMemory
    of_parts: BuildMemory
    measured: int


@dataclass(frozen=True, eq=False)
class PartitionFolder:
    """A partition in the cache: quality and settings in memory, assignment and parts on disk.

    A rank needs its own part only: it must not hold an assignment of all nodes of the graph.
    """

    path: Path
    quality: Quality
    settings: dict[str, Any]  # partitioner, num_parts, seed, renumber
    seconds: float  # that the partitioner took
    memory: MemoryOfBuild | None = None  # None for parts that were in the cache

    @property
    def num_parts(self) -> int:
        return self.quality.num_parts

    @property
    def owner(self) -> np.ndarray:
        """The part of every node, int32 [N]; mapped anew at every use. Raises InputError if missing or damaged."""
        return read_whole(self.path)["owner"]

    def part(self, rank: int) -> Part:
        """The part of `rank`; reads only its own arrays. Raises InputError if the entry is missing or damaged."""
        return _part(*read_part(self.path, rank, self.num_parts))

    def export(self, folder: Path) -> None:
        """Write `owner.npy` (int32 [N]) and `partition.json` (settings, quality, counts per part) into `folder`."""
        listing = {"settings": self.settings, "quality": self.quality.summary(), "parts": self.quality.rows()}
        export_partition(folder, {"owner": self.owner}, listing)


def read_part(path: Path, rank: int, num_parts: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and values of one cached part, large ones memory-mapped. Raises InputError if missing or damaged."""
    if not 0 <= rank < num_parts:
        raise ValueError(f"rank {rank} is not in 0..{num_parts - 1}")
    folder = path / part_name(rank)
    size = sum(file.stat().st_size for file in folder.glob("*.npy"))
    entry = load_arrays(folder, mmap=size >= MAPPED_FROM)
    if entry is None:
        raise InputError(f"{folder}: this part of the cached partition is missing or damaged; run again to rebuild it")
    return entry


def read_whole(path: Path) -> dict[str, np.ndarray]:
    """The arrays of all nodes or edges of a cached partition, mapped. Raises InputError if missing or damaged."""
    entry = load_arrays(path / WHOLE)
    if entry is None:
        raise InputError(
            f"{path}: the assignment of the cached partition is missing or damaged; run again to rebuild it"
        )
    return entry[0]


def export_partition(folder: Path, arrays: dict[str, np.ndarray], listing: dict[str, Any]) -> None:
    """Write every array as `<name>.npy`, and the listing as `partition.json`, into `folder`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
        (folder / "partition.json").write_text(json.dumps(listing, indent=2) + "\n")
    except OSError as error:
        raise InputError(f"{folder}: cannot export the partition ({error.strerror}); choose another folder") from error


def partitioned(graph: Graph, name: str, num_parts: int, seed: int = 0, renumber: Renumber = "auto") -> PartitionFolder:
    """The partition of `graph` by partitioner `name`, from the cache or made now, part by part.

    Of several processes one builds it and the others wait. Large arrays of the parts, and what has an entry for every
    edge on the way, are mapped files: memory is what `build_memory` says before. Of `TOLD_EDGES` directed edges and
    more it is told as a warning.

    Raises:
        InputError: as `assign` and `lay_out`, or if the memory or the disk is too small.
    """
    settings = _settings(name, num_parts, seed, renumber)
    path = partition_path(graph, settings)
    with building(path):
        entry = stored(path)
        missing = missing_parts(path, range(num_parts))
        if entry is not None and not missing:
            return entry[0]
        asked = (graph, name, num_parts, renumber)
        stated = build_memory(*asked, None if entry is None else entry[0].quality)
        stated.require(graph.name, without="renumbering")  # the most that any cut needs, mostly far too much
        _tell(graph, num_parts, stated, path)
        with ResidentPeak() as measured:
            if entry is None:
                made, owner = _assigned(graph, name, num_parts, seed, settings)
            else:
                made, owner = entry[0], entry[1]["owner"]
            of_parts = build_memory(*asked, made.quality)
            of_parts.require(graph.name)
            begin_step(f"building {len(missing)} parts of {graph.name}", graph.num_edges)
            _build(graph, made, owner, missing, renumber)
    return replace(made, memory=MemoryOfBuild(stated, of_parts, measured.most))


def _build(graph: Graph, made: PartitionFolder, owner: np.ndarray, missing: list[int], renumber: Renumber) -> None:
    """Build and store the missing parts; what they share and have on the way is in a folder that is removed."""
    with scratch_in(made.path) as scratch:
        layout = lay_out(graph, owner, made.num_parts, renumber, scratch)
        for rank in missing:
            with writing(made.path / part_name(rank)) as entry:
                part = build_part(graph, layout, rank, False, entry, scratch)
                entry.keep(*_arrays(part, features(graph, layout.nodes(rank), entry)))


def _tell(graph: Graph, num_parts: int, stated: BuildMemory, path: Path) -> None:
    if graph.num_edges < TOLD_EDGES:
        return
    beside = f", beside what {stated.unknown} takes" if stated.unknown else ""
    logging.getLogger("haloscope").warning(
        "%s: making %d parts of %s nodes and %s directed edges takes up to %.2f GiB of memory%s; they go to %s",
        graph.name, num_parts, f"{graph.num_nodes:,}", f"{graph.num_edges:,}", stated.peak / 2**30, beside, path,
    )  # fmt: skip


def assigned(graph: Graph, name: str, num_parts: int, seed: int = 0, renumber: Renumber = "auto") -> PartitionFolder:
    """The assignment and its quality, from the cache or made now; the folder of `partitioned`, possibly without
    parts."""
    settings = _settings(name, num_parts, seed, renumber)
    path = partition_path(graph, settings)
    with building(path):
        entry = stored(path)
        return _assigned(graph, name, num_parts, seed, settings)[0] if entry is None else entry[0]


def _settings(name: str, num_parts: int, seed: int, renumber: Renumber) -> dict[str, Any]:
    return {**node_settings(name, num_parts, seed), "renumber": renumber}


def _assigned(
    graph: Graph, name: str, num_parts: int, seed: int, settings: dict[str, Any]
) -> tuple[PartitionFolder, np.ndarray]:
    """The stored assignment, and the part of every node."""
    tell_of_changed_code(graph, settings)
    begin_step(f"cutting {graph.num_nodes:,} nodes of {graph.name} into {num_parts} parts by {name}", graph.num_edges)
    begin = perf_counter()
    owner = assign(graph, name, num_parts, seed)
    seconds = perf_counter() - begin
    path = partition_path(graph, settings)
    made = PartitionFolder(path, quality(graph, owner, num_parts), settings, seconds)
    keep_whole(made, owner=owner)
    return made, owner


def partition_path(graph: Graph, settings: dict[str, Any]) -> Path:
    """Path of the cached parts of `graph` with these settings."""
    key = json.dumps([FORMAT, metis_version(), graph.fingerprint(), settings], sort_keys=True)
    return cache_root() / "partitions" / hashlib.sha256(key.encode()).hexdigest()


def missing_parts(path: Path, parts: Iterable[int]) -> list[int]:
    """Those of the parts that are not in the folder yet, or not whole."""
    return [part for part in parts if not has_entry(path / part_name(part))]


def keep_part(path: Path, part: Part, x: np.ndarray | sp.csr_matrix | None) -> None:
    """Store a part that was built without features, and its feature rows `x`."""
    store_arrays(path / part_name(part.rank), *_arrays(part, x))


def partition_version() -> str:
    """The format on disk and the versions of METIS and KaMinPar, on which a partition depends besides graph and
    settings."""
    return f"{FORMAT}/{metis_version()}/{kaminpar_version()}"


def open_partition(path: Path, parts: Iterable[int] | None = None) -> PartitionFolder | None:
    """The partition cached in `path`, or None if an entry of it is missing.

    Reads no array, and of the parts only the listing.

    Args:
        parts: those that must be there, by default all. P ranks that each look for all parts ask the file system for
            P * P listings.
    """
    meta = load_meta(path / WHOLE)
    if meta is None:
        return None
    found = _folder(path, meta)
    return None if missing_parts(path, range(found.num_parts) if parts is None else parts) else found


def stored(path: Path) -> tuple[PartitionFolder, dict[str, np.ndarray]] | None:
    """The entry of the whole and its arrays, memory-mapped, or None."""
    entry = load_arrays(path / WHOLE)
    return None if entry is None else (_folder(path, entry[1]), entry[0])


def _folder(path: Path, kept: dict[str, object]) -> PartitionFolder:
    """The folder that the meta of its entry of the whole describes."""
    meta = dict[str, Any](kept)
    columns = {name: tuple(column) for name, column in meta["quality"].items()}
    counts = OverlapQuality(**columns) if "copies" in columns else Quality(**columns)
    return PartitionFolder(path, counts, meta["settings"], meta["seconds"])


def keep_whole(made: PartitionFolder, **arrays: np.ndarray) -> None:
    """Store the entry of the whole: the assignment `owner` and further arrays."""
    meta = {"quality": asdict(made.quality), "seconds": made.seconds, "settings": made.settings}
    store_arrays(made.path / WHOLE, arrays, meta)


def part_name(rank: int) -> str:
    return f"part-{rank:05d}"


_BLOCK = ("indptr", "indices", "t_indptr", "t_indices")
_ROWS = ("nodes", "halo_nodes", "train", "val", "test")


def _arrays(part: Part, x: np.ndarray | sp.csr_matrix | None) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    """A part as named arrays and JSON values; sparse features stay sparse on disk."""
    graph, plan = part.graph, part.plan
    arrays = {
        f"{side}_{name}": getattr(getattr(graph, side), name).numpy() for side in ("own", "halo") for name in _BLOCK
    }
    arrays |= {name: getattr(part, name).numpy() for name in _ROWS}
    arrays |= {"degree": graph.degree.numpy(), "halo_degree": graph.halo_degree.numpy()}
    arrays |= {"send_rows": plan.send_rows.numpy(), "send_counts": plan.send_counts, "recv_counts": plan.recv_counts}
    if part.y is not None:
        arrays["y"] = part.y.numpy()
    if isinstance(x, sp.csr_matrix):
        arrays |= {"x_indptr": x.indptr, "x_indices": x.indices, "x_data": x.data}
    elif x is not None:
        arrays["x"] = x
    return arrays, {"rank": part.rank, "num_parts": part.num_parts, "totals": asdict(part.totals)}


def _part(arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Part:
    """The inverse of `_arrays`; mapped arrays stay mapped."""
    totals = Totals(**meta["totals"])
    if "x_data" in arrays:
        shape = (len(arrays["nodes"]), totals.num_features)
        sparse = sp.csr_matrix((arrays["x_data"], arrays["x_indices"], arrays["x_indptr"]), shape=shape)
        arrays["x"] = sparse.toarray()
    counts = {name: np.array(arrays.pop(name)) for name in ("send_counts", "recv_counts")}
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    own, halo = (Block(*(tensors[f"{side}_{name}"] for name in _BLOCK)) for side in ("own", "halo"))
    return Part(
        rank=meta["rank"],
        num_parts=meta["num_parts"],
        graph=LocalGraph(own, halo, tensors["degree"], tensors["halo_degree"]),
        plan=HaloPlan(tensors["send_rows"], **counts),
        x=tensors.get("x"),
        y=tensors.get("y"),
        nodes=tensors["nodes"],
        halo_nodes=tensors["halo_nodes"],
        train=tensors["train"],
        val=tensors["val"],
        test=tensors["test"],
        totals=totals,
    )
