"""EC-Graph: exactness with exact options, every ablation on any number of ranks, compensation, memory, resumption."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness import loopback
from harness.codecs import Bucket
from harness.conformance import reference_gradients
from harness.exchanges import Boundary, Compressed, Memory
from harness.graphs import Graph
from harness.methods.ec_graph import ECGraph
from harness.rank import Rank
from tests.support.conformance import make_model, make_parts, relative_error, step
from tests.support.ec_graph_runs import ABLATIONS, GRAPH, NON_CP, parts_of, train, uncompressed
from tests.support.graphs import graphs, owners

PARTS = (1, 2, 3, 4, 8)


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("kind", ["gcn", "sage"])
@given(
    graph=graphs(),
    owner=st.sampled_from(["hash", "random", "first", "halves"]),
    order=st.sampled_from(["auto", "aggregate-first"]),
)
@settings(max_examples=4)
def test_non_cp_is_exact(parts: int, kind: str, graph: Graph, owner: str, order: str) -> None:
    model = make_model(kind, graph, order=order)
    loss, wanted = reference_gradients(model, graph)
    for method in (NON_CP, replace(NON_CP, layer0="exchange"), replace(NON_CP, layer0="precompute")):
        found_loss, found, _ = step(method, model, make_parts(graph, owners(graph, parts, owner), parts))
        assert found_loss == pytest.approx(loss, rel=1e-10, abs=1e-9)
        assert relative_error(found, wanted) < 1e-10


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
        assert runs[0].losses == pytest.approx(exact[0].losses, rel=0.3)
        assert runs[0].losses[0] == pytest.approx(exact[0].losses[0], rel=1e-6) or ABLATIONS[name].fp == "compressed"


def test_sixteen_bits_follow_the_uncompressed_curve() -> None:
    fine = ECGraph(bits=16, backward_bits=16, tune=False)
    for method in (
        fine,
        replace(fine, fp="compressed"),
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


def test_the_tuner_moves_each_ranks_bits_by_what_it_saw_in_the_last_layer() -> None:
    runs, moved = train(ECGraph(period=8, bits=4), 3, 16), 0
    for seen in runs:
        for epoch in range(1, 16):
            before, after = (int(seen.memories[e]["bits"]) for e in (epoch - 1, epoch))
            if (epoch + 1) % 8 == 0:
                assert before == after and "bits" not in seen.observed[epoch], "nothing is learnt in exact epochs"
                continue
            part, whole = seen.observed[epoch]["predicted/2"]
            share = part / whole
            wanted = min(2 * before, 16) if share > 0.6 else max(before // 2, 1) if share < 0.4 else before
            assert after == wanted and seen.observed[epoch]["bits"] == [before, 1.0]
            moved += before != after
    assert moved > 0
