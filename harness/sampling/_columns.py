"""Layer-wise samples: whole rows of the propagation matrix, of which a few columns are kept and weighted.

Where neighbour samples draw for every destination alone, a layer-wise sample draws nodes for all destinations of a
layer together. Which are drawn, and with what probabilities, is the methods' business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numba import njit
from torch import Tensor

from harness.graphs import Block, position_dtype
from harness.kernels.csr import edge_map, transpose
from harness.kernels.custom_operator import custom_operator
from harness.kernels.importance import importance_draw
from harness.kernels.work import declare_work
from harness.nn import Aggregation, edge_rows
from harness.rank import Rank
from harness.sampling._lists import Scattered, node_of
from harness.sampling._remote import Lists
from harness.sampling._sampled import SampledLayer

Normalise = Literal["none", "rows"]


@dataclass(frozen=True, eq=False)
class MatrixRows:
    """Rows of the propagation matrix P of one layer, one for each destination.

    Attributes:
        block: [destinations x columns] with edge map; the destinations are the first columns.
        weight: [nnz] P_vu in the order of `block.indices`.
        ids: int64, addresses of the columns, on the host.
    """

    block: Block
    weight: Tensor
    ids: Tensor

    @classmethod
    def of(
        cls,
        rank: Rank,
        aggregation: Aggregation,
        lists: Lists,
        ids: Tensor,
        num_nodes: int,
        degrees: Tensor | None,
        like: Tensor,
        layer: int,
    ) -> MatrixRows:
        """From the whole lists of `ids`.

        Args:
            degrees: int32 [N] in-degrees by number in the whole graph, on the host; not needed for the mean.
            like: a tensor of the wanted type and device.
        """
        taken = lists.indptr.diff()
        if aggregation.kind == "gcn":
            lists = Lists(*torch.ops.haloscope.looped_lists(lists.columns, lists.indptr, ids))
        block, new = lists.block(rank, ids, num_nodes, layer)
        columns = torch.cat([ids, new])
        if degrees is None:
            scale = aggregation.scale(taken.to(like.device), like)[:, 0]
            weight = scale.index_select(0, edge_rows(block))
        else:
            degree = degrees.index_select(0, node_of(columns)).to(like.device)
            weight = matrix_entries(aggregation, block, degree[: block.num_rows], degree, like)
        return cls(block, weight, columns)

    def squares(self) -> Tensor:
        """Squared norm of every column, float64 on the host."""
        weight, indices = self.weight.double().square(), self.block.indices.long()
        if not weight.is_meta:
            weight, indices = weight.cpu(), indices.cpu()
        return weight.new_zeros(self.block.num_cols).index_add_(0, indices, weight)

    def draw(self, rank: Rank, q: Tensor, count: int, draw: str, key: int, layer: int) -> tuple[Tensor, Tensor]:
        """`importance_draw` among the columns; records `drawn_columns` of `count`."""
        expected = round(rank.rate("drawn_columns", layer) * count) if q.is_meta else 0
        places, weights = importance_draw(q, node_of(self.ids), count, draw, key, expected)
        if not q.is_meta:
            rank.observe("drawn_columns", len(places), count, layer)
        return places, weights

    def keep(
        self, rank: Rank, places: Tensor, factors: Tensor, layer: int, *, keeps_own: bool, normalise: Normalise
    ) -> tuple[SampledLayer, Tensor]:
        """The layer of some columns, each multiplied by its factor, and the addresses of its sources.

        With `keeps_own` the destinations are the first sources whether or not they are among the columns, which then
        follow without them; otherwise the sources are the columns. `normalise`="rows" scales every row to the sum that
        it has in P. Records the share of rows without any entry, and shares for shapes-only runs.
        """
        leading = self.block.num_rows if keeps_own else 0
        columns, edges, sources = self._columns(rank, places, leading, layer)
        device = self.weight.device
        by_column = factors.new_zeros(self.block.num_cols).index_copy_(0, places, factors).to(device, self.weight.dtype)
        weight = self.weight.index_select(0, edges) * by_column.index_select(0, self.block.indices[edges].long())
        if normalise == "rows":
            rows, whole = edge_rows(columns), edge_rows(self.block)
            zeros = weight.new_zeros(columns.num_rows)
            sums = zeros.index_add(0, rows, weight), zeros.index_add(0, whole, self.weight)
            weight = weight * (sums[1] / sums[0]).index_select(0, rows)
        if not places.is_meta:
            rank.observe("empty_rows", int((columns.indptr.diff() == 0).sum()), columns.num_rows, layer)
        return SampledLayer(columns, weight), self.ids.index_select(0, sources)

    def _columns(self, rank: Rank, places: Tensor, leading: int, layer: int) -> tuple[Block, Tensor, Tensor]:
        """The block of some columns behind `leading` others, its entries in the whole block, its columns in the whole
        block (on the host)."""
        block, expected = self.block, [0, 0]
        if places.is_meta:
            rates = rank.rate("kept_edges", layer), rank.rate("new_columns", layer)
            expected = [round(rates[0] * block.nnz), leading + round(rates[1] * len(places))]
        host = [t if t.is_meta else t.cpu() for t in (block.indptr, block.indices)]
        made = torch.ops.haloscope.keep_columns(*host, places, block.num_cols, leading, expected)
        kept, edges, sources = Block(*(array.to(self.weight.device) for array in made[:5])), made[5], made[6]
        if not places.is_meta:
            rank.observe("kept_edges", kept.nnz, block.nnz, layer)
            rank.observe("new_columns", len(sources) - leading, len(places), layer)
        return kept, edges.to(self.weight.device), sources


def matrix_entries(
    aggregation: Aggregation, block: Block, row_degree: Tensor, column_degree: Tensor, like: Tensor
) -> Tensor:
    """P_vu of the entries of a block, [nnz] in the type of `like`, from in-degrees of its rows and columns."""
    weight = aggregation.scale(row_degree, like)[:, 0].index_select(0, edge_rows(block))
    if aggregation.kind == "mean":
        return weight
    return weight * aggregation.scale(column_degree, like)[:, 0].index_select(0, block.indices)


@custom_operator("haloscope::looped_lists", "(Tensor columns, Tensor indptr, Tensor ids) -> (Tensor, Tensor)")
def looped_lists(columns: Tensor, indptr: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """(indptr, columns) of the lists with node `ids[i]` at the end of list i; all int64."""
    a, b = _looped(columns.numpy(), indptr.numpy(), ids.numpy())
    return torch.from_numpy(a), torch.from_numpy(b)


@looped_lists.register_fake
def _(columns: Tensor, indptr: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(indptr), columns.new_empty(columns.shape[0] + ids.shape[0])


declare_work("haloscope::looped_lists", Scattered(entries=0))


@njit(cache=True, nogil=True)
def _looped(columns: np.ndarray, indptr: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    out, starts = np.empty(len(columns) + len(ids), np.int64), indptr.copy()
    for row in range(len(ids)):
        begin, end = indptr[row], indptr[row + 1]
        out[begin + row : end + row] = columns[begin:end]
        out[end + row] = ids[row]
        starts[row + 1] = end + row + 1
    return starts, out


@custom_operator(
    "haloscope::keep_columns",
    "(Tensor indptr, Tensor indices, Tensor places, int columns, int leading, int[] expected)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def keep_columns(
    indptr: Tensor, indices: Tensor, places: Tensor, columns: int, leading: int, expected: Sequence[int]
) -> tuple[Tensor, ...]:
    """The arrays of a block with edge map that has the entries of some columns only, and where they come from.

    Args:
        places: int64, ascending, the columns that are kept.
        columns, leading: how many there are; the first `leading` stay columns, in their place, whether kept or not.
        expected: (entries, columns) of the result where tensors have no numbers.

    Returns:
        Five arrays of the block; int64, the position of each of its entries in `indices`; int64, the old number of each
        of its columns.
    """
    kind = np.int32 if position_dtype(indices.shape[0]) == torch.int32 else np.int64
    starts, found, edges = _kept(indptr.numpy().astype(kind), indices.numpy(), places.numpy(), columns, leading)
    chosen = places.numpy()
    sources = np.concatenate([np.arange(leading), chosen[chosen >= leading]])
    turned = transpose(starts, found, len(sources))
    arrays = (starts, found, *turned, edge_map(found, turned[0]), edges, sources)
    return tuple(torch.from_numpy(array) for array in arrays)


@keep_columns.register_fake
def _(
    indptr: Tensor, indices: Tensor, places: Tensor, columns: int, leading: int, expected: Sequence[int]
) -> tuple[Tensor, ...]:
    entries, sources = expected
    kind = position_dtype(indices.shape[0])
    sizes = (indptr.shape[0], entries, sources + 1, entries, entries)
    made = [places.new_empty(size, dtype=kind) for size in sizes]
    return (*made, places.new_empty(entries), places.new_empty(sources))


declare_work("haloscope::keep_columns", Scattered(entries=1))


@njit(cache=True, nogil=True)
def _kept(
    indptr: np.ndarray, indices: np.ndarray, places: np.ndarray, columns: int, leading: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    number = np.full(columns, -1, np.int64)
    after = 0
    for place in places:
        if place < leading:
            number[place] = place
        else:
            number[place] = leading + after
            after += 1
    count = 0
    for column in indices:
        count += number[column] >= 0
    starts, found, edges = np.zeros_like(indptr), np.empty(count, indptr.dtype), np.empty(count, np.int64)
    at = 0
    for row in range(len(indptr) - 1):
        for e in range(indptr[row], indptr[row + 1]):
            if number[indices[e]] >= 0:
                found[at], edges[at] = number[indices[e]], e
                at += 1
        starts[row + 1] = at
    return starts, found, edges
