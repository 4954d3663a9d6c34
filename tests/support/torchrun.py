"""torchrun on this machine: one agent, or several that stand for hosts."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import REPOSITORY

SMALL = ("--dataset", "synthetic:nodes=60,degree=4,classes=3,features=5", "--threads", "1", "--eval-every", "-1")
"""Flags of a run of milliseconds per epoch."""


class Agents:
    """torchruns that meet over loopback; their output goes to files.

    Args:
        folder: the working folder of each agent is `folder`, or `folder/NUMBER` where that is there.
        ranks: per agent.
        program: what each agent's ranks run, in words, agent by agent.
        restarts: torchrun's --max-restarts.
    """

    def __init__(
        self,
        folder: Path,
        ranks: int,
        program: Sequence[Sequence[str]],
        *,
        restarts: int = 0,
        env: Sequence[dict[str, str]] = (),
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        self.logs = [folder / f"agent{number}.log" for number in range(len(program))]
        self.processes = []
        for number, words in enumerate(program):
            arguments = [
                *("-m", "torch.distributed.run", "--nnodes", str(len(program)), "--nproc-per-node", str(ranks)),
                *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "test"),
                *("--local-addr", "127.0.0.1", "--max-restarts", str(restarts)),
            ]
            own = folder / str(number)
            more = env[number] if env else {}
            with self.logs[number].open("wb") as log:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, *arguments, *words],
                        cwd=own if own.exists() else folder,
                        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", **more},
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )

    def __enter__(self) -> Agents:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            for child in self.ranks_of(process.pid):
                os.kill(child, 9)
            process.kill()
            process.wait()

    def wait(self, limit_s: float = 120.0) -> list[int]:
        """Exit codes of the agents."""
        return [process.wait(limit_s) for process in self.processes]

    def said(self, number: int) -> list[str]:
        """The errors that the ranks of an agent printed, without the prefix, sorted."""
        text = self.logs[number].read_text(errors="replace")
        return sorted(re.findall(r"^haloscope: error: (.*)$", text, re.MULTILINE))

    @staticmethod
    def ranks_of(agent: int) -> list[int]:
        """Process ids of an agent's ranks."""
        found: list[int] = []
        for task in Path(f"/proc/{agent}/task").glob("*/children"):
            found += map(int, task.read_text().split())
        return sorted(found)
