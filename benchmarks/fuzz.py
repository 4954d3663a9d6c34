"""Bad input for every flag and every file: `python -m benchmarks.fuzz --minutes N --seed S [--keep FILE]`.

Inputs are good ones that are mutated: flags by texts that nobody could mean, files by their bytes, their numbers and
their structure. Each command is called in a fork with limits of time and memory. It has to end with exit code 0, or
with exit code 2 and one line; a traceback, a defect, a hang and more memory than the limit are findings. They are
printed, and written to `--keep` as cases for `tests/support/bad_inputs.jsonl`, which the suite runs.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from importlib import import_module
from io import StringIO
from pathlib import Path

import torch._dynamo  # noqa: F401  (torch imports it at the first operator, seconds in every fork)

from benchmarks.fuzz_inputs import COMMANDS, FLAGS, GOOD, NASTY, good_files, mutated
from harness import cli

CPU_S, LIMIT_S = 20, 180
"""Seconds that a command may compute, and may take."""

LIMIT_BYTES = 2 << 30
GONE_S = 15.0
"""How long processes of a command that has ended may take to notice."""

COMMANDS_USED = (
    "run", "sweep", "trace", "flows", "collect", "export", "clusters", "partition", "launch", "what_if", "explain",
    "study", "report", "compare", "methods", "partitioners", "standin", "completion",
)  # fmt: skip
IMPORTED = (*(f"harness.commands.{name}" for name in COMMANDS_USED), "sims.study")
"""Before the forks, each of which would take seconds for it."""

TINY = ["--dataset", "synthetic:nodes=60,degree=4,classes=3,features=5", "--epochs", "1", "--eval-every", "-1"]


@dataclass(frozen=True)
class Case:
    """One command line, and the files that it finds beside the good ones."""

    argv: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)

    def line(self) -> str:
        """As a line of the file of cases."""
        files = {name: base64.b64encode(content).decode() for name, content in self.files.items()}
        return json.dumps({"argv": self.argv, "files": files})

    @classmethod
    def of(cls, line: str) -> Case:
        """From such a line."""
        found = json.loads(line)
        files = {name: base64.b64decode(content) for name, content in found["files"].items()}
        return cls(tuple(found["argv"]), files)


@dataclass(frozen=True)
class Verdict:
    """How a command ended: its exit code, negative for a signal, and the end of what it said on stderr."""

    code: int
    said: str

    @property
    def finding(self) -> str:
        """What is wrong with that; empty where nothing is."""
        lines = [line for line in self.said.splitlines() if "error: " in line]
        if self.code < 0:
            return f"ended by {signal.Signals(-self.code).name}"
        if "Traceback" in self.said or "a defect;" in self.said:
            return "a defect"
        if self.code == 2 and len(lines) != 1:
            return f"{len(lines)} lines"
        expected = (0, 2) if lines else (0, 1, 2)  # 1: a result that says why, such as of a run that diverged
        return "" if self.code in expected else f"exit code {self.code}"


def judge(case: Case) -> Verdict:
    """Call the command in this process, in the current folder, where the good files are."""
    changed = {name: Path(name).read_bytes() if Path(name).exists() else None for name in case.files}
    for name, content in case.files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content)
    said = StringIO()
    try:
        with redirect_stderr(said), redirect_stdout(StringIO()):
            code = cli.main(list(case.argv))
    finally:
        for name, before in changed.items():
            with suppress(OSError):
                Path(name).unlink() if before is None else Path(name).write_bytes(before)
    return Verdict(code, said.getvalue()[-8000:])


def judged_apart(case: Case) -> Verdict:
    """The same in a fork, within limits of time and memory; what it started ends with it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        code = 99
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + LIMIT_BYTES,) * 2)
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
            signal.alarm(LIMIT_S)
            verdict = judge(case)
            os.write(writing, verdict.said.encode(errors="replace"))
            code = verdict.code
        except BaseException as error:
            os.write(writing, f"Traceback of {error!r}".encode())
        finally:
            os._exit(code)
    os.close(writing)
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # what it says fits into the pipe
    by_itself, end = ended is not None and ended.si_code == os.CLD_EXITED, time.monotonic() + GONE_S
    while (left := processes_of(pid)) and by_itself and time.monotonic() < end:
        time.sleep(0.05)  # such as the one of a pool that removes its semaphores once its parent is gone
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # before it is reaped: the number is its own until then
    status = os.waitpid(pid, 0)[1]
    with open(reading, "rb") as stream:
        said = stream.read().decode(errors="replace")
    return Verdict(os.waitstatus_to_exitcode(status), f"{said}\nTraceback: left processes {left}" if left else said)


