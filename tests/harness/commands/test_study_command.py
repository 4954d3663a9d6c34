"""`haloscope study` and `haloscope standin`: verdicts from a file of runs, resumed; bad input gives one line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness import cli
from harness.commands import study as study_command
from harness.running.sweep import seconds_of
from reports.study import read_claims
from tests.support.studies import CLAIMS, MadeUpRuns

Haloscope = Callable[..., tuple[int, str, str]]


@pytest.fixture
def haloscope(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Haloscope]:
    """Runs the command beside a file of claims; returns exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(CLAIMS)

    def command(*argv: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main([str(word) for word in argv])
        return code, *capsys.readouterr()

    yield command


def test_a_users_own_claims_are_run_and_judged_and_found_finished(haloscope: Haloscope) -> None:
    words = ("study", "mine.toml", "--jobs", "1", "--only", "isolation", "--most", "5")
    code, out, err = haloscope(*words, "--json", "a.json")
    found = json.loads(Path("a.json").read_text())["claims"]
    assert code == 0 and [row["seeds"] for row in found] == [5] and found[0]["claim"] == "mine/isolation, small (order)"
    assert found[0]["verdict"] in ("reproduced", "contradicted", "undecided") and found[0]["half_width"] > 0
    assert "10 runs, about" in err and "isolation, small (order)" in out and "runs: mine.csv" in out
    assert len(Path("mine.csv").read_text().splitlines()) == 11
    code, out, err = haloscope(*words)
    assert code == 0 and "nothing is left to run" in err and "[1/" not in err


def test_a_dry_run_says_what_it_takes_and_writes_nothing(haloscope: Haloscope) -> None:
    code, out, _ = haloscope("study", "mine.toml", "--dry-run", "--json", "-")
    assert code == 0 and json.loads(out)["runs"] == 15 and not Path("mine.csv").exists()


def test_a_dry_run_says_what_a_finer_precision_takes(haloscope: Haloscope, tmp_path: Path) -> None:
    scattered = {"bns-gcn:p=0": 0.3}
    runs = MadeUpRuns.of(
        lambda cell: 80.0 + scattered.get(cell.method, 0.0) * (int(cell.settings["seed"]) % 3), tmp_path / "mine.csv"
    )
    claims = read_claims(tmp_path / "mine.toml")
    runs.make([cell for claim in claims for seed in range(5) for cell in claim.cells(seed)])
    made = Path("mine.csv").read_text()
    answers = {}
    for precision in ("1", "0.25"):
        code, out, _ = haloscope("study", "mine.toml", "--dry-run", "--precision", precision, "--json", "-")
        assert code == 0 and json.loads(out)["runs"] == 0
        answers[precision] = json.loads(out)["further_runs"]
    assert answers["1"] == 0 < answers["0.25"] and Path("mine.csv").read_text() == made
    code, out, _ = haloscope("study", "mine.toml", "--dry-run", "--precision", "0.25")
    assert code == 0 and "a precision of 0.25" in out


def test_a_report_runs_nothing(haloscope: Haloscope, tmp_path: Path) -> None:
    runs = MadeUpRuns.of(lambda cell: 80.0 - 10 * cell.method.endswith("p=0"), tmp_path / "mine.csv")
    runs.make(
        [cell for claim in read_claims(tmp_path / "mine.toml") for seed in range(6) for cell in claim.cells(seed)]
    )
    code, out, _ = haloscope("study", "mine.toml", "--report")
    assert code == 0 and "2 claims: 2 reproduced" in out and "+10.00" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["study", "mine.tml"], "unknown study"),
        (["study", "none.toml"], "no such file of claims"),
        (["study", "mine.toml", "--only", "nothing"], "no claim of mine.toml contains"),
        (["study", "mine.toml", "--only", ""], "no claim of mine.toml contains ''"),
        (["study", "mine.toml", "--budget", "soon"], "is not a time"),
        (["study", "mine.toml", "--most", "3"], "--most must be at least 5"),
        (["study", "mine.toml", "--scale", "0"], "--scale must be above 0"),
        (["study", "mine.toml", "--precision", "0"], "--precision must be above 0 and at most 1"),
        (["study", "mine.toml", "--precision", "nan"], "--precision must be above 0 and at most 1"),
        (["study", "mine.toml", "--precision", "1.5"], "--precision must be above 0 and at most 1"),
        (["study", "mine.toml", "--precision", "0_5"], "invalid float value"),
        (["standin", "fit"], "name a design"),
        (["standin", "fit", "redit-bns"], "did you mean 'reddit-bns'"),
        (["standin", "fit", "reddit-bns", "--knobs", "signal"], "belongs to haloscope standin figure"),
        (["standin", "figure", "reddit-bns", "--knobs", ","], "names no parameter"),
        (["standin", "fit", "reddit-bns", "--seeds", "0"], "must be from 1"),
        (
            ["standin", "fit", "reddit-bns", "--budget", "1s", "--jobs", "1", "--out", "here"],
            "ended before the first point",
        ),
    ],
)
def test_bad_input_is_one_line(haloscope: Haloscope, words: list[str], said: str) -> None:
    code, out, err = haloscope(*words)
    assert code == 2 and said in err and not out
    assert not Path("here").exists() and not Path("mine.csv").exists()


def test_studies_and_stand_ins_are_listed(haloscope: Haloscope) -> None:
    code, out, _ = haloscope("study", "list")
    assert code == 0 and "bns-gcn" in out and "subgraph-approximation" in out
    code, out, _ = haloscope("standin", "list", "--json", "-")
    assert code == 0 and {"reddit-bns", "yelp-bns"} <= {row["name"] for row in json.loads(out)}


def test_all_studies_of_the_project_are_judged_one_after_another(
    haloscope: Haloscope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reports.study.names", lambda: ["cdfgnn", "causes"])
    code, out, err = haloscope("study", "all", "--report", "--json", "all.json")
    made = json.loads(Path("all.json").read_text())["studies"]
    assert code == 0 and [one["study"] for one in made] == ["cdfgnn", "causes"] and all(one["claims"] for one in made)
    assert "study cdfgnn" in err and "all studies" in out
    counts = [
        line for line in out.splitlines() if " claims: " in line and line.lstrip().startswith(("cdfgnn", "causes"))
    ]
    assert len(counts) == 2 and f"{len(made[0]['claims'])} claims: " in counts[0]


def test_all_studies_share_one_budget(haloscope: Haloscope, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may begin runs in what the ones before it have left."""
    budgets: list[float] = []

    def spend(args: argparse.Namespace) -> study_command._Done:
        budgets.append(seconds_of(args.budget))
        clock[0] += 40.0
        return study_command._Done(0, {}, [])

    clock = [100.0]
    monkeypatch.setattr("reports.study.names", lambda: ["cdfgnn", "causes", "sylvie"])
    monkeypatch.setattr(study_command, "_study", spend)
    monkeypatch.setattr(study_command, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    assert haloscope("study", "all", "--budget", "1m")[0] == 0 and budgets == [60.0, 20.0, 1.0]


@pytest.mark.parametrize("flag", ["--only", "--file"])
def test_flags_of_one_study_are_refused_for_all(haloscope: Haloscope, flag: str) -> None:
    code, _, err = haloscope("study", "all", flag, "x.csv")
    assert code == 2 and "for one study" in err
