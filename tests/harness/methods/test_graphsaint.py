"""GraphSAINT: its normalisers make aggregation and loss unbiased, and what is left without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from harness import loopback
from harness.conformance import adjacency
from harness.errors import InputError
from harness.methods.graphsaint import GraphSAINT, SaintState
from harness.methods.registry import parse_method
from harness.nn import GNN
from harness.rank import Rank
from harness.running import run
from harness.sampling import SampledBatch
from tests.conformance.test_drivers import config
from tests.support.conformance import make_model, make_parts
from tests.support.graphs import random_graph

GRAPH = random_graph(60, 150, seed=1)
(WHOLE,) = make_parts(GRAPH, np.zeros(60, np.int32), 1)
SAMPLERS = ["sampler=node:size=12", "sampler=edge:size=6", "sampler=rw:size=5:depth=2",
            "sampler=mrw:size=12:frontier=4"]  # fmt: skip


def drawn(method: GraphSAINT, model: GNN, numbers: range) -> tuple[SaintState, list[SampledBatch]]:
    """The subgraphs of these numbers, drawn on one rank in epochs of as many steps as the method has."""

    async def program(rank: Rank) -> Any:
        rank.epoch = -1
        state, found = await method.setup(rank, WHOLE, model), []
        for rank.epoch in range(numbers.stop // state.own_steps + 1):
            for at, seeds in enumerate(method.batches(rank, state)):
                if int(seeds) in numbers:
                    found.append(await method.draw(rank, WHOLE, model, state, {}, seeds, at))
        return state, found

    ((state, found),) = loopback.run_ranks(program, 1)
    return state, found


def method_of(options: str, coverage: float) -> GraphSAINT:
    method = parse_method(f"graphsaint:{options}:coverage={coverage}")
    assert isinstance(method, GraphSAINT)
    return method


def counted(method: GraphSAINT, model: GNN) -> int:
    """How many subgraphs are counted before training."""
    sizes = [len(batch.x) for batch in drawn(method, model, range(3000))[1]]
    enough = np.cumsum(sizes) > method.coverage * len(WHOLE.train)
    assert enough[-1]
    return int(np.argmax(enough)) + 1


def dense_rows(batch: SampledBatch) -> Tensor:
    """The first layer's matrix with columns of all nodes, [batch, 60]."""
    nodes, layer = batch.nodes[0], batch.layers[0]
    assert layer is not None
    found = torch.zeros(len(nodes), 60, dtype=torch.float64)
    found[:, nodes] = layer.aggregate(torch.eye(len(nodes), dtype=torch.float64))
    return found


def exact_rows(kind: str) -> Tensor:
    """P of the whole graph, [60, 60]."""
    a = adjacency(GRAPH)
    degree = a.sum(1)
    if kind == "sage":
        return a / degree.clamp(min=1)[:, None]
    scale = (degree + 1).rsqrt()
    return scale[:, None] * (a + torch.eye(60)) * scale


@pytest.mark.parametrize("kind", ["sage", "gcn"])
@pytest.mark.parametrize("options", SAMPLERS)
def test_over_the_subgraphs_that_were_counted_the_mean_is_exact(options: str, kind: str) -> None:
    """Of the subgraphs that hold v, the mean sum is P's row v, and the mean loss is the full one: C_v / C_vu is what
    makes it so. These subgraphs are the first that are trained on."""
    method, model = method_of(options, 40.0), make_model(kind, GRAPH)
    many = counted(method, model)
    state, batches = drawn(method, model, range(many))
    total, times, loss = torch.zeros(60, 60, dtype=torch.float64), torch.zeros(60), torch.zeros(60).double()
    kept = torch.zeros(60, 60, dtype=torch.bool)
    for batch in batches:
        nodes = batch.nodes[0]
        total[nodes] += dense_rows(batch)
        times[nodes] += 1
        kept[nodes[:, None], nodes[None, :]] = True
        assert batch.rows is not None and batch.weight is not None
        loss[nodes[batch.rows]] += batch.weight
        assert batch.count == len(WHOLE.train)
    exact = exact_rows(kind)
    seen = (times > 0) & ((exact == 0) | kept).all(1)  # nodes all of whose edges were in a subgraph
    assert seen.sum() > 30
    assert torch.allclose(total[seen] / times[seen, None], exact[seen], atol=1e-12)
    trained = WHOLE.train[times[WHOLE.train] > 0]
    assert torch.allclose(loss[trained] / many, torch.ones(len(trained)).double(), atol=1e-12)


