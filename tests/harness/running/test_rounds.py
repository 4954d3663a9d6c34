"""Real runs that are measured several times in turn: what is shown of them, and what they allow to say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import harness
from harness.cli import main
from harness.commands import compare as command_module
from harness.commands.shared.cells import FinishedRun
from harness.errors import InputError
from harness.rank import COMPONENTS
from harness.running import open_run
from harness.running.intervals import order_lines, speedup_interval
from harness.running.summary import comparison
from reports.draw.figures import breakdown_figure
from tests.conformance.test_drivers import config
from tests.harness.running.test_alike import run as finished_run

SMALL = ["--dataset", "synthetic:nodes=200,degree=6,classes=4,features=8", "--hidden", "8", "--epochs", "3", "--quiet"]


def measured(method: str, seconds: float, state: str = "done") -> dict[str, Any]:
    """A record of a real run with known epochs."""
    record = finished_run(method, seconds, mode="real")
    record["state"], record["summary"]["seconds"]["compute"] = state, seconds
    return record


def in_rounds(method: str, *seconds: float) -> dict[str, Any]:
    runs = [FinishedRun(measured(method, each), Path("x"), reused=False) for each in seconds]
    return command_module.in_rounds(runs).record


def test_the_median_round_is_shown_with_the_range_of_all() -> None:
    record = in_rounds("vanilla", 3.0, 1.0, 2.0)
    (row,) = comparison([record])
    assert (row["epoch_seconds"], row["compute_seconds"], row["rounds"]) == (2.0, 2.0, 3)
    assert (row["epoch_low_seconds"], row["epoch_high_seconds"]) == (1.0, 3.0)
    assert in_rounds("vanilla", 4.0, 1.0)["summary"]["epoch_seconds"] == 1.0, "one that was measured, not a mean"
    (alone,) = comparison([in_rounds("vanilla", 3.0)])
    assert alone["rounds"] is None and alone["epoch_low_seconds"] is None


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ("both", "; lines: 90 % intervals of predictions, ranges of rounds"),
        ("measured", "; lines: ranges of rounds"),
        ("once", ""),
    ],
)
def test_figures_say_what_their_lines_are(which: str, said: str) -> None:
    predicted = finished_run("vanilla", 1.5)
    predicted["facts"]["interval"]["seconds"] = {"epoch": [1.0, 2.0]}
    records = [
        in_rounds("vanilla", 1.0, *([2.0] if which != "once" else [])),
        *([predicted] if which == "both" else []),
    ]
    for record in records:
        seconds = record["summary"]["seconds"]
        record["summary"]["seconds"] = {**dict.fromkeys((*COMPONENTS, "hidden"), 0.0), **seconds}
    figure = breakdown_figure(records)
    assert figure.axes[0].get_xlabel() == f"epoch time, median (s){said}"


def test_a_round_that_did_not_reach_its_end_is_shown() -> None:
    runs = [FinishedRun(measured("vanilla", 1.0, state), Path(state), False) for state in ("done", "diverged", "done")]
    found = command_module.in_rounds(runs)
    assert found.path == Path("diverged") and "rounds" not in found.record["facts"]


def test_methods_are_compared_round_by_round() -> None:
    """The machine took twice as long in the last round: the methods' epochs overlap, and yet one is faster in each."""
    fast, slow = in_rounds("sylvie-s", 1.0, 1.1, 2.0), in_rounds("vanilla", 1.2, 1.21, 2.5)
    assert speedup_interval(fast, slow) == pytest.approx((1.1, 1.25))
    assert order_lines([slow, fast]) == ["sylvie-s is faster than vanilla: 1.10 to 1.25 times as fast, in 3 rounds"]
    rows = comparison([slow, fast])
    assert (rows[1]["speedup_low"], rows[1]["speedup_high"]) == pytest.approx((1.1, 1.25))
    slower_once = in_rounds("sylvie-s", 1.0, 1.3, 2.0)
    (line,) = order_lines([slow, slower_once])
    assert line.startswith("vanilla and sylvie-s cannot be told apart") and line.endswith("in 3 rounds")


def test_other_numbers_of_rounds_tell_nothing() -> None:
    fast, slow = in_rounds("sylvie-s", 1.0, 1.1), in_rounds("vanilla", 2.0, 2.1, 2.2)
    assert speedup_interval(fast, slow) is None and order_lines([fast, slow]) == []


def test_real_runs_take_turns_and_simulated_ones_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, str, str]] = []

    def once(opened: Any, out: Path, *, title: str, **_: Any) -> FinishedRun:
        config = opened.config
        asked.append((config.training.method, config.run.mode, out.name, title))
        return FinishedRun(measured(config.training.method, float(len(asked))), out / "x.json", reused=False)

    monkeypatch.setattr(command_module, "run_or_reuse", once)
    base = config("vanilla")
    pairs = [(method, mode) for method in ("vanilla", "pipegcn") for mode in ("loopback", "real")]
    runs = [open_run(base.changed(method=method, mode=mode)) for method, mode in pairs]
    found = command_module.run_all(runs, tmp_path / "runs", rounds=2)
    assert [(method, mode, folder) for method, mode, folder, _ in asked] == [
        ("vanilla", "loopback", "runs"), ("vanilla", "real", "runs"), ("pipegcn", "loopback", "runs"),
        ("pipegcn", "real", "runs"), ("vanilla", "real", "round2"), ("pipegcn", "real", "round2"),
    ]  # fmt: skip
    assert asked[0][3] == "[1/6] vanilla, loopback" and asked[4][3] == "[5/6] vanilla, real, round 2 of 2"
    assert [each.record["facts"].get("rounds") for each in found] == [None, [2.0, 5.0], None, [4.0, 6.0]]


@pytest.mark.processes
def test_rounds_are_measured_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compare", "--methods", "vanilla,bns-gcn", "--mode", "real", "--rounds", "2", *SMALL[:-1]]
    command += ["--parts", "2", "--out", str(tmp_path / "runs")]
    assert main(command) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "range: least and most of the rounds" in out and "in 2 rounds" in out
    for folder in (tmp_path / "runs", tmp_path / "runs" / "round2"):
        assert len(list(folder.glob("*.json"))) == 2
    assert main(command) == 0 and "2 of 2 runs were finished earlier" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rounds", "2"], "rounds repeat measurements, and no run here is real"),
        (["--rounds", "0"], "must be from 1 to 99"),
        (["--rounds", "2", "--mode", "real", "--jobs", "2"], "--rounds measures run after run"),
    ],
)
def test_rounds_that_measure_nothing_are_refused(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compare", "--methods", "vanilla", "--parts", "2", "--out", str(tmp_path), *SMALL, *words]
    assert main(command) == 2 and said in " ".join(capsys.readouterr().err.split())


def test_python_refuses_them_too(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rounds=0"):
        harness.compare("vanilla", rounds=0)
    with pytest.raises(InputError, match="no run here is real"):
        harness.compare("vanilla", config("vanilla"), rounds=2, out=tmp_path)
