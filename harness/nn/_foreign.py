"""Convolutions of PyG as layers: a call with sources and targets apart, over the edges of one rank's part."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from harness.errors import InputError
from harness.graphs import LocalGraph
from harness.nn._messages import edge_rows


class BipartiteConv(nn.Module):
    """A layer made of a module that is called as `conv((sources, targets), edge_index)`, as PyG's convolutions are.

    Sources are own rows and then halo rows, targets the own rows; `edge_index` [2, E] goes from source to target. Every
    edge into an own node is there, so a convolution that needs no more than that comes out as on one device: SAGEConv,
    GATConv, GATv2Conv, GINConv, GraphConv, TransformerConv. One that needs degrees of sources does not take such a
    pair (GCNConv): the model `gcn` is its like.

    Args:
        conv: the module; its last output dimension is the layer's width.
    """

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv
        self._known: tuple[LocalGraph, Tensor] | None = None

    def forward(self, graph: LocalGraph, own: Tensor, halo: Tensor) -> Tensor:
        """Rows [n_own, out]. Raises InputError where the module takes no pair."""
        if self._known is None or self._known[0] is not graph:
            self._known = graph, _edge_index(graph)
        rows = torch.cat([own, halo]) if halo.shape[0] else own
        try:
            out: Tensor = self.conv((rows, own), self._known[1])
        except ValueError as error:
            if "bipartite" not in str(error):
                raise
            name = type(self.conv).__name__
            raise InputError(
                f"{name} takes no sources and targets apart, so it cannot run on parts of a graph; for GCNConv use "
                "--model gcn, else a convolution that does, such as SAGEConv or GATv2Conv"
            ) from error
        return out


def _edge_index(graph: LocalGraph) -> Tensor:
    """Edges into own nodes, int64 [2, E]: sources among own rows, then among halo rows behind them."""
    sources = torch.cat([graph.own.indices.long(), graph.halo.indices.long() + graph.num_own])
    return torch.stack([sources, torch.cat([edge_rows(graph.own), edge_rows(graph.halo)])])
