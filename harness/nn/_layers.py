"""Graph convolutions on (own, halo) rows: GCN, GraphSAGE-mean, GAT, and a dense layer.

A layer sees one rank's rows and never communicates. All split into `transform` (a linear map of neighbour rows),
`aggregate` and `combine`, so that the order of linear map and aggregation is a setting of the model and not of the
layer. `own` is [n_own, d], `halo` [n_halo, d]; outputs have one row per own node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.graphs import EdgeGraph, LocalGraph
from harness.nn._aggregate import aggregate, aggregate_weighted
from harness.nn._attention import Attended, attend, fuses
from harness.nn._messages import at_sources, edge_rows, edge_softmax, message_sum


@dataclass(frozen=True)
class Aggregation:
    """A sparse matrix product that is linear in its rows: z = r * (S (c * x)), S the 0/1 adjacency.

    `gcn`: r = c = (degree + 1)^-1/2 and S has self loops (Kipf and Welling, Eq. 2). `symmetric`: r = c =
    max(degree, 1)^-1/2 and S is the graph's (CDFGNN, Sec. 3.1). `mean`: r = 1 / max(degree, 1), c = 1, S is the
    graph's (GraphSAGE). Degrees are full-graph in-degrees.
    """

    kind: Literal["gcn", "symmetric", "mean"]

    def scale(self, degree: Tensor, like: Tensor) -> Tensor:
        """r of rows with these degrees, [n, 1] in the type of `like`."""
        exact = torch.promote_types(like.dtype, torch.float32)  # degrees above 256 are none of bfloat16
        degree = degree.to(exact)[:, None]
        if self.kind == "gcn":
            return (degree + 1).rsqrt().to(like.dtype)
        least = degree.clamp(min=1)
        return (least.rsqrt() if self.kind == "symmetric" else least.reciprocal()).to(like.dtype)

    def own_scale(self, graph: LocalGraph, like: Tensor) -> Tensor:
        """`scale` of the own rows, [n_own, 1], which the graph keeps for further layers and epochs."""
        return self._kept(graph, "own", like)

    def halo_scale(self, graph: LocalGraph, like: Tensor) -> Tensor:
        """`scale` of the halo rows, [n_halo, 1], kept as those of the own rows are."""
        return self._kept(graph, "halo", like)

    def _kept(self, graph: LocalGraph, rows: Literal["own", "halo"], like: Tensor) -> Tensor:
        key = (rows, self.kind, like.dtype)
        if key not in graph.factors:
            graph.factors[key] = self.scale(graph.degree if rows == "own" else graph.halo_degree, like)
        return graph.factors[key]

    def forward(self, graph: LocalGraph, own: Tensor, halo: Tensor) -> Tensor:
        """z [n_own, d] from own [n_own, d] and halo [n_halo, d]."""
        if isinstance(graph, EdgeGraph):
            z = message_sum(graph, own, graph.weight)
            return z.mul_(self.own_scale(graph, own)) if graph.weight is None else z
        return self.finish(graph, self.begin(graph, own), halo)

    def begin(self, graph: LocalGraph, own: Tensor, *, adjoint: bool = False) -> tuple[Tensor, Tensor]:
        """The part of `forward`, or of `adjoint`, that needs no halo: own rows times their factors, and their sums."""
        scaled = own * self.own_scale(graph, own) if adjoint or self.kind != "mean" else own
        return scaled, aggregate(graph.own, scaled)

    def finish(self, graph: LocalGraph, begun: tuple[Tensor, Tensor], halo: Tensor, *, adjoint: bool = False) -> Tensor:
        """z from what `begin` returned, which is written to, and the halo rows."""
        scaled, z = begun
        if graph.halo.nnz:
            plain = self.kind == "mean" and not adjoint
            z = z.add_(aggregate(graph.halo, halo if plain else halo * self.halo_scale(graph, halo)))
        if self.kind == "gcn":
            z = z.add_(scaled)
        return z if self.kind == "mean" and adjoint else z.mul_(self.own_scale(graph, z))

    def halo_gradient(self, graph: LocalGraph, g: Tensor) -> tuple[Tensor, Tensor]:
        """From the gradient g of z, [n_own, d]: g times its factors, and the gradient of the halo rows [n_halo, d]."""
        scaled = g * self.own_scale(graph, g)
        found: Tensor = torch.ops.haloscope.gather_sum(graph.halo.t_indptr, graph.halo.t_indices, scaled)
        return scaled, found if self.kind == "mean" else found.mul_(self.halo_scale(graph, g))

    def own_gradient(self, graph: LocalGraph, scaled: Tensor) -> Tensor:
        """The gradient of the own rows, [n_own, d], from the first result of `halo_gradient`."""
        found: Tensor = torch.ops.haloscope.gather_sum(graph.own.t_indptr, graph.own.t_indices, scaled)
        if self.kind == "gcn":
            found = found.add_(scaled)
        return found if self.kind == "mean" else found.mul_(self.own_scale(graph, scaled))

    def edges(self, graph: LocalGraph, like: Tensor) -> EdgeGraph:
        """The graph with the edges that messages travel on, loops among them, and weights in the type of `like`."""
        listed = edge_list(graph)
        if self.kind == "mean":
            return listed
        source, destination = listed.source, listed.destination
        if self.kind == "gcn":
            loops = torch.arange(graph.num_own, device=source.device)
            source, destination = torch.cat([source, loops]), torch.cat([destination, loops])
        scale = self.own_scale(graph, like)
        weight = scale.index_select(0, source) * scale.index_select(0, destination)
        return replace(listed, source=source, destination=destination, weight=weight)

    def adjoint(self, graph: LocalGraph, g_own: Tensor, g_halo: Tensor) -> Tensor:
        """A^T applied to complete gradients of own and halo rows; correct on symmetric graphs only."""
        if self.kind != "mean":
            return self.forward(graph, g_own, g_halo)
        return self.finish(graph, self.begin(graph, g_own, adjoint=True), g_halo, adjoint=True)


def edge_list(graph: LocalGraph) -> EdgeGraph:
    """The graph with the ends of the edges of its own block."""
    blocks = (graph.own, graph.halo, graph.degree, graph.halo_degree)
    return EdgeGraph(*blocks, graph.own.indices.long(), edge_rows(graph.own), None)


LEAKY_SLOPE = 0.2  # of the attention scores


class Conv(nn.Module):
    """Base of the layers here. A user's own module needs only `forward(graph, own, halo) -> [n_own, out]`."""

    aggregation: Aggregation | None = None  # set where aggregation is linear in rows
    exchanges: ClassVar[bool] = True  # whether halo rows are read at all
    self_loops: ClassVar[bool] = False  # whether `graph.own` must hold i -> i
    reads_own: ClassVar[bool] = True  # whether `combine` reads the layer's own input rows

    def transform(self, rows: Tensor) -> Tensor:
        """The linear map of neighbour rows, [n, in] -> [n, out]."""
        raise TypeError(f"{type(self).__name__} has no transform")

    def transform_adjoint(self, gradient: Tensor) -> Tensor:
        """The gradient of rows from that of their linear map, [n, out] -> [n, in]."""
        raise TypeError(f"{type(self).__name__} has no transform")

    def aggregate(self, graph: LocalGraph, own: Tensor, halo: Tensor) -> Tensor:
        """Sum over neighbours."""
        if self.aggregation is None:
            raise TypeError(f"{type(self).__name__} has no aggregation")
        return self.aggregation.forward(graph, own, halo)

    def added(self) -> Tensor | None:
        """The bias of the output rows, which whoever leaves it out (`bias=False`) must add; None without one."""
        return None

    def combine(self, rows: Tensor, z: Tensor, *, bias: bool = True) -> Tensor:
        """Output rows from the layer's own input rows and the aggregated, transformed rows."""
        shift = self.added()
        return z + shift.to(z.dtype) if bias and shift is not None else z

    def mix(self, rows: Tensor, z: Tensor, *, bias: bool = True) -> Tensor:
        """Output rows from the layer's own input rows and aggregated rows that are not transformed yet."""
        return self.combine(rows, self.transform(z), bias=bias)

    def forward(self, graph: LocalGraph, own: Tensor, halo: Tensor, *, bias: bool = True) -> Tensor:
        """The layer with aggregation first where that is possible, [n_own, in] -> [n_own, out]."""
        if self.aggregation is None:
            return self.combine(own, self.aggregate(graph, self.transform(own), self.transform(halo)), bias=bias)
        return self.mix(own, self.aggregate(graph, own, halo), bias=bias)

    def edge_graph(self, graph: LocalGraph, like: Tensor) -> EdgeGraph:
        """The graph without halo as a list of edges, on which the layer makes a message of every edge."""
        return edge_list(graph) if self.aggregation is None else self.aggregation.edges(graph, like)


