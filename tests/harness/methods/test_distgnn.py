"""DistGNN: bins of leaves, the age of what is summed, exactness without delay, and the loss over clones."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from harness import loopback
from harness.conformance import adjacency, dense_forward, reference_gradients
from harness.errors import InputError
from harness.exchanges import DelayedSum, Memory, Replicas, drain_delayed, leaf_bins
from harness.graphs import Graph, VertexPart
from harness.methods.cdfgnn import CDFGNN
from harness.methods.distgnn import DistGNN
from harness.methods.registry import parse_method
from harness.rank import Rank
from harness.running import run
from harness.tape import Tape
from tests.conformance.test_drivers import config
from tests.support.conformance import make_model, relative_error, step
from tests.support.graphs import random_graph
from tests.support.vertex import DEALS, looped_graphs, vertex_parts

GRAPH = random_graph(60, 240, seed=9)
EXACT = DistGNN(backward="exact")


# -- no delay ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gcn", "gcn-no-loop", "sage"])
@pytest.mark.parametrize("parts", [1, 2, 3, 5])
@given(graph=looped_graphs(), deal=st.sampled_from(DEALS), order=st.sampled_from(["aggregate-first", "linear-first"]))
@settings(max_examples=8)
def test_with_summed_gradients_it_equals_one_process(
    parts: int, kind: str, graph: Graph, deal: str, order: str
) -> None:
    """Self loops, isolated nodes, parts without edges and graphs without edges included."""
    model = make_model(kind, graph, order=order)
    loss, wanted = reference_gradients(copy.deepcopy(model), graph)
    found_loss, found, _ = step(EXACT, model, vertex_parts(graph, parts, deal))  # type: ignore[arg-type]
    assert found_loss == pytest.approx(loss, rel=1e-10, abs=1e-9)
    assert relative_error(found, wanted) < 1e-10


def test_with_summed_gradients_it_trains_as_cdfgnn_without_cache_and_codes() -> None:
    ours, theirs = (
        run(config(method, model="gcn", partitioner="libra", epochs=5))
        for method in ("distgnn:backward=exact", "cdfgnn:cache=false:quantise=false")
    )
    assert [e["loss"] for e in ours.epochs] == pytest.approx([e["loss"] for e in theirs.epochs], rel=1e-4)
    assert ours.epochs[0]["bytes"]["backward"] == theirs.epochs[0]["bytes"]["backward"]


@pytest.mark.parametrize("rest", ["", ":backward=exact", ":loss=clones"])
def test_a_delay_of_one_epoch_is_none(rest: str) -> None:
    one, none = (run(config(f"distgnn:delay={delay}{rest}", epochs=4)) for delay in (1, 0))
    assert [(e["loss"], e["bytes"]) for e in one.epochs] == [(e["loss"], e["bytes"]) for e in none.epochs]


def test_gradients_of_clones_stay_where_they_are() -> None:
    """Without delay the loss is exact in the first epoch whatever the backward pass, and the gradient is not."""
    model, parts = make_model("gcn", GRAPH), vertex_parts(GRAPH, 3)
    loss, wanted = reference_gradients(copy.deepcopy(model), GRAPH)
    found_loss, found, traffic = step(DistGNN(), model, parts)  # type: ignore[arg-type]
    assert found_loss == pytest.approx(loss, rel=1e-10) and 1e-3 < relative_error(found, wanted) < 1
    assert not any(traffic[0].layers.get("backward", {}).values())


@pytest.mark.parametrize("delay", ["0", "3", "none"])
def test_one_rank_is_single(delay: str) -> None:
    whole = run(config("single", parts=1, layer0="exchange", epochs=5))
    ours = run(config(f"distgnn:delay={delay}", parts=1, epochs=5))
    assert [e["loss"] for e in ours.epochs] == pytest.approx([e["loss"] for e in whole.epochs], rel=1e-5)
    assert sum(map(sum, (ours.epochs[4]["bytes"]["forward"], ours.epochs[4]["bytes"]["backward"]))) == 0


# -- bins --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 7, 200])
def test_bins_hold_every_leaf_once_and_are_no_larger_than_their_share(count: int) -> None:
    for part in vertex_parts(GRAPH, 4):
        bins = leaf_bins(part, count)
        split = part.num_local - part.num_inner
        assert len(bins) == count and max(len(b.rows) for b in bins) <= -(-split // count)
        assert sorted(torch.cat([b.rows for b in bins]).tolist()) == list(range(part.num_mirrors))
        owners = torch.repeat_interleave(torch.arange(4), torch.from_numpy(part.plan.recv_counts))
        for b in bins:
            assert torch.equal(torch.bincount(owners[b.rows], minlength=4), torch.from_numpy(b.counts))
        ids = torch.cat([part.nodes[part.num_masters :][b.rows] for b in bins])
        roots = set(part.nodes[part.num_inner : part.num_masters].tolist())
        places = [sorted([*ids.tolist(), *roots]).index(node) for node in ids.tolist()]
        assert [p // -(-split // count) for p in places] == [b.number for b in bins for _ in b.rows]


@pytest.mark.parametrize("delay", [2, 5])
def test_in_any_r_epochs_every_leaf_is_sent_once(delay: int) -> None:
    """Bytes of r epochs in a row, from any epoch in which totals go back, are those of all leaves both ways."""
    result = run(config(f"distgnn:delay={delay}", layers=2, hidden=10, epochs=3 * delay))
    mirrors, pairs = result.graph["partition"]["num_mirrors"], 6
    for l, width in enumerate((12, 10)):
        sent = [epoch["bytes"]["forward"][l] for epoch in result.epochs]
        leaf, root = 4 * (width + 1) + 4, 4 * (width + 1)
        assert sum(sent[:delay]) == mirrors * leaf + delay * 8 * pairs
        for first in range(delay, 2 * delay + 1):
            assert sum(sent[first : first + delay]) == mirrors * (leaf + root) + delay * 8 * pairs


# -- delay -------------------------------------------------------------------------------------------------------------


def sums(parts: list[VertexPart], delay: int, epochs: int, *, growth: float, stop: int = -1) -> list[Any]:
    """Per rank and epoch: sums and degrees known, where every row's partial sum is its node's number plus one times
    the rank's number plus one, growing by `growth` an epoch. In epoch `stop` what is under way is drained."""

    async def program(rank: Rank) -> list[tuple[Tensor, Tensor]]:
        part, memory, found = parts[rank.index], Memory(), []
        replicas, bins = Replicas.of(part), leaf_bins(part, delay)
        for rank.epoch in range(epochs):
            total = DelayedSum(replicas, part.block.indptr.diff().long(), bins, 0, memory, exact=False)
            (z,) = await total.forward(rank, partial(part, rank.index, 1 + growth * rank.epoch))
            found.append((z, total.known))
            if rank.epoch == stop:
                await drain_delayed(rank, memory)
                assert all(isinstance(t, Tensor) for entry in memory.values() for t in entry.values())
        await drain_delayed(rank, memory)
        return found

    return loopback.run_ranks(program, len(parts))


