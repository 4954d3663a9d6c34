"""Partitioned graphs of which only counts are known, for shapes-only runs on graphs that do not fit in memory.

A workload replaces a folder of cached parts (`harness.partition.Folder`). The source of every number is recorded with
the result. `_build` makes workloads from descriptions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import InputError
from harness.graphs import Part, Totals, VertexPart
from harness.partition.edge import Quality
from harness.partition.vertex import VertexQuality


@dataclass(frozen=True)
class Provenance:
    """The sources of the numbers of a workload: `sources` maps a number's name to {"value", "from", "note"}."""

    path: Path
    name: str
    summary: str = ""
    reference: str = ""
    sources: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def record(self, totals: Totals, counts: Sequence[np.ndarray]) -> dict[str, Any]:
        """The graph in the result file: its counts, their sources, and a fingerprint of all numbers used."""
        known = asdict(totals)
        if not known["skew"]:
            del known["skew"]  # undeclared: the fingerprint is that of the counts alone
        digest = hashlib.sha256(json.dumps(known, sort_keys=True).encode())
        for array in counts:
            digest.update(np.ascontiguousarray(array).data)
        assumed = [name for name, found in self.sources.items() if found["from"] == "assumed"]
        notes = [f"{self.name} is described by counts: {self.summary or 'no graph was read'}", *self.notes]
        if assumed:
            notes.append(f"assumed in {self.name}: {', '.join(assumed)}")
        return {
            "name": self.name,
            "fingerprint": digest.hexdigest(),
            "num_nodes": totals.num_nodes,
            "num_edges": totals.num_edges,
            "num_features": totals.num_features,
            "num_classes": totals.num_classes,
            "multilabel": totals.multilabel,
            "reference": self.reference,
            "sources": self.sources,
            "notes": notes,
        }


@dataclass(frozen=True, eq=False)
class _Described:
    """The interface of a folder of parts that both kinds share."""

    provenance: Provenance
    totals: Totals

    seconds = 0.0  # no partitioner ran

    @property
    def path(self) -> Path:
        """Path of the description."""
        return self.provenance.path

    @property
    def settings(self) -> dict[str, Any]:
        """The settings, in place of a partitioner's."""
        return {"partitioner": "described"}


def _export(settings: dict[str, Any], quality: Quality | VertexQuality, folder: Path) -> None:
    """Write `partition.json` as for real partitions, without an assignment."""
    listing = {"settings": settings, "quality": quality.summary(), "parts": quality.rows()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "partition.json").write_text(json.dumps(listing, indent=2) + "\n")
    except OSError as error:
        raise InputError(f"{folder}: cannot export the partition ({error.strerror}); choose another folder") from error


@dataclass(frozen=True, eq=False)
class Workload(_Described):
    """An edge cut described by counts per rank and per pair.

    Attributes:
        inner: int64 [P] own nodes.
        received: int [P, P], rows that rank i receives from rank j in one exchange; read-only, as parts refer to it.
        own_edges, halo_edges: int64 [P], edges into own nodes from own and from foreign nodes.
    """

    inner: np.ndarray
    received: np.ndarray
    own_edges: np.ndarray
    halo_edges: np.ndarray

    def __post_init__(self) -> None:
        too_many = self.received > self.inner[None, :]
        if too_many.any():
            i, j = (int(found[0]) for found in np.nonzero(too_many))
            raise InputError(
                f"rank {i} would receive {self.received[i, j]} rows from rank {j}, which has {self.inner[j]} nodes; "
                "lower the boundary or give pairs"
            )
        self.received.flags.writeable = False

    @property
    def num_parts(self) -> int:
        return len(self.inner)

    @cached_property
    def graph(self) -> dict[str, Any]:
        """The graph in the result file."""
        return self.provenance.record(self.totals, (self.inner, self.received, self.own_edges, self.halo_edges))

    @cached_property
    def quality(self) -> Quality:
        """The partition's counts as for any edge cut."""
        edges = self.own_edges + self.halo_edges
        columns = self.inner, self.received.sum(1), self.received.sum(0), edges, self.halo_edges
        return Quality(*(tuple(column.tolist()) for column in columns))

    @cached_property
    def _sent(self) -> np.ndarray:
        """int [P, P], rows that rank i sends to rank j: each rank's counts side by side."""
        sent = np.ascontiguousarray(self.received.T)
        sent.flags.writeable = False
        return sent

    def part(self, rank: int) -> Part:
        """The part of `rank`, shapes only."""
        received, sent = self.received[rank], self._sent[rank]
        edges = int(self.own_edges[rank]), int(self.halo_edges[rank])
        return Part.describe(rank, self.num_parts, int(self.inner[rank]), received, sent, *edges, self.totals)

    def export(self, folder: Path) -> None:
        """Write `partition.json` into `folder`."""
        _export(self.settings, self.quality, folder)


@dataclass(frozen=True, eq=False)
class VertexWorkload(_Described):
    """A vertex cut described by counts per rank.

    Attributes:
        masters: int64 [P]; shared: int64 [P], masters among them that have mirrors elsewhere.
        mirrors: int [P, P], mirrors on rank i of masters on rank j.
        edges: int64 [P], undirected edges.
    """

    masters: np.ndarray
    shared: np.ndarray
    mirrors: np.ndarray
    edges: np.ndarray

    @property
    def num_parts(self) -> int:
        return len(self.masters)

    @cached_property
    def graph(self) -> dict[str, Any]:
        """The graph in the result file."""
        return self.provenance.record(self.totals, (self.masters, self.shared, self.mirrors, self.edges))

    @cached_property
    def quality(self) -> VertexQuality:
        """The partition's counts as for any vertex cut, with all parts on one host."""
        held, elsewhere = self.mirrors.sum(1), self.mirrors.sum(0)
        columns = self.masters + held, self.edges, self.masters, held + elsewhere, np.zeros_like(held)
        return VertexQuality(*(tuple(column.tolist()) for column in columns))

    def part(self, rank: int) -> VertexPart:
        """The part of `rank`, shapes only."""
        shared = int(self.shared[rank])
        counts = int(self.masters[rank]) - shared, shared, self.mirrors[rank], self.mirrors[:, rank]
        return VertexPart.describe(rank, *counts, int(self.edges[rank]), self.totals)

    def export(self, folder: Path) -> None:
        """Write `partition.json` into `folder`."""
        _export(self.settings, self.quality, folder)
