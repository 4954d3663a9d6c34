"""CDFGNN: exactness without cache and codec, consistent caches, exact bytes, and the rule of its threshold."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness import loopback
from harness.conformance import adjacency, reference_gradients
from harness.errors import Diverged, InputError
from harness.exchanges import Leg, Memory, PlainSync
from harness.graphs import Graph, VertexPart
from harness.methods.bases.base import Method
from harness.methods.bases.vertex_cut import VertexState
from harness.methods.cdfgnn import CDFGNN
from harness.nn import GNN, Conv
from harness.rank import Rank
from harness.running import prepare, run
from harness.running.results import Result
from tests.conformance.test_drivers import config
from tests.conftest import real_data
from tests.support.conformance import make_model, relative_error, step
from tests.support.graphs import random_graph
from tests.support.vertex import DEALS, looped_graphs, summed, vertex_parts

EXACT = (
    CDFGNN(cache=False, quantise=False),
    CDFGNN(cache=False, quantise=False, last="half"),
    CDFGNN(quantise=False, rule="fixed", eps0=0.0),
    CDFGNN(quantise=False, rule="fixed", eps0=0.0, last="half"),
    CDFGNN(cache=False, quantise=False, loop="edge"),
    CDFGNN(quantise=False, rule="fixed", eps0=0.0, last="half", loop="edge"),
)
KINDS = pytest.mark.parametrize("kind", ["gcn", "gcn-no-loop", "sage", "gat"])


def assert_exact(
    method: CDFGNN, kind: str, graph: Graph, parts: int, deal: str, *, single: bool = False, **options: object
) -> None:
    """In double precision to 1e-10, far below any error of the method; or in `single` precision to 1e-6."""
    dtype, tolerance = (torch.float32, 1e-6) if single else (torch.float64, 1e-10)
    model = make_model(kind, graph, dtype=dtype, **options)
    loss, wanted = reference_gradients(copy.deepcopy(model).double(), graph)
    found_loss, found, _ = step(method, model, vertex_parts(graph, parts, deal, dtype=dtype))  # type: ignore[arg-type]
    assert found_loss == pytest.approx(loss, rel=tolerance, abs=1e-9)
    assert relative_error([f.double() for f in found], wanted) < tolerance


# -- exactness ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", EXACT)
def test_averaged_heads_are_exact(method: CDFGNN) -> None:
    assert_exact(method, "gat", random_graph(60, 240, seed=9), 3, DEALS[0], heads=3, hidden_heads="mean")


@KINDS
@pytest.mark.parametrize("parts", [1, 2, 3, 4, 8])
@given(
    graph=looped_graphs(),
    deal=st.sampled_from(DEALS),
    method=st.sampled_from(EXACT),
    order=st.sampled_from(["aggregate-first", "linear-first"]),
)
@settings(max_examples=8)
def test_gradients_equal_one_process(
    parts: int, kind: str, graph: Graph, deal: str, method: CDFGNN, order: str
) -> None:
    """Self loops, isolated nodes, parts without edges and graphs without edges included."""
    assert_exact(method, kind, graph, parts, deal, order=order)


@KINDS
@pytest.mark.parametrize("parts", [1, 2, 3, 4, 8])
def test_single_precision_is_exact_to_one_in_a_million(parts: int, kind: str) -> None:
    graph = random_graph(200, 800, seed=8)
    for method in (EXACT[0], EXACT[3]):
        assert_exact(method, kind, graph, parts, "random", single=True, norm="none")


@pytest.mark.parametrize("kind", ["gcn", "sage"])
def test_a_precomputed_input_layer_changes_nothing_but_bytes(kind: str) -> None:
    graph = random_graph(40, 120, seed=2)
    assert_exact(CDFGNN(cache=False, quantise=False, layer0="precompute"), kind, graph, 3, "random")
    model = make_model(kind, graph)
    _, _, traffic = step(CDFGNN(layer0="precompute"), model, vertex_parts(graph, 3))  # type: ignore[arg-type]
    assert set(traffic[0].layers["forward"]) == {1, 2} and set(traffic[0].layers["backward"]) == {1, 2}


def test_trailing_dense_layers_exchange_nothing() -> None:
    graph = random_graph(30, 90, seed=5)
    for method in EXACT:
        assert_exact(method, "gcn", graph, 3, "random", linear_layers=1)
    model = make_model("gcn", graph, linear_layers=1)
    _, _, traffic = step(EXACT[0], model, vertex_parts(graph, 3))  # type: ignore[arg-type]
    assert set(traffic[0].layers["forward"]) == {0, 1}


@dataclass(frozen=True, eq=False)
class Recording(PlainSync):
    """Exact sums that keep their partial rows."""

    seen: list[Tensor] = field(default_factory=list)

    async def total(self, rank: Rank, x: Tensor, leg: Leg) -> Tensor:
        if leg.direction == "forward":
            self.seen.append(x)
        return await super().total(rank, x, leg)


@dataclass(frozen=True, kw_only=True)
class Watched(CDFGNN):
    """Without cache and quantisation; the sums of every rank are kept in `syncs`."""

    syncs: ClassVar[dict[int, Recording]]

    def sync(self, rank: Rank, state: VertexState, memory: Memory) -> Recording:
        return self.syncs.setdefault(rank.index, Recording(state.replicas))


@pytest.mark.parametrize(("kind", "loop"), [("gcn", "edge"), ("gcn", "after"), ("gcn-no-loop", "after")])
def test_what_is_summed_has_the_self_loops_only_as_edges(kind: str, loop: Any) -> None:
    """The partial rows of the first layer, added over replicas, beside the adjacency of Kipf and Welling, Eq. 2."""
    graph = random_graph(30, 90, seed=5)
    parts, a = vertex_parts(graph, 3), adjacency(graph)
    Watched.syncs = {}
    step(Watched(cache=False, quantise=False, loop=loop), make_model(kind, graph), parts)  # type: ignore[arg-type]
    found = summed(parts, [Watched.syncs[r].seen[0] for r in range(3)])
    degree = a.sum(1) + 1 if kind == "gcn" else a.sum(1).clamp(min=1)
    looped = a + torch.eye(len(a)) if loop == "edge" else a
    wanted = degree.rsqrt()[:, None] * looped @ (degree.rsqrt()[:, None] * torch.as_tensor(graph.x).double())
    for rows, part in zip(found, parts, strict=True):
        assert torch.allclose(rows, wanted[part.nodes], atol=1e-12)


def test_parameter_servers_train_as_an_all_reduce_does() -> None:
    """Alg. 1, lines 12 and 13, are a sum of gradients and one step; only who computes it differs."""
    reduced = run(config("cdfgnn", model="gcn", epochs=4))
    for servers in (1, 2, 3):
        served = run(config(f"cdfgnn:servers={servers}", model="gcn", epochs=4))
        for ours, theirs in zip(served.epochs, reduced.epochs, strict=True):
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-6)
            assert ours["bytes"]["reduce"] == theirs["bytes"]["reduce"]
    with pytest.raises(InputError, match="4 servers on 3 ranks"):
        run(config("cdfgnn:servers=4", model="gcn"))


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("cache", [True, False])
def test_quantised_gradients_are_close(bits: int, cache: bool) -> None:
    graph = random_graph(60, 240, seed=9)
    model = make_model("gcn", graph, norm="none")
    _, wanted = reference_gradients(model, graph)
    method = CDFGNN(cache=cache, bits=bits, rule="fixed", eps0=0.0)
    _, found, _ = step(method, model, vertex_parts(graph, 4))  # type: ignore[arg-type]
    error = relative_error(found, wanted)
    assert 1e-9 < error < (0.05 if bits == 8 else 5e-4)


@pytest.mark.parametrize("method", [CDFGNN(), CDFGNN(quantise=False), CDFGNN(cache=False)], ids=str)
def test_nan_is_refused_by_rank_layer_and_epoch(method: CDFGNN) -> None:
    graph = random_graph(30, 90, seed=6)
    parts = vertex_parts(graph, 3, dtype=torch.float32)
    assert parts[2].x is not None
    parts[2].x[:] = float("nan")
    with pytest.raises(Diverged, match=r"rank 2, layer 0, epoch 5: forward z.*: row \d+ holds nan or inf"):
        step(method, make_model("gcn", graph, dtype=torch.float32), parts, epoch=5)  # type: ignore[arg-type]


# -- bytes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("quantise", "row"), [("false", lambda d: 4 * d), ("true", lambda d: d + 8)])
@pytest.mark.parametrize("last", ["full", "half"])
def test_bytes_without_a_cache_are_the_formula(quantise: str, row: Any, last: str) -> None:
    setting = config(f"cdfgnn:cache=false:quantise={quantise}:last={last}", order="linear-first", epochs=1)
    result = run(setting)
    mirrors = result.graph["partition"]["num_mirrors"]
    wanted = [2 * mirrors * row(d) for d in (10, 10)] + [(1 if last == "half" else 2) * mirrors * row(4)]
    sent = result.epochs[0]["bytes"]
    assert sent["forward"] == sent["backward"] == wanted and sent["other"] == 0


def test_attention_sends_its_maximum_and_denominator_exactly() -> None:
    result = run(config("cdfgnn:cache=false:quantise=false", model="gat", heads=2, epochs=1))
    mirrors = result.graph["partition"]["num_mirrors"]
    sent, widths = result.epochs[0]["bytes"], [20, 20, 8]
    assert sent["forward"] == [2 * mirrors * 4 * (width + 2 + 2) for width in widths]
    assert sent["backward"] == [2 * mirrors * 4 * (width + 2) for width in widths]


@pytest.mark.parametrize("quantise", [True, False])
def test_bytes_with_a_cache_are_rows_flags_and_counts(quantise: bool) -> None:
    setting = config(f"cdfgnn:quantise={str(quantise).lower()}:bits=4", order="linear-first", epochs=6)
    result, size = run(setting), setting.cut.parts
    parts = [prepare(setting).training(rank) for rank in range(size)]
    flags = 2 * sum(int((-(-part.plan.recv_counts // 8)).sum()) for part in parts)
    whole = 2 * sum(part.num_mirrors for part in parts)
    counts = 2 * size * (size - 1) * (16 if quantise else 8)
    for epoch in result.epochs:
        for direction, name in (("forward", "sent"), ("backward", "sent-backward")):
            for l, width in enumerate((10, 10, 4)):
                moving = whole // 2 if (direction, l) == ("backward", 2) else whole  # no gradient on mirrors
                rows = round(epoch["observed"][f"{name}/{l}"] * moving)
                row = -(-width * 4 // 8) + 8 if quantise else 4 * width
                assert epoch["bytes"][direction][l] == rows * row + flags + counts
        assert epoch["bytes"]["other"] == 2 * (size - 1) * 24


def test_backward_rows_that_are_always_zero_are_counted_apart() -> None:
    """A loss on masters has no gradient on the last layer's mirrors: half of that stream is never sent."""
    for method, names in (("cdfgnn", {"zero-backward/2"}), ("cdfgnn:last=half", set())):
        for epoch in run(config(method, order="linear-first", epochs=3)).epochs:
            zeros = {name: share for name, share in epoch["observed"].items() if name.startswith("zero")}
            assert set(zeros) == names and all(share == 0.5 for share in zeros.values())
    whole = run(config("cdfgnn:rule=fixed:eps0=0:quantise=false", order="linear-first", epochs=2, dropout=0.0))
    assert whole.epochs[1]["observed"]["sent-backward/2"] > 0.5, "most masters have training nodes here"


