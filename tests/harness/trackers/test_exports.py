"""Results for MLflow, W&B and TensorBoard: every value arrives, names are legal, and writing again replaces."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import harness
from harness import cli
from harness.commands.arguments.exports import FORMATS
from harness.trackers import TRACKERS, TrackedRun, export_records, log_to_wandb
from harness.trackers._mlflow import NOT_ALLOWED

TINY = harness.Config.of(dataset="synthetic:nodes=120,degree=6,classes=3,features=8", epochs=3, eval_every=2, parts=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of one simulated run and one without a clock."""
    place = tmp_path_factory.mktemp("runs")
    harness.run(TINY, method="bns-gcn:p=0.5", mode="sim", cluster="ethernet-1g", out=place, quiet=True)
    harness.run(TINY, out=place, quiet=True)
    return place


@pytest.fixture(scope="module")
def simulated(folder: Path) -> TrackedRun:
    """The run that has seconds."""
    records = harness.load_results(folder).records
    return TrackedRun(next(record for record in records if record["config"]["mode"] == "sim"), 1.5e9)


def test_values_are_those_of_the_result(simulated: TrackedRun) -> None:
    epochs = simulated.record["epochs"]
    (first, values), (_, second), *_ = simulated.series()
    assert first == 0 and values["loss"] == epochs[0]["loss"] and second["val"] == epochs[1]["val"]
    assert "val" not in values, "an epoch without evaluation has no score"
    assert values["bytes/forward"] == sum(epochs[0]["bytes"]["forward"])
    assert values["observed/kept nodes"] == epochs[0]["observed"]["kept nodes"]
    assert math.isclose(values["seconds/epoch"], sum(v for k, v in values.items() if k in PARTS))
    assert simulated.summary()["run/epoch_seconds"] == simulated.record["summary"]["epoch_seconds"]
    assert simulated.parameters()["method"] == "bns-gcn:p=0.5"


PARTS = {f"seconds/{name}" for name in ("compute", "codec", "sample", "swap", "halo", "reduce", "wait")}


def test_mlflow_reads_every_value(simulated: TrackedRun, tmp_path: Path) -> None:
    """As MLflow's file store parses them: `milliseconds value step`, meta files with the keys of its records."""
    (place,) = export_records([simulated], "mlflow", tmp_path, "mine")
    about = json.loads((place / "meta.yaml").read_text())
    assert about["run_id"] == place.name and len(place.name) == 32 and about["status"] == 3
    assert json.loads((place.parent / "meta.yaml").read_text())["name"] == "mine"
    read: dict[str, list[tuple[float, int]]] = {}
    for path in (place / "metrics").rglob("*"):
        if path.is_file():
            for line in path.read_text().splitlines():
                time, value, step = line.split(" ")
                read.setdefault(path.relative_to(place / "metrics").as_posix(), []).append((float(value), int(step)))
                assert int(time) == 1_500_000_000_000
    written = [(NOT_ALLOWED.sub("_", k), v, step) for step, row in simulated.series() for k, v in row.items()]
    written += [(name, value, 0) for name, value in simulated.summary().items()]
    assert sorted((k, v, s) for k, points in read.items() for v, s in points) == sorted(written)
    assert (place / "params" / "parts").read_text() == "2" and (place / "tags" / "mlflow.runName").exists()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    export_records([simulated], "mlflow", tmp_path, "mine")
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_wandb_files_have_history_and_summary(simulated: TrackedRun, tmp_path: Path) -> None:
    (place,) = export_records([simulated], "wandb", tmp_path)
    rows = [json.loads(line) for line in (place / "wandb-history.jsonl").read_text().splitlines()]
    assert [row.pop("_step") for row in rows] == [0, 1, 2] and {row.pop("_timestamp") for row in rows} == {1.5e9}
    assert rows == [row for _, row in simulated.series()]
    assert json.loads((place / "config.yaml").read_text())["parts"] == {"value": 2}
    assert json.loads((place / "wandb-summary.json").read_text())["run/test"] == simulated.summary()["run/test"]


def test_runs_are_logged_through_wandb_itself(simulated: TrackedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[dict[str, Any]] = []
    logged: list[tuple[int, dict[str, float]]] = []
    summary: dict[str, float] = {}

    class Run:
        """What `wandb.init` returns, as far as it is used."""

        def __init__(self, **settings: Any) -> None:
            opened.append(settings)
            self.summary = summary

        def __enter__(self) -> Run:
            return self

        def __exit__(self, *_: object) -> None:
            opened.append({"finished": True})

        def log(self, values: dict[str, float], step: int) -> None:
            logged.append((step, values))

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=Run))
    log_to_wandb([simulated], "gnn", mode="offline")
    assert opened[0]["project"] == "gnn" and opened[0]["mode"] == "offline" and opened[1] == {"finished": True}
    assert logged == simulated.series() and summary == simulated.summary()
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(harness.InputError, match="pip install wandb"):
        log_to_wandb([simulated], "gnn")


