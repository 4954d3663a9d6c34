"""90 % intervals of predictions: what they hold beside their draws, their text, and what they allow to say about two
methods.

Predictions are drawn with the same errors of the same inputs (`sims.uncertainty`), so that two methods are compared
draw by draw. What the model leaves out comes on top, of one method and of two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.running.alike import group_names, groups_of, likeness

SHARE = 0.9
"""Probability with which an interval holds the value."""


def ends(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """The central interval of drawn values."""
    low, high = np.quantile(np.asarray(values, np.float64), ((1 - SHARE) / 2, (1 + SHARE) / 2)).tolist()
    return float(low), float(high)


@dataclass(frozen=True)
class LeftOpen:
    """How far predictions are off, as a logarithm and in 90 % of cases, beyond what uncertain inputs leave open: what
    the model leaves out.

    Attributes:
        seconds: of an epoch and of its components.
        between: of the ratio of two methods' epochs in one place.
    """

    seconds: Mapping[str, float]
    between: float


LEFT_OPEN = LeftOpen({"epoch": 0.11, "compute": 0.15, "codec": 0.26, "halo": 0.29, "reduce": 0.43}, between=0.12)
"""From the 90 cells of rounds 2 to 4 of the study, and their 90 pairs of methods, none of which was known when the
model was made (docs/validation.md)."""

LEFT_OPEN_BRIEF = LeftOpen({"epoch": 0.25, "compute": 0.24, "codec": 0.26, "halo": 0.47, "reduce": 0.53}, between=0.21)
"""The same after a brief calibration, from ten of them (`python -m benchmarks.brief`, docs/validation.md)."""


def left_open(depth: str) -> LeftOpen:
    """What predictions leave open by how much a calibration has measured (`DeviceProfile.depth`)."""
    return LEFT_OPEN_BRIEF if depth == "brief" else LEFT_OPEN


SAME = 1e-9
"""Relative difference of two methods below which they are one."""


def widened(value: float, low: float, high: float, more: float) -> tuple[float, float]:
    """An interval whose ends are as far from the value as two independent errors, on a logarithmic scale."""
    if not 0 < low <= high or value <= 0:
        return low, high
    below, above = (math.hypot(max(math.log(ratio), 0.0), more) for ratio in (value / low, high / value))
    return value * math.exp(-below), value * math.exp(above)


def epoch_ends(drawn: np.ndarray, value: float, more: LeftOpen) -> tuple[float, float]:
    """The interval of an epoch that is predicted as `value`: that of its draws, and what the model leaves out."""
    return widened(value, *ends(drawn), more.seconds["epoch"])


def ratio_ends(drawn: np.ndarray, more: LeftOpen) -> tuple[float, float]:
    """The interval of the ratio of two methods' epochs of which there are draws: theirs, and what the model leaves out
    of one and not of the other. Of a method beside itself that is 1."""
    low, high = ends(drawn)
    return (low, high) if max(high - 1, 1 - low) < SAME else widened(float(np.median(drawn)), low, high, more.between)


def rounds_of(record: Mapping[str, Any]) -> list[float]:
    """Epochs of a run that was measured several times in turn with others, a round each, s; empty for any other."""
    return [float(seconds) for seconds in record["facts"].get("rounds", ())]


def ends_in(record: Mapping[str, Any]) -> tuple[float, float] | None:
    """Seconds between which an epoch lies: the interval of a prediction, the range of rounds, or None."""
    rounds = rounds_of(record)
    return (min(rounds), max(rounds)) if rounds else interval_in(record)


def interval_in(record: Mapping[str, Any], name: str = "epoch") -> tuple[float, float] | None:
    """Seconds between which a component lies; None where a record has no interval (measured, or not asked for)."""
    found = record["facts"].get("interval")
    if found is None or name not in found["seconds"]:
        return None
    low, high = found["seconds"][name]
    return float(low), float(high)


def speedup_interval(record: Mapping[str, Any], base: Mapping[str, Any]) -> tuple[float, float] | None:
    """How many times as fast an epoch of `record` is as one of `base`: of predictions `ratio_ends`, of runs measured in
    as many rounds the least and the most of a round, in which both ran within a minute or so.

    None where one of them has neither, they are not alike in all but the method (`alike.likeness`), or their draws are
    not those of the same inputs.
    """
    rounds = rounds_of(record), rounds_of(base)
    if rounds[0] and len(rounds[0]) == len(rounds[1]) and likeness(record) == likeness(base):
        ratios = [before / seconds for seconds, before in zip(*rounds, strict=True)]
        return min(ratios), max(ratios)
    mine, others = record["facts"].get("interval"), base["facts"].get("interval")
    if mine is None or others is None or mine["replays"] != others["replays"]:
        return None
    if record["facts"].get("cluster") != base["facts"].get("cluster") or likeness(record) != likeness(base):
        return None
    seconds = [each["summary"]["epoch_seconds"] for each in (base, record)]
    drawn = np.asarray(others["ratios"]) * seconds[0] / (np.asarray(mine["ratios"]) * seconds[1])
    return ratio_ends(drawn, left_open(mine.get("depth", "")))


def order_lines(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """What intervals allow to say about the order of predicted methods that run to their end (one that does not fit its
    devices is not faster), and rounds about that of measured ones, each beside the next slower one of the same graph,
    model, cluster and number of parts.

    Where these differ between runs, every line begins with those of its own.
    """
    known = [
        r for r in records
        if r["state"] == "done" and r["summary"]["epoch_seconds"] and (r["facts"].get("interval") or rounds_of(r))
    ]  # fmt: skip
    groups = groups_of(known)
    lines = []
    for name, group in zip(group_names(groups), groups, strict=True):
        ranked = sorted(group, key=lambda record: float(record["summary"]["epoch_seconds"]))
        for fast, slow in zip(ranked, ranked[1:], strict=False):
            first, second = (str(each["config"]["method"]) for each in (fast, slow))
            found = speedup_interval(fast, slow)
            if found is not None and first != second:  # else one method that was run twice
                certainty = f"in {len(rounds_of(fast))} rounds" if rounds_of(fast) else "90 %"
                lines.append(f"{name}: " * bool(name) + order_text(first, second, found, certainty))
    return lines


def order_text(fast: str, slow: str, speedup: tuple[float, float], certainty: str = "90 %") -> str:
    """One sentence on two methods, from the interval of the first one's speed-up over the second, or its range in some
    rounds of measurements, which `certainty` says."""
    low, high = speedup
    span = f"{low:.2f} to {high:.2f} times as fast, {certainty}"
    if low > 1:
        return f"{fast} is faster than {slow}: {span}"
    if high < 1:
        return f"{fast} is slower than {slow}: {span}"
    return f"{fast} and {slow} cannot be told apart: {fast} is {span}"


def interval_note(found: Mapping[str, Any]) -> str:
    """What an interval rests on, in one line."""
    by_source: dict[str, int] = {}
    for each in found["inputs"]:
        by_source[each["source"]] = by_source.get(each["source"], 0) + 1
    inputs = ", ".join(f"{count} {source}" for source, count in by_source.items()) or "none"
    return (
        f"intervals hold {found['share']:.0%} of {found['replays']} replays with uncertain inputs drawn anew "
        f"({inputs}), and what the model left open in cells that it had not seen"
    )
