"""EC-Graph's tables and figures: published values are those of the files, fits converge, predictions are judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import InputError
from harness.workloads import Degrees
from reports.core.context import Context
from reports.core.load import published
from reports.core.predict import Seconds
from reports.core.table import Row
from reports.core.train import Trained
from reports.draw.drawing import panels
from reports.ec_graph import _table4 as ec_graph_table4
from reports.ec_graph import _tables as ec_graph
from reports.ec_graph import _times as ec_graph_times
from reports.ec_graph._accuracy import _ablation_orderings, ablation, reached_at
from reports.ec_graph._figures import metis_share
from reports.ec_graph._sampled import expected_shares, sampled_degree
from reports.ec_graph._times import DATASETS, LAYERS, NON_CP, PERIOD, Machines, bits, cell, published_counts
from tests.conftest import real_data


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """A context without graphs on disk: rates come from a small synthetic graph."""
    monkeypatch.setattr(ec_graph_times, "on_disk", lambda name: False)
    monkeypatch.setattr(ec_graph_times, "ELSEWHERE", "synthetic:nodes=300,degree=6,features=8")
    return Context(out=tmp_path, seconds=0.1, quiet=True)


def test_every_table_and_figure_has_its_key() -> None:
    assert list(ec_graph.TABLES) == ["table2", "table3", "table4", "table5"]
    assert list(ec_graph.FIGURES) == [f"figure{n}" for n in range(6, 12)]


def test_costs_and_the_worked_example(context: Context) -> None:
    table = ec_graph.table2(context)
    assert not any(row.counts for row in table.rows) and not any(o.counts for o in table.orderings)
    formulas, example = table.rows[:-2], table.rows[-2:]
    g = published_counts("ogbn-products")["avg_degree"]
    by = {row.label: row.ours for row in formulas}
    assert len(by) == len(published("ec-graph-table2")) == 6
    assert by["EC-Graph, memory cost"] == pytest.approx(g * 256)
    assert by["ML-centered framework, memory cost"] == pytest.approx(g**3 * 256)
    assert [(row.published, row.unit) for row in example] == [(50.0, "GiB"), (250.0, "GiB")]
    assert [row.ours for row in example] == pytest.approx([47.68, 238.42], abs=0.01)


def test_data_sets_are_counted_where_they_are_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALOSCOPE_DATA", str(real_data()))
    table = ec_graph.table3(Context(out=tmp_path, quiet=True))
    frame = published("ec-graph-table3")
    assert [row.published for row in table.rows] == frame["value"].tolist()
    by = {(row.label, row.quantity): row for row in table.rows}
    assert by["Cora", "edges"].ours == 10_556 and by["Cora", "features"].ours == 1433
    assert by["Pubmed", "features"].how == "quoted" and by["Reddit", "edges"].how == "quoted"
    measured = [row for row in table.rows if row.how == "measured"]
    assert measured and all(row.error == pytest.approx(0, abs=1e-3) for row in measured)
    assert not table.errors()  # counting an input is no prediction


def test_cells_and_bits_are_those_of_the_files() -> None:
    assert cell("reddit", 2, "EC-Graph") == 3.854
    assert cell("ogbn-papers100m", 2, "DistGNN") is None
    assert bits("ogbn-products") == {"Cp-fp": 16, "Cp-bp": 8, "ReqEC": 2, "ResEC": 2}
    for dataset in DATASETS:
        names = [text.partition(":")[0] for text in ablation(dataset).values()]
        assert names == ["ec-graph"] * 6


def test_a_fit_reproduces_its_row_and_predicts_the_next(context: Context) -> None:
    bed = Machines(context, "reddit", 2)
    printed = cell("reddit", 2, "DistGNN")
    fifth, whole = bed.clock(NON_CP, faster=5.0), bed.clock(NON_CP)
    assert fifth.epoch + bed.software() == pytest.approx(printed)
    assert 5 * (fifth.comm - fifth.wait) == pytest.approx(whole.comm - whole.wait, rel=0.1)  # bandwidth-bound
    row = ec_graph_table4._row(context, _line("reddit", 2, "EC-Graph"))
    assert row.how == "simulated" and row.counts
    assert row.ours is not None and 0.5 < row.ours / 3.854 < 1.5
    assert row.ours < bed.seconds(NON_CP)


def test_one_constant_serves_every_depth(context: Context) -> None:
    first, third = Machines(context, "reddit", 2), Machines(context, "reddit", 3, parts=12)
    assert third.overhead() == first.overhead()
    rows = [ec_graph_table4._row(context, _line("reddit", layers, "DistGNN")) for layers in (2, 3)]
    assert [row.how for row in rows] == ["fitted", "simulated"] and [row.counts for row in rows] == [False, True]
    assert rows[0].ours == pytest.approx(rows[0].published)
    modelled = Machines(context, "reddit", 3).clock(NON_CP, faster=5.0)
    assert rows[1].ours == pytest.approx(modelled.epoch + 3 * first.overhead()) and rows[1].ours != rows[1].published
    assert third.software([1.0, 0.5, 0.0]) < third.software() < 3 * third.overhead(), "half the edges are on a machine"


def test_an_epoch_too_short_for_its_traffic_is_refused(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machines, "clock", lambda self, method, **more: Seconds(4.0, 1.0, 2.0, 1.0, 0.0, 1.0))
    assert Machines(context, "reddit", 2).overhead() == pytest.approx(((cell("reddit", 2, "DistGNN") or 0.0) - 4.0) / 2)
    with pytest.raises(InputError, match=r"printed 0\.034 s \(DistGNN, Cora, 2 layers\)"):
        Machines(context, "cora", 4).overhead()


def test_a_system_that_comes_to_be_built_is_timed_by_its_own_run(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"agl": 7.0, "ec-graph-s": 9.0}
    monkeypatch.setattr(ec_graph_table4, "METHODS", own)
    monkeypatch.setattr(Machines, "seconds", lambda self, method: own[method])
    rows = [ec_graph_table4._row(context, _line("reddit", 2, name)) for name in ("AGL", "DistDGL")]
    assert [(row.ours, row.verdict[:9]) for row in rows] == [(7.0, "within 15"), (None, "not built")]


def test_an_unsampled_row_repeats_another_and_is_not_judged(context: Context) -> None:
    row, other = (ec_graph_table4._row(context, _line("cora", 2, name)) for name in ("EC-Graph-S", "EC-Graph"))
    assert row.ours == other.ours and other.counts and not row.counts
    assert row.verdict == "not judged" and row.note.startswith("the EC-Graph row again; compute")


def test_a_sample_costs_less_than_the_whole(context: Context) -> None:
    row = ec_graph_table4._row(context, _line("reddit", 2, "EC-Graph-S"))
    bed = Machines(context, "reddit", 2)
    assert row.how == "simulated" and row.counts
    assert row.ours is not None and 0 < row.ours < bed.seconds(NON_CP)
    assert "no sample reads" in row.note
    assert bed.sampled("10/5") == row.ours < bed.sampled("100/50")


@given(st.floats(1.5, 40.0), st.floats(1.1, 3.0), st.integers(1, 30), st.floats(0.0, 1.0))
def test_kept_neighbours_have_the_moments_of_the_truncated_distribution(
    mean: float, spread: float, fanout: int, z: float
) -> None:
    degrees = Degrees(mean=mean, spread=spread)
    average, at_z = sampled_degree(degrees, fanout, z)
    assert 0 < average <= min(mean, fanout) + 1e-9
    assert degrees.generating(z) - 1e-9 <= at_z <= 1 + 1e-9
    assert sampled_degree(degrees, 5_000, z) == pytest.approx((mean, degrees.generating(z)), rel=1e-3)


def test_expected_shares_are_those_of_a_drawn_sample() -> None:
    nodes, parts, fanouts, degrees = 30_000, 4, (6, 3), Degrees(mean=12.0, spread=1.2)
    rng = np.random.default_rng(3)
    shape = 1 / (degrees.spread**2 - 1 / degrees.mean)
    weight = rng.gamma(shape, 1 / shape, nodes)  # a Poisson number of edges of random mean: negative binomial degrees
    ends = rng.choice(nodes, (2, 6 * nodes), p=weight / weight.sum())
    pairs = np.unique(np.sort(ends[:, ends[0] != ends[1]], axis=0), axis=1)
    row, column = np.concatenate([pairs, pairs[::-1]], axis=1)
    owner, needed = rng.integers(parts, size=nodes), rng.random(nodes) < 0.1
    halo = owner[row] != owner[column]
    boundary = _pairs(owner[row[halo]], column[halo])
    expected = expected_shares(degrees, 0.1, fanouts, parts)
    for layer, fanout in ((1, fanouts[0]), (0, fanouts[1])):
        order = np.lexsort((rng.random(len(row)), row))
        first = np.searchsorted(row[order], row[order])
        drawn = np.zeros(len(row), bool)
        drawn[order] = (np.arange(len(row)) - first < fanout) & needed[row[order]]
        far = drawn & halo
        seen = {
            "sampled own edges": (drawn & ~halo).sum() / (~halo).sum(),
            "sampled halo edges": far.sum() / halo.sum(),
            "rows read": _pairs(owner[row[far]], column[far]) / boundary,
            "rows reading": _pairs(owner[column[far]], row[far]) / boundary,
        }
        for name, share in seen.items():
            assert expected[f"{name}/{layer}"] == pytest.approx(share, rel=0.2)
        needed = needed | np.isin(np.arange(nodes), column[drawn])


def _pairs(part: np.ndarray, node: np.ndarray) -> int:
    return len(np.unique(np.stack([part, node]), axis=1).T)


def test_rows_without_a_method_say_so(context: Context) -> None:
    rows = {name: ec_graph_table4._row(context, _line("reddit", 2, name)) for name in ("AGL", "DistGNN")}
    assert [row.verdict for row in rows.values()] == ["not built", "fitted"]
    assert all(row.published for row in rows.values())


def test_papers_have_no_fit_and_contradict_themselves(context: Context) -> None:
    assert Machines(context, "ogbn-papers100m", 2).software() == 0.0
    row = ec_graph_table4._row(context, _line("ogbn-papers100m", 2, "EC-Graph"))
    assert row.conflict == "EC6" and not row.counts
    assert "GB; compute" in row.note  # the trends of a rank exceed its machine


def _line(dataset: str, layers: int, method: str) -> pd.Series:
    frame = published("ec-graph-table4")
    return frame[(frame["dataset"] == dataset) & (frame["layers"] == layers) & (frame["method"] == method)].iloc[0]


def test_a_clock_averages_a_whole_period() -> None:
    def epoch(halo: float) -> dict[str, object]:
        names = ("compute", "codec", "sample", "swap", "reduce", "wait")
        return {"seconds": {**dict.fromkeys(names, 1.0), "halo": halo}}

    record = {"state": "done", "epochs": [epoch(99.0), epoch(99.0), *[epoch(0.0)] * (PERIOD - 1), epoch(10.0)]}
    found = Seconds.mean(record)
    assert found == Seconds(epoch=7.0, comm=3.0, compute=3.0, codec=1.0, sample=1.0, reduce=1.0, wait=1.0)
    assert found.work == 3.0


def test_orderings_follow_the_printed_numbers() -> None:
    rows = [
        Row(
            label=f"Cora, {layers} layers, {name}", quantity="epoch time", unit="s",
            published=cell("cora", layers, name), ours=cell("cora", layers, name), how="simulated",
        )
        for layers in LAYERS for name in ("DGL", "DistGNN", "EC-Graph")
    ]  # fmt: skip
    judged = [ordering for ordering in ec_graph_table4._orderings(rows) if ordering.verdict != "not judged"]
    assert len(judged) == 7  # two systems at three depths, and depth itself
    assert {ordering.verdict for ordering in judged} == {"right"}
    assert judged[1].expected[0].endswith("EC-Graph")  # slower than DistGNN on Cora, 2 layers


def test_times_that_hardly_differ_tie_and_rows_that_do_not_count_are_in_no_ordering() -> None:
    def row(system: str, published: float, ours: float | None, **more: Any) -> Row:
        label = f"Reddit, 2 layers, {system}"
        return Row(
            label=label, quantity="epoch time", unit="s", published=published, ours=ours, how="simulated", **more
        )

    rows = [row("EC-Graph", 3.9, 4.217), row("DistGNN", 4.2, 4.218), row("DGL", 9.0, 3.0), row("PyG", 3.9, 8.0)]
    found = ec_graph_table4._orderings(rows)
    assert [(o.text.partition(":")[0].partition("layers, ")[2], o.verdict) for o in found] == [
        ("EC-Graph against DGL", "wrong"), ("EC-Graph against DistGNN", "not judged"),
    ]  # fmt: skip
    marked = [
        row("EC-Graph", 3.9, 4.2, conflict="EC6"),
        row("DGL", 9.0, 3.0),
        row("EC-Graph-S", 1.0, 2.0, judge="none"),
    ]
    assert ec_graph_table4._orderings(marked) == ()


def test_convergence_and_level_accuracies() -> None:
    assert reached_at([2, 4, 6], [10.0, 80.0, 81.0], 80.0) == 4
    assert reached_at([2, 4], [10.0, 20.0], 80.0) is None
    row = ec_graph._untrained("ogbn-papers100m", "EC-Graph", 44.58)
    assert row.verdict == "needs data"
    assert ec_graph._untrained("reddit", "AGL", 92.14).verdict == "not built"


def test_accuracies_are_judged_in_points_and_ties_not_at_all() -> None:
    def trained(data: str, ours: float) -> Trained:
        scores = {"DGL": (87.0, 0.0), "EC-Graph": (ours, 0.0)}
        return Trained(scores=scores, records={}, data=data, summary="", commands=())

    row = ec_graph._accuracy("cora", "EC-Graph", 87.1, trained("", 85.0))
    assert row.verdict == "off by -2.1 points" and not row.counts
    again = ec_graph._accuracy("cora", "PyG", 87.02, trained("", 85.0))
    assert again.ours == 87.0 and again.verdict == "not judged"
    marked = ec_graph._accuracy("reddit", "EC-Graph", 92.66, trained("cora stands in for reddit", 85.0))
    assert marked.verdict == "order only; paper contradicts itself (EC9)"
    level, ahead = {"DGL": 87.0, "EC-Graph": 87.1}, {"DGL": 86.0, "EC-Graph": 87.1}
    verdicts = [
        ec_graph._level(printed, trained("", ours))[0].verdict
        for printed in (level, ahead) for ours in (85.5, 87.2, 88.5)
    ]  # fmt: skip
    assert verdicts == ["wrong", "right", "wrong", "wrong", "not judged", "right"]


def test_what_never_converges_is_not_judged() -> None:
    values: dict[str, float | None] = {"Non-cp": 1.0, "Cp-fp-2": None, "Cp-bp-4": 1.2, "ReqEC-1": 2.0}
    dense = {**values, "ReqEC-1": None}
    found = _ablation_orderings({"cora": values, "reddit": dense}, {"cora": "a", "reddit": "b"})
    assert [ordering.verdict for ordering in found] == ["not judged", "wrong"] * 2 + ["not judged"]


def test_metis_cuts_less_than_hash() -> None:
    assert 0 < metis_share("synthetic:nodes=400,degree=6,features=4", 4) < 1


def test_panels_are_saved_twice_with_one_legend(tmp_path: Path) -> None:
    paths = (tmp_path / "a.png", tmp_path / "a.svg")
    with panels(paths, 4, columns=3) as axes:
        for panel in axes:
            panel.plot([1, 2], [1, 2], label="same <name>")
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert paths[1].read_text().count("same &lt;name&gt;") == 1


def test_rows_of_ec_graph_say_whether_the_tuner_runs(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ec_graph_table4, "_predicted", lambda *_: (1.0, "simulated", ""))
    notes = {name: ec_graph_table4._row(context, _line("cora", 2, name)).note for name in ("EC-Graph", "AGL")}
    assert "Bit-Tuner off" in notes["EC-Graph"] and "Bit-Tuner" not in notes["AGL"]
    scores = {"EC-Graph": (80.0, 0.0), "DGL": (81.0, 0.0)}
    run = Trained(scores=scores, records={}, data="", summary="", commands=(), where="")
    assert ec_graph._accuracy("cora", "EC-Graph", 80.0, run).note == "Bit-Tuner on"
    assert ec_graph._accuracy("cora", "DGL", 80.0, run).note == ""