class GCNConv(Conv):
    """z W + b with z = D^-1/2 (A + I) D^-1/2 h, or D^-1/2 A D^-1/2 h without self loops."""

    reads_own = False

    def __init__(self, inputs: int, outputs: int, *, self_loop: bool = True) -> None:
        super().__init__()
        self.aggregation = Aggregation("gcn" if self_loop else "symmetric")
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.xavier_uniform_(self.weight)

    def transform(self, rows: Tensor) -> Tensor:
        return rows @ self.weight.to(rows.dtype)

    def transform_adjoint(self, gradient: Tensor) -> Tensor:
        return gradient @ self.weight.t()

    def added(self) -> Tensor:
        return self.bias


class SAGEConv(Conv):
    """h W_self + mean(h of neighbours) W_neighbour + b."""

    aggregation = Aggregation("mean")

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.own = nn.Linear(inputs, outputs)
        self.neighbour = nn.Linear(inputs, outputs, bias=False)
        nn.init.xavier_uniform_(self.own.weight)
        nn.init.xavier_uniform_(self.neighbour.weight)
        nn.init.zeros_(self.own.bias)

    def transform(self, rows: Tensor) -> Tensor:
        return functional.linear(rows, self.neighbour.weight.to(rows.dtype))

    def transform_adjoint(self, gradient: Tensor) -> Tensor:
        return gradient @ self.neighbour.weight

    def added(self) -> Tensor:
        return self.own.bias

    def combine(self, rows: Tensor, z: Tensor, *, bias: bool = True) -> Tensor:
        return self._own(rows, bias) + z

    def mix(self, rows: Tensor, z: Tensor, *, bias: bool = True) -> Tensor:
        return self._own(rows, bias).addmm_(z, self.neighbour.weight.t().to(z.dtype))  # two passes and two tensors less

    def _own(self, rows: Tensor, bias: bool) -> Tensor:
        return _linear(rows, self.own, bias)


