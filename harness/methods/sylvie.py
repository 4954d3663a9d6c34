"""Sylvie: boundary rows and their gradients quantised to a few bits with stochastic rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from harness.codecs import StochasticRows
from harness.errors import InputError
from harness.exchange import HaloPush
from harness.methods.base import Facts
from harness.methods.edge_cut import EdgeCut, EdgeCutState
from harness.models import GNN
from harness.tape import Exchange


@dataclass(frozen=True, kw_only=True)
class SylvieS(EdgeCut):
    """Synchronous Sylvie (Alg. 1 and 2, Eq. 3-5): quantise, exchange, dequantise, in both directions.

    Bytes per row of width d: ceil(d * bits / 8) of codes and 8 of side information (scale and minimum in fp32), or 4
    with side=fp16. Own rows stay exact, so the error enters through halo rows only.

    Options:
        bits: 1, 2, 4, 8 or 16 bits per element.
        side: type of scale and minimum on the wire; the authors' code sends fp16.
    """

    bits: int = 1
    side: Literal["fp32", "fp16"] = "fp32"

    name = "sylvie-s"
    facts = Facts(cut="edge", exact=False, lossy=True, unbiased=True, paper="Sylvie, Alg. 1-2")

    def validate(self) -> None:
        if self.bits not in (1, 2, 4, 8, 16):
            raise InputError(f"sylvie-s: bits must be 1, 2, 4, 8 or 16, not {self.bits}")

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: Any) -> Exchange:
        codec = StochasticRows(self.bits, self.side)
        return HaloPush(state.route, l, codec, codec)
