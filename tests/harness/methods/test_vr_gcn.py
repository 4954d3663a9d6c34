"""VR-GCN: plain sampling without histories, exact with true ones and at rest, the exact layer's dropout noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from harness import loopback
from harness.conformance import adjacency, dense_forward
from harness.errors import InputError
from harness.exchanges import Memory
from harness.graphs import Graph, Part
from harness.methods.registry import parse_method
from harness.methods.vr_gcn import VRGCN, HistoryBatch, sampled_in
from harness.nn import GNN, training_loss
from harness.rank import Rank
from tests.support.conformance import make_model, make_parts
from tests.support.graphs import owners, random_graph

ESTIMATORS: tuple[Any, ...] = ("cv", "cvd")


def all_training(num_nodes: int = 40, num_edges: int = 120) -> Graph:
    graph = random_graph(num_nodes, num_edges)
    return replace(graph, train=np.arange(num_nodes), val=None, test=None)


def on_ranks(method: VRGCN, graph: Graph, model: GNN, num_parts: int, program: Any) -> list[Any]:
    parts = make_parts(graph, owners(graph, num_parts, "random"), num_parts)

    async def prepare(rank: Rank) -> Any:
        part, rank.epoch = parts[rank.index], -1
        state = await method.setup(rank, part, model)
        return await program(rank, part, state, method.remember(rank, part, model, state))

    return loopback.run_ranks(prepare, num_parts, make_rank=lambda i: Rank(i, num_parts))


async def one_batch(rank: Rank, method: VRGCN, part: Part, model: GNN, state: Any, memory: Memory) -> HistoryBatch:
    own = torch.arange(len(part.nodes))
    return await method.draw(rank, part, model, state, memory, state.neighbours.own(own), 0)


def inputs_of_layers(model: GNN, graph: Graph) -> list[Tensor]:
    """Exact rows that enter every layer, [N, d], of a model without dropout."""
    found = [torch.from_numpy(np.asarray(graph.x)).double()]
    for l, layer in enumerate(model.layers[:-1]):
        h = dense_forward(GNN([layer], model.widths[l : l + 2]), adjacency(graph), found[-1])
        found.append(model.norms[l](h).relu().detach())
    return found


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("kind", ["sage", "gcn"])
def test_zero_histories_are_plain_sampling_and_true_ones_exact(kind: str, estimator: Any) -> None:
    graph, method = all_training(), VRGCN(estimator=estimator, fanout="2")
    model = make_model(kind, graph)
    rows = inputs_of_layers(model, graph)
    exact = dense_forward(model, adjacency(graph), rows[0])

    async def program(rank: Rank, part: Part, state: Any, memory: Memory) -> None:
        rank.epoch = 0
        plain = await one_batch(rank, method, part, model, state, memory)
        for l, term in plain.terms.items():
            layer = plain.layers[l]
            assert layer is not None
            h = torch.randn_like(term.held[: layer.block.num_cols])
            assert torch.equal(term.estimate(layer, h), layer.aggregate(h))
        for l in sampled_in(model):
            memory[f"h{l}"] = rows[l][part.nodes]
        true = await one_batch(rank, method, part, model, state, memory)
        found = method.logits(rank, model, true, 0)
        assert torch.allclose(found, exact[part.nodes], rtol=0, atol=1e-12)
        assert not torch.allclose(method.logits(rank, model, plain, 0), exact[part.nodes], rtol=0, atol=1e-3)

    on_ranks(method, graph, model, 3, program)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("num_parts", [1, 3])
def test_losses_are_exact_once_weights_have_rested_for_a_pass_per_sampled_layer(num_parts: int, estimator: Any) -> None:
    graph, method = all_training(), VRGCN(estimator=estimator, batch=0)
    model = make_model("sage", graph)
    (whole,) = make_parts(graph, owners(graph, 1, "first"), 1)
    with torch.no_grad():
        logits = dense_forward(model, adjacency(graph), torch.from_numpy(np.asarray(graph.x)).double())
        exact = float(training_loss(logits, whole))

    async def program(rank: Rank, part: Part, state: Any, memory: Memory) -> list[float]:
        losses, still = [], torch.optim.SGD(model.parameters(), lr=0.0)
        for rank.epoch in range(5):
            losses.append(float(await method.epoch(rank, part, model, state, memory, still)))
        return losses

    off = [abs(loss / exact - 1) for loss in on_ranks(method, graph, model, num_parts, program)[0]]
    assert all(error > 1e-4 for error in off[:2]), off
    assert all(error < 1e-6 for error in off[2:]), off  # the loss is summed in single precision


def dropped(rows: Tensor, draws: int, share: float, seed: int) -> Tensor:
    kept = torch.rand(draws, *rows.shape, generator=torch.Generator().manual_seed(seed)) >= share
    return rows * kept / (1 - share)


@pytest.mark.parametrize("kind", ["sage", "gcn"])
def test_cvd_adds_the_variance_of_the_exact_layer_under_dropout(kind: str) -> None:
    """S_v = sum_u P_vu^2 Var h_u, the self loop's term among them, whatever was drawn; plain sampling adds Q S_v."""
    graph, method, draws = all_training(), VRGCN(estimator="cvd", fanout="2"), 4000
    model = make_model(kind, graph)

    async def program(rank: Rank, part: Part, state: Any, memory: Memory) -> None:
        noise, plain, wanted = torch.zeros(3, len(part.nodes), dtype=torch.float64)
        for rank.epoch in range(60):  # the variance of a draw is S_v in the mean over draws
            batch = await one_batch(rank, method, part, model, state, memory)
            layer, term = batch.layers[2], batch.terms[2]
            assert layer is not None and layer.weight is not None
            mean = torch.ones(layer.block.num_cols, 1, dtype=torch.float64)
            masked = dropped(mean, draws // 60, 0.5, rank.epoch)
            every = dropped(torch.ones(term.whole.block.num_cols, 1).double(), draws // 60, 0.5, rank.epoch)
            for sums, rows, function in (
                (noise, masked - mean, lambda rows: term.noise(layer, rows)),  # noqa: B023
                (plain, masked - mean, layer.aggregate),
                (wanted, every - 1, term.whole.aggregate),
            ):
                sums += torch.stack([function(each)[:, 0] for each in rows]).square().mean(0) / 60
        assert torch.allclose(noise, wanted, rtol=0.35, atol=1e-12)
        assert float(noise.sum()) == pytest.approx(float(wanted.sum()), rel=0.03)
        assert float(plain.sum()) > 1.3 * float(wanted.sum())

    on_ranks(method, graph, model, 2, program)


@pytest.mark.parametrize("kind", ["sage", "gcn"])
def test_gradients_are_those_of_the_drawn_edges_alone(kind: str) -> None:
    graph, method = all_training(), VRGCN(fanout="2")
    model = make_model(kind, graph)

    async def program(rank: Rank, part: Part, state: Any, memory: Memory) -> None:
        for l in sampled_in(model):
            memory[f"h{l}"] = torch.randn_like(memory[f"h{l}"])
        batch = await one_batch(rank, method, part, model, state, memory)
        layer, term = batch.layers[1], batch.terms[1]
        assert layer is not None
        rows = torch.randn(layer.block.num_cols, 4, dtype=torch.float64, requires_grad=True)
        upstream = torch.randn(layer.block.num_rows, 4, dtype=torch.float64)
        ours, plain = (
            torch.autograd.grad((z * upstream).sum(), [rows])[0]
            for z in (term.estimate(layer, rows), layer.aggregate(rows))
        )
        assert torch.equal(ours, plain)

    on_ranks(method, graph, model, 2, program)


def test_new_histories_reach_their_owners_and_the_owners_row_counts() -> None:
    """All ranks send a row of nearly every node; what its owner holds afterwards is its own, or the highest rank's."""
    graph, method = all_training(), VRGCN()
    model = make_model("sage", graph)
    owner = owners(graph, 3, "random")

    async def program(rank: Rank, part: Part, state: Any, memory: Memory) -> None:
        nodes = np.arange(graph.num_nodes)[rank.index != 1 :: 1 + (rank.index == 1)]  # even ones, or all but the first
        ids = (torch.from_numpy(nodes) << 16) | torch.from_numpy(owner[nodes].astype(np.int64))
        rows = (torch.from_numpy(nodes) * 10.0 + rank.index)[:, None].double()
        table = torch.full((len(part.nodes), 1), -1.0, dtype=torch.float64)
        await state.neighbours.store(rank, ids, rows, table, label="new", layer=1)
        for node, found in zip(part.nodes.tolist(), table[:, 0].tolist(), strict=True):
            senders = [r for r in range(3) if (r != 1 and node > 0) or (r == 1 and node % 2 == 0)]
            best = rank.index if rank.index in senders else max(senders, default=None)
            assert found == (-1.0 if best is None else node * 10.0 + best)

    on_ranks(method, graph, model, 3, program)


def test_what_cannot_run_is_refused() -> None:
    graph = random_graph(20, 20)
    (part,) = make_parts(graph, owners(graph, 1, "first"), 1)
    with pytest.raises(InputError, match="aggregation is linear"):
        parse_method("vr-gcn").check(make_model("gat", graph), part.totals, 1)
    with pytest.raises(InputError, match="seeds first"):
        parse_method("vr-gcn:fanout=none")
