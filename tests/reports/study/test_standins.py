"""Fitting stand-ins: the search ends at the printed scores, goes on where it stopped, and writes a file that loads."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from harness.config import from_mapping
from harness.datasets import read_standin
from harness.errors import InputError
from reports.statistics import estimate
from reports.study import Fitting, Runs, Store, StudyCell, design_of, draw_parameters, moved
from reports.study import _knobs as knobs
from reports.study._knobs import Sweep, places
from tests.support.studies import MadeUpRuns

NAME = "reddit-bns"


def value_of(cell: StudyCell, name: str) -> float:
    """A parameter of the graph that a cell trains on."""
    words = str(cell.settings["dataset"]).partition(":")[2].split(",")
    return float(dict(word.split("=") for word in words)[name])


def response(cell: StudyCell) -> float:
    """A full score that falls with label noise, and an isolated one that falls with a weak signal."""
    full = 100 * (1 - value_of(cell, "label_noise")) - 0.4
    loss = 0.05 / value_of(cell, "signal") ** 2
    return full - loss * (cell.method != "single") + 0.02 * math.sin(int(cell.settings["seed"]))


def test_a_search_ends_at_the_printed_scores_and_its_file_loads(tmp_path: Path) -> None:
    fitting = Fitting(NAME, MadeUpRuns.of(response, tmp_path / "runs.csv"), seeds=2)
    assert fitting.search()
    path = fitting.write(f"haloscope standin fit {NAME}", tmp_path / "fitted")
    standin = read_standin(path)
    full, isolated = standin.scores
    assert standin.fit.state == "reached" and standin.fit.seeds == 5, "confirmed with more seeds than searched with"
    assert full.ours == pytest.approx(full.printed, abs=0.25) and (full.printed, isolated.printed) == (97.11, 96.88)
    assert full.ours - isolated.ours == pytest.approx(0.23, abs=0.2)
    assert standin.recipe().label_noise == pytest.approx(0.0249, abs=0.003) and standin.fit.note
    assert "p=0.0; METIS" in isolated.source and full.half_width < 0.1


def test_a_search_asks_for_the_same_points_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    first = Fitting(NAME, MadeUpRuns.of(response, path), seeds=2, evaluations=2)
    assert not first.search() and len(first.points) == 2
    again = MadeUpRuns.of(response, path)
    second = Fitting(NAME, again, seeds=2)
    assert second.search() and second.points[0] == first.points[0]
    cells = [each for point in first.points for each in first.cells(point.values, 2).values()]
    assert not {cell.key for cell in again.made} & {cell.key for each in cells for cell in each}


def test_what_cannot_be_reached_is_the_nearest(tmp_path: Path) -> None:
    fitting = Fitting(NAME, MadeUpRuns.of(lambda cell: 50.0, tmp_path / "runs.csv"), seeds=1, evaluations=4)
    assert not fitting.search() and len(fitting.points) == 4
    found = read_standin(fitting.write("haloscope standin fit", tmp_path))
    assert found.fit.state == "nearest"
    assert [score.half_width for score in found.scores] == [None, None]  # one seed has no interval


def test_a_failing_point_ends_the_search_with_its_reason(tmp_path: Path) -> None:
    runs = Runs(Store.open(tmp_path / "runs.csv"), jobs=1)
    fitting = Fitting(NAME, runs, seeds=1, scale=0.01)  # 200 nodes hold fewer communities
    with pytest.raises(InputError, match="communities must be at most a third of the nodes"):
        fitting.search()


def test_settings_of_a_point_are_those_of_a_run() -> None:
    design = design_of(NAME)
    settings = design.settings({"signal": 0.5, "train": 0.3, "hidden": 16.0}, "bns-gcn:p=0", seed=7, scale=0.5)
    config = from_mapping(settings)
    assert config.data.dataset.startswith("synthetic:nodes=10000,") and config.data.dataset.endswith("seed=7")
    assert config.data.split == "random:0.3/0.1/0.24" and config.model.hidden == 16 and config.training.seed == 7
    assert config.cut.parts == design.training["parts"] and from_mapping(
        design.settings({}, "single", 0)
    ).cut.parts == 1  # fmt: skip


def test_every_parameter_has_values_on_both_sides_of_the_fitted_one(tmp_path: Path) -> None:
    fitting = Fitting(NAME, MadeUpRuns.of(response, tmp_path / "runs.csv"), seeds=1)
    fitting.search()
    standin, design = read_standin(fitting.write("haloscope standin fit", tmp_path)), design_of(NAME)
    signal = standin.fitted["signal"]
    found = places(design, standin, "signal")
    assert min(found) < signal < max(found) and signal in found
    assert 64 in places(design, standin, "hidden") and 0.66 in places(design, standin, "train")
    assert max(places(design, standin, "train")) <= 0.9 and 0.0 in places(design, standin, "label_noise")
    assert min(places(design, standin, "communities")) >= 2 * design.graph["classes"], "agreement needs that many"


def test_the_figure_shows_both_scores_of_every_parameter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitting = Fitting(NAME, MadeUpRuns.of(response, tmp_path / "runs.csv"), seeds=1)
    fitting.search()
    standin = read_standin(fitting.write("haloscope standin fit", tmp_path))
    monkeypatch.setattr(knobs, "read_standins", lambda: {NAME: standin})
    runs = MadeUpRuns.of(response, tmp_path / "sweep.csv")
    found = knobs.sweep(NAME, ["signal", "label_noise"], runs, seeds=2)
    assert [one.knob for one in found] == ["signal", "label_noise"]
    losses = [row["loss"] for row in moved(found) if row["parameter"] == "signal"]
    assert losses == sorted(losses, reverse=True), "a stronger signal loses less by isolation"
    paths = tmp_path / "a.png", tmp_path / "a.svg"
    draw_parameters(NAME, found, paths)
    assert all(path.stat().st_size > 1000 for path in paths)
    with pytest.raises(InputError, match="did you mean 'signal'"):
        knobs.sweep(NAME, ["signl"], runs, 1)
    with pytest.raises(InputError, match="not fitted yet"):
        knobs.sweep("yelp-bns", ["signal"], runs, 1)


def test_a_sweep_is_its_means(tmp_path: Path) -> None:
    one = Sweep("signal", (1.0,), (estimate([90.0, 92.0]),), (estimate([80.0, 82.0]),))
    assert moved([one]) == [{"parameter": "signal", "value": 1.0, "full": 91.0, "isolated": 81.0, "loss": 10.0}]
