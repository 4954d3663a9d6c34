"""Subgraph approximation's tables: published values as printed, workers by counts, fits on baselines only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness import datasets
from harness.graphs import from_edges
from harness.partition.edge import assigned
from harness.partition.overlap import overlapping_parts
from reports.core import load
from reports.core.context import Context
from reports.core.train import Trained, chosen_graph
from reports.subgraph_approximation import _tables as tables
from reports.subgraph_approximation._figures import AccuracyCurve, _drawn
from reports.subgraph_approximation._training import (
    GNNS,
    LABELS,
    OWN,
    SINGLE,
    at_equal_time,
    differences,
    equal_time_ordering,
    more_sensitive,
    options,
    orderings,
)
from reports.subgraph_approximation._workers import (
    _first_ring,
    average_seconds,
    cut_share,
    followed_gb,
    gcn_on_amazon,
    gcn_on_reddit,
    held_edges,
    operations,
    sage_bytes,
    worker_counts,
)

PAPER = "subgraph-approximation"


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path, seconds=0.01, quiet=True)


def learnt(score: float) -> list[dict[str, Any]]:
    """80 epochs, of which every fourth is evaluated; the score is reached after 20."""
    return [{"epoch": at, "test": min(1.0, (at + 1) / 20) * score / 100 if at % 4 == 3 else None} for at in range(80)]


def made_up_record(name: str, score: float) -> dict[str, Any]:
    return {"run_id": name, "epochs": learnt(score), "summary": {"test_at_best_val": score / 100}}


def made_up(context: Context, name: str, gnn: str, parts: int, **options: Any) -> Trained:
    """Scores that fall without overlap, more for KW-GCN."""
    lost = 40.0 if gnn == "KW-GCN" else 12.0
    scores = {label: (90.0 - lost * (1 - overlap), 0.0) for overlap, label in LABELS.items()}
    scores |= {label: (89.9 - lost * (1 - overlap), 0.0) for overlap, label in OWN.items()}
    scores |= {SINGLE: (95.0, 0.0)} if options.get("single", True) else {}
    records = {label: [made_up_record(f"{gnn} {label} {seed}", score) for seed in range(5)]
               for label, (score, _) in scores.items()}  # fmt: skip
    return Trained(
        scores=scores,
        records=records,
        data="a stands in for b",
        summary="made up",
        commands=(),
        where=f"a stands in for b, {parts} parts",
    )


@pytest.fixture(autouse=True)
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "overlap_runs", made_up)


def test_workers_share_the_graph(context: Context) -> None:
    whole, part = worker_counts(context, "reddit", 1), worker_counts(context, "reddit", 5)
    assert (whole.nodes, whole.edges) == (231443, 2 * 11606919)
    assert whole.edges - 5 * part.edges == pytest.approx(2 * 1.3e6)  # Sec. 1: 1.3 million edges are cut
    overlapping = worker_counts(context, "reddit", 5, 0.25)
    assert overlapping.nodes == pytest.approx(1.25 * part.nodes) and part.edges < overlapping.edges
    assert cut_share() == pytest.approx(0.14, abs=1e-4)
    assert worker_counts(context, "reddit", 5, 0.0, 2.0).edges == pytest.approx(2 * part.edges)


def test_edges_of_copies_are_those_of_real_overlapping_parts(context: Context) -> None:
    graph = datasets.load(chosen_graph(context, "reddit2")[0])
    parts = overlapping_parts(graph, assigned(graph, "metis-cut", 3).owner, 3, overlap=0.5)
    alone = overlapping_parts(graph, assigned(graph, "metis-cut", 3).owner, 3, overlap=0.0)
    expected = sum(part.graph.own.nnz for part in parts) / sum(part.graph.own.nnz for part in alone)
    assert held_edges(context, "reddit", 3, 0.5) == pytest.approx(expected) and expected > 1.1
    assert held_edges(context, "reddit", 3, 0.0) == held_edges(context, "reddit", 1, 0.5) == 1.0
    few = worker_counts(context, "reddit", 3), worker_counts(context, "reddit", 3, 0.5)
    assert few[1].edges / few[0].edges == pytest.approx(expected)


def test_the_first_ring_is_the_neighbours_in_another_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path of eight nodes in two halves: each has one neighbour in the other, and half as many copies as nodes."""
    path = from_edges("path", np.array([[*range(7), *range(1, 8)], [*range(1, 8), *range(7)]]), 8)
    monkeypatch.setattr(datasets, "load", lambda name: path)
    monkeypatch.setattr(
        "reports.subgraph_approximation._workers.assigned",
        lambda *given: SimpleNamespace(owner=np.arange(8, dtype=np.int32) // 4),
    )
    assert _first_ring.__wrapped__("path", 2) == (1.0, 2.0)


def test_the_example_of_the_introduction_is_a_run(context: Context) -> None:
    assert followed_gb(context) == pytest.approx(2.6e6 * 602 * 4 / 1e9, rel=1e-6)


def test_complexities_of_both_systems() -> None:
    """Sec. 5.4 for N nodes, F features: A F + N F^2, and 1.1 N F^2 / 5, times 250 sampled neighbours."""
    cluster, short, whole = operations("reddit", 5, 0.10)
    assert cluster == 2 * 11606919 * 602 + 231443 * 602**2
    assert short == pytest.approx(0.22 * 231443 * 602**2) and whole == pytest.approx(250 * short)
    assert short < cluster < whole


def test_one_layer_draws_as_many_neighbours_of_a_batch_as_two(context: Context) -> None:
    both = [options(context, "reddit", "GraphSAGE", layers) for layers in (1, 2)]
    assert [text.rpartition("=")[2] for text in both] == ["5", "10/5"]


def test_kw_gcn_is_fitted_on_baselines_and_close_elsewhere(context: Context) -> None:
    gcn = gcn_on_reddit(context)
    assert gcn.seconds(1, 0.0) == pytest.approx(784) and gcn.seconds(3, 0.0) == pytest.approx(376)
    assert gcn.peak_gb(1, 0.0, "") == pytest.approx(1.86, rel=0.05)  # no constant: the ledger alone
    assert gcn.seconds(5, 0.5) == pytest.approx(427, rel=0.15)
    assert gcn.peak_gb(5, 0.5, "max") == pytest.approx(0.51, rel=0.2)
    amazon = gcn_on_amazon(context)
    assert amazon.slow == gcn.slow and amazon.seconds(5, 0.0) == pytest.approx(1022)
    assert average_seconds(context, "reddit", 5) > average_seconds(context, "reddit", 3)


def test_sage_memory_goes_through_its_baselines(context: Context) -> None:
    assert sage_bytes(context, "reddit", 1, 0.0) == pytest.approx(2.79e9) and sage_bytes(
        context, "reddit", 3, 0.0
    ) == pytest.approx(0.975e9)
    assert sage_bytes(context, "amazon2m", 20, 0.0) == pytest.approx(0.89e9)
    assert sage_bytes(context, "amazon2m", 20, 0.5) == pytest.approx(0.98e9, rel=0.1)


@pytest.mark.parametrize("name", ["table1", "table2", "table3", "table4"])
def test_every_printed_number_has_its_row(context: Context, name: str) -> None:
    table = tables.TABLES[name](context)
    frame = load.published(f"{PAPER}-{name}")
    frame = frame[frame["value"].notna()].drop_duplicates(
        [c for c in ("dataset", "model", "metric", "partitions", "overlap_pct", "bound") if c in frame]
    )
    printed = [row.published for row in table.rows][: len(frame)]
    assert printed == list(frame["value"])
    assert table.key == f"{PAPER}/{name}" and len({(row.label, row.quantity) for row in table.rows}) == len(table.rows)
    assert {row.ours is None for row in table.rows if row.how != "needs data"} == {False}


def test_table2_judges_only_what_nothing_was_fitted_on(context: Context) -> None:
    table = tables.table2(context)
    fitted = {(row.label, row.quantity) for row in table.rows if row.how == "fitted"}
    assert ("KW-GCN, 1 machine", "time") in fitted and ("KW-GCN, 3 workers, 0 % overlap", "time") in fitted
    assert ("KW-GCN, 5 workers, 0 % overlap", "time") not in fitted
    assert all(row.error == pytest.approx(0, abs=1e-6) for row in table.rows if row.how == "fitted" and row.unit == "s")
    assert {row.how for row in table.rows if row.quantity == "time" and "GraphSAGE" in row.label} == {"needs data"}
    error = table.median_error()
    assert error is not None and error < 0.15
    assert {o.verdict for o in table.orderings} == {"right"}
    assert [o.text.partition(", ")[2] for o in table.orderings if o.theory] == [
        "3 parts: loss at 0 % overlap: KW-GCN > GraphSAGE",  # both losses are fitted
        *(
            f"{parts} workers: {claim}"
            for parts in (3, 5)
            for claim in ("speed-up is sub-linear", "overlap costs time")
        ),
    ]
    assert not any(row.counts for row in table.rows if row.quantity == "accuracy")
    times = [row for row in table.rows if row.counts and row.of_time]
    assert len(times) == 14 and all(row.null is not None and row.null.same for row in times)
    assert all(skill.value is not None and skill.value > 0 for skill in table.skills())
    assert len(context.fits) == 2  # one constant of the device, one of the link
    unknown = [row for row in table.rows if row.how == "needs data"]
    assert unknown and all("not published" in row.note for row in unknown)
    workers = [command for command in context.commands if "--shapes-only" in command]
    assert len(workers) == 1 + 2 * 2 * len(LABELS)  # one machine, and the least and the fullest of 3 and 5 workers


def test_table2_shows_the_accuracies_of_the_study_which_judges_them(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "overlap_runs", lambda *_, **__: pytest.fail("trained"))
    table = tables.table2(context)
    scores = [row for row in table.rows if row.quantity == "accuracy"]
    assert len(scores) == 18 and all((row.seeds or 0) >= 5 and row.interval and row.ours for row in scores)
    stand_ins = {"standin:reddit-subgraph stands in for reddit", "standin:reddit-kwgcn stands in for reddit"}
    assert {row.data for row in scores} == stand_ins
    assert not any("copies" in ordering.text for ordering in table.orderings)
    assert any("study/subgraph-approximation" in line for line in table.assumptions)


def test_equal_time_reads_each_curve_where_its_epochs_end(context: Context) -> None:
    run = made_up(context, "amazon2m", "GraphSAGE", 20, single=False)
    best = {overlap: run.mean(label) for overlap, label in LABELS.items()}
    assert at_equal_time(run, dict.fromkeys(LABELS, 80.0)) == pytest.approx(best)
    printed = at_equal_time(run, {0.0: 80.0, 0.10: 63.0, 0.25: 53.0, 0.50: 8.0})
    assert printed == pytest.approx({**best, 0.50: 0.4 * (best[0.50] or 0.0)})  # 8 of its 20 epochs to the top
    table = tables.table4(replace(context, full=True))
    shown = {row.label: row.ours for row in table.rows if row.quantity == "accuracy"}
    wanted = [best[overlap] for overlap in LABELS] + [run.mean(label) for label in OWN.values()]
    assert list(shown.values()) == pytest.approx(wanted), "printed rows first, then the other reading of the loss"
    assert [(o.verdict, o.expected[0]) for o in table.orderings] == [("right", "50 % overlap")]
    assert equal_time_ordering({0.0: 80.0, 0.10: 63.0, 0.25: 53.0, 0.50: 8.0}, run).verdict == "wrong"
    assert equal_time_ordering(dict.fromkeys(LABELS, 50.0), run).verdict == "right"
    few = replace(run, records={label: records[:4] for label, records in run.records.items()})
    assert equal_time_ordering(dict.fromkeys(LABELS, 50.0), few).verdict == "not enough runs"


def test_least_and_fullest_workers_differ(context: Context) -> None:
    least, fullest = (sage_bytes(context, "reddit", 5, 0.0, bound) for bound in ("min", "max"))
    assert (least, fullest) == pytest.approx((0.51e9, 0.55e9))
    assert least < sage_bytes(context, "reddit", 5, 0.0) * 1.1 and sage_bytes(
        context, "reddit", 5, 0.5, "min"
    ) < sage_bytes(context, "reddit", 5, 0.5, "max")


def test_claims_as_orderings(context: Context) -> None:
    gcn, sage = (made_up(context, "reddit", gnn, 5) for gnn in GNNS)
    assert more_sensitive(gcn, sage, 5).verdict == "right" and more_sensitive(sage, gcn, 5).verdict == "wrong"
    assert more_sensitive(gcn, gcn, 5).verdict == "undecided"
    assert "a stands in for b" in more_sensitive(gcn, sage, 5).text + orderings(gcn, "x")[0].text
    assert [o.verdict for o in orderings(gcn, "x")] == ["right"] * 4
    three = made_up(context, "reddit", GNNS[0], 3)
    both = [o.claim for run in (gcn, three) for o in orderings(run, f"KW-GCN, {run.where[-7]} workers")]
    assert len(set(both)) == 4 == len(both) / 2  # a claim on any number of workers is one
    assert len(orderings(made_up(context, "amazon2m", "KW-GCN", 5, single=False), "x")) == 3
    rows = differences(gcn, {label: 90.0 - 40.0 * (1 - overlap) for overlap, label in LABELS.items()}, "x")
    assert [row.ours for row in rows] == pytest.approx([4.0, 20.0]) == [row.published for row in rows]
    assert [row.outcome for row in rows] == ["reproduced"] * 2
    halved = differences(gcn, {label: 90.0 - 80.0 * (1 - overlap) for overlap, label in LABELS.items()}, "x")
    assert [row.outcome for row in halved] == ["contradicted"] * 2


def test_a_figure_is_drawn_twice(context: Context) -> None:
    lines = [
        AccuracyCurve(label, [1, 2, 3], [50.0, 60.0, 70.0 + at], "#0072B2") for at, label in enumerate(LABELS.values())
    ]
    plot = _drawn(context, "figure5", lines, "epoch", "Figure 5", ["said"], caption="c")
    assert [path.suffix for path in plot.paths] == [".png", ".svg"] and all(path.stat().st_size for path in plot.paths)
    assert "50 % overlap" in plot.paths[1].read_text() and plot.assumptions[0] == "said"
