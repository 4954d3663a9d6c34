"""Intervals of predictions on the command line: run, compare, what-if and explain, on a tiny graph."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.image import imread

from harness import cli

GRAPH = ["--dataset", "synthetic:nodes=200,degree=6,classes=3,features=8", "--parts", "2", "--cluster", "ethernet-1g"]
FEW = ["--replays", "8", "--quiet"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_run_has_an_interval_and_gets_one_later(capsys: pytest.CaptureFixture[str]) -> None:
    run = ["run", *GRAPH, "--mode", "sim", "--epochs", "4", "--out", "runs", "--json", "found.json"]
    assert cli.main([*run, "--replays", "0"]) == 0
    assert "90 % interval" not in capsys.readouterr().out
    before = json.loads(Path("found.json").read_text())
    assert "interval" not in before["facts"]
    assert cli.main([*run, "--replays", "8"]) == 0
    out = capsys.readouterr().out
    assert "90 % interval" in out and "finished earlier" in out and "8 replays with uncertain inputs drawn anew" in out
    after = json.loads(Path("found.json").read_text())
    low, high = after["facts"]["interval"]["seconds"]["epoch"]
    assert low < after["summary"]["epoch_seconds"] < high and after["epochs"] == before["epochs"]
    assert json.loads(next(Path("runs").glob("*.json")).read_text()) == after
    assert cli.main([*run, "--replays", "0"]) == 0
    assert "90 % interval" not in capsys.readouterr().out, "not asked for, though it is kept"
    assert json.loads(Path("found.json").read_text()) == before
    assert json.loads(next(Path("runs").glob("*.json")).read_text()) == after
    assert cli.main([*run, "--replays", "3"]) == 2


def test_compare_says_what_intervals_allow() -> None:
    methods = ["--methods", "vanilla,sylvie-s:bits=1", "--modes", "loopback,sim"]
    assert cli.main(["compare", *methods, *GRAPH, "--epochs", "3", "--out", "runs", "--json", "found.json", *FEW]) == 0
    found = json.loads(Path("found.json").read_text())
    (said,) = found["order"]
    assert "faster than" in said or "cannot be told apart" in said
    rows = pd.read_csv("runs/comparison/table.csv").set_index(["method", "mode"])
    assert rows.loc[("vanilla", "sim"), ["speedup_low", "speedup_high"]].tolist() == [1.0, 1.0]
    row = rows.loc[("sylvie-s:bits=1", "sim")]
    assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"]
    assert row["epoch_low_seconds"] < row["epoch_seconds"] < row["epoch_high_seconds"]
    assert (
        rows.loc[("vanilla", "loopback"), "epoch_low_seconds"] != rows.loc[("vanilla", "loopback"), "epoch_low_seconds"]
    )


def test_measured_rows_are_not_said_to_be_on_the_modelled_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    """Ethernet beside the loopback of this machine: the table says which is which, and that it is no model's error."""
    compare = ["compare", "--methods", "vanilla", "--modes", "sim,real", *GRAPH, "--epochs", "2", "--out", "runs"]
    assert cli.main([*compare, "--replays", "0", "--json", "found.json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "ethernet-1g" not in lines[0] and lines[0].startswith("all rows: ")
    text = "\n".join(lines)
    assert "warning: predicted rows are of cluster ethernet-1g, measured ones of this machine" in text.replace(
        "  ", " "
    )
    rows = json.loads(Path("found.json").read_text())
    assert [row["cluster"] for row in rows["rows"]] == ["ethernet-1g", "this machine"] and len(rows["warnings"]) == 1
    assert any("cluster" in line for line in lines if line.strip().startswith("method"))
    assert any("vanilla" in line and "this machine" in line for line in lines)
    svg = Path("runs/comparison/figure.svg").read_text()
    assert "sim on cluster ethernet-1g" in svg and "real on this machine" in svg


def test_the_default_cluster_is_said_to_be_another_machine(capsys: pytest.CaptureFixture[str]) -> None:
    run = ["run", *GRAPH[:-2], "--mode", "sim", "--epochs", "2", "--replays", "0"]
    assert cli.main(run) == 0
    assert "cluster local: a model of one virtual machine with 2 cores, not of this machine" in capsys.readouterr().out
    assert cli.main(["explain", *GRAPH[:-2], "--replays", "8"]) == 0
    assert "cluster local: a model of one virtual machine" in capsys.readouterr().out
    assert cli.main([*run, "--cluster", "ethernet-1g"]) == 0
    assert "not of this machine" not in capsys.readouterr().out


def test_what_if_has_bands() -> None:
    argv = ["--methods", "vanilla,sylvie-s:bits=1", "--points", "3", "--out", "out", "--json", "found.json"]
    assert cli.main(["what-if", *argv, *GRAPH, "--bandwidth", "nic=10Mb/s..10Gb/s", *FEW]) == 0
    found = json.loads(Path("found.json").read_text())
    assert found["said"][-1].startswith("fastest (90 %): ")
    for row in found["rows"]:
        assert row["epoch_low_seconds"] < row["epoch_seconds"] < row["epoch_high_seconds"]
        assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"]


def test_explain_says_where_an_epoch_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--method", "sylvie-s", *GRAPH, "--out", "out/path.png", "--json", "found.json", "--replays", "8"]
    assert cli.main(["explain", *flags]) == 0
    out = capsys.readouterr().out
    found = json.loads(Path("found.json").read_text())
    assert found["said"][0] in out and imread("out/path.png").shape[2] == 4
    path = found["critical_path"]
    assert sum(path["components"].values()) == pytest.approx(found["seconds"]["epoch"], rel=0.1)
    assert sum(path["ranks"].values()) == pytest.approx(sum(path["components"].values()))
    assert any(line.startswith("+10% ") and line.endswith(" % epoch") for line in found["said"])
    narrower = [each for each in found["inputs"] if each["interval_without"]]
    assert narrower and found["inputs"][0]["share"] >= found["inputs"][-1]["share"]


def test_only_predictions_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", *GRAPH[:4], "--epochs", "1", "--out", "runs", "--quiet"]) == 0  # in loopback, on no cluster
    (result,) = Path("runs").glob("*.json")
    assert cli.main(["explain", str(result)]) == 2
    assert "a run in mode loopback; predictions (--mode sim) are explained" in capsys.readouterr().err
    assert cli.main(["explain", str(result), "--parts", "8", "--layer0", "cache"]) == 2
    assert "so that --layer0, --parts would change nothing" in capsys.readouterr().err
    assert cli.main(["explain", *GRAPH, "--replays", "0"]) == 2
