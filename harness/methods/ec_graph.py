"""EC-Graph: boundary rows compressed into buckets, with the error compensated in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from harness.codecs import BUCKET_BITS, Bucket, Cast
from harness.effects import Counts, Rows
from harness.errors import InputError
from harness.exchanges import (
    Boundary,
    CompensatedPull,
    Compressed,
    Exact,
    Fetch,
    Memory,
    ParameterServers,
    Select,
    Trend,
)
from harness.graphs import HaloPlan, Part, Totals
from harness.kernels.packed import code_bytes
from harness.methods.base import Facts, Seen, WireBytes, all_reduce_bytes
from harness.methods.edge_cut import EdgeCut, EdgeCutState, exchanged_layers, message_width
from harness.nn import GNN, training_loss
from harness.rank import Rank
from harness.tape import Exchange, Tape


@dataclass(frozen=True, eq=False)
class ECState(EdgeCutState):
    """The edge cut's state, and the own rows that others read."""

    boundary: Boundary


@dataclass(frozen=True, eq=False)
class ECEpoch:
    """One epoch: the memory, the forward bits that this rank requests, and those that its readers request."""

    memory: Memory
    bits: int
    peer_bits: Counts  # int64 [P]


@dataclass(frozen=True, kw_only=True)
class ECGraph(EdgeCut):
    """Error-compensated compression (Alg. 1 to 6), pull style: owners send rows forwards and complete gradients back.

    Forwards (ReqEC-FP, Alg. 3 and 4, `exchanges.trend`): exact rows and their rates of change every `period` epochs; in
    between the predicted, the compressed or the averaged form, whichever is nearest in L1. The Bit-Tuner doubles a
    reader's bits where over 60 % of what it reads in the last layer is predicted and halves them under 40 %.

    Backwards (ResEC-BP, Alg. 5 and 6 with Eq. 11, `exchanges.error_feedback`): what compression loses in one epoch is
    added to the next one's gradients. They are those of aggregated messages: the paper's G where the linear map comes
    first (--order auto, as in the paper), G W^T otherwise.

    The paper's names: Non-cp is fp=exact:bp=exact; Cp-fp-B fp=compressed:bits=B:bp=exact; Cp-bp-B
    fp=exact:bp=compressed:backward_bits=B; ReqEC-FP-B fp=trend:bits=B:tune=false:bp=exact; ReqEC-adapt
    fp=trend:bp=exact; ResEC-BP-B fp=exact:bp=residual:backward_bits=B.

    Bytes per layer and epoch from one rank to another that reads n > 0 rows of width d, B being the bits. Exact: 4 n d.
    Compressed, residual: n ceil(d B / 8) + 8 (range). Trend: 4 n d in the first epoch, 8 n d in those with
    (t + 1) mod period = 0; else ceil(n / 4) (flags) + 8 (range) + (n - predicted) ceil(d B / 8), and 8 (how many codes
    follow) between any two ranks. range=row has 8 n for 8; select=element has ceil(n d / 4) of flags, and codes of a
    row's sent elements only; select=matrix has one byte of flags. With tune, one byte a pair in epochs that are not
    exact, booked as other. Parameters: as an all-reduce, 8 (P - 1) (parameters + 1).

    Options:
        fp: exact, compressed or trend (ReqEC-FP).
        bp: exact, compressed or residual (ResEC-BP).
        bits: bits per value forwards, 1, 2, 4, 8 or 16; with tune, those of the first epochs. The paper has 1 to 4.
        backward_bits: bits per value backwards. The paper has 2 to 4.
        tune: whether the Bit-Tuner changes the bits of fp=trend.
        period: epochs from one exact exchange of fp=trend to the next (T_tr).
        select: what fp=trend chooses as one: a vertex, an element, or a rank's whole matrix.
        range: buckets of the sender's whole matrix, or of every row.
        servers: ranks that serve parameters; 0 sums gradients by an all-reduce.
    """

    fp: Literal["exact", "compressed", "trend"] = "trend"
    bp: Literal["exact", "compressed", "residual"] = "residual"
    bits: int = 2
    backward_bits: int = 2
    tune: bool = True
    period: int = 10
    select: Select = "vertex"
    range: Literal["matrix", "row"] = "matrix"
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

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes | None:
        """The formulas of the class, with the numbers of predicted rows that the readers observed."""
        size, renewed = len(ranks), epoch == 0 or (epoch + 1) % self.period == 0
        if self.fp == "trend" and self.select == "element" and not renewed:
            return None  # codes of elements are rounded up per row, which the observed counts do not determine
        found: WireBytes = {"forward": {}, "backward": {}, "reduce": {-1: all_reduce_bytes(model, size)}}
        if self._tunes and not renewed:
            found["other"] = {-1: sum(int((r.part.plan.recv_counts > 0).sum()) for r in ranks)}
        for l, direction in exchanged_layers(model, ranks[0].state.layer0):
            width, total = message_width(model, l), 0
            for seen in ranks:
                counts = self.plans(seen, l)[direction == "backward"].recv_counts
                n, pairs = int(counts.sum()), int((counts > 0).sum())
                form, bits = (self.fp, self.bits) if direction == "forward" else (self.bp, self.backward_bits)
                ranges = 8 * (n if self.range == "row" else pairs)
                if form == "exact":
                    total += 4 * n * width
                elif form != "trend":
                    total += n * code_bytes(width, bits) + ranges
                elif renewed:
                    total += 4 * n * width * (2 if epoch else 1)
                else:
                    bits = int(seen.observed["bits"][0]) if "bits" in seen.observed else bits
                    predicted, flagged = seen.observed.get(f"predicted/{l}", (0.0, 0.0))
                    flags = pairs if self.select == "matrix" else int((-(-counts // 4)).sum())
                    total += flags + ranges + int(flagged - predicted) * code_bytes(width, bits) + 8 * (size - 1)
            found[direction][l] = total
        return found

    def validate(self) -> None:
        for option, bits in (("bits", self.bits), ("backward_bits", self.backward_bits)):
            if bits not in BUCKET_BITS:
                raise InputError(f"{self.name}: {option} must be 1, 2, 4, 8 or 16, not {bits}")
        if self.period < 1:
            raise InputError(f"{self.name}: period must be at least 1, not {self.period}")
        if self.servers < 0:
            raise InputError(f"{self.name}: servers must not be negative, not {self.servers}")

    def idle(self) -> dict[str, str]:
        unused = {} if self.fp == "trend" else dict.fromkeys(("period", "tune"), f"fp={self.fp}")
        forwards = {"bits": "fp=exact"} if self.fp == "exact" else {}
        return {**unused, **forwards, **({"backward_bits": "bp=exact"} if self.bp == "exact" else {})}

    def cycle(self) -> int:
        return self.period if self.fp == "trend" else 1

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        if not totals.symmetric:
            raise InputError(
                f"{self.name} pulls gradients along the edges that rows came by: the graph must be symmetric"
            )
        if any(model.exchanges(l) and model.aggregation(l) is None for l in range(model.depth)):
            raise InputError(f"{self.name} needs layers whose aggregation is linear in rows (gcn, sage), not attention")
        if self.servers > num_parts:
            raise InputError(f"{self.name}: {self.servers} servers on {num_parts} ranks; servers are ranks")

    def input_layer(self, model: GNN) -> str:
        """`layer0`; auto means cache: EC-Graph keeps the features of first-hop remote neighbours (Sec. III-A)."""
        return "cache" if self.layer0 == "auto" else super().input_layer(model)

    async def setup(self, rank: Rank, part: Part, model: GNN) -> ECState:
        state = await super().setup(rank, part, model)
        return ECState(**vars(state), boundary=Boundary.of(part.plan, state.graph.num_own))

    def remember(self, rank: Rank, part: Part, model: GNN, state: Any) -> Memory:
        """Trends and residuals, both filled from the first epoch on, and with tune this rank's bits."""
        memory: Memory = {"trend": {}, "residual": {}}
        return {**memory, "bits": torch.tensor(self.bits)} if self._tunes else memory

    async def begin(self, rank: Rank, part: Part, state: EdgeCutState, memory: Memory) -> ECEpoch:
        """Send the number of bits that this rank requests to the owners, in epochs that use them."""
        exact = not memory.get("trend") or (rank.epoch + 1) % self.period == 0
        same = np.full(rank.size, self.bits, np.int64)
        if not self._tunes or exact:
            return ECEpoch(memory, self._current(rank, memory), same)
        bits = self._current(rank, memory)
        rank.observe("bits", bits)
        owners, readers = ((counts > 0).astype(np.int64) for counts in (part.plan.recv_counts, part.plan.send_counts))
        requested = torch.full((int(owners.sum()),), bits, dtype=torch.uint8, device=rank.device)
        received = await rank.all_to_all([Rows(requested, owners, readers)], label="bits")
        if rank.shapes_only:
            return ECEpoch(memory, bits, np.full(rank.size, bits, np.int64))
        same[readers > 0] = received.tensors[0].cpu().numpy()
        return ECEpoch(memory, bits, same)

    @property
    def _tunes(self) -> bool:
        return self.tune and self.fp == "trend"

    def _current(self, rank: Rank, memory: Memory) -> int:
        """The current forward bits of this rank; in a shapes-only run those nearest to a recorded run's mean."""
        if not self._tunes or "bits" not in memory:
            return self.bits
        if rank.shapes_only:
            recorded = rank.rate("bits")
            return min(BUCKET_BITS, key=lambda bits: abs(bits - recorded))
        return int(memory["bits"])

    def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: ECEpoch) -> Exchange:
        aggregation = model.aggregation(l)
        assert aggregation is not None and isinstance(state, ECState)
        return CompensatedPull(
            state.route, l, Cast(None), Cast(None), state.graph, aggregation,
            forwards=self._forwards(l, model, plan, state.boundary),
            backwards=self._backwards(l, plan, state.boundary),
        )  # fmt: skip

    def _forwards(self, l: int, model: GNN, plan: ECEpoch, boundary: Boundary) -> Fetch:
        if self.fp == "exact":
            return Exact(boundary, l, "forward")
        if self.fp == "compressed":
            return Compressed(boundary, l, "forward", Bucket(self.bits, self.range))
        last = max(k for k in range(model.depth) if model.exchanges(k))
        return Trend(
            boundary, l, self.range, self.select, self.period, plan.memory, plan.peer_bits, plan.bits,
            tune=self._tunes and l == last,
        )  # fmt: skip

    def _backwards(self, l: int, plan: ECEpoch, boundary: Boundary) -> Fetch:
        if self.bp == "exact":
            return Exact(boundary, l, "backward")
        residuals = plan.memory.setdefault("residual", {}) if self.bp == "residual" else None
        return Compressed(boundary, l, "backward", Bucket(self.backward_bits, self.range), residuals)

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
