"""Subgraph approximation: local steps against dense references, the average through the master, bytes, refusals."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from harness import loopback
from harness.config import RunConfig, from_mapping
from harness.conformance import reference_gradients
from harness.errors import InputError
from harness.graphs import Graph, Part
from harness.methods.registry import parse_method
from harness.methods.subgraph_approximation import SubgraphApproximation
from harness.nn import GNN
from harness.partition.overlap import overlapped
from harness.rank import Rank
from harness.running import prepare, run
from tests.support.conformance import make_model, relative_error
from tests.support.graphs import owners, random_graph

LR = 0.1
Optimizer = Callable[[GNN], torch.optim.Optimizer]


def sgd(model: GNN) -> torch.optim.Optimizer:
    """Steps that are linear in the gradient, so that averages of steps are steps of averages."""
    return torch.optim.SGD(model.parameters(), lr=LR)


def parts_of(graph: Graph, parts: int, dtype: torch.dtype = torch.float64, **settings: Any) -> list[Part]:
    folder = overlapped(graph, settings.pop("name", "hash"), parts, 0, 0, **{"overlap": 0.0, **settings})
    return [replace(p, x=p.x.to(dtype)) for p in map(folder.part, range(parts)) if p.x is not None]


def train(
    method: SubgraphApproximation, model: GNN, parts: Sequence[Part], optimizer: Optimizer = sgd, epochs: int = 1
) -> list[tuple[float, list[Tensor], Any, torch.optim.Optimizer]]:
    """Per rank: the loss of the last epoch, the parameters, the traffic of the last epoch and the optimizer."""

    async def program(rank: Rank) -> Any:
        mine, part = copy.deepcopy(model), parts[rank.index]
        state = await method.setup(rank, part, mine)
        memory, steps = method.remember(rank, part, mine, state), optimizer(mine)
        for epoch in range(epochs):
            rank.epoch = epoch
            rank.traffic.take()
            loss = await method.epoch(rank, part, mine, state, memory, steps)
        return float(loss), [p.detach() for p in mine.parameters()], rank.traffic.take(), steps

    return loopback.run_ranks(program, len(parts))


def stepped(model: GNN, gradients: Sequence[Tensor]) -> list[Tensor]:
    return [p.detach() - LR * g for p, g in zip(model.parameters(), gradients, strict=True)]


def mean(models: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return [torch.stack(same).mean(0) for same in zip(*models, strict=True)]


def equal_split(graph: Graph, parts: int) -> Graph:
    """The graph with equally many training nodes in every part of the hash partition."""
    return replace(graph, train=np.arange(graph.num_nodes)[: 6 * parts], val=None, test=None)


@pytest.mark.parametrize("degrees", ["local", "full"])
@pytest.mark.parametrize("kind", ["gcn", "sage", "gat"])
def test_with_every_node_copied_one_epoch_is_one_step_on_the_whole_graph(kind: str, degrees: str) -> None:
    """Ranks with equally many training nodes: the mean of their local steps is the global step."""
    graph = equal_split(random_graph(40, 400, seed=1), 3)
    model = make_model(kind, graph)
    method = SubgraphApproximation(overlap=50.0, degrees=degrees)  # type: ignore[arg-type]
    parts = parts_of(graph, 3, **method.part_settings())
    assert all(len(part.nodes) == 40 for part in parts)
    loss, gradients = reference_gradients(model, graph)
    for found, parameters, _, _ in train(method, model, parts):
        assert found == pytest.approx(loss, rel=1e-10)
        assert relative_error(parameters, stepped(model, gradients)) < 1e-12


@pytest.mark.parametrize("batch", [0, 1000])
@pytest.mark.parametrize("kind", ["sage", "gat"])
def test_isolated_ranks_step_on_their_own_subgraphs(kind: str, batch: int) -> None:
    """overlap=0: the mean of steps on isolated subgraphs; so with one batch of everything and all neighbours."""
    graph = random_graph(40, 200, seed=2)
    model = make_model(kind, graph)
    method = SubgraphApproximation(overlap=0.0, batch=batch, fanouts="1000/1000/1000")
    references = []
    for rank in range(3):
        references.append(reference_gradients(model, graph.subgraph(np.flatnonzero(owners(graph, 3, "hash") == rank))))
    wanted = mean([stepped(model, gradients) for _, gradients in references])
    for loss, parameters, _, _ in train(method, model, parts_of(graph, 3)):
        assert loss == pytest.approx(sum(loss for loss, _ in references), rel=1e-10)
        assert relative_error(parameters, wanted) < 1e-12


@pytest.mark.parametrize("batch", [0, 4])
def test_ranks_without_training_nodes_count_in_the_mean(batch: int) -> None:
    graph = replace(random_graph(30, 90, seed=3), train=np.array([0, 3, 9]), val=None, test=None)  # all on rank 0
    model = make_model("sage", graph)
    parts = parts_of(graph, 3)
    assert [len(part.train) for part in parts] == [3, 0, 0]
    method = SubgraphApproximation(overlap=0.0, batch=batch, fanouts="1000/1000/1000")
    _, gradients = reference_gradients(model, graph.subgraph(parts[0].nodes.numpy()))
    wanted = mean([stepped(model, gradients), *[[p.detach() for p in model.parameters()]] * 2])
    for _, parameters, _, _ in train(method, model, parts):
        assert relative_error(parameters, wanted) < 1e-12


def test_copies_that_carry_loss_make_every_rank_train_on_everything() -> None:
    graph = replace(random_graph(40, 400, seed=4), train=np.arange(11))
    model = make_model("sage", graph)
    method = SubgraphApproximation(overlap=50.0, loss="all")
    parts = parts_of(graph, 3, **method.part_settings())
    loss, gradients = reference_gradients(model, graph)
    for found, parameters, _, _ in train(method, model, parts):
        assert found == pytest.approx(3 * loss) and parts[0].totals.num_train == 33
        assert relative_error(parameters, stepped(model, gradients)) < 1e-12


@pytest.mark.parametrize("method", [SubgraphApproximation(), SubgraphApproximation(batch=7, fanouts="3/3/3")])
def test_bytes_are_two_models_per_worker_and_no_rows(method: SubgraphApproximation) -> None:
    graph = random_graph(60, 240, seed=5)
    model = make_model("sage", graph, dtype=torch.float32)
    payload = 4 * (sum(p.numel() for p in model.parameters()) + 1)
    found = train(method, model, parts_of(graph, 4, torch.float32, overlap=0.1), epochs=2)
    sent = [traffic.layers for _, _, traffic, _ in found]
    assert sent == [{"reduce": {-1: 3 * payload}}, *[{"reduce": {-1: payload}}] * 3]
    assert [traffic.to.tolist() for _, _, traffic, _ in found][1:] == [[payload, 0, 0, 0]] * 3
    assert all(torch.equal(a, b) for _, mine, _, _ in found for a, b in zip(mine, found[0][1], strict=True))


def test_optimizer_state_stays_local_and_parameters_do_not() -> None:
    graph = random_graph(60, 240, seed=6)
    model = make_model("sage", graph)
    found = train(
        SubgraphApproximation(batch=6, fanouts="4/4/4"),
        model,
        parts_of(graph, 3, overlap=0.2),
        lambda m: torch.optim.Adam(m.parameters(), lr=0.01),
        epochs=2,
    )
    states = [steps.state_dict()["state"] for _, _, _, steps in found]
    assert not torch.equal(states[0][0]["exp_avg"], states[1][0]["exp_avg"])
    # 36 training nodes on three ranks, six per batch: ranks have different numbers of steps and do not wait.
    steps = [int(state[0]["step"]) for state in states]
    counts = [len(part.train) for part in parts_of(graph, 3)]
    assert steps == [2 * -(-count // 6) for count in counts] and len(set(steps)) > 1


@pytest.mark.parametrize("batch", [0, 4])
def test_a_master_apart_holds_nothing_and_does_not_count_in_the_mean(batch: int) -> None:
    """Sec. 3.2: three workers train on the parts of three ranks, and a fourth averages; bytes are those of four."""
    graph, model = random_graph(60, 240, seed=5), make_model("sage", random_graph(60, 240, seed=5))
    options: dict[str, Any] = {"batch": batch, "fanouts": "1000/1000/1000", "overlap": 0.0}
    apart, beside = (SubgraphApproximation(**options, master=master) for master in ("apart", "worker"))
    four, three = parts_of(graph, 4, **apart.part_settings()), parts_of(graph, 3, **beside.part_settings())
    assert [part.nodes.tolist() for part in four] == [[], *(part.nodes.tolist() for part in three)]
    more = parts_of(graph, 4, overlap=0.2, master="apart")
    assert [len(part.nodes) for part in more] == [0, 24, 24, 24], "a fifth more, so many from every other worker"
    found, wanted = train(apart, model, four), train(beside, model, three)
    if not batch:  # batches are drawn rank by rank
        assert all(relative_error(mine, wanted[0][1]) < 1e-12 for _, mine, _, _ in found)
        assert found[0][0] == pytest.approx(wanted[0][0])
    payload = 8 * (sum(p.numel() for p in model.parameters()) + 1)
    assert [traffic.to.tolist() for _, _, traffic, _ in found] == [[0, *[payload] * 3], *[[payload, 0, 0, 0]] * 3]
    assert not found[0][3].state_dict()["state"], "the master takes no step"
    with pytest.raises(InputError, match="needs a second rank"):
        train(apart, model, parts_of(graph, 1))
    with pytest.raises(InputError, match="needs a second part"):
        parts_of(graph, 1, **apart.part_settings())


def test_one_rank_alone_sends_nothing() -> None:
    graph = random_graph(30, 90, seed=7)
    model = make_model("gcn", graph)
    ((loss, parameters, traffic, _),) = train(SubgraphApproximation(), model, parts_of(graph, 1, overlap=0.1))
    wanted, gradients = reference_gradients(model, graph)
    assert loss == pytest.approx(wanted) and traffic.to.sum() == 0
    assert relative_error(parameters, stepped(model, gradients)) < 1e-12


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("overlap=-0.1", "overlap is a share"),
        ("batch=-1", "batch must be 0"),
        ("fanouts=25/x", "fanouts are numbers from 1 on"),
        ("fanouts=0/3", "fanouts are numbers from 1 on"),
        ("batch=8:degrees=full", "degrees=full needs batch=0"),
        ("batch=8:layer0=precompute", "layer0=precompute needs batch=0"),
        ("degrees=some", "must be one of"),
        ("master=none", "must be one of"),
    ],
)
def test_options_out_of_range_are_one_clear_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as failure:
        parse_method(f"subgraph-approximation:{text}")
    assert message in str(failure.value) and "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("gcn", {"fanouts": "3/3/3"}, "a gcn sum cannot be sampled"),
        ("sage", {}, "fanouts=25/10 is for 2 layers, the model has 3"),
    ],
)
def test_batches_that_cannot_be_drawn_are_refused(kind: str, options: dict[str, Any], message: str) -> None:
    graph = random_graph(20, 40, seed=8)
    with pytest.raises(InputError, match=message):
        train(SubgraphApproximation(batch=4, **options), make_model(kind, graph), parts_of(graph, 2))


def config(**values: Any) -> RunConfig:
    base = {
        "dataset": "synthetic:nodes=400,degree=12,classes=4,features=16,seed=1",
        "model": "sage",
        "layers": 2,
        "hidden": 16,
        "parts": 4,
        "partitioner": "hash",
        "epochs": 40,
        "threads": 1,
        "eval_every": 0,
    }
    return from_mapping({**base, **values})


def test_inductive_training_is_judged_on_the_whole_graph() -> None:
    """Training uses 70 % of the nodes, evaluation all of them, each once in spite of copies."""
    given = config(
        method="subgraph-approximation:overlap=0.5:batch=32", protocol="inductive", split="random:0.7/0.2/0.1", epochs=3
    )
    prepared = prepare(given)
    assert prepared.totals.num_nodes == prepared.totals.num_train == 280
    assert sum(len(prepared.evaluation(rank).nodes) for rank in range(4)) == 400
    assert [len(prepared.training(rank).nodes) for rank in range(4)] == [70 + 3 * 11] * 4  # 0.5 * 70 / 3 from each
    last = run(given).epochs[-1]
    assert None not in (last["train"], last["val"], last["test"])
    assert {name.split("/")[0] for name in last["observed"]} == {"sampled_edges", "sampled_rows"}
    assert all(0.0 < share <= 1.0 for share in last["observed"].values())


@pytest.mark.parametrize("options", ["", ":batch=32"])
def test_copies_win_back_what_isolation_loses(options: str) -> None:
    """A hash partition cuts three of four edges. Copies of a third of every other part, which bring back some of them,
    raise accuracy on whole neighbourhoods."""
    isolated, copied = (
        run(config(method=f"subgraph-approximation:overlap={overlap}{options}", lr=0.02)) for overlap in (0, 1)
    )
    assert copied.epochs[-1]["test"] > isolated.epochs[-1]["test"] + 0.05
    assert copied.graph["partition"]["overlap"] == 1.0 and 0.2 < copied.graph["partition"]["cut_kept"] < 0.5


def test_the_result_names_the_overlap_and_layer0() -> None:
    result = run(config(method="subgraph-approximation:overlap=0.2:batch=50", epochs=1))
    assert result.facts["layer0"] == "cache"  # the copies' features lie on the rank
    assert result.graph["partition"]["overhead"] == pytest.approx(18 / 400)  # 20 copies a part, less the rounding
    plain = run(config(method="subgraph-approximation:overlap=0.2", epochs=1, dropout=0.5))
    assert plain.facts["layer0"] == "precompute"


def test_shapes_alone_give_the_same_bytes_and_times(tmp_path: Path) -> None:
    given = config(method="subgraph-approximation:overlap=0.3", epochs=2, mode="sim", cluster="ethernet-1g")
    shapes, numbers = run(given.changed(shapes_only=True)), run(given)
    assert [e["bytes"] for e in shapes.epochs] == [e["bytes"] for e in numbers.epochs]
    assert shapes.epochs[1]["seconds"] == pytest.approx(numbers.epochs[1]["seconds"])
    sampled = given.changed(method="subgraph-approximation:batch=32")
    with pytest.raises(InputError, match="sampled_edges/1"):
        run(sampled.changed(shapes_only=True))
    numbers = run(sampled)
    rates = str(numbers.save(tmp_path))
    shapes = run(sampled.changed(shapes_only=True, rates=rates))
    assert [e["bytes"] for e in shapes.epochs] == [e["bytes"] for e in numbers.epochs]
    for name in ("compute", "sample"):  # sizes of samples are means
        assert shapes.epochs[1]["seconds"][name] == pytest.approx(numbers.epochs[1]["seconds"][name], rel=0.02)
