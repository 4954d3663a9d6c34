"""BNS-GCN's report: every printed number is in its table, orderings can be right and wrong, figures are drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reports import bns_gcn
from reports.bns_gcn_figures import COUNTS, boundary_at, printed_seconds, ratios
from reports.bns_gcn_parts import part_counts
from reports.bns_gcn_times import boundary, overhead, reddit, reddit_halo
from reports.context import Context
from reports.graphs import value
from reports.load import published
from reports.predict import Fit, Seconds
from reports.table import Table
from tests.made_up_runs import quick


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path / "cache"))
    return Context(out=tmp_path, quiet=True, seconds=0.01)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with quick(monkeypatch, "bns_gcn_scores"):
        yield


def numbers(table: Table) -> Counter[float]:
    return Counter(row.published for row in table.rows if row.published is not None and row.published == row.published)


def test_the_report_has_all_tables_and_figures() -> None:
    assert list(bns_gcn.TABLES) == [f"table{n}" for n in range(1, 14)]
    assert list(bns_gcn.FIGURES) == [f"figure{n}" for n in range(3, 10)]


@pytest.mark.parametrize("name", bns_gcn.TABLES)
def test_every_printed_number_has_its_row(name: str, context: Context, made_up: None) -> None:
    table = bns_gcn.TABLES[name](context)
    assert table.key == f"bns-gcn/{name}"
    printed = Counter(published(f"bns-gcn-{name}")["value"].dropna())
    found = numbers(table)
    if name == "table10":  # p = 1 is 1 by definition and has no row
        del printed[1.0]
    if name == "table8":  # memory is predicted twice
        printed += Counter(v for v in published("bns-gcn-table8")["value"] if v < 1)
    assert found == printed
    assert all(row.how != "needs data" or row.ours is None for row in table.rows)


@pytest.mark.parametrize("name", bns_gcn.FIGURES)
def test_figures_are_drawn(name: str, context: Context, made_up: None) -> None:
    plot = bns_gcn.FIGURES[name](context)
    assert plot.key == f"bns-gcn/{name}"
    assert [path.suffix for path in plot.paths] == [".png", ".svg"]
    assert all(path.stat().st_size > 1000 for path in plot.paths)
    assert plot.orderings


def test_rows_that_the_paper_contradicts_are_marked(context: Context, made_up: None) -> None:
    six = bns_gcn.TABLES["table6"](context)
    assert {row.conflict for row in six.rows} == {"", "BN4", "BN5"}
    five = bns_gcn.TABLES["table5"](context)
    times = [row for row in five.rows if row.quantity == "training time" and row.label.startswith("BNS-GCN")]
    assert [row.conflict for row in times] == ["", "BN7", "BN7"] and times[0].how == "fitted"


def test_baseline_rows_come_out_and_count_nowhere(context: Context, made_up: None) -> None:
    for name in ("table5", "table6", "table10", "table11"):
        table = bns_gcn.TABLES[name](context)
        fitted = [row for row in table.rows if row.how == "fitted" and row.quantity != "all-reduce"]
        assert fitted and all(row.error == pytest.approx(0, abs=0.01) for row in fitted)
        assert not any(row.counts for row in fitted)


def test_systems_that_are_not_built_say_so(context: Context, made_up: None) -> None:
    rows = bns_gcn.TABLES["table4"](context).rows
    assert {row.verdict for row in rows if "SAINT" in row.label} == {"not built"}
    assert all(row.ours is not None for row in rows if "p=1.0" in row.label)


def test_orderings_notice_wrong_numbers(context: Context, made_up: None) -> None:
    table = bns_gcn.TABLES["table9"](context)
    assert [ordering.verdict for ordering in table.orderings] == ["right"] * 6
    turned = [replace(ordering, ours=tuple(reversed(ordering.ours))) for ordering in table.orderings]
    assert [ordering.verdict for ordering in turned] == ["wrong"] * 6


def test_random_boundaries_follow_the_closed_form(context: Context, made_up: None) -> None:
    rows = [row for row in bns_gcn.TABLES["table8"](context).rows if row.quantity == "boundary nodes"]
    theory = [row for row in rows if "random" in row.label]
    assert len(theory) == 3 and all(abs(row.error or 1.0) <= 0.15 for row in theory)
    assert all(row.how == "quoted" for row in rows if "METIS" in row.label)


def test_boundaries_pass_through_what_is_printed() -> None:
    for name, counts in COUNTS.items():
        assert boundary_at(name, counts[-1]) == pytest.approx(boundary(name))
        assert boundary_at(name, counts[0]) < boundary_at(name, counts[1]) < boundary_at(name, counts[2])
    assert reddit_halo(2) < reddit_halo(4) < reddit_halo(8) == 460_000


def test_epochs_that_are_printed_elsewhere() -> None:
    assert printed_seconds("reddit", 8, "p = 1") == 0.777
    assert printed_seconds("reddit", 8, "p = 0.01") == 0.150
    assert printed_seconds("yelp", 3, "p = 0.1") == 0.270
    assert printed_seconds("yelp", 6, "p = 0.1") is None and printed_seconds("yelp", 3, "p = 1") is None


def test_the_straggler_is_the_printed_one() -> None:
    found = ratios()
    assert len(found) == 192
    assert found.max() == value(
        published("bns-gcn-text"), metric="boundary_inner_ratio", dataset="ogbn-papers100m"
    )  # fmt: skip


def test_parts_are_counted(context: Context) -> None:
    counts = part_counts({"dataset": "synthetic:nodes=300,degree=4", "parts": 3, "partitioner": "hash"})
    assert len(counts) == 3 and sum(inner for inner, _ in counts) == 300
    assert all(0 < halo <= 200 for _, halo in counts)


def test_full_graph_epochs_have_no_sampling(context: Context) -> None:
    assert overhead(context, Fit(), 8, "p=1.0") == overhead(context, Fit(), 8, "p=0.0") == 0.0


def test_table_11_is_predicted_from_its_first_row(context: Context) -> None:
    bed, fit = reddit(context)
    assert bed.seconds("vanilla", fit).epoch == pytest.approx(0.777, rel=0.005)
    sampled: Seconds = bed.seconds("bns-gcn:p=0.1", fit)
    assert sampled.epoch == pytest.approx(0.198, rel=0.15)
    assert sampled.comm < 0.15 * bed.seconds("vanilla", fit).comm