def test_one_rank_sends_nothing() -> None:
    result = run(config("cdfgnn", parts=1, epochs=2))
    assert sum(result.epochs[1]["bytes"]["forward"]) == sum(result.epochs[1]["bytes"]["backward"]) == 0


# -- training ----------------------------------------------------------------------------------------------------------


def cora(method: str, **values: object) -> Result:
    base = {"dataset": str(real_data() / "cora.npz"), "model": "gcn", "layers": 2, "hidden": 16, "dropout": 0.0}
    base |= {"norm": "none", "order": "linear-first", "epochs": 60, "eval_every": 60, "parts": 4}
    return run(config(method, **{**base, **values}))


def test_cached_training_keeps_the_accuracy_and_sends_less_and_less() -> None:
    exact, cached = cora("cdfgnn:cache=false:quantise=false"), cora("cdfgnn")
    assert cached.epochs[-1]["test"] > exact.epochs[-1]["test"] - 0.02
    observed = [epoch["observed"] for epoch in cached.epochs]
    assert observed[0]["sent/0"] == 1.0 and observed[-1]["sent/0"] < 0.5 and observed[-1]["sent-backward/0"] < 0.5
    assert all(CDFGNN.nu2 <= epoch["threshold"] <= CDFGNN.nu1 for epoch in observed)
    sent = [sum(map(sum, (r["bytes"]["forward"], r["bytes"]["backward"]))) for r in cached.epochs]
    assert sum(sent[-10:]) < 0.5 * sum(sent[:10])
    again = cora("cdfgnn", epochs=10, eval_every=-1)
    assert [e["loss"] for e in again.epochs] == [e["loss"] for e in cached.epochs[:10]]
    assert [e["bytes"] for e in again.epochs] == [e["bytes"] for e in cached.epochs[:10]]


