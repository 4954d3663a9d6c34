"""A run that is timed by replay has the result of the run that is simulated in full."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from harness.config import RunConfig
from harness.methods.registry import parse_method
from harness.running import run
from harness.running.results import Result
from sims.replay import Replay
from sims.study import Retimed
from tests.conformance.test_drivers import config
from tests.support.settings import SETTINGS, label

CLUSTERS = (
    "sylvie-2x8",
    "sylvie-2x8:links.nic.bandwidth=3Gb/s:stragglers.hosts.0=1.7",
    "sylvie-2x8:links.bus.bandwidth=2GB/s:transport.operation=80us:stragglers.jitter=0.2",
)


def shapes(**values: Any) -> RunConfig:
    given = {"mode": "sim", "shapes_only": True, "epochs": 3, "eval_every": -1, "deterministic": False, **values}
    return config(**given)


def without_times(result: Result) -> tuple[dict[str, Any], list[list[int]]]:
    """The record of a result without when and where it was made and which epochs are copies, and peak bytes by epoch
    and rank apart."""
    record = copy.deepcopy(result.to_dict())
    del record["environment"], record["facts"]["memory"], record["summary"]["peak_memory"]
    record["facts"]["notes"] = [note for note in record["facts"]["notes"] if "are copies" not in note]
    return record, [epoch.pop("peak_memory") for epoch in record["epochs"]]


def assert_alike(found: Result, full: Result) -> None:
    """Equal but for the rounding of times, which are differences of moments, and for memory: what is held behind
    compute hangs on when messages arrive."""
    (record, peaks), (expected, full_peaks) = without_times(found), without_times(full)
    assert record == nearly(expected)
    assert peaks == [pytest.approx(each, rel=0.1) for each in full_peaks]


def nearly(value: Any) -> Any:
    """What equals a record whose numbers are the same but for rounding."""
    if isinstance(value, dict):
        return {key: nearly(each) for key, each in value.items()}
    if isinstance(value, list):
        return [nearly(each) for each in value]
    return pytest.approx(value, rel=1e-9, abs=1e-15) if isinstance(value, float) else value


def replays(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The clusters of all replays from now on."""
    found: list[str] = []
    own = Replay.time

    def time(self: Replay, cluster: Any, *args: Any) -> Any:
        found.append(cluster.name)
        return own(self, cluster, *args)

    monkeypatch.setattr(Replay, "time", time)
    return found


NO_LOCAL_EDGES = "fastgcn:nodes=15:batch=25:sampling=ordered:norm=root"
"""On this small graph it draws no edges within a part, and so has no share of them for runs of shapes."""

TWO_EACH = [of_method[at] for of_method in SETTINGS.values() for at in sorted({0, len(of_method) - 1})]
"""The first and the last of every method's rows."""

SOME = ("vanilla", "bns-gcn", "sylvie-a", "ec-graph", "cdfgnn", "adaqp", "distdgl", "agl", "aligraph-fg")
WITH_NUMBERS = [SETTINGS[name][0] for name in SOME]


@pytest.mark.parametrize("row", [row for row in TWO_EACH if row["method"] != NO_LOCAL_EDGES], ids=label)
def test_results_by_replay_are_those_of_runs(
    row: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed_method = parse_method(row["method"]).facts.timed
    real = run(config(**row, epochs=3, eval_every=-1))
    rates = str(real.save(tmp_path)) if any(epoch["observed"] for epoch in real.epochs) else ""
    runs, timed = Retimed(), replays(monkeypatch)
    for cluster in CLUSTERS:
        asked = shapes(**row, cluster=cluster, rates=rates)
        assert_alike(runs.run(asked), run(asked))
    assert len(timed) == (0 if timed_method else len(CLUSTERS) - 1)


@pytest.mark.parametrize("row", WITH_NUMBERS, ids=label)
def test_runs_with_numbers_are_timed_by_replay_too(row: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    timed_method = parse_method(row["method"]).facts.timed
    runs, timed = Retimed(), replays(monkeypatch)
    for cluster in CLUSTERS[:2]:
        asked = config(**{"mode": "sim", "epochs": 3, **row, "cluster": cluster})
        assert_alike(runs.run(asked), run(asked))
    assert len(timed) == (0 if timed_method else 1)


def test_degrees_that_are_spread_are_priced_as_such(tmp_path: Path) -> None:
    """On a device with a cache sums cost by how often rows are read; a replay must know the degrees' spread."""
    description = tmp_path / "spread.toml"
    description.write_text(
        'name = "spread"\n[graph]\nnodes = 400_000\nedges = 20_000_000\nfeatures = 128\nclasses = 40\ntrain = 400_000\n'
        "[parts]\nboundary = 0\ndegrees = { spread = 2.0 }\n"
    )
    runs = Retimed()
    for cluster in ("h200-1", "h200-1:stragglers.hosts.0=2"):
        asked = shapes(dataset=str(description), method="single", parts=1, cluster=cluster)
        assert_alike(runs.run(asked), run(asked))


def test_another_graph_is_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, timed = Retimed(), replays(monkeypatch)
    for seed in (1, 2):
        runs.run(shapes(method="vanilla", seed=seed))
    assert not timed


def test_what_was_used_last_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, timed = Retimed(most=2), replays(monkeypatch)
    for seed in (1, 2, 1, 3, 1, 2):  # 2 was used before 1, and makes room for 3
        runs.run(shapes(method="vanilla", seed=seed))
    assert len(timed) == 2
