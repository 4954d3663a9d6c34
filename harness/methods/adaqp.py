"""AdaQP: rows in 2, 4 or 8 bits by their variance, sent while nodes without remote neighbours are aggregated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import torch

from harness.codecs import MIXED_SIDE_BYTES
from harness.errors import InputError
from harness.exchanges import CODE_SHARE, BitAssignment, CentralSplit, CodedMessage, LayerExchange, Memory, MixedPull
from harness.graphs import BOTH_DIRECTIONS, Part, Totals
from harness.kernels.packed import code_bytes
from harness.methods.bases.base import Facts, Seen, WireBytes, all_reduce_bytes
from harness.methods.bases.edge_cut import EdgeCut, EdgeCutState, exchanged_layers, message_width
from harness.nn import GNN
from harness.rank import Rank

START_BITS = 8


@dataclass(frozen=True, eq=False)
class AdaQPState(EdgeCutState):
    """The state of an edge cut, its central and marginal nodes, the messages, and how they get their bits."""

    split: CentralSplit
    messages: tuple[CodedMessage, ...]
    assignment: BitAssignment | None


class EpochBits(NamedTuple):
    """The memory, and the bits of all rows where they are the same."""

    memory: Memory
    same: int | None


@dataclass(frozen=True, kw_only=True)
class AdaQP(EdgeCut):
    """Stochastic codes with bits by row, and central nodes computed while marginal ones travel (AdaQP; none of the
    five papers compares with it).

    Rows and, backwards, complete gradients of own rows are pulled in codes of 2, 4 or 8 bits, unbiased between a row's
    extremes, with scale and minimum in bf16. An exchange is started, rows of nodes without remote neighbours are
    aggregated, and the others once it has arrived. Every `period` epochs rank 0 assigns bits anew, for each layer and
    direction: of every sent row, the squared range of values summed over the epochs since the last time, times the sum
    of the squared factors with which its reader adds it, gives its variance; rows of a pair of ranks are sorted by it
    and cut into groups; bits of groups minimise lambda V + (1 - lambda) Z, variance and time each scaled by its best
    and worst value. Z adds up the slowest pairs of the P - 1 ring shifts. Before the first assignment all rows have 8
    bits.

    Bytes of n rows of width d, n_b of them with b bits: sum over b of n_b ceil(d b / 8), and 4 a row. The authors pack
    8 / b rows of equal bits into d bytes and add a byte per message and number of bits: d ceil(n_b b / 8) + 1. Layer 0
    is sent every epoch, its gradient is not. An assignment of M messages is booked as other: 4 M a group to rank 0, 8
    per pair of ranks, M a group back, M a row to its reader; ranks other than 0 only, for what goes through it. A rank
    keeps M bytes a sent and a halo row, and 4 M a sent row of ranges. `code bytes` is observed per layer and direction
    as a share of 8 bits, `central rows` and `central entries` of the own rows and edges.

    Chosen: all pairs of ranks are equally fast, where the authors time 200 messages of every pair, because losses must
    not depend on a clock; ranges are those that the codes cover; factors are squared before they are summed, groups
    have their own scores and sizes (the authors' code squares the sum, adds scores of other rows, and prices a short
    group as a full one); rank 0 solves by greedy steps of most variance saved per byte, where the authors use a
    mixed-integer programme. Defaults are those of ogbn-products.

    In brief:
        travels: boundary rows and complete gradients of own rows in codes of 2, 4 or 8 bits; now and then the bits
        bytes: sum over bits b of n_b ceil(d b / 8), and 4 a row, a layer and direction; an assignment of M messages 4 M
            a group, 8 a pair of ranks, M a group and M a row
        memory: halo rows of every layer; a byte a sent and a halo row and 4 a sent row, for every message

    Options:
        bits: adaptive, or 2, 4 or 8 for all rows.
        period: epochs between assignments (T).
        group: rows of a group.
        lambda: weight of the variance, from 0 (2 bits everywhere) to 1 (8 bits everywhere).
        layer0: auto is exchange, as the authors have it.
    """

    bits: Literal["adaptive", 2, 4, 8] = "adaptive"
    period: int = 50
    group: int = 2000
    lambda_: float = 0.5

    name: ClassVar[str] = "adaqp"
    facts = Facts(
        cut="edge", exact=False, settles=50, lossy=True, unbiased=True,
        paper="AdaQP (MLSys 2023); in none of the five papers",
    )  # fmt: skip

    @property
    def adapts(self) -> bool:
        """Whether bits are assigned."""
        return self.bits == "adaptive"

    def validate(self) -> None:
        if self.period < 1 or self.group < 1:
            raise InputError(f"adaqp: period and group must be at least 1, not {self.period} and {self.group}")
        if not 0 <= self.lambda_ <= 1:
            raise InputError(f"adaqp: lambda must be from 0 to 1, not {self.lambda_:g}")

    def idle(self) -> dict[str, str]:
        return {} if self.adapts else dict.fromkeys(("period", "group", "lambda"), f"bits={self.bits}")

    def promises(self) -> Facts:
        """Bits are assigned after the first period, and alike from then on; fixed ones repeat at once."""
        if not self.adapts:
            return replace(self.facts, settles=0, repeats=True)
        return replace(self.facts, settles=self.period)

    def cycle(self) -> int:
        return self.period if self.adapts else 1

    def input_layer(self, model: GNN) -> str:
        """`layer0`; auto means exchange, as the authors have it."""
        return "exchange" if self.layer0 == "auto" else super().input_layer(model)

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        if not totals.symmetric:
            raise InputError(
                f"adaqp pulls gradients along the edges of rows: the graph must be symmetric; {BOTH_DIRECTIONS}"
            )
        if any(model.exchanges(l) and model.aggregation(l) is None for l in range(model.depth)):
            raise InputError("adaqp needs layers whose aggregation is linear in rows (gcn, sage)")

    async def setup(self, rank: Rank, part: Part, model: GNN) -> AdaQPState:
        """Which nodes are central; where bits are assigned, owners are told what their rows weigh at their readers."""
        state = await super().setup(rank, part, model)
        messages = []
        for l, direction in exchanged_layers(model, state.layer0):
            aggregation = model.aggregation(l)
            assert aggregation is not None
            messages.append(CodedMessage(l, direction, message_width(model, l), aggregation))
        assignment = None
        if self.adapts and messages:
            wanted = (self.group, self.lambda_)
            assignment = await BitAssignment.of(rank, part.plan, state.graph, messages, *wanted)
        split = CentralSplit.of(rank, state.graph)
        return AdaQPState(**vars(state), split=split, messages=tuple(messages), assignment=assignment)

    def remember(self, rank: Rank, part: Part, model: GNN, state: AdaQPState) -> Memory:
        """The bits of all rows, and, where they are assigned, ranges of 0."""
        rows, halo = len(part.plan.send_rows), state.graph.num_halo
        bits = START_BITS if self.bits == "adaptive" else self.bits

        def filled(count: int) -> Memory:
            whole = torch.full((count,), bits, dtype=torch.uint8, device=part.nodes.device)
            return {message.label: whole for message in state.messages}

        memory: Memory = {"sent": filled(rows), "read": filled(halo)}
        if self.adapts:
            memory["trace"] = _no_ranges(state, rows, part.nodes.device)
        return memory

    async def begin(self, rank: Rank, part: Part, state: EdgeCutState, memory: Memory) -> EpochBits:
        """Assign bits if the epoch begins a period, not the first."""
        assert isinstance(state, AdaQPState)
        state.split.observe(rank)
        if state.assignment is not None and rank.epoch and rank.epoch % self.period == 0:
            memory.update(await state.assignment.assign(rank, memory["trace"]))
            memory["trace"] = _no_ranges(state, len(part.plan.send_rows), part.nodes.device)
        return EpochBits(memory, self.same_bits(rank.epoch))

    def same_bits(self, epoch: int) -> int | None:
        """The bits of all rows in an epoch; None once they are assigned."""
        if self.bits != "adaptive":
            return self.bits
        return START_BITS if epoch < self.period else None

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: EpochBits) -> LayerExchange:
        aggregation = model.aggregation(l)
        assert isinstance(state, AdaQPState) and aggregation is not None
        return MixedPull(state.route, l, state.split, aggregation, plan.memory, plan.same)

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes:
        """The formula of the class; bytes of codes that an assignment chose are those that ranks observed."""
        rows, same = self.rows_sent(ranks), self.same_bits(epoch)
        found: WireBytes = {"forward": {}, "backward": {}, "reduce": {-1: all_reduce_bytes(model, len(ranks))}}
        messages: tuple[CodedMessage, ...] = ranks[0].state.messages
        for m in messages:
            name = f"{CODE_SHARE[m.direction]}/{m.layer}"
            codes = rows * code_bytes(m.width, same) if same else sum(int(r.observed[name][0]) for r in ranks)
            found[m.direction][m.layer] = codes + MIXED_SIDE_BYTES * rows
        if messages and self.adapts and epoch and epoch % self.period == 0:
            groups = sum(r.state.assignment.num_groups(at) for at, r in enumerate(ranks) if at)
            pairs = len(ranks) * (len(ranks) - 1)
            found["other"] = {-1: len(messages) * (5 * groups + rows) + 8 * pairs}
        return found


def _no_ranges(state: AdaQPState, rows: int, device: torch.device) -> Memory:
    none = torch.zeros(rows, dtype=torch.float32, device=device)
    return {message.label: none for message in state.messages}
