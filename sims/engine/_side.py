"""The second thread of a rank, which converts the rows of background exchanges beside the rank's own compute.

It does one conversion after the other, as the helper thread of a real rank does. Its operators share the rank's cores
(of a GPU: the device) with the rank's own operators: both are slower while both are busy, by the device's factor
`overlap.background`. Where ranks share the cores of a host, the thread is one more that wants some. A GPU's kernels
leave room while it waits for launches. The slowdown of compute beside communication is not applied to the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import simpy

from harness.effects import Background
from sims.device import Work
from sims.engine._clock import SimClock
from sims.engine._cores import Cores
from sims.engine._ledger import Ledger
from sims.engine._observer import Observer, listeners_of
from sims.engine._pending_effects import PendingEffect, PendingEffects, SimProcess

T = TypeVar("T")


class SideMeter:
    """Implements the ledger's meter: seconds and launches of one conversion."""

    def __init__(self, paused: bool) -> None:
        self.paused, self.kind = paused, "codec"
        self.seconds, self.launches = 0.0, 0.0

    def charge(self, seconds: float, launches: float = 1) -> None:
        """Add device seconds."""
        self.seconds += seconds
        self.launches += launches


class SideThread:
    """The second thread of one rank.

    Args:
        cores: shared with the rank's own compute.
        launch_s: host seconds per operator, concurrent with the device's; 0 for CPUs.
        pace: returns the factor on the next conversion (see `sims.cluster`); None for 1.
    """

    def __init__(
        self,
        rank: int,
        effects: PendingEffects,
        ledger: Ledger,
        cores: Cores,
        *,
        launch_s: float,
        pace: Callable[[], float] | None,
        observers: Sequence[Observer],
    ) -> None:
        self.rank, self.effects, self.ledger, self.cores = rank, effects, ledger, cores
        self.clock: SimClock = effects.clocks[rank]
        self._launch_s, self._pace = launch_s, pace
        self._turn = simpy.Resource(effects.env)
        self._converting = listeners_of(rank, observers, Observer.converting)
        self._converted = listeners_of(rank, observers, Observer.converted)

    def begin(self, effect: Background) -> PendingEffect:
        """Begin a background exchange. Raises ProgramError as `PendingEffects.begin`."""
        meter, payload = self._run(effect, False, effect.conversion.encode)
        exchange = self.effects.begin(self.rank, effect.with_payload(payload), later=True)
        pending = PendingEffect(effect, exchange.process, 0, self.clock.busy())
        pending.process = self._carry_out(pending, effect, exchange, meter)
        return pending

    def _carry_out(
        self, pending: PendingEffect, effect: Background, exchange: PendingEffect, meter: SideMeter
    ) -> SimProcess:
        """Encode, exchange, decode: the process beside the rank's own."""
        spent, taken = self.effects.transport.hidden_seconds(self.rank, exchange.effect)
        if taken and not meter.paused:
            self.clock.charge_host(taken)
        yield from self._elapse(effect, meter, 0.0 if meter.paused else spent)
        received = yield from exchange.process
        self.effects.deliver(self.rank, exchange, received)
        del exchange  # the payload has been sent
        meter, rows = self._run(effect, True, partial(effect.conversion.decode, received))
        del received
        yield from self._elapse(effect, meter, 0.0)
        pending.busy_at_end = self.clock.busy()
        return rows

    def _run(self, effect: Background, received: bool, convert: Callable[[], T]) -> tuple[SideMeter, T]:
        """Run a conversion under the ledger; what it is charged, and its result."""
        meter = SideMeter(self.clock.paused)
        charged = [partial(_without_component, partial(notify, effect, received)) for notify in self._converting]
        with self.ledger.aside(meter, charged):
            return meter, convert()

    def _elapse(self, effect: Background, meter: SideMeter, start_s: float) -> SimProcess:
        """Let a conversion elapse, after those that came before, and then `start_s` of the exchange's software."""
        launch = self._launch_s * meter.launches
        seconds = max(meter.seconds, launch)
        if not seconds and not start_s:
            return
        scale = 1.0 if self._pace is None else self._pace()
        with self._turn.request() as turn:
            yield turn
            start = self.effects.env.now
            if seconds:
                yield self.cores.job(seconds * scale, meter.seconds / seconds)
            if start_s:
                yield self.effects.env.timeout(start_s) if self._launch_s else self.cores.software(start_s)
            for notify in self._converted:
                notify(effect, start, self.effects.env.now)


def _without_component(notify: Callable[[Work, float], None], component: str, work: Work, seconds: float) -> None:
    notify(work, seconds)
