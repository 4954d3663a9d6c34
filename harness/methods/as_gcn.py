"""AS-GCN: layer-wise draws whose probabilities are learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.errors import InputError
from harness.exchanges import Memory
from harness.graphs import Part
from harness.methods.bases.base import Facts, Seen, WireBytes
from harness.methods.bases.layer_wise import EVERY_NODE, LayerWise, LayerWiseState, draw_near
from harness.methods.bases.mini_batch import BatchState, total_observed
from harness.nn import GNN
from harness.rank import Rank
from harness.sampling import MatrixRows, SampledBatch, SampledLayer

BETAS, EPSILON = (0.9, 0.999), 1e-8  # of Adam on the sampler's weights


@dataclass(frozen=True, eq=False)
class LearnedDraw:
    """What one layer drew, and from what.

    Attributes:
        ids: int64 [n], addresses of the candidates, on the host like all of it.
        squares, scores, q: float64 [n]: squared column norms, w x_u, and normalised probabilities.
        places, factors: positions of the drawn, and what their columns were multiplied by.
    """

    ids: Tensor
    squares: Tensor
    scores: Tensor
    q: Tensor
    places: Tensor
    factors: Tensor

    def gradient(self, rows: Tensor, count: int) -> Tensor:
        """Gradient of the variance of the sum over `count` draws with respect to the scores, float64 [n].

        The variance is (1 / count) sum over u of |P_u|^2 |y_u|^2 / q_u less what does not depend on q. The drawn nodes,
        of which `rows` [k, d] are the y, estimate it and its gradient without bias.
        """
        lengths = rows.detach().double().square().sum(1).to(self.q.device)
        drawn = self.q.index_select(0, self.places)
        terms = self.factors * self.squares.index_select(0, self.places) * lengths / (count * drawn)
        by_candidate = torch.zeros_like(self.q).index_copy_(0, self.places, terms)
        slope = (self.scores > 0) / (1 + self.scores.clamp(min=0))  # of log(1 + max(score, 0))
        return slope * (self.q * terms.sum() - by_candidate)


@dataclass(frozen=True, eq=False)
class LearnedBatch(SampledBatch):
    """A batch with the draw of its last layer.

    Attributes:
        last: that draw.
        layer: its number.
        aggregated: the rows that this layer read; filled in by the forward pass.
    """

    last: LearnedDraw | None = None
    layer: int = -1
    aggregated: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ASGCN(LayerWise):
    """Adaptive sampling (Huang et al.), data-parallel over an edge cut: draws as in LADIES by learned probabilities.

    From the batch downwards, every layer draws nodes among the neighbours of its destinations S, with q_u in proportion
    to |P_{S,u}| (1 + max(w x_u, 0)), x_u the input features, and weighs column u by 1 / (nodes q_u) for every time it
    was drawn: the aggregation is unbiased, with any w. After a step, w follows, by Adam, the gradient of the last
    layer's variance, (1 / nodes) sum over u of |P_{S,u}|^2 |h_u|^2 / q_u, estimated on the drawn nodes and divided by
    the batch. It passes through q; the model's weights follow the cross entropy alone. w starts at random values.

    Left out: the attention between a node and its neighbours of the authors' code (the paper's plain form has none),
    whose gradient is the only one that its sampler gets; skip connections; repeated draws that count once; lists cut to
    32 neighbours. Memory: w and Adam's two moments.

    Bytes per step over P ranks: lists as in ladies, 12 T_l + 8 E_l + 16 P (P - 1) for all layers l but the last; for
    the scores of C_l remote candidates of layer l, 12 C_l + 8 P (P - 1); for the gradients of those of the last layer,
    16 C + 16 P (P - 1). Then, for the U remote input rows, (8 + 4 F) U + 8 P (P - 1) forward at layer 0, and two
    all-reduces, 8 (P - 1) (parameters + 2) and 8 (P - 1) (F + 1).

    Observed: `empty_rows`, the share of destinations without any drawn neighbour, by layer.

    In brief:
        travels: whole lists of remote destinations, scores of remote candidates and their gradients, and the drawn
            nodes' features
        bytes: a step: 12 T + 8 E + 12 C a layer (T destinations, E entries, C candidates), 16 C of the last, (8 + 4 F)
            U for U input rows, all remote, and 8 (P - 1) (parameters + F + 3)
        memory: the drawn rows of one batch; of a gcn, 12 bytes of every node of the graph; w and two moments, 12 F

    Options:
        nodes: drawn for each layer on each rank. The authors' scripts have 128, for Cora and Pubmed.
        rate: learning rate of w.
    """

    batch: int = 256
    nodes: int = 128
    rate: float = 0.001

    name = "as-gcn"
    facts = Facts(
        cut="edge", exact=False, lossy=True, unbiased=True,
        exact_when={"nodes": EVERY_NODE, "sampling": "poisson", "batch": 0},
        vanishes_with={"nodes": EVERY_NODE, "sampling": "poisson", "batch": 0},
        paper="AS-GCN, Sec. 4, compared in BNS-GCN",
    )  # fmt: skip

    def validate(self) -> None:
        super().validate()
        if not self.rate >= 0:
            raise InputError(f"{self.name}: rate must not be negative, is {self.rate}")

    def remember(self, rank: Rank, part: Part, model: GNN, state: Any) -> Memory:
        width = model.widths[0]
        if rank.shapes_only:
            start = torch.empty(width, device="meta")
        else:
            key = rank.key("sampler", per_rank=False)
            values = np.random.Generator(np.random.Philox(key)).standard_normal(width) / max(width, 1) ** 0.5
            start = torch.from_numpy(values).float().to(rank.device)
        return {
            "w": start,
            "first": torch.zeros_like(start),
            "second": torch.zeros_like(start),
            "steps": start.new_zeros(()),
        }

    async def draw(
        self, rank: Rank, part: Part, model: GNN, state: BatchState, memory: Memory, seeds: Tensor, step: int
    ) -> LearnedBatch:
        assert part.x is not None and isinstance(state, LayerWiseState)
        scores, drawn = part.x @ memory["w"].to(part.x.dtype), dict[int, LearnedDraw]()

        async def choose(rows: MatrixRows, l: int) -> tuple[Tensor, Tensor]:
            (found,) = await state.neighbours.fetch(
                rank, rows.ids, [scores], label="scores", direction="other", layer=l
            )
            score, squares = (found if found.is_meta else found.cpu()).double(), rows.squares()
            q = squares.sqrt() * (1 + score.clamp(min=0))
            q = q / q.sum().clamp(min=1e-300)
            places, factors = rows.draw(rank, q, self.nodes, self.sampling, rank.key(f"columns/{step}", l), l)
            drawn[l] = LearnedDraw(rows.ids, squares, score, q, places, factors)
            return places, factors

        batch = await draw_near(rank, part, model, state, seeds, choose, "none")
        last = max(drawn, default=-1)
        return LearnedBatch(**vars(batch), last=drawn.get(last), layer=last)

    def aggregate(self, l: int, model: GNN, batch: SampledBatch, layer: SampledLayer, rows: Tensor) -> Tensor:
        """As of all batches; the rows of the last layer are kept for `after_step`."""
        assert isinstance(batch, LearnedBatch)
        if l == batch.layer:
            batch.aggregated.append(rows.detach())
        return super().aggregate(l, model, batch, layer, rows)

    async def after_step(
        self, rank: Rank, part: Part, model: GNN, state: Any, memory: Memory, batch: SampledBatch
    ) -> None:
        """One step of Adam on w along the gradient of the last layer's variance, over all ranks."""
        assert isinstance(batch, LearnedBatch) and part.x is not None
        last = batch.last
        if last is None:
            return
        gradient = torch.zeros_like(last.q)
        if batch.aggregated:
            leading = len(batch.y) if model.reads_own(batch.layer) else 0
            rows = batch.aggregated[0]
            drawn = _sources(last.places, leading).to(rows.device)  # from the host
            gradient = last.gradient(rows.index_select(0, drawn), self.nodes)
        found = await state.neighbours.add(
            rank, last.ids, gradient.to(rank.device), label="score gradients", layer=batch.layer
        )
        mine = (found[:, None] * part.x.double()).sum(0).float()
        flat = await rank.all_reduce(torch.cat([mine, mine.new_full((1,), len(batch.y))]), label="sampler")
        _adam(memory, flat[:-1] / flat[-1].clamp(min=1), self.rate)

    def wire_bytes(self, model: GNN, ranks: Sequence[Seen], epoch: int) -> WireBytes:
        """The docstring's formula for the nodes that were drawn."""
        found, peers, steps = self.list_bytes(model, ranks), len(ranks) - 1, ranks[0].state.steps
        pairs, layers = len(ranks) * peers * steps, [l for l in range(model.depth) if model.exchanges(l)]
        for l in layers:
            scores = 12 * total_observed(ranks, f"remote_scores/{l}") + 8 * pairs
            found["other"][l] = found["other"].get(l, 0) + scores
        for l in layers[-1:]:
            found["other"][l] += 16 * total_observed(ranks, f"remote_score gradients/{l}") + 16 * pairs
            found["reduce"][-1] += 8 * peers * (model.widths[0] + 1) * steps
        return found


def _sources(places: Tensor, leading: int) -> Tensor:
    """Positions of drawn columns among a layer's sources, of which the first `leading` are the destinations."""
    if not leading:
        return torch.arange(len(places), device=places.device)
    after = (places >= leading).cumsum(0) + leading - 1
    return torch.where(places < leading, places, after)


def _adam(memory: Memory, gradient: Tensor, rate: float) -> None:
    """Replace w and its moments by those of the next step."""
    steps = memory["steps"] + 1
    first = BETAS[0] * memory["first"] + (1 - BETAS[0]) * gradient
    second = BETAS[1] * memory["second"] + (1 - BETAS[1]) * gradient.square()
    size = (second / (1 - BETAS[1] ** steps)).sqrt() + EPSILON
    step = rate * first / (1 - BETAS[0] ** steps) / size
    memory.update({"w": memory["w"] - step, "first": first, "second": second, "steps": steps})
