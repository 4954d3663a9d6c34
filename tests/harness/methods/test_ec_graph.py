"""EC-Graph: exactness with exact options, every ablation on any number of ranks, compensation, memory, resumption."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness import loopback
from harness.codecs import Bucket
from harness.conformance import adjacency, dense_forward, reference_gradients
from harness.exchanges import Boundary, Compressed, Fetch, Memory
from harness.graphs import Graph
from harness.methods.bns_gcn import BNSGCN
from harness.methods.ec_graph import ECGraph
from harness.methods.ec_graph_s import ECGraphS
from harness.nn import GNN
from harness.rank import Rank
from tests.support.conformance import make_model, make_parts, relative_error, step
from tests.support.ec_graph_runs import ABLATIONS, GRAPH, NON_CP, parts_of, train, uncompressed
from tests.support.graphs import graphs, owners, random_graph

PARTS = (1, 2, 3, 4, 8)

FARTHEST = 0.5
"""Of what losses change when every halo row is zero: as much may they change when rows are compressed."""


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("kind", ["gcn", "sage"])
@given(
    graph=graphs(),
    owner=st.sampled_from(["hash", "random", "first", "halves"]),
    order=st.sampled_from(["auto", "aggregate-first", "linear-first"]),
    wire=st.sampled_from(["paper", "product"]),
)
@settings(max_examples=4)
def test_non_cp_is_exact(
    parts: int, kind: str, graph: Graph, owner: str, order: str, wire: Literal["paper", "product"]
) -> None:
    model = make_model(kind, graph, order=order)
    loss, wanted = reference_gradients(model, graph)
    for layer0 in ("cache", "exchange", "precompute"):
        method = replace(NON_CP, layer0=layer0, wire=wire)
        found_loss, found, _ = step(method, model, make_parts(graph, owners(graph, parts, owner), parts))
        assert found_loss == pytest.approx(loss, rel=1e-10, abs=1e-9)
        assert relative_error(found, wanted) < 1e-10


@dataclass(frozen=True, eq=False)
class Watched:
    """A fetch that notes what it is given: own rows by name and layer."""

    fetch: Fetch
    seen: dict[str, Tensor]
    name: str

    async def __call__(self, rank: Rank, x: Tensor) -> Tensor:
        self.seen[f"{self.name}/{rank.index}"] = x
        return await self.fetch(rank, x)


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("layer0", ["cache", "exchange"])
@given(graph=graphs(), owner=st.sampled_from(["hash", "random", "first", "halves"]))
@settings(max_examples=3)
def test_non_cp_with_attention_is_exact(
    parts: int, layer0: Literal["cache", "exchange"], graph: Graph, owner: str
) -> None:
    """Sec. III-B; layers with heads side by side, and the last with their mean."""
    model = make_model("gat", graph)
    loss, wanted = reference_gradients(model, graph)
    found_loss, found, _ = step(
        replace(NON_CP, layer0=layer0), model, make_parts(graph, owners(graph, parts, owner), parts)
    )
    assert found_loss == pytest.approx(loss, rel=1e-10, abs=1e-9)
    assert relative_error(found, wanted) < 1e-10


@pytest.mark.parametrize("layer0", ["cache", "exchange"])
def test_non_cp_with_averaged_heads_is_exact(layer0: Literal["cache", "exchange"]) -> None:
    graph = random_graph(60, 240, seed=9)
    model = make_model("gat", graph, heads=3, hidden_heads="mean")
    loss, wanted = reference_gradients(model, graph)
    found_loss, found, _ = step(replace(NON_CP, layer0=layer0), model, make_parts(graph, owners(graph, 3, "random"), 3))
    assert found_loss == pytest.approx(loss, rel=1e-10, abs=1e-9)
    assert relative_error(found, wanted) < 1e-10


@pytest.mark.parametrize("order", ["aggregate-first", "linear-first"])
@pytest.mark.parametrize("kind", ["gcn", "sage", "gat"])
def test_what_travels_is_the_papers_h_and_g_whatever_the_order(
    kind: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alg. 1, lines 5 to 7, and Alg. 2, lines 9 to 11: H of the layer below forwards, dL/dZ backwards."""
    model, seen = make_model(kind, GRAPH, order=order, norm="none"), dict[str, Tensor]()
    for direction in ("forwards", "backwards"):
        made = getattr(ECGraph, f"_{direction}")

        def watched(self: ECGraph, l: int, *rest: Any, made: Any = made, direction: str = direction) -> Fetch:
            return Watched(made(self, l, *rest), seen, f"{direction}/{l}")

        monkeypatch.setattr(ECGraph, f"_{direction}", watched)
    parts = make_parts(GRAPH, owners(GRAPH, 2, "random"), 2)
    step(NON_CP, model, parts)
    assert GRAPH.x is not None and GRAPH.y is not None
    h, a, z = torch.from_numpy(GRAPH.x).double(), adjacency(GRAPH), list[Tensor]()
    hidden = []
    for l in range(3):
        hidden.append(h)
        one = GNN([model.layers[l]], model.widths[l : l + 2])
        z.append(dense_forward(one, a, h))
        z[-1].retain_grad()
        h = z[-1].relu()
    train = torch.from_numpy(GRAPH.train)
    torch.nn.functional.cross_entropy(z[2][train], torch.from_numpy(GRAPH.y)[train], reduction="sum").backward()
    for rank, part in enumerate(parts):
        for l in (1, 2):
            wanted = z[l].grad
            assert wanted is not None
            torch.testing.assert_close(seen[f"forwards/{l}/{rank}"], hidden[l][part.nodes].detach())
            torch.testing.assert_close(seen[f"backwards/{l}/{rank}"], wanted[part.nodes])