def test_over_fresh_subgraphs_the_mean_is_near() -> None:
    """With many counted subgraphs, subgraphs that were not counted have the same mean, within 4 standard errors."""
    method, model = method_of(SAMPLERS[0], 500.0), make_model("sage", GRAPH)
    many = counted(method, model)
    _, batches = drawn(method, model, range(many, 2 * many))
    x = torch.randn(60, generator=torch.Generator().manual_seed(0)).double()
    sums: list[list[float]] = [[] for _ in range(60)]
    for batch in batches:
        for v, z in zip(batch.nodes[0].tolist(), (dense_rows(batch) @ x).tolist(), strict=True):
            sums[v].append(z)
    exact, off = exact_rows("sage") @ x, []
    for v, found in enumerate(sums):
        if len(found) > 100:
            error = np.std(found, ddof=1) * (2 / len(found)) ** 0.5  # the counted half has an error of its own
            off.append(abs(np.mean(found) - float(exact[v])) / error)
    assert len(off) > 30 and max(off) < 4


def test_without_normalisers_a_batch_is_a_graph_of_its_own() -> None:
    method, model = method_of(SAMPLERS[0], 0.0), make_model("sage", GRAPH)
    state, batches = drawn(method, model, range(4))
    assert state.loss is None and not state.layers
    for batch in batches:
        layer = batch.layers[0]
        assert layer is not None and layer.weight is None and batch.weight is None and batch.count is None
        a = adjacency(GRAPH)[batch.nodes[0]][:, batch.nodes[0]]
        assert torch.equal(layer.graph().degree, a.sum(1).long())


@pytest.mark.parametrize(
    ("options", "steps"),
    [("sampler=node:size=10", 4), ("sampler=edge:size=10", 2), ("sampler=rw:size=3:depth=4", 3),
     ("sampler=mrw:size=36", 1)],
)  # fmt: skip
def test_an_epoch_has_as_many_steps_as_budgets(options: str, steps: int) -> None:
    assert len(WHOLE.train) == 36
    assert drawn(method_of(options, 1.0), make_model("sage", GRAPH), range(1))[0].own_steps == steps


def test_sizes_default_to_those_of_reddit() -> None:
    sizes = {kind: GraphSAINT(sampler=kind).draws.size for kind in ("node", "edge", "rw", "mrw")}  # type: ignore[arg-type]
    assert sizes == {"node": 8000, "edge": 6000, "rw": 2000, "mrw": 8000}


def test_shapes_alone_take_their_sizes_from_a_recorded_run(tmp_path: Path) -> None:
    given = config("graphsaint:size=40:coverage=5", mode="sim", cluster="ethernet-1g", eval_every=-1)
    numbers = run(given)
    assert set(numbers.epochs[-1]["observed"]) == {"subgraph_nodes", "subgraph_edges", "subgraph_train"}
    shapes = run(given.changed(shapes_only=True, rates=str(numbers.save(tmp_path))))
    ours, theirs = shapes.epochs[-1], numbers.epochs[-1]
    assert ours["bytes"] == theirs["bytes"] and ours["loss"] is None
    assert ours["seconds"]["compute"] == pytest.approx(theirs["seconds"]["compute"], rel=0.1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graphsaint:size=-1", "size and clip must be 0 or more"),
        ("graphsaint:sampler=rw:depth=0", "depth and frontier 1 or more"),
        ("graphsaint:coverage=-1", "coverage must be 0"),
        ("graphsaint:depth=3", "depth changes nothing with sampler=node"),
        ("graphsaint:sampler=rw:clip=3", "clip changes nothing with sampler=rw"),
    ],
)
def test_options_that_do_not_fit_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_method(text)


def test_normalisers_need_a_sum() -> None:
    with pytest.raises(InputError, match="coverage above 0 weighs sums over neighbours, and attention has none"):
        run(config("graphsaint", model="gat"))
