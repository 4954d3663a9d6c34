"""The in-process driver: all ranks in one thread, communication by direct copy, no clock.

For unit tests, for P = 1 and for fast accuracy studies. Ranks run in turn until each is blocked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from harness.effects import Background, Effect, Handle, HostCopy, Start, Wait
from harness.errors import ProgramError
from harness.rank import Rank
from harness.rendezvous import Meeting, Rendezvous
from harness.trampoline import Finished, Program, Stepper


def run_ranks(
    program: Program,
    size: int,
    *,
    make_rank: Callable[[int], Rank] | None = None,
    seed: int = 0,
    order: Sequence[int] | None = None,
) -> list[Any]:
    """Run `program` on `size` ranks; returns their results in rank order.

    `order` is the order in which ranks begin, by default that of their numbers.

    Raises:
        ProgramError: deadlock, mismatch or forgotten await, with rank, file, line, label and epoch.
        Exception: any exception that a rank raises, with rank and epoch added as a note.
    """
    ranks = [make_rank(i) if make_rank else Rank(i, size, seed=seed) for i in range(size)]
    return _Loopback(ranks, program, range(size) if order is None else order).run()


class _Loopback:
    def __init__(self, ranks: list[Rank], program: Program, order: Sequence[int]) -> None:
        self.rendezvous = Rendezvous(len(ranks))
        self.steppers = [Stepper(rank, program) for rank in ranks]
        self.results: dict[int, Any] = {}
        self.ready: deque[tuple[int, list[Any] | None]] = deque((r, None) for r in order)
        self.blocked: dict[int, Meeting] = {}

    def run(self) -> list[Any]:
        try:
            while self.ready:
                self._advance(*self.ready.popleft())
            if len(self.results) < len(self.steppers):
                raise ProgramError(f"deadlock: {self.rendezvous.explain(set(self.results))}")
        finally:
            for stepper in self.steppers:
                stepper.close()
        return [self.results[rank] for rank in range(len(self.steppers))]

    def _advance(self, rank: int, results: list[Any] | None) -> None:
        """Run one rank until it is blocked or done."""
        while True:
            effect = self.steppers[rank].step(results)
            if isinstance(effect, Finished):
                self.results[rank] = effect.value
                return
            if isinstance(effect, Start):
                handle = Handle(effect.effect)
                handle.driver_state = self._post(rank, effect.effect)
                results = [handle]
                del handle
            else:
                state = effect.handle.driver_state if isinstance(effect, Wait) else self._post(rank, effect)
                if state.results is None:
                    self.blocked[rank] = state
                    return
                results = [_result(effect, state.results.pop(rank))]
                del state
            del effect

    def _post(self, rank: int, effect: Effect) -> Meeting:
        if isinstance(effect, HostCopy):
            return Meeting.alone(rank, effect.tensor)
        if isinstance(effect, Background):
            effect = effect.with_payload(effect.conversion.encode())
        meeting = self.rendezvous.post(rank, effect)
        if meeting.results is not None:
            for other in [r for r, m in self.blocked.items() if m is meeting]:
                del self.blocked[other]
                self.ready.append((other, [_result(self.steppers[other].last, meeting.results.pop(other))]))
        return meeting


def _result(effect: Effect | None, received: Any) -> Any:
    """The result of an effect from what was received."""
    if isinstance(effect, Wait) and isinstance(effect.handle.effect, Background):
        return effect.handle.effect.conversion.decode(received)
    return received
