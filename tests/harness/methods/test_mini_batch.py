"""Sampled mini-batches over an edge cut: graphsage-ns and distdgl. Steps, bytes counted from the graph, shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness import loopback
from harness.conformance import reference_gradients
from harness.errors import InputError
from harness.graphs import Graph, Part
from harness.methods.bases.base import Method, flat_gradients, set_gradients
from harness.methods.bases.mini_batch import MiniBatch
from harness.methods.distdgl import DistDGL
from harness.methods.graphsage_ns import GraphSAGENS
from harness.methods.registry import parse_method
from harness.rank import Rank
from harness.running import run
from harness.sampling import node_of
from harness.traffic import Traffic
from tests.conformance.test_drivers import config
from tests.support.conformance import make_model, make_parts
from tests.support.graphs import owners, random_graph

SHAPES = st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=4)


@given(shapes=SHAPES, absent=st.sets(st.integers(0, 3)))
def test_gradients_are_one_tensor_and_pieces_of_it(shapes: list[list[int]], absent: set[int]) -> None:
    """With a loss and a count behind; parameters without a gradient get zeros."""
    parameters = [torch.zeros(shape, requires_grad=True) for shape in shapes]
    for at, p in enumerate(parameters):
        p.grad = None if at in absent else torch.randn(p.shape)
    wanted = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in parameters]
    flat = flat_gradients(parameters, torch.tensor(2.5), torch.full((1,), 7.0))
    assert flat[-2:].tolist() == [2.5, 7.0] and torch.equal(flat[:-2], flat_gradients(parameters))
    set_gradients(parameters, flat[:-2] * 2)
    assert all(p.grad is not None and torch.equal(p.grad, 2 * w) for p, w in zip(parameters, wanted, strict=True))


def prepared(method: Method, graph: Graph, parts: list[Part], program: Any, seed: int = 0) -> list[Any]:
    """`program(rank, part, state)` after set-up, on every rank."""
    model = make_model("sage", graph)

    async def prepare(rank: Rank) -> Any:
        rank.epoch = -1
        state = await method.setup(rank, parts[rank.index], model)
        rank.traffic.take()
        return await program(rank, parts[rank.index], state)

    return loopback.run_ranks(prepare, len(parts), make_rank=lambda i: Rank(i, len(parts), seed=seed))


@pytest.mark.parametrize("method", [GraphSAGENS(batch=7), GraphSAGENS(batch=0), DistDGL(batch=7), DistDGL(batch=0)])
@pytest.mark.parametrize(("num_parts", "kind"), [(1, "first"), (3, "random"), (4, "first"), (5, "halves")])
def test_every_rank_has_as_many_steps_and_every_training_node_one(method: MiniBatch, num_parts: int, kind: str) -> None:
    graph = random_graph(60, 100)
    assert graph.train is not None

    async def program(rank: Rank, part: Part, state: Any) -> list[list[list[int]]]:
        found = []
        for rank.epoch in (0, 1):
            found.append([node_of(batch).tolist() for batch in method.batches(rank, state)])
        return found

    ranks = prepared(method, graph, make_parts(graph, owners(graph, num_parts, kind), num_parts), program)
    assert len({len(epoch) for found in ranks for epoch in found}) == 1
    for epoch in (0, 1):
        nodes = [node for found in ranks for batch in found[epoch] for node in batch]
        assert sorted(nodes) == graph.train.tolist()
    largest = max(sum(map(len, found[0])) for found in ranks)
    if method.batch:
        assert len(ranks[0][0]) == -(-largest // method.batch)
        assert all(len(batch) <= method.batch for found in ranks for batch in found[0])
        assert ranks[0][0] != ranks[0][1]  # in another order in every epoch
    if isinstance(method, DistDGL):
        shares = [sum(map(len, found[0])) for found in ranks]
        assert max(shares) - min(shares) <= 1


def test_distdgl_deals_ids_in_the_order_of_parts_and_rows() -> None:
    graph, method = random_graph(60, 100), DistDGL()
    parts = make_parts(graph, owners(graph, 4, "random"), 4)
    order = torch.cat([part.nodes[part.train] for part in parts]).tolist()

    async def program(rank: Rank, part: Part, state: Any) -> list[int]:
        nodes: list[int] = node_of(state.seeds).tolist()
        return nodes

    assert sum(prepared(method, graph, parts, program), []) == order


def hops_of(graph: Graph, seeds: np.ndarray, depth: int) -> list[np.ndarray]:
    """The nodes within 0, 1, ..., `depth` in-edges of the seeds."""
    found = [np.unique(seeds)]
    for _ in range(depth):
        lists = [graph.indices[graph.indptr[v] : graph.indptr[v + 1]] for v in found[-1]]
        found.append(np.unique(np.concatenate([found[-1], *lists])))
    return found


@pytest.mark.parametrize("kind", ["sage", "gcn"])
@pytest.mark.parametrize("name", ["graphsage-ns", "distdgl"])
def test_with_all_neighbours_bytes_are_those_of_the_graph(name: str, kind: str) -> None:
    """Counted from neighbour lists alone, rank by rank; one step with all training nodes."""
    graph, num_parts = random_graph(50, 90, features=6), 3
    owner = owners(graph, num_parts, "random")
    method, model = parse_method(f"{name}:fanout=full:batch=0"), make_model(kind, graph)
    parts = make_parts(graph, owner, num_parts)
    dealt: dict[int, list[int]] = {}

    async def program(rank: Rank, part: Part, state: Any) -> Traffic:
        rank.epoch, memory = 0, method.remember(rank, part, model, state)
        dealt[rank.index] = node_of(state.seeds).tolist()
        await method.epoch(rank, part, model, state, memory, method.optimizer(rank, model, 0.0, 0.0))
        return rank.traffic.take()

    async def prepare(rank: Rank) -> Traffic:
        rank.epoch = -1
        state = await method.setup(rank, parts[rank.index], model)
        rank.traffic.take()
        return await program(rank, parts[rank.index], state)

    found = loopback.run_ranks(prepare, num_parts, make_rank=lambda i: Rank(i, num_parts))
    pairs, dgl = num_parts * (num_parts - 1), name == "distdgl"
    wanted: dict[tuple[str, int], int] = {("forward", 0): 8 * pairs}
    for rank in range(num_parts):
        hops = hops_of(graph, np.array(dealt[rank], np.int64), 3)
        inputs = hops[3][owner[hops[3]] != rank]
        wanted["forward", 0] += (8 + 4 * 6 * 2 + 4 * (kind == "gcn")) * len(inputs)  # features in double precision
        for l, nodes in zip((2, 1, 0), hops, strict=False):
            if l == 2 and not dgl:
                continue
            away = nodes[owner[nodes] != rank]
            entries = int(graph.in_degree[away].sum())
            size = 8 * len(away) + 24 * entries if dgl else 12 * len(away) + 8 * entries
            wanted["other", l] = wanted.get(("other", l), 16 * pairs) + size
        if dgl:
            remote = hops[0][owner[hops[0]] != rank]
            wanted["other", -1] = wanted.get(("other", -1), 8 * pairs) + 16 * len(remote)
    values = sum(p.numel() for p in model.parameters()) + 2
    wanted["reduce", -1] = 8 * (num_parts - 1) * 2 * values  # in double precision
    counted: dict[tuple[str, int], int] = {}
    for traffic in found:
        for direction, layers in traffic.layers.items():
            for l, size in layers.items():
                counted[direction, l] = counted.get((direction, l), 0) + size
    assert {key: size for key, size in counted.items() if size} == wanted


@pytest.mark.parametrize("name", ["graphsage-ns", "distdgl"])
@pytest.mark.parametrize("kind", ["sage", "gcn"])
def test_steps_of_uneven_batches_add_up_to_the_gradient_of_one_process(name: str, kind: str) -> None:
    """With all neighbours and frozen weights: every step's gradients times its nodes, over all training nodes."""
    graph, num_parts = random_graph(50, 90), 3
    method, model = parse_method(f"{name}:fanout=full:batch=4"), make_model(kind, graph)
    assert isinstance(method, MiniBatch)
    parts = make_parts(graph, np.minimum(owners(graph, 6, "hash"), 2), num_parts)  # two thirds on the last rank

    async def program(rank: Rank) -> tuple[float, list[list[torch.Tensor]], list[int]]:
        part, mine, rank.epoch = parts[rank.index], make_model(kind, graph), -1
        state, found = await method.setup(rank, part, mine), []

        class Noting(torch.optim.Optimizer):
            def step(self, closure: Any = None) -> None:  # type: ignore[override]
                found.append([torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in mine.parameters()])

        rank.epoch = 0
        loss = await method.epoch(rank, part, mine, state, {}, Noting(mine.parameters(), {}))
        return float(loss), found, [len(batch) for batch in method.batches(rank, state)]

    ranks = loopback.run_ranks(program, num_parts, make_rank=lambda i: Rank(i, num_parts))
    sizes, (loss, wanted) = np.sum([each[2] for each in ranks], axis=0), reference_gradients(model, graph)
    assert ranks[0][0] == pytest.approx(loss, rel=1e-6)
    for each in ranks:
        summed = [sum(s * g for s, g in zip(sizes, steps, strict=True)) for steps in zip(*each[1], strict=True)]
        for ours, theirs in zip(summed, wanted, strict=True):
            assert torch.allclose(ours / sizes.sum(), theirs, rtol=0, atol=1e-10)
    assert name == "distdgl" or 0 in ranks[0][2]  # the first rank ran out of nodes


