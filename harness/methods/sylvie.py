"""Sylvie: boundary rows and their gradients in few bits, used in the same (Sylvie-S) or the next epoch (Sylvie-A)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from harness.codecs import Codec, StochasticRows
from harness.effects import Direction
from harness.errors import InputError
from harness.exchanges import HaloPush, Late, LayerExchange, Memory, QuantisedPush, Quantiser, drain_pipeline
from harness.graphs import Part, Totals
from harness.methods.bases.base import Facts
from harness.methods.bases.early_gradients import EarlyGradients
from harness.methods.bases.edge_cut import EdgeCutState, OverlappingEdgeCut, message_width
from harness.nn import GNN
from harness.rank import Rank


@dataclass(frozen=True, kw_only=True)
class Sylvie(EarlyGradients):
    """Base of both variants: the quantiser, and the side of it on which dropout is."""

    bits: int = 1
    side: Literal["fp32", "fp16"] = "fp32"
    dropout: Literal["before", "after"] = "before"

    def validate(self) -> None:
        if self.bits not in (1, 2, 4, 8, 16):
            raise InputError(f"{self.name}: bits must be 1, 2, 4, 8 or 16, not {self.bits}")

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        if self.dropout == "after" and model.order != "auto" and any(map(model.linear_first, range(model.depth))):
            raise InputError(f"{self.name}: dropout=after drops what aggregation reads; use order=aggregate-first")

    def drops_late(self) -> bool:
        return self.dropout == "after"

    def lossless(self) -> Sylvie:
        """16 bits: the interval of codes is 1 / 65,535 of a row's range."""
        return replace(self, bits=16, side="fp32")

    def row_bytes(self, model: GNN, l: int, direction: Direction) -> int:
        return -(-message_width(model, l) * self.bits // 8) + (8 if self.side == "fp32" else 4)

    def codec(self) -> Codec:
        """The quantiser of both directions."""
        return StochasticRows(self.bits, self.side)


@dataclass(frozen=True, kw_only=True)
class SylvieS(Sylvie, OverlappingEdgeCut):
    """Synchronous Sylvie (Alg. 1 and 2, Eq. 3-5): quantise, exchange, dequantise, in both directions.

    Bytes per row of width d: ceil(d * bits / 8) of codes and 8 of side information (scale and minimum in fp32), or 4
    with side=fp16. Own rows stay exact, so the error enters through halo rows only.

    In brief:
        travels: codes of boundary rows forwards, of their gradients backwards
        bytes: ceil(d bits / 8) + 8 a halo row, layer and direction; 4 for the 8 with side=fp16
        memory: vanilla's, and the codes of the exchange at work

    Options:
        bits: 1, 2, 4, 8 or 16 bits per element.
        side: type of scale and minimum on the wire; the authors' code sends fp16.
        dropout: before quantises rows with zeros, whose mask is the owner's (the authors' GCN); after quantises whole
            rows, and every reader drops its copies by masks of its own (the authors' GraphSAGE). The paper does not
            say. Bytes are the same.
        scope: boundary quantises what is sent; all also quantises the rank's own rows and their gradients at every
            exchange, the ablation of Table 4. A precomputed input layer is not an embedding and stays exact.
    """

    scope: Literal["boundary", "all"] = "boundary"

    name = "sylvie-s"
    bf16 = True
    facts = Facts(
        cut="edge", exact=False, repeats=True, static=True, lossy=True, unbiased=True, paper="Sylvie, Alg. 1-2"
    )

    def idle(self) -> dict[str, str]:
        if self.scope == "all":
            return {"overlap": "scope=all"}
        return {"overlap": "dropout=after"} if self.dropout == "after" else {}

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: Any) -> LayerExchange:
        if self.scope == "all":
            return QuantisedPush(state.route, l, self.codec())
        return HaloPush(state.route, l, self.codec(), self.codec())


@dataclass(frozen=True, kw_only=True)
class SylvieA(Sylvie):
    """Pipelined Sylvie (Sec. 3.3): an epoch computes with the halo rows and halo gradients sent in the epoch before.

    With Q the quantiser, epoch e computes layer l with Q(H_l^(e-1)) in the place of the halo rows H_l^(e) and adds
    Q(G_l^(e-1)) in the place of the gradients G_l^(e) that readers return; a synchronous epoch has Q(H_l^(e)) and
    Q(G_l^(e)). The first epoch uses zeros, as the authors' code does. Bytes are those of sylvie-s in every epoch.

    Quantising, sending and dequantising overlap with the epoch's compute (Fig. 4c): a second thread of the rank does it
    (with streams of its own on a GPU), and the rank waits for what is not done when the next epoch needs it. These
    seconds are part of `hidden`, not of `codec`; what they take from the rank's own compute makes that longer.

    In brief:
        travels: codes of boundary rows and gradients, which are used in the next epoch
        bytes: ceil(d bits / 8) + 8 a halo row, layer and direction; 4 for the 8 with side=fp16
        memory: vanilla's, and the rows and gradients that arrived for the next epoch

    Options:
        bits: 1, 2, 4, 8 or 16 bits per element.
        side: type of scale and minimum on the wire; the authors' code sends fp16.
        dropout: before quantises rows with zeros, whose mask is the owner's (the authors' GCN); after quantises whole
            rows, and every reader drops its copies by masks of its own (the authors' GraphSAGE). The paper does not
            say. Bytes are the same.
        staleness: epsilon_s of the Bounded Staleness Adaptor: epoch e is synchronous when (e + 1) mod epsilon_s = 0,
            after the message in flight has been drained; it quantises where it computes. 0 = never, 1 = sylvie-s.
        quantiser: background as in the paper; inline quantises and dequantises where the rank computes, so that only
            the transfers overlap. Losses and bytes are the same.
    """

    staleness: int = 0
    quantiser: Quantiser = "background"

    name = "sylvie-a"
    bf16 = True
    facts = Facts(
        cut="edge", exact=False, staleness=1, lossy=True, unbiased=True, paper="Sylvie, Sec. 3.3, Alg. 1-2"
    )  # fmt: skip

    def validate(self) -> None:
        super().validate()
        if self.staleness < 0:
            raise InputError(
                f"sylvie-a: staleness must be 0 (never synchronise) or a number of epochs, not {self.staleness}"
            )

    def cycle(self) -> int:
        return max(self.staleness, 1)

    def promises(self) -> Facts:
        """Synchronous in every epoch with staleness=1."""
        return replace(self.facts, staleness=0) if self.staleness == 1 else self.facts

    async def begin(self, rank: Rank, part: Part, state: EdgeCutState, memory: Memory) -> Late:
        return Late(memory, bool(self.staleness) and (rank.epoch + 1) % self.staleness == 0, self.quantiser)

    async def settle(self, rank: Rank, memory: Memory) -> None:
        await drain_pipeline(rank, memory)

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: Late) -> LayerExchange:
        return HaloPush(state.route, l, self.codec(), self.codec(), ship=plan.ship)
