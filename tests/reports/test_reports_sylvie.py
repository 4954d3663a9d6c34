"""Sylvie's report: every printed number is in its table, fitted rows do not count, figures are drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.methods.registry import METHODS as METHODS_THERE
from harness.methods.vanilla import Vanilla
from reports import sylvie
from reports.core.context import Context
from reports.core.load import published
from reports.core.table import POINTS
from reports.core.testbeds import select, value
from reports.sylvie._curves import BITS
from reports.sylvie._scores import _bounded
from reports.sylvie._times import METHOD_OF, _rows, case, speed_ups
from tests.support.made_up_runs import quick, trained


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path / "cache"))
    return Context(out=tmp_path, quiet=True, seconds=0.01)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with quick(monkeypatch, "sylvie._scores", "sylvie._curves", "sylvie._figures"):
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
    assert plot.orderings or name in ("figure1", "figure5")  # whose runs are judged in Table 2
    assert all(row.published is not None and row.ours is not None for row in plot.rows)


def test_numbers_that_figures_print_are_judged(context: Context, made_up: None) -> None:
    printed = {name: [row.published for row in sylvie.FIGURES[name](context).rows] for name in sylvie.FIGURES}
    assert printed["figure2"] == [89.23] and printed["figure7"] == [7.0] and printed["figure10"] == [5.9, 6.7]
    assert printed["figure9"] == pytest.approx([1.21, 0.99, 0.191, 0.101, 50], rel=0.01)
    nine = sylvie.FIGURES["figure9"](context).rows
    assert [row.conflict for row in nine] == ["", "SY6", "", "", ""] and sum(row.counts for row in nine) == 3
    assert sylvie.FIGURES["figure7"](context).rows[0].conflict == "SY10"


def test_the_fitted_row_comes_out_and_counts_nowhere(context: Context, made_up: None) -> None:
    rows = sylvie.TABLES["table3"](context).rows
    fitted = [row for row in rows if row.how == "fitted"]
    assert [row.published for row in fitted if row.unit == "s"] == [7.28, 4.98, 6.03, 13.33]
    assert [row.published for row in fitted if row.unit == "MB"] == [10.7, 4.5, 26.6, 11]  # SIDE_BYTES
    assert all(row.error == pytest.approx(0, abs=0.01) for row in fitted if row.unit == "s")
    assert not any(row.counts for row in fitted)
    marked = [row for row in rows if row.conflict]
    assert {(row.conflict, row.quantity) for row in marked} == {("SY5", "communication")}
    assert all("DGL" in row.label for row in marked)


def test_volumes_are_those_that_runs_send(context: Context) -> None:
    """No volume is judged: those of 1 bit follow from DGL's and from SIDE_BYTES. They have to be what is sent."""
    made = case(context, "yelp")
    rows = {row.quantity: row for row in _rows(made)[0] if row.label == "Yelp, Sylvie-S"}
    volumes = [rows[f"volume, {kind}"] for kind in ("main data", "scales")]
    assert not any(row.counts for row in volumes)
    (record,) = context.runs([made.bed.config(METHOD_OF["Sylvie-S"], made.fit)])
    sent = sum(record["epochs"][-1]["bytes"]["forward"]) + sum(record["epochs"][-1]["bytes"]["backward"])
    assert sent == pytest.approx(1e6 * sum(row.ours or 0.0 for row in volumes), rel=0.02)


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


def test_systems_fill_their_rows_once_there_are_methods(
    context: Context, made_up: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sar", "neighbour-sampling"):
        monkeypatch.setitem(METHODS_THERE.builtin, name, Vanilla)
    rows = [row for row in sylvie.TABLES["table2"](context).rows if row.label.endswith("SAR")]
    assert {row.how for row in rows} == {"simulated", "trained"}
    assert {row.ours for row in rows if row.how == "trained"} == {70.0}
    epochs = [case(context, "reddit").bed.seconds(method).epoch for method in ("vanilla", "sar")]
    assert epochs[1] < epochs[0] and all((row.ours or 0) > 1 for row in rows if row.how == "simulated")
    one = sylvie.TABLES["table1"](context)
    assert {row.how for row in one.rows} == {"trained"} and one.orderings[0].verdict == "not judged"  # all tie


def test_table_2_judges_every_claim_of_accuracy(context: Context, made_up: None) -> None:
    """Both of Sylvie's systems beside DGL where printed level, and BNS-GCN behind Sylvie-S on GAT."""
    claims = [o.text for o in sylvie.TABLES["table2"](context).orderings if "accura" in o.text]
    assert sum("BNS-GCN is less accurate than Sylvie-S, GAT" in text for text in claims) == 4
    level = [text for text in claims if "as accurate as DGL" in text]
    assert {text.split(" ")[0] for text in level} == {"Sylvie-S", "Sylvie-A"} and len(level) > 12
    assert all(float(text.partition("(")[2].split(" ")[0]) < POINTS for text in level)


def test_quantising_everything_is_judged_by_its_place(context: Context, made_up: None) -> None:
    table = sylvie.TABLES["table4"](context)
    assert len(table.orderings) == 9 and all(ordering.verdict == "right" for ordering in table.orderings)
    assert len({ordering.runs for ordering in table.orderings}) == 9  # made-up runs of nine graphs and models
    assert all(row.judge == "order" for row in table.rows) and table.median_error() is None


def test_early_accuracy_is_that_of_the_first_half(context: Context) -> None:
    run = trained(context, "reddit", {"DGL": "vanilla"}, parts=2)
    assert run.early("DGL") == pytest.approx((17.5 + 35.0) / 2)


def test_bits_fall_from_left_to_right() -> None:
    assert list(BITS) == ["FP32", "FP16", "8 bits", "4 bits", "2 bits", "1 bit"]
    assert BITS["1 bit"] == METHOD_OF["Sylvie-S"]


def test_yelp_is_predicted_from_dgl_alone(context: Context) -> None:
    made = case(context, "yelp")
    frame = select(published("sylvie-table3"), dataset="yelp", method="Sylvie-S")
    ours = made.bed.seconds(METHOD_OF["Sylvie-S"], made.fit)
    assert ours.epoch == pytest.approx(value(frame, metric="epoch_time"), rel=0.2)
    assert made.bed.seconds("vanilla", made.fit).epoch == pytest.approx(4.98, rel=0.005)