@pytest.mark.parametrize("text", ["graphsage-ns:fanout=3:batch=20", "distdgl:fanout=3:batch=20", "vr-gcn:batch=20"])
def test_shapes_take_their_rates_from_a_recorded_run(text: str, tmp_path: Path) -> None:
    settings = {"method": text, "mode": "sim", "cluster": "ethernet-1g", "epochs": 6, "model": "gcn"}
    real = run(config(**settings))  # type: ignore[arg-type]
    shapes = run(config(**settings, shapes_only=True, rates=str(real.save(tmp_path))))  # type: ignore[arg-type]
    for key in ("forward", "other"):
        ours, theirs = (np.mean([np.sum(e["bytes"][key]) for e in r.epochs[1:]]) for r in (shapes, real))
        assert ours == pytest.approx(theirs, rel=0.03), key
    assert shapes.epochs[1]["bytes"]["reduce"] == real.epochs[1]["bytes"]["reduce"]
    ours, theirs = (r.epochs[-1]["seconds"] for r in (shapes, real))
    assert ours["sample"] == pytest.approx(theirs["sample"], rel=0.1) and ours["sample"] > 0
    assert ours["epoch"] == pytest.approx(theirs["epoch"], rel=0.1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graphsage-ns:fanout=0", "positive numbers or full, seeds first"),
        ("graphsage-ns:fanout=5,5", "positive numbers or full, seeds first"),
        ("distdgl:batch=-1", "batch must be 0 .all training nodes. or more, not -1"),
    ],
)
def test_bad_options_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_method(text)


def test_fan_outs_must_fit_the_model() -> None:
    graph = random_graph(20, 20)
    (part,) = make_parts(graph, owners(graph, 1, "first"), 1)
    with pytest.raises(InputError, match="fanout=5/5 is for 2 layers, the model has 3 that read any"):
        parse_method("graphsage-ns:fanout=5/5").check(make_model("sage", graph), part.totals, 1)
