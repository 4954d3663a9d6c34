"""The simulated driver: the ranks of one run in one process, on modelled clocks, over a modelled network.

Each rank is one SimPy process that steps its program. Tensor operators run inline under the rank's ledger; their cost
elapses on the clock before the next effect. Values come from `harness.rendezvous`, exactly as in the loopback driver,
times from `sims.transport`; neither depends on the other.
"""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import simpy
from simpy.core import EmptySchedule

from harness.effects import Background, Effect, Handle, HostCopy, Start, Wait, component_of
from harness.errors import ProgramError
from harness.kernels.work import CLASSES
from harness.numbers import byte_text
from harness.rank import Rank, random_key
from harness.rendezvous import Rendezvous
from harness.trampoline import Finished, Program, Stepper
from sims.cluster import Placement, Stragglers
from sims.device import DeviceProfile, Fullest, LiveMemory, ShapeMemory, fullest, load_device
from sims.engine._clock import SimClock
from sims.engine._cores import Cores, Turns
from sims.engine._idle_core import IdleCore
from sims.engine._ledger import Ledger, Prices
from sims.engine._observer import Observer, listeners, listeners_of
from sims.engine._pending_effects import PendingEffects, SimProcess
from sims.engine._side import SideThread
from sims.engine._tail import Tail
from sims.transport import Library

COLLECT_AFTER = 50_000
"""New objects after which Python looks for unreachable cycles in a run of shapes only. There is little to be found,
and to go through the objects of a thousand ranks after every 700 new ones takes a tenth of a run's time."""


@dataclass(frozen=True)
class Simulation:
    """The result of a simulated run. Its totals are of the epochs that were simulated; copies of them (see
    `sims.replay.Repeats`) are in the programs' results only.

    Attributes:
        results: the programs' return values in rank order.
        makespan_s: when the last rank returned.
        link_bytes: directed link -> bytes that crossed it, without effects off the clock.
        tiers: kind of link -> bytes sent across it.
        peak_memory: bytes per rank; `memory` is the capacity of each rank's device, and `sharing` the number of that
            device: ranks of the same number share its memory.
        fullest: the rank with the highest share of its device's memory, and what fills it.
        class_seconds: operator class -> seconds of the devices, summed over ranks.
        source_seconds: source of their costs (see `DeviceProfile.source_of`) -> seconds.
        unknown_ops: operator -> calls that were charged by bytes because their kind is unknown.
        network: how exact the network's times are (see `FluidNetwork.facts`).
        tail_s: seconds per rank of computation after the last exchange of the last epoch (see `Tail`).
        blocked_s: label of effects -> seconds that a rank waited for them in the last epoch, mean over ranks.
        skew: coefficient of variation of the graph's degrees by which operators were priced.
    """

    results: list[Any]
    makespan_s: float
    link_bytes: dict[str, int]
    tiers: dict[str, int]
    peak_memory: list[int]
    memory: list[int]
    sharing: list[int]
    fullest: Fullest
    class_seconds: dict[str, float]
    source_seconds: dict[str, float]
    unknown_ops: dict[str, int]
    network: dict[str, float]
    tail_s: list[float]
    blocked_s: dict[str, float]
    skew: float

    @property
    def out_of_memory(self) -> list[int]:
        """Ranks whose device has less memory than its ranks need at their peaks, which they reach at about the same
        time."""
        needed = self._needed()
        return [rank for rank, device in enumerate(self.sharing) if needed[device] > self.memory[rank]]

    @property
    def too_large(self) -> str:
        """Message on these ranks and the fullest of them; empty if all fit."""
        ranks, needed = self.out_of_memory, self._needed()
        if not ranks:
            return ""
        found = f"{'1 rank does' if len(ranks) == 1 else f'{len(ranks)} ranks do'} not fit: "
        rank = max(ranks, key=lambda r: needed[self.sharing[r]] / self.memory[r])
        beside = self.sharing.count(self.sharing[rank])
        if beside > 1:
            found += f"the {beside} ranks that share a device need {byte_text(needed[self.sharing[rank]])}; "
        return f"{found}{self.fullest}"

    def _needed(self) -> Counter[int]:
        """Bytes that the ranks of every device need together."""
        needed = Counter[int]()
        for device, peak in zip(self.sharing, self.peak_memory, strict=True):
            needed[device] += peak
        return needed


