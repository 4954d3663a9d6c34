"""Random faults in random runs: `python -m benchmarks.chaos --minutes N --seed S [--trials N] [--modes loopback,...]`.

Modes: loopback, sim, real, and lab, which is real on hosts of this machine with links of their own (needs root).

Every trial is a run with checkpoints into which something breaks: a signal at the n-th file that it touches or after
some seconds, a full or read-only disk, too few open files, too little memory, a clock that jumps, a link of a lab that
goes down, damaged files.
Whatever it is, the run has to end within its deadline and to say in one line why; the same command then goes on from
the newest checkpoint and ends bit-equal to a run that nothing happened to, or refuses with a reason; the files of
another run stay as they are; and after `doctor --clean` nothing is left. A trial follows from its seed: `--seed S
--trials 1` repeats a failing one. The process forks its runs, and computes nothing itself.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch._dynamo  # noqa: F401  (torch imports it at the first operator, seconds in every fork)

from benchmarks.chaos_faults import FAULTS, HARMLESS, SIGNALS, Fault, arm, clock_rank, damage, disk
from benchmarks.chaos_links import Outages, remove_dead
from harness import cli
from harness.machine import leftovers, remove_leftover
from harness.methods.registry import METHODS
from real.lab import made_by

DEADLINE_S = {"loopback": 180.0, "sim": 180.0, "real": 300.0, "lab": 300.0}
"""A machine that other work keeps busy takes so long for a run that takes seconds alone."""

GONE_S = 15.0
"""How long processes of a killed run may take to notice."""

MARK = "HALOSCOPE_CHAOS"
"""Environment variable by which the processes of a trial are found."""

IMPORTED = ("harness.kernels", "harness.partition", "harness.datasets", "pymetis")
"""Imported before the forks, each of which would take seconds for it."""

KEPT = ("loss", "train", "val", "test")


class Broken(Exception):
    """A promise that was not kept; says which."""


@dataclass(frozen=True)
class Plan:
    """One trial, as its seed has it."""

    seed: int
    mode: str
    flags: tuple[str, ...]
    fault: Fault

    @property
    def parts(self) -> int:
        """How many ranks it has."""
        return int(self.flags[self.flags.index("--parts") + 1])

    def __str__(self) -> str:
        return f"{self.mode} {' '.join(self.flags[1::2])}: {self.fault}"


@dataclass
class Ended:
    """How one command ended."""

    code: int
    seconds: float
    said: list[str] = field(default_factory=list)


def plan_of(seed: int, modes: Sequence[str]) -> Plan:
    """The trial of a seed."""
    dice = random.Random(seed)
    mode, parts = dice.choice(modes), dice.randint(1, 3)
    method = dice.choice(sorted(METHODS.builtin))
    parts = 1 if method == "single" else max(2, parts)
    dataset = f"synthetic:nodes={dice.randint(60, 300)},degree={dice.randint(3, 8)},classes=3,features=6"
    epochs = dice.randint(5, 14)
    lab = {}
    if mode == "lab":
        method, parts = "vanilla" if method == "single" else method, max(2, parts)
        lab = {"cluster": f"lab:{parts}x{dice.choice(('unshaped', '1gbit', '20mbit'))}"}
        epochs = dice.randint(15, 40)
    flags = {
        "mode": "real" if lab else mode, **lab, "method": method, "parts": parts, "dataset": dataset, "epochs": epochs,
        "seed": dice.randint(0, 99),
        "model": dice.choice(("gcn", "sage")), "layers": 2, "hidden": 8, "eval-every": dice.choice((-1, 1, 3)),
        "threads": 1, "timeout": 20, "startup-timeout": 90, "prepare-timeout": 90,
        "checkpoint-every": dice.randint(1, 4),
    }  # fmt: skip
    names = [name for name, found in FAULTS.items() if mode in found]
    fault = Fault.of(dice.choice(names), dice)
    return Plan(seed, mode, tuple(str(word) for name, value in flags.items() for word in (f"--{name}", value)), fault)


class Trial:
    """One trial in a folder of its own."""

    def __init__(self, plan: Plan, root: Path) -> None:
        self.plan, self.root = plan, root
        self.pids, self.victim = list[int](), ""  # of its runs; the rank that was struck
        self.outages: Outages | None = None
        self.folders = {name: root / name for name in ("clean", "work", "other", "temporary")}
        for folder in self.folders.values():
            folder.mkdir()

    def run(self) -> str:
        """Carry it out; returns what happened in a few words. Raises Broken."""
        clean, work = self.folders["clean"], self.folders["work"]
        first = self.command(clean)
        if first.code == 2 and "Traceback" not in "".join(first.said):
            return f"no such run: {first.said[-1]}"
        if first.code:
            raise Broken(f"without any fault: exit {first.code}: {first.said}")
        expected, before = self.numbers(clean), self.state()
        with disk(self.plan.fault, work) as room:
            struck = self.command(work, self.plan.fault)
            room.restore()
            self.check(struck)
            newest, finished = self.newest(work), self.finished(work)
            hurt = damage(self.plan.fault, work)
            again = self.command(work)
            if again.code == 2 and hurt:
                self.one_line(again)
                again = self.command(work, flags=("--no-resume",))
            elif again.code == 0 and not hurt and struck.code and not finished and self.resumed(work) < newest:
                raise Broken(f"went on from epoch {self.resumed(work)}, but {newest} were kept")
            if again.code:
                raise Broken(f"did not go on: exit {again.code}: {again.said}")
            if self.numbers(work) != expected:
                raise Broken("went on to other numbers")
        if self.state() != before:
            raise Broken("changed files of another run")
        self.nothing_left()
        what = [f"exit {struck.code} in {struck.seconds:.1f} s", *[str(self.outages)] * bool(self.outages)]
        return ", ".join([*what, *["damage refused or mended"] * hurt])

    def command(self, place: Path, fault: Fault | None = None, flags: Sequence[str] = ()) -> Ended:
        """`haloscope run` in a fork, with its cache, checkpoints and results in `place`; ends it at its deadline."""
        log, begun = self.root / "log", time.monotonic()
        kept = ["--checkpoint", str(place / "kept"), "--out", str(place / "runs"), "--quiet"]
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            self._child([*self.plan.flags, *kept, *flags], place, fault, log)
        self.pids.append(pid)
        try:
            code = self._wait(pid, fault, begun, place)
        except SystemExit:  # whoever ends this process ends the run, which has a session of its own
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            remove_dead([pid])
            raise
        if code != -signal.SIGKILL and made_by(pid):
            raise Broken(f"exit code {code}, and namespaces {made_by(pid)} were left")
        said = log.read_text(errors="replace").splitlines() if log.exists() else []
        return Ended(code, time.monotonic() - begun, said)

    def _child(self, flags: Sequence[str], place: Path, fault: Fault | None, log: Path) -> None:
        code = 99
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in (1, 2):
                os.dup2(out, stream)
            temporary = str(self.folders["temporary"])
            os.environ |= {"HALOSCOPE_CACHE": str(place / "cache"), "TMPDIR": temporary, MARK: str(self.plan.seed)}
            tempfile.tempdir = None
            if fault is not None:
                arm(fault, self.root, self.plan.parts)
            code = cli.main(["run", *flags])
        except BaseException as error:  # reported as what it is: a defect
            print(f"Traceback of {error!r}", file=sys.stderr)
        finally:
            os._exit(code)

    def _wait(self, pid: int, fault: Fault | None, begun: float, place: Path) -> int:
        limit, struck, released = DEADLINE_S[self.plan.mode], False, False
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            now = time.monotonic() - begun
            if now > limit:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise Broken(f"did not end within {limit:g} s")
            if fault is not None and self._due(fault, now, place):
                if fault.link:
                    self.outages = self.outages or Outages(fault, pid, self.plan.parts)
                    self.outages.poll()
                elif fault.name in SIGNALS and not struck:
                    struck = self._kill(pid, fault)
            if fault is not None and fault.pauses and not released and _stopped(pid):
                time.sleep(fault.pause_s)
                released = True
                os.kill(pid, signal.SIGCONT)
            time.sleep(0.02)

    def _due(self, fault: Fault, now: float, place: Path) -> bool:
        """Whether a fault that comes from outside of the run is due, or has been."""
        if self.outages is not None:
            return True
        if fault.epoch:
            return self.newest(place) >= fault.epoch
        return fault.at_s is not None and now > fault.at_s

    def _kill(self, pid: int, fault: Fault) -> bool:
        """Signal the run's first process, or one of its ranks; returns False where that is not there yet."""
        if not fault.rank:
            os.kill(pid, fault.signal)
            return True
        spared = str(clock_rank(fault, self.plan.parts)) if "clock" in fault.name else ""
        ranks = {rank: p for p in reversed(self.processes()) if p != pid and (rank := _rank(p)) not in ("", spared)}
        if ranks:
            self.victim = random.Random(fault.seed).choice(sorted(ranks))
            os.kill(ranks[self.victim], fault.signal)
        return bool(ranks)

    def processes(self) -> list[int]:
        """Process ids of the trial's runs."""
        mark, found = f"{MARK}={self.plan.seed}".encode(), []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        return sorted(found)

    def check(self, struck: Ended) -> None:
        """What holds for the run that was struck, however it ended. Raises Broken."""
        if struck.code in (-signal.SIGKILL, -signal.SIGTERM, 143):
            return
        if self.plan.fault.name == "memory" and struck.code == -signal.SIGABRT and _names_memory(struck):
            return  # a C++ library ended the process: what it throws outside of calls from Python, nothing can catch
        if struck.code not in (0, 1, 2, 3, 130):
            raise Broken(f"exit code {struck.code}: {struck.said[-3:]}")
        if struck.code in (1, 2):
            self.one_line(struck)
        if struck.code and self.plan.fault.name in HARMLESS:
            raise Broken(f"exit code {struck.code}, though nothing was lost: {struck.said[-3:]}")
        if struck.code == 1 and (self.victim or self.outages):
            wanted = f"rank {self.victim} " if self.victim else "rank "
            if not any(wanted in line for line in struck.said if line.startswith("haloscope: error: ")):
                raise Broken(f"names no {wanted}: {struck.said[-3:]}")

    def one_line(self, ended: Ended) -> None:
        """The reason is one line, and no traceback. Raises Broken."""
        lines = [line for line in ended.said if line.startswith("haloscope: error: ")]
        if len(lines) != 1 or any("Traceback" in line or "a defect;" in line for line in ended.said):
            raise Broken(f"exit code {ended.code} is not explained in one line: {ended.said[-6:]}")

    def numbers(self, place: Path) -> list[Any]:
        """Losses, scores and bytes of the run's only result, which must be whole."""
        (path,) = (place / "runs").glob("*.json")
        record = json.loads(path.read_text())
        if record["state"] != "done":
            raise Broken(f"the result is in state {record['state']}")
        return [[e[key] for key in KEPT] + [e["bytes"]["forward"], e["bytes"]["backward"]] for e in record["epochs"]]

    def newest(self, place: Path) -> int:
        """Epochs of the newest whole checkpoint."""
        return max((int(p.parent.name[6:]) for p in place.glob("kept/*/epoch-*/complete.json")), default=0)

    def finished(self, place: Path) -> bool:
        """Whether the result of a whole run is there: it was struck after that, and nothing goes on."""
        return any(json.loads(path.read_text())["state"] == "done" for path in (place / "runs").glob("*.json"))

    def resumed(self, place: Path) -> int:
        """From where the run that ended well went on last."""
        (path,) = (place / "runs").glob("*.json")
        return int(max(json.loads(path.read_text())["facts"]["checkpoint"]["resumed"], default=0))

    def state(self) -> str:
        """A hash of all files of the run that nothing happened to, beside which the other one is struck."""
        found = hashlib.sha256()
        for path in sorted(p for p in self.folders["clean"].rglob("*") if p.is_file()):
            found.update(str(path).encode() + path.read_bytes())
        return found.hexdigest()

    def nothing_left(self) -> None:
        """No process, and nothing that `doctor --clean` would not remove. Raises Broken."""
        end = time.monotonic() + GONE_S
        while (alive := self.processes()) and time.monotonic() < end:
            time.sleep(0.1)
        if alive:
            for pid in alive:
                os.kill(pid, signal.SIGKILL)
            raise Broken(f"processes {alive} were left")
        before = os.environ.get("HALOSCOPE_CACHE"), tempfile.tempdir
        os.environ["HALOSCOPE_CACHE"] = str(self.folders["work"] / "cache")
        tempfile.tempdir = str(self.folders["temporary"])
        try:
            left = [found for found in leftovers(self.folders["work"] / "runs") if not remove_leftover(found)]
        finally:
            os.environ.pop("HALOSCOPE_CACHE")
            tempfile.tempdir = before[1]
            if before[0] is not None:
                os.environ["HALOSCOPE_CACHE"] = before[0]
        files = [path.name for path in self.folders["temporary"].iterdir() if not path.name.startswith("torch")]
        labs = remove_dead(self.pids)
        if left or files or labs:
            raise Broken(f"left behind: {[*left, *files, *labs]}")


