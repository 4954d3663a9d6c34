"""Studies: which runs are begun, what is judged from them, what is named stale; and one that trains."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import pytest

from harness.errors import InputError
from harness.machine import used_modules
from harness.methods.registry import METHODS
from harness.running import run
from reports.statistics import Estimate
from reports.study import AccuracyClaim, Runs, Store, Study, StudyCell, file_of, findings, read_claims, verdict_counts
from reports.study._allocation import gain_per_second, power_with, supposed_truth
from reports.study._cells import COLUMNS, line_score, outdated, train_cell, without_seed
from reports.study._code import APART, code_of
from reports.study._forecast import Forecast, cost_lines, formula
from reports.study._study import TRIED, comes_out_as_before
from tests.support.studies import CLAIMS, GRAPH, MadeUpRuns, line_of

BETTER = {"vanilla": 80.0, "bns-gcn:p=0.1": 80.0, "bns-gcn:p=0": 70.0}


@pytest.fixture
def claims(tmp_path: Path) -> list[AccuracyClaim]:
    path = tmp_path / "mine.toml"
    path.write_text(CLAIMS)
    return read_claims(path)


def scored(cell: StudyCell, spread: float = 0.05) -> float:
    """A score by method, with a spread over seeds that both sides of a pair do not share."""
    seed = int(cell.settings["seed"])
    return BETTER[cell.method] + spread * ((7 * seed + 3 * len(cell.method)) % 5 - 2)


def verdicts(claims: list[AccuracyClaim], runs: Runs) -> list[str]:
    return [finding.judgement.verdict for finding in findings(claims, runs.store)]


def test_five_seeds_decide_clear_claims_and_no_more_are_run(claims: list[AccuracyClaim], tmp_path: Path) -> None:
    runs = MadeUpRuns.of(scored, tmp_path / "runs.csv")
    Study(claims, runs).run()
    assert verdicts(claims, runs) == ["reproduced", "reproduced"]
    assert len(runs.made) == len({cell.key for cell in runs.made}) == 3 * 5, "a run serves both claims"
    found = findings(claims, runs.store)
    assert found[1].found is not None and found[1].found.mean == pytest.approx(10, abs=0.2)
    assert found[0].power is not None and found[0].power > 0.99 and found[1].power is None, "no difference is printed"
    assert found[1].scores == pytest.approx((80.0, 70.0), abs=0.2)
    assert verdict_counts(found).startswith("2 claims: 2 reproduced")


def test_fewer_than_five_seeds_decide_nothing(claims: list[AccuracyClaim], tmp_path: Path) -> None:
    runs = MadeUpRuns.of(scored, tmp_path / "runs.csv")
    runs.make([cell for claim in claims for seed in range(4) for cell in claim.cells(seed)])
    assert verdicts(claims, runs) == ["not enough runs", "not enough runs"]


def test_seeds_are_added_until_the_interval_is_narrow(claims: list[AccuracyClaim], tmp_path: Path) -> None:
    runs = MadeUpRuns.of(lambda cell: scored(cell, 0.2), tmp_path / "runs.csv")
    Study(claims, runs).run()
    for claim, finding in zip(claims, findings(claims, runs.store), strict=True):
        assert finding.found is not None and finding.found.count > 5
        assert 2 * finding.found.half_width() <= claim.width


def seeds_at(
    claims: list[AccuracyClaim], path: Path, precision: float, behind: float = 10.0
) -> tuple[Study, list[str]]:
    """A study in two steps, as it is asked for first and then more precisely; isolation loses `behind` points."""

    def formula(cell: StudyCell) -> float:
        isolated = cell.method == "bns-gcn:p=0"
        return scored(cell, 0.15 if isolated else 0.07) + isolated * (10.0 - behind)

    runs = MadeUpRuns.of(formula, path)
    Study(claims, runs).run()
    before = verdicts(claims, runs)
    study = Study(claims, runs, precision=precision)
    study.run()
    return study, before


def test_a_finer_precision_gives_seeds_to_every_claim_alike(claims: list[AccuracyClaim], tmp_path: Path) -> None:
    """Decided claims too: else claims would be looked at until they are decided."""
    study, before = seeds_at(claims, tmp_path / "runs.csv", 0.25)
    assert before == ["reproduced", "reproduced"], "nothing is left to decide"
    for claim, finding in zip(claims, findings(claims, study.runs.store), strict=True):
        assert finding.found is not None and finding.precision is not None
        assert finding.found.count > 5 and finding.precision <= 0.25
        assert 2 * finding.found.half_width() <= claim.width_at(0.25) == claim.width / 2
        assert finding.row()["precision"] == finding.precision


@pytest.mark.parametrize("behind", [0.0, 0.05, -3.0, 0.2])
def test_where_differences_lie_changes_nothing_of_what_is_run(
    claims: list[AccuracyClaim], tmp_path: Path, behind: float
) -> None:
    study, before = seeds_at(claims, tmp_path / "runs.csv", 0.25, behind)
    other, after = seeds_at(claims, tmp_path / "other.csv", 0.25)
    assert before == after if behind > 1 else before != after
    assert [cell.key for cell in study.runs.made] == [cell.key for cell in other.runs.made]  # type: ignore[attr-defined]


def test_what_a_finer_precision_takes_is_foretold(claims: list[AccuracyClaim], tmp_path: Path) -> None:
    runs = MadeUpRuns.of(lambda cell: scored(cell, 0.07), tmp_path / "runs.csv")
    assert Study(claims, runs, precision=0.25).expected_cells() == [], "no deviation is known yet"
    Study(claims, runs).run()
    assert Study(claims, runs).expected_cells() == [], "what is asked for is reached"
    expected = Study(claims, runs, precision=0.25).expected_cells()
    assert expected and not any(runs.store.finished(cell) for cell in expected)
    assert not Study(claims, runs, precision=0.001).expected_cells(), "out of reach"


def test_what_cannot_be_decided_within_the_seeds_is_said(claims: list[AccuracyClaim], tmp_path: Path) -> None:
    study = Study(claims, MadeUpRuns.of(lambda cell: scored(cell, 5.0), tmp_path / "runs.csv"), most=12)
    study.run()
    assert all("out of reach" in study.notes[claim.key] for claim in claims)
    assert len(study.runs.made) == 15  # type: ignore[attr-defined]


def test_a_method_that_diverges_is_given_up_after_two_seeds(claims: list[AccuracyClaim], tmp_path: Path) -> None:
    def formula(cell: StudyCell) -> float:
        return float("nan") if cell.method == "bns-gcn:p=0.1" else scored(cell)

    runs = MadeUpRuns.of(formula, tmp_path / "runs.csv")
    study = Study(claims, runs)
    study.run()
    assert sum(cell.method == "bns-gcn:p=0.1" for cell in runs.made) == TRIED
    assert verdicts(claims, runs) == ["not enough runs", "reproduced"]
    assert "diverges" in study.notes[claims[0].key]


def test_a_study_goes_on_from_its_file(claims: list[AccuracyClaim], tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    Study(claims[1:], MadeUpRuns.of(scored, path)).run()
    runs = MadeUpRuns.of(scored, path)
    Study(claims, runs).run()
    assert {cell.method for cell in runs.made} == {"bns-gcn:p=0.1"}
    runs.store.tidy()
    assert Store.open(path).lines.keys() == runs.store.lines.keys() and len(runs.store.lines) == 15


def test_changed_code_and_graphs_are_named_and_run_again_on_request(
    claims: list[AccuracyClaim], tmp_path: Path
) -> None:
    runs = MadeUpRuns.of(scored, tmp_path / "runs.csv")
    Study(claims, runs).run()
    old = claims[0].cells(1)[0]
    runs.store.keep(line_of(old, 80.0, code="0" * 16))
    found = findings(claims, runs.store)
    assert found[0].stale == (old.title,) and not found[1].stale
    assert found[0].judgement.verdict == "reproduced", "old runs count, and are named"
    assert "1 rest on stale runs" in verdict_counts(found)
    runs.made.clear()
    assert Study(claims, runs).refresh() and runs.made == [old]
    assert not any(finding.stale for finding in findings(claims, runs.store))
    assert outdated(line_of(old, 1.0, graph="f" * 16)) and not outdated(line_of(old, 1.0))


@pytest.mark.parametrize(("change", "left"), [(0.0, 0), (0.5, 3)])
def test_one_seed_that_comes_out_the_same_speaks_for_the_others(
    claims: list[AccuracyClaim], tmp_path: Path, change: float, left: int
) -> None:
    runs = MadeUpRuns.of(lambda cell: 80.0 + change, tmp_path / "runs.csv")
    cells = [claims[0].cells(seed)[0] for seed in range(4)]
    for cell in cells:
        runs.store.keep(line_of(cell, 80.0, code="0" * 16))
    assert Study(claims, runs).recheck() == 3 - left and runs.made == cells[:1]
    assert runs.store.stale(cells) == cells[4 - left :] and len(runs.store.lines) == 4


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"test": "80.4", "last": "79.8"}, True),  # less than seeds differ by
        ({"test": "82.0"}, False),
        ({"test": "80.4", "megabytes": "5.01"}, True),
        ({"megabytes": "5.5"}, False),
        ({"epochs": "99"}, False),
        ({"test": "80.4", "state": "diverged"}, False),
        ({"test": ""}, False),
    ],
)
def test_a_run_on_a_machine_that_rounds_otherwise_comes_out_as_before(
    claims: list[AccuracyClaim], changes: dict[str, str], same: bool
) -> None:
    cell = claims[0].cells(0)[0]
    before, *others = ({**line_of(cell, score), "megabytes": "5.0"} for score in (80.0, 79.0, 81.0))
    assert comes_out_as_before({**before, **changes}, before, *others) == same
    assert comes_out_as_before({**before, **changes}, before) == (not changes), "nothing is known of other seeds"


def test_a_short_budget_rechecks_every_method_first(
    claims: list[AccuracyClaim], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one whose cells are all dearer than those of another."""
    runs, base = MadeUpRuns.of(lambda cell: 80.0, tmp_path / "runs.csv"), claims[0].cells(0)[0].settings
    costs = {("single", 1): 1.0, ("single", 2): 2.0, ("vanilla", 3): 9.0, ("vanilla", 4): 8.0}
    cells = [StudyCell({**base, "method": method, "parts": parts}) for method, parts in costs]
    monkeypatch.setattr(
        type(runs.forecast), "seconds", lambda _, cell: costs[cell.settings["method"], cell.settings["parts"]]
    )
    assert [cell.settings["parts"] for cell in Study(claims, runs)._code_first(cells)] == [1, 4, 2, 3]