def test_exact_losses_do_not_depend_on_the_number_of_parts() -> None:
    whole = cora("single", parts=1, layer0="cache", epochs=10)
    split = cora("cdfgnn:cache=false:quantise=false", epochs=10)
    for a, b in zip(whole.epochs, split.epochs, strict=True):
        assert b["loss"] == pytest.approx(a["loss"], rel=1e-5)
    assert split.epochs[-1]["test"] == pytest.approx(whole.epochs[-1]["test"], abs=0.01)


def test_inductive_training_evaluates_on_the_whole_graph() -> None:
    result = run(config("cdfgnn", protocol="inductive", epochs=5))
    assert result.epochs[-1]["test"] is not None and result.epochs[-1]["loss"] < result.epochs[0]["loss"]


def adapted(method: CDFGNN, *accuracies: float | None) -> list[float]:
    """The thresholds after each of these training accuracies."""
    memory: Memory = {"threshold": torch.tensor(method.eps0), "mean-accuracy": torch.tensor(float("nan"))}
    found = []
    for accuracy in accuracies:
        method.adapt(memory, accuracy)
        found.append(float(memory["threshold"]))
    return found


def test_the_threshold_follows_training_accuracy() -> None:
    """Equations 6 and 7, the first accuracy being the first mean: means 0.5, 0.52, 0.516, 0.516, then a fall."""
    grown = 0.01 * 1.05
    text = adapted(CDFGNN(), 0.5, 0.6, 0.5, 0.516, None, 0.1)
    assert text == pytest.approx([0.01, grown, grown * 0.9, grown * 0.9, grown * 0.9, grown * 0.81])
    printed = adapted(CDFGNN(rule="printed"), 0.5, 0.6, 0.5)
    assert printed == pytest.approx([0.01, 0.009, 0.009 * 1.05])


