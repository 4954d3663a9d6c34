"""The lossy methods: expectations, variances, wire bytes by the formulas of their docstrings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from harness import loopback
from harness.codecs import StochasticRows
from harness.config import from_mapping
from harness.errors import Diverged, InputError
from harness.exchanges import HaloPush, Route, ship
from harness.methods.bases.base import Method
from harness.methods.bns_gcn import BNSGCN
from harness.methods.ec_graph import ECGraph
from harness.methods.registry import METHODS, parse_method
from harness.methods.sylvie import SylvieS
from harness.methods.vanilla import Vanilla
from harness.rank import Rank
from harness.running import prepare, run
from harness.tape import Tape
from tests.support.conformance import make_model, make_parts, relative_error, step
from tests.support.graphs import owners, random_graph

P = 3
GRAPH = random_graph(40, 160, seed=1)
PARTS = make_parts(GRAPH, owners(GRAPH, P, "hash"), P, torch.float32)
HALO_ROWS = sum(len(part.halo_nodes) for part in PARTS)
HIDDEN, DEPTH = 12, 3


def layer_bytes(traffic: list[Any], direction: str) -> list[int]:
    return [sum(t.layers.get(direction, {}).get(l, 0) for t in traffic) for l in range(DEPTH)]


def traffic_of(method: Method, kind: str = "sage", **options: Any) -> list[Any]:
    model = make_model(kind, GRAPH, dtype=torch.float32, **{"hidden": HIDDEN, "heads": 1, **options})
    return step(method, model, PARTS)[2]


@pytest.mark.parametrize("kind", ["gcn", "sage", "gat"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_vanilla_bytes(kind: str, dtype: str) -> None:
    row = HIDDEN * (4 if dtype == "fp32" else 2)
    traffic = traffic_of(Vanilla(dtype=dtype), kind)  # type: ignore[arg-type]
    assert layer_bytes(traffic, "forward") == [0, HALO_ROWS * row, HALO_ROWS * row]
    assert layer_bytes(traffic, "backward") == [0, HALO_ROWS * row, HALO_ROWS * row]


@pytest.mark.parametrize(("joined", "width"), [("concat", 3 * HIDDEN), ("mean", HIDDEN)])
def test_rows_of_averaged_heads_are_no_wider_than_one(joined: str, width: int) -> None:
    traffic = traffic_of(Vanilla(), "gat", heads=3, hidden_heads=joined)
    assert layer_bytes(traffic, "forward") == [0, HALO_ROWS * width * 4, HALO_ROWS * width * 4]


def test_layer0_exchange_is_booked_and_needs_no_gradient() -> None:
    traffic = traffic_of(Vanilla(layer0="exchange"))
    assert layer_bytes(traffic, "forward")[0] == HALO_ROWS * GRAPH.num_features * 4
    assert layer_bytes(traffic, "backward")[0] == 0


@pytest.mark.parametrize("style", ["push", "pull"])
def test_linear_first_sends_the_narrower_rows(style: str) -> None:
    traffic = traffic_of(Vanilla(style=style), "gcn", order="auto")  # type: ignore[arg-type]
    assert layer_bytes(traffic, "forward") == [0, HALO_ROWS * HIDDEN * 4, HALO_ROWS * GRAPH.num_classes * 4]
    assert layer_bytes(traffic, "backward") == layer_bytes(traffic, "forward")


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("side", ["fp32", "fp16"])
def test_sylvie_bytes(bits: int, side: str) -> None:
    row = -(-HIDDEN * bits // 8) + (8 if side == "fp32" else 4)
    traffic = traffic_of(SylvieS(bits=bits, side=side))  # type: ignore[arg-type]
    assert layer_bytes(traffic, "forward") == [0, HALO_ROWS * row, HALO_ROWS * row]
    assert layer_bytes(traffic, "backward") == [0, HALO_ROWS * row, HALO_ROWS * row]


@pytest.mark.parametrize("sampling", ["bernoulli", "fixed"])
@pytest.mark.parametrize("p", [0.3, 0.7])
def test_bns_bytes_follow_the_rows_kept(p: float, sampling: str) -> None:
    traffic = traffic_of(BNSGCN(p=p, sampling=sampling))  # type: ignore[arg-type]
    unknown = 0 if sampling == "fixed" else 8 * P * (P - 1)
    told = sum(sum(t.layers["other"].values()) for t in traffic) - unknown
    kept = told // 4
    assert layer_bytes(traffic, "forward") == [0, kept * HIDDEN * 4, kept * HIDDEN * 4]
    assert layer_bytes(traffic, "backward") == layer_bytes(traffic, "forward")
    if sampling == "fixed":
        assert kept == sum(int(p * n) for part in PARTS for n in part.plan.recv_counts)
    else:
        deviation = (HALO_ROWS * p * (1 - p)) ** 0.5
        assert abs(kept - p * HALO_ROWS) < 4 * deviation


def test_p_of_zero_sends_nothing_at_all() -> None:
    assert all(t.to.sum() == 0 for t in traffic_of(BNSGCN(p=0.0)))


def aggregated_halo(method: BNSGCN, epoch: int) -> torch.Tensor:
    """Mean-aggregated halo rows of all nodes, in global order, as received by the layers of one epoch."""
    model = make_model("sage", GRAPH, dtype=torch.float32)

    async def program(rank: Rank) -> Any:
        part = PARTS[rank.index]
        state = await method.setup(rank, part, model)
        rank.epoch = epoch
        plan = await method.begin(rank, part, state, {})
        exchange = method.exchange(1, model, state, plan)
        assert isinstance(exchange, HaloPush) and part.x is not None
        _, halo = await exchange.forward(rank, part.x)
        return part.nodes, model.layers[1].aggregation.forward(plan.graph, part.x * 0, halo)

    out = torch.zeros(GRAPH.num_nodes, GRAPH.num_features)
    for nodes, rows in loopback.run_ranks(program, P, seed=5):
        out[nodes] = rows
    return out


@pytest.mark.parametrize("sampling", ["bernoulli", "fixed"])
def test_bns_aggregation_is_unbiased(sampling: str) -> None:
    draws = 400
    exact = aggregated_halo(BNSGCN(p=1.0), 0)
    samples = torch.stack([aggregated_halo(BNSGCN(p=0.5, sampling=sampling), e) for e in range(draws)])  # type: ignore[arg-type]
    z = (samples.mean(0) - exact) / (samples.std(0) / draws**0.5).clamp(min=1e-6)
    # About 200 entries: a z of 4.5 has a chance of 1 in 700 in the largest of them.
    assert float(z.abs().max()) < 4.5
    assert float(samples.std(0).max()) > 0


def test_attention_is_not_scaled() -> None:
    model = make_model("gat", GRAPH, dtype=torch.float32)
    method = BNSGCN(p=0.5)

    async def program(rank: Rank) -> Any:
        state = await method.setup(rank, PARTS[rank.index], model)
        plan = await method.begin(rank, PARTS[rank.index], state, {})
        exchange = method.exchange(1, model, state, plan)
        assert isinstance(exchange, HaloPush)
        return exchange.scale, plan.scale

    assert loopback.run_ranks(program, P) == [(None, 2.0)] * P


@pytest.mark.parametrize("kind", ["gcn", "sage", "gat"])
@pytest.mark.parametrize("sampling", ["bernoulli", "fixed", "bes", "dropedge"])
def test_a_cached_input_layer_uses_the_sample_of_the_epoch(sampling: Any, kind: str) -> None:
    """Alg. 1 uses H_i in every layer: features that are kept give what features that are sent every epoch give."""
    model = make_model(kind, GRAPH, hidden=HIDDEN, dropout=0.3).train()
    parts = make_parts(GRAPH, owners(GRAPH, P, "hash"), P)
    (loss, gradients, _), (wanted, others, _) = (
        step(BNSGCN(p=0.4, sampling=sampling, layer0=layer0), model, parts, epoch=2)  # type: ignore[arg-type]
        for layer0 in ("cache", "exchange")
    )
    assert loss == pytest.approx(wanted, rel=1e-12)
    assert relative_error(gradients, others) < 1e-12


@pytest.mark.parametrize("kind", ["sage", "gat"])
@pytest.mark.parametrize("sampling", ["bernoulli", "fixed"])
def test_where_the_sampled_graph_is_built_changes_no_number(sampling: Any, kind: str) -> None:
    model = make_model(kind, GRAPH, hidden=HIDDEN).train()
    (loss, gradients, sent), (wanted, others, told) = (
        step(BNSGCN(p=0.4, sampling=sampling, rebuild=where), model, make_parts(GRAPH, owners(GRAPH, P, "hash"), P))  # type: ignore[arg-type]
        for where in ("host", "device")
    )
    assert loss == wanted and all(torch.equal(a, b) for a, b in zip(gradients, others, strict=True))
    assert [s.layers for s in sent] == [s.layers for s in told]


def test_a_model_prices_the_host_and_the_bus() -> None:
    """On a GPU: draws and index arrays at the host's rate, and their way to the device as swaps (Table 12)."""
    given = {"dataset": "synthetic:nodes=3000,degree=20,features=8,classes=4", "parts": 2, "model": "sage", "epochs": 2}
    given |= {"mode": "sim", "cluster": "bns-10x2080ti", "partitioner": "hash", "threads": 1, "eval_every": -1}
    host, device = (
        run(from_mapping({**given, "method": f"bns-gcn:p=0.2:rebuild={where}"})).epochs[1]["seconds"]
        for where in ("host", "device")
    )
    parts = [prepare(from_mapping({**given, "method": "bns-gcn:p=0.2"})).training(rank) for rank in range(2)]
    drawn = max(len(part.halo_nodes) for part in parts)
    assert device["sample"] > 4 * drawn / 1e9 and device["swap"] == 0
    arrays = min(4 * (part.graph.num_own + 2 * 0.2 * part.graph.halo.nnz) for part in parts)
    assert host["sample"] > device["sample"] + 0.5 * arrays / 1e9 and host["swap"] > 0