@pytest.mark.parametrize("order", ["aggregate-first", "linear-first"])
def test_gradients_of_the_last_layers_weights_are_local(order: str) -> None:
    """Alg. 2, lines 7 and 13: with exact rows forwards, compressed gradients leave the last layer's weights exact."""
    model = make_model("sage", GRAPH, order=order)
    parts = make_parts(GRAPH, owners(GRAPH, 3, "random"), 3)
    coarse = ECGraph(fp="exact", bp="compressed", backward_bits=1)
    (_, wanted, _), (_, found, _) = step(NON_CP, model, parts), step(coarse, model, parts)
    last = len(list(model.layers[2].parameters()))
    places = [at for at, (name, _) in enumerate(model.named_parameters()) if name.startswith("layers.2.")]
    assert len(places) == last
    for at in range(len(wanted)):
        error = relative_error([found[at]], [wanted[at]])
        assert error < 1e-12 if at in places else error > 1e-3


@pytest.mark.parametrize("parts", PARTS)
def test_non_cp_is_exact_in_single_precision(parts: int) -> None:
    model = make_model("gcn", GRAPH, dtype=torch.float32, norm="none")
    _, wanted = reference_gradients(copy.deepcopy(model).double(), GRAPH)
    _, found, _ = step(NON_CP, model, parts_of(parts))
    assert relative_error([f.double() for f in found], wanted) < 1e-6


@pytest.mark.parametrize(("parts", "owner"), [(1, "random"), (2, "random"), (3, "first"), (4, "halves"), (8, "random")])
@pytest.mark.parametrize("name", ABLATIONS)
def test_every_ablation_runs_on_any_number_of_ranks(name: str, parts: int, owner: str) -> None:
    """Also with ranks without nodes: `first` leaves all but one empty, `halves` all but two."""
    runs = train(ABLATIONS[name], parts, 6, owner)
    assert all(seen.losses == runs[0].losses for seen in runs)
    assert np.isfinite(runs[0].losses).all()
    exact = train(uncompressed(ABLATIONS[name]), parts, 6, owner)
    if owner == "first" or parts == 1:
        assert runs[0].losses == exact[0].losses, "without a boundary nothing is lost"
    else:
        without = np.asarray(train(BNSGCN(p=0.0, layer0="cache"), parts, 6, owner)[0].losses)  # type: ignore[arg-type]
        ours, wanted = np.asarray(runs[0].losses), np.asarray(exact[0].losses)
        lost = np.abs(without - wanted).max()
        assert np.abs(ours - wanted).max() < FARTHEST * lost, "nearer to the exact losses than without any halo row"
        assert runs[0].losses[0] == pytest.approx(exact[0].losses[0], rel=1e-6) or ABLATIONS[name].fp == "compressed"


def test_sixteen_bits_follow_the_uncompressed_curve() -> None:
    fine = ECGraph(bits=16, backward_bits=16, tune=False)
    for method in (
        fine,
        replace(fine, fp="compressed", features="exact"),
        replace(fine, bp="compressed"),
        replace(fine, select="element"),
    ):
        losses = train(method, 3, 15)[0].losses
        assert losses == pytest.approx(train(NON_CP, 3, 15)[0].losses, rel=1e-3)