def test_the_threshold_stays_in_its_bounds_and_moves_by_no_more_than_xi() -> None:
    rising, falling = [0.1 * i for i in range(10)] * 9, [1.0 - 0.1 * i for i in range(10)] * 9
    assert max(adapted(CDFGNN(eps0=0.29), *rising)) == 0.3
    assert min(adapted(CDFGNN(eps0=0.0011), *falling)) == 0.001
    steps = adapted(CDFGNN(eps0=0.2, xi=0.001), 0.0, 0.5, 0.0)
    assert steps == pytest.approx([0.2, 0.201, 0.2])


# -- shapes and refusals -----------------------------------------------------------------------------------------------


def traffic_of_shapes(method: Method, parts: list[VertexPart], model: GNN, rates: dict[str, float]) -> list[Any]:
    """Bytes by direction and layer of one epoch on meta tensors."""
    size = len(parts)

    async def program(rank: Rank) -> Any:
        rank.rates = rates
        part, meta = parts[rank.index].shapes_only(), copy.deepcopy(model).to("meta")
        state = await method.setup(rank, part, meta)
        memory = method.remember(rank, part, meta, state)
        rank.traffic.take()
        await method.epoch(rank, part, meta, state, memory, method.optimizer(rank, meta, 0.01, 0.0))
        return {direction: dict(found) for direction, found in rank.traffic.take().layers.items()}

    return loopback.run_ranks(program, size, make_rank=lambda i: Rank(i, size, device="meta"))


