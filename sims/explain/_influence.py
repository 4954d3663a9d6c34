"""What a predicted epoch depends on: derivatives by replay, and what knowing an input exactly would be worth."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from harness.running.intervals import epoch_ends
from sims.uncertainty import Draws, Input, RecordedPrediction, left_open_on
from sims.units import NORMAL_90

STEP = 0.1
"""Relative change of an input for its derivative."""

TRIED = 4
"""Inputs that matter most, of which each is replayed as if it were known exactly."""


@dataclass(frozen=True)
class Influence:
    """What one input does.

    Attributes:
        change: relative change of the epoch when the input is STEP larger; 0 for scatter, which has no direction.
        share: of the variance of the predicted epoch, from the derivative and the range, of scatter from draws of it
            alone. What the shares of all inputs leave of 1 is what the model leaves out.
        without: the interval of the epoch, in seconds, with this input known exactly; None where it was not tried.
    """

    input: Input
    change: float
    share: float
    without: tuple[float, float] | None = None


def influences(prediction: RecordedPrediction, draws: Draws) -> list[Influence]:
    """Every input with what it does, the one that widens the interval most first.

    Costs one replay per input, and `draws.count` for each of TRIED inputs and for the scatter of operators.
    """
    base = prediction.seconds({})["epoch"]
    changes, variances, scattered = {}, {}, _scattered(prediction, draws)
    for each in prediction.inputs:
        changes[each.name] = variances[each.name] = 0.0
        if each.is_scatter:  # it has no direction: drawn alone, all such inputs together
            variances[each.name] = scattered
        else:
            changes[each.name] = prediction.seconds({each.name: 1 + STEP})["epoch"] / base - 1
            elasticity = math.log1p(changes[each.name]) / math.log1p(STEP)
            variances[each.name] = (elasticity * math.log(each.width) / (2 * NORMAL_90)) ** 2
    more = left_open_on(prediction.cluster)
    total = sum(variances.values()) + (more.seconds["epoch"] / NORMAL_90) ** 2
    found = [Influence(each, changes[each.name], variances[each.name] / total) for each in prediction.inputs]
    found.sort(key=lambda one: (-one.share, -abs(one.change), one.input.name))
    tried = [at for at, one in enumerate(found) if one.share][:TRIED]
    for at in tried:
        drawn = [seconds["epoch"] for seconds in prediction.draws(draws, without=found[at].input.name)]
        found[at] = replace(found[at], without=epoch_ends(np.asarray(drawn), base, more))
    return found


def replays_of_influences(prediction: RecordedPrediction, count: int) -> int:
    """How many replays `influences` takes at most with `count` draws."""
    scatter = sum(each.is_scatter for each in prediction.inputs)
    inputs = len(prediction.inputs)
    return 1 + (count if scatter else 0) + (inputs - scatter) + min(TRIED, inputs) * count


def _scattered(prediction: RecordedPrediction, draws: Draws) -> float:
    """The variance of the logarithm of the epoch that the scatter of operators makes, for each of the inputs that
    scatter; 0 without any."""
    scatter = [each for each in prediction.inputs if each.is_scatter]
    if not scatter:
        return 0.0
    drawn = replace(prediction, inputs=scatter).draws(draws)
    return float(np.var(np.log([seconds["epoch"] for seconds in drawn]))) / len(scatter)