class GATConv(Conv):
    """Multi-head additive attention over neighbours and the node itself (Velickovic et al., Eq. 1-6).

    Scores have slope 0.2 below zero. Heads are concatenated, or averaged where `mean_heads`. The softmax runs over own
    and halo neighbours together.
    """

    self_loops = True

    def __init__(self, inputs: int, outputs: int, heads: int, mean_heads: bool, attention: str = "auto") -> None:
        super().__init__()
        self.attention = attention
        self.heads, self.width, self.mean_heads = heads, outputs, mean_heads
        self.weight = nn.Parameter(torch.empty(inputs, heads * outputs))
        self.source = nn.Parameter(torch.empty(heads, outputs))
        self.target = nn.Parameter(torch.empty(heads, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs if mean_heads else heads * outputs))
        for parameter in (self.weight, self.source, self.target):
            nn.init.xavier_uniform_(parameter)

    def transform(self, rows: Tensor) -> Tensor:
        return rows @ self.weight

    def aggregate(self, graph: LocalGraph, own: Tensor, halo: Tensor) -> Tensor:
        own_h = own.view(-1, self.heads, self.width)
        if isinstance(graph, EdgeGraph):
            return self._merged(self._messages(graph, own_h))
        halo_h = halo.view(-1, self.heads, self.width)
        if fuses(own, self.attention):
            source, halo_source = ((rows * self.source).sum(-1) for rows in (own_h, halo_h))
            given = Attended((own_h * self.target).sum(-1), source, halo_source, own_h, halo_h)
            return self._merged(attend(graph.own, graph.halo, LEAKY_SLOPE, given))
        inside, outside = graph.own.with_edge_map(), graph.halo.with_edge_map()
        target = (own_h * self.target).sum(-1)
        rows = torch.cat([edge_rows(inside), edge_rows(outside)])
        source = torch.cat(
            [
                at_sources((own_h * self.source).sum(-1), inside),
                at_sources((halo_h * self.source).sum(-1), outside),
            ]
        )
        score = functional.leaky_relu(source + target.index_select(0, rows), LEAKY_SLOPE)
        weight = edge_softmax(score, rows, own_h.shape[0])
        z = aggregate_weighted(inside, weight[: inside.nnz], own_h)
        if outside.nnz:
            z = z.add_(aggregate_weighted(outside, weight[inside.nnz :], halo_h))
        return self._merged(z)

    def _messages(self, graph: EdgeGraph, z: Tensor) -> Tensor:
        """Attention over a list of edges, with a message for every edge, [n, H, D]."""
        source, target = ((z * side).sum(-1) for side in (self.source, self.target))
        score = source.index_select(0, graph.source) + target.index_select(0, graph.destination)
        weight = edge_softmax(functional.leaky_relu(score, LEAKY_SLOPE), graph.destination, z.shape[0])
        return message_sum(graph, z, weight[:, :, None])

    def _merged(self, z: Tensor) -> Tensor:
        """One row per node from its heads."""
        return z.mean(1) if self.mean_heads else z.reshape(-1, self.heads * self.width)

    def added(self) -> Tensor:
        return self.bias

    def pull_input(self, rows: Tensor) -> Tensor:
        """[z | source score | target score] of rows, [n, H D + 2 H]: the input of a pull-style exchange."""
        flat = self.transform(rows)
        z = flat.view(-1, self.heads, self.width)
        return torch.cat([flat, (z * self.source).sum(-1), (z * self.target).sum(-1)], 1)

    def pulled(self, out: Tensor) -> Tensor:
        """Aggregated rows from the output of a pull-style exchange, [n, H D]."""
        return out.view(-1, self.heads, self.width).mean(1) if self.mean_heads else out


class Dense(Conv):
    """A plain linear layer: trailing layers of the Yelp models read no neighbours."""

    exchanges = False

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def transform(self, rows: Tensor) -> Tensor:
        """The linear map of own rows, without the bias."""
        return _linear(rows, self.linear, bias=False)

    def added(self) -> Tensor:
        return self.linear.bias

    def forward(self, graph: LocalGraph, own: Tensor, halo: Tensor, *, bias: bool = True) -> Tensor:
        return _linear(own, self.linear, bias)


def _linear(rows: Tensor, map: nn.Linear, bias: bool) -> Tensor:
    """A linear map in the precision of its rows, with its bias or without."""
    return functional.linear(rows, map.weight.to(rows.dtype), map.bias.to(rows.dtype) if bias else None)
