"""The quality of a cut, counted on its built parts: what `harness.partition.edge.quality` counts on the graph."""

from __future__ import annotations

from collections.abc import Sequence

from harness.graphs import Part
from harness.partition.edge import Quality


def quality_of(parts: Sequence[Part]) -> Quality:
    """The quality from all built parts, in any order; they may be shapes-only parts."""
    in_order = sorted(parts, key=lambda part: part.rank)
    own = [part.graph.own.nnz for part in in_order]
    cut = [part.graph.halo.nnz for part in in_order]
    return Quality(
        inner=tuple(part.graph.num_own for part in in_order),
        halo=tuple(part.graph.num_halo for part in in_order),
        sent=tuple(int(part.plan.send_counts.sum()) for part in in_order),
        edges=tuple(a + b for a, b in zip(own, cut, strict=True)),
        cut=tuple(cut),
    )
