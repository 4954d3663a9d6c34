"""DistGNN: a vertex cut whose partial aggregates are exchanged in turns, and used several epochs later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from harness.effects import Rows
from harness.errors import InputError
from harness.exchanges import DelayedSum, LeafBin, Memory, drain_delayed, leaf_bins
from harness.graphs import Totals, VertexPart
from harness.methods.bases.base import Facts, Seen, WireBytes, all_reduce_bytes
from harness.methods.bases.vertex_cut import VertexCut, VertexState
from harness.nn import GNN, aggregate
from harness.rank import Rank
from harness.tape import Tape


@dataclass(frozen=True, eq=False)
class DistGNNState(VertexState):
    """The state of a vertex cut, its edges by row, the bins of its leaves, and what the loss is taken on."""

    local_degree: Tensor  # int64 [n]
    bins: tuple[LeafBin, ...]
    clones: VertexPart | None  # labels and training rows of all replicas, loss = clones


@dataclass(frozen=True, kw_only=True)
class DistGNN(VertexCut):
    """Delayed partial aggregates on a vertex cut (DistGNN's 0c, cd-0 and cd-r; the authors' code in DGL's history).

    Of a node's replicas the master is the root, the others are leaves. Every layer sums over the rank's own edges;
    leaves send sum and degree to their root, which adds them to its own and returns the total; what a rank knows of a
    sum is divided by what it knows of the degree. With delay=r every rank cuts its replicated nodes into r bins of
    ceil(S / r), of which epoch e sends bin e mod r: roots add what leaves sent in epoch e - r, leaves overwrite their
    sums by what roots returned in epoch e - r. Nothing else is remembered: rows that get nothing in this epoch have the
    sums and degrees of the rank's own edges.

    Bytes over all ranks and per layer, for rows of width d and k leaves in the epoch's bins: 4 (d + 1) + 4 a leaf to
    the roots (degree, row, id), 8 per pair of ranks for the counts, and, from epoch r on, 4 (d + 1) a leaf back.
    Backwards nothing, or 8 d per mirror with backward=exact. Layer 0 is exchanged like the others. A rank keeps the
    messages of 2 r epochs, about 8 (d + 1) bytes per leaf or root's leaf and layer.

    The source has GraphSAGE's mean only. GCN's factor of a neighbour is that of its degree in the whole graph, which
    every replica has; its factor of the row is that of the degree known now. A derivative of the delayed forward pass
    would give overwritten leaves no gradient, the source passes it on. The root is the master of the partition, where
    the source draws a replica at random. With partitioner auto the cut is Libra's.

    In brief:
        travels: partial sums and degrees of leaves to their roots and totals back, one of r bins an epoch
        bytes: 4 (d + 1) + 4 a leaf of the bin and layer to the roots, 4 (d + 1) back, 8 a pair of ranks; with
            backward=exact 8 d a mirror besides
        memory: the messages of 2 r epochs, about 8 (d + 1) bytes a leaf or root's leaf and layer
        staleness: r epochs for leaves' sums at their root, 2 r for totals at leaves; none with delay=0

    Options:
        delay: 0 completes all sums within the epoch (cd-0; 1 is the same); a number of epochs, which is also that of
            the bins (cd-r); none sends nothing (0c).
        backward: identity, as the source has it also in cd-0: a replica's gradient belongs to its own partial sum;
            exact sums gradients over replicas, for delay=0 and loss=masters.
        loss: masters counts every training node once; clones, as the source has it, every replica of one, with the mean
            over them (the source sums the means of ranks, so that its steps grow with their number).
        layer0: exchange sums the input layer every epoch (auto, the source); precompute sums the raw input once,
            exactly.
    """

    delay: int | Literal["none"] = 0
    backward: Literal["identity", "exact"] = "identity"
    loss: Literal["masters", "clones"] = "masters"

    name: ClassVar[str] = "distgnn"
    default_partitioner: ClassVar[str] = "libra"
    facts = Facts(
        cut="vertex", exact=False, lossy=True, bounded=True, repeats=True,
        exact_when={"delay": 0, "backward": "exact", "loss": "masters"},
        paper="DistGNN (SC 2021) as in dmlc/dgl's history; the comparison of EC-Graph is distgnn-ec",
    )  # fmt: skip

    @property
    def num_bins(self) -> int:
        """Bins of a rank; 0 where nothing is sent."""
        return 0 if self.delay == "none" else max(self.delay, 1)

    def validate(self) -> None:
        if self.delay != "none" and self.delay < 0:
            raise InputError(f"distgnn: delay must be none or a number of epochs from 0 on, not {self.delay}")
        if self.backward == "exact" and self.num_bins != 1:
            raise InputError(f"distgnn: backward=exact needs complete sums, so delay=0, not {self.delay}")
        if self.backward == "exact" and self.loss == "clones":
            raise InputError("distgnn: backward=exact sums gradients of one loss per node; use loss=masters")

    def promises(self) -> Facts:
        """Exact where gradients are summed too; with a delay bytes are alike once totals are on their way back."""
        if self.backward == "exact":
            return replace(self.facts, exact=True, lossy=False, bounded=False)
        if self.num_bins > 1:
            return replace(self.facts, repeats=False, settles=2 * self.num_bins)
        return self.facts

    def cycle(self) -> int:
        return max(self.num_bins, 1)

    def error_bound(self, num_ranks: int) -> float:
        """A mean over some neighbours beside that over all: both are within the range of the values."""
        return 2.0

    def exact(self) -> DistGNN:
        """The same sums, complete in every epoch."""
        return DistGNN(backward="exact", layer0=self.layer0)

    def check(self, model: GNN, totals: Totals, num_parts: int) -> None:
        super().check(model, totals, num_parts)
        if any(model.exchanges(l) and model.aggregation(l) is None for l in range(model.depth)):
            raise InputError("distgnn needs layers whose aggregation is linear in rows (gcn, sage)")

    async def setup(self, rank: Rank, part: Any, model: GNN) -> DistGNNState:
        """The bins of the leaves; with loss=clones mirrors are told their labels once."""
        state = await super().setup(rank, part, model)
        bins = leaf_bins(part, self.num_bins) if self.num_bins else ()
        clones = await _labelled(rank, part) if self.loss == "clones" else None
        degree = state.block.indptr.diff().long()
        return DistGNNState(**vars(state), local_degree=degree, bins=bins, clones=clones)

    async def settle(self, rank: Rank, memory: Memory) -> None:
        await drain_delayed(rank, memory)

    def trained(self, part: Any, state: Any) -> Any:
        """The part; with loss=clones one whose mirrors have labels and are trained on too."""
        return state.clones or part

    async def epoch(
        self, rank: Rank, part: Any, model: GNN, state: Any, memory: Memory, optimizer: torch.optim.Optimizer
    ) -> Tensor:
        """Train one epoch; a loss over clones is scaled to the number of training nodes, by which callers divide it."""
        loss = await super().epoch(rank, part, model, state, memory, optimizer)
        if state.clones is None:
            return loss
        scale: float = part.totals.num_train / max(state.clones.totals.num_train, 1)
        return loss * scale

    def begin(self, rank: Rank, state: VertexState, memory: Memory) -> Memory:
        return memory

    async def layer(
        self, rank: Rank, l: int, part: VertexPart, model: GNN, state: Any, plan: Memory, tape: Tape, h: Tensor
    ) -> Tensor:
        assert isinstance(state, DistGNNState)
        aggregation, message = model.aggregation(l), model.message(l, h)
        assert aggregation is not None
        if aggregation.kind != "mean":
            message = message * aggregation.scale(part.degree, message)
        exact = self.backward == "exact"
        total = DelayedSum(state.replicas, state.local_degree, state.bins, l, plan, exact=exact)
        partial = aggregate(state.block, message)
        if aggregation.kind == "gcn":
            z, message = await tape.apply(total, partial, message)
            z = z + message
        else:
            z, h = await tape.apply(total, partial, h)
        return model.combine(l, h, z * aggregation.scale(total.known, z), transformed=model.linear_first(l))

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes:
        """The formula of the class."""
        found: WireBytes = {"forward": {}, "backward": {}, "reduce": {-1: all_reduce_bytes(model, len(ranks))}}
        turn = epoch % max(self.num_bins, 1)
        leaves = sum(int(r.state.bins[turn].counts.sum()) for r in ranks) if self.num_bins else 0
        pairs = len(ranks) * (len(ranks) - 1) if self.num_bins else 0
        back = self.num_bins == 1 or epoch >= self.num_bins
        for l in range(model.depth):
            if not model.exchanges(l) or (l == 0 and ranks[0].state.z0 is not None):
                continue
            width = model.widths[l + 1] if model.linear_first(l) else model.widths[l]
            found["forward"][l] = leaves * (4 * (width + 1) * (1 + back) + 4) + 8 * pairs
            if self.backward == "exact" and (l > 0 or model.linear_first(l)):
                found["backward"][l] = 8 * width * sum(int(r.part.num_mirrors) for r in ranks)
        return found


async def _labelled(rank: Rank, part: VertexPart) -> VertexPart:
    """The part with the labels of its mirrors, and all replicas of training nodes among its training rows."""
    assert part.y is not None
    plan = part.plan
    flags = torch.zeros(part.num_masters, dtype=torch.uint8, device=part.y.device)
    flags = flags.index_fill(0, part.train, 1)
    rows = [Rows(t.index_select(0, plan.send_rows), plan.send_counts, plan.recv_counts) for t in (part.y, flags)]
    found = (await rank.all_to_all(rows, label="labels")).tensors
    if rank.shapes_only:
        share = len(part.train) / max(part.num_masters, 1)
        mirrors = part.train.new_empty(round(share * part.num_mirrors))
    else:
        mirrors = torch.nonzero(found[1]).squeeze(1) + part.num_masters
    train = torch.cat([part.train, mirrors])
    count = torch.tensor([len(train)], dtype=torch.float64, device=part.y.device)
    total = await rank.all_reduce(count, label="clones of training nodes", direction="other")
    num_train = part.totals.num_train if rank.shapes_only else int(total)
    totals = replace(part.totals, num_train=num_train)
    return replace(part, y=torch.cat([part.y, found[0]]), train=train, totals=totals)