def partial(part: VertexPart, rank: int, factor: float) -> Tensor:
    return (part.nodes + 1).double()[:, None] * (rank + 1) * factor


def wanted(parts: list[VertexPart], delay: int, epoch: int, growth: float) -> list[tuple[Tensor, Tensor]]:
    """The sums and degrees of an epoch node by node, from the rule: roots add leaves of epoch - r that had their turn,
    leaves take totals of epoch - r."""
    turn = epoch % delay
    leaves = [{int(n) for n in p.nodes[p.num_masters :][leaf_bins(p, delay)[turn].rows]} for p in parts]
    degrees = [p.block.indptr.diff().long() for p in parts]

    def root(rank: int, row: int, at: int) -> tuple[float, int]:
        part = parts[rank]
        node = int(part.nodes[row])
        value = (node + 1) * (rank + 1) * (1 + growth * at)
        degree = int(degrees[rank][row])
        for other, theirs in enumerate(parts):
            if node in leaves[other] and at >= delay:
                value += (node + 1) * (other + 1) * (1 + growth * (at - delay))
                degree += int(degrees[other][theirs.nodes.tolist().index(node)])
        return value, degree

    found = []
    for rank, part in enumerate(parts):
        z, known = partial(part, rank, 1 + growth * epoch), degrees[rank].clone()
        for row, node in enumerate(part.nodes.tolist()):
            if part.num_inner <= row < part.num_masters and any(node in each for each in leaves):
                z[row, 0], known[row] = root(rank, row, epoch)
            elif node in leaves[rank] and epoch >= 2 * delay:
                owner = next(r for r, p in enumerate(parts) if node in p.nodes[: p.num_masters].tolist())
                z[row, 0], known[row] = root(owner, parts[owner].nodes.tolist().index(node), epoch - delay)
        found.append((z, known))
    return found