@pytest.mark.parametrize("name", ["EC-Graph", "element"])
def test_owners_and_readers_hold_bit_equal_trends_for_fifty_epochs(name: str) -> None:
    parts = parts_of(3)
    runs = train(replace(ABLATIONS[name], period=6), 3, 51)
    boundaries = [Boundary.of(part.plan, len(part.nodes)) for part in parts]
    for epoch in range(51):
        for layer in ("1", "2"):
            for reader in range(3):
                mine = runs[reader].memories[epoch]["trend"][layer]
                for form in ("base", "rate"):
                    theirs = []
                    for owner, boundary in enumerate(boundaries):
                        begin = int(boundary.plan.send_counts[:reader].sum())
                        rows = boundary.position[begin : begin + int(boundary.plan.send_counts[reader])]
                        theirs.append(runs[owner].memories[epoch]["trend"][layer][form][rows])
                    assert torch.equal(torch.cat(theirs), mine[f"halo_{form}"])


@pytest.mark.parametrize("bits", [1, 2, 8])
@pytest.mark.parametrize("scope", ["matrix", "row"])
def test_decoded_gradients_and_the_residual_add_up_to_all_gradients(bits: int, scope: str) -> None:
    """Eq. 11 summed over epochs: received rows plus the residual equal all rows to send."""
    part = parts_of(2)
    epochs, width = 30, 6

    def gradient(rank: int, epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(epoch * 2 + rank)
        return torch.randn(len(part[rank].nodes), width, generator=generator) * 0.9**epoch

    async def program(rank: Rank) -> tuple[Tensor, Tensor]:
        boundary, residuals = Boundary.of(part[rank.index].plan, len(part[rank.index].nodes)), Memory()
        fetch = Compressed(boundary, 1, "backward", Bucket(bits, scope), residuals)
        total = torch.zeros(len(part[rank.index].halo_nodes), width, dtype=torch.float64)
        for epoch in range(epochs):
            total += await fetch(rank, gradient(rank.index, epoch))
        return total, residuals["1"][boundary.position]

    found = loopback.run_ranks(program, 2)
    for reader in (0, 1):
        owner = 1 - reader
        wanted = sum(gradient(owner, e).double() for e in range(epochs))[part[owner].plan.send_rows]
        torch.testing.assert_close(found[reader][0] + found[owner][1], wanted, rtol=1e-5, atol=2e-6)
        assert float((found[reader][0] - wanted).abs().max()) > 1e-6, "the residual is not empty"


@pytest.mark.parametrize("name", ABLATIONS)
@pytest.mark.parametrize("stop_at", [0, 4])
def test_a_restored_run_goes_on_bit_for_bit(name: str, stop_at: int) -> None:
    for servers in (0, 2) if name == "EC-Graph" else (0,):
        method = replace(ABLATIONS[name], servers=servers)
        whole, resumed = train(method, 3, 8), train(method, 3, 8, stop_at=stop_at)
        assert [r.losses for r in whole] == [r.losses for r in resumed]
        assert [[t.to.tolist() for t in r.traffic] for r in whole] == [
            [t.to.tolist() for t in r.traffic] for r in resumed
        ]


def test_memory_is_replaced_and_never_written_into() -> None:
    """Trends between exact epochs are the tensors of the last exact one."""
    seen = train(ECGraph(period=5), 2, 9)[0]
    for earlier, later in ((0, 3), (4, 8)):
        a, b = (seen.memories[e]["trend"]["1"] for e in (earlier, later))
        assert all(torch.equal(a[k], b[k]) for k in a)


def moved(bits: int, share: float) -> int:
    """Alg. 3, lines 14 to 18."""
    return min(2 * bits, 16) if share > 0.6 else max(bits // 2, 1) if share < 0.4 else bits


def test_the_pooled_tuner_moves_a_readers_bits_by_what_it_saw_in_the_last_layer() -> None:
    runs, changes = train(ECGraph(period=8, bits=4, tuner="pooled"), 3, 16), 0
    for seen in runs:
        for epoch in range(1, 16):
            before, after = (seen.memories[e]["bits"].tolist() for e in (epoch - 1, epoch))
            assert len({*before}) == len({*after}) == 1, "one number for all owners"
            if (epoch + 1) % 8 == 0:
                assert before == after and "bits" not in seen.observed[epoch], "nothing is learnt in exact epochs"
                continue
            part, whole = seen.observed[epoch]["predicted/2"]
            assert after[0] == moved(before[0], part / whole) and seen.observed[epoch]["bits"] == [before[0], 1.0]
            changes += before != after
    assert changes > 0


def test_the_tuner_moves_each_responders_bits_by_what_it_predicted_for_all_its_readers() -> None:
    """Sec. IV-B: different bits for responding workers, the same at all who read from one."""
    runs, changes, apart = train(ECGraph(period=8, bits=4), 3, 24), 0, 0
    for epoch in range(1, 24):
        before, after = ([seen.memories[e]["bits"].tolist() for seen in runs] for e in (epoch - 1, epoch))
        for owner, seen in enumerate(runs):
            asked = {(before[r][owner], after[r][owner]) for r in range(3) if r != owner}
            assert len(asked) == 1, "all readers of an owner ask for the same"
            ((old, new),) = asked
            if (epoch + 1) % 8 == 0:
                assert old == new and "bits" not in seen.observed[epoch]
                continue
            part, whole = seen.observed[epoch]["predicted/2"]
            assert whole == int(parts_of(3)[owner].plan.send_counts.sum())
            assert new == moved(old, part / whole) and seen.observed[epoch]["bits"] == [old, 1.0]
            changes += old != new
        apart += len({after[(owner + 1) % 3][owner] for owner in range(3)}) > 1
    assert changes > 0 and apart > 0


def test_readers_of_a_sample_ask_an_owner_for_the_same_bits_though_layers_read_different_rows() -> None:
    for fanouts in ("3/2/2", "1/2/3"):
        runs, seen = train(ECGraphS(fanouts=fanouts, period=8, bits=4), 5, 12), set[int]()
        for epoch in range(12):
            for owner, part in enumerate(parts_of(5)):
                readers = np.flatnonzero(part.plan.send_counts)
                asked = {int(runs[reader].memories[epoch]["bits"][owner]) for reader in readers}
                assert len(asked) == 1
                seen |= asked
        assert len(seen) > 1


@pytest.mark.parametrize("fp", ["compressed", "trend"])
def test_a_table_of_values_changes_bytes_and_nothing_else(fp: Literal["compressed", "trend"]) -> None:
    for scope in ("matrix", "requested"):
        ends = ECGraph(fp=fp, period=4, range=scope)
        assert train(replace(ends, table="values"), 3, 6)[0].losses == train(ends, 3, 6)[0].losses


@pytest.mark.parametrize("bits", [1, 2, 8])
def test_ranges_of_requests_span_what_a_reader_asks_for(bits: int) -> None:
    """Alg. 6, lines 2 to 5: each reader gets the codes of its own request, in the range of that."""
    part = parts_of(3)
    rows = [torch.randn(len(p.nodes), 5, generator=torch.Generator().manual_seed(p.rank)) for p in part]

    async def program(rank: Rank) -> Tensor:
        boundary = Boundary.of(part[rank.index].plan, len(rows[rank.index])).by_request()
        return await Compressed(boundary, 1, "forward", Bucket(bits, "requested"))(rank, rows[rank.index])

    for reader, halo in enumerate(loopback.run_ranks(program, 3)):
        wanted = []
        for owner in range(3):
            counts = part[owner].plan.send_counts
            begin = int(counts[:reader].sum())
            asked = rows[owner][part[owner].plan.send_rows[begin : begin + int(counts[reader])]]
            if len(asked):
                codec = Bucket(bits)
                side = codec.measure(asked, asked)
                codes, _ = codec.encode(asked, side)
                wanted.append(codec.decode(codes, side, torch.tensor([0, len(asked)]), 5))
        assert torch.equal(halo, torch.cat(wanted))


@pytest.mark.parametrize("layer0", ["cache", "precompute"])
@pytest.mark.parametrize(("fp", "kept"), [("compressed", "compressed"), ("compressed", "exact"), ("trend", "exact")])
def test_plain_compression_keeps_quantised_features_for_the_run(
    fp: Literal["compressed", "trend"], kept: str, layer0: Literal["cache", "precompute"]
) -> None:
    """As in the authors' code: with fp=compressed, unless features=exact, and never with trends."""
    part, model = parts_of(2), make_model("gcn", GRAPH, dtype=torch.float32)
    method = ECGraph(fp=fp, bits=2, layer0=layer0, features="exact" if kept == "exact" else "compressed")

    async def program(rank: Rank) -> tuple[Tensor | None, Tensor | None, int]:
        state = await method.setup(rank, part[rank.index], model)
        return state.halo_x, state.z0, sum(rank.traffic.take().layers["other"].values())

    for index, (halo_x, z0, sent) in enumerate(loopback.run_ranks(program, 2)):
        mine, theirs = part[index], part[1 - index]
        assert mine.x is not None and theirs.x is not None
        wanted, n = theirs.x[theirs.plan.send_rows], len(mine.plan.send_rows)
        assert sent == (4 * n * 7 if kept == "exact" else n * 2 + 8)
        if kept == "compressed":
            codec = Bucket(2)
            side = codec.measure(wanted, theirs.x)
            wanted = codec.decode(codec.encode(wanted, side)[0], side, torch.tensor([0, len(wanted)]), 7)
        if layer0 == "cache":
            assert halo_x is not None and torch.equal(halo_x, wanted)
        else:
            aggregation = model.aggregation(0)
            assert aggregation is not None and z0 is not None
            assert torch.equal(z0, aggregation.forward(mine.graph, mine.x, wanted))
