"""EC-Graph: boundary rows compressed into buckets, with the error compensated in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from harness.codecs import BUCKET_BITS, Bucket, Cast
from harness.effects import Counts, Direction, Rows
from harness.errors import InputError
from harness.exchanges import (
    AttentionRowsPull,
    Boundary,
    CompensatedPull,
    Compressed,
    Exact,
    Fetch,
    HaloFetch,
    LayerExchange,
    LayerPull,
    Memory,
    ParameterServers,
    Requested,
    Select,
    Trend,
    Tuner,
)
from harness.graphs import BOTH_DIRECTIONS, HaloPlan, LocalGraph, Part, Totals
from harness.kernels.packed import code_bytes
from harness.methods.bases.base import Facts, Seen, WireBytes, all_reduce_bytes
from harness.methods.bases.edge_cut import EdgeCut, EdgeCutState, exchanged_layers, message_width
from harness.nn import GNN, Conv, GATConv, training_loss
from harness.rank import Rank
from harness.tape import Tape


@dataclass(frozen=True, eq=False)
class ECState(EdgeCutState):
    """The edge cut's state, the own rows that others read, and the numbers of the halo nodes, int32 [n_halo]."""

    boundary: Boundary
    halo_ids: Tensor


@dataclass(frozen=True, eq=False)
class ECEpoch:
    """One epoch: the memory, the forward bits requested of every owner, and those that every reader requests.

    `boundary` has all ranks that request rows of each other.
    """

    memory: Memory
    boundary: Boundary
    bits: Counts  # int64 [P]
    peer_bits: Counts  # int64 [P]


