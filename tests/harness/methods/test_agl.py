"""AGL and AliGraph-FG: what is kept, what is computed, and what travels after the set-up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from harness import loopback
from harness.conformance._ground import graph_totals
from harness.errors import InputError
from harness.graphs import Graph, Part
from harness.methods.bases.stored_batches import StoredState
from harness.methods.registry import parse_method
from harness.nn import GNN, Dense
from harness.rank import Rank
from harness.running import run
from harness.sampling import SampledBatch
from harness.tape import Tape
from tests.conformance.test_drivers import config
from tests.support.conformance import make_model, make_parts, step
from tests.support.graphs import owners, random_graph

GRAPH = random_graph(90, 400, seed=4)


def parts_of(graph: Graph, num_parts: int) -> list[Part]:
    return make_parts(graph, owners(graph, num_parts, "random"), num_parts)


def drawn(
    text: str, model: GNN, parts: Sequence[Part], epochs: int = 1
) -> list[tuple[StoredState, list[SampledBatch], Rank]]:
    """By rank: its state, the batches of all epochs, and the rank."""
    method: Any = parse_method(text)

    async def program(rank: Rank) -> Any:
        part, found = parts[rank.index], list[SampledBatch]()
        rank.epoch = -1
        state = await method.setup(rank, part, model)
        for rank.epoch in range(epochs):
            rank.traffic.take()
            for at, seeds in enumerate(method.batches(rank, state)):
                found.append(await method.draw(rank, part, model, state, {}, seeds, at))
        return state, found, rank

    return loopback.run_ranks(program, len(parts))


def edges_by_node(batches: Sequence[SampledBatch]) -> dict[int, set[frozenset[int]]]:
    """The sets of sources that each node has as a destination of any layer."""
    found: dict[int, set[frozenset[int]]] = {}
    for batch in batches:
        for layer, names in zip(batch.layers, batch.nodes, strict=True):
            assert layer is not None
            starts, columns = layer.block.indptr.tolist(), names[layer.block.indices.long()].tolist()
            for row, name in enumerate(names[: layer.block.num_rows].tolist()):
                found.setdefault(name, set()).add(frozenset(columns[starts[row] : starts[row + 1]]))
    return found


@pytest.mark.parametrize("text", ["agl:batch=0:fanout=full", "agl:batch=0:fanout=full:prune=false",
                                  "aligraph-fg:fanout=full:norm=model",
                                  "aligraph-fg:fanout=full:norm=model:merge=true"])  # fmt: skip
@pytest.mark.parametrize("kind", ["gcn", "sage", "gat"])
def test_with_all_neighbours_and_all_nodes_gradients_are_those_of_one_process(text: str, kind: str) -> None:
    graph = random_graph(40, 60, seed=3)
    model = make_model(kind, graph)
    exact = step(parse_method("single"), model, make_parts(graph, np.zeros(40, np.int32), 1))
    for num_parts in (1, 3):
        loss, gradients, traffic = step(parse_method(text), model, parts_of(graph, num_parts))
        assert loss == pytest.approx(exact[0], rel=1e-12)
        assert all(torch.allclose(a, b, rtol=1e-10, atol=1e-12) for a, b in zip(gradients, exact[1], strict=True))
        assert not any(seen.to.any() for seen in traffic)


@pytest.mark.parametrize("kind", ["gcn", "gat"])
def test_pruning_computes_fewer_edges_and_the_same(kind: str) -> None:
    model, parts = make_model(kind, GRAPH), parts_of(GRAPH, 2)
    texts = [f"agl:fanout=4/3/2:batch=0:prune={prune}" for prune in ("true", "false")]
    pruned, whole = (step(parse_method(text), model, parts) for text in texts)
    assert pruned[0] == pytest.approx(whole[0], rel=1e-12)
    assert all(torch.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(pruned[1], whole[1], strict=True))
    few, many = ([b for _, bs, _ in drawn(text, model, parts) for b in bs] for text in texts)
    sums = [sum(layer.block.nnz for b in bs for layer in b.layers if layer is not None) for bs in (few, many)]
    assert sums[0] < 0.8 * sums[1]


def test_a_node_keeps_its_neighbours_for_all_epochs_batches_and_partitions() -> None:
    """One list per node and hop, the list of a later hop a part of an earlier one's, whatever the parts."""
    model, kept = make_model("sage", GRAPH), dict[int, set[frozenset[int]]]()
    for num_parts, batch in ((1, 7), (3, 20), (4, 0)):
        for _, batches, _ in drawn(f"agl:fanout=6/4/2:batch={batch}", model, parts_of(GRAPH, num_parts), epochs=2):
            for name, lists in edges_by_node(batches).items():
                kept.setdefault(name, set()).update(lists)
    assert len(kept) == 90 and max(map(len, kept.values())) == 3
    for name, lists in kept.items():
        ascending = sorted(lists, key=len)
        assert all(a < b for a, b in zip(ascending, ascending[1:], strict=False))
        near = GRAPH.indices[GRAPH.indptr[name] : GRAPH.indptr[name + 1]]
        assert ascending[-1] <= set(near.tolist())
        assert {len(found) for found in lists} <= {min(len(near), f) for f in (6, 4, 2)}


