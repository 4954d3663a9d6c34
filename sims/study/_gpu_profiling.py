"""Times the operators of real training on this machine's first GPU, for the costs that the ledger charges.

Small full-graph training runs of one rank in this process. Every operator is timed by two events on the stream, with
all the kernels that it launches. Before an epoch the GPU copies for so long that the host has launched the whole epoch
by the end of it: what is timed is the device, with tensors allocated, freed and cached as in training. An epoch in
which the host was not that far ahead is not counted, and the next one begins with a longer copy.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from harness import loopback, running
from harness.config import RunConfig
from harness.errors import HaloscopeError
from harness.rank import NoClock, Rank
from harness.running import program
from sims.device import Operator, OperatorCost, Work, tensors_of
from sims.study._profiling import SKIPPED_EPOCHS, Observed
from sims.units import fitted

AHEAD = 64 << 20
"""Elements, fp32, of one copy: about 0.2 ms on a GPU of 3 TB/s."""

FIRST_COPIES, MOST_COPIES = 100, 400
"""Copies before an epoch: twice as many each time the host was too slow. A queue takes about a thousand launches, and a
host that waits for room in it is not ahead."""

Stamped = tuple[Work, float, torch.cuda.Event, torch.cuda.Event]
"""An operator's work, its host seconds, and the events around it."""


class GpuObserved:
    """Measurements of a GPU: of the device as `Observed`, and operator -> host seconds of its calls."""

    def __init__(self) -> None:
        self.device = Observed()
        self.host: defaultdict[str, list[float]] = defaultdict(list)

    def costs(self) -> dict[str, OperatorCost]:
        """The costs of every operator that was called often enough.

        The host time of a plain operator, which `launch` of a device stands for, is the median of all operators of
        torch; `OperatorCost.host` is what others take beyond that.

        Raises:
            HaloscopeError: the host was never ahead of the GPU for a whole epoch.
        """
        if not self.host:
            raise HaloscopeError("no epoch was timed: the host was never ahead of the GPU; keep the machine idle")
        typical = {name: median(seconds) for name, seconds in self.host.items()}
        plain = median(seconds for name, seconds in typical.items() if "::" not in name)
        return {
            name: replace(cost, host=fitted(max(typical[name] - plain, 0.0)))
            for name, cost in self.device.costs().items()
        }


def observe_gpu(configs: Iterable[RunConfig]) -> GpuObserved:
    """Step every config, of one rank, on the GPU; returns the samples of its operators.

    Raises:
        InputError: as `harness.running.plan_of` and `make_job`.
    """
    found = GpuObserved()
    for config in configs:
        job, _ = running.make_job(running.plan_of(config))
        watch = _Stopwatch(found)

        def make_rank(index: int, watch: _Stopwatch = watch, seed: int = config.training.seed) -> Rank:
            return Rank(index, 1, seed=seed, device="cuda", clock=_EpochClock(watch), deterministic=True, debug=False)

        with watch:
            loopback.run_ranks(program(job), 1, make_rank=make_rank)
    return found


class _EpochClock(NoClock):
    """A rank's clock, which tells the stopwatch where epochs begin and end."""

    def __init__(self, watch: _Stopwatch) -> None:
        self.watch, self.seen = watch, 0

    def begin_epoch(self) -> None:
        """The first epochs, in which kernels are compiled and memory is allocated, are not timed."""
        self.seen += 1
        if self.seen > SKIPPED_EPOCHS:
            self.watch.begin()

    def end_epoch(self) -> dict[str, float]:
        """Close the epoch; returns no seconds, as in every loopback run."""
        self.watch.end()
        return {}


class _Stopwatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Puts every operator that a ledger would charge between two events."""

    def __init__(self, found: GpuObserved) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found, self.copies = found, FIRST_COPIES
        self._room = torch.empty(2, AHEAD, device="cuda")
        self._operators: dict[Any, Operator] = {}
        self._timed: list[Stamped] | None = None
        self._copied = torch.cuda.Event()
        self._tick = self._between_nothing()

    def begin(self) -> None:
        """Time operators from now on, behind the copies."""
        torch.cuda.synchronize()
        for _ in range(self.copies):
            self._room[0].copy_(self._room[1])
        self._copied.record()
        self._timed = []

    def end(self) -> None:
        """Take over the times of the epoch, if the host was ahead until here."""
        timed, self._timed = self._timed, None
        if timed is None:
            return
        late = self._copied.query()
        torch.cuda.synchronize()
        if late:
            self.copies = min(2 * self.copies, MOST_COPIES)
            return
        for work, host, begin, end in timed:
            self.found.host[work.name].append(host)
            if not work.empty:  # others launch nothing
                seconds = max(begin.elapsed_time(end) * 1e-3 - self._tick, 0.0)
                self.found.device.samples[work.name][replace(work, fresh=0)].append(seconds)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operator = self._operators.get(func)
        if operator is None:
            operator = self._operators[func] = Operator(func)
        if self._timed is None or operator.free:
            return func(*args, **(kwargs or {}))
        begin, end = _marks()
        begin.record()
        called = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        host = time.perf_counter() - called
        end.record()
        inputs = tensors_of((*args, *kwargs.values()) if kwargs else args)
        outputs = (
            [result] if isinstance(result, Tensor) else tensors_of(result if type(result) in (list, tuple) else ())
        )
        self._timed.append((operator.work(args, inputs, outputs), host, begin, end))
        return result

    def _between_nothing(self) -> float:
        """Seconds between two events with nothing in between, while the host is ahead."""
        for _ in range(FIRST_COPIES):
            self._room[0].copy_(self._room[1])
        pairs = [_marks() for _ in range(50)]
        for begin, end in pairs:
            begin.record()
            end.record()
        torch.cuda.synchronize()
        return median(float(begin.elapsed_time(end)) * 1e-3 for begin, end in pairs)


def _marks() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