@pytest.mark.parametrize("stop", [-1, 3, 6])
@pytest.mark.parametrize("delay", [2, 3])
def test_roots_add_what_is_r_epochs_old_and_leaves_take_totals_of_r_epochs_ago(delay: int, stop: int) -> None:
    parts = vertex_parts(random_graph(20, 50, seed=3), 3)
    found = sums(parts, delay, 3 * delay + 1, growth=0.5, stop=stop)
    for epoch in range(3 * delay + 1):
        for rank, (z, known) in enumerate(wanted(parts, delay, epoch, 0.5)):
            assert torch.allclose(found[rank][epoch][0], z, rtol=1e-12)
            assert torch.equal(found[rank][epoch][1], known)


def test_frozen_rows_are_exact_after_r_epochs_at_roots_and_2r_at_leaves() -> None:
    """On two ranks a root has one leaf, so whatever arrives completes its sum."""
    parts, delay = vertex_parts(GRAPH, 2), 3
    found = sums(parts, delay, 4 * delay, growth=0.0)
    for rank, part in enumerate(parts):
        whole = (part.nodes + 1).double() * torch.where(torch.arange(part.num_local) < part.num_inner, rank + 1, 3)
        mine = leaf_bins(part, delay)
        theirs = parts[1 - rank]
        for epoch in range(4 * delay):
            right = torch.isclose(found[rank][epoch][0][:, 0], whole)
            assert torch.equal(right, found[rank][epoch][1] == part.degree) or epoch < 2 * delay
            roots = theirs.nodes[theirs.num_masters :][leaf_bins(theirs, delay)[epoch % delay].rows]
            at = torch.isin(part.nodes, roots)
            leaves = torch.zeros(part.num_local, dtype=torch.bool)
            leaves[mine[epoch % delay].rows + part.num_masters] = True
            assert right[at].all() == (epoch >= delay) and right[leaves].all() == (epoch >= 2 * delay)
            assert not right[part.num_inner :][~(at | leaves)[part.num_inner :]].any()


def test_without_messages_a_row_is_the_mean_over_the_edges_of_its_rank() -> None:
    result = run(config("distgnn:delay=none", epochs=3))
    assert all(sum(map(sum, (e["bytes"]["forward"], e["bytes"]["backward"]))) == 0 for e in result.epochs)
    assert result.epochs[-1]["loss"] < result.epochs[0]["loss"]
    part = vertex_parts(GRAPH, 3)[1]
    assert part.x is not None
    model = make_model("sage", GRAPH, layers=1)
    rows = torch.repeat_interleave(torch.arange(part.num_local), part.block.indptr.diff().long())
    dense = torch.zeros(part.num_local, part.num_local, dtype=torch.float64)
    dense[rows, part.block.indices.long()] = 1.0
    mean = dense @ part.x / dense.sum(1, keepdim=True).clamp(min=1)

    async def program(rank: Rank) -> Tensor:
        method = DistGNN(delay="none")
        mine = vertex_parts(GRAPH, 3)[rank.index]
        return await method.forward(rank, mine, model, await method.setup(rank, mine, model), {}, Tape(rank))

    found = loopback.run_ranks(program, 3)[1]
    assert torch.allclose(found, model.combine(0, part.x, mean, transformed=False), rtol=1e-12)


