"""Stacks of graph convolutions: dropout, norm and activation around a layer, and the order of operations inside it.

The stack never communicates; methods call it layer by layer and put their exchanges in between. Order of one layer
(BNS-GCN's): dropout, exchange, convolution, norm, ReLU; the last layer has neither norm nor ReLU.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.config import ModelConfig
from harness.errors import InputError
from harness.graphs import LocalGraph
from harness.kernels.dropout import keyed_dropout
from harness.kernels.norm_relu_dropout import norm_relu_dropout
from harness.kernels.relu_dropout import relu_dropout
from harness.nn._layers import Aggregation, Conv, Dense, GATConv, GCNConv, SAGEConv
from harness.registry import Registry

Order = Literal["method", "aggregate-first", "linear-first", "auto"]


@dataclass(frozen=True, eq=False)
class Drop:
    """Dropout of the rows of nodes with global ids `nodes` (int64 [n]), keyed by (key, node, column)."""

    nodes: Tensor
    key: int


class GNN(nn.Module):
    """A stack of layers, each `layer(graph, own, halo) -> own rows`.

    Args:
        layers: `_layers.Conv` modules or any module with that call.
        widths: input width, then the output width of every layer.
        dropout: probability; masks are keyed by global node, so they do not depend on the partition.
        norm: after all but the last layer, before its ReLU: LayerNorm, or every row divided by its L2 norm.
        order: which of linear map and aggregation is first, if a layer allows both; "method" leaves it to `prefer`,
            and without that aggregation is first.
        precision: bf16 computes rows, messages and their gradients in bfloat16, products and sums accumulated in
            float32, with parameters and their gradients in float32. Without CPU instructions for it (avx512_bf16, AMX)
            torch computes the same, slower than fp32.
    """

    def __init__(
        self,
        layers: Sequence[nn.Module],
        widths: Sequence[int],
        *,
        dropout: float = 0.0,
        norm: Literal["none", "layer", "l2"] = "none",
        order: Order = "method",
        precision: Literal["fp32", "bf16"] = "fp32",
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.widths, self.dropout, self.norm, self.order = tuple(widths), dropout, norm, order
        self.precision = precision
        self._preferred: Sequence[Order] = ["aggregate-first"] * len(layers)
        self._aggregated = frozenset[int]()
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

    def prefer(self, orders: Sequence[Order]) -> None:
        """Set the order of every layer that holds where the run sets none (`order` is "method")."""
        self._preferred = orders

    def aggregate_first(self, layers: Iterable[int]) -> None:
        """Let these layers aggregate first where `order` is "auto", for a method that cannot map rows before."""
        self._aggregated |= frozenset(layers)

    def linear_first(self, l: int) -> bool:
        """Whether layer l maps rows before they are exchanged and aggregated."""
        if not isinstance(self.layers[l], Conv) or not self.exchanges(l):
            return False
        order = self._preferred[l] if self.order == "method" else self.order
        narrower = self._message_width(l) < self.widths[l]
        return order == "linear-first" or (order == "auto" and narrower and l not in self._aggregated)

    def rounded(self, rows: Tensor) -> Tensor:
        """Input rows in the precision in which the model computes."""
        return rows.bfloat16() if self.precision == "bf16" else rows

    def drop(self, rows: Tensor, nodes: Tensor, key: int) -> Tensor:
        """Dropout in training, keyed by (key, global node id, column)."""
        return keyed_dropout(rows, nodes, self.dropout, key) if self.training and self.dropout else rows

    def message(self, l: int, rows: Tensor) -> Tensor:
        """The messages of `rows` to their neighbours in layer l: the rows, or their linear map."""
        layer = self.layers[l]
        return layer.transform(rows) if self.linear_first(l) else rows  # type: ignore[operator,no-any-return]

    def update(
        self, l: int, graph: LocalGraph, rows: Tensor, own: Tensor, halo: Tensor, drop: Drop | None = None
    ) -> Tensor:
        """Layer l with norm and activation, from its input rows and the messages of own and halo nodes.

        Where `drop` is given, the result has the dropout before layer l + 1 already, in the same pass as the ReLU.
        """
        layer, bias = self.layers[l], not self._adds_late(l)
        if self.linear_first(l):
            assert isinstance(layer, Conv)
            return self._finish(l, layer.combine(rows, layer.aggregate(graph, own, halo), bias=bias), drop)
        return self._finish(l, layer(graph, own, halo) if bias else layer(graph, own, halo, bias=False), drop)

    def combine(self, l: int, rows: Tensor, z: Tensor, *, transformed: bool, drop: Drop | None = None) -> Tensor:
        """The same from rows that are aggregated already (precomputed or pulled)."""
        layer, bias = self.layers[l], not self._adds_late(l)
        assert isinstance(layer, Conv)
        return self._finish(l, (layer.combine if transformed else layer.mix)(rows, z, bias=bias), drop)

    @property
    def widest(self) -> int:
        """Values per row of its widest rows: inputs, messages (of attention those of all heads), or outputs."""
        return max(*self.widths, *(self._message_width(l) for l in range(self.depth)))

    def _message_width(self, l: int) -> int:
        layer = self.layers[l]
        return layer.heads * layer.width if isinstance(layer, GATConv) else self.widths[l + 1]

    def _adds_late(self, l: int) -> bool:
        """Whether the bias of layer l is added in the pass of its norm."""
        return len(self.norms) > 0 and l < self.depth - 1 and isinstance(self.layers[l], Conv)

    def _finish(self, l: int, out: Tensor, drop: Drop | None) -> Tensor:
        """Bias where it is left, norm, ReLU, and the dropout of the layer above; the last layer has none of them."""
        if l == self.depth - 1:
            return out
        drops = drop is not None and self.training and self.dropout > 0
        nodes, p, key = (drop.nodes, self.dropout, drop.key) if drop is not None and drops else (None, 0.0, 0)
        if len(self.norms):
            layer, norm = self.layers[l], self.norms[l]
            assert isinstance(norm, nn.LayerNorm)
            return norm_relu_dropout(out, layer.added() if isinstance(layer, Conv) else None, norm, nodes, p, key)
        normed = functional.normalize(out, dim=1) if self.norm == "l2" else out
        if nodes is not None:
            return relu_dropout(normed, nodes, p, key)
        return normed.relu() if normed is out else normed.relu_()


Factory = Callable[[ModelConfig, int, int], nn.Module]
"""(config, input width, classes) -> a `GNN`."""

Convolution = Callable[[ModelConfig, int, int, bool], tuple[nn.Module, int]]
"""(config, input width, requested width, whether it is the last layer) -> one layer and its output width."""


def _stack(convolution: Convolution, config: ModelConfig, inputs: int, classes: int) -> GNN:
    """The model of one kind of convolution, with the configured number of dense layers at its end."""
    layers: list[nn.Module] = []
    widths = [inputs]
    for l in range(config.layers):
        last = l == config.layers - 1
        outputs = classes if last else config.hidden
        if l >= config.layers - config.linear_layers:
            layer: nn.Module = Dense(widths[-1], outputs)
        else:
            layer, outputs = convolution(config, widths[-1], outputs, last)
        layers.append(layer)
        widths.append(outputs)
    return GNN(layers, widths, dropout=config.dropout, norm=config.norm, order=config.order, precision=config.precision)


def _gcn(config: ModelConfig, inputs: int, outputs: int, last: bool) -> tuple[nn.Module, int]:
    return GCNConv(inputs, outputs), outputs


def _gcn_no_loop(config: ModelConfig, inputs: int, outputs: int, last: bool) -> tuple[nn.Module, int]:
    return GCNConv(inputs, outputs, self_loop=False), outputs


def _sage(config: ModelConfig, inputs: int, outputs: int, last: bool) -> tuple[nn.Module, int]:
    return SAGEConv(inputs, outputs), outputs


def _gat(config: ModelConfig, inputs: int, outputs: int, last: bool) -> tuple[nn.Module, int]:
    mean = last or config.hidden_heads == "mean"
    layer = GATConv(inputs, outputs, config.heads, mean_heads=mean, attention=config.attention)
    return layer, outputs if mean else outputs * config.heads


MODELS: Registry[Factory] = Registry(
    "model",
    "haloscope.models",
    {
        "gcn": partial(_stack, _gcn),
        "gcn-no-loop": partial(_stack, _gcn_no_loop),
        "sage": partial(_stack, _sage),
        "gat": partial(_stack, _gat),
    },
)


def model_factory(name: str) -> Factory:
    """The factory of a model: of a known name, or `module:factory` of a module that can be imported.

    Raises:
        InputError: an unknown name, a module that cannot be imported, or one without that factory.
    """
    module, colon, attribute = name.partition(":")
    if not colon:
        return MODELS.find(name)
    try:
        found = getattr(import_module(module), attribute, None)
    except Exception as error:  # whatever the module does when it is imported
        reason = f"{type(error).__name__}: {error}"
        raise InputError(
            f"model {name!r}: cannot import {module} ({reason}); PYTHONPATH must have its folder"
        ) from error
    if not callable(found):
        raise InputError(f"model {name!r}: {module} has no function {attribute!r} of (config, inputs, classes)")
    factory: Factory = found
    return factory


def build_model(config: ModelConfig, inputs: int, classes: int, seed: int) -> GNN:
    """The configured model, initialised from `seed` only, so that every rank builds the same one.

    Other packages add models through the entry-point group `haloscope.models`: a `Factory`. One of a module that can be
    imported is named `module:factory`.

    Raises:
        InputError: unknown model, one that is no `GNN` or cannot be built, one without parameters, or one of another
            depth than `config.layers`.
    """
    factory = model_factory(config.name)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # unlike torch.manual_seed, does not seed GPUs
        try:
            model = factory(config, inputs, classes)
        except Exception as error:
            if ":" not in config.name or isinstance(error, InputError):
                raise
            raise InputError(f"model {config.name!r} cannot be built: {type(error).__name__}: {error}") from error
    if not isinstance(model, GNN):
        raise InputError(f"model {config.name!r} is a {type(model).__name__}, not a harness.nn.GNN")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError(f"model {config.name!r} has no parameters, so nothing can be trained")
    if model.depth != config.layers:  # results have bytes by layer, methods choose by their number
        raise InputError(
            f"model {config.name!r} has {model.depth} layers, not {config.layers}: pass --layers {model.depth}"
        )
    return model


def copy_on_meta(model: GNN) -> GNN:
    """A copy of a model with tensors of its own on the meta device.

    Many ranks of a run of shapes only take such copies: initial values, which they would not keep, cost most of the
    time that it takes to build a model. No tensor of `model` is read, so that none counts in the memory of a rank.
    """
    own: dict[int, Tensor] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        empty = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
        learned = isinstance(tensor, nn.Parameter)
        own[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if learned else empty
    return cast(GNN, _module_copy(model, dict[int, Any](own)))


_NEVER_CHANGE = frozenset((str, int, float, bool, type(None), torch.dtype))
_USUAL = {
    name: getattr(nn.Module, name, None) for name in ("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__")
}
_CONTAINERS = frozenset((dict, OrderedDict, set, list))


def _module_copy(module: nn.Module, memo: dict[int, Any]) -> Any:
    """`deepcopy` of a module whose tensors `memo` has: faster, as most attributes are empty or cannot change."""
    if id(module) in memo:
        return memo[id(module)]
    kind = type(module)
    if hasattr(kind, "__deepcopy__") or any(getattr(kind, name, None) is not usual for name, usual in _USUAL.items()):
        return deepcopy(module, memo)
    copied = memo[id(module)] = kind.__new__(kind)
    for name, value in module.__dict__.items():
        if name == "_modules":
            new: Any = type(value)(
                (key, None if one is None else _module_copy(one, memo)) for key, one in value.items()
            )
        elif name in ("_parameters", "_buffers"):
            new = type(value)((key, memo.get(id(one))) for key, one in value.items())
        elif type(value) in _NEVER_CHANGE:
            new = value
        elif type(value) in _CONTAINERS and not value:
            new = memo.setdefault(id(value), type(value)())
        else:
            new = deepcopy(value, memo)
        copied.__dict__[name] = new
    return copied
