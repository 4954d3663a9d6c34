"""The reference for exact methods: one process on the whole graph, in dense matrices.

Written from the papers' equations: it uses the weights of a model, but no arithmetic of `harness.nn`,
`harness.exchanges` or `harness.tape`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from harness.graphs import Graph
from harness.nn import GNN, Dense, GATConv, GCNConv, SAGEConv


def adjacency(graph: Graph) -> Tensor:
    """A[v, u] = 1 where u -> v, float64 [N, N]."""
    dense = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    dense[torch.from_numpy(rows), torch.from_numpy(graph.indices.astype(np.int64))] = 1.0
    return dense


def dense_forward(model: GNN, a: Tensor, x: Tensor) -> Tensor:
    """Logits [N, C] of a stack without dropout."""
    h = x
    for l, layer in enumerate(model.layers):
        h = _layer(layer, a.to(x.dtype), h)
        if l < model.depth - 1:
            if model.norm == "l2":
                h = h / h.square().sum(1, keepdim=True).sqrt().clamp(min=1e-12)
            h = (model.norms[l](h) if len(model.norms) else h).relu()
    return h


def _layer(layer: torch.nn.Module, a: Tensor, h: Tensor) -> Tensor:
    eye = torch.eye(len(a), dtype=h.dtype)
    degree = a.sum(1)
    if isinstance(layer, GCNConv):
        looped = layer.aggregation is not None and layer.aggregation.kind == "gcn"
        scale = ((degree + 1) if looped else degree.clamp(min=1)).rsqrt()
        return (scale[:, None] * (a + eye if looped else a) * scale[None, :]) @ h @ layer.weight + layer.bias
    if isinstance(layer, SAGEConv):
        mean = a @ h / degree.clamp(min=1)[:, None]
        return torch.addmm(layer.own.bias, h, layer.own.weight.T) + mean @ layer.neighbour.weight.T
    if isinstance(layer, Dense):
        return torch.addmm(layer.linear.bias, h, layer.linear.weight.T)
    assert isinstance(layer, GATConv)
    z = (h @ layer.weight).view(len(h), layer.heads, layer.width)
    heads = []
    for head in range(layer.heads):
        score = (z[:, head] @ layer.target[head])[:, None] + (z[:, head] @ layer.source[head])[None, :]
        score = torch.nn.functional.leaky_relu(score, 0.2).masked_fill((a + eye) == 0, -torch.inf)
        heads.append(torch.softmax(score, 1) @ z[:, head])
    out = torch.stack(heads, 1)
    return (out.mean(1) if layer.mean_heads else out.flatten(1)) + layer.bias


def reference_gradients(model: GNN, graph: Graph) -> tuple[float, list[Tensor]]:
    """Summed training loss and the gradients of all parameters, divided by the number of training nodes."""
    assert isinstance(graph.x, np.ndarray) and graph.y is not None and graph.train is not None
    dtype = next(model.parameters()).dtype
    logits = dense_forward(model, adjacency(graph), torch.from_numpy(graph.x).to(dtype))
    train = torch.from_numpy(graph.train)
    loss = torch.nn.functional.cross_entropy(logits[train], torch.from_numpy(graph.y)[train], reduction="sum")
    grads = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    count = max(len(graph.train), 1)
    filled = [torch.zeros_like(p) if g is None else g / count for p, g in zip(model.parameters(), grads, strict=True)]
    return float(loss.detach()), filled


def reference_losses(model: GNN, graph: Graph, epochs: int, lr: float) -> list[float]:
    """Losses of `epochs` epochs of Adam in one process; the model is trained in place."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    losses = []
    for _ in range(epochs):
        loss, gradients = reference_gradients(model, graph)
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        losses.append(loss)
    return losses