# -- the rest ----------------------------------------------------------------------------------------------------------


def test_the_loss_over_clones_is_their_mean() -> None:
    graph, parts = GRAPH, vertex_parts(GRAPH, 3)
    model = make_model("gcn", graph)
    assert graph.train is not None and graph.y is not None
    logits = dense_forward(model, adjacency(graph), torch.as_tensor(graph.x).double()).detach()
    losses = functional.cross_entropy(logits, torch.as_tensor(graph.y), reduction="none")
    replicas = sum((torch.bincount(p.nodes, minlength=graph.num_nodes) for p in parts), torch.zeros(graph.num_nodes))
    train = torch.as_tensor(graph.train)
    mean = float((losses * replicas)[train].sum() / replicas[train].sum())

    async def program(rank: Rank) -> Tensor:
        mine, part, method = copy.deepcopy(model), parts[rank.index], DistGNN(loss="clones")
        state = await method.setup(rank, part, mine)
        return await method.epoch(rank, part, mine, state, {}, method.optimizer(rank, mine, 0.1, 0.0))

    for found in loopback.run_ranks(program, 3):
        assert float(found) / parts[0].totals.num_train == pytest.approx(mean, rel=1e-10)
    masters = run(config("distgnn", epochs=1)).epochs[0]["loss"]
    assert abs(mean - masters) > 1e-3


def test_its_partitioner_is_libra_unless_another_is_named() -> None:
    named = [run(config("distgnn", epochs=1, **given)).graph["partition"]["partitioner"] for given in
             ({}, {"partitioner": "libra"}, {"partitioner": "hdrf"})]  # fmt: skip
    assert named[0] == named[1] != named[2]
    assert run(config("cdfgnn", epochs=1)).graph["partition"]["partitioner"].startswith("ebv")


@pytest.mark.parametrize("method", ["distgnn", "distgnn:delay=4", "distgnn:delay=2:loss=clones", "distgnn:delay=none"])
def test_shapes_alone_give_nearly_the_same_bytes(method: str) -> None:
    """Bins have equal shares of the leaves there."""
    settings_: dict[str, Any] = {"mode": "sim", "cluster": "ethernet-1g", "epochs": 9}
    full, shapes = (run(config(method, **settings_, shapes_only=only)) for only in (False, True))
    whole, ours = ([sum(e["bytes"]["forward"]) for e in r.epochs] for r in (full, shapes))
    assert sum(ours) == pytest.approx(sum(whole), rel=0.02)
    if "=4" not in method and "=2" not in method:
        assert ours == whole


def test_evaluation_is_exact() -> None:
    assert DistGNN(delay=5, layer0="precompute", loss="clones").exact() == DistGNN(
        backward="exact", layer0="precompute"
    )
    assert isinstance(CDFGNN().exact(), CDFGNN)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("distgnn:delay=-1", "delay must be none or a number of epochs"),
        ("distgnn:delay=soon", "delay must be a whole number or none, not 'soon'"),
        ("distgnn:delay=2:backward=exact", "backward=exact needs complete sums, so delay=0, not 2"),
        ("distgnn:delay=none:backward=exact", "so delay=0, not none"),
        ("distgnn:loss=clones:backward=exact", "use loss=masters"),
    ],
)
def test_options_that_make_no_sense_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_method(text)


def test_attention_is_refused() -> None:
    with pytest.raises(InputError, match="linear in rows"):
        run(config("distgnn", model="gat"))
