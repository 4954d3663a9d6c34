"""Cluster-GCN: every cluster once an epoch, the normalisation of its batches, and evaluation with the same sums."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from harness import loopback
from harness.conformance import adjacency
from harness.errors import InputError
from harness.graphs import Part
from harness.methods.bases.self_weighted import SelfWeighted
from harness.methods.cluster_gcn import ClusterGCN
from harness.methods.registry import parse_method
from harness.nn import GNN
from harness.rank import Rank
from harness.running import run
from harness.sampling import SampledBatch
from harness.tape import Tape
from tests.conformance.test_drivers import config
from tests.support.conformance import make_model, make_parts, step
from tests.support.graphs import owners, random_graph

GRAPH = random_graph(90, 400, seed=4)


def batches_of(method: Any, parts: Sequence[Part], model: GNN, epochs: int = 1) -> list[list[SampledBatch]]:
    """By rank, the batches of all steps of all epochs."""

    async def program(rank: Rank) -> list[SampledBatch]:
        part, found = parts[rank.index], []
        rank.epoch = -1
        state = await method.setup(rank, part, model)
        for rank.epoch in range(epochs):
            for at, seeds in enumerate(method.batches(rank, state)):
                found.append(await method.draw(rank, part, model, state, {}, seeds, at))
        return found

    return loopback.run_ranks(program, len(parts))


@pytest.mark.parametrize("num_parts", [1, 3, 5])
def test_every_training_node_is_in_one_batch_of_an_epoch(num_parts: int) -> None:
    parts = make_parts(GRAPH, owners(GRAPH, num_parts, "random"), num_parts)
    found = batches_of(ClusterGCN(clusters=20, batch=3), parts, make_model("sage", GRAPH))
    assert len({len(mine) for mine in found}) == 1  # as many steps on every rank
    trained = [batch.nodes[0][batch.rows] for mine in found for batch in mine if batch.rows is not None]
    assert sorted(torch.cat(trained).tolist()) == GRAPH.train.tolist()  # type: ignore[union-attr]
    held = torch.cat([batch.nodes[0] for mine in found for batch in mine])
    assert sorted(held.tolist()) == list(range(90))


def test_another_epoch_groups_the_same_clusters_in_another_way() -> None:
    (found,) = batches_of(ClusterGCN(clusters=10, batch=2), make_parts(GRAPH, np.zeros(90, np.int32), 1),
                          make_model("sage", GRAPH), epochs=2)  # fmt: skip
    first, second = ({frozenset(b.nodes[0].tolist()) for b in found[at : at + 5]} for at in (0, 5))
    assert first != second
    singles = [frozenset(a & b) for a in first for b in second if a & b]
    assert len(singles) <= 10 and sorted(len(s) for s in singles)[-1] > 1  # they meet in whole clusters


@pytest.mark.parametrize("kind", ["gcn", "sage", "gat"])
def test_all_clusters_at_once_are_full_batch_training_bit_for_bit(kind: str) -> None:
    parts = make_parts(GRAPH, np.zeros(90, np.int32), 1)
    model = make_model(kind, GRAPH, order="aggregate-first")
    ours, theirs = (
        step(parse_method(text), model, parts) for text in ("cluster-gcn:batch=0", "single:layer0=exchange")
    )
    assert ours[0] == theirs[0]
    assert all(torch.equal(a, b) for a, b in zip(ours[1], theirs[1], strict=True))


def dense(layer: Any, count: int) -> Tensor:
    """The matrix of a weighted layer."""
    return layer.aggregate(torch.eye(count, dtype=torch.float64))  # type: ignore[no-any-return]


@pytest.mark.parametrize("diagonal", [-1.0, 0.0, 1e-4, 1.0])
def test_batches_are_normalised_as_the_paper_says(diagonal: float) -> None:
    """D^-1 (A + I) + lambda diag(D^-1 (A + I)) with the degrees of the batch; -1 is D^-1 A."""
    method = ClusterGCN(clusters=20, batch=4, norm="enhanced", diagonal=diagonal)
    (found,) = batches_of(method, make_parts(GRAPH, np.zeros(90, np.int32), 1), make_model("gcn", GRAPH))
    whole, cut = adjacency(GRAPH), 0
    for batch in found:
        nodes = batch.nodes[0]
        a = whole[nodes][:, nodes]
        cut += int(whole[nodes].sum() - a.sum())
        degree = a.sum(1)
        if diagonal == -1.0:
            wanted = a / degree.clamp(min=1)[:, None]
        else:
            looped = (a + torch.eye(len(nodes))) / (degree + 1)[:, None]
            assert torch.allclose(looped.sum(1), torch.ones(len(nodes), dtype=torch.float64))
            wanted = looped + diagonal * torch.diag(looped.diagonal())
        assert torch.allclose(dense(batch.layers[0], len(nodes)), wanted, atol=1e-15)
    assert cut > 0  # batch degrees are not those of the graph


def logits_of(method: Any, model: GNN, parts: Sequence[Part]) -> Tensor:
    """Logits of all nodes, [N, C]."""

    async def program(rank: Rank) -> Tensor:
        part = parts[rank.index]
        state = await method.setup(rank, part, model)
        return await method.forward(rank, part, model, state, {}, Tape(rank))  # type: ignore[no-any-return]

    with torch.no_grad():
        found = loopback.run_ranks(program, len(parts))
    out = torch.empty(90, GRAPH.num_classes, dtype=torch.float64)
    for part, mine in zip(parts, found, strict=True):
        out[part.nodes] = mine
    return out


@pytest.mark.parametrize("kind", ["gcn", "sage"])
@pytest.mark.parametrize("num_parts", [1, 3])
def test_it_is_evaluated_on_the_whole_graph_with_the_same_sums(kind: str, num_parts: int) -> None:
    method = ClusterGCN(norm="enhanced", diagonal=0.5, batch=0)
    exact, model = method.exact(), make_model(kind, GRAPH).eval()
    one = make_parts(GRAPH, np.zeros(90, np.int32), 1)
    found = logits_of(exact, model, make_parts(GRAPH, owners(GRAPH, num_parts, "random"), num_parts))
    assert torch.allclose(found, logits_of(method, model, one), atol=1e-12)  # one batch of all clusters
    assert not torch.allclose(found, logits_of(parse_method("vanilla"), model, one), atol=1e-3)
    assert ClusterGCN().exact() is None


def test_plain_sums_are_those_of_the_adjacency() -> None:
    model = make_model("gcn", GRAPH, layers=1).eval()
    (layer,), a = model.layers, adjacency(GRAPH)
    parts = make_parts(GRAPH, owners(GRAPH, 3, "random"), 3)
    x = torch.from_numpy(np.asarray(GRAPH.x)).double()
    wanted = (a + 2 * torch.eye(90)) @ x @ layer.weight + layer.bias
    assert torch.allclose(logits_of(SelfWeighted(own=2.0), model, parts), wanted, atol=1e-12)  # type: ignore[arg-type]


def test_shapes_alone_take_their_sizes_from_a_recorded_run(tmp_path: Path) -> None:
    """Equal bytes, and compute within what rounding the sizes of small batches leaves."""
    sampled = config("cluster-gcn:clusters=30:batch=4", mode="sim", cluster="ethernet-1g", eval_every=-1)
    numbers = run(sampled)
    assert numbers.epochs[-1]["observed"]["batch_edges"] < 1
    shapes = run(sampled.changed(shapes_only=True, rates=str(numbers.save(tmp_path))))
    ours, theirs = shapes.epochs[-1], numbers.epochs[-1]
    assert ours["bytes"] == theirs["bytes"] and ours["loss"] is None
    assert ours["seconds"]["compute"] == pytest.approx(theirs["seconds"]["compute"], rel=0.1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cluster-gcn:clusters=0", "clusters must be 1 or more"),
        ("cluster-gcn:batch=-1", "batch must be 0"),
        ("cluster-gcn:norm=enhanced:diagonal=-2", "diagonal must be -1"),
        ("cluster-gcn:diagonal=1", "diagonal changes nothing with norm=model"),
    ],
)
def test_options_that_do_not_fit_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_method(text)


def test_attention_has_no_enhanced_diagonal() -> None:
    with pytest.raises(InputError, match="norm=enhanced weighs sums over neighbours, and attention has none"):
        run(config("cluster-gcn:norm=enhanced", model="gat"))
