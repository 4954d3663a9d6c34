"""The fault table: a rank is killed or stopped in every phase of a real run; the messages and their delays.

Run `python -m benchmarks.faults [--trials 3] [--parts 2,4] [--phases compute,exchange] [--json FILE]`. Every trial is a
whole run over gloo on this machine, through the launcher; the signal comes from `benchmarks.faulty_rank`.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from benchmarks.faulty_rank import PHASES
from harness.config import RunConfig
from harness.running import Checkpoints
from harness.running import _runner as runner
from real.launch import _execute as execute
from real.launch import launch
from real.launch._launcher import RankFailed

DATASET = "synthetic:nodes=2000,degree=10,classes=4,features=16"
TIMEOUT_S = 5.0  # of the runs in which a rank is stopped; less fails a slow machine without any fault
PROMISE_S = 10.0


@dataclass(frozen=True)
class Trial:
    """One fault and its consequences.

    Attributes:
        signal: SIGKILL or SIGSTOP.
        victim: the rank that got it.
        exits: survivor -> seconds from the signal to its end.
        codes: survivor -> exit code.
        gone_s: seconds from the signal until the launcher had raised, with no process left.
        lines: survivor -> its last line.
        message: the launcher's.
    """

    signal: str
    phase: str
    parts: int
    victim: int
    exits: dict[int, float]
    codes: dict[int, int]
    gone_s: float
    lines: dict[int, str]
    message: str

    @property
    def named(self) -> bool:
        """Whether every survivor's line names the rank, and the launcher's the rank and its activity."""
        told = {"preparation": "preparation of the data"}.get(self.phase, self.phase)
        return all(f"rank {self.victim}" in line for line in self.lines.values()) and bool(
            re.match(rf"rank {self.victim} (was killed by|is stopped by) .* in .*\b{told}\b", self.message)
        )

    @property
    def kept(self) -> bool:
        """Whether all processes ended in time, none with exit code 0."""
        limit = PROMISE_S if self.signal == "SIGKILL" else TIMEOUT_S + 5
        return self.gone_s <= limit and all(self.codes.values())


@contextmanager
def _struck_by(phase: str, victim: int, number: str, file: Path) -> Iterator[None]:
    """Start every rank through `benchmarks.faulty_rank`."""

    def faulty(arguments: Sequence[str], parts: int, **options: Any) -> None:
        own = ["-m", "benchmarks.faulty_rank", phase, str(victim), number, str(file), "--"]
        launch([*own, *arguments[2:]], parts, **options)  # instead of -m real

    with mock.patch.object(execute, "launch", faulty):
        yield


def trial(phase: str, parts: int, victim: int, number: str = "SIGKILL", dataset: str = DATASET) -> Trial:
    """One run with one fault. Raises RuntimeError if the run succeeded, or ended before the fault."""
    config = RunConfig.of(
        dataset=dataset,
        parts=parts,
        partitioner="hash",
        epochs=6,
        eval_every=1,
        mode="real",
        threads=1,
        timeout=TIMEOUT_S if number == "SIGSTOP" else 60.0,
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "struck")
        try:
            with _struck_by(phase, victim, number, file):
                runner.run(config, checkpoints=Checkpoints(Path(folder, "checkpoints"), every=2))
        except RankFailed as failure:
            if not file.exists():
                raise RuntimeError(f"the run failed before the fault: {failure}") from failure
            struck, now = float(file.read_text()), time.monotonic()
            others = [exit for exit in failure.exits if exit.rank != victim]
            return Trial(
                number,
                phase,
                parts,
                victim,
                {exit.rank: exit.at - struck for exit in others},
                {exit.rank: exit.code for exit in others},
                now - struck,
                {exit.rank: exit.line for exit in others},
                str(failure),
            )
    raise RuntimeError(f"no rank failed: {number} in {phase} of rank {victim}")


def _row(trials: list[Trial]) -> str:
    first = trials[0]
    times = [seconds for t in trials for seconds in t.exits.values()]
    codes = sorted({code for t in trials for code in t.codes.values()})
    gone = max(t.gone_s for t in trials)
    good, named = sum(t.kept for t in trials), sum(t.named for t in trials)
    return (
        f"{first.signal:8} {first.phase:12} {first.parts:5} {len(trials):6} {statistics.median(times):8.2f} "
        f"{max(times):6.2f} {gone:8.2f}  {codes!s:10} {good}/{len(trials):<5} {named}/{len(trials)}"
    )


def main() -> None:
    """Print the table, then one message per fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=3, help="of every fault; the victim changes from one to the next")
    parser.add_argument("--parts", default="2,4", help="numbers of ranks")
    parser.add_argument("--phases", default=",".join(PHASES))
    parser.add_argument("--json", type=Path, help="also write every trial here")
    args = parser.parse_args()
    phases = args.phases.split(",")
    faults = [(number, phase) for number in ("SIGKILL", "SIGSTOP") for phase in phases]
    print(f"{'fault':8} {'phase':12} ranks trials median s  max s all gone  exit codes in time named")
    found: list[list[Trial]] = []
    for parts in (int(text) for text in args.parts.split(",")):
        for number, phase in faults:
            # data are prepared by the first rank of a machine; the others only wait for them
            victims = [k % (1 if phase == "preparation" else parts) for k in range(args.trials)]
            found.append([trial(phase, parts, victim, number) for victim in victims])
            print(_row(found[-1]), flush=True)
    print("\nseconds from the signal to the survivors' exits; 'all gone': until the launcher had raised\n")
    for trials in found:
        print(f"{trials[0].signal}, {trials[0].phase}, {trials[0].parts} ranks: {trials[0].message}")
    if args.json is not None:
        args.json.write_bytes(msgspec.json.encode([asdict(t) for trials in found for t in trials]))


if __name__ == "__main__":
    main()
