"""Times the operators of real training on this machine, for the costs that the ledger charges.

Small training runs in one process (no network) are stepped with and without a timer around every operator. The timed
run gives the costs by operator, the difference the overhead of Python around them. Tensors are allocated, freed and
cached as in training, unlike in a loop over one operator.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, is_dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from harness import loopback, running
from harness.config import RunConfig
from harness.graphs import Block
from harness.nn import aggregate
from harness.rank import NoClock, Rank
from harness.running import program
from sims.device import Operator, OperatorCost, Work, fit_cost, tensors_of

SKIPPED_EPOCHS = 2
"""First epochs, in which operators are loaded and compiled and memory is allocated."""

FEWEST = 3
"""Calls of an operator below which it is not fitted."""

SCALES = np.asarray([1e-4, 1e-5, 1e-4, 1e-10])
"""Rough overhead of an epoch, an operator, an effect and a byte, in seconds: scales the columns of the fit."""


@dataclass(frozen=True)
class Epoch:
    """One rank's typical epoch: operators, effects, bytes of new tensors, and seconds in all and in operators."""

    operators: int
    effects: int
    fresh: int
    seconds: float
    inside: float


@dataclass(eq=False)
class Observed:
    """Measurements: operator -> distinct work -> seconds of its calls, and the typical epoch of every run."""

    samples: dict[str, dict[Work, list[float]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    epochs: list[Epoch] = field(default_factory=list)

    def costs(self) -> dict[str, OperatorCost]:
        """The costs of every operator that was called often enough."""
        often = {name: calls for name, calls in self.samples.items() if sum(map(len, calls.values())) >= FEWEST}
        return {name: fit_cost(calls) for name, calls in sorted(often.items())}

    def overheads(self) -> tuple[float, float, float, float]:
        """What an epoch takes beside its operators: seconds in any case, per operator, per effect, and per byte of new
        tensors.

        These are the optimiser and records of every epoch, Python, autograd and the program between operators, and
        memory that is returned to the system.
        """
        from scipy.optimize import nnls  # slow to import, and only calibration fits

        design = np.asarray([[1, e.operators, e.effects, e.fresh] for e in self.epochs], np.float64)
        outside = np.asarray([max(0.0, e.seconds - e.inside) for e in self.epochs])
        weight = 1 / np.asarray([e.seconds for e in self.epochs])
        step, launch, effect, byte = nnls(design * weight[:, None] * SCALES, outside * weight)[0] * SCALES
        return float(step), float(launch), float(effect), float(byte)


def observe(configs: Iterable[RunConfig], found: Observed | None = None) -> Observed:
    """Step every config in this process twice: without and with timers around operators.

    Raises:
        InputError: as `harness.running.plan_of` and `make_job`.
    """
    found = found or Observed()
    for config in configs:
        plain, watched = _Meter(_clock(config)), _Meter(_clock(config))
        with running.cpu_threads(max(1, config.run.threads)):
            _step(config, plain, nullcontext())
            watch = _Stopwatch(watched, found)
            _step(config, watched, watch)
        if plain.spent and watch.inside:
            count = len(watch.inside)
            sizes = (watch.calls // count, plain.effects // len(plain.spent), watch.fresh // count)
            found.epochs.append(Epoch(*sizes, median(plain.spent.values()), median(watch.inside.values())))
    return found


def observe_idling(config: RunConfig, waits: Sequence[float]) -> list[Epoch]:
    """A rank's typical epoch of a config without the timers around operators, by how many seconds it waits at every
    effect; these seconds are not counted.

    Raises:
        InputError: as `observe`.
    """
    return [_unwatched(config, wait) for wait in waits]


def _unwatched(config: RunConfig, wait: float = 0.0) -> Epoch:
    meter = _Meter(_clock(config), wait)
    with running.cpu_threads(max(1, config.run.threads)):
        _step(config, meter, nullcontext())
    return Epoch(0, meter.effects // len(meter.spent), 0, median(meter.spent.values()), 0.0)


def observe_blocks(config: RunConfig, found: Observed | None = None, repeats: int = 5) -> Observed:
    """Time neighbour sums on the blocks that the ranks of a config hold, forwards and transposed.

    Their cost depends on degrees and on the locality of rows, not on sizes alone.

    Raises:
        InputError: as `harness.running.plan_of` and `make_job`.
    """
    found = found or Observed()
    job, prepared = running.make_job(running.plan_of(config))
    widths = {config.model.hidden, prepared.totals.num_classes}
    meter = _Meter(_clock(config))
    with running.cpu_threads(max(1, config.run.threads)), _Stopwatch(meter, found):
        for rank in range(config.cut.parts):
            blocks = [block for block in _blocks(job.parts.training(rank)) if block.nnz]
            rows = {(b, w): torch.ones(blocks[b].num_cols, w) for b in range(len(blocks)) for w in widths}
            grads = {(b, w): torch.ones(blocks[b].num_rows, w) for b in range(len(blocks)) for w in widths}
            for repeat in range(repeats + 1):
                meter.at = (rank, repeat) if repeat else None
                for (b, w), x in rows.items():
                    out = aggregate(blocks[b], x.requires_grad_())
                    torch.autograd.grad(out, x, grads[b, w])
    return found


def _clock(config: RunConfig) -> Callable[[], float]:
    """The clock of a rank's work: with one thread its processor time, which other work on the machine does not
    interrupt."""
    return time.thread_time if config.run.threads <= 1 else time.perf_counter


def _tick(clock: Callable[[], float]) -> float:
    """Seconds between two calls of a clock, which are part of what it measures: microseconds where it asks the
    system."""
    return median(-(clock() - clock()) for _ in range(99))


def _blocks(part: Any) -> list[Block]:
    """Every sparse block that a part holds, whatever kind of cut made it."""
    if isinstance(part, Block):
        return [part]
    if not is_dataclass(part):
        return []
    return [block for f in fields(part) for block in _blocks(getattr(part, f.name))]


def _step(config: RunConfig, meter: _Meter, watch: AbstractContextManager[Any]) -> None:
    """Run all ranks of a config in this process."""
    job, _ = running.make_job(running.plan_of(config))
    inner = program(job)

    def timed(rank: Rank) -> Awaitable[Any]:
        return _Timed(inner(rank), meter)

    def make_rank(index: int) -> Rank:
        clock = _EpochClock(meter, index)
        return Rank(
            index,
            config.cut.parts,
            seed=config.training.seed,
            clock=clock,
            deterministic=config.run.deterministic,
            debug=False,
        )

    async def run(rank: Rank) -> Any:
        return await timed(rank)

    with watch:
        loopback.run_ranks(run, config.cut.parts, make_rank=make_rank)


@dataclass(eq=False)
class _Meter:
    """Seconds that ranks spent in counted epochs, without the time that the driver spent on effects.

    Attributes:
        clock: returns seconds.
        wait: seconds for which ranks sleep at every effect of these epochs.
        spent: (rank, epoch) -> seconds.
        at: the rank and epoch that run now; None if nothing is counted.
    """

    clock: Callable[[], float]
    wait: float = 0.0
    spent: dict[tuple[int, int], float] = field(default_factory=lambda: defaultdict(float))
    at: tuple[int, int] | None = None
    effects: int = 0
    since: float = 0.0

    def switch(self, at: tuple[int, int] | None) -> None:
        """Count for another rank and epoch from now on, or for none."""
        moment = self.clock()
        if self.at is not None:
            self.spent[self.at] += moment - self.since
        self.at, self.since = at, moment


class _EpochClock(NoClock):
    """A rank's clock, which switches the meter to the epochs that are counted."""

    def __init__(self, meter: _Meter, rank: int) -> None:
        self.meter, self.rank, self.seen = meter, rank, 0

    def begin_epoch(self) -> None:
        """The first epochs are not counted."""
        self.seen += 1
        self.meter.switch((self.rank, self.seen) if self.seen > SKIPPED_EPOCHS else None)

    def end_epoch(self) -> dict[str, float]:
        """Close the epoch; returns no seconds, as in every loopback run."""
        self.meter.switch(None)
        return {}


class _Timed:
    """A rank's program that stops the meter whenever it yields an effect to the driver, and waits then if asked to."""

    def __init__(self, program: Awaitable[Any], meter: _Meter) -> None:
        self.program, self.meter = program, meter

    def __await__(self) -> Generator[Any, Any, Any]:
        steps, results, mine = self.program.__await__(), None, None
        while True:
            self.meter.switch(mine)
            try:
                effect = steps.send(results)
            except StopIteration as end:
                return end.value
            mine = self.meter.at
            self.meter.effects += mine is not None
            self.meter.switch(None)
            if mine is not None and self.meter.wait:
                time.sleep(self.meter.wait)
            results = yield effect


class _Stopwatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Times every operator that a ledger would charge."""

    def __init__(self, meter: _Meter, found: Observed) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.meter, self.found = meter, found
        self.inside: dict[tuple[int, int], float] = defaultdict(float)
        self.calls = self.fresh = 0
        self._tick = _tick(meter.clock)
        self._operators: dict[Any, Operator] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        clock = self.meter.clock
        begin = clock()
        result = func(*args, **(kwargs or {}))
        seconds = max(clock() - begin - self._tick, 0.0)
        at = self.meter.at
        if at is None:
            return result
        operator = self._operators.get(func)
        if operator is None:
            operator = self._operators[func] = Operator(func)
        if operator.free:
            return result
        inputs = tensors_of((*args, *kwargs.values()) if kwargs else args)
        outputs = (
            [result] if isinstance(result, Tensor) else tensors_of(result if type(result) in (list, tuple) else ())
        )
        work = operator.work(args, inputs, outputs)
        self.found.samples[work.name][work].append(seconds)
        self.inside[at] += seconds
        self.calls += 1
        self.fresh += work.fresh
        return result