@KINDS
@pytest.mark.parametrize("method", [EXACT[0], CDFGNN(cache=False), CDFGNN(cache=False, last="half")], ids=str)
def test_shapes_alone_give_the_same_bytes(kind: str, method: CDFGNN) -> None:
    graph = random_graph(60, 240, seed=9)
    parts, model = vertex_parts(graph, 4, dtype=torch.float32), make_model(kind, graph, dtype=torch.float32)
    _, _, traffic = step(method, model, parts)  # type: ignore[arg-type]
    for shapes, real in zip(traffic_of_shapes(method, parts, model, {}), traffic, strict=True):
        assert {name: shapes[name] for name in ("forward", "backward")} == real.layers


def test_shapes_take_their_rates_from_a_recorded_run() -> None:
    graph, method = random_graph(200, 1200, seed=9), CDFGNN(bits=4)
    parts = vertex_parts(graph, 4, dtype=torch.float32)
    model = make_model("gcn", graph, dtype=torch.float32)
    names = [f"{name}/{l}" for name in ("sent", "sent-backward") for l in range(3)]
    with pytest.raises(InputError, match="'sent/0'"):
        traffic_of_shapes(method, parts, model, {})
    some, all_ = (traffic_of_shapes(method, parts, model, dict.fromkeys(names, rate)) for rate in (0.25, 1.0))
    for rank, part in enumerate(parts):
        rows = part.num_mirrors + int(part.plan.send_counts.sum())
        fixed = int((-(-part.plan.recv_counts // 8) - (-part.plan.send_counts // 8)).sum()) + 2 * 3 * 16
        assert all_[rank]["forward"][1] == rows * (2 + 8) + fixed
        assert some[rank]["forward"][1] - fixed == pytest.approx(0.25 * rows * (2 + 8), abs=8 * 10)
        mirrored = int(part.plan.send_counts.sum())  # the only rows of the last layer that have a gradient
        assert all_[rank]["backward"][2] == mirrored * (-(-3 * 4 // 8) + 8) + fixed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 3}, "bits must be 1, 2, 4, 8, 16, not 3"),
        ({"eps0": 0.0}, "eps0=0.0 is outside .* use rule=fixed"),
        ({"eps0": -1.0, "rule": "fixed"}, "eps0 must not be negative"),
        ({"nu1": 0.0}, "0 <= nu2 <= nu1"),
        ({"lambda2": 1.5}, "lambda2 must be in"),
        ({"xi": -0.1}, "must not be negative"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        CDFGNN(**options).validate()


def test_models_and_graphs_that_cannot_run_are_refused() -> None:
    class Foreign(torch.nn.Module):
        def forward(self, graph: Any, own: Tensor, halo: Tensor) -> Tensor:
            return own

    graph = random_graph(10, 20, seed=1)
    known = vertex_parts(graph, 2)[0].totals
    with pytest.raises(InputError, match="layers of haloscope"):
        CDFGNN().check(GNN([Foreign()], [5, 3]), known, 2)
    assert not isinstance(Foreign(), Conv)
    for kind, order in (("gat", "auto"), ("gcn", "linear-first")):
        with pytest.raises(InputError, match="layer0=precompute needs"):
            CDFGNN(layer0="precompute").check(make_model(kind, graph, order=order), known, 2)
    with pytest.raises(InputError, match="no features or no labels"):
        CDFGNN().check(make_model("gcn", graph), replace(known, num_features=0), 2)


def test_evaluation_is_exact() -> None:
    exact = CDFGNN(bits=2, last="half", layer0="precompute").exact()
    assert (exact.cache, exact.quantise, exact.last, exact.layer0) == (False, False, "half", "precompute")