def test_sylvie_gradients_are_unbiased_in_the_backward_exchange() -> None:
    """The adjoint of one quantised exchange, averaged over draws, is the exact adjoint."""
    draws, width = 1000, 3
    wanted = torch.randn(len(PARTS[0].nodes), width, generator=torch.Generator().manual_seed(0))
    outcomes = {}
    for bits in (1, 32):
        codec = StochasticRows(bits) if bits == 1 else None

        async def program(rank: Rank, codec: Any = codec) -> Any:
            from harness.codecs import Cast

            part = PARTS[rank.index]
            push = HaloPush(Route.of(part.plan, len(part.nodes)), 1, Cast(None), codec or Cast(None))
            own = torch.zeros(len(part.nodes), width)
            halo = wanted.new_tensor(np.random.default_rng(rank.index).standard_normal((len(part.halo_nodes), width)))
            total, square = torch.zeros(own.shape, dtype=torch.float64), torch.zeros(own.shape, dtype=torch.float64)
            for epoch in range(draws if codec else 1):
                rank.epoch = epoch
                got = (await push.adjoint(rank, own.clone(), halo)).double()
                total, square = total + got, square + got * got
            return total, square

        outcomes[bits] = loopback.run_ranks(program, P, seed=3)
    for (total, square), (exact, _) in zip(outcomes[1], outcomes[32], strict=True):
        mean = total / draws
        spread = (square / draws - mean * mean).clamp(min=0).sqrt() / draws**0.5
        assert float(((mean - exact).abs() / (spread + 1e-6)).max()) < 4.5
        assert float(spread.max()) > 0


