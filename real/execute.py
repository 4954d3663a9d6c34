"""Runs a job for real: the glue between `harness.runner` and the ranks' processes.

`execute` is what the runner calls in the launching process: it starts one process per part and reads what they
recorded. `run_rank` is what each of those processes does, also under torchrun. Ranks read their own part of the
prepared graph from the cache; records travel as msgpack, which unlike JSON knows nan, and never as pickles.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from harness.effects import Received, Rows
from harness.errors import InputError
from harness.exchanges.push_pull import Diverged
from harness.prepare import Prepared
from harness.rank import Rank
from harness.results import RankEpoch, RankResult
from harness.runner import Execution, cpu_threads, make_job, threads_per_rank
from harness.spec import RunConfig
from harness.training import Job, program
from harness.trampoline import Program
from real import connection
from real.driver import run
from real.launch import RankFailed, launch

MAPPED_ABOVE = 32 << 20  # bytes: glibc's largest threshold between memory it keeps and memory it maps


class Outcome(msgspec.Struct):
    """What rank 0 knows at the end: every rank's record, every rank's machine, and how they talked."""

    ranks: list[RankResult]
    hosts: list[int]
    backend: str
    device: str

    def execution(self) -> Execution:
        """As the runner takes it; bytes inside a machine and between machines are told apart."""
        inside = "loopback" if self.device == "cpu" else "inside host"
        tiers = [inside, "ethernet"] if len(set(self.hosts)) > 1 else [inside]
        tier_of = [[int(a != b) for b in self.hosts] for a in self.hosts]
        return Execution(self.ranks, tiers, tier_of, {"backend": self.backend, "device": self.device})


def check(config: RunConfig) -> None:
    """Raise InputError for a device this machine lacks."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda, but no GPU is visible here; use --device cpu, or --mode sim")


def execute(job: Job) -> Execution:
    """Run every rank of the job in a process of its own on this machine.

    Raises:
        InputError: what a rank found that the user can mend.
        Diverged: a rank met values that cannot be sent.
        RankFailed: a rank failed or died; the message names it.
    """
    config = job.config
    with tempfile.TemporaryDirectory(prefix="haloscope-") as folder:
        asked, answer, epochs = (Path(folder, name) for name in ("config.json", "outcome", "epochs"))
        asked.write_bytes(msgspec.json.encode(asdict(config)))
        epochs.touch()
        arguments = ["-m", "real", "--config", str(asked), "--result", str(answer), "--progress", str(epochs)]
        try:
            threads, env = threads_per_rank(config), _allocation(job)
            launch(arguments, config.parts, threads=threads, env=env, poll=_follow(epochs, job.progress))
        except RankFailed as failure:
            if failure.kind == Diverged.__name__:
                raise Diverged(str(failure)) from None
            raise
        return msgspec.msgpack.decode(answer.read_bytes(), type=Outcome).execution()


def _allocation(job: Job) -> dict[str, str]:
    """Environment of the ranks' allocator: huge pages where row tensors are so large that each is mapped afresh.

    Fresh memory costs a page fault for every 4 KiB without them. Smaller tensors the C library keeps, and there
    the alignment to huge pages only costs. `benchmarks.epoch` shows PyG with and without.
    """
    totals, config = job.parts.totals, job.config
    row_bytes = 4 * max(totals.num_features, config.hidden)
    large = totals.num_nodes // config.parts * row_bytes > MAPPED_ABOVE
    return {"THP_MEM_ALLOC_ENABLE": "1"} if large else {}


def run_rank(config: RunConfig, progress: Callable[[RankEpoch], None] | None = None) -> tuple[Outcome, Prepared] | None:
    """This process's rank of a run; rank 0 answers the outcome and the data it was computed on.

    Raises:
        InputError: the run has another number of ranks than parts, or whatever `make_job` and `connect` refuse.
        HaloscopeError: see `real.driver.run`.
    """
    with connection.connect(device=config.device, backend=config.backend, timeout_s=config.timeout) as link:
        if link.size != config.parts:
            raise InputError(
                f"{config.parts} parts need {config.parts} ranks, but this run has {link.size}: "
                f"use torchrun --nproc-per-node {config.parts}, or haloscope run --mode real"
            )
        with link.host_by_host():
            job, prepared = make_job(config, progress)
        debug = os.environ.get("HALOSCOPE_DEBUG") == "1"
        neighbours = int(os.environ.get("LOCAL_WORLD_SIZE", config.parts))
        with cpu_threads(threads_per_rank(config, neighbours)):
            found = run(
                _gathered(program(job), link.host),
                link,
                seed=config.seed,
                deterministic=config.deterministic,
                debug=debug,
            )
    if found is None:
        return None
    ranks, hosts = zip(*found, strict=True)
    return Outcome(list(ranks), list(hosts), link.backend, str(link.device)), prepared


def torchrun_config(config: RunConfig, size: int, parts_given: bool) -> RunConfig:
    """A config as `torchrun -m real` means it: real mode, and as many parts as ranks unless it says otherwise."""
    return replace(config, mode="real", parts=config.parts if parts_given else size)


def _gathered(inner: Program, host: int) -> Program:
    """The program, and after it every rank's record with its machine at rank 0 (None elsewhere)."""

    async def gather(rank: Rank) -> list[tuple[RankResult, int]] | None:
        record = msgspec.msgpack.encode((await inner(rank), host))
        with rank.off_the_clock():
            data = torch.frombuffer(bytearray(record), dtype=torch.uint8).to(rank.device)
            send = np.zeros(rank.size, np.int64)
            send[0] = len(record)
            received: Received = await rank.all_to_all([Rows(data, send, None)], label="records")
        if rank.index != 0:
            return None
        pieces = received.tensors[0].cpu().split(received.counts[0].tolist())
        kind: Any = tuple[RankResult, int]
        return [msgspec.msgpack.decode(piece.numpy().tobytes(), type=kind) for piece in pieces]

    return gather


def _follow(file: Path, progress: Callable[[RankEpoch], None] | None) -> Callable[[], None]:
    """A function that reports the epochs that were appended to a file since it was last called."""
    seen = 0

    def poll() -> None:
        nonlocal seen
        if progress is None:
            return
        with file.open("rb") as stream:
            stream.seek(seen)
            data = stream.read()
        whole = data[: data.rfind(b"\n") + 1]
        seen += len(whole)
        for line in whole.splitlines():
            progress(msgspec.json.decode(line, type=RankEpoch))

    return poll
