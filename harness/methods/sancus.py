"""SANCUS: CAGNET's broadcasts, left out while blocks of historical embeddings are recent or similar enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from harness.errors import InputError
from harness.exchanges import AllBlocks, BlockPull, HistoricalBlocks, LayerExchange, Memory
from harness.graphs import Part
from harness.methods.bases.base import Facts, Seen, WireBytes, all_reduce_bytes
from harness.methods.bases.edge_cut import EdgeCutState
from harness.methods.cagnet import BlockRows, BlockState
from harness.nn import GNN, Conv
from harness.rank import Rank


@dataclass(frozen=True, eq=False)
class EpochOfBlocks:
    """The blocks that were sent last, and the number of this epoch."""

    memory: Memory
    epoch: int


@dataclass(frozen=True, kw_only=True)
class SANCUS(BlockRows):
    """Bounded staleness of whole blocks: a rank computes with the last blocks that it received, its own included.

    Gradients G are broadcast in every epoch, in layer 0 too, and the gradients of weights are taken with the rank's
    fresh rows, so with old blocks they are not the derivative of what was computed. Bytes over all ranks: 4 (P - 1) x
    (rows of the blocks sent x input width, and n x output width backwards), summed over layers; rule=change also sends
    P (P - 1) bytes a layer, from the second epoch on. A rank keeps n x input width values a layer. Rows that are not
    sent anew keep the dropout masks of their epoch.

    The published code has no test of staleness switched on; the rules are those that its counters and its paper's
    abstract name, not "the paper's bound".

    In brief:
        travels: whole blocks H forwards where the rule says so, whole blocks G backwards in every epoch
        bytes: 4 (P - 1) x (rows of the blocks sent x input width + n x output width) a layer, over all ranks
        memory: the last blocks received: n x input width values a layer
        staleness: forwards up to `bound` or `period` epochs; gradients are fresh

    Options:
        rule: age, change or period.
        bound: with rule=age epochs that a block may be old, 0 is exact; with rule=change the share of a block's norm by
            which its rows may have changed since they were sent.
        period: with rule=period epochs from one broadcast to the next, after the warm-up.
        warmup: with rule=period epochs at the start in which every block is sent (the authors' counter).
        layer0: cache (auto) sends the input features in the first epoch only; exchange in every epoch by the rule.
    """

    rule: Literal["age", "change", "period"] = "age"
    bound: float = 1.0
    period: int = 2
    warmup: int = 50

    name = "sancus"
    facts = Facts(
        cut="edge", exact=False, settles=1, lossy=True, exact_when={"rule": "age", "bound": 0.0},
        vanishes_with={"rule": "age", "bound": 0.0}, paper="SANCUS; the comparison of CDFGNN",
    )  # fmt: skip

    def promises(self) -> Facts:
        """Traffic is periodic after the first epoch, which alone has the features, and after the warm-up."""
        features = int(self._features_once())
        settles = max(features, self.warmup if self.period > 1 else 0) if self.rule == "period" else features
        adaptive = self.rule == "change" and self.bound > 0
        return replace(super().promises(), settles=settles, adaptive=adaptive)

    def validate(self) -> None:
        if self.bound < 0 or (self.rule == "age" and self.bound != int(self.bound)):
            raise InputError(f"sancus: bound must be a number of epochs from 0 with rule=age, not {self.bound:g}")
        if self.period < 1 or self.warmup < 0:
            raise InputError(
                f"sancus: period must be at least 1 and warmup at least 0, not {self.period}, {self.warmup}"
            )
        if self.layer0 == "precompute":
            raise InputError("sancus broadcasts input features: layer0 is cache or exchange, not precompute")

    def idle(self) -> dict[str, str]:
        unused = {} if self.rule == "period" else dict.fromkeys(("period", "warmup"), f"rule={self.rule}")
        return {**unused, "bound": "rule=period"} if self.rule == "period" else unused

    def cycle(self) -> int:
        return {"age": int(self.bound) + 1, "change": 1, "period": self.period}[self.rule]

    def input_layer(self, model: GNN) -> str:
        """Features are broadcast like other rows, once or in every epoch."""
        return "exchange"

    def treats_input(self, model: GNN) -> str:
        """Features that are broadcast once are kept."""
        return "cache" if self._features_once() else "exchange"

    def _features_once(self) -> bool:
        return self.layer0 in ("auto", "cache")

    async def begin(self, rank: Rank, part: Part, state: EdgeCutState, memory: Memory) -> EpochOfBlocks:
        return EpochOfBlocks(memory, rank.epoch)

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: EpochOfBlocks) -> LayerExchange:
        assert isinstance(state, BlockState)
        layer = model.layers[l]
        assert isinstance(layer, Conv)
        forwards = HistoricalBlocks(state.blocks, l, plan.memory, self._due(l, plan.epoch), self.bound)
        return BlockPull(layer, state.graph, forwards, AllBlocks(state.blocks, l, "backward"))

    def _due(self, l: int, epoch: int) -> bool | None:
        """Whether layer l is sent in an epoch; None where its rows decide."""
        if l == 0 and self._features_once():
            return epoch == 0
        if self.rule == "age":
            return epoch % (int(self.bound) + 1) == 0
        if self.rule == "period":
            return epoch < self.warmup or (epoch - self.warmup) % self.period == 0
        return None

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes | None:
        """The formula of the class; the rows of the blocks sent are those that ranks observed."""
        nodes, size = ranks[0].part.totals.num_nodes, len(ranks)
        widths = self.sent_blocks(model, "exchange")
        found: WireBytes = {"forward": {}, "backward": {}, "other": {}, "reduce": {-1: all_reduce_bytes(model, size)}}
        for l, width in widths["forward"].items():
            rows = round(sum(seen.observed[f"sent rows/{l}"][0] for seen in ranks))
            found["forward"][l] = 4 * rows * (size - 1) * width
            found["backward"][l] = 4 * nodes * (size - 1) * widths["backward"][l]
            if epoch and self._due(l, epoch) is None:
                found["other"][l] = size * (size - 1)
        return found
