"""A run that stops and resumes from files on disk is bit-equal to an unbroken run, for every method."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.config import RunConfig
from harness.errors import InputError
from harness.running import Checkpoints, run
from harness.running import _checkpoint_files as files
from harness.running.results import Result
from tests.conformance.test_drivers import config
from tests.support.settings import label, rows

STOP, END = 4, 7


def stop_after(epochs: int) -> tuple[Callable[[Any], None], Callable[[], bool]]:
    """A progress callback, and a stop function that returns True after some epochs."""
    seen: list[int] = []
    return (lambda record: seen.append(record.epoch)), (lambda: len(seen) >= epochs)


def stopped_run(setting: RunConfig, options: Checkpoints, epochs: int = STOP) -> Result:
    """The result of a run that is requested to stop after some epochs."""
    progress, asked = stop_after(epochs)
    return run(setting, progress, replace(options, stop=asked))


def numbers(result: Result) -> list[dict[str, Any]]:
    """All values of every epoch that are not measured."""
    return [{k: v for k, v in e.items() if k not in ("seconds", "peak_memory")} for e in result.epochs]


def complete(home: Path) -> list[str]:
    return sorted(path.parent.name for path in home.glob(f"*/{files.MARKER}"))


@pytest.mark.parametrize("row", rows(), ids=label)
def test_stopped_and_resumed_equals_uninterrupted(row: dict[str, Any], tmp_path: Path) -> None:
    setting = config(**row, epochs=END)
    whole = run(setting)
    options = Checkpoints(tmp_path, every=3)
    first = stopped_run(setting, options)
    assert first.state == "interrupted" and "epoch 3" in first.message
    assert numbers(first) == numbers(whole)[:STOP]
    home = tmp_path / setting.training_id()
    assert complete(home) == ["epoch-000003", "epoch-000004"]
    second = run(setting, None, options)
    assert second.state == "done" and numbers(second) == numbers(whole)
    assert second.graph == whole.graph
    assert second.facts["checkpoint"]["resumed"] == [STOP]
    assert second.facts["checkpoint"]["written"] == 4  # after 3, 4, 6 and 7 epochs
    assert complete(home) == ["epoch-000006", "epoch-000007"]
    assert sorted(p.name for p in home.iterdir()) == complete(home), "old ones are removed"


@pytest.mark.parametrize("method", ["sylvie-a", "ec-graph:period=4:bits=1"])
def test_simulated_runs_resume_too(method: str, tmp_path: Path) -> None:
    setting = config(method, epochs=END, mode="sim", cluster="ethernet-1g")
    whole = run(setting)
    options = Checkpoints(tmp_path, every=2)
    assert stopped_run(setting, options).state == "interrupted"
    rest = run(setting, None, options)
    assert numbers(rest) == numbers(whole)
    assert all(e["seconds"]["epoch"] > 0 for e in rest.epochs)


def test_checkpoints_change_no_number_and_no_time_of_an_epoch(tmp_path: Path) -> None:
    """Synchronous methods have no pending exchange at the end of an epoch, so modelled times are equal too."""
    setting = config("bns-gcn:p=0.4", epochs=5, mode="sim", cluster="ethernet-1g")
    plain, kept = run(setting), run(setting, None, Checkpoints(tmp_path, every=1))
    assert numbers(kept) == numbers(plain)
    for mine, theirs in zip(kept.epochs, plain.epochs, strict=True):
        assert mine["seconds"] == pytest.approx(theirs["seconds"], rel=1e-9, abs=1e-12)
    found = kept.facts["checkpoint"]
    on_disk = list((tmp_path / setting.training_id() / "epoch-000005").glob("*.pt"))
    assert found["bytes"] == sum(path.stat().st_size for path in on_disk) and len(on_disk) == 3
    assert found["written"] == 5 and found["seconds"] > 0 and found["resumed"] == []
    assert "checkpoint" not in plain.facts


def test_a_finished_run_is_read_back_without_training(tmp_path: Path) -> None:
    setting = config("vanilla", epochs=3)
    options = Checkpoints(tmp_path)
    whole, trained = run(setting, None, options), list[int]()
    again = run(setting, lambda record: trained.append(record.epoch), options)
    assert numbers(again) == numbers(whole) and again.state == "done" and not trained


def test_stopping_in_the_last_epoch_is_done(tmp_path: Path) -> None:
    assert stopped_run(config("vanilla", epochs=3), Checkpoints(tmp_path), 3).state == "done"


def test_starting_anew_removes_what_there_was(tmp_path: Path) -> None:
    setting = config("vanilla", epochs=END)
    stopped_run(setting, Checkpoints(tmp_path, every=0))
    assert complete(tmp_path / setting.training_id()) == ["epoch-000004"]
    trained: list[int] = []
    run(setting, lambda record: trained.append(record.epoch), Checkpoints(tmp_path, every=0, resume=False))
    assert trained == list(range(END)) and complete(tmp_path / setting.training_id()) == ["epoch-000007"]


def test_runs_share_a_folder_without_meeting(tmp_path: Path) -> None:
    for seed in (0, 1):
        run(config("vanilla", epochs=2, seed=seed), None, Checkpoints(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_diverged_run_leaves_no_checkpoint_to_go_on_from(tmp_path: Path) -> None:
    setting = config("sylvie-s", lr=1e30, norm="none")
    assert run(setting, None, Checkpoints(tmp_path, every=4)).state == "diverged"
    assert complete(tmp_path / setting.training_id()) == []


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[tuple[RunConfig, Checkpoints, Path]]:
    """A run with checkpoints after 3 and 4 of 7 epochs; the folder of the newest."""
    setting, options = config("sylvie-s:bits=4", epochs=END), Checkpoints(tmp_path, every=3)
    stopped_run(setting, options)
    yield setting, options, tmp_path / setting.training_id() / "epoch-000004"


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _edit(path: Path, **values: Any) -> None:
    marker = json.loads(path.read_text())
    for key, value in values.items():
        place = marker["identity"] if key in marker["identity"] else marker
        place[key] = value
    path.write_text(json.dumps(marker))


def _listed(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / files.MARKER).read_text())["files"]
    return found


DAMAGE: list[tuple[Callable[[Path], Any], str]] = [
    (lambda at: _flip(at / "rank-1.pt"), "rank-1.pt is corrupted: its SHA-256"),
    (lambda at: (at / "rank-2.pt").write_bytes((at / "rank-2.pt").read_bytes()[:-9]), "rank-2.pt is truncated: "),
    (lambda at: (at / "rank-0.pt").unlink(), "rank-0.pt is missing"),
    (lambda at: (at / files.MARKER).write_text("{"), "complete.json is damaged"),
    (lambda at: (at / files.MARKER).write_text("[]"), "complete.json is damaged"),
    (lambda at: (at / files.MARKER).write_text('{"format": 4}'), "complete.json is damaged"),
    (lambda at: _edit(at / files.MARKER, format=9), "its format is 9, not 4"),
    (lambda at: _edit(at / files.MARKER, training_id="0" * 64), "it belongs to run 000000000000, not "),
    (lambda at: _edit(at / files.MARKER, data="x"), "the graph or its partition is another one now"),
    (lambda at: _edit(at / files.MARKER, ranks=5), "it has 5 ranks, this run 3"),
    (
        lambda at: _edit(at / files.MARKER, files=[{**file, "threads": 7} for file in _listed(at)]),
        "its ranks had 7 threads each, here rank ",
    ),
    (lambda at: _edit(at / files.MARKER, torch="1.0"), "it was written with torch 1.0"),
    (lambda at: _edit(at / files.MARKER, haloscope="0.0"), "it was written by haloscope 0.0"),
    (lambda at: _edit(at / files.MARKER, epochs=3), "complete.json is of epoch 3"),
]


@pytest.mark.parametrize(("damage", "reason"), DAMAGE, ids=[reason for _, reason in DAMAGE])
def test_what_cannot_be_trusted_is_refused_with_the_reason(
    stopped: tuple[RunConfig, Checkpoints, Path], damage: Callable[[Path], Any], reason: str
) -> None:
    setting, options, newest = stopped
    damage(newest)
    with pytest.raises(InputError) as caught:
        run(setting, None, options)
    assert reason in str(caught.value) and str(newest) in str(caught.value) and "--no-resume" in str(caught.value)
    for path in newest.iterdir():
        path.unlink()
    newest.rmdir()
    resumed = run(setting, None, options)  # as the message says
    assert resumed.facts["checkpoint"]["resumed"] == [3] and numbers(resumed) == numbers(run(setting))


def test_a_folder_without_the_marker_is_no_checkpoint(stopped: tuple[RunConfig, Checkpoints, Path]) -> None:
    setting, options, newest = stopped
    (newest / files.MARKER).unlink()
    resumed = run(setting, None, options)
    assert resumed.facts["checkpoint"]["resumed"] == [3]
    assert not newest.exists(), "swept up by a later one"
    assert numbers(resumed) == numbers(run(setting))


def test_the_marker_says_what_is_there(stopped: tuple[RunConfig, Checkpoints, Path]) -> None:
    _, _, newest = stopped
    marker = json.loads((newest / files.MARKER).read_text())
    content = [(newest / f"rank-{r}.pt").read_bytes() for r in range(3)]
    assert [(f["bytes"], f["sha256"]) for f in marker["files"]] == [
        (len(data), hashlib.sha256(data).hexdigest()) for data in content
    ]
    assert marker["config"]["method"] == "sylvie-s:bits=4" and marker["epochs"] == STOP
    assert not [path.name for path in newest.iterdir() if path.name.startswith(".")]


def test_what_cannot_be_done_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    trained: list[int] = []
    with pytest.raises(InputError, match="cannot keep checkpoints in .*file"):
        run(config("vanilla", epochs=2), lambda record: trained.append(record.epoch), Checkpoints(tmp_path / "file"))
    assert not trained
    with pytest.raises(InputError, match="shapes only has nothing to checkpoint"):
        run(config("vanilla", mode="sim", shapes_only=True, cluster="ethernet-1g"), None, Checkpoints(tmp_path))
    with pytest.raises(InputError, match="checkpoints: every must be at least 0"):
        Checkpoints(tmp_path, every=-1)
    with pytest.raises(InputError, match="checkpoints: keep must be at least 1"):
        Checkpoints(tmp_path, keep=0)
    with pytest.raises(InputError, match="checkpoints: restarts must be at least 0"):
        Checkpoints(tmp_path, restarts=-1)


def test_a_run_can_be_lengthened_and_noted_otherwise(tmp_path: Path) -> None:
    """Epochs, evaluation and deadlines do not affect training: a longer run resumes from the shorter run's
    checkpoint."""
    base = config("vanilla")
    longer = base.changed(epochs=base.training.epochs + 2, eval_every=1, timeout=7.0)
    assert longer.training_id() == base.training_id() and longer.run_id() != base.run_id()
    assert base.changed(lr=0.5).training_id() != base.training_id()
    patient = base.changed(prepare_timeout=7200.0)
    assert (patient.training_id(), patient.run_id()) == (base.training_id(), base.run_id())
    options = Checkpoints(tmp_path, every=2)
    run(base, None, options)
    result = run(longer, None, options)
    assert result.facts["checkpoint"]["resumed"] == [base.training.epochs]
    assert [e["loss"] for e in result.epochs] == [e["loss"] for e in run(longer).epochs]
    with pytest.raises(
        InputError, match=f"has {longer.training.epochs} epochs behind it, more than --epochs {base.training.epochs}"
    ):
        run(base, None, options)


def test_a_run_that_finds_other_cores_goes_on_with_the_threads_it_is_told_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that left its threads to the machine, and was queued again on another one."""
    setting, options = config("vanilla", epochs=END).changed(threads=0), Checkpoints(tmp_path, every=3)
    cores = "harness.running._threads.core_count"
    monkeypatch.setattr(cores, lambda: 3)  # one for each of three ranks
    whole = run(setting)
    stopped_run(setting, options)
    monkeypatch.setattr(cores, lambda: 6)
    with pytest.raises(InputError, match="had 1 threads each, here rank . has 2: give --threads 1"):
        run(setting, None, options)
    resumed = run(setting.changed(threads=1), None, options)
    assert resumed.facts["checkpoint"]["resumed"] == [STOP] and numbers(resumed) == numbers(whole)
    assert len(list(tmp_path.iterdir())) == 1, "both are the same training"