def test_a_changed_graph_is_not_rechecked(claims: list[AccuracyClaim], tmp_path: Path) -> None:
    runs = MadeUpRuns.of(lambda cell: 80.0, tmp_path / "runs.csv")
    cell = claims[0].cells(0)[0]
    runs.store.keep(line_of(cell, 80.0, code="0" * 16, graph="0" * 16))
    assert Study(claims, runs).recheck() == 0 and not runs.made and runs.store.stale([cell]) == [cell]


def test_claims_whose_stand_in_is_not_fitted_are_named_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reports.study._study.read_standins", dict)
    claim = read_claims(file_of("subgraph-approximation"))[-1]
    study = Study([claim], MadeUpRuns.of(scored, tmp_path / "runs.csv"))
    study.run()
    assert "haloscope standin fit amazon2m-sage" in study.notes[claim.key] and not study.ready
    assert not study.runs.store.lines


def test_claims_on_a_graph_that_is_not_here_are_named_and_not_run(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(CLAIMS.replace(GRAPH, "no-such-graph"))
    study = Study(read_claims(path), MadeUpRuns.of(scored, tmp_path / "runs.csv"))
    study.run()
    assert not study.ready and all("no-such-graph" in note for note in study.notes.values())


def test_a_budget_that_is_spent_begins_nothing(claims: list[AccuracyClaim], tmp_path: Path) -> None:
    runs = Runs(Store.open(tmp_path / "runs.csv"), 1, deadline=time.monotonic())
    Study(claims, runs).run()
    assert not runs.store.lines and set(runs.failures.values()) == {"the budget is spent"}


def test_cells_train_in_processes_and_leave_their_cost_and_origin(claims: list[AccuracyClaim], tmp_path: Path) -> None:
    said: list[str] = []
    path = tmp_path / "runs.csv"
    runs = Runs(Store.open(path), 1, say=said.append)
    cells = list(claims[0].cells(0))
    bad = StudyCell({**cells[0].settings, "parts": 4000})
    assert not runs.make([*cells, bad])
    assert list(runs.failures) == [bad.title] and len(said) == 3 and "nothing left" in said[-1]
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["key"] for line in lines} == {cell.key for cell in cells}
    for line in lines:
        assert tuple(line) == COLUMNS and line["state"] == "done" and not outdated(line)
        assert 0 < float(line["test"]) <= 100 and float(line["memory"]) > 100
        assert float(line["step"]) == pytest.approx(100 / 60, rel=1e-3), "60 of 300 nodes test"
        assert line["command"].startswith(f"haloscope run --dataset {GRAPH}")
        assert f"--method {line['method']}" in line["command"] or line["method"] == "vanilla", "the default"
    again = Runs(Store.open(path), 1, say=said.append)
    assert again.make(cells) and len(said) == 3, "nothing is run twice"
    forecast = again.forecast.seconds(claims[0].cells(7)[0])
    assert forecast == pytest.approx(float(Store.open(path).lines[cells[0].key]["seconds"])), "of another seed"


