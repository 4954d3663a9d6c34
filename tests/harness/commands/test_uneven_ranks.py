"""What `haloscope run` says of ranks that work for longer than others."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import cli
from harness.commands.shared.tables import uneven_lines
from harness.rank import COMPONENTS
from harness.running.results import load_result

GRAPH = "synthetic:nodes=400,degree=8,classes=4,features=8"


def test_ranks_that_others_wait_for_are_named() -> None:
    seconds = {"compute": [0.02, 0.03, 0.01], "codec": [0.001, 0.001, 0.001], "halo": [0.02, 0.01, 0.03]}
    (said,) = uneven_lines(seconds)
    assert said.startswith("ranks are uneven: rank 1 works 31.0 ms an epoch")
    assert "the mean one 21.0, rank 2 11.0" in said


@pytest.mark.parametrize("seconds", [{}, {"compute": [0.02]}, {"compute": [0.02, 0.0215]}, {"halo": [0.1, 0.2]}])
def test_ranks_that_work_alike_are_not(seconds: dict[str, list[float]]) -> None:
    assert uneven_lines(seconds) == []


@pytest.mark.parametrize("mode", ["sim", "loopback"])
def test_results_have_the_seconds_of_every_rank(mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the epoch that the summary has: their means are its components, whose slowest rank is its epoch."""
    run = ["run", "--method", "sylvie-s:bits=1", "--dataset", GRAPH, "--parts", "3", "--epochs", "4", "--mode", mode]
    assert cli.main([*run, "--out", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*.json")
    record = load_result(path)
    found = record["facts"].get("rank_seconds")
    if mode == "loopback":
        assert found is None, "it has no clock"
        return
    seconds = record["summary"]["seconds"]
    assert all(len(ranks) == 3 for ranks in found.values()) and {"compute", "codec", "halo", "reduce"} <= found.keys()
    assert max(found["epoch"]) == pytest.approx(seconds["epoch"], rel=1e-5)
    for name in (*COMPONENTS, "hidden"):
        mean = sum(found.get(name, [0.0])) / 3
        assert mean == pytest.approx(seconds[name], rel=1e-4, abs=1e-9) or name == "wait", name
    for rank in range(3):
        assert sum(found[name][rank] for name in COMPONENTS if name in found) == pytest.approx(
            found["epoch"][rank], rel=1e-4
        )
    uneven = uneven_lines(found)
    assert all(line in capsys.readouterr().out.replace("\n", " ") for line in uneven)
