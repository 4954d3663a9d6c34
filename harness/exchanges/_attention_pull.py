"""Pull-style exchange for attention layers: complete gradients are sent, and receivers recompute their softmax weights.

Attention is not linear in its rows, so besides the gradient of its output a node sends what its neighbours need to
recompute their attention weight on it: its target score, the logarithm of its softmax denominator, and the dot product
of gradient and output. These are 3 values a head more than push sends back.

`AttentionPull` sends transformed rows; `AttentionRowsPull` the layer's input rows and the gradients of its output, as
EC-Graph does, by fetches that may compress them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor

from harness.codecs import Cast, Codec
from harness.exchanges._error_feedback import Fetch
from harness.exchanges._push_pull import Route, ship
from harness.exchanges._returns import Returns
from harness.graphs import Block, LocalGraph
from harness.nn import LEAKY_SLOPE, edge_rows
from harness.rank import Rank

if TYPE_CHECKING:
    from harness.nn import GATConv


class _Kept(NamedTuple):
    """Values of the forward pass that the backward pass needs. n = own rows, H = heads, D = width."""

    own: Tensor  # [n, H, D]
    halo: Tensor  # [n_halo, H, D]
    source: Tensor  # [n, H] source scores of own rows
    target: Tensor  # [n, H]
    halo_source: Tensor  # [n_halo, H]
    log_total: Tensor  # [n, H] logarithm of the softmax denominators
    out: Tensor  # [n, H, D]


class AttentionPull:
    """Rows [z | source score | target score], [n_own, H D + 2 H] -> attention output [n_own, H D].

    Needs a symmetric graph with edge maps and self loops in its own block. Forward bytes per sent row: 4 H D;
    backward: 4 (H D + 3 H). One object serves one layer of one epoch.
    """

    returns: ClassVar[Returns] = "attention"

    def __init__(self, route: Route, l: int, codecs: tuple[Codec, Codec], graph: LocalGraph, layer: GATConv) -> None:
        self.route, self.l, self.codecs, self.graph, self.layer = route, l, codecs, graph, layer
        self.heads, self.width = layer.heads, layer.width
        self.source_vector = layer.source.detach()
        self._kept: _Kept | None = None

    def input(self, h: Tensor) -> Tensor:
        """What `forward` is to be given, from the layer's input rows."""
        return self.layer.pull_input(h)

    async def _halo_rows(self, rank: Rank, x: Tensor) -> Tensor:
        """The halo's transformed rows, [n_halo, H D]."""
        plan = self.route.plan
        rows = x[:, : self.heads * self.width].index_select(0, plan.send_rows)
        return await ship(
            rank, rows, plan.send_counts, plan.recv_counts, self.codecs[0],
            label=f"h{self.l}", direction="forward", layer=self.l,
        )  # fmt: skip

    async def _halo_gradients(self, rank: Rank, mine: Tensor) -> Tensor:
        """The halo's rows of [gradient | target score | log denominator | dot product], [n_halo, H D + 3 H]."""
        plan = self.route.plan
        return await ship(
            rank, mine.index_select(0, plan.send_rows), plan.send_counts, plan.recv_counts, self.codecs[1],
            label=f"g{self.l}", direction="backward", layer=self.l,
        )  # fmt: skip

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor]:
        """Attention over own and halo neighbours."""
        flat, halo = self.heads * self.width, await self._halo_rows(rank, x)
        own_z, halo_z = (t.reshape(-1, self.heads, self.width) for t in (x[:, :flat], halo))
        source, target = x[:, flat : flat + self.heads], x[:, flat + self.heads :]
        halo_source = (halo_z * self.source_vector).sum(-1)
        scores = [
            attention_scores(self.graph.own, source, target),
            attention_scores(self.graph.halo, halo_source, target),
        ]
        log_total = log_sum_exp([self.graph.own, self.graph.halo], scores, len(x))
        out = torch.zeros_like(own_z)
        for block, score, z in zip((self.graph.own, self.graph.halo), scores, (own_z, halo_z), strict=True):
            weight = (score - log_total.index_select(0, edge_rows(block))).exp()
            out += torch.ops.haloscope.gather_weighted_sum(block.indptr, block.indices, weight, z.contiguous())
        self._kept = _Kept(own_z, halo_z, source, target, halo_source, log_total, out)
        return (out.reshape(-1, flat),)

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        """Gradients of z, source and target scores of own rows, all complete."""
        assert self._kept is not None
        kept = self._kept
        g = gradients[0].reshape(-1, self.heads, self.width).contiguous()
        centre = (g * kept.out).sum(-1)
        mine = torch.cat([g.flatten(1), kept.target, kept.log_total, centre], 1)
        theirs = await self._halo_gradients(rank, mine)
        g_z, g_source = torch.zeros_like(kept.own), torch.zeros_like(kept.source)
        for block, rows in ((self.graph.own, mine), (self.graph.halo, theirs)):
            self._as_source(kept, block, rows, g_z, g_source)
        g_target = self._as_target(kept, g, centre)
        self._kept = None
        return torch.cat([g_z.flatten(1), g_source, g_target], 1)

    def _as_source(self, kept: _Kept, block: Block, rows: Tensor, g_z: Tensor, g_source: Tensor) -> None:
        """Add the gradients of own rows as neighbours of the nodes in `rows` (own or halo, by `block`'s columns)."""
        flat = self.heads * self.width
        g, target, log_total, centre = rows.split([flat, self.heads, self.heads, self.heads], 1)
        g = g.reshape(-1, self.heads, self.width).contiguous()
        at, columns = edge_rows(block), block.indices
        raw = kept.source.index_select(0, at) + target.index_select(0, columns)
        weight = (leaky(raw) - log_total.index_select(0, columns)).exp()
        g_z += torch.ops.haloscope.gather_weighted_sum(block.indptr, block.indices, weight, g)
        dot = torch.ops.haloscope.edge_dot(block.indptr, block.indices, kept.own.contiguous(), g)
        g_source.index_add_(0, at, weight * (dot - centre.index_select(0, columns)) * slope(raw))

    def _as_target(self, kept: _Kept, g: Tensor, centre: Tensor) -> Tensor:
        """Gradient of the target scores of own rows."""
        total = torch.zeros_like(kept.target)
        sides = ((self.graph.own, kept.own, kept.source), (self.graph.halo, kept.halo, kept.halo_source))
        for block, z, source in sides:
            at = edge_rows(block)
            raw = source.index_select(0, block.indices) + kept.target.index_select(0, at)
            weight = (leaky(raw) - kept.log_total.index_select(0, at)).exp()
            dot = torch.ops.haloscope.edge_dot(block.indptr, block.indices, g, z.contiguous())
            total.index_add_(0, at, weight * (dot - centre.index_select(0, at)) * slope(raw))
        return total


