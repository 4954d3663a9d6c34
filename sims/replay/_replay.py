"""Times a recorded run anew on any cluster, without tensors, exactly as the full simulation would.

The ranks' recorded operations take the place of their programs in `sims.engine.Run`; clocks, transport and network are
the same. Operators are priced once per device and stretch of compute, so a further point costs the network alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import cache
from statistics import fmean
from typing import Any

import numpy as np

from harness.config import RunConfig
from harness.effects import Effect, Handle, Recv, Send, Start, Wait
from harness.errors import InputError
from harness.rank import COMPONENTS, random_key
from harness.rendezvous import Meeting, Rendezvous
from harness.running import Progress, cpu_threads, make_job, program, threads_per_rank
from harness.running.results import RankEpoch, RankResult, Result, merge
from harness.traffic import Traffic
from harness.trampoline import Finished
from sims.cluster import Cluster, load_cluster, place
from sims.device import DeviceProfile, Fullest, load_device
from sims.engine import Prices, Run, SimClock, Simulation, simulate
from sims.replay._recording import BEGIN, DO, END, PIECE, START, WAIT, Operation, PeakMemory, Recorder, Recording

Stretch = list[tuple[str, float, int]]  # component, device seconds, operators; in order of first charge


@dataclass
class Timed:
    """A recorded run, timed. `epochs` are records of the result file, without numbers that only tensors have."""

    simulation: Simulation
    epochs: list[dict[str, Any]]

    def typical(self, config: RunConfig, mean: bool) -> tuple[dict[str, float], int]:
        """Seconds of an epoch after the first, by component, and its bytes: of the median epoch, or means of all."""
        runs = [[epoch] for epoch in self.epochs[1:] or self.epochs] if mean else [self.epochs]
        found = [Result(config, "done", run).summary() for run in runs]
        seconds = {name: fmean(each["seconds"][name] for each in found) for name in found[0]["seconds"]}
        return seconds, round(fmean(each["bytes_per_epoch"] for each in found))

    @property
    def too_large(self) -> str:
        """How many ranks do not fit their devices, and by how much the fullest; empty where all fit."""
        ranks = self.simulation.out_of_memory
        return f"{len(ranks)} ranks do not fit: {self.simulation.fullest}" if ranks else ""


@dataclass(eq=False)
class Replay:
    """A recording, ready to be timed again and again."""

    recording: Recording
    _priced: list[tuple[DeviceProfile, list[Stretch]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._effects = self.recording.effects()
        self._device = cache(load_device)  # a profile is read once
        self._bytes = [_bytes_by_epoch(self._effects, stream, rank, self.recording.size)
                       for rank, stream in enumerate(self.recording.streams)]  # fmt: skip

    def time(self, cluster: Cluster) -> Timed:
        """The run on a cluster; its memory is that of the recording, on the cluster's devices.

        Raises:
            InputError: the cluster has too few devices, or a bad device profile; the method decides by when messages
                arrive.
        """
        if self.recording.timed:
            raise refusal(self.recording.config["method"])
        run = self.run(cluster)
        simulation = self._with_memory(run.run())
        ranks = [
            RankResult(rank, [self._epoch(rank, number, seconds) for number, seconds in enumerate(result)])
            for rank, result in enumerate(simulation.results)
        ]
        tiers, tier_of = run.placement.tier_matrix()
        depth = int(self.recording.config["layers"])
        return Timed(simulation, merge(ranks, depth, list(tiers), tier_of.tolist()))

    def run(self, cluster: Cluster) -> Run:
        """The simulation, set up and not begun; of a method that `timed` marks, true on its own cluster only."""
        size, seed = self.recording.size, int(self.recording.config["seed"])
        placement = place(cluster, size)
        cluster.stragglers.check(size, len(placement.ranks_on_host))
        run = Run(placement, None, shapes_only=False, device=self._device)
        for rank in range(size):
            key = random_key(seed, rank, 0, -1, "jitter")
            clock = run.add_clock(cluster.stragglers.pace(rank, int(placement.host[rank]), key))
            pieces = self._pieces(run.ledgers[rank].prices)
            clock.memory.known = True
            run.steppers.append(Player(self.recording.streams[rank], self._effects, pieces, clock))
        run.flights.rendezvous = _Roll(size)
        return run

    def _with_memory(self, simulation: Simulation) -> Simulation:
        """With what the ranks needed when they had tensors."""
        known, capacity = self.recording.memory, simulation.memory
        rank = max(range(len(capacity)), key=lambda r: (known.peaks[r] / capacity[r], r == known.rank))
        # of other ranks, which are fuller where devices differ, nothing but the peak is known
        contributors = known.contributors if rank == known.rank else {"in all": known.peaks[rank]}
        setup = known.setup and rank == known.rank
        fullest = Fullest(rank, known.peaks[rank], capacity[rank], setup, contributors)
        return replace(simulation, peak_memory=list(known.peaks), fullest=fullest)

    def _pieces(self, prices: Prices) -> list[Stretch]:
        """Every stretch of compute on a device."""
        for profile, pieces in self._priced:
            if profile == prices.profile:
                return pieces
        seconds = np.asarray([prices.seconds(work) for work in self.recording.works])
        pieces = [_folded(np.frombuffer(raw, np.int32).reshape(-1, 2), seconds) for raw in self.recording.pieces]
        self._priced.append((prices.profile, pieces))
        return pieces

    def _epoch(self, rank: int, number: int, seconds: dict[str, float]) -> RankEpoch:
        traffic = self._bytes[rank][number]
        layers = {direction: dict(found) for direction, found in traffic.layers.items()}
        return RankEpoch(number, None, seconds, layers, traffic.to.tolist(), None, 0)


def refusal(method: str) -> InputError:
    """Why a method with `Facts.timed` cannot be timed anew."""
    return InputError(
        f"method {method} decides by when messages arrive, so what it did on one cluster says nothing of another; "
        "simulate each point in full (haloscope sweep)"
    )


def record(config: RunConfig, progress: Progress | None = None) -> Recording:
    """Simulate a config once and keep what its ranks do.

    Raises:
        InputError: as `harness.running.make_job`.
    """
    job, prepared = make_job(config, progress)
    recorder = Recorder(config.parts)
    with cpu_threads(threads_per_rank(config)):
        simulation = simulate(
            program(job), config.parts, cluster=load_cluster(config.cluster), seed=config.seed,
            deterministic=config.deterministic, shapes_only=config.shapes_only, recorder=recorder,
        )  # fmt: skip
    facts, memory = simulation.results[0].facts, needed(simulation)
    return recorder.recording(asdict(config), prepared.describe(), facts, memory, timed=job.method.facts.timed)


def needed(simulation: Simulation) -> PeakMemory:
    """What the ranks of a run needed."""
    fullest = simulation.fullest
    return PeakMemory(simulation.peak_memory, fullest.rank, fullest.setup, fullest.contributors)


def _folded(piece: np.ndarray, seconds: np.ndarray) -> Stretch:
    """Sums by component, added one after the other as the ledger adds them."""
    stretch = []
    components, works = piece[:, 0], piece[:, 1]
    for component in dict.fromkeys(components.tolist()):
        mine = seconds[works[components == component]]
        stretch.append((COMPONENTS[component], float(np.cumsum(mine)[-1]), len(mine)))
    return stretch


def _bytes_by_epoch(effects: list[Effect], stream: list[Operation], rank: int, size: int) -> list[Traffic]:
    """What a rank sends in every epoch."""
    traffic, found = Traffic(size), []
    for code, about, paused in stream:
        if code == BEGIN:
            traffic.take()
        elif code == END:
            found.append(traffic.take())
        elif code in (DO, START) and not paused:
            traffic.add(effects[about].tag, effects[about].sent(rank, size))
    return found


class Player:
    """One rank's recorded operations in place of its program; ends with the seconds of its epochs."""

    def __init__(self, stream: list[Operation], effects: list[Effect], pieces: list[Stretch], clock: SimClock) -> None:
        self._stream, self._effects, self._pieces, self._clock = iter(stream), effects, pieces, clock
        self._handles: list[Handle] = []
        self.begun: list[float] = []  # when its epochs began
        self._epochs: list[dict[str, float]] = []

    def step(self, answer: Any = None) -> Effect | Finished:
        """Charge compute up to the next effect, or to the end."""
        clock = self._clock
        if isinstance(answer, Handle):
            self._handles.append(answer)
        clock.pause(False)
        for code, about, paused in self._stream:
            if code == PIECE:
                for clock.kind, seconds, operators in self._pieces[about]:
                    clock.charge(seconds, operators)
                clock.kind = "compute"
            elif code == BEGIN:
                clock.begin_epoch()
                self.begun.append(clock.env.now)
            elif code == END:
                self._epochs.append(clock.end_epoch())
            else:
                clock.pause(paused)
                return self._effect(code, about)
        return Finished(self._epochs)

    def close(self) -> None:
        """Nothing to stop."""

    def _effect(self, code: int, about: int) -> Effect:
        if code == WAIT:
            handle = self._handles[about]
            return Wait(tag=handle.effect.tag, handle=handle)
        effect = self._effects[about]
        return Start(tag=effect.tag, effect=effect) if code == START else effect


class _Roll(Rendezvous):
    """Knows when everyone has arrived, and nothing of what they bring."""

    def post(self, rank: int, effect: Effect) -> Meeting:
        """Rank `rank` arrives; the answers, once all are there, are None."""
        if isinstance(effect, Send | Recv):
            return super().post(rank, effect)
        sequence = self._issued[rank]
        self._issued[rank] += 1
        while sequence >= self._first + len(self._meetings):
            self._meetings.append(Meeting(self._everyone))
        meeting = self._meetings[sequence - self._first]
        meeting.effects[rank] = effect
        if meeting.complete:
            meeting.answers = dict.fromkeys(self._everyone)
            while self._meetings and self._meetings[0].complete:
                self._meetings.popleft()
                self._first += 1
        return meeting