@dataclass(frozen=True, kw_only=True)
class ECGraph(EdgeCut):
    """Error-compensated compression (Alg. 1 to 6), pull style: owners send rows forwards and complete gradients back.

    Forwards (ReqEC-FP, Alg. 3 and 4, `exchanges.Trend`): exact rows and their rates of change every `period` epochs; in
    between the predicted, the compressed or the averaged form, whichever is nearest in L1. The Bit-Tuner doubles the
    bits where over 60 % of the last layer's rows are predicted and halves them under 40 %: the bits of each responding
    worker by what it replies to all its readers (Sec. IV-B), or with tuner=pooled those of each reader by all it reads.

    Backwards (ResEC-BP, Alg. 5 and 6 with Eq. 11, `exchanges.CompensatedPull`): what compression loses in one epoch is
    added to the next one's gradients.

    What travels (Alg. 1 and 2): forwards the input rows H of a layer, backwards the gradients G of its output before
    norm and activation. `--order` decides only whether a rank multiplies by W before or after it aggregates. With
    wire=product the operands of the aggregation travel: H W and G where the linear map comes first, H and G W^T
    otherwise, which with --order auto is the narrower pair.

    The paper's names: Non-cp is fp=exact:bp=exact; Cp-fp-B fp=compressed:bits=B:bp=exact; Cp-bp-B
    fp=exact:bp=compressed:backward_bits=B; ReqEC-FP-B fp=trend:bits=B:tune=false:bp=exact; ReqEC-adapt
    fp=trend:bp=exact; ResEC-BP-B fp=exact:bp=residual:backward_bits=B. In the authors' code plain compression acts on
    the input features too: they stay quantised for the whole run (features).

    Bytes per layer and epoch from one rank to another that reads n > 0 rows of width d, B being the bits. d is the
    width of the layer's input forwards and of its output backwards; with wire=product the output's where the linear
    map comes first, else the input's, both ways. Exact: 4 n d. Compressed, residual: n ceil(d B / 8) + 8 (range).
    Trend: 4 n d in the first epoch, 8 n d in those with (t + 1) mod period = 0; else ceil(n / 4) (flags) + 8 (range) +
    (n - predicted) ceil(d B / 8), 4 (the share of predicted rows, with tuner=responder), and 8 (how many codes follow)
    between any two ranks. table=values has 4 * 2^B for 8 of a range; range=row has n ranges for one; select=element has
    ceil(n d / 4) of flags, and codes of a row's sent elements only; select=matrix has one byte of flags. Booked as
    other: the requests' node numbers, 4 n a layer and direction, and with tune one byte a pair in epochs that are not
    exact. Parameters: as an all-reduce, 8 (P - 1) (parameters + 1).

    Attention (Sec. III-B): the same rows travel, and backwards 3 exact values a head with them, 12 n bytes a head, from
    which a node's owner recomputes the attention weights that its readers gave it (`exchanges.AttentionRowsPull`).

    In brief:
        travels: input rows H of a layer forwards, gradients G of its output backwards: predicted, compressed or exact
        bytes: n rows from one rank to another: exact 4 n d; compressed n ceil(d B / 8) + 8; trend between exact epochs
            ceil(n / 4) + 20 + (n - predicted) ceil(d B / 8)
        memory: last exact rows and their rates of change at readers and owners, 8 d bytes a row and forward layer
            each; 4 d a row sent backwards for what compression lost
        staleness: predicted rows rest on exact ones up to `period` epochs old

    Options:
        wire: what travels: paper (H and G), or product.
        fp: exact, compressed or trend (ReqEC-FP).
        bp: exact, compressed or residual (ResEC-BP).
        bits: bits per value forwards, 1, 2, 4, 8 or 16; with tune, those of the first epochs. The paper has 1 to 4.
        backward_bits: bits per value backwards. The paper has 2 to 4.
        tune: whether the Bit-Tuner changes the bits of fp=trend.
        tuner: whose share of predicted rows it goes by: responder, each worker that replies, or pooled.
        features: with fp=compressed, whether cached input features are compressed once for the run, or exact.
        requests: whether readers send the numbers of the rows they want (Alg. 3 and 5, line 1).
        period: epochs from one exact exchange of fp=trend to the next (T_tr).
        select: what fp=trend chooses as one: a vertex, an element, or a rank's whole matrix.
        range: buckets of the sender's whole matrix (the authors'), of the rows of every request (Alg. 6, line 4), or of
            every row.
        table: what a range travels as: its two ends, or a table of 2^B values (Sec. IV-A).
        servers: ranks that serve parameters; 0 sums gradients by an all-reduce.
    """

    wire: Literal["paper", "product"] = "paper"
    fp: Literal["exact", "compressed", "trend"] = "trend"
    bp: Literal["exact", "compressed", "residual"] = "residual"
    bits: int = 2
    backward_bits: int = 2
    tune: bool = True
    tuner: Tuner = "responder"
    features: Literal["compressed", "exact"] = "compressed"
    requests: bool = True
    period: int = 10
    select: Select = "vertex"
    range: Literal["matrix", "requested", "row"] = "matrix"
    table: Literal["range", "values"] = "range"
    servers: int = 0

    name = "ec-graph"
    facts = Facts(
        cut="edge", exact=False, settles=12, lossy=True, compensated=True,
        exact_when={"fp": "exact", "bp": "exact"}, paper="EC-Graph, Alg. 1-6",
    )  # fmt: skip

    def promises(self) -> Facts:
        """Compensated with residuals backwards and trends or exact rows forwards; bounded otherwise."""
        facts = super().promises()
        compensated = self.bp == "residual" and self.fp != "compressed"
        return replace(
            facts,
            settles=facts.settles if self.fp == "trend" else 0,
            compensated=compensated and not facts.exact,
            bounded=not compensated and not facts.exact,
        )

    def error_bound(self, num_ranks: int) -> float:
        """Half a bucket; the range of the buckets is at most twice the largest absolute value."""
        coded = [self.bits] * (self.fp == "compressed") + [self.backward_bits] * (self.bp != "exact")
        return max((1.0 / (2 if bits == 1 else 2**bits - 2) for bits in coded), default=0.0)

    def plans(self, seen: Seen, l: int) -> tuple[HaloPlan, HaloPlan]:
        """The halo plans of layer l, forwards and backwards."""
        return seen.part.plan, seen.part.plan

    def sent_layers(self, model: GNN, layer0: str) -> list[tuple[int, Direction, int]]:
        """Layers whose rows travel every epoch, their directions, and the widths of the rows."""
        if self.wire == "product":
            return [(l, way, message_width(model, l)) for l, way in exchanged_layers(model, layer0)]
        read = [l for l in range(model.depth) if model.exchanges(l) and (l > 0 or layer0 == "exchange")]
        forwards: list[tuple[int, Direction, int]] = [(l, "forward", model.widths[l]) for l in read]
        return forwards + [(l, "backward", model.widths[l + 1]) for l in read if l > 0]

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes | None:
        """The formulas of the class; predicted rows are those that a rank observed, as reader or as responder."""
        size, renewed = len(ranks), epoch == 0 or (epoch + 1) % self.period == 0
        if self.fp == "trend" and self.select == "element" and not renewed:
            return None  # codes of elements are rounded up per row, which the observed counts do not determine
        found: WireBytes = {"forward": {}, "backward": {}, "other": {}, "reduce": {-1: all_reduce_bytes(model, size)}}
        if self._tunes and not renewed:
            found["other"][-1] = sum(int((r.part.plan.recv_counts > 0).sum()) for r in ranks)
        for l, direction, width in self.sent_layers(model, ranks[0].state.layer0):
            form = self.fp if direction == "forward" else self.bp
            total = rows = 0
            for seen in ranks:
                plan = self.plans(seen, l)[direction == "backward"]
                n = int(plan.recv_counts.sum())
                rows += n
                if form == "exact":
                    total += 4 * n * width
                elif form != "trend":
                    bits = self.bits if direction == "forward" else self.backward_bits
                    total += n * code_bytes(width, bits) + self._range_bytes(plan.recv_counts, bits)
                elif renewed:
                    total += 4 * n * width * (2 if epoch else 1)
                else:
                    total += self._reply_bytes(plan, seen, l, width) + 8 * (size - 1)
            layer = model.layers[l]
            if direction == "backward" and isinstance(layer, GATConv):
                total += 12 * layer.heads * rows
            found[direction][l] = total
            if self.requests:
                found["other"][l] = found["other"].get(l, 0) + 4 * rows
        return found

    def _range_bytes(self, counts: Counts, bits: int) -> int:
        """Bytes of the ranges of messages with `counts` rows."""
        ranges = int(counts.sum() if self.range == "row" else (counts > 0).sum())
        return ranges * self._codec(bits).range_bytes

    def _reply_bytes(self, plan: HaloPlan, seen: Seen, l: int, width: int) -> int:
        """Bytes of replies with predictions: all that a responder sends, or all that a reader gets."""
        responds = self._tunes and self.tuner == "responder"
        counts = plan.send_counts if responds else plan.recv_counts
        bits = int(seen.observed["bits"][0]) if "bits" in seen.observed else self.bits
        predicted, flagged = seen.observed.get(f"predicted/{l}", (0.0, 0.0))
        pairs = int((counts > 0).sum())
        flags = pairs if self.select == "matrix" else int((-(-counts // 4)).sum())
        codes = int(flagged - predicted) * code_bytes(width, bits)
        told = 4 * int((seen.part.plan.send_counts > 0).sum()) if responds else 0
        return flags + self._range_bytes(counts, bits) + codes + told

    def validate(self) -> None:
        for option, bits in (("bits", self.bits), ("backward_bits", self.backward_bits)):
            if bits not in BUCKET_BITS:
                raise InputError(f"{self.name}: {option} must be 1, 2, 4, 8 or 16, not {bits}")
        if self.period < 1:
            raise InputError(f"{self.name}: period must be at least 1, not {self.period}")
        if self.servers < 0:
            raise InputError(f"{self.name}: servers must not be negative, not {self.servers}")

    def idle(self) -> dict[str, str]:
        unused = {} if self.fp == "trend" else dict.fromkeys(("period", "tune", "tuner"), f"fp={self.fp}")
        if self.fp == "trend" and not self.tune:
            unused["tuner"] = "tune=false"
        if self.fp != "compressed":
            unused["features"] = f"fp={self.fp}"
        if self.fp == "exact":
            unused["bits"] = "fp=exact"
        if self.bp == "exact":
            unused["backward_bits"] = "bp=exact"
        if self.fp == self.bp == "exact":
            unused |= dict.fromkeys(("range", "table"), "fp=exact and bp=exact")
        return unused

    def cycle(self) -> int:
        return self.period if self.fp == "trend" else 1

    def epoch_kind(self, epoch: int) -> int:
        """Those with exact rows, the others, and the first, before which nothing has been received."""
        return int(self._sends_exact(epoch)) if epoch else 2

    def _sends_exact(self, epoch: int) -> bool:
        return self.fp == "trend" and (epoch + 1) % self.period == 0

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        if not totals.symmetric:
            raise InputError(
                f"{self.name} pulls gradients along the edges that rows came by: the graph must be symmetric; "
                + BOTH_DIRECTIONS
            )
        for layer in (model.layers[l] for l in range(model.depth) if model.exchanges(l)):
            if isinstance(layer, GATConv) and not self._attends:
                raise InputError(f"{self.name} with attention (gat) needs wire=paper, and no sample of neighbours")
            if not isinstance(layer, GATConv) and getattr(layer, "aggregation", None) is None:
                raise InputError(f"{self.name} needs layers whose aggregation is linear in rows (gcn, sage), or gat")
        if self.servers > num_parts:
            raise InputError(f"{self.name}: {self.servers} servers on {num_parts} ranks; servers are ranks")

    def input_layer(self, model: GNN) -> str:
        """`layer0`; auto means cache: EC-Graph keeps the features of first-hop remote neighbours (Sec. III-A)."""
        return "cache" if self.layer0 == "auto" else super().input_layer(model)

    async def setup(self, rank: Rank, part: Part, model: GNN) -> ECState:
        state = await super().setup(rank, part, model)
        boundary = self._requested(Boundary.of(part.plan, state.graph.num_own))
        return ECState(**vars(state), boundary=boundary, halo_ids=part.halo_nodes.int())

    async def fetch_features(self, rank: Rank, part: Part, x: Tensor) -> Tensor:
        """With fp=compressed as the readers decode them, unless features=exact; they are requested only once."""
        if self.fp != "compressed" or self.features == "exact":
            return await super().fetch_features(rank, part, x)
        boundary = self._requested(Boundary.of(part.plan, len(part.nodes)))
        return await Compressed(boundary, -1, "other", self._codec(self.bits), label="features")(rank, x)

    def _requested(self, boundary: Boundary) -> Boundary:
        """The boundary whose rows share ranges as the options say."""
        return boundary.by_request() if self.range == "requested" else boundary

    def _codec(self, bits: int) -> Bucket:
        return Bucket(bits, self.range, self.table)

    def remember(self, rank: Rank, part: Part, model: GNN, state: Any) -> Memory:
        """Trends and residuals, both filled from the first epoch on, and with tune the bits asked of every owner."""
        memory: Memory = {"trend": {}, "residual": {}}
        return {**memory, "bits": torch.full((rank.size,), self.bits)} if self._tunes else memory

    async def begin(self, rank: Rank, part: Part, state: EdgeCutState, memory: Memory) -> ECEpoch:
        """Send the number of bits that this rank requests of each owner, in epochs that use them."""
        assert isinstance(state, ECState)
        exact = not memory.get("trend") or self._sends_exact(rank.epoch)
        bits = self._current(rank, memory)
        if not self._tunes or exact:
            return ECEpoch(memory, state.boundary, bits, bits)
        owners, readers = ((counts > 0).astype(np.int64) for counts in (part.plan.recv_counts, part.plan.send_counts))
        asked = torch.from_numpy(bits[owners > 0].astype(np.uint8)).to(rank.device)
        received = await rank.all_to_all([Rows(asked, owners, readers)], label="bits")
        peers = bits.copy()
        if not rank.shapes_only:
            peers[readers > 0] = received.tensors[0].cpu().numpy()
        if self.tuner == "pooled":
            rank.observe("bits", int(bits[0]))
        elif readers.any():
            rank.observe("bits", int(peers[readers > 0][0]))  # all readers ask a responder for the same
        return ECEpoch(memory, state.boundary, bits, peers)

    @property
    def _attends(self) -> bool:
        """Whether attention layers are possible."""
        return self.wire == "paper"

    @property
    def _tunes(self) -> bool:
        return self.tune and self.fp == "trend"

    def _current(self, rank: Rank, memory: Memory) -> Counts:
        """The current forward bits that this rank asks of every owner; in a shapes-only run those nearest to a
        recorded run's mean."""
        if not self._tunes or "bits" not in memory:
            return np.full(rank.size, self.bits, np.int64)
        if rank.shapes_only:
            recorded = rank.rate("bits")
            return np.full(rank.size, min(BUCKET_BITS, key=lambda bits: abs(bits - recorded)), np.int64)
        current: Counts = memory["bits"].cpu().numpy().copy()
        return current

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: ECEpoch) -> LayerExchange:
        assert isinstance(state, ECState)
        boundary, nodes = state.boundary, state.halo_ids
        fetches = self._forwards(l, model, plan, boundary, nodes), self._backwards(l, plan, boundary, nodes)
        return self._pull(l, model, state, fetches, state.graph)

    def _pull(
        self, l: int, model: GNN, state: ECState, fetches: tuple[Fetch, Fetch], graph: LocalGraph,
        reverse: LocalGraph | None = None,
    ) -> LayerExchange:  # fmt: skip
        """The exchange of layer l with these fetches forwards and backwards."""
        layer, aggregation = model.layers[l], model.aggregation(l)
        if self.wire == "product":
            assert aggregation is not None
            return CompensatedPull(
                state.route, l, Cast(None), Cast(None), graph, aggregation,
                forwards=fetches[0], backwards=fetches[1], reverse=reverse,
            )  # fmt: skip
        if l == 0:
            return HaloFetch(fetches[0])
        if isinstance(layer, GATConv):
            return AttentionRowsPull(state.route, l, graph, layer, fetches)
        assert isinstance(layer, Conv)
        return LayerPull(layer, graph, *fetches, linear_first=model.linear_first(l), reverse=reverse)

    def _forwards(self, l: int, model: GNN, plan: ECEpoch, boundary: Boundary, nodes: Tensor) -> Fetch:
        fetch: Fetch
        if self.fp == "exact":
            fetch = Exact(boundary, l, "forward")
        elif self.fp == "compressed":
            fetch = Compressed(boundary, l, "forward", self._codec(self.bits))
        else:
            last = max(k for k in range(model.depth) if model.exchanges(k))
            fetch = Trend(
                boundary, l, self.range, self.select, self.period, plan.memory, plan.peer_bits, plan.bits,
                tuner=self.tuner if self._tunes else None, last=l == last, table=self.table,
                told=plan.boundary,
            )  # fmt: skip
        return Requested(fetch, boundary, l, "forward", nodes) if self.requests else fetch

    def _backwards(self, l: int, plan: ECEpoch, boundary: Boundary, nodes: Tensor) -> Fetch:
        fetch: Fetch
        if self.bp == "exact":
            fetch = Exact(boundary, l, "backward")
        else:
            residuals = plan.memory.setdefault("residual", {}) if self.bp == "residual" else None
            fetch = Compressed(boundary, l, "backward", self._codec(self.backward_bits), residuals)
        return Requested(fetch, boundary, l, "backward", nodes) if self.requests else fetch

    def optimizer(self, rank: Rank, model: GNN, lr: float, weight_decay: float) -> torch.optim.Optimizer:
        """Adam over all parameters; with parameter servers over this rank's share."""
        if self.servers:
            return ParameterServers(self.servers).optimizer(rank, model, lr, weight_decay)
        return super().optimizer(rank, model, lr, weight_decay)

    async def epoch(
        self, rank: Rank, part: Part, model: GNN, state: Any, memory: Memory, optimizer: torch.optim.Optimizer
    ) -> Tensor:
        """One epoch; with servers, gradients are pushed to them and parameters pulled from them."""
        if not self.servers:
            return await super().epoch(rank, part, model, state, memory, optimizer)
        part = self.trained(part, state)
        model.zero_grad(set_to_none=True)
        tape = Tape(rank, model.parameters())
        loss = await tape.backward(training_loss(await self.forward(rank, part, model, state, memory, tape), part))
        return await ParameterServers(self.servers).update(rank, model, optimizer, loss, part.totals.num_train)
