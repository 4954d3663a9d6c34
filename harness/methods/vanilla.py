"""Partition-parallel training with every boundary row sent in every layer: the baseline of all five papers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from harness.codecs import Cast
from harness.effects import Direction
from harness.errors import InputError
from harness.exchanges import AttentionPull, HaloPull, HaloPush, LayerExchange
from harness.graphs import BOTH_DIRECTIONS, Totals
from harness.methods.bases.base import Facts
from harness.methods.bases.early_gradients import EarlyGradients
from harness.methods.bases.edge_cut import EdgeCutState, OverlappingEdgeCut, message_width
from harness.nn import GNN, Conv, GATConv

DTYPES = {"fp32": None, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True)
class Vanilla(EarlyGradients, OverlappingEdgeCut):
    """Exact full-graph training (the DGL rows of Sylvie, the p = 1 rows of BNS-GCN).

    Bytes per epoch: forward, layer l >= 1 (and 0 where layer0 = exchange): halo rows x width x bytes of the type;
    backward the same, except that raw input features have no gradient. Attention layers pulled send 3 more values a
    head back. Width is the layer's input, or its output where the linear map comes first.

    In brief:
        travels: boundary rows of every layer forwards, their gradients backwards
        bytes: 4 d a halo row, layer and direction; 2 d with a 16-bit type
        memory: the halo rows of one layer; with attention those of every layer until its backward pass

    Options:
        style: push ships halo gradients to their owners; pull ships complete gradients of own rows to their readers.
        dtype: type on the wire.
    """

    style: Literal["push", "pull"] = "push"
    dtype: Literal["fp32", "fp16", "bf16"] = "fp32"

    name = "vanilla"
    bf16 = True
    facts = Facts(
        cut="edge",
        exact=True,
        repeats=True,
        static=True,
        exact_when={"dtype": "fp32"},
        paper="partition-parallel full-graph training",
    )

    def promises(self) -> Facts:
        """Lossy with a 16-bit type, to which every value is rounded to nearest; the host asks whether it is finite."""
        half = self.dtype != "fp32"
        facts = super().promises()
        return replace(facts, lossy=half, bounded=half, static=facts.static and not half)

    def error_bound(self, num_ranks: int) -> float:
        """Half a unit in the last place of a 16-bit float: 11 significant bits in fp16, 8 in bf16."""
        return 2.0**-9 if self.dtype == "bf16" else 2.0**-11

    def maps_attention(self) -> bool:
        return self.style == "pull"

    def row_bytes(self, model: GNN, l: int, direction: Direction) -> int:
        layer = model.layers[l]
        if self.style == "pull" and isinstance(layer, GATConv):
            values = layer.heads * layer.width + (3 * layer.heads if direction == "backward" else 0)
        else:
            values = message_width(model, l)
        return values * (DTYPES[self.dtype] or torch.float32).itemsize

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        if self.style == "pull" and not totals.symmetric:
            raise InputError(f"style=pull needs a symmetric graph; use style=push, or {BOTH_DIRECTIONS}")
        foreign = [l for l in range(model.depth) if not isinstance(model.layers[l], Conv)]
        if self.style == "pull" and foreign:
            raise InputError("style=pull needs layers of haloscope (gcn, sage, gat); use style=push")

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: Any) -> LayerExchange:
        codec = Cast(DTYPES[self.dtype])
        layer, aggregation = model.layers[l], model.aggregation(l)
        if self.style == "pull" and aggregation is not None:
            return HaloPull(state.route, l, codec, codec, state.graph, aggregation)
        if self.style == "pull" and isinstance(layer, GATConv):
            return AttentionPull(state.route, l, (codec, codec), state.graph, layer)
        return HaloPush(state.route, l, codec, codec)
