"""Validation: records and verdicts from known numbers, tables and figures, and one small study from end to end."""

from __future__ import annotations

import csv
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cli import main
from harness.commands import validate as command_module
from harness.commands.validation import cells as cells_module
from harness.config import RunConfig
from harness.errors import InputError
from harness.methods.registry import METHODS, parse_method, typical_methods
from harness.running import validation
from harness.running.drift import reference_seconds
from harness.running.results import Result
from harness.running.validation import (
    VALIDATED_COMPONENTS,
    WARM_UP,
    cells,
    kendall,
    over_runs,
    traffic,
    typical,
    verdict,
)
from harness.running.validation_study import EACH, PLACES, ROUNDS, StudyPlace, study_rounds, takes_model
from reports.draw.validation import write_validation
from sims.explain import MECHANISMS
from tests.support.validation_cells import COMMAND, calibration_in, epochs, made, replace_runs


def test_cells_cover_every_method_graph_and_cluster() -> None:
    base = RunConfig.of(epochs=25)
    found = cells(["lab:3x1gbit", "local"], validation.WORKLOADS, "vanilla,cdfgnn", 0, base)
    assert len(found) == len(set(found)) == 16
    assert [config.cut.parts for config in found] == [3] * 8 + [2] * 8
    assert all(config.run.mode == "real" and config.run.threads >= 1 for config in found)
    assert {config.cut.partitioner for config in found if config.training.method == "cdfgnn"} == {"auto"}
    assert {config.cut.partitioner for config in found if config.training.method == "vanilla"} == {"hash", "metis-cut"}
    assert {config.cut.parts for config in cells(["lab:3x1gbit"], validation.WORKLOADS, "vanilla", 2, base)} == {2}
    with pytest.raises(InputError, match="names no method"):
        cells(["local"], validation.WORKLOADS, " ,", 0, base)


def test_the_study_spreads_every_method_over_links_and_models() -> None:
    """By a rule: all methods, every workload on every place, and `vanilla` in every group."""
    rounds = study_rounds(RunConfig.of(epochs=20))
    once = [config for cells in rounds for config in cells]
    assert len(rounds) == ROUNDS and len(once) == len(set(once)) == len(PLACES) * ROUNDS * (1 + EACH)
    groups = {(c.cluster.name, c.cut.parts, c.data.dataset) for c in once}
    assert len(groups) == len(PLACES) * len(validation.WORKLOADS)
    assert {c.data.dataset for c in once if c.training.method == "vanilla"} == {c.data.dataset for c in once}
    names = {name for name, kind in METHODS.own().items() if kind.facts.cut != "none"}
    assert {c.training.method.partition(":")[0] for c in once} == names and "single" not in names
    assert {c.cut.parts for c in once} == {2, 3, 4} and {c.model.name for c in once} == {"gcn", "sage", "gat"}
    for each in rounds:
        assert {c.cluster.name for c in each} == {place.cluster for place in PLACES}, "a round is on all links"
    assert all(takes_model(c.training.method, c) for c in once)
    assert any(c.training.method == "ec-graph-s:fanouts=10/5/5" for c in once), "a fan-out for each of three layers"


def test_methods_that_do_not_take_a_model_are_passed_over() -> None:
    gat = RunConfig.of(model="gat", parts=2)
    assert (
        takes_model("vanilla", gat)
        and not takes_model("cagnet", gat)
        and takes_model("cagnet", RunConfig.of(model="gcn", parts=2))
    )


def test_typical_options_fit_the_depth_of_the_model() -> None:
    sampled = {layers: next(t for t in typical_methods(layers) if t.startswith("ec-graph-s")) for layers in (1, 2, 4)}
    assert sampled == {1: "ec-graph-s:fanouts=10", 2: "ec-graph-s", 4: "ec-graph-s:fanouts=10/5/5/5"}
    for text in typical_methods(3):
        parse_method(text)


def test_time_left_is_that_of_cells_alike() -> None:
    def cell(method: str, dataset: str) -> RunConfig:
        return RunConfig.of(method=method, dataset=dataset, epochs=25)

    rest = [cell("vanilla", "a"), cell("vanilla", "b"), cell("cdfgnn", "a")]
    assert validation.seconds_left([], rest, 7.0) == 3 * 7.0
    done = [(cell("vanilla", "a"), 10.0), (cell("vanilla", "a"), 20.0), (cell("sylvie-s", "b"), 60.0)]
    assert validation.seconds_left(done, rest, 7.0) == 15 + 15 + 30
    assert validation.seconds_left(done, [], 7.0) == 0