RUN = """
import sys, time
from pathlib import Path
from harness.config import from_mapping
from harness.running import Checkpoints, run
import json
def wait(record):
    if record.epoch == 2:
        print("training", flush=True)
        time.sleep(600)
run(from_mapping(json.loads(sys.argv[1])), wait, Checkpoints(Path(sys.argv[2]), every=1))
"""


def test_one_run_at_a_time_keeps_checkpoints_in_a_folder(tmp_path: Path) -> None:
    setting, options = config("vanilla", epochs=4), Checkpoints(tmp_path, every=1)
    child = subprocess.Popen(
        [sys.executable, "-c", RUN, json.dumps(setting.flat()), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == "training\n"
        for asked in (options, replace(options, resume=False)):
            with pytest.raises(
                InputError, match=f"is in use by process {child.pid} on .* since .*another --checkpoint"
            ):
                run(setting, None, asked)
        kept = complete(tmp_path / setting.training_id())
        assert kept == ["epoch-000001", "epoch-000002"], "the second run removed nothing"
        run(config("vanilla", epochs=4, lr=0.5), None, options)  # another training has a folder of its own
    finally:
        child.kill()
        child.communicate()
    resumed = run(setting, None, options)
    assert resumed.facts["checkpoint"]["resumed"] == [2] and numbers(resumed) == numbers(run(setting))