def simulate(
    program: Program,
    placement: Placement,
    *,
    seed: int = 0,
    deterministic: bool = True,
    shapes_only: bool = False,
    skew: float = 0.0,
    graphs: bool = False,
    stragglers: Stragglers | None = None,
    library: type[Library] | None = None,
    observers: Sequence[Observer] = (),
) -> Simulation:
    """Run `program` on the ranks that have been placed on a modelled cluster.

    Args:
        seed, deterministic: as for `harness.rank.Rank`.
        shapes_only: tensors are on the meta device.
        skew: coefficient of variation of the graph's degrees, for devices with a cache.
        graphs: epochs are recorded as CUDA graphs, which GPUs launch.
        stragglers: replaces the cluster's own; jitter is drawn from `seed`.
        library: replaces the cluster's own, for ablations.
        observers: notified of what the simulation does.

    Raises:
        InputError: a bad device profile, or stragglers that do not exist.
        ProgramError: deadlock, mismatch or forgotten await, with rank, file, line, label and epoch.
        Exception: any exception that a rank raises, with rank and epoch added as a note.
    """
    size, slow = placement.size, stragglers or placement.cluster.stragglers
    slow.check(size, len(placement.ranks_on_host))
    simulator = Simulator(
        placement, shapes_only=shapes_only, skew=skew, graphs=graphs, library=library, observers=observers
    )
    device = "meta" if shapes_only else "cpu"
    for index in range(size):
        jitter = random_key(seed, index, 0, -1, "jitter")
        clock = simulator.add_clock(slow.pace(index, int(placement.host[index]), jitter))
        rank = Rank(index, size, seed=seed, device=device, clock=clock, deterministic=deterministic)
        simulator.steppers.append(Stepper(rank, program))
    return simulator.run()


class Steppable(Protocol):
    """A rank's program (`harness.trampoline.Stepper`) or the replay of its recording."""

    def step(self, results: list[Any] | None = None) -> Effect | Finished:
        """Resume with the last effect's result, in a list; returns the next effect, or the end."""
        ...

    def close(self) -> None:
        """End the program."""
        ...