def test_methods_that_refuse_a_workload_are_named_and_the_others_are_run() -> None:
    workloads = {"two": {"dataset": COMMAND[2], "model": "gcn", "layers": 2, "hidden": 8}}
    base = RunConfig.of(epochs=7)
    found = cells(["local"], workloads, "vanilla,ec-graph-s:fanouts=1", 0, base)
    kept, refused = command_module._runnable([found[1:], found[:1]], chosen=False)
    assert [[config.training.method for config in cells] for cells in kept] == [[], ["vanilla"]]
    assert refused == [f"ec-graph-s:fanouts=1 on {COMMAND[2]}: ec-graph-s: fanouts=1 has 1 hops; the model has 2"]
    for configs, chosen in ((found, True), (found[1:], False)):
        with pytest.raises(InputError, match="has 1 hops"):
            command_module._runnable([configs], chosen=chosen)


@given(steady=st.lists(st.floats(1e-4, 10), min_size=20, max_size=40), wait=st.sampled_from([0.0, 2.0]))
def test_typical_epochs_leave_the_warm_up_and_the_wait_out(steady: list[float], wait: float) -> None:
    found = typical(epochs(*[1e6] * WARM_UP, *steady, wait=wait))
    assert found["epoch"] == pytest.approx(statistics.median(steady))
    assert found["compute"] == pytest.approx(found["epoch"] / 4)
    assert 0 <= found["spread"] <= max(steady) - min(steady) + 1e-12


def test_runs_of_a_cell_count_by_their_median_and_disturbed_ones_only_where_all_are() -> None:
    """The spread is that of the epochs of a run, in the median, or that of the runs where that is more."""

    def run(seconds: float, load: float = 0.0) -> dict[str, Any]:
        times = dict.fromkeys(VALIDATED_COMPONENTS, seconds / 4) | {"epoch": seconds, "spread": 0.1}
        return times | {"foreign_load": load, "reference": 2 * seconds}

    found = over_runs([run(1.0), run(9.0, load=0.5), run(1.3), run(1.04)])
    assert (found["epoch"], found["halo"], found["reference"], found["foreign_load"]) == (1.04, 0.26, 2.08, 0.0)
    assert found["spread"] == pytest.approx(0.15), "the quartiles of 1.0, 1.04 and 1.3"
    assert [each["epoch"] for each in found["runs"]] == [1.0, 1.3, 1.04]
    assert over_runs([run(1.0), run(1.01)])["spread"] == 0.1
    disturbed = over_runs([run(9.0, load=0.5), run(8.0, load=0.4)])
    assert (disturbed["epoch"], disturbed["foreign_load"], len(disturbed["runs"])) == (8.5, 0.45, 2)


def test_traffic_leaves_out_tiers_that_nothing_crossed() -> None:
    assert traffic(epochs(1.0))[0]["tiers"] == {"loopback": 9}
    assert traffic(epochs(1.0)) == traffic(epochs(2.0))


def test_verdict_of_known_errors() -> None:
    records = [made("vanilla", 1.1, 1.0), made("sylvie-s", 0.4, 0.5), made("cdfgnn", 2.0, 2.0)]
    found = verdict(records)
    assert (found.cells, found.disturbed, found.bytes_equal, found.tau) == (3, 0, True, 1.0)
    assert found.median == pytest.approx(0.1)
    assert found.p90 == pytest.approx(0.18)
    assert str(found) == (
        "3 cells: error of the epoch time: median 10.0%, 90th percentile 18.0%; Kendall's tau of the order of methods "
        "1.00, of those further apart than their spread 1.00; bytes equal in every cell"
    )
    assert not verdict([*records, {**records[0], "bytes_equal": False}]).bytes_equal


def test_disturbed_cells_are_left_out_of_the_verdict_on_times() -> None:
    """Disturbed cells count in the verdict on bytes only."""
    quiet = [made("vanilla", 1.1, 1.0), made("sylvie-s", 0.4, 0.5)]
    disturbed = made("cdfgnn", 0.3, 2.0, load=0.16)
    found = verdict([*quiet, disturbed])
    assert (found.cells, found.disturbed) == (3, 1)
    assert (found.median, found.p90, found.tau) == (verdict(quiet).median, verdict(quiet).p90, 1.0)
    assert str(found).startswith("3 cells, 1 of them left out because others kept the machine busy: error of")
    assert not verdict([*quiet, {**disturbed, "bytes_equal": False}]).bytes_equal
    assert [r["disturbed"] for r in (*quiet, disturbed)] == [False, False, True]
    none = verdict([disturbed])
    assert str(none).endswith("others kept the machine busy: no verdict on times; bytes equal in every cell")