def test_another_epoch_has_other_batches_of_the_same_nodes() -> None:
    ((_, batches, _),) = drawn("agl:fanout=3:batch=10", make_model("sage", GRAPH), parts_of(GRAPH, 1), epochs=2)
    first, second = (
        [frozenset(b.nodes[0][: len(b.y)].tolist()) for b in batches[at : at + 6]] for at in (0, 6)
    )  # fmt: skip
    assert first != second and frozenset().union(*first) == frozenset(GRAPH.train.tolist())  # type: ignore[union-attr]


def test_bytes_read_from_disk_are_those_of_every_neighbourhood_alone() -> None:
    """4 F + 8 for each node and 16 for each edge of a neighbourhood, by breadth-first search."""
    model, parts = make_model("sage", GRAPH), parts_of(GRAPH, 3)
    ranks = drawn("agl:fanout=full:batch=0", model, parts)
    lists_of = edges_by_node([batch for _, batches, _ in ranks for batch in batches])
    kept = {name: sorted(lists, key=len, reverse=True) for name, lists in lists_of.items()}
    for (state, _, rank), part in zip(ranks, parts, strict=True):
        for seed, found in zip(part.nodes[part.train].tolist(), state.disk.tolist(), strict=True):  # type: ignore[union-attr]
            reached, edges, level = {seed}, 0, {seed}
            for _ in range(3):
                edges += sum(len(kept[v][0]) for v in level)
                level = {u for v in level for u in kept[v][0]} - reached
                reached |= level
            assert found == len(reached) * (4 * 5 + 8) + edges * 16
        seen = rank.take_observed()["disk_bytes"]
        assert seen == [float(state.disk.sum()), float(len(part.train))]  # type: ignore[union-attr]
    assert all(state.disk is None for state, _, _ in drawn("agl:io=hidden", model, parts))


def test_prepared_bytes_are_those_that_were_counted() -> None:
    """What the set-up sends and receives, but for the counts of rows and the steps: 8 bytes for each pair of ranks."""
    model, parts = make_model("sage", GRAPH), parts_of(GRAPH, 3)
    method: Any = parse_method("agl:fanout=4/3/2")

    async def program(rank: Rank) -> tuple[float, int]:
        state = await method.setup(rank, parts[rank.index], model)
        sent = int(rank.traffic.take().to.sum())
        return method.measures(parts[rank.index], model, state)["prepared_bytes"], sent

    found = loopback.run_ranks(program, 3)
    pairs = 3 * 2
    counts = 8 * pairs * (2 * 3 + 1 + 1)  # of two exchanges a hop, one for rows, one for the steps
    assert sum(asked for asked, _ in found) + counts == sum(sent for _, sent in found)


