"""Steps one rank program from effect to effect, and reports an author's mistakes with their place.

A trampoline, shared by all drivers: it interprets no effects. It also detects coroutines that were called but never
awaited, about which Python only warns.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.effects import Effect, EffectName
from harness.errors import HaloscopeError, ProgramError
from harness.rank import Rank

Program = Callable[[Rank], Coroutine[Any, Any, Any]]


class Finished:
    """Marks that a program returned, with its value."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Stepper:
    """One rank's running program: `step` runs it to its next effect or to its end.

    Attributes:
        last: the effect in which the program waits; None while it runs, so that it alone refers to its tensors.
        done: whether it has returned or failed.
    """

    def __init__(self, rank: Rank, program: Program) -> None:
        self.rank = rank
        self.coroutine = program(rank)
        if not isinstance(self.coroutine, Coroutine):
            raise ProgramError(f"rank {rank.index}: the rank program {program!r} is not an async function")
        self.last: Effect | None = None
        self.done = False
        self._after: EffectName | None = None  # of `last`, or before it
        # A program may suspend inside `torch.no_grad()`: the mode belongs to its rank, not to the thread.
        self._grad_enabled = torch.is_grad_enabled()

    def step(self, results: list[Any] | None = None) -> Effect | Finished:
        """Resume the program, which takes the last effect's result out of `results` (at first: None).

        Raises its errors, with rank, epoch and effect added.
        """
        self.last = None
        with _unawaited() as slips, self._own_grad_mode():
            try:
                effect = self.coroutine.send(results)
            except StopIteration as stop:
                self.done = True
                self._refuse(slips)
                self.rank.finished()
                return Finished(stop.value)
            except BaseException as error:
                self.done = True
                error.add_note(self.where())
                raise
        self._refuse(slips)
        if not isinstance(effect, Effect):
            raise ProgramError(f"{self.where()}: awaited a {type(effect).__name__}, which is not an effect")
        self.last, self._after = effect, effect.name
        self.rank.issued(effect)
        return effect

    @contextmanager
    def _own_grad_mode(self) -> Iterator[None]:
        with torch.set_grad_enabled(self._grad_enabled):
            yield
            self._grad_enabled = torch.is_grad_enabled()

    def close(self) -> None:
        """End a program that will not be stepped again, without a warning."""
        self.done = True
        self.coroutine.close()

    def where(self) -> str:
        """Rank, epoch and last effect, for messages."""
        last = f"after {self._after}" if self._after is not None else "before its first effect"
        return f"on rank {self.rank.index} of {self.rank.size}, epoch {self.rank.epoch}, {last}"

    def _refuse(self, mistakes: list[warnings.WarningMessage]) -> None:
        for warning in mistakes:
            place = f"{warning.filename}:{warning.lineno}"
            raise ProgramError(f"{self.where()}: a forgotten await near {place}: {warning.message}")


@contextmanager
def _unawaited() -> Iterator[list[warnings.WarningMessage]]:
    """Collect 'never awaited' warnings; every other warning is passed on unchanged."""
    slips: list[warnings.WarningMessage] = []
    previous = warnings.showwarning

    def show(message: Any, category: type[Warning], filename: str, lineno: int, *rest: Any) -> None:
        if "never awaited" in str(message):
            slips.append(warnings.WarningMessage(message, category, filename, lineno))
        else:
            previous(message, category, filename, lineno, *rest)

    with warnings.catch_warnings():
        warnings.filterwarnings("always", message=".*never awaited", category=RuntimeWarning)
        warnings.showwarning = show  # type: ignore[assignment]  # the signature differs in its defaults only
        yield slips


def blame(error: BaseException) -> str:
    """One line for an error that left a rank program: its text and the notes the stepper added."""
    text = str(error) if isinstance(error, HaloscopeError) else f"{type(error).__name__}: {error}"
    return "; ".join([text, *getattr(error, "__notes__", [])])