def processes_of(session: int) -> list[int]:
    """The living processes of a session but its leader."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, theirs = stat.read_text().rpartition(")")[2].split()[:4]
            if int(theirs) == session and state != "Z" and int(stat.parent.name) != session:
                found.append(int(stat.parent.name))
    return found


def refusals() -> Iterator[tuple[str, str]]:
    """Files of `GOOD` that their commands refuse: nothing behind that refusal would be tried. Where the files are."""
    for name, commands in GOOD.items():
        for argv in commands:
            verdict = judged_apart(Case(tuple(argv)))
            if verdict.code:
                yield name, verdict.said.strip()[-300:] or f"exit code {verdict.code}"


def bad_flags(dice: random.Random) -> Iterator[Case]:
    """One run whose flag has a text that hardly anybody means, or options of a name that are odd."""
    while True:
        flag = dice.choice(sorted(FLAGS))
        value = dice.choice(NASTY) if dice.random() < 0.4 else mutated(dice.choice(FLAGS[flag]).encode(), dice)
        text = value if isinstance(value, str) else value.decode(errors="replace").replace("\0", "")
        given = [word for at in range(0, len(TINY), 2) if TINY[at] != f"--{flag}" for word in TINY[at : at + 2]]
        modes = ["--mode", "sim"] if flag in ("cluster", "rates") or dice.random() < 0.2 else []
        yield Case(("run", *given, *(modes if flag != "mode" else []), f"--{flag}={text}", "--quiet"))


def bad_commands(dice: random.Random) -> Iterator[Case]:
    """Another command than run, of which a flag has a text that hardly anybody means."""
    while True:
        begin = dice.choice(sorted(COMMANDS))
        flag = dice.choice(sorted(COMMANDS[begin]))
        good = dice.choice(COMMANDS[begin][flag])
        value = dice.choice(NASTY) if dice.random() < 0.4 else mutated(good.encode(), dice)
        text = value if isinstance(value, str) else value.decode(errors="replace").replace("\0", "")
        yield Case((*begin, f"--{flag}={text}" if flag else text))


def bad_files(dice: random.Random) -> Iterator[Case]:
    """A command that reads a good file, which is mutated."""
    while True:
        name = dice.choice(sorted(GOOD))
        content = mutated(Path(name).read_bytes(), dice)
        yield Case(tuple(dice.choice(GOOD[name])), {name: content})


KINDS: dict[str, Callable[[random.Random], Iterator[Case]]] = {
    "flags": bad_flags, "files": bad_files, "commands": bad_commands,
}  # fmt: skip


def cases(seed: int) -> Iterator[Case]:
    """All of them in turn; call it where the good files are."""
    dice = random.Random(seed)
    kinds = [make(dice) for make in KINDS.values()]
    while True:
        for kind in kinds:
            yield next(kind)


def main() -> int:
    """Try inputs until the time is over; returns 1 if there was a finding."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=10.0)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--keep", type=Path, help="append findings to this file")
    args = options.parse_args()
    keep = args.keep.absolute() if args.keep else None
    end, tried, found = time.monotonic() + 60 * args.minutes, 0, dict[str, int]()
    for name in IMPORTED:
        import_module(name)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that its folder is removed
    root = Path(tempfile.mkdtemp(prefix="fuzz-"))
    os.environ |= {"HALOSCOPE_CACHE": str(root / "cache"), "HALOSCOPE_DATA": str(root), "TMPDIR": str(root)}
    tempfile.tempdir = str(root)
    os.chdir(root)
    try:
        pid = os.fork()  # good files are made in a fork: a process that has computed cannot be forked safely
        if not pid:
            try:
                good_files()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        for name, refused in refusals():
            print(f"not a good one: {name}: {refused}", flush=True)
        for case in cases(args.seed):
            if time.monotonic() > end:
                break
            tried += 1
            verdict = judged_apart(case)
            if not verdict.finding:
                continue
            last = (verdict.said.strip().splitlines() or [""])[-1]
            key = f"{verdict.finding}: {last[:160]}"
            found[key] = found.get(key, 0) + 1
            if found[key] == 1:
                print(f"{key}\n    {' '.join(case.argv)[:300]} {list(case.files)}", flush=True)
                if keep is not None:
                    with keep.open("a") as stream:
                        stream.write(case.line() + "\n")
    finally:
        os.chdir("/")
        shutil.rmtree(root, ignore_errors=True)
    print(f"{tried} inputs from seed {args.seed}, {len(found)} different findings in {sum(found.values())}", flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
