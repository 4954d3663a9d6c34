"""The modelled clock of one rank: where its seconds went, exactly, so that the components sum to the epoch.

Compute is booked when the ledger charges it and passes on SimPy's clock at the next effect; waiting is booked by the
driver when it is over. The clock itself waits for nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import simpy

from harness.errors import ProgramError
from harness.rank import COMPONENTS
from sims.memory import LiveMemory


class SimClock:
    """Implements `harness.rank.Clock`.

    Attributes:
        paused: nothing is booked (evaluation).
        kind: the component that compute is booked under now.
    """

    def __init__(self, env: simpy.Environment, memory: LiveMemory) -> None:
        self.env, self.memory = env, memory
        self.paused, self.kind = False, "compute"
        self._booked = dict.fromkeys(COMPONENTS, 0.0)
        self._hidden = 0.0
        self._pending: dict[str, float] = {}
        self._busy = 0.0  # compute seconds that have passed, without the stretch that passes now
        self._busy_since: float | None = None

    # -- for programs ----------------------------------------------------------------------------------------------

    def begin_epoch(self) -> None:
        """Start an epoch at zero. Compute that was charged before still passes, outside the epoch."""
        self._booked = dict.fromkeys(COMPONENTS, 0.0)
        self._hidden = 0.0

    def end_epoch(self) -> dict[str, float]:
        """Seconds by component since `begin_epoch`, their sum `epoch`, and `hidden` beside it."""
        return {**self._booked, "hidden": self._hidden, "epoch": sum(self._booked.values())}

    @contextmanager
    def span(self, kind: str) -> Iterator[None]:
        """Book the compute inside under `kind`."""
        if kind not in COMPONENTS:
            raise ProgramError(f"no such component of time: {kind!r}; known: {', '.join(COMPONENTS)}")
        before, self.kind = self.kind, kind
        try:
            yield
        finally:
            self.kind = before

    def pause(self, paused: bool) -> None:
        """Book nothing while paused."""
        self.paused = paused

    def peak_memory(self) -> int:
        """Peak bytes of this rank."""
        return self.memory.peak

    # -- for the ledger and the driver -----------------------------------------------------------------------------

    def charge(self, seconds: float) -> None:
        """Compute that the rank did just now, in zero time; it passes at the next `take_pending`."""
        if not self.paused:
            self._booked[self.kind] += seconds
            self._pending[self.kind] = self._pending.get(self.kind, 0.0) + seconds

    def take_pending(self) -> dict[str, float]:
        """Compute that has not passed on the environment's clock yet, by component, in order of first charge."""
        pending, self._pending = self._pending, {}
        return pending

    def work(self, seconds: float) -> Generator[simpy.Event, Any, None]:
        """Let compute pass."""
        self._busy_since = self.env.now
        yield self.env.timeout(seconds)
        self._busy += self.env.now - self._busy_since
        self._busy_since = None

    def busy(self) -> float:
        """Compute seconds that have passed on the environment's clock up to now."""
        return self._busy + (0.0 if self._busy_since is None else self.env.now - self._busy_since)

    def block(self, component: str, seconds: float) -> None:
        """Seconds that the rank waited for an effect."""
        if not self.paused:
            self._booked[component] += seconds

    def hide(self, seconds: float) -> None:
        """Seconds that a started effect ran behind compute."""
        if not self.paused:
            self._hidden += seconds
