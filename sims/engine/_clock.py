"""The modelled clock of one rank: its seconds by component, which sum exactly to the epoch.

Compute that the ledger charges accumulates in a stretch until the next effect (or the end of the epoch). The duration
of a stretch is the larger of the device's busy time and, on a GPU, the host's time for launches and for the program
around effects. It is booked when the stretch is closed and elapses on SimPy's clock at the next effect; waiting is
booked by the driver when it is over.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import simpy

from harness.effects import Component
from harness.rank import COMPONENTS
from harness.static_epochs import BEFORE_RECORDING
from sims.device import LiveMemory
from sims.engine._cores import CoreJob, Cores
from sims.engine._idle_core import IdleCore

NEGLIGIBLE = 1e-12
"""Share of a stretch that rounding may leave over."""


class SimClock:
    """Implements `harness.rank.Clock`.

    Args:
        launch_s: host seconds per operator, concurrent with the device's; 0 for CPUs, which have no launches.
        effect_s: seconds of the program around every effect, of the host on a GPU.
        step_s: the same beside operators and effects, in every epoch.
        graph_s: the same where epochs are recorded as CUDA graphs, which spares the host its launches; None where they
            are not.
        overlap: factor on the time of compute while an effect of this rank is in flight.
        pace: returns the factor on the next stretch of compute (see `sims.cluster`); None for 1.
        taking_turns: ranks whose operators take turns on the device.
        cores: the cores that the rank shares with others; None where it has its own.
        own: the rank's own core, if idling costs it anything.
        epoch_began, epoch_ended: callbacks of those hooks for this rank (see `Observer`).

    Attributes:
        paused: whether nothing is booked (evaluation).
        kind: the component that compute is booked under now.
        first_alike: the epoch from which on equal epochs cost equally: 0, or the first in which graphs are launched.
        blocked: label of effects -> seconds that the rank waited for them in the last epoch that has ended.
    """

    def __init__(
        self,
        env: simpy.Environment,
        memory: LiveMemory,
        *,
        launch_s: float = 0.0,
        effect_s: float = 0.0,
        step_s: float = 0.0,
        graph_s: float | None = None,
        overlap: float = 1.0,
        pace: Callable[[], float] | None = None,
        taking_turns: int = 1,
        cores: Cores | None = None,
        own: IdleCore | None = None,
        epoch_began: Sequence[Callable[[float], None]] = (),
        epoch_ended: Sequence[Callable[[dict[str, float]], None]] = (),
    ) -> None:
        self.env, self.memory = env, memory
        self.paused, self.kind = False, "compute"
        self._launch_s, self._overlap, self._pace, self._cores = launch_s, overlap, pace, cores
        self._own, self._worked_until, self._taking_turns = own, 0.0, taking_turns
        self._effect_s, self._step_s, self._graph_s, self._epochs = effect_s, step_s, graph_s, 0
        self.first_alike, self._replays = 0 if graph_s is None else BEFORE_RECORDING + 1, False
        self._epoch_began, self._epoch_ended = epoch_began, epoch_ended
        self._booked = dict.fromkeys(COMPONENTS, 0.0)
        self._hidden = 0.0
        self.blocked: dict[str, float] = {}
        self._blocked: dict[str, float] = {}  # the same of the epoch that runs
        self._device: dict[str, float] = {}  # of the open stretch: component -> seconds of the device
        self._launches: dict[str, float] = {}  # and component -> launches of operators
        self._host: dict[str, float] = {}  # and component -> seconds of the host beside those of its launches
        self._pending: dict[str, float] = {}
        # component and device seconds in order, on shared cores only: charged, and those that elapse now
        self._charged_runs, self._runs = list[tuple[str, float]](), list[tuple[str, float]]()
        self._on_device = 0.0  # of the pending seconds, those in which the device works
        self._busy = 0.0  # compute seconds that have elapsed, without the stretch that elapses now
        self._busy_since: float | None = None
        self._load = 1.0  # share of the device that the compute that elapses now uses
        self._after: tuple[str, str] | None = None  # component and label of the effect that has just ended
        self._in_flight = 0
        self._none_in_flight: simpy.Event | None = None

    # -- for programs ----------------------------------------------------------------------------------------------

    def begin_epoch(self) -> None:
        """Start an epoch at zero. Compute that was charged before still elapses, outside the epoch."""
        self._close_stretch()
        for notify in self._epoch_began:
            notify(self.env.now)
        self._booked = dict.fromkeys(COMPONENTS, 0.0)
        self._hidden, self._blocked = 0.0, {}
        self._replays = self._graph_s is not None and self._epochs >= self.first_alike
        self._epochs += 1
        self.memory.begin_epoch()

    def end_epoch(self) -> dict[str, float]:
        """Seconds by component since `begin_epoch`, their sum `epoch`, and `hidden` beside it."""
        if self._step_s:
            self.charge_host(self._step_s)
        self._close_stretch()
        seconds = {**self._booked, "hidden": self._hidden, "epoch": sum(self._booked.values())}
        self.blocked, self._blocked = self._blocked, {}
        for notify in self._epoch_ended:
            notify(seconds)
        return seconds

    def repeat_epoch(self, seconds: dict[str, float], blocked: dict[str, float]) -> None:
        """Book what `end_epoch` returned for another epoch, and its `blocked`, instead of what is booked; no simulated
        time passes."""
        self._close_stretch()
        self._booked = {kind: seconds[kind] for kind in COMPONENTS}
        self._hidden, self._blocked = seconds["hidden"], blocked

    @contextmanager
    def span(self, kind: Component) -> Iterator[None]:
        """Book the compute inside under `kind`."""
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

    @property
    def shared(self) -> bool:
        """Whether the rank shares cores with others: what it does next then depends on who has them."""
        return self._cores is not None

    def begins_at(self) -> float:
        """When what comes next begins: now, or when the compute that was charged before has elapsed."""
        return self.env.now + sum(self._pending.values())

    def charge(self, seconds: float, launches: float = 1, *, ran: bool = True) -> None:
        """Add device seconds of operators that the rank has called; no simulated time passes here.

        Args:
            launches: the host time of the operators, as a multiple of that of one.
            ran: whether they ran after all that was charged before; if not, `ran` is called for them.
        """
        if ran:
            self.ran(self.kind, seconds)
        if not self.paused:
            self._device[self.kind] = self._device.get(self.kind, 0.0) + seconds * self._taking_turns
            self._launches[self.kind] = self._launches.get(self.kind, 0) + (0 if self._replays else launches)

    def ran(self, component: str, seconds: float) -> None:
        """Record that operators of a component ran next, for device seconds that are charged apart."""
        if self._cores is not None and not self.paused:
            self._charged_runs.append((component, seconds))

    def charge_effect(self) -> None:
        """Add what the program itself takes around an effect."""
        seconds = self._graph_s if self._replays and self._graph_s is not None else self._effect_s
        if seconds:
            self.charge_host(seconds)

    def charge_host(self, seconds: float) -> None:
        """Add host seconds of the program itself, as compute: on a GPU concurrent with the device, as launches are,
        else added to it. What surrounds an effect is no part of the span that the effect is in."""
        before, self.kind = self.kind, "compute"
        if not self._launch_s:
            self.charge(seconds, 0)
        elif not self.paused:
            self.charge(0.0, 0)
            self._host[self.kind] = self._host.get(self.kind, 0.0) + seconds
        self.kind = before

    def share(self, cores: Cores) -> None:
        """Share cores with others from now on."""
        self._cores, self._own = cores, None

    def take_pending(self) -> dict[str, float]:
        """Compute that has not elapsed on the environment's clock yet, by component, in order of first charge."""
        self._close_stretch()
        pending, self._pending = self._pending, {}
        self._runs, self._charged_runs = self._charged_runs, []
        return pending

    def add_software(self, pending: dict[str, float], seconds: float, component: str, label: str) -> None:
        """Add software of the effect that comes next, of this label, to the compute before it; booked to the effect.
        It was measured among ranks that shared cores, and does not take longer because they do."""
        if seconds:
            seconds /= 1.0 if self._cores is None else self._cores.longer
            pending[component] = pending.get(component, 0.0) + seconds
            self._runs.append((component, seconds))
            self._booked[component] += seconds
            self._blocked[label] = self._blocked.get(label, 0.0) + seconds

    def work(self, pending: dict[str, float]) -> Generator[simpy.Event, Any, tuple[float, dict[str, float]]]:
        """Let compute elapse; returns the seconds before it began, and those that each component then took with what
        effects in flight, busy cores or cores that had idled slowed it. Books both: what it waited for a core to an
        effect that had just ended, and a pause in which another rank had its core to the component that ran then."""
        begin = self._busy_since = self.env.now
        total = sum(pending.values())
        left = total + self._longer_after_idling(total)
        self._load = min(1.0, self._on_device / total) if self._launch_s else 1.0
        self._on_device = 0.0
        first: simpy.Event | None = None
        if self._in_flight and self._overlap > 1:
            self._none_in_flight, first = self.env.event(), self._pass(left * self._overlap)
            yield first | self._none_in_flight
            if first.processed or (isinstance(first, CoreJob) and first.triggered):
                left = 0.0
            elif isinstance(first, CoreJob):
                assert self._cores is not None
                left = self._cores.leave(first) / self._overlap
            else:
                left -= (self.env.now - begin) / self._overlap
        if left > NEGLIGIBLE * total:
            last = self._pass(left)
            first = first or last
            yield last
        self._none_in_flight = None
        self._busy += self.env.now - begin
        self._worked_until = self.env.now
        self._busy_since = None
        waited = self._wait_for_core(first, begin)
        pauses = self._pauses_of(first)
        factor = (self.env.now - begin - waited - sum(pauses.values())) / total
        taken = {kind: seconds * factor + pauses.get(kind, 0.0) for kind, seconds in pending.items()}
        if self._overlap > 1 or self._cores is not None or self._own is not None:
            for kind, seconds in pending.items():
                self._booked[kind] += seconds * (factor - 1) + pauses.get(kind, 0.0)
        return waited, taken

    def _pauses_of(self, job: simpy.Event | None) -> dict[str, float]:
        """Seconds in which others had the core of a job that had begun, by the component that it was in."""
        found: dict[str, float] = {}
        if not isinstance(job, CoreJob) or not job.pauses or not self._runs:
            return found
        ends = list(itertools.accumulate(seconds for _, seconds in self._runs))
        for done, seconds in job.pauses:
            at = bisect.bisect_right(ends, done / job.work * ends[-1])
            kind = self._runs[min(at, len(ends) - 1)][0]
            found[kind] = found.get(kind, 0.0) + seconds
        return found

    def spend(self, seconds: float, component: str, label: str) -> Generator[simpy.Event, Any, None]:
        """Let software of an effect elapse, which a CPU's cores run; books it to the effect, with waits for a core."""
        before = self.env.now
        yield self.env.timeout(seconds) if self._cores is None or self._launch_s else self._cores.software(seconds)
        self.block(component, label, self.env.now - before)

    def _longer_after_idling(self, seconds: float) -> float:
        """By how much the rank's own core takes longer for what begins now, since it has idled."""
        if self._own is None:
            return 0.0
        self._own.idled(self.env.now - self._worked_until)
        return self._own.longer(seconds)

    def _wait_for_core(self, job: simpy.Event | None, begin: float) -> float:
        """Seconds until a job first ran, booked to the effect that had just ended: a rank that cannot run has not
        returned from it. 0 where there was none."""
        if self._after is None or not isinstance(job, CoreJob):
            return 0.0
        waited = (self.env.now if job.begun is None else job.begun) - begin
        if waited > 0:
            self.block(*self._after, waited)
        return waited

    def _pass(self, seconds: float) -> simpy.Event:
        return self.env.timeout(seconds) if self._cores is None else self._cores.job(seconds, self._load)

    def effect_began(self) -> float:
        """An effect of this rank began; returns `busy`."""
        self._in_flight += 1
        return self.busy()

    def effect_ended(self) -> float:
        """An effect of this rank ended; returns `busy`."""
        self._in_flight -= 1
        if not self._in_flight and self._none_in_flight is not None:
            self._none_in_flight.succeed()
            self._none_in_flight = None
        return self.busy()

    def busy(self) -> float:
        """Compute seconds that have elapsed on the environment's clock up to now."""
        return self._busy + (0.0 if self._busy_since is None else self.env.now - self._busy_since)

    def block(self, component: str, label: str, seconds: float) -> None:
        """Seconds that the rank waited for an effect of this label."""
        self._after = component, label
        if not self.paused:
            self._booked[component] += seconds
            self._blocked[label] = self._blocked.get(label, 0.0) + seconds

    def hide(self, seconds: float) -> None:
        """Seconds that a started effect ran behind compute."""
        if not self.paused:
            self._hidden += seconds

    def _close_stretch(self) -> None:
        """Book the open stretch; its time elapses at the next effect."""
        if not self._device:
            return
        busy = sum(self._device.values())
        launch = self._launch_s * sum(self._launches.values()) + sum(self._host.values())
        scale = 1.0 if self._pace is None else self._pace()
        for kind, seconds in self._device.items():
            if launch > busy:
                seconds = self._launch_s * self._launches[kind] + self._host.get(kind, 0.0)
            self._booked[kind] += seconds * scale
            self._pending[kind] = self._pending.get(kind, 0.0) + seconds * scale
        self._on_device += busy * scale
        self._device, self._launches, self._host = {}, {}, {}