def test_tensorboard_reads_every_scalar(simulated: TrackedRun, tmp_path: Path) -> None:
    """Its own reader gives back the values (in single precision), once also after a second export."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for _ in range(2):
        (place,) = export_records([simulated], "tensorboard", tmp_path)
    events = EventAccumulator(str(place), size_guidance={"tensors": 0, "scalars": 0}).Reload()
    for name, value in simulated.series()[0][1].items():
        first, *later = events.Scalars(name)
        assert first.value == pytest.approx(value, rel=1e-6) and first.step == 0 and first.wall_time == 1.5e9
        assert len(later) == sum(name in row for _, row in simulated.series()[1:])
    assert events.Scalars("run/epoch_seconds")[0].value == pytest.approx(simulated.summary()["run/epoch_seconds"])


def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert set(FORMATS) == TRACKERS.keys()
    (folder / "other.json").write_text("{}")
    out = tmp_path / "kept"
    assert cli.main(["export", str(folder), "--to", "mlflow", "--out", str(out), "--title", "two"]) == 0
    said = capsys.readouterr().out
    assert "2 runs -> " in said and "other.json" in said and "mlflow migrate-filestore --source" in said
    assert len(list(out.glob("*/*/meta.yaml"))) == 2
    (folder / "other.json").unlink()
    assert len(harness.load_results(folder).export("wandb", out)) == 2
    bad = {
        "no such result": ["export", str(tmp_path / "none"), "--to", "mlflow"],
        "is not a haloscope result": ["export", str(out / "two.json"), "--to", "mlflow"],
        "the name of an experiment": ["export", str(folder), "--to", "mlflow", "--title", "a/b", "--out", str(out)],
        "no result files": ["export", str(out), "--to", "wandb", "--out", str(tmp_path)],
    }
    (out / "two.json").write_text("{}")
    for says, argv in bad.items():
        assert cli.main(argv) == 2 and says in capsys.readouterr().err


def test_a_run_writes_for_tensorboard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--dataset", TINY.data.dataset, "--epochs", "2", "--out", str(tmp_path / "runs")]
    assert cli.main(["run", *flags, "--tensorboard", str(tmp_path / "tb")]) == 0
    assert "for TensorBoard: " in capsys.readouterr().out and len(list((tmp_path / "tb").rglob("events.*"))) == 1
    monkeypatch.setattr("harness.trackers._tensorboard.find_spec", lambda name: None)
    assert cli.main(["run", *flags, "--force", "--tensorboard", str(tmp_path / "other")]) == 2
    assert "pip install 'haloscope[tensorboard]'" in capsys.readouterr().err and not (tmp_path / "other").exists()


@given(st.dictionaries(st.text(max_size=12), st.floats() | st.none(), max_size=6))
def test_names_and_values_that_no_tracker_takes(observed: dict[str, float | None]) -> None:
    """Whatever was observed, series hold finite numbers only, and names are ones that MLflow accepts."""
    epoch = {"epoch": 0, "loss": float("nan"), "seconds": {}, "bytes": {"reduce": 1}, "peak_memory": []}
    run = TrackedRun({"epochs": [{**epoch, "observed": observed}]}, 0.0)
    ((_, values),) = run.series()
    assert all(math.isfinite(value) for value in values.values()) and "loss" not in values
    kept = {name for name, value in observed.items() if value is not None and math.isfinite(value)}
    assert {f"observed/{name}" for name in kept} | {"bytes/reduce"} == values.keys()


@given(st.text(alphabet="a./_ \0ä", max_size=10))
def test_names_become_files_below_their_folder(name: str) -> None:
    safe = NOT_ALLOWED.sub("_", name)
    assert not {"", ".", ".."} & set(safe.split("/")), f"{name!r} -> {safe!r}"
    assert not NOT_ALLOWED.search(safe)


def test_damaged_results_are_named(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """None of them is a defect, and none writes outside of the folder that was asked for."""
    record = harness.load_results(folder).records[0]
    epoch = record["epochs"][0]
    bad = {
        "run_id is no hash": {**record, "run_id": "../../outside"},
        "KeyError: 'bytes'": {**record, "epochs": [{k: v for k, v in epoch.items() if k != "bytes"}]},
        "must be real number": {**record, "epochs": [{**epoch, "loss": "low"}]},
        "'int' object": {**record, "epochs": [{**epoch, "peak_memory": 3}]},
    }
    for says, content in bad.items():
        (tmp_path / "bad.json").write_text(json.dumps(content))
        assert cli.main(["export", str(tmp_path / "bad.json"), "--to", "mlflow", "--out", str(tmp_path / "ml")]) == 2
        err = capsys.readouterr().err
        assert "bad.json is damaged: " in err and says in err
    assert [path.name for path in tmp_path.iterdir()] == ["bad.json"]
