"""Sylvie's report: every printed number is in its table, what was fitted counts nowhere, figures are drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from reports import sylvie
from reports.context import Context
from reports.graphs import select, value
from reports.load import published
from reports.sylvie_curves import BITS, early
from reports.sylvie_scores import _bounded
from reports.sylvie_times import METHODS, SIDE_BYTES, case, speed_ups
from tests.made_up_runs import quick, trained


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path / "cache"))
    return Context(out=tmp_path, quiet=True, seconds=0.01)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with quick(monkeypatch, "sylvie_scores", "sylvie_curves", "sylvie_figures"):
        yield


def test_the_report_has_all_tables_and_figures() -> None:
    assert list(sylvie.TABLES) == [f"table{n}" for n in range(1, 5)]
    assert list(sylvie.FIGURES) == [f"figure{n}" for n in (1, 2, 5, 6, 7, 8, 9, 10)]


@pytest.mark.parametrize("name", sylvie.TABLES)
def test_every_printed_number_has_its_row(name: str, context: Context, made_up: None) -> None:
    table = sylvie.TABLES[name](context)
    assert table.key == f"sylvie/{name}"
    frame = published(f"sylvie-{name}")
    if name == "table2":  # DGL's own throughput is 1 by definition and has no row
        frame = frame[(frame["method"] != "DGL") | (frame["metric"] != "throughput_normalised")]
    assert Counter(row.published for row in table.rows) == Counter(frame["value"])


@pytest.mark.parametrize("name", sylvie.FIGURES)
def test_figures_are_drawn(name: str, context: Context, made_up: None) -> None:
    plot = sylvie.FIGURES[name](context)
    assert plot.key == f"sylvie/{name}"
    assert [path.suffix for path in plot.paths] == [".png", ".svg"]
    assert all(path.stat().st_size > 1000 for path in plot.paths)
    assert plot.orderings


def test_the_fitted_row_comes_out_and_counts_nowhere(context: Context, made_up: None) -> None:
    rows = sylvie.TABLES["table3"](context).rows
    fitted = [row for row in rows if row.how == "fitted"]
    assert [row.published for row in fitted] == [7.28, 4.98, 6.03, 13.33]
    assert all(row.error == pytest.approx(0, abs=0.01) and not row.counts for row in fitted)
    marked = [row for row in rows if row.conflict]
    assert {(row.conflict, row.quantity) for row in marked} == {("SY5", "communication")}
    assert all("DGL" in row.label for row in marked)


def test_volumes_of_one_bit_follow_from_those_of_32(context: Context, made_up: None) -> None:
    rows = sylvie.TABLES["table3"](context).rows
    sent = {row.label: row for row in rows if row.quantity == "volume, main data"}
    for name in ("Reddit", "Yelp", "ogbn-products", "Amazon"):
        assert sent[f"{name}, Sylvie-S"].ours == pytest.approx((sent[f"{name}, DGL"].ours or 0) / 32)
    scales = [row for row in rows if row.quantity == "volume, scales" and row.counts]
    assert len(scales) == 4 and all(abs(row.error or 1.0) < 0.03 for row in scales), SIDE_BYTES


def test_what_table_3_rules_out_is_marked() -> None:
    assert _bounded("amazon", "GraphSAGE", "BNS-GCN") and _bounded("reddit", "GraphSAGE", "PipeGCN")
    assert not _bounded("amazon", "GraphSAGE", "PipeGCN")


def test_throughput_needs_a_method(context: Context, made_up: None) -> None:
    made = case(context, "reddit")
    found = speed_ups(made, ["SAR", "Sylvie-S", "Sylvie-A"])
    assert found["SAR"] is None
    assert 1 < (found["Sylvie-S"] or 0) < (found["Sylvie-A"] or 0)
    table = sylvie.TABLES["table2"](context)
    assert {row.verdict for row in table.rows if row.label.endswith("SAR")} == {"not built"}


def test_quantising_everything_is_judged_by_its_place(context: Context, made_up: None) -> None:
    table = sylvie.TABLES["table4"](context)
    assert len(table.orderings) == 9 and all(ordering.verdict == "right" for ordering in table.orderings)
    assert all(row.judge == "order" for row in table.rows) and table.median_error() is None


def test_early_accuracy_is_that_of_the_first_half(context: Context) -> None:
    run = trained(context, "reddit", {"DGL": "vanilla"}, parts=2)
    assert early(run, "DGL") == pytest.approx((17.5 + 35.0) / 2)


def test_bits_fall_from_left_to_right() -> None:
    assert list(BITS) == ["FP32", "16 bits", "8 bits", "4 bits", "2 bits", "1 bit"]
    assert BITS["1 bit"] == METHODS["Sylvie-S"]


def test_yelp_is_predicted_from_dgl_alone(context: Context) -> None:
    made = case(context, "yelp")
    frame = select(published("sylvie-table3"), dataset="yelp", method="Sylvie-S")
    ours = made.bed.seconds(METHODS["Sylvie-S"], made.fit)
    assert ours.epoch == pytest.approx(value(frame, metric="epoch_time"), rel=0.2)
    assert made.bed.seconds("vanilla", made.fit).epoch == pytest.approx(4.98, rel=0.005)