def test_a_failing_cell_says_why() -> None:
    line = train_cell(
        StudyCell({"dataset": GRAPH, "method": "vanilla", "parts": 2, "epochs": 1, "seed": 0, "lr": -1.0})
    )
    assert list(line) == ["failure"] and "lr must be positive" in line["failure"]


def test_forecasts_follow_finished_runs() -> None:
    settings = {"dataset": GRAPH, "method": "vanilla", "parts": 2, "epochs": 50, "seed": 0}
    cell = StudyCell(settings)
    idle, memory = formula(cell)
    assert (
        formula(StudyCell({**settings, "epochs": 500}))[0] > idle
        and formula(StudyCell({**settings, "hidden": 512}))[1] > memory
    )
    slow = Forecast([(cell, line_of(cell, 1.0, seconds=3 * idle, memory=2 * memory))])
    other_seed = StudyCell({**settings, "seed": 1})
    assert slow.seconds(other_seed) == pytest.approx(3 * idle) and slow.memory(other_seed) == pytest.approx(2 * memory)
    slow.finished.append((other_seed, line_of(other_seed, 1.0, seconds=5 * idle)))
    assert slow.seconds(StudyCell({**settings, "seed": 2})) == pytest.approx(4 * idle), "of what is finished by now"
    slow.finished.pop()
    light = Forecast([(cell, line_of(cell, 1.0, seconds=idle, memory=1))])
    assert light.memory(other_seed) == pytest.approx(memory), "never below the formula"
    nearer = StudyCell({**settings, "method": "bns-gcn:p=0.5"})
    both = Forecast([*slow.finished, (nearer, line_of(nearer, 1.0, seconds=9 * idle))])
    assert both.seconds(StudyCell({**settings, "method": "bns-gcn:p=0.5", "seed": 4})) == pytest.approx(
        9 * idle, rel=0.01
    )
    assert both.left([other_seed] * 4, jobs=2) == pytest.approx(6 * idle)
    assert "4 runs" in cost_lines([other_seed] * 4, slow, 2)[0] and cost_lines([], slow, 2) == [
        "nothing is left to run"
    ]


