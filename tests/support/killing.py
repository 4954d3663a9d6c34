"""Two real ranks that are killed repeatedly and resume from checkpoints: `-m tests.support.killing WHAT DIR`.

A separate process, from which ranks are forked after all imports: twenty starts of an interpreter would take minutes.
It runs no computation before it forks, and prints one JSON object.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from harness.config import RunConfig
from harness.running import Checkpoints
from harness.running import _checkpoint_files as checkpoint_files
from real.launch import run_rank
from real.rank.health import end_process
from tests.conformance.test_drivers import config

RANKS, EPOCHS, EVERY = 2, 14, 2
POINTS = ("file written", "before rename", "after rename", "before marker", "after marker")
AT = "epoch-000004"


def setting(method: str, **values: Any) -> RunConfig:
    tiny = "synthetic:nodes=80,degree=5,classes=3,features=6,seed=1"
    return config(method, **{"dataset": tiny, "parts": RANKS, "epochs": EPOCHS, "mode": "real", "layers": 2, **values})


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str, rank: int) -> None:
    """Make this process kill itself at one point of the save of epoch AT; only rank 0 writes the marker."""
    replace, fsync, mark, prune = os.replace, os.fsync, checkpoint_files.write_marker, checkpoint_files.prune
    file = f"rank-{rank}.pt"

    def ours(path: Any) -> bool:
        return AT in str(path) and file in str(path)

    def syncing(handle: int) -> None:
        if point == "file written" and ours(os.readlink(f"/proc/self/fd/{handle}")):
            die()
        fsync(handle)

    def renaming(source: Any, target: Any) -> None:
        if point == "before rename" and ours(source):
            die()
        replace(source, target)
        if point == "after rename" and ours(target):
            die()

    def marking(folder: Path, marker: Any) -> None:
        if point == "before marker" and folder.name == AT:
            die()
        mark(folder, marker)
        if point == "after marker" and folder.name == AT:
            die()

    os.fsync, os.replace = syncing, renaming  # type: ignore[assignment]
    checkpoint_files.write_marker, checkpoint_files.prune = marking, prune


def start(asked: RunConfig, folder: Path, prepare: Callable[[int], None] = lambda rank: None) -> list[int]:
    """Fork the ranks; returns their process ids. Rank 0 writes the outcome to `folder`/outcome."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    pids = []
    for rank in range(RANKS):
        pid = os.fork()
        if not pid:
            names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": RANKS}
            rest = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
            os.environ |= {name: str(value) for name, value in (names | rest).items()}
            prepare(rank)
            end_process(_rank(asked, folder))
        pids.append(pid)
    return pids


def _rank(asked: RunConfig, folder: Path) -> int:
    try:
        found = run_rank(asked, None, Checkpoints(folder / "checkpoints", EVERY))
    except Exception as error:
        print(f"rank {os.environ['RANK']}: {error}", file=sys.stderr)
        return 1
    if found is not None:
        (folder / "outcome").write_bytes(msgspec.msgpack.encode(found[0]))
    return 0


def finish(pids: list[int], seconds: float = 60.0) -> bool:
    """Wait for all ranks; returns whether all succeeded."""
    deadline = time.monotonic() + seconds
    codes = []
    for pid in pids:
        while not (found := os.waitpid(pid, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        codes.append(os.waitstatus_to_exitcode(found[1]))
    return not any(codes)


def kill(pids: list[int], chance: random.Random) -> None:
    """Kill one rank, and the other a moment later."""
    for pid in chance.sample(pids, len(pids)):
        os.kill(pid, signal.SIGKILL)
        time.sleep(chance.uniform(0, 0.05))
    finish(pids)


def await_checkpoint(home: Path, end: Path, seconds: float = 60.0) -> None:
    """Wait until there is a whole checkpoint, or the run's end."""
    deadline = time.monotonic() + seconds
    while not (any(home.glob("*/complete.json")) or end.exists()) and time.monotonic() < deadline:
        time.sleep(0.005)


def outcome(folder: Path, number: int) -> str:
    """Rename the outcome of rank 0; returns the name of the file."""
    name = f"outcome-{number}"
    (folder / "outcome").rename(folder / name)
    return name


def random_instants(folder: Path, kills: int = 20) -> list[Any]:
    """Kill running ranks `kills` times; then let each run end.

    Instants are drawn from the time of one whole run. A run that had ended before its kill shortens that time: the
    first run may have met a busier machine than the later ones.
    """
    chance, done, results = random.Random(5), 0, list[Any]()
    begun = time.monotonic()
    assert finish(start(setting("vanilla", seed=100), folder))
    whole_s = time.monotonic() - begun
    (folder / "outcome").unlink()
    for method in ("sylvie-a", "ec-graph:period=4:bits=1", "bns-gcn:p=0.4", "cdfgnn", "vanilla") * 12:
        asked, killed = setting(method, seed=len(results)), 0
        while done < kills and killed < 5:
            pids = start(asked, folder)
            if killed % 2:  # however busy the machine is, some are to meet a run that has a checkpoint
                await_checkpoint(folder / "checkpoints" / asked.training_id(), folder / "outcome")
            time.sleep(chance.uniform(0, whole_s))
            kill(pids, chance)
            if (folder / "outcome").exists():
                whole_s *= 0.8
                break
            done, killed = done + 1, killed + 1
        if not (folder / "outcome").exists():
            assert finish(start(asked, folder)), "did not go on"
        number = len(results)
        results.append({"method": method, "seed": number, "kills": killed, "outcome": outcome(folder, number)})
        if done >= kills:
            return results
    raise AssertionError(f"only {done} kills met a run that had not ended")


def inside_saves(folder: Path) -> list[Any]:
    """Kill a rank at every point inside a save, then the other; then let the run end."""
    results = list[Any]()
    for number, point in enumerate(POINTS):
        asked = setting("sylvie-a:bits=4", seed=number, epochs=6)
        victim = 0 if "marker" in point else number % RANKS
        pids = start(asked, folder, lambda rank, at=point, who=victim: arm(at, rank) if rank == who else None)  # type: ignore[misc]
        os.waitid(os.P_PID, pids[victim], os.WEXITED | os.WNOWAIT)
        kill(pids, random.Random(0))
        at = folder / "checkpoints" / asked.training_id() / AT
        there = sorted(path.name for path in at.iterdir()) if at.is_dir() else []
        assert finish(start(asked, folder)), "did not go on"
        home = sorted(path.name for path in at.parent.iterdir())
        results.append(
            {
                "point": point,
                "victim": victim,
                "seed": number,
                "there": there,
                "home": home,
                "outcome": outcome(folder, number),
            }
        )
    return results


if __name__ == "__main__":
    found = {"random": random_instants, "points": inside_saves}[sys.argv[1]](Path(sys.argv[2]))
    print(json.dumps(found))
