"""Times a recorded run on any cluster, without tensors, exactly as the full simulation would.

The ranks' recorded actions replace their programs in `sims.engine.Simulator`; clocks, transport and network are the
same. Operators are priced once per device and stretch of compute, so every further cluster costs only the network.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from statistics import fmean
from typing import Any

import numpy as np

from harness.config import RunConfig
from harness.effects import AllToAll, Background, Effect
from harness.errors import InputError
from harness.kernels.work import CLASSES
from harness.rank import random_key
from harness.rendezvous import Rendezvous
from harness.running import Plan, Progress, cpu_threads, make_job, plan_of, program, threads_per_rank
from harness.running.results import RankEpoch, RankResult, Result, merge, rank_seconds
from harness.traffic import Traffic
from sims.cluster import Cluster, Placement, load_cluster, place
from sims.device import DeviceProfile, Fullest, Work, load_device
from sims.engine import Ledger, Observer, Prices, SimClock, Simulation, Simulator, simulate
from sims.replay._device_choices import on_device
from sims.replay._notation import BEGIN, COMPUTE, DO, END, START, START_BESIDE, Action
from sims.replay._player import Playback, Player, Stretch, charge, folded, replay_actions, replayed
from sims.replay._recording import PeakMemory, Recorder, Recording
from sims.replay._settled import settled_epochs


@dataclass
class Timed:
    """A recorded run, timed. `epochs` are records of the result file, without values that need tensors."""

    simulation: Simulation
    epochs: list[dict[str, Any]]

    @property
    def rank_seconds(self) -> dict[str, list[float]]:
        """The fact of that name (`harness.running.results.rank_seconds`)."""
        return rank_seconds(self.simulation.results, self.epochs)

    def typical(self, config: RunConfig) -> tuple[dict[str, float], int]:
        """Seconds by component and bytes of a steady epoch: of the median one, or the means of periodic ones."""
        settled = settled_epochs(config)
        counted = [self.epochs[number] for number in settled.of(len(self.epochs))]
        # a summary leaves out the first epoch of a run
        runs = [[epoch] for epoch in counted] if settled.cycle > 1 else [[counted[0], *counted]]
        found = [Result(config, "done", run).summary() for run in runs]
        seconds = {name: fmean(each["seconds"][name] for each in found) for name in found[0]["seconds"]}
        return seconds, round(fmean(each["bytes_per_epoch"] for each in found))


def unchanged(profile: DeviceProfile, works: Sequence[Work]) -> np.ndarray:
    """No factor on any operator."""
    return np.ones(len(works))


@dataclass(frozen=True)
class Changes:
    """What one replay has otherwise than the recording and the files of devices.

    Attributes:
        device: loads a profile by name.
        work: factors on the seconds of operators on a device, float64 [works].
        rows: factor on the rows of every exchange between parts.
    """

    device: Callable[[str], DeviceProfile] = load_device
    work: Callable[[DeviceProfile, Sequence[Work]], np.ndarray] = unchanged
    rows: float = 1.0


@dataclass(eq=False)
class Replay:
    """A recording, prepared to be timed on any number of clusters."""

    recording: Recording
    _priced: list[tuple[DeviceProfile, list[Stretch]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._effects = self.recording.on_meta()
        self._device = cache(load_device)  # a profile is read once
        self._bytes = [_bytes_by_epoch(self._wire, actions, rank, self.recording.size)
                       for rank, actions in enumerate(self.recording.actions)]  # fmt: skip

    def time(self, cluster: Cluster, changes: Changes | None = None) -> Timed:
        """Time the run on a cluster; its memory and bytes are those of the recording, on the cluster's devices.

        Raises:
            InputError: the cluster has too few devices, or a bad device profile; the method's decisions depend on when
                messages arrive.
        """
        if self.recording.timed:
            raise refusal(self.recording.config["method"])
        simulator = self.simulator(cluster, changes=changes)
        simulation = self._with_memory(simulator.run())
        ranks = [
            RankResult(rank, [self._epoch(rank, number, seconds) for number, seconds in enumerate(result)])
            for rank, result in enumerate(simulation.results)
        ]
        tiers, tier_of = simulator.placement.tier_matrix()
        depth = int(self.recording.config["layers"])
        return Timed(simulation, merge(ranks, depth, list(tiers), tier_of))

    def source_seconds(self, cluster: Cluster) -> dict[str, float]:
        """Source of costs (see `DeviceProfile.source_of`) -> seconds of the cluster's devices, summed over ranks."""
        placement, works = place(cluster, self.recording.size), self.recording.works
        charged: dict[str, Counter[int]] = defaultdict(Counter)  # by device: number of a stretch -> times
        for actions, profile in zip(self.recording.actions, placement.profile_of, strict=True):
            for code, about, _ in actions:
                if code == COMPUTE:
                    charged[profile][about] += 1
                elif code == START_BESIDE:
                    charged[profile].update(self.recording.converted[about][1:])
        found: dict[str, float] = defaultdict(float)
        for name, stretches in charged.items():
            prices = Prices(self._device(name), self.recording.skew)
            times = np.zeros(len(works))
            for number, often in stretches.items():
                inside = np.frombuffer(self.recording.stretches[number], np.int32).reshape(-1, 2)[:, 1]
                times += often * np.bincount(inside, minlength=len(works))
            for work, count in zip(works, times.tolist(), strict=True):
                source = prices.profile.source_of(work.kind, work.half) if work.kind in CLASSES else "assumed"
                found[source] += count * prices.seconds(work)
        return dict(found)

    def simulator(
        self, cluster: Cluster, observers: Sequence[Observer] = (), changes: Changes | None = None
    ) -> Simulator:
        """The simulation, ready to run; for a method with `Facts.timed` it is valid on the recorded cluster only."""
        size, seed = self.recording.size, int(self.recording.config["seed"])
        placement = place(cluster, size)
        cluster.stragglers.check(size, len(placement.ranks_on_host))
        attendance = Rendezvous(size, attendance_only=True)
        device = self._device if changes is None else changes.device
        skew = self.recording.skew
        simulator = Simulator(
            placement, skew=skew, graphs=bool(self.recording.config.get("cuda_graphs")), device=device,
            rendezvous=attendance, observers=observers,
        )  # fmt: skip
        effects = self._effects if changes is None else self.recording.on_meta(changes.rows)
        changed: dict[int, list[Stretch]] = {}  # by device
        for rank in range(size):
            key = random_key(seed, rank, 0, -1, "jitter")
            clock = simulator.add_clock(cluster.stragglers.pace(rank, int(placement.host[rank]), key))
            clock.memory.played = True
            ledger = simulator.ledgers[rank]
            if changes is None:
                stretches = self._stretches(ledger.prices)
            elif (found := changed.get(id(ledger.prices))) is not None:
                stretches = found
            else:
                stretches = changed[id(ledger.prices)] = self._priced_with(ledger.prices, changes)
            simulator.steppers.append(Player(self._play(rank, clock, ledger, effects, stretches)))
        return simulator

    def _play(
        self, rank: int, clock: SimClock, ledger: Ledger, effects: Sequence[Effect], stretches: list[Stretch]
    ) -> Playback:
        def beside(number: int) -> Background:
            effect, before, after = self.recording.converted[number]
            exchange = effects[effect]
            assert isinstance(exchange, AllToAll)
            return replayed(exchange, stretches[before], stretches[after], lambda s, n: ledger.meter.charge(s, n))

        return replay_actions(
            self.recording.actions[rank],
            effects.__getitem__,
            lambda number: charge(clock, stretches[number]),
            clock,
            clock.pause,
            beside,
        )

    def _wire(self, action: Action) -> Effect:
        """The effect that an action carries out or starts."""
        code, about, _ = action
        return self._effects[self.recording.converted[about][0] if code == START_BESIDE else about]

    def _with_memory(self, simulation: Simulation) -> Simulation:
        """The simulation's result with the memory of the recording."""
        known, capacity = self.recording.memory, simulation.memory
        rank = max(range(len(capacity)), key=lambda r: (known.peaks[r] / capacity[r], r == known.rank))
        # of another rank, which may be fuller if devices differ, only the peak is known
        contributors = known.contributors if rank == known.rank else {"in all": known.peaks[rank]}
        setup = known.setup and rank == known.rank
        fullest = Fullest(rank, known.peaks[rank], capacity[rank], setup, contributors)
        return replace(simulation, peak_memory=list(known.peaks), fullest=fullest)

    def _stretches(self, prices: Prices) -> list[Stretch]:
        """The seconds of every stretch of compute on a device."""
        for profile, stretches in self._priced:
            if profile == prices.profile:
                return stretches
        stretches = self._priced_with(prices, Changes())
        self._priced.append((prices.profile, stretches))
        return stretches

    def _priced_with(self, prices: Prices, changes: Changes) -> list[Stretch]:
        works = self.recording.works
        seconds = np.asarray([prices.seconds(work) for work in works]) * changes.work(prices.profile, works)
        launches = np.asarray([prices.profile.launches(work) for work in works], np.float64)
        return [folded(raw, seconds, launches) for raw in self.recording.stretches]

    def _epoch(self, rank: int, number: int, seconds: dict[str, float]) -> RankEpoch:
        traffic = self._bytes[rank][number]
        layers = {direction: dict(found) for direction, found in traffic.layers.items()}
        others = dict(traffic.others)
        return RankEpoch(number, None, seconds, layers, traffic.to.tobytes(), None, 0, others=others)