def test_trees_have_a_row_for_every_path() -> None:
    """Hop k has nodes x fan-outs of the first k hops rows where no node has fewer neighbours; merged, each once."""
    graph = random_graph(50, 600, seed=2)
    assert graph.in_degree.min() >= 5
    model, parts = make_model("gcn", graph), parts_of(graph, 2)
    for (_, (trees,), _), part in zip(drawn("aligraph-fg:fanout=5/3/2", model, parts), parts, strict=True):
        levels = np.cumsum(len(part.train) * np.array([1, 5, 15, 30]))
        assert [len(names) for names in trees.nodes] == levels[:0:-1].tolist()
        assert [layer.block.num_rows for layer in trees.layers] == levels[-2::-1].tolist()  # type: ignore[union-attr]
        assert len(trees.x) == levels[-1]
        assert len(set(trees.nodes[0].tolist())) < len(trees.nodes[0])
    for _, (merged,), _ in drawn("aligraph-fg:fanout=5/3/2:merge=true", model, parts):
        assert len(set(merged.nodes[0].tolist())) == len(merged.nodes[0])


def test_plain_sums_have_no_degrees() -> None:
    model, parts = make_model("gcn", GRAPH), parts_of(GRAPH, 2)
    for _, (batch,), _ in drawn("aligraph-fg:fanout=4", model, parts):
        for layer in batch.layers:
            assert layer is not None and layer.weight is not None and layer.own_weight is not None
            assert layer.weight.eq(1).all() and layer.own_weight.eq(1).all()


def test_training_is_judged_with_the_sums_it_is_done_with() -> None:
    """With all neighbours and merged, the loss of plain sums is that of the evaluation's plain sums."""
    model, parts = make_model("gcn", GRAPH).eval(), parts_of(GRAPH, 3)
    method = parse_method("aligraph-fg:fanout=full:merge=true")
    exact = method.exact()
    assert exact is not None and parse_method("aligraph-fg:norm=model").exact() is None

    def logits(which: Any) -> list[Tensor]:
        async def program(rank: Rank) -> Tensor:
            part = parts[rank.index]
            state = await which.setup(rank, part, model)
            found: Tensor = await which.forward(rank, part, model, state, {}, Tape(rank))
            return found[part.train]

        with torch.no_grad():
            return loopback.run_ranks(program, 3)

    for ours, theirs in zip(logits(method), logits(exact), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-10)


def test_nodes_that_were_not_drawn_are_never_trained_on() -> None:
    for state, (batch,), _ in drawn("aligraph-fg:batch=8", make_model("gcn", GRAPH), parts_of(GRAPH, 2)):
        assert len(batch.y) == len(set(state.seeds.tolist())) == 8


@pytest.mark.parametrize("text", ["agl:fanout=4/3/2:batch=20", "aligraph-fg:fanout=4/3/2"])
def test_after_the_set_up_only_parameters_travel(text: str, tmp_path: Path) -> None:
    """Bytes do not depend on the graph, and shapes alone take their sizes from a recorded run."""
    given = config(text, mode="sim", cluster="ethernet-1g", eval_every=-1, model="gcn", epochs=3)
    numbers = run(given)
    moved = numbers.epochs[-1]["bytes"]
    assert moved["reduce"] and not sum(moved["forward"]) + sum(moved["backward"]) + moved["other"]
    shapes = run(given.changed(shapes_only=True, rates=str(numbers.save(tmp_path))))
    ours, theirs = shapes.epochs[-1], numbers.epochs[-1]
    assert ours["bytes"] == theirs["bytes"] and ours["loss"] is None
    assert ours["seconds"]["compute"] == pytest.approx(theirs["seconds"]["compute"], rel=0.1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agl:batch=-1", "batch must be 0"),
        ("agl:fanout=2/4", "grows from hop to hop"),
        ("agl:fanout=4/full", "grows from hop to hop"),
        ("aligraph-fg:batch=-1", "batch must be 0"),
        ("aligraph-fg:fanout=0", "fanout is positive numbers or full"),
    ],
)
def test_options_that_do_not_fit_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_method(text)


def test_models_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="norm=none weighs sums over neighbours, and attention has none"):
        run(config("aligraph-fg", model="gat"))
    dense = GNN([Dense(5, 3)], [5, 3])
    with pytest.raises(InputError, match="needs a layer that reads neighbours"):
        parse_method("agl").check(dense, graph_totals(GRAPH), 1)
