"""EC-Graph's tables and figures: published values are those of the files, fits come out, predictions are judged."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from reports import ec_graph, ec_graph_times
from reports.context import Context
from reports.drawing import panels
from reports.ec_graph_accuracy import ablation, reached_at
from reports.ec_graph_figures import metis_share
from reports.ec_graph_times import LAYERS, NAMES, NON_CP, PERIOD, Clock, Testbed, bits, cell
from reports.load import published
from reports.table import Row
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
    judged = [row for row in table.rows if row.counts]
    assert len(table.rows) == len(published("ec-graph-table2")) + 2
    assert [row.published for row in judged] == [50.0, 250.0]
    assert judged[0].ours == pytest.approx(47.68, abs=0.01)
    assert {ordering.verdict for ordering in table.orderings} == {"right"}


def test_data_sets_are_counted_where_they_are_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALOSCOPE_DATA", str(real_data()))
    table = ec_graph.table3(Context(out=tmp_path, quiet=True))
    frame = published("ec-graph-table3")
    assert [row.published for row in table.rows] == frame["value"].tolist()
    by = {(row.label, row.quantity): row for row in table.rows}
    assert by["Cora", "edges"].ours == 10_556 and by["Cora", "features"].ours == 1433
    assert by["Pubmed", "features"].how == "quoted" and by["Reddit", "edges"].how == "quoted"
    assert all(row.error == pytest.approx(0, abs=1e-3) for row in table.rows if row.how == "measured")


def test_cells_and_bits_are_those_of_the_files() -> None:
    assert cell("reddit", 2, "EC-Graph") == 3.854
    assert cell("ogbn-papers100m", 2, "DistGNN") is None
    assert bits("ogbn-products") == {"Cp-fp": 16, "Cp-bp": 8, "ReqEC": 2, "ResEC": 2}
    for dataset in NAMES:
        names = [text.partition(":")[0] for text in ablation(dataset).values()]
        assert names == ["ec-graph"] * 6


def test_a_fit_reproduces_its_row_and_predicts_the_next(context: Context) -> None:
    bed = Testbed(context, "reddit", 2)
    factor, printed = bed.factor(), cell("reddit", 2, "DistGNN")
    fifth = bed.clock(NON_CP, faster=5.0)
    assert fifth.epoch(factor) == pytest.approx(printed)
    assert 5 * fifth.halo == pytest.approx(bed.clock(NON_CP).halo, rel=0.1)  # bandwidth-bound
    row = ec_graph_times._row(context, _line("reddit", 2, "EC-Graph"), {})
    assert row.how == "simulated" and row.counts
    assert row.ours is not None and 0.5 < row.ours / 3.854 < 1.5
    assert row.ours < bed.seconds(NON_CP)


def test_rows_without_a_method_or_the_graph_say_so(context: Context) -> None:
    rows = {
        name: ec_graph_times._row(context, _line("reddit", 2, name), {}) for name in ("AGL", "EC-Graph-S", "DistGNN")
    }
    assert [row.verdict for row in rows.values()] == ["not built", "needs data", "fitted"]
    assert all(row.published for row in rows.values())


def test_papers_have_no_fit_and_contradict_themselves(context: Context) -> None:
    assert Testbed(context, "ogbn-papers100m", 2).factor() == 1.0
    row = ec_graph_times._row(context, _line("ogbn-papers100m", 2, "EC-Graph"), {})
    assert row.conflict == "EC6" and not row.counts
    assert row.note.endswith("GB")  # the trends of a rank exceed its machine


def _line(dataset: str, layers: int, method: str) -> pd.Series:
    frame = published("ec-graph-table4")
    return frame[(frame["dataset"] == dataset) & (frame["layers"] == layers) & (frame["method"] == method)].iloc[0]


def test_a_clock_averages_a_whole_period() -> None:
    def epoch(halo: float) -> dict[str, object]:
        names = ("compute", "codec", "sample", "swap", "reduce", "wait")
        return {"seconds": {**dict.fromkeys(names, 1.0), "halo": halo}}

    record = {"state": "done", "epochs": [epoch(99.0), epoch(99.0), *[epoch(0.0)] * (PERIOD - 1), epoch(10.0)]}
    clock = Clock.of(record)
    assert clock == Clock(compute=3.0, codec=1.0, halo=2.0, reduce=1.0)
    assert clock.epoch(2.0) == 10.0


def test_orderings_follow_the_printed_numbers() -> None:
    rows = [
        Row(
            label=f"Cora, {layers} layers, {name}", quantity="epoch time", unit="s",
            published=cell("cora", layers, name), ours=cell("cora", layers, name), how="simulated",
        )
        for layers in LAYERS for name in ("DGL", "DistGNN", "EC-Graph")
    ]  # fmt: skip
    judged = [ordering for ordering in ec_graph_times._orderings(rows) if ordering.verdict != "not judged"]
    assert len(judged) == 7  # two systems at three depths, and depth itself
    assert {ordering.verdict for ordering in judged} == {"right"}
    assert judged[1].expected[0].endswith("EC-Graph")  # slower than DistGNN on Cora, 2 layers


def test_convergence_and_level_accuracies() -> None:
    assert reached_at([2, 4, 6], [10.0, 80.0, 81.0], 80.0) == 4
    assert reached_at([2, 4], [10.0, 20.0], 80.0) is None
    row = ec_graph._untrained("ogbn-papers100m", "EC-Graph", 44.58)
    assert row.verdict == "needs data"
    assert ec_graph._untrained("reddit", "AGL", 92.14).verdict == "not built"


def test_metis_cuts_less_than_hash() -> None:
    assert 0 < metis_share("synthetic:nodes=400,degree=6,features=4", 4) < 1


def test_panels_are_saved_twice_with_one_legend(tmp_path: Path) -> None:
    paths = (tmp_path / "a.png", tmp_path / "a.svg")
    with panels(paths, 4, columns=3) as axes:
        for panel in axes:
            panel.plot([1, 2], [1, 2], label="same <name>")
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert paths[1].read_text().count("same &lt;name&gt;") == 1
