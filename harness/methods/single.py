"""One device, the whole graph: the reference every method is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.codecs import Cast
from harness.effects import Direction
from harness.errors import InputError
from harness.exchanges import HaloPush
from harness.graphs import Totals
from harness.methods.base import Facts
from harness.methods.edge_cut import EdgeCut, EdgeCutState
from harness.nn import GNN
from harness.tape import Exchange


@dataclass(frozen=True, kw_only=True)
class Single(EdgeCut):
    """Full-graph training without partitions; runs with one rank only and sends nothing."""

    name = "single"
    facts = Facts(cut="none", exact=True, repeats=True, paper="one device")

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        if num_parts != 1:
            raise InputError(f"method single runs on one rank, not {num_parts}; use --parts 1 or vanilla")

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: Any) -> Exchange:
        return HaloPush(state.route, l, Cast(None), Cast(None))

    def row_bytes(self, model: GNN, l: int, direction: Direction) -> int:
        return 0
