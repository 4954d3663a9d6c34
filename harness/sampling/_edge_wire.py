"""DistDGL's wire for neighbour lists: every edge travels with both its ends and its number."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.effects import Counts, Rows
from harness.rank import Rank
from harness.sampling._remote import Neighbours


@dataclass(frozen=True, eq=False)
class EdgeNeighbours(Neighbours):
    """`Neighbours` whose `lists` send 24 bytes per entry instead of 8, and no count per node.

    An entry is source, destination and edge number, int64 each. Training reads no edge number; zeros are sent.
    """

    async def _ask(
        self, rank: Rank, ids: Tensor, counts: Counts, fanout: int, key: int, layer: int, label: str
    ) -> tuple[Tensor, Tensor]:
        asked, wanted = await self._request(rank, ids, counts, f"{label} wanted", "other", layer)
        entries, columns = self._draw(rank, asked, fanout, key, layer, "remote_edges")
        destination = torch.repeat_interleave(asked, entries.long(), output_size=columns.shape[0])
        edges = torch.stack([columns, destination, torch.zeros_like(columns)], 1).to(rank.device)
        sizes = self._per_rank(rank, entries, wanted, columns.shape[0])
        received = await rank.all_to_all([Rows(edges, sizes, None)], label=label, layer=layer)
        found = received.tensors[0]
        if found.is_meta:
            return ids.new_empty(len(ids), dtype=torch.int32), found[:, 0]
        found = found.cpu()
        ascending, place = torch.sort(ids)
        listed = place.index_select(0, torch.searchsorted(ascending, found[:, 1].contiguous()))
        return torch.bincount(listed, minlength=len(ids)).to(torch.int32), found[:, 0].contiguous()