def test_the_code_of_a_method_is_what_it_runs() -> None:
    found = {*used_modules(METHODS.find("bns-gcn"), run, apart=APART)}
    assert {"harness.methods.bases.edge_cut", "harness.sampling._boundary", "harness.running._training"} <= found
    assert not {name for name in found if "cdfgnn" in name or "sancus" in name or "commands" in name}
    assert "harness.exchanges._adaptive_cache" not in found, "what comes through a door is followed to its file"
    assert not {name for name in found if name.endswith(("_cuda", "registry")) and name != "harness.registry"}
    assert code_of("bns-gcn:p=0.1") == code_of("bns-gcn") != code_of("cdfgnn")


def test_files_of_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="not the file of a study"):
        Store.open(path)


def test_a_line_that_was_being_written_is_left_out(tmp_path: Path, claims: list[AccuracyClaim]) -> None:
    store = Store.open(tmp_path / "runs.csv")
    cell = claims[0].cells(0)[0]
    store.keep(line_of(cell, 50.0))
    with store.path.open("a") as file:
        file.write("abc,def")
    assert list(Store.open(store.path).lines) == [cell.key]


def test_a_study_that_goes_on_writes_behind_a_line_that_was_cut_off(
    tmp_path: Path, claims: list[AccuracyClaim]
) -> None:
    """At every byte of the line: neither what was lost nor what follows it becomes another run's numbers."""
    path, cells = tmp_path / "runs.csv", claims[0].cells(0)
    first, second = line_of(cells[0], 50.0), line_of(cells[1], 60.0)
    for line in (first, second):
        Store.open(path).keep(line)
    assert Store.open(path).lines == {line["key"]: line for line in (first, second)}
    content = path.read_bytes()
    begins = content.index(b"\n") + 1
    for cut in range(begins, content.index(b"\n", begins) + 1):
        path.write_bytes(content[:cut])
        Store.open(path).keep(second)
        found = Store.open(path).lines
        assert found.pop(second["key"]) == second
        assert found in ({}, {first["key"]: first}), content[begins:cut]


