"""Checkpoints of a run: every N epochs, when the run is requested to stop, and at the end.

A checkpoint contains the state that `train` keeps between epochs: model, optimizer, the method's settled memory, and
the records so far; the result of `Method.setup` is computed again. Checkpoints are written off the clock. With
checkpoints, every epoch ends with an all-reduce of one number, by which the ranks agree whether to stop.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from harness.effects import Received, Rows
from harness.errors import InputError
from harness.exchanges import Memory
from harness.machine import Lock
from harness.rank import Rank
from harness.running import _checkpoint_files as files
from harness.running._job import Checkpoints, Job
from harness.running.results import RankEpoch


class History(msgspec.Struct):
    """The history of a run's checkpoints, which is saved in them."""

    written: int = 0
    seconds: float = 0.0  # the slowest rank's, off the clock
    bytes: int = 0  # of the newest one, all ranks
    resumed: list[int] = []  # epochs done at each resumption


@dataclass
class Carried:
    """The state that one rank keeps between epochs."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    memory: Memory
    records: list[RankEpoch]


@dataclass(frozen=True)
class Saved:
    """The state that one rank loads, on its device."""

    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    memory: Memory
    records: list[RankEpoch]


class Saver:
    """One rank's side of a run's checkpoints. Its methods are collective; call them off the clock.

    Args:
        options: the job's.
    """

    def __init__(self, rank: Rank, job: Job, options: Checkpoints) -> None:
        self.rank, self.options, self.config = rank, options, job.config
        self.identity = files.Identity.of(job.config.training_id(), job.data, rank.size)
        self.threads = torch.get_num_threads()
        self.home = files.home_of(options.folder, self.identity.training_id)
        self.history = History()
        self._lock: Lock | None = None

    async def load(self) -> Saved | None:
        """Load the newest complete checkpoint; None if there is none, or if the run should start anew.

        Raises:
            InputError: it is damaged or of another run, or its folder cannot be written to.
        """
        rank, epochs = self.rank, 0
        if rank.index == 0:
            self._lock = files.make_home(self.home)
        if rank.index == 0 and self.options.resume:
            epochs = files.newest(self.home)
        elif rank.index == 0:
            files.clear(self.home)
        told = torch.tensor([epochs], device=rank.device)
        epochs = int(await rank.broadcast(told, root=0, label="checkpoint to go on from"))
        if not epochs:
            return None
        marker = files.read_marker(self.home, epochs, self.identity)
        if epochs > self.config.training.epochs:
            raise InputError(
                f"{files.folder_of(self.home, epochs)} has {epochs} epochs behind it, more than --epochs "
                f"{self.config.training.epochs}; ask for more, or give --no-resume"
            )
        content = files.read_rank(self.home, marker, rank.index, rank.device, self.threads)
        kind: Any = tuple[list[RankEpoch], History]
        records, self.history = msgspec.msgpack.decode(content["records"].cpu().numpy().tobytes(), type=kind)
        self.history.resumed.append(epochs)
        return Saved(content["model"], content["optimizer"], content["memory"], records)

    def close(self) -> None:
        """Let other runs keep their checkpoints here."""
        if self._lock is not None:
            self._lock.release()

    async def stopping(self) -> bool:
        """Whether any rank was requested to stop."""
        asked = torch.tensor([float(self.options.stop())], device=self.rank.device)
        return bool(await self.rank.all_reduce(asked, label="asked to stop", direction="other") > 0)

    def due(self, epochs: int) -> bool:
        """Whether a checkpoint is to be written after `epochs` epochs."""
        every = self.options.every
        return epochs == self.config.training.epochs or (every > 0 and epochs % every == 0)

    async def save(self, carried: Carried) -> None:
        """Write this rank's file; rank 0 declares the checkpoint complete once all have theirs.

        The method's memory must have settled.

        Raises:
            InputError: the folder cannot be written to.
        """
        rank, begun, epochs = self.rank, time.perf_counter(), len(carried.records)
        folder = files.folder_of(self.home, epochs)
        self.history.written += 1  # counts the checkpoint that contains it
        written = files.write_rank(folder, rank.index, _content(carried, self.history), self.threads)
        rows = await self._gather(written)
        if rank.index == 0:
            config = self.config.flat()
            files.write_marker(folder, files.Marker(files.CHECKPOINT_FORMAT, epochs, self.identity, rows, config))
            files.prune(self.home, epochs, self.options.keep)
        # All ranks wait for the marker: otherwise its time would be booked to the next epoch.
        size = torch.tensor([written.bytes], device=rank.device)
        total = int(await rank.all_reduce(size, label="checkpoint complete", direction="other"))
        self.history.seconds += time.perf_counter() - begun
        self.history.bytes = total

    def facts(self) -> dict[str, Any]:
        """For the result: count, total seconds, bytes of one, and the epochs of resumption."""
        return {"checkpoint": msgspec.to_builtins(self.history)}

    async def _gather(self, written: files.RankFile) -> list[files.RankFile]:
        """Every rank's file at rank 0; empty on other ranks."""
        rank = self.rank
        numbers = written.bytes.to_bytes(8, "little") + written.threads.to_bytes(8, "little")
        row = np.frombuffer(numbers + bytes.fromhex(written.sha256), np.uint8)
        data = torch.from_numpy(row.copy()).reshape(1, -1).to(rank.device)
        send, recv = np.zeros(rank.size, np.int64), np.full(rank.size, int(rank.index == 0), np.int64)
        send[0] = 1
        received: Received = await rank.all_to_all([Rows(data, send, recv)], label="checkpoint files")
        rows = [bytes(found) for found in received.tensors[0].cpu().numpy()]
        return [
            files.RankFile(int.from_bytes(found[:8], "little"), found[16:].hex(), int.from_bytes(found[8:16], "little"))
            for found in rows
        ]


def saver_of(rank: Rank, job: Job) -> Saver | None:
    """The saver of a rank; None if the job writes no checkpoints."""
    return None if job.checkpoints is None else Saver(rank, job, job.checkpoints)


def last_epochs(job: Job) -> int:
    """Epochs done at the newest complete checkpoint of a job; 0 if there is none."""
    return (
        0 if job.checkpoints is None else files.newest(files.home_of(job.checkpoints.folder, job.config.training_id()))
    )


def started_anew(job: Job) -> Job:
    """The job, after earlier checkpoints are removed if it should start anew; later attempts resume."""
    options = job.checkpoints
    if options is None or options.resume:
        return job
    home = files.home_of(options.folder, job.config.training_id())
    lock = files.make_home(home)
    files.clear(home)
    lock.release()
    return replace(job, checkpoints=replace(options, resume=True))


def _content(carried: Carried, history: History) -> dict[str, Any]:
    records = bytearray(msgspec.msgpack.encode((carried.records, history)))
    return {
        "model": _compact(carried.model.state_dict()),
        "optimizer": carried.optimizer.state_dict(),
        "memory": _compact(carried.memory),
        "records": torch.frombuffer(records, dtype=torch.uint8),
    }


def _compact(tree: dict[str, Any]) -> dict[str, Any]:
    """The tree with copies of tensors that are views of larger ones, which would be saved as a whole."""
    out: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            out[name] = _compact(value)
        elif value.untyped_storage().nbytes() > value.numel() * value.element_size():
            out[name] = value.detach().clone()
        else:
            out[name] = value.detach()
    return out