class AttentionRowsPull(AttentionPull):
    """The same on the layer's input rows H forwards and the gradients G of its output backwards, sent by fetches.

    Readers transform the rows that they received. The mean over heads, where the layer has one, is part of it: G has
    one head then. The 3 H values that tell a neighbour its attention weight travel as they are.

    Where H or G lose something, two things are approximated: the owner of a node takes the attention weights that its
    neighbours gave it from its exact row, while they used the row that they received; and the gradients of the weights
    are those of own rows with respect to all neighbours, H^T (A G) as in Eq. 6, so they contain received gradients.

    Forward bytes per sent row are the fetch's of the layer's input width; backward the fetch's of its output width,
    and 4 * 3 H.
    """

    def __init__(self, route: Route, l: int, graph: LocalGraph, layer: GATConv, fetches: tuple[Fetch, Fetch]) -> None:
        super().__init__(route, l, (Cast(None), Cast(None)), graph, layer)
        self.forwards, self.backwards = fetches
        self._rows: Tensor | None = None

    def input(self, h: Tensor) -> Tensor:
        self._rows = h.detach()
        return super().input(h)

    async def _halo_rows(self, rank: Rank, x: Tensor) -> Tensor:
        assert self._rows is not None
        halo, self._rows = await self.forwards(rank, self._rows), None
        return self.layer.transform(halo).detach()

    async def _halo_gradients(self, rank: Rank, mine: Tensor) -> Tensor:
        plan, heads = self.route.plan, self.heads
        g, scores = mine.split([heads * self.width, 3 * heads], 1)
        if self.layer.mean_heads:
            g = g.reshape(-1, heads, self.width).sum(1)
        halo = await self.backwards(rank, g.contiguous())
        if self.layer.mean_heads:
            halo = (halo / heads).repeat(1, heads)
        exact = await ship(
            rank, scores.index_select(0, plan.send_rows), plan.send_counts, plan.recv_counts, self.codecs[1],
            label=f"scores {self.l}", direction="backward", layer=self.l,
        )  # fmt: skip
        return torch.cat([halo, exact], 1)


def attention_scores(block: Block, source: Tensor, target: Tensor) -> Tensor:
    """Score of every edge of a block, [nnz, H], from the source scores of its columns and target scores of its rows."""
    return leaky(source.index_select(0, block.indices) + target.index_select(0, edge_rows(block)))


def log_sum_exp(blocks: Sequence[Block], scores: Sequence[Tensor], num_rows: int) -> Tensor:
    """Logarithm of every row's softmax denominator over the edges of all blocks, [num_rows, H]."""
    at = torch.cat([edge_rows(block) for block in blocks])
    score = torch.cat(list(scores))
    top = score.new_full((num_rows, score.shape[1]), -torch.inf)
    top = top.scatter_reduce(0, at[:, None].expand_as(score), score, "amax")
    total = torch.zeros_like(top).index_add_(0, at, (score - top.index_select(0, at)).exp())
    return top + total.log()


def leaky(raw: Tensor) -> Tensor:
    """The scores' nonlinearity."""
    return torch.nn.functional.leaky_relu(raw, LEAKY_SLOPE)


def slope(raw: Tensor) -> Tensor:
    """The derivative of `leaky`."""
    return torch.ones_like(raw).masked_fill(raw <= 0, LEAKY_SLOPE)