def test_order_of_methods_is_judged_on_the_same_graph_and_cluster() -> None:
    here = [made("vanilla", 1.0, 1.0), made("sylvie-s", 2.0, 2.0)]
    there = [made("vanilla", 9.0, 9.0, "lab:3x1gbit"), made("sylvie-s", 8.0, 9.5, "lab:3x1gbit")]
    assert verdict(here).tau == 1.0
    assert verdict(there).tau == -1.0
    assert verdict([*here, *there]).tau == 0.0
    assert kendall(here[:1]) is None
    assert kendall([made("vanilla", 1.0, 1.0), made("sylvie-s", 1.0, 2.0)]) == 0.0


def test_methods_within_their_spread_have_no_order() -> None:
    close, far = made("vanilla", 1.0, 1.0), made("cdfgnn", 3.0, 4.0)
    near = made("sylvie-s", 0.9, 1.04)
    for cell in (close, near, far):
        cell["measured"]["spread"] = 0.05
    assert kendall([close, near]) == -1.0 and kendall([close, near], apart=True) is None
    found = verdict([close, near, far])
    assert found.tau == pytest.approx(1 / 3) and found.tau_apart == 1.0
    assert math.isnan(verdict([close, near]).tau_apart)


def test_files_of_a_report(tmp_path: Path) -> None:
    records = [made("vanilla", 0.011, 0.010), made("sylvie-s", 0.02, 0.025, "lab:3x1gbit", load=0.4)]
    paths = write_validation(records, tmp_path / "out")
    assert [path.name for path in paths] == ["scatter.png", "scatter.svg", "table.md", "table.csv"]
    assert paths[0].read_bytes().startswith(b"\x89PNG") and b"<svg" in paths[1].read_bytes()[:800]
    text = paths[2].read_text()
    assert text.startswith(f"{verdict(records)}. Milliseconds, predicted / measured: medians of 20 epochs after the ")
    assert "| vanilla |" in text and "11.0 / 10.0" in text and "+10.0 %" in text
    assert "-20.0 %" in text and "| 40 % (left out) |" in text
    drawn = paths[1].read_bytes()
    assert b"1 cells (hollow: 1 disturbed)" in drawn and b"median error 10.0%, 90 % within 10.0%" in drawn
    rows = list(csv.DictReader(paths[3].read_text().splitlines()))
    assert [row["disturbed"] for row in rows] == ["False", "True"]
    assert [float(row["predicted_epoch"]) for row in rows] == [0.011, 0.02]
    again = write_validation(records, tmp_path / "again")
    assert again[1].read_bytes() == paths[1].read_bytes()


