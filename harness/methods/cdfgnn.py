"""CDFGNN: a vertex cut whose partial sums and gradients are cached while they change little, and sent in few bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from harness.codecs import ROW_BITS, Cast, LinearRows
from harness.errors import InputError
from harness.exchanges import CachedSync, Memory, ParameterServers, PlainSync, ReplicaSync, Wires, empty_cache
from harness.graphs import Totals, VertexPart
from harness.methods.bases.base import Facts, Seen, WireBytes, all_reduce_bytes
from harness.methods.bases.vertex_cut import SyncedVertexCut, VertexState
from harness.nn import GNN, GATConv, counts, micro_f1, training_loss
from harness.rank import Rank
from harness.tape import Tape


@dataclass(frozen=True, eq=False)
class CachedState(VertexState):
    """The state of a vertex cut, with the wire format of the flags of sent rows."""

    wires: Wires


@dataclass(frozen=True, kw_only=True)
class CDFGNN(SyncedVertexCut):
    """Adaptive cache and quantised differences on a vertex cut (CDFGNN, Alg. 1 and 2, Eq. 6, 7, 22, 23).

    Every layer sums its partial rows over replicas forwards and their gradients backwards; mirrors send to masters
    (gather), masters send the sum back (scatter). Layer 0 is summed every epoch like the others. Where the paper is
    silent or disagrees with itself: both sides of a cache store the decoded value, also in the scatter; rows without
    other replicas are not cached; SAGE's root weight is applied after the sum. Sec. 3.1 normalises A without self
    loops: model=gcn-no-loop; with model=gcn a self loop is added after the sum, or in it (loop=edge).

    The observed `sent` and `sent-backward` of a layer are rows sent of all rows that may change. Gradients of the last
    layer are always 0 on mirrors, as the loss is on masters: these rows are never sent and are counted apart, as
    `zero-backward`.

    Bytes per layer and direction, R mirrors over all ranks, of one row of width d: b = 4 d, or ceil(d bits / 8) + 8
    quantised. Without the cache: 2 R b, or R b in the last layer with last=half. With it, for gather and scatter each:
    rows sent x b, one bit a row (ceil(rows / 8) per pair of ranks), and 8 per pair of ranks for the count of rows, 16
    if quantised. Width is the layer's input, or its output where the linear map comes first (the paper's order). Raw
    input has no gradient. Attention sends, exact, 2 R 4 heads more for the maximum (forwards) and 2 R 4 heads for the
    denominator (both directions). An adapting threshold costs an all-reduce of 24 bytes an epoch (other).

    In brief:
        travels: partial rows of mirrors to masters and the sums back, forwards and backwards, where they changed
            enough
        bytes: b = 4 d or ceil(d bits / 8) + 8 a row; 2 R b a layer and direction without the cache, with it rows sent
            x b, a bit a row and 8 or 16 a pair of ranks
        memory: caches of 4 d bytes a replica, layer and direction for partial rows and again for their sums
        staleness: none without the cache; with it a row is as old as its last change beyond the threshold

    Options:
        cache: send a row when max |z - cached| > threshold * max |cached|; without it every row.
        quantise: linear codes of differences, or of rows where there is no cache.
        bits: 1, 2, 4, 8 or 16 per element; the paper does not say.
        eps0: threshold of the first epoch; the paper does not say.
        rule: text relaxes the threshold when training accuracy beats its running mean by mu2 and tightens it when it
            falls short by mu1 (Sec. 4.1, Fig. 7); printed swaps the two (Eq. 6 as printed); fixed keeps eps0.
        mu1, mu2: how far accuracy must fall below or rise above its mean.
        lambda1, lambda2: factors of one step up and one step down.
        nu1, nu2: upper and lower bound of the threshold.
        xi: longest step (0.01 in the paper's list, 0.02 in its text).
        layer0: exchange sums the input layer every epoch (auto, the paper); precompute sums the raw input once.
        last: half sums the last layer on masters only: gather forwards, scatter backwards; full is Algorithm 1.
        loop: after adds the self loop of a node to the sum on every replica, exactly; edge adds it to the master's
            partial row, which is compared, coded and sent back with it.
        servers: ranks that serve parameters (Alg. 1, lines 12 and 13); 0 sums gradients by an all-reduce. Either way
            8 (P - 1) (parameters + 1) bytes an epoch.
    """

    cache: bool = True
    quantise: bool = True
    bits: int = 8
    eps0: float = 0.01
    rule: Literal["text", "printed", "fixed"] = "text"
    mu1: float = 0.001
    mu2: float = 0.02
    lambda1: float = 1.05
    lambda2: float = 0.9
    nu1: float = 0.3
    nu2: float = 0.001
    xi: float = 0.01
    servers: int = 0

    name = "cdfgnn"
    facts = Facts(
        cut="vertex", exact=False, settles=3, lossy=True, bounded=True,
        exact_when={"cache": False, "quantise": False}, paper="CDFGNN, Alg. 1-2",
    )  # fmt: skip

    def promises(self) -> Facts:
        """A cache needs epochs to fill, more of them with few bits."""
        settles = {1: 14, 2: 7}.get(self.bits, self.facts.settles) if self.quantise else self.facts.settles
        return replace(super().promises(), settles=settles if self.cache else 0)

    def error_bound(self, num_ranks: int) -> float:
        """Half a code interval or the threshold, once for every partial row of a sum and once for the sum."""
        level = 1.0 / (2**self.bits - 1) if self.quantise else 0.0
        return (num_ranks + 1) * max(level, self.eps0 if self.cache else 0.0)

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes:
        """The formula of the class; with a cache, for the rows that were observed to be sent."""
        found: WireBytes = {"forward": {}, "backward": {}, "reduce": {-1: all_reduce_bytes(model, len(ranks))}}
        if self._adapts and len(ranks) > 1:
            found["other"] = {-1: 2 * (len(ranks) - 1) * 24}
        mirrors = sum(r.part.num_mirrors for r in ranks)
        for l in range(model.depth):
            if not model.exchanges(l) or (l == 0 and ranks[0].state.z0 is not None):
                continue
            layer = model.layers[l]
            heads = layer.heads if isinstance(layer, GATConv) else 0
            phases = 1 if self.halved(l, model) else 2
            for direction, name, exact in (("forward", "sent", 4), ("backward", "sent-backward", 2)):
                if direction == "backward" and l == 0 and not (heads or model.linear_first(0)):
                    continue  # raw input has no gradient
                sums = self._sum_bytes(self._width(l, model), phases, ranks, f"{name}/{l}")
                found[direction][l] = sums + exact * 4 * heads * mirrors
        return found

    def _sum_bytes(self, width: int, phases: int, ranks: Sequence[Seen], name: str) -> int:
        """Bytes of one sum over replicas, over all ranks."""
        row = -(-width * self.bits // 8) + 8 if self.quantise else 4 * width
        if not self.cache:
            return phases * sum(int(r.part.num_mirrors) for r in ranks) * row
        sent = round(sum(float(r.observed[name][0]) for r in ranks))
        flags = sum(int((-(-r.part.plan.recv_counts // 8)).sum()) for r in ranks)
        counts = len(ranks) * (len(ranks) - 1) * (16 if self.quantise else 8)
        return sent * row + phases * int(flags + counts)

    def validate(self) -> None:
        rules = [
            (self.bits in ROW_BITS, f"bits must be {', '.join(map(str, ROW_BITS))}, not {self.bits}"),
            (self.mu1 >= 0 and self.mu2 >= 0 and self.xi >= 0, "mu1, mu2 and xi must not be negative"),
            (0 <= self.nu2 <= self.nu1, f"nu2={self.nu2} and nu1={self.nu1} bound the threshold: 0 <= nu2 <= nu1"),
            (0 < self.lambda2 <= 1 <= self.lambda1, "lambda2 must be in (0, 1] and lambda1 at least 1"),
            (self.servers >= 0, f"servers must not be negative, not {self.servers}"),
            (self.eps0 >= 0, f"eps0 must not be negative, it is {self.eps0}"),
            (
                self.rule == "fixed" or self.nu2 <= self.eps0 <= self.nu1,
                f"eps0={self.eps0} is outside [nu2, nu1] = [{self.nu2}, {self.nu1}]; use rule=fixed to keep it there",
            ),
        ]
        for holds, message in rules:
            if not holds:
                raise InputError(f"cdfgnn: {message}")

    def idle(self) -> dict[str, str]:
        steps = ("mu1", "mu2", "lambda1", "lambda2", "nu1", "nu2", "xi")
        return dict.fromkeys(steps, "rule=fixed") if self.rule == "fixed" else {}

    def exact(self) -> CDFGNN:
        """The same sums, all of them sent as they are."""
        return CDFGNN(cache=False, quantise=False, layer0=self.layer0, last=self.last, loop=self.loop)

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        if self.servers > num_parts:
            raise InputError(f"cdfgnn: {self.servers} servers on {num_parts} ranks; servers are ranks")

    async def setup(self, rank: Rank, part: Any, model: GNN) -> VertexState:
        state = await super().setup(rank, part, model)
        if not self.cache:
            return state
        return CachedState(state.block, state.replicas, state.layer0, state.z0, Wires.of(state.replicas))

    def remember(self, rank: Rank, part: Any, model: GNN, state: VertexState) -> Memory:
        """Empty caches per direction and layer, the threshold, and the running mean of training accuracy."""
        if not self.cache:
            return {}
        forward: Memory = {}
        backward: Memory = {}
        for l in range(model.depth):
            if not model.exchanges(l) or (l == 0 and state.z0 is not None):
                continue
            both, width = not self.halved(l, model), self._width(l, model)
            forward[str(l)] = empty_cache(state.replicas, part.x, width, scatter=both)
            if l > 0 or model.aggregation(l) is None or model.linear_first(l):  # raw input has no gradient
                backward[str(l)] = empty_cache(state.replicas, part.x, width, gather=both)
        scalars = {"threshold": self.eps0, "mean-accuracy": float("nan")}
        observed = {name: torch.tensor(value, dtype=torch.float64) for name, value in scalars.items()}
        return {"forward": forward, "backward": backward, **observed}

    def _width(self, l: int, model: GNN) -> int:
        layer = model.layers[l]
        if isinstance(layer, GATConv):
            return layer.heads * layer.width
        return model.widths[l + 1] if model.linear_first(l) else model.widths[l]

    def sync(self, rank: Rank, state: VertexState, memory: Memory) -> ReplicaSync:
        codec = LinearRows(self.bits) if self.quantise else None
        if not self.cache:
            return PlainSync(state.replicas, codec or Cast(None))
        assert isinstance(state, CachedState)
        return CachedSync(state.replicas, state.wires, codec, float(memory["threshold"]), memory)

    async def forward(
        self, rank: Rank, part: Any, model: GNN, state: VertexState, memory: Memory, tape: Tape
    ) -> Tensor:
        logits = await super().forward(rank, part, model, state, memory, tape)
        if self._adapts and model.training:
            hits = counts(logits.detach(), _training_only(part))[0]
            memory["hits"] = await rank.start(rank.all_reduce(hits, label="training accuracy", direction="other"))
        return logits

    async def epoch(
        self, rank: Rank, part: Any, model: GNN, state: Any, memory: Memory, optimizer: torch.optim.Optimizer
    ) -> Tensor:
        loss = await self._trained(rank, part, model, state, memory, optimizer)
        if self.cache and not rank.shapes_only:
            rank.observe("threshold", float(memory["threshold"]))
        if self._adapts:
            hits = await rank.wait(memory.pop("hits"))
            if not rank.shapes_only:
                self.adapt(memory, micro_f1(hits.tolist()))
        return loss

    async def _trained(
        self, rank: Rank, part: Any, model: GNN, state: Any, memory: Memory, optimizer: torch.optim.Optimizer
    ) -> Tensor:
        """One step, of which the servers or all ranks compute the update; returns the loss of all ranks."""
        if not self.servers:
            return await super().epoch(rank, part, model, state, memory, optimizer)
        model.zero_grad(set_to_none=True)
        tape = Tape(rank, model.parameters())
        loss = await tape.backward(training_loss(await self.forward(rank, part, model, state, memory, tape), part))
        return await ParameterServers(self.servers).update(rank, model, optimizer, loss, part.totals.num_train)

    def optimizer(self, rank: Rank, model: GNN, lr: float, weight_decay: float) -> torch.optim.Optimizer:
        """Adam; on parameter servers over this rank's own share."""
        if self.servers:
            return ParameterServers(self.servers).optimizer(rank, model, lr, weight_decay)
        return super().optimizer(rank, model, lr, weight_decay)

    @property
    def _adapts(self) -> bool:
        return self.cache and self.rule != "fixed"

    def adapt(self, memory: Memory, accuracy: float | None) -> None:
        """Eq. 6, then Eq. 7; the mean starts at the first accuracy, and without training nodes nothing changes."""
        if accuracy is None:
            return
        eps, mean = float(memory["threshold"]), float(memory["mean-accuracy"])
        mean = accuracy if mean != mean else mean
        rose, fell = accuracy > mean + self.mu2, accuracy < mean - self.mu1
        up, down = (fell, rose) if self.rule == "printed" else (rose, fell)
        if up:
            eps = min(self.lambda1 * eps, eps + self.xi)
        elif down:
            eps = max(self.lambda2 * eps, eps - self.xi)
        memory["threshold"] = torch.tensor(min(max(eps, self.nu2), self.nu1), dtype=torch.float64)
        memory["mean-accuracy"] = torch.tensor(0.8 * mean + 0.2 * accuracy, dtype=torch.float64)


def _training_only(part: Any) -> Any:
    """The part with no validation and test rows."""
    assert isinstance(part, VertexPart)
    return replace(part, val=part.val[:0], test=part.test[:0])
