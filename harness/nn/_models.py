"""Stacks of graph convolutions: dropout, norm and activation around a layer, and the order of operations inside it.

The stack never communicates; methods call it layer by layer and put their exchanges in between. Order of one layer
(BNS-GCN's): dropout, exchange, convolution, norm, ReLU; the last layer has neither norm nor ReLU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Literal

import torch
from torch import Tensor, nn

from harness.config import RunConfig
from harness.errors import InputError, unknown
from harness.graphs import LocalGraph
from harness.kernels.dropout import keyed_dropout
from harness.nn._layers import Aggregation, Conv, Dense, GATConv, GCNConv, SAGEConv

Order = Literal["aggregate-first", "linear-first", "auto"]


class GNN(nn.Module):
    """A stack of layers, each `layer(graph, own, halo) -> own rows`.

    Args:
        layers: `_layers.Conv` modules or any module with that call.
        widths: input width, then the output width of every layer.
        dropout: probability; masks are keyed by global node, so they do not depend on the partition.
        norm: LayerNorm after all but the last layer.
        order: which of linear map and aggregation is first, if a layer allows both.
    """

    def __init__(
        self,
        layers: Sequence[nn.Module],
        widths: Sequence[int],
        *,
        dropout: float = 0.0,
        norm: Literal["none", "layer"] = "none",
        order: Order = "aggregate-first",
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.widths, self.dropout, self.order = tuple(widths), dropout, order
        normed = widths[1:-1] if norm == "layer" else []
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in normed)

    @property
    def depth(self) -> int:
        """Number of layers."""
        return len(self.layers)

    @property
    def self_loops(self) -> bool:
        """Whether a layer needs i -> i in the graph's own block."""
        return any(getattr(layer, "self_loops", False) for layer in self.layers)

    def exchanges(self, l: int) -> bool:
        """Whether layer l reads halo rows."""
        return bool(getattr(self.layers[l], "exchanges", True))

    def reads_own(self, l: int) -> bool:
        """Whether layer l, given aggregated rows, reads its own input rows too."""
        return bool(getattr(self.layers[l], "reads_own", True))

    def aggregation(self, l: int) -> Aggregation | None:
        """The row-linear aggregation of layer l, or None where it has none (attention, foreign modules)."""
        return getattr(self.layers[l], "aggregation", None)

    def linear_first(self, l: int) -> bool:
        """Whether layer l maps rows before they are exchanged and aggregated."""
        if not isinstance(self.layers[l], Conv) or not self.exchanges(l):
            return False
        narrower = self._message_width(l) < self.widths[l]
        return self.order == "linear-first" or (self.order == "auto" and narrower)

    def drop(self, rows: Tensor, nodes: Tensor, key: int) -> Tensor:
        """Dropout in training, keyed by (key, global node id, column)."""
        return keyed_dropout(rows, nodes, self.dropout, key) if self.training and self.dropout else rows

    def message(self, l: int, rows: Tensor) -> Tensor:
        """The messages of `rows` to their neighbours in layer l: the rows, or their linear map."""
        layer = self.layers[l]
        return layer.transform(rows) if self.linear_first(l) else rows  # type: ignore[operator,no-any-return]

    def update(self, l: int, graph: LocalGraph, rows: Tensor, own: Tensor, halo: Tensor) -> Tensor:
        """Layer l with norm and activation, from its input rows and the messages of own and halo nodes."""
        layer = self.layers[l]
        if self.linear_first(l):
            assert isinstance(layer, Conv)
            return self._finish(l, layer.combine(rows, layer.aggregate(graph, own, halo)))
        return self._finish(l, layer(graph, own, halo))

    def combine(self, l: int, rows: Tensor, z: Tensor, *, transformed: bool) -> Tensor:
        """The same from rows that are aggregated already (precomputed or pulled)."""
        layer = self.layers[l]
        assert isinstance(layer, Conv)
        return self._finish(l, layer.combine(rows, z) if transformed else layer.mix(rows, z))

    def _message_width(self, l: int) -> int:
        layer = self.layers[l]
        return layer.heads * layer.width if isinstance(layer, GATConv) else self.widths[l + 1]

    def _finish(self, l: int, out: Tensor) -> Tensor:
        if l == self.depth - 1:
            return out
        return self.norms[l](out).relu_() if len(self.norms) else out.relu()


Factory = Callable[[RunConfig, int, int], nn.Module]


def _stack(config: RunConfig, inputs: int, classes: int) -> GNN:
    layers: list[nn.Module] = []
    widths = [inputs]
    for l in range(config.layers):
        last = l == config.layers - 1
        outputs = classes if last else config.hidden
        if l >= config.layers - config.linear_layers:
            layers.append(Dense(widths[-1], outputs))
        elif config.model == "gcn":
            layers.append(GCNConv(widths[-1], outputs))
        elif config.model == "sage":
            layers.append(SAGEConv(widths[-1], outputs))
        else:
            layers.append(GATConv(widths[-1], outputs, config.heads, mean_heads=last))
            outputs = outputs if last else outputs * config.heads
        widths.append(outputs)
    return GNN(layers, widths, dropout=config.dropout, norm=config.norm, order=config.order)


MODELS: dict[str, Factory] = {"gcn": _stack, "sage": _stack, "gat": _stack}


def build_model(config: RunConfig, inputs: int, classes: int) -> GNN:
    """The configured model, initialised from the seed only, so that every rank builds the same one.

    Other packages add models through the entry-point group `haloscope.models`: a function of (config, input width,
    classes) that returns a `GNN`.

    Raises:
        InputError: unknown model.
    """
    factories = dict(MODELS)
    if config.model not in factories:
        outside = {point.name: point for point in entry_points(group="haloscope.models")}
        if config.model not in outside:
            raise unknown("model", config.model, [*factories, *outside])
        factories[config.model] = outside[config.model].load()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)  # unlike torch.manual_seed, does not seed GPUs
        model = factories[config.model](config, inputs, classes)
    if not isinstance(model, GNN):
        raise InputError(f"model {config.model!r} is a {type(model).__name__}, not a harness.nn.GNN")
    return model
