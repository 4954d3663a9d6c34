"""Sweeps: the cells of a file, kills at any time, and isolation of failing cells."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import cli, running
from harness.config import RunConfig
from harness.errors import InputError
from harness.numbers import duration
from harness.running.sweep import Cell, Stopwatch, read_sweep, seconds_of, time_left

TINY = 'dataset = "synthetic:nodes=120,degree=6,classes=3,features=8"\nepochs = 2\neval_every = 0\n'
CODE = Path(cli.__file__).parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(CODE), "OMP_NUM_THREADS": "1"}


def cells(tmp_path: Path, text: str) -> list[Cell]:
    path = tmp_path / "s.toml"
    path.write_text(text)
    return read_sweep(path)


def main(*argv: object) -> int:
    return cli.main(["sweep", *map(str, argv)])


def results(folder: Path) -> dict[str, float]:
    """Result files and their modification times."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.json")}


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[Path]:
    """Twelve cells."""
    path = tmp_path / "grid.toml"
    path.write_text(
        f'[run]\n{TINY}mode = "sim"\ncluster = "ethernet-10g"\n'
        '[grid]\nmethod = ["vanilla", "sylvie-s"]\nbits = [1, 8]\nseed = [0, 1]\n'
        '[cluster]\nlinks.nic.bandwidth = ["1 Gb/s", "100 Gb/s"]\n'
    )
    yield path


def test_the_grid_is_the_product_and_equal_cells_are_one(tmp_path: Path) -> None:
    found = cells(
        tmp_path,
        f'[run]\n{TINY}mode = "sim"\ncluster = "ethernet-10g"\n'
        '[grid]\nseed = [0, 1]\nmethod = ["vanilla", "sylvie-s", "sylvie-s:bits=4", "single"]\nbits = [1, 4]\n'
        "parts = [2, 4]\n[cluster]\nlinks.nic.bandwidth = ['1 Gb/s', '2 Gb/s']\nhosts.count = 5\n",
    )
    # vanilla and single have no bits, sylvie-s:bits=4 has fixed them and is one of sylvie-s's, single runs on one part.
    assert len(found) == 2 * 2 * (2 + 2 * 2 + 0 + 1)
    assert [cell.config.training.method for cell in found[:8]] == ["vanilla"] * 8  # methods outermost
    assert {cell.config.cut.parts for cell in found if cell.config.training.method == "single"} == {1}
    assert {cell.config.cluster.name for cell in found} == {
        f"ethernet-10g:links.nic.bandwidth={rate}Gb/s:hosts.count=5" for rate in (1, 2)
    }
    assert found[0].title == "vanilla, seed=0, parts=2, links.nic.bandwidth=1 Gb/s"
    assert "bits=1" in next(cell for cell in found if cell.config.training.method == "sylvie-s:bits=1").title


def test_several_grids_and_no_grid(tmp_path: Path) -> None:
    two = cells(tmp_path, f"[run]\n{TINY}\n[[grid]]\nmethod=['vanilla']\nparts=[2,3]\n[[grid]]\nseed=[0,7]\n")
    assert [(cell.config.cut.parts, cell.config.training.seed) for cell in two] == [(2, 0), (3, 0), (2, 7)]
    assert len(cells(tmp_path, f"[run]\n{TINY}")) == 1


def test_what_all_cells_share_is_checked_with_their_axes(tmp_path: Path) -> None:
    shapes = f"[run]\n{TINY}shapes_only = true\n[grid]\nmode = "
    assert [cell.config.run.mode for cell in cells(tmp_path, f"{shapes}['sim']\n")] == ["sim"]
    with pytest.raises(InputError, match="shapes-only needs --mode sim"):
        cells(tmp_path, f"{shapes}['sim', 'loopback']\n")