@pytest.mark.processes
def test_from_calibration_to_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real and simulated on one partition: equal bytes, all components, and finished cells are not run again."""
    calibration = calibration_in(tmp_path)
    out, target = tmp_path / "out", tmp_path / "records.json"
    command = [*COMMAND, "--methods", "sylvie-s:bits=1", "--epochs", "7", "--runs", "2", "--out", str(out)]
    command += ["--calibration", str(calibration), "--json", str(target)]
    assert main(command) == 0, capsys.readouterr().err
    records = json.loads(target.read_text())
    assert [r["method"] for r in records] == ["sylvie-s:bits=1"]
    for r in records:
        assert r["bytes_equal"] and r["parts"] == 2 and r["cluster"] == "local" and r["epochs"] == 2
        assert set(r["predicted"]) == set(VALIDATED_COMPONENTS) and set(r["measured"]) == {
            *VALIDATED_COMPONENTS,
            "spread",
        }
        parts = sum(r["predicted"][name] for name in VALIDATED_COMPONENTS if name != "epoch")
        rest = r["predicted"]["epoch"] - parts
        assert -1e-12 <= rest < 0.15 * r["predicted"]["epoch"], "the rest waits for a jitter of 4 %"
        assert 0 < r["measured"]["compute"] < r["measured"]["epoch"]
        assert statistics.median(run["epoch"] for run in r["runs"]) == r["measured"]["epoch"]
    assert records[0]["measured"]["codec"] > 0
    kept = sorted([*out.glob("measured/*.json"), *out.glob("predicted/*/seconds.json")])
    assert len(kept) == 3 and len({path.read_bytes() for path in kept}) == 3, "two runs and a prediction"
    before = [path.stat().st_mtime_ns for path in kept]
    capsys.readouterr()
    assert main(command) == 0
    assert json.loads(target.read_text()) == records
    assert [path.stat().st_mtime_ns for path in kept] == before
    monkeypatch.setattr(cells_module, "code_version", lambda *packages: f"other code of {packages[-1]}")
    assert main(command) == 0
    said = capsys.readouterr().err
    again = json.loads(target.read_text())
    codec = [[r["predicted"]["codec"] for r in some] for some in (again, records)]
    assert codec[0] == codec[1], (
        "it goes by the calibration alone; neighbour sums are timed again on the graph's blocks"
    )
    for side in ("measured", "predicted"):
        assert f"{side} sylvie-s:bits=1 on local: the code has changed since; it is done again" in said
    assert all(now > then for now, then in zip([path.stat().st_mtime_ns for path in kept], before, strict=True))


def test_a_cell_that_fails_does_not_end_the_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(config: RunConfig) -> Result:
        if config.training.method == "sylvie-s":
            return Result(config, "diverged", [], {}, message="the loss of epoch 3 is not finite")
        return Result(config, "done", epochs(*[0.01] * config.training.epochs), {})

    calibration = calibration_in(tmp_path)
    replace_runs(monkeypatch, run)
    command = [*COMMAND[:-1], "--epochs", "7", "--calibration", str(calibration), "--out", str(tmp_path / "out")]
    command += ["--runs", "2"]
    assert main([*command, "--methods", "sylvie-s,vanilla", "--json", str(tmp_path / "records.json")]) == 1
    why = "diverged: the loss of epoch 3 is not finite"
    said = capsys.readouterr()
    assert f"left out: sylvie-s on {COMMAND[2]}, local (real): {why}" in " ".join(said.out.split())
    assert [r["method"] for r in json.loads((tmp_path / "records.json").read_text())] == ["vanilla"]
    assert main([*command, "--methods", "sylvie-s"]) == 2
    assert "no cell can be judged: sylvie-s on" in capsys.readouterr().err


def test_a_study_in_short(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`--study`: every method on every cluster of it, with tables and a figure; real runs are replaced by known
    times, a tenth above the predicted ones. All cells are measured once before any is again."""
    began: list[str] = []

    def run(config: RunConfig) -> Result:
        began.append(f"{config.training.method} {config.run.mode}")
        seconds = {"vanilla": 0.02}.get(config.training.method, 0.01) * (1.1 if config.run.mode == "real" else 1.0)
        return Result(config, "done", epochs(*[seconds] * config.training.epochs), {})

    calibration, out = calibration_in(tmp_path), tmp_path / "out"
    monkeypatch.setattr(validation, "FOREIGN", float("inf"))  # other tests run beside it
    replace_runs(monkeypatch, run)
    places = [StudyPlace("local", 2), StudyPlace("local", 3)]
    small = {"small": {"dataset": COMMAND[2], "model": "gcn", "layers": 2, "hidden": 8, "partitioner": "hash"}}
    monkeypatch.setattr(validation, "WORKLOADS", small)
    before = [StudyPlace("local", 4)]  # of a round that is not asked for
    made = study_rounds
    monkeypatch.setattr(command_module, "study_rounds", lambda base: made(base, before, 1) + made(base, places, 1))
    command = ["validate", "--study", "--ablation", "--epochs", "7", "--runs", "3", "--calibration", str(calibration)]
    command += ["--from-round", "2", "--out", str(out), "--json", str(tmp_path / "records.json")]
    assert main(command) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    records = json.loads((tmp_path / "records.json").read_text())
    methods = ["vanilla", "bns-gcn", "pipegcn", "vanilla", "sar", "sylvie-s"]
    assert [r["method"] for r in records] == methods
    assert [name.partition(" ")[0] for name in began if name.endswith("real")] == 3 * methods
    assert all(len(r["runs"]) == 3 for r in records)
    assert all(r["error"] == pytest.approx(1 / 1.1 - 1) for r in records)
    assert {"scatter.svg", "table.csv"} <= {path.name for path in out.iterdir()}
    assert len(list((out / "cells").glob("*.json"))) == 6 and len(list((out / "measured").glob("*.json"))) == 18
    assert len(list((out / "blocks").iterdir())) == 2, "methods with equal blocks share what these take"
    assert all(set(r["without"]) == {*MECHANISMS, cells_module.SUMS} for r in records)
    for words in ("errors of epochs by links", "by method", "runs of the same cells", "without one of its mechanisms"):
        assert words in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--budget", "soon"], "soon"),
        (["--from-round", "2"], "--from-round is of the rounds of --study"),
        (["--out", "there:here"], "it must have no colon"),
        (["--epochs", "5"], "warm up"),
        (["--cluster", "h100-8"], "only this machine"),
        (["--cluster", "lab:3xfast"], "no link"),
        (["--methods", "vanila"], "did you mean 'vanilla'"),
    ],
)
def test_what_cannot_be_validated_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, *words]) == 2
    assert said in capsys.readouterr().err