@pytest.mark.parametrize(
    ("name", "text"), [("test", "9x.1"), ("best", "nan"), ("epochs", "three"), ("megabytes", "inf"), ("step", "-")]
)
def test_a_line_whose_number_is_none_is_named(
    name: str, text: str, tmp_path: Path, claims: list[AccuracyClaim]
) -> None:
    path = tmp_path / "runs.csv"
    Store.open(path).keep(line_of(claims[0].cells(0)[0], 50.0) | {name: text})
    with pytest.raises(InputError, match=f"{name} is '{text}'"):
        Store.open(path)
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(InputError, match="cannot read"):
        Store.open(path)


def test_scores_and_settings_of_lines(claims: list[AccuracyClaim]) -> None:
    cell = claims[0].cells(5)[0]
    assert line_score(line_of(cell, 50.0), "best") == 51.0 and line_score(line_of(cell, 50.0, "diverged")) == 0.0
    assert line_score(line_of(cell, 50.0, "diverged"), "megabytes") == 2.0
    assert without_seed({"dataset": "standin:a,scale=0.5,seed=3", "seed": 3}) == {"dataset": "standin:a,scale=0.5"}


def test_the_next_seeds_go_to_claims_that_gain_most_power(claims: list[AccuracyClaim]) -> None:
    clear, close = Estimate(9.0, 0.2, 5), Estimate(9.0, 0.7, 5)
    margin = claims[0]
    assert gain_per_second(margin, close, 5, 10.0) > gain_per_second(margin, clear, 5, 10.0) >= 0
    assert gain_per_second(margin, close, 5, 20.0) == pytest.approx(gain_per_second(margin, close, 5, 10.0) / 2)
    moved = Estimate(-50.0, close.deviation, close.count)
    assert gain_per_second(margin, moved, 5, 10.0) == gain_per_second(margin, close, 5, 10.0), "wherever they lie"


def test_a_finer_precision_is_to_tell_what_is_closer_to_the_edge(claims: list[AccuracyClaim]) -> None:
    margin, order = claims
    assert [supposed_truth(claim) for claim in claims] == [0.0, order.width], "none, and what is asked for"
    assert supposed_truth(margin, 0.25) == pytest.approx(-margin.width / 2)
    assert supposed_truth(order, 0.25) == pytest.approx(order.width / 2)
    for claim in claims:
        found = Estimate(0.0, claim.width / 2, 5)
        assert power_with(claim, found, 20, 0.25) < power_with(claim, found, 20)
        fewer = power_with(claim, found, 5)
        assert fewer < power_with(claim, found, 20, 0.25) < fewer + 0.15, "4 times the seeds for half the distance"
