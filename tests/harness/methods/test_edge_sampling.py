"""Edge sampling beside node sampling (BNS-GCN, Table 9): as many edges dropped, far more rows sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from harness.commands.shared.tables import run_report
from harness.graphs import Block
from harness.kernels.edge_drop import drop_edges, drop_edges_torch
from harness.methods.bns_gcn import BNSGCN
from harness.methods.vanilla import Vanilla
from harness.running import run
from tests.conformance.test_drivers import config
from tests.harness.methods.test_methods import aggregated_halo
from tests.support.conformance import make_model, make_parts, step
from tests.support.graphs import owners, random_graph

GRAPH = random_graph(120, 1500, seed=7)
P = 4
PARTS = make_parts(GRAPH, owners(GRAPH, P, "random"), P, torch.float32)


def random_block(seed: int, rows: int, columns: int) -> Block:
    draw = np.random.default_rng(seed)
    dense = draw.random((rows, columns)) < 0.4
    indptr = np.concatenate([[0], dense.sum(1).cumsum()]).astype(np.int32)
    return Block.from_csr(indptr, np.nonzero(dense)[1].astype(np.int32), columns)


def dense_of(indptr: Any, indices: Any, columns: int) -> np.ndarray:
    out = np.zeros((len(indptr) - 1, columns), int)
    for row in range(len(indptr) - 1):
        out[row, indices[indptr[row] : indptr[row + 1]]] += 1
    return out


@given(st.integers(0, 2**31), st.integers(0, 7), st.integers(0, 7), st.floats(0, 1), st.booleans())
def test_kept_entries_are_a_subset_with_a_true_transpose(
    seed: int, rows: int, columns: int, share: float, diagonal: bool
) -> None:
    block = random_block(seed, rows, columns)
    before = dense_of(block.indptr, block.indices, columns)
    indptr, indices, t_indptr, t_indices = arrays = drop_edges(
        block.indptr, block.indices, columns, seed, share, diagonal
    )
    after = dense_of(indptr, indices, columns)
    assert ((after == 0) | (before == 1)).all() and (after <= 1).all()
    assert (dense_of(t_indptr, t_indices, rows) == after.T).all()
    if diagonal:
        assert (np.diag(after) == np.diag(before)).all()
    by_operators = drop_edges_torch(block.indptr, block.indices, columns, seed, share, diagonal)
    assert all(torch.equal(a, b) for a, b in zip(arrays, by_operators, strict=True))


def test_the_share_kept_is_the_share_asked_for() -> None:
    block = random_block(1, 300, 400)
    kept = [block.drop_edges(key, 0.3).nnz for key in range(20)]
    deviation = (20 * block.nnz * 0.3 * 0.7) ** 0.5
    assert abs(sum(kept) - 20 * 0.3 * block.nnz) < 4.5 * deviation
    assert len(set(kept)) > 10
    assert block.drop_edges(0, 1.0).nnz == block.nnz and block.drop_edges(0, 0.0).nnz == 0
    assert block.drop_edges(3, 0.3).with_edge_map().t_edge is not None


def test_boundary_edge_sampling_is_unbiased() -> None:
    draws = 400
    exact = aggregated_halo(BNSGCN(p=1.0), 0)
    samples = torch.stack([aggregated_halo(BNSGCN(p=0.5, sampling="bes"), e) for e in range(draws)])
    z = (samples.mean(0) - exact) / (samples.std(0) / draws**0.5).clamp(min=1e-6)
    assert float(z.abs().max()) < 4.5 and float(samples.std(0).max()) > 0


def edges_left(method: BNSGCN, epochs: int) -> float:
    """Mean number of edges that an epoch's graphs keep, over all parts."""
    from harness import loopback
    from harness.rank import Rank

    model = make_model("sage", GRAPH, dtype=torch.float32)

    async def program(rank: Rank) -> int:
        part, kept = PARTS[rank.index], 0
        state = await method.setup(rank, part, model)
        for rank.epoch in range(epochs):
            plan = await method.begin(rank, part, state, {})
            kept += plan.graph.own.nnz + plan.graph.halo.nnz
        return kept

    return float(sum(loopback.run_ranks(program, P, seed=3))) / epochs


