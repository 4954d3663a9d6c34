"""CDFGNN's tables and figures: published values, theory against them, cuts and their input to the simulation."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.cdfgnn import _tables as cdfgnn
from reports.cdfgnn import _times as cdfgnn_times
from reports.cdfgnn._accuracy import VARIANTS, _falls, _largest_between, _quiet
from reports.cdfgnn._times import CUTS, DATASETS, PRINTED_GPUS, Cut, Printed
from reports.core.context import Context, demand
from reports.core.load import published


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """A context in which one small synthetic graph stands in for all."""
    monkeypatch.setattr(cdfgnn_times, "stand_in", lambda dataset: "synthetic:nodes=600,degree=12,features=4")
    monkeypatch.setattr(cdfgnn, "stand_in", cdfgnn_times.stand_in)
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
    printed = [row for row in table.rows if row.how == "partitioned"]
    assert [row.published for row in printed] == frame["value"].tolist()
    assert {row.judge for row in printed} == {"order"}
    marked = [(row.label, row.quantity) for row in printed if row.conflict == "CD2"]
    assert marked == [
        ("Reddit, EBV_gamma=0.1", what)
        for what in ("inner connections max", "outer connections max", "replication factor")
    ]
    by = {(row.label, row.quantity): row.ours for row in printed}
    for method in CUTS:
        cut = cdfgnn_times.measured("ogbn-products", method, 8)
        assert by[f"ogbn-products, {method}", "replication factor"] == cut["replication"]
        assert 1 < cut["replication"] < 8 and 0 < cut["max_outer"] < 600 * 8
    assert len(table.orderings) == 5 * len(DATASETS)
    assert all(ordering.verdict != "not judged" for ordering in table.orderings)
    assert table.orderings[0].text.startswith("synthetic:nodes=600,degree=12,features=4 for Reddit, 4 GPUs")


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
    gpus = PRINTED_GPUS[dataset]
    for method in CUTS:
        printed, cut = Printed.of(dataset, method), Cut.of(dataset, method, gpus)
        assert cut.replication == pytest.approx(printed.replication, rel=0.06)  # CD2 lowers one of them
        assert cut.outside == printed.outer / (printed.inner + printed.outer)
        assert cut.imbalance == pytest.approx(printed.imbalance)
        assert Cut.of(dataset, method, 2).outside == 1.0
        assert 1 < Cut.of(dataset, method, 2).replication < cut.replication


def test_fewer_messages_between_hosts_take_less_time(context: Context) -> None:
    methods = ("EBV_gamma=0.0", "EBV_gamma=0.1")
    configs = [cdfgnn_times.config(context, "ogbn-products", method, 8, "Baseline") for method in methods]
    seconds = [cdfgnn_times._split(demand(record)) for record in context.runs(configs)]
    assert seconds[0][1] > seconds[1][1]  # communication
    assert seconds[0][0] == pytest.approx(seconds[1][0], rel=0.1)  # computation


def test_all_claims_of_communication_become_orderings() -> None:
    bars = [*CUTS, "Cache", "Quantify", "Baseline"]
    comm = {("reddit", bar): 1.0 for bar in bars} | {("reddit", "Baseline"): 2.0}
    verdicts = [ordering.verdict for ordering in cdfgnn_times._communication(comm, ("reddit",))]
    assert verdicts == ["wrong", "right", "right", "wrong", "wrong", "wrong"]
    seconds = {(d, m, PRINTED_GPUS[d]): 2.0 - (m == "EBV_gamma=0.1") for d in DATASETS for m in CUTS}
    orderings = cdfgnn_times._faster(seconds)
    assert len(orderings) == 11 and {ordering.verdict for ordering in orderings} == {"right"}


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
