"""CDFGNN's tables and figures: published values, theory against them, cuts and their input to the simulation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from reports.cdfgnn import _cuts, _times
from reports.cdfgnn import _tables as cdfgnn
from reports.cdfgnn._accuracy import STREAMS, VARIANTS, _falls, _largest_between, _quiet, saved
from reports.cdfgnn._broadcasts import BROADCASTING, broadcast_seconds, less_than_sancus, over_broadcasts
from reports.cdfgnn._convergence import _as_soon
from reports.cdfgnn._cuts import (
    CUTS,
    DATASETS,
    EBV0,
    EBV1,
    PRINTED_GPUS,
    Printed,
    gpu_counts,
    printed_sizes,
    stand_in_cut,
)
from reports.core.claims import distinct_claims
from reports.core.context import Context, demand
from reports.core.inputs import Inputs
from reports.core.load import published
from reports.core.rendering import paper_layout
from reports.core.table import Ordering
from reports.core.train import Trained

STAND_IN = "synthetic:nodes=600,degree=12,features=4"


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """A context in which one small synthetic graph stands in for all."""
    for module in (_cuts, cdfgnn, _times):
        monkeypatch.setattr(module, "graph_for", lambda context, name: (STAND_IN, f"{STAND_IN} stands in for {name}"))
    return Context(out=tmp_path, seconds=0.1, quiet=True)


def test_every_table_and_figure_has_its_key() -> None:
    assert list(cdfgnn.TABLES) == ["table1", "table2", "table3"]
    assert list(cdfgnn.FIGURES) == ["figure5", "figure6", "figure7", "figure8"]


def test_inputs_are_quoted(context: Context) -> None:
    for name, make in list(cdfgnn.TABLES.items())[:2]:
        table = make(context)
        assert [row.published for row in table.rows] == published(f"cdfgnn-{name}")["value"].tolist()
        assert all(row.verdict.startswith("input") for row in table.rows) and not table.errors()
    marked = [row.verdict for row in cdfgnn.table1(context).rows if row.conflict]
    assert marked == ["input; paper contradicts itself (CD7)"]
    assert [row.ours for row in cdfgnn.table2(context).rows][:2] == pytest.approx([22.7, 8.27])


def test_cuts_beside_the_printed_ones(context: Context) -> None:
    table, frame = cdfgnn.table3(context), published("cdfgnn-table3")
    printed = [row for row in table.rows if row.how == "partitioned" and row.at]
    assert [row.published for row in printed] == frame["value"].tolist()
    assert {row.judge for row in printed} == {"order"}
    marked = [(row.label, row.quantity) for row in printed if row.conflict == "CD2"]
    assert marked == [
        ("Reddit, EBV_gamma=0.1", what)
        for what in ("inner connections max", "outer connections max", "replication factor")
    ]
    by = {(row.label, row.quantity): row.ours for row in printed}
    for method in CUTS:
        cut = stand_in_cut(STAND_IN, method, 8).quality
        assert by[f"ogbn-products, {method}", "replication factor"] == cut["replication"]
        assert 1 < cut["replication"] < 8 and 0 < cut["max_outer"] < 600 * 8
    assert len(table.orderings) == 5 * len(DATASETS)
    assert all(ordering.verdict != "not judged" for ordering in table.orderings)
    assert table.orderings[0].text.startswith(f"{STAND_IN} stands in for reddit, 4 GPUs")
    assert [o.theory != "" for o in table.orderings] == [False, False, False, False, True] * len(DATASETS)
    less = next(row for row in table.rows if row.quantity == "reduction of outer connections")
    assert less.published == 31.08 and less.judge == "readings" and not less.counts
    orders = [less.ours, *less.readings]
    assert len(set(orders)) == 3, "the order of EBV's edges changes it"
    cuts = [
        [stand_in_cut(STAND_IN, method, n, "file").quality["max_outer"] for method in (EBV1, EBV0)]
        for n in PRINTED_GPUS.values()
    ]
    assert less.readings[0] == pytest.approx(100 * fmean(1 - a / b for a, b in cuts))
    assert all(ordering.runs for ordering in table.orderings)
    orderings = [claim for _, (_, claim) in distinct_claims([table]) if isinstance(claim, Ordering)]
    assert len(orderings) == 5 * 3, "two data sets have the same cuts here, of which each claim counts once"
    layout = paper_layout(table)
    assert layout is not None and layout.columns == ("Inner", "Outer", "RF", "Edge IF") and len(layout.rows) == 16


def test_theory_gives_the_connections_of_balanced_cuts() -> None:
    rows = [cdfgnn.theory(dataset, method) for dataset in DATASETS for method in CUTS]
    assert not any(row.counts for row in rows)  # one printed column from another is no prediction
    balanced = [row for row in rows if "EBV" in row.label and not row.conflict]
    assert len(balanced) == 7  # two rows of four data sets, one of which contradicts itself
    assert max(abs(row.error or 0.0) for row in balanced) < 0.1
    conflict = next(row for row in rows if row.conflict)
    assert conflict.conflict == "CD2" and conflict.published == 105_412 + 117_879
    bounds = [row for row in rows if "lower bound" in row.note]
    assert len(bounds) == 8
    assert all((row.ours or 0.0) < (row.published or 0.0) for row in bounds)


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_cut_is_the_printed_one_at_its_number_of_gpus(context: Context, dataset: str) -> None:
    gpus, sizes = PRINTED_GPUS[dataset], printed_sizes(dataset)
    for method in CUTS:
        printed, (pairs, edges) = Printed.of(dataset, method), gpu_counts(context, dataset, method, gpus)
        assert 1 + pairs.sum() / sizes["vertices"] == pytest.approx(printed.replication, rel=0.06)  # CD2 lowers one
        half = gpus // 2
        outside = (pairs[:half, half:].sum() + pairs[half:, :half].sum()) / pairs.sum()
        assert outside == pytest.approx(printed.outer / (printed.inner + printed.outer), abs=1e-3)
        assert edges.max() * gpus / sizes["edges"] == pytest.approx(printed.imbalance, rel=1e-3)
        assert edges.sum() == pytest.approx(sizes["edges"]) and not pairs.diagonal().any()
        two, _ = gpu_counts(context, dataset, method, 2)
        assert two.shape == (2, 2) and 0 < two.sum() < pairs.sum()


def test_a_stand_in_is_cut_into_pairs_that_add_up_to_its_mirrors() -> None:
    cut = stand_in_cut(STAND_IN, EBV1, 4)
    assert cut.pairs.sum() == cut.quality["num_mirrors"] == sum(cut.mirrors())
    inside = cut.pairs[:2, :2].sum() + cut.pairs[2:, 2:].sum()
    assert cut.mirrors()[0] == inside == cut.quality["inner"] / 2  # a message each way for every mirror
    assert cut.edges.max() * 4 / cut.edges.sum() == pytest.approx(cut.quality["edge_balance"])


def test_more_boundary_nodes_are_more_mirrors(context: Context) -> None:
    plain, _ = gpu_counts(context, "reddit", EBV1, 4)
    doubled, _ = gpu_counts(replace(context, inputs=Inputs(boundary=2.0)), "reddit", EBV1, 4)
    assert plain.sum() < doubled.sum() <= 2 * plain.sum() + 12


def test_fewer_messages_between_hosts_take_less_time(context: Context) -> None:
    configs = [_times.config(context, "ogbn-products", method, 8, "Baseline") for method in (EBV0, EBV1)]
    seconds = [_times._split(demand(record)) for record in context.runs(configs)]
    assert seconds[0][1] > seconds[1][1]  # communication
    assert seconds[0][0] == pytest.approx(seconds[1][0], rel=0.1)  # computation


def test_bars_of_every_gpu_have_the_run_s_mean(context: Context) -> None:
    config = _times.config(context, "reddit", "HEP", 4, "Baseline")
    (record,) = context.runs([config])
    gpus = _times.per_gpu(config)
    assert len(gpus) == 4
    compute = sum(gpu.compute for gpu in gpus) / 4
    assert compute == pytest.approx(record["summary"]["seconds"]["compute"], rel=0.05)
    assert max(gpu.compute for gpu in gpus) > 1.1 * min(gpu.compute for gpu in gpus)  # 1.27 of the mean edges
    ends = {round(gpu.compute + gpu.communication, 9) for gpu in gpus}
    assert len(ends) == 1


def test_all_claims_of_communication_become_orderings() -> None:
    bars = [*CUTS, "Cache", "Quantify", "Baseline"]
    comm = {("reddit", bar): 1.0 for bar in bars} | {("reddit", "Baseline"): 2.0}
    claims = _times._communication(comm)
    assert [claim.verdict for claim in claims] == ["wrong", "right", "right", "wrong", "wrong", "wrong"]
    assert [claim.theory != "" for claim in claims] == [True, False, False, False, False, False]
    seconds = {(d, m, PRINTED_GPUS[d]): 2.0 - (m == EBV1) for d in DATASETS for m in CUTS}
    orderings = _times._faster(seconds)
    assert len(orderings) == 11 and {ordering.verdict for ordering in orderings} == {"right"}
    assert sum(ordering.counts for ordering in orderings) == 7  # gamma follows from the printed cuts


def test_broadcasts_are_compared_case_by_case() -> None:
    seconds = {("reddit", s, 2): t for s, t in (("CAGNET", 9.0), ("SANCUS", 2.0), (EBV1, 3.0))}
    seconds |= {("reddit", s, PRINTED_GPUS["reddit"]): t for s, t in (("CAGNET", 8.0), ("SANCUS", 4.0), (EBV1, 1.0))}
    row = less_than_sancus(seconds)
    assert row.published == 30.39 and row.ours == pytest.approx((-50 + 75) / 2) and row.outcome == "cannot be judged"
    chain, first = over_broadcasts(seconds)
    assert chain.verdict == "right" and chain.ours == (8.0, 4.0, 1.0)
    assert first.verdict == "right" and first.ours == (3.0, 2.0)


def test_whole_blocks_need_no_rates(tmp_path: Path) -> None:
    """Both run on counts alone; SANCUS sends less than CAGNET."""
    context = Context(tmp_path, quiet=True)
    cases = [("reddit", system, 2) for system in BROADCASTING]
    found = broadcast_seconds(context, _times.CLUSTER, cases)
    assert found["reddit", "CAGNET", 2] > found["reddit", "SANCUS", 2] > 0


def test_what_the_cache_saves_is_the_mean_over_streams() -> None:
    assert saved(dict.fromkeys(STREAMS, 0.25)) == 75.0
    assert saved({**dict.fromkeys(STREAMS, 0.0), next(iter(STREAMS)): 1.0, "threshold": 9.0}) == 75.0


def test_convergence_is_the_epoch_at_which_a_score_is_reached() -> None:
    curve = [{"epoch": at, "test": min(0.9, at / 20)} for at in range(0, 40, 2)]
    late = [{"epoch": at, "test": min(0.9, at / 36)} for at in range(0, 40, 2)]
    never = [{"epoch": at, "test": 0.5} for at in range(0, 40, 2)]
    records = {**dict.fromkeys([*VARIANTS, "single GPU, full batch"], curve), "Cache": late, "Quantify": never}
    run = Trained(
        scores={}, records={label: [{"run_id": label, "epochs": lines}] * 5 for label, lines in records.items()},
        data="", summary="", commands=(),
    )  # fmt: skip
    verdicts = dict(zip(VARIANTS, (claim.verdict for claim in _as_soon(run)), strict=True))
    assert verdicts == {"Both": "right", "Cache": "wrong", "Quantify": "wrong", "Baseline": "right"}


def test_shares_fall_from_the_first_third_to_the_second() -> None:
    assert _falls("g", "layer", [100.0, 90.0, 10.0, 5.0, 50.0, 60.0]).verdict == "right"
    assert _falls("g", "layer", [10.0, 10.0, 40.0, 50.0, 0.0, 0.0]).verdict == "wrong"
    assert [text.partition(":")[0] for text in VARIANTS.values()] == ["cdfgnn"] * 4


def test_a_threshold_that_swells_and_messages_that_stop() -> None:
    swells, grows = _largest_between("g", [1.0, 3.0, 2.0]), _largest_between("g", [1.0, 2.0, 3.0])
    assert [ordering.verdict for ordering in swells] == ["right", "right"]
    assert [ordering.verdict for ordering in grows] == ["right", "wrong"]
    assert _quiet("g", "layer", [100.0] * 50 + [1.0] * 50).verdict == "right"
    assert _quiet("g", "layer", [100.0] * 50 + [20.0] * 50).verdict == "wrong"