def refusal(method: str) -> InputError:
    """The error for a method with `Facts.timed`, which cannot be timed on another cluster."""
    return InputError(
        f"the decisions of method {method} depend on when messages arrive, so a recording is valid on its own cluster "
        "only; simulate each point in full (haloscope sweep)"
    )


def record(config: RunConfig, progress: Progress | None = None) -> Recording:
    """Simulate a config once and record what its ranks do.

    Raises:
        InputError: as `harness.running.open_run` and `make_job`.
    """
    placement = place(load_cluster(config.cluster.name), config.cut.parts)
    return record_placed(plan_of(config), placement, progress)


def record_placed(plan: Plan, placement: Placement, progress: Progress | None = None) -> Recording:
    """As `record`, on ranks that have their places already."""
    config = on_device(plan.config, placement)
    job, prepared = make_job(replace(plan, config=config), progress)
    recorder = Recorder(config.cut.parts)
    with cpu_threads(threads_per_rank(config)):
        simulation = simulate(
            program(job), placement, seed=config.training.seed, deterministic=config.run.deterministic,
            shapes_only=config.cluster.shapes_only, skew=prepared.totals.skew, graphs=config.run.cuda_graphs,
            observers=[recorder],
        )  # fmt: skip
    facts, memory, timed = simulation.results[0].facts, needed(simulation), job.method.facts.timed
    described = prepared.describe()
    return recorder.recording(config.flat(), described, facts, memory, timed=timed, skew=prepared.totals.skew)


def needed(simulation: Simulation) -> PeakMemory:
    """The memory that the ranks of a run needed."""
    fullest = simulation.fullest
    return PeakMemory(simulation.peak_memory, fullest.rank, fullest.setup, fullest.contributors)


def _bytes_by_epoch(
    effect_of: Callable[[Action], Effect], actions: list[Action], rank: int, size: int
) -> list[Traffic]:
    """The bytes that a rank sends, by epoch."""
    traffic, found = Traffic(size), []
    for action in actions:
        code, _, paused = action
        if code == BEGIN:
            traffic.take()
        elif code == END:
            found.append(traffic.take())
        elif code in (DO, START, START_BESIDE) and not paused:
            effect = effect_of(action)
            traffic.add(effect.tag, effect.sent(rank, size))
    return found
