"""What an epoch of every candidate takes on the modelled cluster: each is recorded once and the recording replayed.

The partitioner is the one with the quickest epoch of the first candidate that leaves it open. Recordings are kept.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated

import msgspec

from harness.config import RunConfig
from harness.errors import HaloscopeError, InputError
from harness.machine import kept_json, write_atomically
from reports.advice._candidates import EXACT, Candidate, partitioned_alike, scouts
from reports.advice._progress import AdviceProgress
from sims.cluster import Cluster, place
from sims.device import Fullest
from sims.replay import Replay, settled_epochs
from sims.study import kept_recording, source_shares

PRICING_SHARE = 0.4
"""Share of the budget after which no further candidate is recorded: the rest is for training."""

ALWAYS = ("single", EXACT)
"""What is timed whatever it takes: all others are compared with them."""

CUTTING_SHARE = 0.1
"""Share of the budget after which no further partitioner is tried."""


@dataclass(frozen=True, eq=False)
class Priced:
    """A candidate with its predicted epoch.

    Attributes:
        seconds: of an epoch after the first, by component, with "epoch" in all.
        sent: bytes that all devices send in it.
        fullest: memory of the fullest device.
        too_large: why it does not fit the devices; empty if it does.
        work: seconds that one of its epochs takes to train here, about.
        unmeasured: share of the compute seconds whose cost was not measured.
    """

    candidate: Candidate
    replay: Replay
    seconds: dict[str, float]
    sent: int
    fullest: Fullest
    too_large: str
    work: float
    unmeasured: float

    @property
    def epoch(self) -> float:
        """Seconds of an epoch."""
        return self.seconds["epoch"]

    def epoch_on(self, cluster: Cluster) -> float:
        """Seconds of an epoch on another cluster."""
        return self._typical(cluster)["epoch"]

    def _typical(self, cluster: Cluster) -> dict[str, float]:
        return self.replay.time(cluster).typical(self.candidate.config)[0]


@dataclass
class Pricing:
    """Records and times candidates.

    Attributes:
        left_out: candidate's title -> why it has no time.
        cuts: (what is cut, devices) -> seconds of an epoch by partitioner, the chosen one first.
    """

    cluster: Cluster
    folder: Path
    progress: AdviceProgress
    left_out: dict[str, str] = field(default_factory=dict)
    cuts: dict[tuple[str, int], dict[str, float]] = field(default_factory=dict)
    _walls: list[float] = field(default_factory=list)

    def price(self, found: Sequence[Candidate]) -> list[Priced]:
        """Every candidate that can run, under the quickest partitioner, while the share of the budget lasts.

        One device and exact training are always timed, then all methods on most devices, then on fewer.
        """
        found = sorted(found, key=lambda each: (each.method not in ALWAYS, -each.parts))
        jobs = list(scouts(found, found[0].config))
        count, done = len(found) + sum(len(names) for _, _, names in jobs), 0
        for cut, scout, names in jobs:
            trials: dict[str, float] = {}
            for name in names:
                self._expect(count - done)
                if trials and self.progress.spent() > CUTTING_SHARE * self.progress.budget:
                    done += 1
                    continue
                self.progress.say(f"[{done + 1}/{count}] timing {scout.title}, cut by {name}")
                tried = self._one(_with_partitioner(scout, name))
                done += 1
                if tried is not None:
                    trials[name] = tried.epoch
            self.cuts[cut, scout.parts] = dict(sorted(trials.items(), key=lambda item: item[1]))
        priced: list[Priced] = []
        for candidate in found:
            self._expect(count - done)
            done += 1
            if candidate.method not in ALWAYS and self.progress.spent() > PRICING_SHARE * self.progress.budget:
                self.left_out[candidate.title] = "not timed: the budget is spent; give more with --budget"
                continue
            chosen = self._chosen(candidate)
            self.progress.say(f"[{done}/{count}] timing {chosen.title}")
            made = self._one(chosen)
            if made is not None:
                priced.append(made)
        self.progress.ahead.pop("timing", None)
        return priced

    def _expect(self, left: int) -> None:
        if self._walls:
            self.progress.ahead["timing"] = left * fmean(self._walls)

    def _chosen(self, candidate: Candidate) -> Candidate:
        for (cut, _), trials in self.cuts.items():
            if trials and partitioned_alike(candidate, cut):
                return _with_partitioner(candidate, next(iter(trials)))
        return candidate

    def _one(self, candidate: Candidate) -> Priced | None:
        """A candidate, timed; None if it cannot run, with the reason in `left_out`."""
        config = candidate.config
        recorded = config.changed(epochs=settled_epochs(config).recorded, eval_every=-1)
        begin, ends = time.monotonic(), list[float]()
        try:
            placement = place(self.cluster, candidate.parts)
            replay = Replay(
                kept_recording(
                    recorded, placement, self.folder, lambda: nullcontext(lambda _: ends.append(time.monotonic()))
                )
            )
            timed = replay.time(self.cluster)
        except HaloscopeError as error:
            self.left_out[candidate.title] = str(error)
            return None
        except Exception as error:
            if ":" not in config.model.name:
                raise
            raise InputError(
                f"model {config.model.name} cannot be priced: {type(error).__name__}: {error}; it has to run by "
                f"itself first: haloscope run --model {config.model.name} --epochs 1"
            ) from error
        self._walls.append(time.monotonic() - begin)
        work = self._work(config, (ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 1 else None)
        seconds, sent = timed.typical(recorded)
        shares = source_shares(replay.source_seconds(self.cluster))
        return Priced(
            replace(candidate, config=config),
            replay,
            seconds,
            sent,
            timed.simulation.fullest,
            timed.simulation.too_large,
            work,
            1 - shares.get("measured", 0.0),
        )

    def _work(self, config: RunConfig, seconds: float | None) -> float:
        """Seconds of an epoch here: those of when the recording was made, also where it was made earlier."""
        path = self.folder / "seconds.json"
        known = kept_json(path, dict[str, Annotated[float, msgspec.Meta(gt=0)]]) or {}
        key = config.training_id()
        if seconds is not None or key not in known:
            known[key] = seconds or self._walls[-1]
            write_atomically(path, msgspec.json.encode(known), durable=False)
        return known[key]


def _with_partitioner(candidate: Candidate, name: str) -> Candidate:
    return replace(candidate, config=candidate.config.changed(partitioner=name))
