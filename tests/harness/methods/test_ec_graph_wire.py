"""EC-Graph's traffic, refused options, and runs by the command."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from harness import loopback
from harness.config import from_mapping
from harness.errors import Diverged, InputError
from harness.exchanges import Tuner
from harness.methods.ec_graph import ECGraph
from harness.methods.ec_graph_s import ECGraphS
from harness.methods.registry import parse_method
from harness.nn import build_model
from harness.rank import Rank
from harness.running import run
from harness.running.results import Result
from tests.conftest import real_data
from tests.support.conformance import make_model, make_parts
from tests.support.ec_graph_runs import ABLATIONS, GRAPH, NON_CP, layer_bytes, parts_of, train
from tests.support.graphs import owners, random_graph


@pytest.mark.parametrize("kind", ["gcn", "sage"])
@pytest.mark.parametrize("bits", [1, 4, 16])
@pytest.mark.parametrize("scope", ["matrix", "row"])
@pytest.mark.parametrize("wire", ["paper", "product"])
def test_bytes_of_compressed_rows(kind: str, bits: int, scope: str, wire: str) -> None:
    """H forwards has the width of a layer's input, G that of its output; order=auto sends products of 3 classes."""
    parts, widths = parts_of(3), {"forward": (4, 4 if wire == "paper" else 3), "backward": (4, 3)}
    options: Any = {"range": scope, "wire": wire}
    method = ECGraph(fp="compressed", bits=bits, backward_bits=bits, **options)
    runs = train(method, 3, 2, kind=kind)
    rows, pairs = sum(len(p.halo_nodes) for p in parts), sum(int((p.plan.send_counts > 0).sum()) for p in parts)
    ranges = 8 * (rows if scope == "row" else pairs)
    for epoch in (0, 1):
        for direction, each in widths.items():
            wanted = [0, *(rows * -(-d * bits // 8) + ranges for d in each)]
            assert layer_bytes(runs, epoch, direction) == wanted


@pytest.mark.parametrize("tuner", ["responder", "pooled"])
@pytest.mark.parametrize("table", ["range", "values"])
def test_bytes_of_trends(tuner: Tuner, table: Literal["range", "values"]) -> None:
    parts, period = parts_of(3), 5
    runs = train(ECGraph(period=period, tuner=tuner, table=table), 3, 11)
    rows, widths = sum(len(p.halo_nodes) for p in parts), (0, 4, 4)
    pairs = [int(n) for p in parts for n in p.plan.send_counts if n]
    for epoch in range(11):
        got = layer_bytes(runs, epoch, "forward")
        exact = epoch == 0 or (epoch + 1) % period == 0
        other = [sum(r.traffic[epoch].layers["other"].get(l, 0) for r in runs) for l in (-1, 0, 1, 2)]
        assert other == [0 if exact else len(pairs), 0, 2 * 4 * rows, 2 * 4 * rows], "bits, and node numbers both ways"
        for l in (1, 2):
            if exact:
                assert got[l] == 4 * rows * widths[l] * (2 if epoch else 1)
                continue
            codes = 0
            for seen, part in zip(runs, parts, strict=True):
                predicted, whole = seen.observed[epoch][f"predicted/{l}"]
                bits = int(seen.observed[epoch]["bits"][0])
                messages = int((part.plan.send_counts > 0).sum())  # as many as it receives: the graph is symmetric
                codes += int(whole - predicted) * -(-widths[l] * bits // 8)
                codes += messages * (8 if table == "range" else 4 * 2**bits)
            shares = 4 * len(pairs) if tuner == "responder" else 0
            assert got[l] == codes + shares + sum(-(-n // 4) for n in pairs) + 8 * 6


def test_requests_are_the_node_numbers_of_every_layer_and_direction() -> None:
    """Alg. 3 and 5, line 1; the label tells them from other bytes, and without them nothing else changes."""
    with_requests, without = (train(replace(NON_CP, requests=asked), 3, 2) for asked in (True, False))
    assert with_requests[0].losses == without[0].losses
    for asked, plain in zip(with_requests, without, strict=True):
        numbers = int(parts_of(3)[with_requests.index(asked)].plan.recv_counts.sum())
        for epoch in (0, 1):
            assert asked.traffic[epoch].layers["other"] == {1: 8 * numbers, 2: 8 * numbers}
            assert asked.traffic[epoch].others == {"request": 16 * numbers} and not plain.traffic[epoch].others
            assert not plain.traffic[epoch].layers["other"]
            assert all(
                asked.traffic[epoch].layers[way] == plain.traffic[epoch].layers[way] for way in ("forward", "backward")
            )


def test_a_result_tells_requests_from_the_other_bytes() -> None:
    found = run(config(method="ec-graph", epochs=2)).epochs[-1]["bytes"]
    assert found["others"]["request"] > 0 and found["others"]["bits"] > 0
    assert sum(found["others"].values()) == found["other"]
    assert run(config(method="ec-graph:requests=false:tune=false", epochs=2)).epochs[-1]["bytes"]["others"] == {}


def test_a_request_holds_the_numbers_of_the_rows_that_come_back() -> None:
    """The sampled method's too, which reads other nodes in each layer and direction."""
    for method in (NON_CP, ECGraphS(fanouts="3/2/2", fp="exact", bp="exact")):
        parts, model = parts_of(3), make_model("sage", GRAPH, dtype=torch.float32, norm="none")

        async def program(rank: Rank, method: ECGraph = method, parts: Any = parts, model: Any = model) -> None:
            part, mine = parts[rank.index], copy.deepcopy(model)
            state: Any = await method.setup(rank, part, mine)
            memory = method.remember(rank, part, mine, state)
            plan = await method.begin(rank, part, state, memory)
            nodes = method.trained(part, state).nodes.float()[:, None]
            for l in (1, 2):
                pull: Any = method.exchange(l, mine, state, plan)
                for fetch in (pull.forwards, pull.backwards):
                    assert torch.equal((await fetch(rank, nodes))[:, 0], fetch.nodes.float())

        loopback.run_ranks(program, 3)


def test_a_forward_pass_never_costs_less_than_its_exact_epochs() -> None:
    """Exact rows and rates every period epochs: at most period / 2 times less than fp32, whatever the bits."""
    runs, exact = train(ECGraph(bits=1, period=10), 3, 21), train(NON_CP, 3, 21)
    ours, theirs = (sum(sum(layer_bytes(r, e, "forward")) for e in range(10, 20)) for r in (runs, exact))
    assert theirs / 5 < ours < theirs


@pytest.mark.parametrize(
    ("name", "epoch"), [("EC-Graph", 0), ("EC-Graph", 1), ("Cp-fp-2", 1), ("Cp-bp-4", 1), ("element", 1)]
)
def test_nan_is_refused_with_rank_layer_and_epoch(name: str, epoch: int) -> None:
    """Also in exact epochs, in which a trend would keep the value."""
    method, parts = ABLATIONS[name], parts_of(3)
    model = make_model("sage", GRAPH, dtype=torch.float32, norm="none")

    async def program(rank: Rank) -> None:
        mine = copy.deepcopy(model)
        state = await method.setup(rank, parts[rank.index], mine)
        memory = method.remember(rank, parts[rank.index], mine, state)
        plan = await method.begin(rank, parts[rank.index], state, memory)
        x = torch.ones(len(parts[rank.index].nodes), 4)
        for rank.epoch in (0, 1):
            exchange: Any = method.exchange(1, mine, state, plan)
            if rank.index == 2 and rank.epoch == epoch:
                x = x.clone()
                x[5, 1] = torch.nan
            await exchange.forward(rank, x)
            await exchange.adjoint(rank, x)

    direction = "backward" if name == "Cp-bp-4" else "forward"
    with pytest.raises(Diverged, match=f"^rank 2, layer 1, epoch {epoch}: {direction} .*: own row 5 holds nan or inf"):
        loopback.run_ranks(program, 3)


DATASET = "synthetic:nodes=300,degree=8,classes=4,features=12,seed=1"


def config(**values: object) -> Any:
    base = {"dataset": DATASET, "model": "gcn", "layers": 3, "hidden": 10, "epochs": 12, "parts": 3, "threads": 1}
    return from_mapping({**base, "eval_every": -1, "order": "auto", **values})


@pytest.mark.parametrize(
    "options",
    [
        "", ":select=matrix", ":select=element", ":tune=false:range=row", ":fp=compressed",
        ":tuner=pooled:requests=false", ":range=requested:table=values:tune=false", ":wire=product",
    ],
)  # fmt: skip
def test_shapes_only_runs_take_their_shares_from_a_recorded_run(options: str, tmp_path: Path) -> None:
    settings = {"method": f"ec-graph{options}:bits=4", "mode": "sim", "cluster": "ethernet-1g"}
    real = run(config(**settings))
    rates = str(real.save(tmp_path)) if real.epochs[1]["observed"] else ""
    shapes = run(config(**settings, shapes_only=True, rates=rates))
    for exact in (0, 9):
        assert shapes.epochs[exact]["bytes"] == real.epochs[exact]["bytes"]
    for key in ("forward", "backward"):
        ours, theirs = (np.sum([e["bytes"][key] for e in r.epochs]) for r in (shapes, real))
        assert ours == pytest.approx(theirs, rel=0.15 if key == "forward" else 1e-12)


def test_shapes_only_without_a_recorded_run_says_what_is_missing() -> None:
    with pytest.raises(InputError, match="recorded run"):
        run(config(method="ec-graph", mode="sim", cluster="ethernet-1g", shapes_only=True, epochs=3))
    with pytest.raises(InputError, match="recorded run with 'nodes needed'"):
        run(config(method="ec-graph-s:fanouts=3/3/3", mode="sim", cluster="ethernet-1g", shapes_only=True))


@pytest.mark.parametrize("options", [":fp=compressed", ":fp=exact:bp=exact"])
def test_a_sample_is_known_by_shares_in_shapes_only_runs(options: str, tmp_path: Path) -> None:
    settings = {"method": f"ec-graph-s:fanouts=2/3/4{options}", "mode": "sim", "cluster": "ethernet-1g"}
    real = run(config(**settings))
    shapes = run(config(**settings, shapes_only=True, rates=str(real.save(tmp_path))))
    for key in ("forward", "backward"):
        ours, theirs = shapes.epochs[3]["bytes"][key], real.epochs[3]["bytes"][key]
        assert ours[0] == theirs[0] == 0
        assert ours[1:] == pytest.approx(theirs[1:], rel=0.05)
        assert 0 < ours[2] < ours[1], "the last layer reads for the training nodes only"
    assert shapes.epochs[3]["observed"] == pytest.approx(real.epochs[3]["observed"], rel=0.05)


@pytest.mark.parametrize(
    ("text", "values", "message"),
    [
        ("ec-graph:wire=product", {"model": "gat"}, "needs wire=paper"),
        ("ec-graph-s:fanouts=3/3/3", {"model": "gat"}, "no sample of neighbours"),
        ("ec-graph:bits=3", {}, "bits must be 1, 2, 4, 8 or 16"),
        ("ec-graph:backward_bits=32", {}, "backward_bits must be"),
        ("ec-graph:period=0", {}, "period must be at least 1"),
        ("ec-graph:servers=4", {}, "4 servers on 3 ranks"),
        ("ec-graph:servers=-1", {}, "servers must not be negative"),
        ("ec-graph:fp=trendy", {}, "ec-graph:fp=trendy"),
        ("ec-graph-s", {}, "fanouts=10/5 has 2 hops; the model has 3"),
        ("ec-graph-s:fanouts=3/x/1", {}, "positive numbers or full"),
        ("ec-graph-s:fanouts=3/0/1", {}, "positive numbers or full"),
        ("ec-graph-s:fanouts=3/3/3:layer0=precompute", {}, "caches the input layer"),
    ],
)
def test_what_cannot_run_says_so(text: str, values: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(config(method=text, **values))


@pytest.mark.parametrize("text", ["ec-graph", "distgnn-ec", "adaqp", "cagnet", "vanilla:style=pull"])
def test_directed_graphs_are_refused(text: str) -> None:
    """By every method that multiplies gradients by the matrix of the forward pass; it says what to do."""
    graph = random_graph(20, 60, symmetric=False)
    totals = make_parts(graph, owners(graph, 2, "hash"), 2)[0].totals
    with pytest.raises(InputError, match="symmetric.*edges:FILE,undirected=true"):
        parse_method(text).check(make_model("gcn", graph), totals, 2)


def test_widths_of_ogbn_products() -> None:
    """Three layers of 256: H^1 and H^2 forwards, G^2 and G^3 backwards; with products 303 both ways."""
    model = build_model(from_mapping({"layers": 3, "hidden": 256, "order": "auto"}).model, 100, 47, 0)
    for wire, wanted in (("paper", (512, 303)), ("product", (303, 303))):
        sent = parse_method(f"ec-graph:wire={wire}").sent_layers(model, "cache")  # type: ignore[attr-defined]
        assert tuple(sum(d for _, way, d in sent if way == asked) for asked in ("forward", "backward")) == wanted


def test_defaults_are_the_papers() -> None:
    method = parse_method("ec-graph")
    assert isinstance(method, ECGraph) and (method.period, method.select, method.tune) == (10, "vertex", True)
    assert (method.wire, method.tuner, method.requests) == ("paper", "responder", True)
    assert method.input_layer(make_model("gcn", GRAPH)) == "cache"


@cache
def cora(method: str, layers: int = 2, seed: int = 0, split: str = "auto") -> Result:
    """60 epochs of the paper's GCN on Cora, hash partitioned."""
    values = {"dataset": str(real_data() / "cora.npz"), "layers": layers, "hidden": 16, "epochs": 60, "eval_every": 0}
    values |= {"seed": seed, "split": split}
    return run(config(method=method, partitioner="hash", features="row", **values))


def distance(method: str, split: str = "auto") -> float:
    """Mean difference of the losses from those of vanilla training."""
    pairs = zip(cora(method, split=split).epochs, cora("vanilla", split=split).epochs, strict=True)
    return float(np.mean([abs(a["loss"] - b["loss"]) for a, b in pairs]))


def test_compensation_forwards_brings_the_curve_nearer_to_the_exact_one() -> None:
    """Fig. 6 on Cora."""
    plain, compensated = "ec-graph:fp=compressed:bits=2:bp=exact", "ec-graph:bits=2:tune=false:bp=exact"
    assert distance(compensated) < 0.75 * distance(plain)


def test_compensation_backwards_brings_the_curve_nearer_on_the_papers_split() -> None:
    """Fig. 7 on Cora: with the 1,408 training nodes of the paper, by position. With the public 140 the residuals of two
    bits come too late for the few rows that carry a gradient, and the curve is no nearer."""
    plain, compensated = (f"ec-graph:fp=exact:bp={bp}" for bp in ("compressed", "residual"))
    assert distance(compensated, "position:1408/300/1000") < 0.6 * distance(plain, "position:1408/300/1000")


def test_compensation_backwards_raises_the_accuracy() -> None:
    """Fig. 7 on Cora, three layers and the mean of three seeds."""
    plain, compensated = (
        float(np.mean([cora(f"ec-graph:fp=exact:bp={bp}", 3, seed).epochs[-1]["test"] for seed in range(3)]))
        for bp in ("compressed", "residual")
    )
    assert compensated > plain + 0.005


@pytest.mark.parametrize("method", ["ec-graph", "ec-graph-s:fanouts=20/10:backward_bits=4"])
def test_cora_is_learnt_as_well_as_without_compression(method: str) -> None:
    """Table V's claim on a small scale: within 3 points of Non-cp in equal epochs, with less than half of the
    bytes."""
    ours, exact = cora(method), cora("ec-graph:fp=exact:bp=exact")
    assert ours.epochs[-1]["test"] > exact.epochs[-1]["test"] - 0.03
    sent = [sum(np.sum(e["bytes"]["forward"]) for e in r.epochs) for r in (ours, exact)]
    assert sent[0] < sent[1] / 2