@given(st.lists(st.integers(0, 50), min_size=1, max_size=5, unique=True), st.integers(1, 4))
def test_any_grid_has_as_many_cells_as_points(
    tmp_path_factory: pytest.TempPathFactory, seeds: list[int], n: int
) -> None:
    folder = tmp_path_factory.mktemp("grid")
    found = cells(folder, f"[grid]\nseed = {seeds}\nhidden = {list(range(1, n + 1))}\n")
    assert len(found) == len(seeds) * n
    assert {(cell.config.training.seed, cell.config.model.hidden) for cell in found} == {
        (s, h + 1) for s in seeds for h in range(n)
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[grd]\n", "unknown table in sweep file s.toml 'grd'; did you mean 'grid'?"),
        ("grid = 3\n", "grid must be a table"),
        ("[run]\nepoch = 3\n", "unknown s.toml: run key 'epoch'; did you mean 'epochs'?"),
        ("[grid]\nmethods = ['vanilla']\n", "unknown axis in s.toml 'methods'; did you mean 'method'?"),
        ("[grid]\nmethod = ['vanila']\n", "did you mean 'vanilla'?"),
        ("[grid]\nmethod = ['vanilla']\nbits = [1]\n", "unknown axis in s.toml 'bits'"),
        ("[grid]\nmethod = ['sylvie-s']\nbits = [3]\n", "bits must be"),
        ("[grid]\nparts = []\n", "an axis without values"),
        ("[grid]\nparts = [[2]]\n", "is not a number"),
        ("[grid]\nparts = [0]\n", "parts must be at least 1"),
        ("[grid\n", "is not TOML"),
        (
            "[cluster]\nlinks.nic.bandwith = ['1 Gb/s', '2 Gb/s']\n",
            's.toml: [cluster] changes a modelled cluster, but mode is loopback; set mode = "sim" in [run]',
        ),
        ("[grid]\nmode = ['sim', 'loopback']\n[cluster]\nhosts.count = 3\n", "but mode is loopback"),
    ],
)
def test_bad_files(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        cells(tmp_path, text)
    assert says in str(error.value)


def test_times_are_read_and_written() -> None:
    assert [seconds_of(text) for text in ("90s", "30m", "1h30m", "2.5h")] == [90, 1800, 5400, 9000]
    for wrong in ("", "30", "m", "30m x", "-3s", "1.2.3s"):
        with pytest.raises(InputError, match="is not a time"):
            seconds_of(wrong)
    assert [duration(s) for s in (0.42, 12.3, 200, 7500)] == ["0.42 s", "12 s", "3 min 20 s", "2 h 5 min"]


def test_estimates_come_from_the_cells_most_alike(tmp_path: Path) -> None:
    watch = Stopwatch(tmp_path)
    one, two = RunConfig.of(epochs=10, parts=2), RunConfig.of(epochs=10, parts=4)
    assert watch.expect(one) is None
    watch.add(one, 5.0)
    assert watch.expect(two) == 5.0 and watch.expect(RunConfig.of(epochs=40, parts=2)) == 20.0
    watch.add(two, 1.0)
    watch.add(RunConfig.of(mode="sim", epochs=10), 100.0, keep=False)
    again = Stopwatch(tmp_path)
    assert again.expect(two) == 1.0 and again.expect(one) == 5.0
    assert again.expect(RunConfig.of(mode="sim", epochs=10)) == 3.0  # nothing of that mode was kept
    file = tmp_path / "seconds.jsonl"
    file.write_bytes(file.read_bytes() + b'{"run_id": "cut of')
    assert Stopwatch(tmp_path).expect(one) == 5.0


def test_time_left_deals_cells_to_workers(tmp_path: Path) -> None:
    todo = [Cell(RunConfig.of(seed=seed), {}) for seed in range(5)]
    lengths = {seed: float(seconds) for seed, seconds in enumerate((4, 1, 1, 1, 3))}
    assert time_left(todo, lambda config: lengths[config.training.seed], 2) == 6.0
    assert time_left(todo, lambda config: lengths[config.training.seed], 1) == 10.0
    assert time_left(todo, lambda _: None, 1) is None
    assert time_left([], lambda _: None, 3) == 0.0


def test_dry_run_counts_and_runs_nothing(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(sweep, "--out", out, "--dry-run", "--json", "-") == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert (found["cells"], found["finished"], found["to_run"]) == (12, 0, 12)
    assert found["seconds_left"] > 0 and "from a probe" in printed.err
    assert not out.exists()
    assert main(sweep, "--out", out, "--jobs", 1, "--quiet") == 0
    kept = results(out)
    assert len(kept) == 12
    assert main(sweep, "--out", out, "--dry-run") == 0
    assert "12 cells: 12 finished, 0 to run; nothing is left" in capsys.readouterr().out
    assert main(sweep, "--out", out, "--quiet") == 0 and results(out) == kept, "a finished cell was run again"


def test_tables_hold_a_row_per_cell(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(sweep, "--out", out, "--jobs", 1) == 0
    printed = capsys.readouterr()
    assert "[12/12]" in printed.err and "links.nic.bandwidth" in printed.out
    frame = pd.read_parquet(out / "sweep.parquet")
    assert len(frame) == 12 and len(pd.read_csv(out / "sweep.csv")) == 12
    assert set(frame["state"]) == {"done"} and set(frame["seed"]) == {0, 1}
    assert set(frame["cluster.links.nic.bandwidth"]) == {"1 Gb/s", "100 Gb/s"}
    vanilla = frame[frame["method"] == "vanilla"]
    assert (vanilla["speedup"] == 1.0).all()  # against the first method at the same place, not at another bandwidth
    one = frame[(frame["method"] == "sylvie-s:bits=1") & (frame["cluster.links.nic.bandwidth"] == "1 Gb/s")]
    base = vanilla[vanilla["cluster.links.nic.bandwidth"] == "1 Gb/s"]["epoch_seconds"].iloc[0]
    assert one["speedup"].iloc[0] == pytest.approx(base / one["epoch_seconds"].iloc[0])


def test_a_method_on_one_part_is_the_base_for_any_number_of_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its cells are one, which shows the part that it ran on; every number of parts has a speed-up over it."""
    path, out = tmp_path / "s.toml", tmp_path / "out"
    shared = f'[run]\n{TINY}mode = "sim"\ncluster = "ethernet-10g"\n'
    path.write_text(f'{shared}[grid]\nmethod = ["single", "vanilla"]\nparts = [2, 4]\n')
    assert [cell.title for cell in read_sweep(path)] == ["single, parts=1", "vanilla, parts=2", "vanilla, parts=4"]
    assert main(path, "--out", out, "--jobs", 1, "--replays", 0) == 0
    frame = pd.read_csv(out / "sweep.csv")
    assert frame["parts"].tolist() == [1, 2, 4]
    assert frame["speedup"].tolist() == pytest.approx((frame["epoch_seconds"][0] / frame["epoch_seconds"]).tolist())
    shown = next(line for line in capsys.readouterr().out.splitlines() if "single" in line)
    assert shown.replace("│", " ").split()[:2] == ["single", "1"]


def test_unlike_treatments_are_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A speed-up over a method that aggregates its input once says so; between models nothing is compared."""
    path, out = tmp_path / "s.toml", tmp_path / "out"
    shared = f'[run]\n{TINY}mode = "sim"\ncluster = "ethernet-10g"\n'
    path.write_text(f'{shared}[grid]\nmethod = ["vanilla", "ec-graph", "sylvie-s"]\nmodel = ["gcn", "gat"]\n')
    assert main(path, "--out", out, "--jobs", 1, "--replays", 0) == 0
    printed = capsys.readouterr().out
    frame = pd.read_csv(out / "sweep.csv").set_index(["method", "model"])
    assert frame.loc[("vanilla", "gcn"), "layer0"] != frame.loc[("ec-graph", "gcn"), "layer0"]
    assert frame.loc[("ec-graph", "gcn"), "base"] == frame.loc[("vanilla", "gcn"), "run_id"]
    rows = [
        line.split() for line in printed.splitlines() if line.split()[:1] in (["vanilla"], ["ec-graph"], ["sylvie-s"])
    ]
    marked = [(row[0], row[2] if row[1] == "*" else row[1]) for row in rows if "*" in row]
    assert marked == [("ec-graph", "gcn")], "vanilla with attention differs from vanilla without, but not from its base"
    assert "layer0" in next(line for line in printed.splitlines() if line.strip().startswith("method"))
    flat = " ".join(printed.split())
    assert "* not treated as the method that its speed-up is over: ec-graph: layer0 cache, not precompute" in flat
    assert "all rows but *: " in flat and "note: generated graph" in flat
    path.write_text(f'{shared}[grid]\nmethod = ["vanilla", "sylvie-s"]\n')
    assert main(path, "--out", out, "--jobs", 1, "--replays", 0) == 0
    flat = " ".join(capsys.readouterr().out.split())
    assert "all rows: " in flat and "layer0 precompute" in flat and "not treated" not in flat


def test_a_failing_cell_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "s.toml", tmp_path / "out"
    path.write_text(f"[run]\n{TINY}\n[grid]\nparts = [2, 500, 3]\n")
    assert main(path, "--out", out, "--jobs", 1) == 1
    printed = capsys.readouterr()
    assert "parts=500: error" in printed.out and "500 parts" in printed.out
    frame = pd.read_csv(out / "sweep.csv")
    assert frame["state"].tolist() == ["done", "error", "done"] and len(results(out)) == 2
    assert main(path, "--out", out, "--jobs", 1, "--quiet") == 1, "a failed cell is tried again, and fails again"


def test_the_budget_leaves_cells_for_later(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, now = tmp_path / "out", [0.0]
    original = running.run_opened

    def slow(*args: Any) -> Any:
        now[0] += 10.0
        return original(*args)

    monkeypatch.setattr(running, "run_opened", slow)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert main(sweep, "--out", out, "--jobs", 1, "--budget", "15s") == 0
    assert not results(out), "the probe takes 10 s, and so may the first cell"
    assert "--budget 15s begins no cell: the shortest may take 10 s" in capsys.readouterr().err
    assert main(sweep, "--out", out, "--jobs", 1, "--budget", "45s") == 0
    assert len(results(out)) == 3  # after the probe; a fourth would end at 50 s
    assert "9 cells were not begun" in capsys.readouterr().out
    assert main(sweep, "--out", out, "--jobs", 1, "--quiet") == 0
    assert len(results(out)) == 12


def test_predictions_have_intervals_and_get_them_later(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Low and high around every epoch and speed-up; finished cells get theirs without being trained again."""
    out = tmp_path / "out"
    assert main(sweep, "--out", out, "--jobs", 1, "--replays", 0) == 0
    assert "90 %" not in capsys.readouterr().out
    before = pd.read_csv(out / "sweep.csv")
    assert before["epoch_low_seconds"].isna().all()
    assert main(sweep, "--out", out, "--jobs", 1, "--replays", 8) == 0
    assert "90 %" in capsys.readouterr().out
    after = pd.read_csv(out / "sweep.csv")
    assert list(after["epoch_seconds"]) == list(before["epoch_seconds"])
    assert (
        (after["epoch_low_seconds"] < after["epoch_seconds"]) & (after["epoch_seconds"] < after["epoch_high_seconds"])
    ).all()
    compared = after[after["method"] != "vanilla"]
    assert ((compared["speedup_low"] <= compared["speedup"]) & (compared["speedup"] <= compared["speedup_high"])).all()
    assert (after[after["method"] == "vanilla"]["speedup_low"] == 1).all()
    kept = results(out)
    assert main(sweep, "--out", out, "--quiet", "--replays", 8) == 0 and results(out) == kept
    assert main(sweep, "--out", out, "--replays", 0) == 0 and results(out) == kept
    assert "90 %" not in capsys.readouterr().out, "not asked for, though they are kept"


def test_force_runs_every_cell_anew(sweep: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(sweep, "--out", out, "--jobs", 1, "--replays", 0, "--quiet") == 0
    first = results(out)
    assert main(sweep, "--out", out, "--jobs", 1, "--replays", 0, "--quiet") == 0 and results(out) == first
    assert main(sweep, "--out", out, "--jobs", 1, "--replays", 0, "--quiet", "--force") == 0
    assert results(out).keys() == first.keys() and all(results(out)[name] > first[name] for name in first)


def _launched(sweep: Path, out: Path, *more: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "harness", "sweep", str(sweep), "--out", str(out), "--quiet", *more]
    marked = {**ENVIRONMENT, "MARK": str(out)}
    return subprocess.Popen(argv, env=marked, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _alive(out: Path) -> list[str]:
    """Processes that belong to a launched sweep, its orphans too."""
    found, mark = [], f"MARK={out}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(process.name)
    return found


def _until(true: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.005)
    return true()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for orphans in /proc")
def test_killed_at_random_instants_it_loses_and_reruns_nothing(sweep: Path, tmp_path: Path) -> None:
    """kill -9 the sweep at random times: finished results stay unchanged, and the last run completes the rest."""
    out = tmp_path / "out"
    kept: dict[str, float] = {}
    for jobs, more in (("2", 1), ("1", 4)):
        process = _launched(sweep, out, "--jobs", jobs, "--replays", "0")  # a file is written once
        wanted = len(kept) + more
        assert _until(lambda n=wanted, p=process: len(results(out)) >= n or p.poll() is not None, 120)  # type: ignore[misc]
        process.kill()
        process.wait()
        assert _until(lambda: not _alive(out), 10), "workers outlived a killed sweep"
        found = results(out)
        assert {name: found[name] for name in kept} == kept, "a finished cell was run again"
        assert all(json.loads(path.read_text())["state"] == "done" for path in out.glob("*.json"))
        kept = found
    assert len(kept) > 4
    process = _launched(sweep, out, "--jobs", "1", "--replays", "0")
    assert process.wait(timeout=120) == 0
    found = results(out)
    assert len(found) == 12 and {name: found[name] for name in kept} == kept
    hidden = [path.name for path in out.iterdir() if path.name.startswith(".")]
    assert not hidden, f"half-written files were left: {hidden}"


def test_a_worker_that_dies_or_hangs_costs_its_own_call_only(tmp_path: Path) -> None:
    """In a separate process, because loky's resource tracker ends with its parent."""
    (tmp_path / "fragile.py").write_text(
        "import os\nimport time\n\n\ndef double_or_die(n):\n    if n == 3:\n        os.kill(os.getpid(), 9)\n"
        "    time.sleep(60 * (n == 7))\n    return 2 * n\n"
    )
    code = (
        "from fragile import double_or_die\nfrom harness.machine import Died, map_on_processes\n"
        "found = dict(map_on_processes(double_or_die, range(6), 2, lambda n: n != 5))\n"
        "assert isinstance(found.pop(3), Died), found\n"
        "assert found == {n: 2 * n for n in (0, 1, 2, 4)}, found\n"
        "found = dict(map_on_processes(double_or_die, (6, 7, 8), 1, lambda _: True, limit_s=6))\n"
        "assert found == {6: 12, 7: Died('it did not end within 6 s'), 8: 16}, found\n"
    )
    environment = {**ENVIRONMENT, "PYTHONPATH": f"{CODE}{os.pathsep}{tmp_path}"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