def _names_memory(ended: Ended) -> bool:
    """Whether a run that was ended by a library says that there was no memory."""
    return any("bad_alloc" in line or "emory" in line for line in ended.said)


def _rank(pid: int) -> str:
    """The rank that a process is; empty where it is none."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    if name.startswith("rank"):  # one that was forked has the environment of the process it was forked from
        return name[4:]
    return next((word[5:].decode() for word in words if word.startswith(b"RANK=")), "")


def _stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1] == "T"
    except OSError:
        return False


def trial(seed: int, modes: Sequence[str]) -> tuple[bool, str]:
    """Carry out the trial of a seed; returns whether all promises were kept, and one line."""
    plan = plan_of(seed, modes)
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        try:
            return True, f"{plan}: {Trial(plan, Path(folder)).run()}"
        except Broken as broken:
            return False, f"{plan}: {broken}"
        finally:
            subprocess.run(["umount", str(Path(folder, "work"))], capture_output=True, check=False)


def main() -> int:
    """Trials until the time is over; returns 1 if a promise was broken."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=10.0)
    options.add_argument("--trials", type=int, default=1_000_000, help="at most so many")
    options.add_argument("--seed", type=int, default=1, help="of the first trial; the next ones follow")
    options.add_argument("--modes", default="loopback,sim,real,lab")
    args = options.parse_args()
    for name in ("harness.commands.run", "harness.running", "sims.study", "numba", *IMPORTED):
        import_module(name)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing stays mounted
    end, broken, seed = time.monotonic() + 60 * args.minutes, 0, args.seed
    while seed < args.seed + args.trials and time.monotonic() < end:
        kept, said = trial(seed, args.modes.split(","))
        broken += not kept
        print(f"{'kept' if kept else 'BROKEN'} seed {seed}: {said}", flush=True)
        if not kept:
            again = f"--seed {seed} --trials 1 --modes {args.modes}"
            print(f"       again: python -m benchmarks.chaos {again}", flush=True)
        seed += 1
    print(f"{seed - args.seed} trials from seed {args.seed}, {broken} broken", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
