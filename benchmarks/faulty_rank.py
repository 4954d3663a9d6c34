"""One rank of a real run that sends itself a signal in a chosen phase, started by `benchmarks.faults` for every rank.

    python -m benchmarks.faulty_rank PHASE VICTIM SIGNAL FILE -- <arguments of python -m real>

The victim's process has hooks on functions that it calls in that phase; the program itself is unchanged. The time of
the signal (`time.monotonic`) is written to FILE.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import real.__main__
import real.launch._execute
import real.rank._driver
import real.rank.connection
from harness.effects import Effect
from harness.trampoline import Stepper
from real.rank.health import end_process

EPOCH = 2
"""The epoch of the fault, where its phase belongs to an epoch; headers are exchanged one by one in the first."""


def before(
    module: Any, name: str, strike: Callable[[], None], when: Callable[..., bool] = lambda *_, **__: True
) -> None:
    """Strike before the first call of a function for whose arguments `when` holds."""
    original = getattr(module, name)

    def hooked(*args: Any, **kwargs: Any) -> Any:
        if when(*args, **kwargs):
            strike()
        return original(*args, **kwargs)

    setattr(module, name, hooked)


def after_begin(strike: Callable[[], None], when: Callable[[Effect, bool], bool]) -> None:
    """Strike once an exchange is in flight that `when` holds for, given the effect and whether it is off the clock."""
    module, name = real.rank._driver, "start_exchange"
    original = getattr(module, name)

    def hooked(endpoint: Any, effect: Effect) -> Any:
        pending = original(endpoint, effect)
        if when(effect, endpoint.clock._paused):
            strike()
        return pending

    setattr(module, name, hooked)


def computing(stepper: Stepper, answer: object = None) -> bool:
    """Whether the program continues to compute in the middle of the epoch."""
    last, rank = stepper.last, stepper.rank
    return rank.epoch == EPOCH and not rank.paused and last is not None and last.tag.epoch == EPOCH


HOOKS: dict[str, Callable[[Callable[[], None]], None]] = {
    "start-up": lambda strike: before(real.rank.connection, "_meet", strike),
    "preparation": lambda strike: before(real.launch._execute, "make_job", strike),
    "set-up": lambda strike: after_begin(strike, lambda effect, paused: paused and effect.tag.epoch < 0),
    "compute": lambda strike: before(Stepper, "step", strike, computing),
    "exchange": lambda strike: after_begin(
        strike, lambda e, paused: not paused and e.tag.epoch == EPOCH and e.tag.direction == "backward"
    ),
    "reduce": lambda strike: after_begin(
        strike, lambda e, paused: not paused and e.tag.epoch == EPOCH and e.tag.direction == "reduce"
    ),
    "evaluation": lambda strike: after_begin(strike, lambda e, paused: paused and e.tag.epoch == EPOCH),
    "checkpoint": lambda strike: before(os, "fsync", strike),
}
PHASES = tuple(HOOKS)


def main(argv: list[str]) -> int:
    """Arm the victim, then run the rank as `python -m real` does."""
    phase, victim, number, file = argv[:4]

    def strike() -> None:
        Path(file).write_text(repr(time.monotonic()))
        os.kill(os.getpid(), signal.Signals[number])

    if os.environ["RANK"] == victim:
        HOOKS[phase](strike)
    return real.__main__.main(argv[5:])


if __name__ == "__main__":
    end_process(main(sys.argv[1:]))
