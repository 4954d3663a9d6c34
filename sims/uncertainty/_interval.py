"""The 90 % interval of a predicted epoch, by replays of its recording with all uncertain inputs drawn anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from harness.config import RunConfig
from harness.errors import InputError
from harness.running.intervals import SHARE, LeftOpen, ends, left_open, widened
from sims.cluster import Cluster
from sims.device import DEPTHS, DeviceProfile, load_device
from sims.replay import Changes, Replay, unchanged
from sims.uncertainty._draws import Draws
from sims.uncertainty._inputs import FITS, ROWS, Input, changed_cluster, device_loader

REPLAYS = 40
"""Draws of an interval: as a Latin hypercube, so that every input's own effect is covered evenly."""

RANK_REPLAYS, FEWEST_REPLAYS = 1_600, 8
"""Replays x ranks of an interval at most, and fewest replays: a replay takes as long as it has ranks."""

MOST_RANKS = 512
"""Ranks above which a prediction has no interval unless it is asked for: the recording alone would take long."""


def replays_for(ranks: int, asked: int | None = None) -> int:
    """How many replays an interval rests on: as many as asked for, else fewer with many ranks, 0 for none."""
    if asked is not None:
        if asked and asked < FEWEST_REPLAYS:
            raise InputError(f"--replays {asked}: at least {FEWEST_REPLAYS}, or 0 for no intervals")
        return asked
    return max(FEWEST_REPLAYS, min(REPLAYS, RANK_REPLAYS // ranks)) if ranks <= MOST_RANKS else 0


_device: Callable[[str], DeviceProfile] = cache(load_device)


@dataclass(frozen=True, eq=False)
class RecordedPrediction:
    """A recorded run on a cluster, with what is uncertain about it.

    Args:
        inputs: the uncertain ones; others are as their files say.
        replayed: is called after every replay.
    """

    config: RunConfig
    replay: Replay
    cluster: Cluster
    inputs: Sequence[Input]
    replayed: Callable[[], None] | None = None

    def seconds(self, factors: Mapping[str, float], draws: Draws | None = None, number: int = 0) -> dict[str, float]:
        """Seconds of an epoch by component with these factors on inputs.

        Args:
            draws, number: also scatter the operators around their fits, as in this draw.
        """
        scatters = draws is not None and any(each.is_scatter for each in self.inputs)
        works = partial(_scatter, draws, number) if scatters and draws is not None else unchanged
        changes = Changes(device_loader(factors, _device), works, factors.get(ROWS, 1.0))
        timed = self.replay.time(changed_cluster(self.cluster, factors, _device), changes)
        if self.replayed is not None:
            self.replayed()
        return timed.typical(self.config)[0]

    def draws(self, draws: Draws, without: str = "") -> list[dict[str, float]]:
        """Seconds by component in every draw; `without`: an input that is known exactly."""
        kept = [each for each in self.inputs if each.name != without]
        scatter = None if without.endswith(f".{FITS}") else draws
        return [self.seconds(draws.factors(kept, number), scatter, number) for number in range(draws.count)]


def _scatter(draws: Draws, number: int, profile: DeviceProfile, works: Sequence[Any]) -> np.ndarray:
    return draws.scatter(profile, works, number)


def calibration_depth(cluster: Cluster) -> str:
    """How much the calibration of a cluster's devices measured, the least of them; "" where none did."""
    known = {_device(name).depth for name in set(cluster.profiles)}
    return next((depth for depth in DEPTHS if depth in known), "")


def left_open_on(cluster: Cluster) -> LeftOpen:
    """What predictions on a cluster leave open beside its uncertain inputs."""
    return left_open(calibration_depth(cluster))


def interval_of(prediction: RecordedPrediction, seconds: Mapping[str, float], count: int) -> dict[str, Any]:
    """The interval in the result file of a prediction.

    Args:
        seconds: by component, of the whole run: the interval is around these.
        count: replays, beside one with all inputs as they are.

    Returns:
        share: of predictions that the interval holds; replays; epochs: recorded ones.
        seconds: component -> [low, high], with what the model left open before (`left_open_on`).
        ratios: of the epoch, draw by draw, to the prediction: of two methods with the same draws they are paired.
        inputs: the uncertain inputs, as dicts of `Input`.
        depth: how much the calibration measured; absent of devices that no calibration measured.
    """
    base = prediction.seconds({})
    drawn = prediction.draws(Draws(count))
    found, more = {}, left_open_on(prediction.cluster)
    for name, value in seconds.items():
        values = np.asarray([each[name] for each in drawn])
        scale = value / base[name] if base[name] > 0 else 1.0
        found[name] = list(widened(value, *ends(values * scale), more.seconds.get(name, 0.0)))
    return {
        "share": SHARE,
        "replays": count,
        "epochs": prediction.config.training.epochs,
        "seconds": found,
        "ratios": [float(f"{each['epoch'] / base['epoch']:.6g}") for each in drawn],
        "inputs": [asdict(each) for each in prediction.inputs],
        **({"depth": depth} if (depth := calibration_depth(prediction.cluster)) else {}),
    }
