"""Segments of a recorded epoch as CUDA graphs, for `harness.static_epochs`.

What a rank computes between two exchanges is one graph: launching it takes the host as long as one kernel, however many
kernels it holds. Exchanges, copies to the host and whatever else waits stay between graphs. All graphs of a rank share
one pool of memory, in which later ones use what earlier ones have freed, so they must run in the order in which they
were captured; payloads and results of exchanges have memory of their own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

from harness.errors import Diverged, ProgramError
from harness.kernels.finite_rows_cuda import bad_row, refuse_late
from harness.kernels.random import stream_word, streams_in_memory
from harness.rank import Rank
from harness.static_epochs import StaticEpochs
from real.rank._clocks import CudaClock, Stamps

MOST_KEYS = 4096
"""Random keys that the operators of an epoch are given, at most."""


class GraphedEpochs:
    """Epochs of a rank on a GPU, recorded as CUDA graphs; implements `harness.running.Epochs`."""

    def __init__(self) -> None:
        self._epochs: StaticEpochs | None = None

    async def epoch(self, rank: Rank, compute: Callable[[], Coroutine[Any, Any, Tensor]]) -> Tensor:
        """The loss of one epoch; see `StaticEpochs.epoch`."""
        if self._epochs is None:
            assert isinstance(rank.clock, CudaClock)
            self._epochs = StaticEpochs(CudaGraphs(rank, rank.clock))
        return await self._epochs.epoch(rank, compute)


class CudaGraphs:
    """The graphs of one rank; implements `harness.static_epochs.EpochSegments`."""

    def __init__(self, rank: Rank, clock: CudaClock) -> None:
        self.rank, self.device, self.clock = rank, rank.device, clock
        device = rank.device
        self.stream, self.pool = torch.cuda.Stream(device), torch.cuda.graph_pool_handle()
        self.streams = _StreamTable(device)
        self._bad = bad_row(device, self.stream.cuda_stream)  # what is captured must not make it

    @contextmanager
    def warming_up(self) -> Iterator[None]:
        """Kernels are compiled in the form that graphs use, with random streams in memory."""
        with streams_in_memory(self.streams.written):
            yield
        self.streams.clear()

    def new(self) -> CudaSegment:
        """A graph to be captured."""
        return CudaSegment(self)

    def renew(self, keys: Mapping[int, int]) -> None:
        """Give every key's place to another key."""
        self.streams.write(keys)

    def ended(self) -> None:
        """Raise Diverged, naming rank and epoch, if a codec of this epoch was given a row that is not finite."""
        try:
            refuse_late(self._bad)
        except ValueError as error:
            raise Diverged(f"rank {self.rank.index}, epoch {self.rank.epoch}: {error}") from None


class CudaSegment:
    """One graph. Nothing runs while it is captured."""

    def __init__(self, graphs: CudaGraphs) -> None:
        self.graphs = graphs
        self._graph, self._empty = torch.cuda.CUDAGraph(), False
        self._stamps: Stamps = []
        self._new = True

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Capture what is launched inside."""
        graphs = self.graphs
        graphs.stream.wait_stream(torch.cuda.current_stream(graphs.device))
        with (
            torch.cuda.stream(graphs.stream),
            streams_in_memory(graphs.streams.place),
            graphs.clock.capturing() as self._stamps,
            warnings.catch_warnings(record=True) as said,
        ):
            warnings.simplefilter("always")
            # Other threads of the process (transport, watchdogs) may call CUDA meanwhile.
            self._graph.capture_begin(pool=graphs.pool, capture_error_mode="thread_local")
            try:
                yield
            except BaseException as error:
                with suppress(RuntimeError):  # capturing has failed, of which the first error says why
                    self._graph.capture_end()
                error.add_note("while an epoch was recorded for --cuda-graphs; without it, it runs as it is")
                raise
            self._graph.capture_end()
        self._empty = any("Graph is empty" in str(warning.message) for warning in said)

    def run(self) -> None:
        """Launch the graph."""
        if not self._empty:
            self._graph.replay()
        if not self._new:
            self.graphs.clock.stamped_again(self._stamps)
        self._new = False


class _StreamTable:
    """Streams of random keys in device memory: a key keeps its place, which a later epoch gives to another key."""

    def __init__(self, device: torch.device) -> None:
        self._table = torch.zeros(MOST_KEYS, dtype=torch.int64, device=device)
        self._staged = torch.zeros(MOST_KEYS, dtype=torch.int64, pin_memory=True)
        self._places: dict[int, int] = {}

    def clear(self) -> None:
        """Forget all keys."""
        self._places.clear()

    def place(self, key: int) -> Tensor:
        """Where the stream of a key will lie once it is written.

        Raises:
            ProgramError: an epoch has more keys than the table has places.
        """
        at = self._places.setdefault(key, len(self._places))
        if at >= MOST_KEYS:
            raise ProgramError(f"--cuda-graphs: the operators of an epoch are given more than {MOST_KEYS:,} keys")
        return self._table[at : at + 1]

    def written(self, key: int) -> Tensor:
        """Where the stream of a key lies; written at once."""
        return self.place(key).fill_(stream_word(key))

    def write(self, keys: Mapping[int, int]) -> None:
        """Write, in the place of every key that has one, the stream of the key that it is mapped to."""
        torch.cuda.current_stream(self._table.device).synchronize()  # the copy before may still read what is staged
        for key, at in self._places.items():
            self._staged[at] = stream_word(keys.get(key, key))  # a kernel that draws nothing has key 0
        count = len(self._places)
        self._table[:count].copy_(self._staged[:count], non_blocking=True)