def test_the_reference_work_takes_longer_where_it_is_more() -> None:
    """Three times the looks are the same median look; a machine that is half as fast would show as twice the time."""
    one, again = reference_seconds(1, 1), reference_seconds(1, 3)
    assert 1e-4 < one < 1 and 0.2 < one / again < 5


@pytest.mark.parametrize("content", [b"", b"{", b'"\xff"', b"[]", b'{"code": "other"}'], ids=repr)
def test_kept_cells_that_are_damaged_or_of_other_code_are_done_again(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    validator, path = cells_module.Validator(tmp_path), tmp_path / "seconds.json"
    cells_module._keep(path, "code", {"epoch": 0.1})
    assert validator._kept(path, "code", "predicted") == {"epoch": 0.1}
    assert validator._kept(path, "", "measured") == {"epoch": 0.1}, "of any code"
    path.write_bytes(content)
    assert validator._kept(path, "code", "predicted") is None
    why = "code has changed since" if b"other" in content else "is damaged"
    assert f"{why}; it is done again" in " ".join(capsys.readouterr().err.split())


def paired(method: str, predicted: float, measured: float, ratios: Sequence[float] = (0.9, 1.0, 1.1)) -> dict[str, Any]:
    """What a record says of one method in the place of all."""
    place = {"dataset": "a", "model": "gcn", "precision": "fp32", "parts": 2, "cluster": "here"}
    times = {"predicted": {"epoch": predicted}, "measured": {"epoch": measured}, "ratios": list(ratios)}
    return {"method": method, **place, **times}


def test_pairs_of_methods_are_told_apart_rightly_or_not() -> None:
    records = [paired("a", 1.0, 1.0), paired("b", 1.02, 1.05), paired("c", 2.0, 1.02)]
    found = validation.speedup_coverage(records)
    right = "a, b: open; a, c: right; b, c: wrong"
    assert found == validation.SpeedupCoverage(pairs=3, inside=1, told_apart=2, rightly=1), right
    assert str(found).endswith("hold 1 measured ratios of epochs (33%); 2 are told apart, 1 of them rightly")
    elsewhere = {**paired("a", 1.0, 1.0), "cluster": "there"}
    without, fewer = paired("d", 1.0, 1.0, ()), paired("e", 1.0, 1.0, [1.0])
    assert validation.speedup_coverage([records[0], elsewhere, without]).pairs == 0, "same place, same draws"
    assert validation.speedup_coverage([records[0], fewer]).pairs == 0


def test_cells_in_bf16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flag reaches every run and the records; cells of both precisions are no pairs."""

    def run(config: RunConfig) -> Result:
        assert config.model.precision == "bf16"
        return Result(config, "done", epochs(*[0.01] * config.training.epochs), {})

    replace_runs(monkeypatch, run)
    flags = "--precision bf16 --epochs 7 --runs 1 --replays 0 --methods vanilla"
    command = [*COMMAND, *flags.split()]
    calibration, records = calibration_in(tmp_path), tmp_path / "records.json"
    command += ["--calibration", str(calibration), "--out", str(tmp_path / "out"), "--json", str(records)]
    assert main(command) == 0
    assert [r["precision"] for r in json.loads(records.read_text())] == ["bf16"]
    one = paired("a", 1.0, 1.0)
    assert validation.speedup_coverage([one, {**one, "precision": "bf16"}]).pairs == 0


def test_coverage_at_the_pace_moves_the_interval_with_the_prediction() -> None:
    predicted, slower, interval = {"epoch": 2.0}, {"epoch": 3.0}, {"epoch": [1.8, 2.2]}
    record = {"predicted": predicted, "at_pace": slower, "interval": interval, "measured": {"epoch": 2.9}}
    quiet = {**record, "measured": {"epoch": 2.1}}
    assert validation.coverage([record, quiet]) == (1, 2)
    assert validation.coverage([record, quiet], at_pace=True) == (1, 2), "the other one"
    assert validation.coverage([record], at_pace=True) == (1, 1)
    assert validation.coverage([{**record, "interval": {}}], at_pace=True) == (0, 0)
