"""A sweep on workers that are killed: `python -m benchmarks.engines [--cells N] [--workers K] [--kills M]`.

Cells run on Dask workers of this machine. At cells spread evenly over the sweep a worker, and every third time the
driver, is ended by SIGKILL; a killed driver is started again with the same command. Then the same sweep runs on this
machine's own processes. Printed: cells, kills, cells that are missing, finished cells that were run a second time, and
rows that differ. Exit code 1 unless the last three are 0.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

GRID = (
    '[run]\ndataset = "synthetic:nodes=120,degree=6,classes=3,features=8"\nepochs = {epochs}\neval_every = 0\n'
    'mode = "sim"\ncluster = "ethernet-10g"\n[grid]\nmethod = ["vanilla", "sylvie-s", "bns-gcn:p=0.1"]\n'
    "seed = {seeds}\n"
)
METHODS = 3
SAME = ("run_id", "state", "final_loss", "epoch_seconds", "bytes_per_epoch")
WAIT_S = 300.0
TRACKER = "ignore:resource_tracker"  # what a killed driver held is released by its tracker, which says so


def sweep(file: Path, out: Path, mark: str, *more: str) -> subprocess.Popen[str]:
    """`haloscope sweep` with its rows on stdout; it and its workers carry a mark in their environment."""
    words = [sys.executable, "-m", "harness", "sweep", str(file), "--out", str(out), "--replays", "0", "--quiet"]
    environment = {**os.environ, "SWEEP_MARK": mark, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": TRACKER}
    return subprocess.Popen([*words, "--json", "-", *more], env=environment, stdout=subprocess.PIPE, text=True)


def workers(mark: str) -> list[int]:
    """Processes of Dask workers with this mark; multiprocessing's `spawn` starts them."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            marked = f"SWEEP_MARK={mark}".encode() in (process / "environ").read_bytes().split(b"\0")
            if marked and b"spawn_main" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def finished(out: Path) -> dict[str, int]:
    """Result files and when each was written (ns)."""
    return {path.name: path.stat().st_mtime_ns for path in out.glob("*.json")}


def wait_for(out: Path, cells: int, driver: subprocess.Popen[str]) -> bool:
    """Wait until so many cells are finished; False where the driver has ended."""
    end = time.monotonic() + WAIT_S
    while len(finished(out)) < cells and driver.poll() is None:
        if time.monotonic() > end:
            raise TimeoutError(f"no {cells} cells after {WAIT_S:.0f} s")
        time.sleep(0.02)
    return driver.poll() is None


def rows_of(driver: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """The rows that a sweep prints."""
    printed, _ = driver.communicate(timeout=WAIT_S)
    if driver.returncode:
        raise RuntimeError(f"the sweep ended with exit code {driver.returncode}")
    return list(json.loads(printed)["rows"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__.split("\n\n")[0])
    parser.add_argument("--cells", type=int, default=30, metavar="N", help="cells, rounded down to a multiple of 3")
    parser.add_argument("--workers", type=int, default=2, metavar="K", help="Dask workers (default: 2)")
    parser.add_argument("--kills", type=int, default=6, metavar="M", help="kills, every third of the driver")
    parser.add_argument("--epochs", type=int, default=60, metavar="N", help="epochs of a cell (default: 60)")
    args = parser.parse_args()
    seeds = max(1, args.cells // METHODS)
    cells, killed, drivers, again = METHODS * seeds, 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        file, out, mark = Path(folder, "grid.toml"), Path(folder, "dask"), folder
        file.write_text(GRID.format(epochs=args.epochs, seeds=list(range(seeds))))
        on_dask = ("--on", "dask", "--jobs", str(args.workers))
        began = time.monotonic()
        driver = sweep(file, out, mark, *on_dask)
        for kill in range(1, args.kills + 1):
            if not wait_for(out, max(1, kill * cells // (args.kills + 2)), driver):
                break
            if kill % 3:
                os.kill(max(workers(mark)), signal.SIGKILL)
                killed += 1
                continue
            driver.kill()
            driver.communicate()
            drivers += 1
            kept = finished(out)
            driver = sweep(file, out, mark, *on_dask)
            wait_for(out, len(kept) + 1, driver)
            now = finished(out)
            again += sum(now.get(name) != written for name, written in kept.items())
        there = rows_of(driver)
        seconds = time.monotonic() - began
        here = rows_of(sweep(file, Path(folder, "here"), mark, "--jobs", "1"))
    lost = cells - len({row["run_id"] for row in there if row["state"] == "done"})
    differ = sum([a.get(key) for key in SAME] != [b.get(key) for key in SAME] for a, b in zip(here, there, strict=True))
    print(f"{cells} cells on {args.workers} Dask workers of this machine in {seconds:.0f} s")
    print(f"killed: {killed} workers, {drivers} drivers")
    print(f"cells lost: {lost}; finished cells run again: {again}; rows unlike those of local processes: {differ}")
    return int(bool(lost or again or differ))


if __name__ == "__main__":
    sys.exit(main())
