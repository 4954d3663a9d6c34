"""EC-Graph's accuracies in its report: intervals, differences, convergence, and what is judged."""

from __future__ import annotations

import numpy as np
import pytest

from reports.core.train import Trained
from reports.ec_graph import _table5 as ec_graph_table5
from reports.ec_graph._accuracy import _ablation_orderings, best, reached_at
from reports.ec_graph._figures import _gain_rows, epochs_charged, to_convergence
from reports.ec_graph._times import DATASETS, published_counts, split_of


def run_of(curves: dict[str, list[list[float]]], data: str = "") -> Trained:
    """Trained runs of these test accuracies in per cent, evaluated after every epoch; a list per seed."""
    records = {
        label: [
            {
                "run_id": f"{label}-{seed}", "summary": {"test_at_best_val": max(scores) / 100},
                "epochs": [{"epoch": at, "test": score / 100} for at, score in enumerate(scores)],
            }
            for seed, scores in enumerate(seeds)
        ]
        for label, seeds in curves.items()
    }  # fmt: skip
    scores = {label: (float(np.mean([max(each) for each in seeds])), 0.0) for label, seeds in curves.items()}
    return Trained(scores=scores, records=records, data=data, summary="", commands=(), where="here")


def test_convergence_and_level_accuracies() -> None:
    assert reached_at([2, 4, 6], [10.0, 80.0, 81.0], 80.0) == 4
    assert reached_at([2, 4], [10.0, 20.0], 80.0) is None
    row = ec_graph_table5._untrained("ogbn-papers100m", "EC-Graph", 44.58)
    assert row.verdict == "needs data" and row.note == "Bit-Tuner on"
    assert ec_graph_table5._untrained("reddit", "AGL", 92.14).verdict == "needs data"
    run = run_of(
        {"Non-cp": [[10.0, 50.0, 80.0, 80.0]], "EC-Graph": [[20.0, 79.5, 79.5, 79.5]], "DistGNN": [[10.0] * 4]}
    )
    assert to_convergence(run) == {"Non-cp": 3, "EC-Graph": 2, "DistGNN": None}


def test_what_does_not_converge_is_charged_all_epochs() -> None:
    assert epochs_charged({"Non-cp": 20, "EC-Graph": 10, "DistGNN": None}, 30) == {
        "Non-cp": 20, "EC-Graph": 10, "DistGNN": 30,
    }  # fmt: skip
    assert set(epochs_charged({"Non-cp": 20, "EC-Graph": None}, 30).values()) == {30}


def test_curves_are_means_over_the_seeds() -> None:
    run = run_of({"a": [[10.0, 20.0, 30.0, 90.0], [20.0, 40.0, 50.0, 70.0]]})
    assert best(run, "a") == pytest.approx(80.0)
    assert run.early("a") == pytest.approx([15.0, 30.0])


SHIFTS = (-0.2, 0.2, 0.0, 0.1, -0.1)  # of five seeds around their mean


def test_accuracies_are_judged_in_points_and_by_intervals() -> None:
    def trained(data: str, *ours: float) -> Trained:
        return run_of({"DGL": [[87.0]] * len(ours), "EC-Graph": [[value] for value in ours]}, data)

    row = ec_graph_table5._accuracy("cora", "EC-Graph", 87.1, trained("", 85.0))
    assert row.verdict == "not enough runs" and not row.counts and row.interval is None
    assert ec_graph_table5._accuracy("cora", "EC-Graph", 87.1, trained("", *[85.0] * 5)).verdict == "off by -2.1 points"
    assert ec_graph_table5._accuracy("cora", "EC-Graph", 87.1, trained("", 85.0, 87.0)).interval == pytest.approx(
        12.7, rel=0.01
    )
    assert ec_graph_table5._accuracy("cora", "PyG", 87.02, trained("", 85.0)).ours is None, "a run of its own"
    marked = ec_graph_table5._accuracy("reddit", "EC-Graph", 92.66, trained("cora stands in for reddit", 85.0))
    assert marked.verdict == "order only; paper contradicts itself (EC9)"
    level, ahead = {"DGL": 87.0, "EC-Graph": 87.1}, {"DGL": 86.0, "EC-Graph": 87.1}
    verdicts = [
        ec_graph_table5._level("cora", printed, trained("", *[ours + shift for shift in SHIFTS]))[0].verdict
        for printed in (level, ahead) for ours in (85.5, 87.1, 88.5)
    ]  # fmt: skip
    assert verdicts == ["wrong", "right", "wrong", "wrong", "undecided", "right"]


def test_an_unsampled_accuracy_is_ec_graphs_and_has_no_ordering_of_its_own() -> None:
    run = run_of({"DGL": [[87.0], [87.2]], "EC-Graph": [[86.9], [87.2]], "EC-Graph-S": [[50.0], [50.0]]})
    printed = {"DGL": 87.0, "EC-Graph": 87.1, "EC-Graph-S": 87.1}
    assert [ec_graph_table5.unsampled(dataset) for dataset in ("cora", "pubmed", "reddit")] == [True, True, False]
    row = ec_graph_table5._accuracy("cora", "EC-Graph-S", 87.1, run)
    assert row.ours == run.mean("EC-Graph") and row.verdict == "not judged" and "unsampled" in row.note
    assert len(ec_graph_table5._level("cora", printed, run)) == 1 < len(ec_graph_table5._level("reddit", printed, run))
    differences = ec_graph_table5._differences("cora", printed, run)
    assert [(round(row.ours or 0.0, 3), row.judge) for row in differences] == [(-0.05, "difference")]


def test_splits_are_by_position() -> None:
    assert split_of("cora") == "position:1408/300/1000" and split_of("cora", drawn=True) == "counts:1408/300/1000"
    for dataset in DATASETS:
        sizes = [float(share) for share in split_of(dataset, shares=True).removeprefix("position:").split("/")]
        c = published_counts(dataset)
        assert 0.999 <= sum(sizes) <= 1
        assert sizes[0] == pytest.approx(c["train"] / (c["train"] + c["val"] + c["test"]), abs=1e-4)


def test_what_never_converges_is_slower_than_what_does() -> None:
    values = {"Non-cp": [1.0] * 5, "Cp-fp-2": [0.0] * 5, "Cp-bp-4": [1.2] * 5, "ReqEC-1": [2.0] * 5}
    dense = {**values, "ReqEC-1": [1.5] * 5}
    found = _ablation_orderings({"cora": values, "reddit": dense}, {"cora": "a", "reddit": "b"})
    assert [ordering.verdict for ordering in found] == ["right", "wrong"] * 2 + ["right"]


def test_printed_gains_are_judged_where_they_are_built() -> None:
    rows = {
        row.label.partition(" over ")[2]: row for row in _gain_rows({"Non-cp": [1.7, 1.9, 2.4]}, "x stands in for y")
    }
    least, most = rows["Non-cp, smallest"], rows["Non-cp, largest"]
    assert (least.published, least.ours, most.published, most.ours) == (1.68, 1.7, 1.98, 2.4)
    assert least.counts and least.null is not None and least.null.same == 1.0
    assert rows["DistGNN, smallest"].verdict == rows["AGL, largest"].verdict == "no result"


def test_accuracies_say_whether_the_tuner_runs() -> None:
    run = run_of({"EC-Graph": [[80.0]], "DGL": [[81.0]]})
    assert ec_graph_table5._accuracy("cora", "EC-Graph", 80.0, run).note == "Bit-Tuner on"
    assert ec_graph_table5._accuracy("cora", "DGL", 80.0, run).note == ""