def test_all_three_drop_the_same_number_of_edges() -> None:
    total = sum(part.graph.own.nnz + part.graph.halo.nnz for part in PARTS)
    cut = sum(part.graph.halo.nnz for part in PARTS)
    wanted = total - 0.7 * cut
    for sampling in ("bernoulli", "bes", "dropedge"):
        assert edges_left(BNSGCN(p=0.3, sampling=sampling), 60) == pytest.approx(wanted, rel=0.02)


def test_dropping_edges_spares_few_rows() -> None:
    """As in Table 9: a boundary node is sent while any of its edges is left."""
    model = make_model("sage", GRAPH, dtype=torch.float32)

    def rows(sampling: Any) -> int:
        _, _, traffic = step(BNSGCN(p=0.3, sampling=sampling), model, PARTS)
        return sum(t.layers["forward"][1] for t in traffic)

    everything = sum(t.layers["forward"][1] for t in step(Vanilla(), model, PARTS)[2])
    nodes, boundary, anywhere = rows("bernoulli"), rows("bes"), rows("dropedge")
    assert nodes < 0.45 * everything < boundary < anywhere <= everything


@pytest.mark.parametrize("sampling", ["bes", "dropedge"])
@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_edge_sampling_trains(sampling: str, model: str) -> None:
    result = run(config(f"bns-gcn:p=0.3:sampling={sampling}", model=model, epochs=30, dropout=0.0))
    assert result.epochs[-1]["loss"] < 0.8 * result.epochs[0]["loss"]
    assert 0 < result.epochs[0]["observed"]["kept nodes"] <= 1


def test_memory_by_equation_4_is_reported_rank_by_rank() -> None:
    widths = [12, 10, 10]  # inputs of the three layers; the first is precomputed and holds no halo rows
    for p in (1.0, 0.25):
        result = run(config(f"bns-gcn:p={p}", epochs=1))
        counts = result.graph["partition"]
        assert counts["partitioner"] == "metis-cut"
        held = sum(result.facts["feature_bytes"])
        assert held == pytest.approx(4 * (3 * 300 * sum(widths) + p * counts["volume"] * sum(widths[1:])))


def test_tables_print_them_also_from_older_results() -> None:
    """Results of before named them eq4_bytes."""
    record = run(config("bns-gcn:p=0.5", epochs=1)).to_dict()
    older = {**record, "facts": {**record["facts"]}}
    older["facts"]["eq4_bytes"] = older["facts"].pop("feature_bytes")
    bare = {**record, "facts": {k: v for k, v in record["facts"].items() if k != "feature_bytes"}}
    new, old, none = (_outcomes(each) for each in (record, older, bare))
    assert "features kept for the backward pass, fullest rank, by formula" in dict(new) and new == old != none


def _outcomes(record: dict[str, Any]) -> list[tuple[str, str]]:
    """First and second cells of the tables' rows."""
    tables = [each for each in run_report(record) if isinstance(each, Table)]
    rows = (zip(each.columns[0].cells, each.columns[1].cells, strict=True) for each in tables)
    return [(str(name), str(cell)) for each in rows for name, cell in each]


def test_a_sampled_input_layer_holds_sampled_rows_only() -> None:
    held = {}
    for p in (1.0, 0.25):
        result = run(config(f"bns-gcn:p={p}", epochs=1, layer0="exchange"))
        volume, widths = result.graph["partition"]["volume"], [12, 10, 10]
        held[p] = sum(result.facts["feature_bytes"])
        assert held[p] == pytest.approx(4 * sum(widths) * (3 * 300 + p * volume))
    assert held[0.25] < held[1.0]


def test_bytes_per_epoch_are_a_mean_and_not_the_last_epoch() -> None:
    result = run(config("ec-graph:period=3:tune=false", epochs=6, model="gcn"))  # ends on an exact epoch
    totals = [
        sum(e["bytes"]["forward"]) + sum(e["bytes"]["backward"]) + e["bytes"]["reduce"] + e["bytes"]["other"]
        for e in result.epochs
    ]
    assert totals[-1] > 1.2 * totals[-2]
    assert result.summary()["bytes_per_epoch"] == pytest.approx(sum(totals[1:]) / 5)
