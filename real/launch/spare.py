"""A process beside the ranks that evaluates for them: it holds the whole graph and one model.

Rank 0 sends it the parameters of an epoch over a pipe and continues training; the counts are returned asynchronously.
The process runs at low priority (nice), and ends when rank 0 ends, because its pipe closes.
"""

from __future__ import annotations

import os
import queue
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec
import torch
from torch import Tensor, nn

from harness import loopback, running
from harness.config import RunConfig, laid_over
from harness.errors import HaloscopeError
from harness.machine import keep_heap, run_folder, usable_cores
from harness.nn import build_model
from harness.rank import Rank
from harness.running import make_job

NICENESS = 10
CLOSE_S = 3.0
"""How long the process may take to end after the last request."""

_FRAME = struct.Struct("<qq")  # epoch, bytes of parameters that follow


class EvaluationCounts(msgspec.Struct):
    """One line of the process's output."""

    epoch: int
    counts: list[list[float]]  # as `harness.nn.counts`


class SpareProcess:
    """Rank 0's end of the pipe.

    Args:
        config: the run; the process reads the same graph in one part.
    """

    def __init__(self, config: RunConfig) -> None:
        self._stack = ExitStack()
        folder = self._stack.enter_context(run_folder())
        config_file, self._log = folder / "config.json", folder / "log"
        config_file.write_bytes(msgspec.json.encode(config.flat()))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "real.launch.spare", str(config_file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        self._found: dict[int, list[list[float]]] = {}
        self._ended = False
        self._news = threading.Condition()
        self._outbox: queue.Queue[bytes | None] = queue.Queue()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._write, self._read)]
        for thread in self._threads:
            thread.start()

    def submit(self, epoch: int, parameters: Mapping[str, Tensor]) -> None:
        """Ask for the counts of an epoch; copies the parameters and returns."""
        data = _pack(parameters)
        self._outbox.put(_FRAME.pack(epoch, len(data)) + data)

    def counts(self, epoch: int, patience_s: float) -> list[list[float]] | None:
        """The counts of an epoch, None while they are not ready; see `harness.running.Spare`."""
        with self._news:
            self._news.wait_for(lambda: epoch in self._found or self._ended, patience_s)
            if epoch in self._found:
                return self._found[epoch]
            ended = self._ended
        if ended:
            lines = self._log.read_text(errors="replace").strip().splitlines()
            raise HaloscopeError(
                f"no evaluation of epoch {epoch}: its process ended: {lines[-1] if lines else '(it wrote nothing)'}"
            )
        return None

    def close(self) -> None:
        """End the process and wait for it."""
        self._outbox.put(None)
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join(CLOSE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._stack.close()

    def _write(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            while (frame := self._outbox.get()) is not None:
                pipe.write(frame)
                pipe.flush()
            pipe.close()
        except OSError:
            pass  # the process has ended; `counts` raises the error

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            result = msgspec.json.decode(line, type=EvaluationCounts)
            with self._news:
                self._found[result.epoch] = result.counts
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()


def _pack(parameters: Mapping[str, Tensor]) -> bytes:
    """Parameters in the order of the model's state, as raw bytes."""
    return b"".join(
        t.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes() for t in parameters.values()
    )


def _unpack(model: nn.Module, data: bytes) -> None:
    """Into a model of the same build. Raises ValueError for another number of bytes."""
    state, at = model.state_dict(), 0
    for tensor in state.values():
        size = tensor.numel() * tensor.element_size()
        piece = torch.frombuffer(bytearray(data[at : at + size]), dtype=tensor.dtype)
        tensor.copy_(piece.view(tensor.shape))
        at += size
    if at != len(data):
        raise ValueError(f"{len(data)} bytes for a model of {at}")


def _serve(config: RunConfig, requests: BinaryIO, responses: BinaryIO) -> None:
    """Evaluate the parameters of each request until the pipe closes."""
    job, prepared = make_job(running.plan_of(running.whole_graph(config)))
    model = build_model(config.model, prepared.totals.num_features, prepared.totals.num_classes, config.training.seed)
    keep_heap(prepared.largest_tensor(model))
    exact = running.plan_of(config).method.exact()
    method = exact if exact is not None and exact.facts.cut == "edge" else job.method

    async def begin(rank: Rank) -> running.Judge:
        part = job.parts.training(0)
        state = await method.setup(rank, part, model)
        return running.Judge(part, method, state)

    judge = loopback.run_ranks(begin, 1)[0]
    while head := requests.read(_FRAME.size):
        epoch, size = _FRAME.unpack(head)
        _unpack(model, requests.read(size))
        counts = loopback.run_ranks(lambda rank: judge.judge(rank, model), 1)[0]
        responses.write(msgspec.json.encode(EvaluationCounts(epoch, counts)) + b"\n")
        responses.flush()


def _main(config_file: str) -> None:
    os.nice(NICENESS)
    with suppress(AttributeError, OSError):  # rank 0 keeps to its own cores; this process need not
        os.sched_setaffinity(0, usable_cores())
    torch.set_num_threads(1)
    config = laid_over(msgspec.json.decode(Path(config_file).read_bytes()))
    try:
        _serve(config, sys.stdin.buffer, sys.stdout.buffer)
    except HaloscopeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    _main(*sys.argv[1:])