def test_nan_is_refused_with_rank_layer_and_epoch() -> None:
    async def program(rank: Rank) -> None:
        rank.epoch = 7
        rows = torch.full((2, 3), float("nan") if rank.index else 1.0)
        counts = np.array([1, 1])
        await ship(rank, rows, counts, counts, StochasticRows(1), label="h2", direction="forward", layer=2)

    with pytest.raises(Diverged, match="rank 1, layer 2, epoch 7"):
        loopback.run_ranks(program, 2)


def test_every_method_declares_facts_and_documents_its_bytes() -> None:
    for name, method in METHODS.known().items():
        assert method.name == name and method.facts.paper
        assert name == "single" or "ytes" in (method.__doc__ or "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vanila", "unknown method 'vanila'; did you mean 'vanilla'"),
        ("bns-gcn:q=1", "unknown option of bns-gcn 'q'"),
        ("bns-gcn:p=much", "method 'bns-gcn:p=much': p must be a finite number, not 'much'"),
        ("cdfgnn:eps0=nan", "eps0 must be a finite number, not 'nan'"),
        ("cdfgnn:cache=maybe", "cache must be true or false, not 'maybe'"),
        ("sylvie-a:staleness=1.5", "staleness must be a whole number, not '1.5'"),
        ("subgraph-approximation:batch=16:layer0=exchange", "layer0=exchange needs batch=0"),
        ("bns-gcn:p", "'p' is not option=value"),
        ("bns-gcn:p=0.1:p=0.5", "option p is given twice"),
        ("vanilla:dtype=fp8", "dtype must be one of fp32, fp16, bf16, not 'fp8'"),
    ],
)
def test_a_wrong_method_text_is_one_clear_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as failure:
        parse_method(text)
    assert message in str(failure.value) and "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("ec-graph:fp=exact:bits=4", "bits changes nothing with fp=exact"),
        ("ec-graph:fp=compressed:period=4", "period changes nothing with fp=compressed"),
        ("ec-graph:tune=false:fp=compressed", "tune changes nothing with fp=compressed"),
        ("ec-graph-s:bp=exact:backward_bits=8", "backward_bits changes nothing with bp=exact"),
        ("cdfgnn:rule=fixed:xi=0.02", "xi changes nothing with rule=fixed"),
        ("bns-gcn:sampling=bes:rebuild=host", "rebuild changes nothing with sampling=bes"),
        ("subgraph-approximation:fanouts=5/5", "fanouts changes nothing with batch=0"),
    ],
)
def test_options_that_change_nothing_are_refused(text: str, others: str) -> None:
    with pytest.raises(InputError, match=f"^method '{text}': {others}$"):
        parse_method(text)


def test_parsing_keeps_options_and_defaults() -> None:
    assert parse_method("ec-graph:fp=exact:bits=2") == ECGraph(fp="exact"), "a default may be said"
    assert parse_method("ec-graph:fp=compressed:bits=4:bp=exact").cycle() == 1
    assert parse_method("bns-gcn:p=0.25:sampling=fixed", layer0="cache") == BNSGCN(
        p=0.25, sampling="fixed", layer0="cache"
    )


@pytest.mark.parametrize(
    ("method", "kind", "text"),
    [
        (Vanilla(layer0="precompute"), "gat", "layer0=precompute needs"),
        (BNSGCN(p=1.5), "gcn", "p must be in"),
        (SylvieS(bits=3), "gcn", "bits must be"),
    ],
)
def test_what_cannot_run_says_so(method: Method, kind: str, text: str) -> None:
    model = make_model(kind, GRAPH, dtype=torch.float32)

    async def program(rank: Rank) -> None:
        state = await method.setup(rank, PARTS[rank.index], model)
        await method.forward(rank, PARTS[rank.index], model, state, {}, Tape(rank))

    with pytest.raises(InputError, match=text):
        loopback.run_ranks(program, P)