class Simulator:
    """All ranks of one simulation. `simulate` fills it with programs, `sims.replay` with recordings of them.

    Args:
        shapes_only: tensors are on the meta device.
        skew, graphs, library: see `simulate`.
        device: loads a device's profile by name.
        rendezvous: matches the ranks' effects; by default one that computes what they receive.
        observers: notified of what the simulation does.
    """

    def __init__(
        self,
        placement: Placement,
        *,
        shapes_only: bool = False,
        skew: float = 0.0,
        graphs: bool = False,
        device: Callable[[str], DeviceProfile] = load_device,
        rendezvous: Rendezvous | None = None,
        library: type[Library] | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.placement, self.observers, self.skew, self.graphs = placement, observers, skew, graphs
        loaded = {name: device(name) for name in dict.fromkeys(placement.profile_of)}
        self.profiles = [loaded[name] for name in placement.profile_of]
        self.env = simpy.Environment()
        self.steppers: list[Steppable] = []
        self.clocks: list[SimClock] = []
        self.memories: list[LiveMemory] = []
        self.ledgers: list[Ledger] = []
        self.effects = PendingEffects(
            self.env, placement, self.profiles, self.clocks, self.memories, self._guarded,
            rendezvous or Rendezvous(placement.size), observers, self._begin_software, library,
        )  # fmt: skip
        for observer in observers:
            observer.network_added(self.effects.network)
        self.results: dict[int, Any] = {}
        self.failure: BaseException | None = None
        self._prices: dict[str, Prices] = {}
        self._cores: dict[int, Cores] = {}
        self._paces: list[Callable[[], float] | None] = []
        self._sides: dict[int, SideThread] = {}
        self._tails: list[Tail] = []
        self._shapes = ShapeMemory() if shapes_only else None
        self._issued = listeners(observers, Observer.issued)
        self._computed = listeners(observers, Observer.computed)

    def add_clock(self, pace: Callable[[], float] | None) -> SimClock:
        """Add the next rank's clock, memory and ledger."""
        memory, rank = LiveMemory(), len(self.clocks)
        profile = self.profiles[rank]
        overlap, cores = profile.slowdown("compute"), self._cores_of(rank)
        clock = SimClock(
            self.env, memory, launch_s=profile.host_launch, effect_s=profile.effect.value, step_s=profile.step.value,
            graph_s=profile.graph_seconds() if self.graphs else None, overlap=overlap, pace=pace, cores=cores,
            taking_turns=self._ranks_on_device(rank),
            own=IdleCore(profile) if cores is None and profile.idle else None,
            epoch_began=listeners_of(rank, self.observers, Observer.epoch_began),
            epoch_ended=listeners_of(rank, self.observers, Observer.epoch_ended),
        )  # fmt: skip
        key = self.placement.profile_of[rank]
        if key not in self._prices:
            self._prices[key] = Prices(profile, self.skew)
        self._paces.append(pace)
        self.clocks.append(clock)
        self.memories.append(memory)
        charged = listeners_of(rank, self.observers, Observer.charged)
        self.ledgers.append(Ledger(self._prices[key], clock, memory, self._shapes, charged))
        self._tails.append(Tail())
        for observer in self.observers:
            observer.rank_added(rank, clock, self.ledgers[rank])
        return clock

    def _cores_of(self, rank: int) -> Cores | None:
        """The cores that the CPU ranks of a host (of a lab: of all hosts) share if they want more than there are."""
        profile = self.profiles[rank]
        place = self.placement.shared_cores(rank, profile.cores) if profile.kind == "cpu" else None
        if place is None:
            return None
        if place not in self._cores:
            number = self.placement.cluster.cores
            longer = profile.sharing.value
            self._cores[place] = Cores(self.env, number, profile.cores, Turns.of(number), longer, profile)
        return self._cores[place]

    def _ranks_on_device(self, rank: int) -> int:
        """Ranks whose kernels take turns on the GPU of a rank, which runs those of one process at a time; ranks that
        train together compute at about the same time. CPU ranks share `Cores`."""
        return int(self.placement.ranks_on_device[rank]) if self.profiles[rank].kind == "gpu" else 1

    def _begin_software(self, rank: int, seconds: float) -> simpy.Event:
        """Begin work of the library on the cores that a rank shares."""
        cores = self._cores_of(rank)
        assert cores is not None
        return cores.software(seconds)

    def _side_of(self, rank: int) -> SideThread:
        """The second thread of a rank, made when it begins its first background exchange."""
        if rank not in self._sides:
            profile, cores = self.profiles[rank], self._cores_of(rank)
            if cores is None:
                cores = Cores(
                    self.env, 2 * profile.cores / profile.slowdown("background"), profile.cores, profile=profile
                )
                self.clocks[rank].share(cores)
            self._sides[rank] = SideThread(
                rank, self.effects, self.ledgers[rank], cores, launch_s=profile.host_launch, pace=self._paces[rank],
                observers=self.observers,
            )  # fmt: skip
        return self._sides[rank]

    def run(self) -> Simulation:
        """Step every rank to its end."""
        for rank in range(len(self.steppers)):
            self.env.process(self._guarded(self._run_rank(rank)))
        try:
            step, results, ranks = self.env.step, self.results, len(self.steppers)
            with suppress(EmptySchedule), nullcontext() if self._shapes is None else _rare_collections():
                while self.failure is None and len(results) < ranks:
                    step()
        finally:
            for stepper in self.steppers:
                stepper.close()
        if self.failure is not None:
            raise self.failure
        if len(self.results) < len(self.steppers):
            raise ProgramError(f"deadlock: {self.effects.rendezvous.explain(set(self.results))}")
        self.effects.network.report()
        return self._simulation()

    def _guarded(self, process: SimProcess) -> SimProcess:
        """Keep the exception that a process raises: SimPy would raise a copy built from its type."""
        try:
            return (yield from process)
        except GeneratorExit:
            raise
        except BaseException as error:
            self.failure = self.failure or error
            return None

    def _run_rank(self, rank: int) -> SimProcess:
        """Run one rank: step its program, let its compute elapse, carry out its effect, and repeat."""
        results: list[Any] | None = None
        while True:
            effect = self._step(rank, results)
            if not isinstance(effect, Finished):
                self.clocks[rank].charge_effect()
            before = self.env.now
            paid = yield from self._work(rank, effect)
            if isinstance(effect, Finished):
                self.results[rank] = effect.value
                return
            if not self.clocks[rank].paused:
                self._tails[rank].step(effect, self.env.now - before)
            for notify in self._issued:
                notify(rank, effect, self.clocks[rank].paused)
            results = [(yield from self._carry_out(rank, effect, paid))]
            del effect  # only the program refers to its tensors now

    def _step(self, rank: int, results: list[Any] | None) -> Effect | Finished:
        """Run the program to its next effect, under its ledger if it computes on tensors."""
        if self.clocks[rank].memory.played:
            return self.steppers[rank].step(results)
        with self.ledgers[rank]:
            return self.steppers[rank].step(results)

    def _work(self, rank: int, effect: Effect | Finished) -> SimProcess:
        """Let the compute of the last step elapse, and on cores that ranks share what the software of the effect takes
        of them; returns whether that is among it, and so no delay of the effect's transfers."""
        clock, start = self.clocks[rank], self.env.now
        pending, paid = clock.take_pending(), False
        shares = self._cores_of(rank) is not None and not clock.paused
        if shares and not isinstance(effect, Finished | Start | Wait | HostCopy):
            begins, paid = start + sum(pending.values()), True
            software = self.effects.transport.core_seconds(rank, effect, begins)
            clock.add_software(pending, software, component_of(effect), effect.tag.label)
        if any(pending.values()):
            waited, pending = yield from clock.work(pending)
            start += waited
        if self._computed:
            for component, seconds in pending.items():
                for notify in self._computed:
                    notify(rank, component, start, start + seconds)
                start += seconds
        return paid

    def _carry_out(self, rank: int, effect: Effect, paid: bool) -> SimProcess:
        """Carry out one effect, whose software may be paid for; returns its result when it ends."""
        if isinstance(effect, Start):
            handle = Handle(effect.effect)
            if isinstance(effect.effect, Background):
                handle.driver_state = pending = self._side_of(rank).begin(effect.effect)
                self.effects.run_beside(pending)
                return handle
            handle.driver_state = pending = self.effects.begin(rank, effect.effect)
            self.effects.run_beside(pending)
            spent, taken = self.effects.transport.hidden_seconds(rank, effect.effect)
            if spent and not self.clocks[rank].paused:
                yield from self.clocks[rank].spend(spent, pending.component, pending.effect.tag.label)
            if taken:
                self.clocks[rank].charge_host(taken)
            return handle
        pending = (
            effect.handle.driver_state if isinstance(effect, Wait) else self.effects.begin(rank, effect, paid=paid)
        )
        clock, before = self.clocks[rank], self.env.now
        busy = clock.busy()
        result = (yield from pending.process) if pending.finish is None else (yield pending.finish).pop()
        clock.block(pending.component, pending.effect.tag.label, self.env.now - before)
        if isinstance(effect, Wait):
            clock.hide(min(busy, pending.busy_at_end) - pending.busy_at_start)
        self.effects.deliver(rank, pending, result)
        return result

    def _simulation(self) -> Simulation:
        class_seconds: defaultdict[str, float] = defaultdict(float)
        source_seconds: defaultdict[str, float] = defaultdict(float)
        unknown: Counter[str] = Counter()
        for ledger, profile in zip(self.ledgers, self.profiles, strict=True):
            for kind, seconds in ledger.seconds.items():
                class_seconds[kind] += seconds
                source = profile.source_of(kind, kind in ledger.halves) if kind in CLASSES else "assumed"
                source_seconds[source] += seconds
        for prices in self._prices.values():
            unknown.update(prices.unknown)
        link_bytes = self.effects.network.link_bytes.tolist()
        capacity = [int(profile.memory.value) for profile in self.profiles]
        return Simulation(
            results=[self.results[rank] for rank in range(len(self.steppers))],
            makespan_s=self.env.now,
            link_bytes=dict(zip(self.placement.names, link_bytes, strict=True)),
            tiers=dict(zip(self.effects.tiers, self.effects.sent.tolist(), strict=True)),
            peak_memory=[memory.peak for memory in self.memories],
            memory=capacity,
            sharing=self.placement.memory.tolist(),
            fullest=fullest(self.memories, capacity),
            class_seconds=dict(class_seconds),
            source_seconds=dict(source_seconds),
            unknown_ops=dict(unknown),
            network=self.effects.network.facts(),
            tail_s=[tail.seconds for tail in self._tails],
            blocked_s=self._blocked(),
            skew=self.skew,
        )

    def _blocked(self) -> dict[str, float]:
        """Seconds that a rank waited in its last epoch, by the label of effects, mean over ranks."""
        total: defaultdict[str, float] = defaultdict(float)
        for clock in self.clocks:
            for label, seconds in clock.blocked.items():
                total[label] += seconds
        return {label: seconds / len(self.clocks) for label, seconds in total.items()}


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage every COLLECT_AFTER new objects within; without tensors' values, what waits is small."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], COLLECT_AFTER) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
