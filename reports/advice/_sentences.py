"""An advice in plain sentences, with the numbers behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from harness.numbers import byte_text, count_text, significant, time_unit
from reports.advice._bandwidth import BandwidthRange
from reports.advice._candidates import EXACT, devices_text
from reports.advice._certainty import ModelError
from reports.advice._choices import CandidateOutcome, Recommendation
from reports.advice._intervals import EpochDraws
from reports.statistics import FEWEST_SEEDS

WORDS = {
    "compute": "computing",
    "codec": "converting rows",
    "sample": "sampling",
    "swap": "copying between host and device",
    "halo": "waiting for boundary rows",
    "reduce": "summing gradients over devices",
    "wait": "waiting for the slowest device",
}


def seconds_text(seconds: float) -> str:
    """Seconds with three digits and the unit that reads well."""
    if seconds >= 120:
        return f"{significant(seconds / 3600)} h" if seconds >= 7200 else f"{significant(seconds / 60)} min"
    factor, unit = time_unit([seconds])
    return f"{significant(seconds * factor)} {unit}"


def rate_text(bandwidth: float) -> str:
    """Bytes a second as bits a second."""
    bits = 8 * bandwidth
    for size, unit in ((1e12, "Tb/s"), (1e9, "Gb/s"), (1e6, "Mb/s")):
        if bits >= size:
            return f"{significant(bits / size)} {unit}"
    return f"{significant(bits / 1e3)} kb/s"


def what_to_run(
    found: Recommendation,
    made: Sequence[CandidateOutcome],
    target: float,
    within: float,
    metric: str,
    drawn: EpochDraws,
) -> list[str]:
    """What to run, what it gains, and what it costs."""
    chosen = found.chosen
    assert chosen.seconds is not None and chosen.epochs is not None
    config = chosen.priced.candidate.config
    cut = f", cut by {config.cut.partitioner}" if chosen.parts > 1 else ""
    bar = f"the best of exact training less {within:g} points" if within else "the best of exact training"
    said = [
        f"Run {chosen.method} on {devices_text(chosen.parts)}{cut}: it reaches a validation {metric} of {target:.2f} % "
        f"({bar}) in a predicted {seconds_text(chosen.seconds)}: {count_text(chosen.epochs, 'epoch')} of "
        f"{seconds_text(chosen.priced.epoch)}{_span_text(drawn.epoch(chosen.priced))}."
    ]
    gains = [*_gain(chosen, made, drawn)]
    if gains:
        said.append(f"It takes {_listed(gains)}.")
    said.append(_lost(chosen, within, metric))
    if chosen.cost is not None:
        cheapest = min(
            (each for each in made if each.possible and each.cost is not None), key=lambda each: each.cost or 0
        )
        cheaper = "" if cheapest is chosen else f"; the cheapest, {_name(cheapest)}, costs {significant(cheapest.cost)}"
        said.append(f"Training to the target costs {significant(chosen.cost)} at the given price{cheaper}.")
    return said


def compared_with(chosen: CandidateOutcome, made: Sequence[CandidateOutcome]) -> list[CandidateOutcome]:
    """Exact training on as many devices, the quickest exact one, and one device."""
    alike = next((each for each in made if each.method == EXACT and each.parts == chosen.parts), None)
    best = next((each for each in made if each.method == EXACT and each.possible), None)
    one = next((each for each in made if each.parts == 1), None)
    return list(dict.fromkeys(each for each in (alike, best, one) if each is not None and each is not chosen))


def _gain(chosen: CandidateOutcome, made: Sequence[CandidateOutcome], drawn: EpochDraws) -> list[str]:
    """The chosen time beside that of vanilla and of one device."""
    assert chosen.seconds is not None and chosen.epochs is not None
    found = []
    for other in compared_with(chosen, made):
        if other.priced.too_large:
            found.append(f"what {_name(other)} cannot do for lack of memory")
        elif other.seconds is not None and other.epochs is not None:
            span = drawn.share((chosen.priced, chosen.epochs), (other.priced, other.epochs))
            said = f"{_ratio(chosen.seconds / other.seconds)} of {_name(other)} ({seconds_text(other.seconds)}"
            found.append(f"{said}{'' if span is None else f'; 90 %: {_ratios(span)}'})")
    return found


def _ratio(share: float) -> str:
    return f"{100 * share:.0f} % of the time" if share < 2 else f"{share:.1f} times the time"


def _ratios(span: tuple[float, float]) -> str:
    """An interval of shares; one that holds 100 % tells nothing apart."""
    low, high = span
    text = f"{100 * low:.0f} to {100 * high:.0f} %" if high < 2 else f"{low:.2g} to {high:.2g} times"
    return f"{text}, so they cannot be told apart" if low <= 1 <= high else text


def _span_text(span: tuple[float, float] | None) -> str:
    """The interval of an epoch, behind it."""
    return "" if span is None else f" (90 %: {seconds_text(span[0])} to {seconds_text(span[1])})"


def _lost(chosen: CandidateOutcome, within: float, metric: str) -> str:
    head = metric[0].upper() + metric[1:]
    if chosen.keeps == "exact":
        return f"{head}: it trains exactly, so nothing is lost beside one device."
    assert chosen.difference is not None
    low, high = chosen.difference.interval()
    return (
        f"{head}: {chosen.difference.mean:+.2f} points of test score beside exact training "
        f"(95 % interval {low:+.2f} to {high:+.2f}, {chosen.difference.count} paired seeds), "
        f"of which {-within:+g} were allowed."
    )


def about_the_devices(chosen: CandidateOutcome) -> list[str]:
    """Memory and bottleneck."""
    full, seconds = chosen.priced.fullest, chosen.priced.seconds
    parts = {name: seconds[name] for name in WORDS if seconds.get(name)}
    largest = max(parts, key=lambda name: parts[name])
    hidden = seconds.get("hidden", 0.0)
    behind = (
        f"; {seconds_text(hidden)} of exchange are hidden behind computing" if hidden > 0.01 * seconds["epoch"] else ""
    )
    return [
        f"Memory: {byte_text(full.peak)} of {byte_text(full.capacity)} on the fullest device.",
        f"Bottleneck: {WORDS[largest]}, {100 * parts[largest] / seconds['epoch']:.0f} % of an epoch{behind}.",
    ]


def by_bandwidth(link: str, nominal: float, found: Sequence[BandwidthRange]) -> str:
    """Which is quickest over which bandwidths."""
    here = f"this cluster's {link} links have {rate_text(nominal)}"
    if len(found) == 1:
        return f"Bandwidth: {_stretch_name(found[0])} stays the quickest from 1/128 to 128 times ({here})."
    said = []
    for each in found:
        if each.low == 0:
            said.append(f"{_stretch_name(each)} below {_border(each.high, each.high_span)}")
        elif math.isinf(each.high):
            said.append(f"{_stretch_name(each)} above {rate_text(each.low)}")
        else:
            said.append(f"{_stretch_name(each)} from {rate_text(each.low)} to {_border(each.high, each.high_span)}")
    return f"Bandwidth: quickest is {_listed(said)} ({here})."


def _border(at: float, span: tuple[float, float] | None) -> str:
    """A bandwidth at which the advice changes, with its interval; without one where it is not known well enough."""
    return rate_text(at) + ("" if span is None else f" (90 %: {rate_text(span[0])} to {rate_text(span[1])})")


def _stretch_name(stretch: BandwidthRange) -> str:
    return stretch.priced.candidate.title.replace(", ", " on ")


def how_sure(found: Recommendation, error: ModelError, unsure: tuple[int, int], seeds: int) -> list[str]:
    """How much the advice can be trusted."""
    said = [f"How sure: {error.sentence()}; {unsure[0]} of {unsure[1]} numbers of this cluster are assumed."]
    if found.holds and found.exact is not None:
        beside = f"{found.chosen.method} stays quicker than {_name(found.exact)}"
        if found.holds == "surely":
            said.append(f"Off by {error.ninetieth:g} % against it on both sides, {beside}.")
        else:
            said.append(
                f"Off by {error.median:g} % against it on both sides, {beside}; off by {error.ninetieth:g} %, it would "
                "not."
            )
    for other in found.tempting:
        said.append(_tempting(other, found.chosen))
    if found.chosen.keeps != "exact" and seeds < FEWEST_SEEDS:
        said.append(f"Fewer than {FEWEST_SEEDS} seeds were trained: the interval of accuracy rests on little.")
    return said


def undecided(made: Sequence[CandidateOutcome], spent: str) -> list[str]:
    """Which candidates could still be better, because the budget ended before they were trained."""
    waiting = [each for each in made if each.note == spent]
    if not waiting:
        return []
    named = _listed([f"{_name(each)} ({seconds_text(each.priced.epoch)} an epoch)" for each in waiting])
    return [
        f"Not decided: the budget ended before {named} {'was' if len(waiting) == 1 else 'were'} trained to the end."
    ]


def _tempting(other: CandidateOutcome, chosen: CandidateOutcome) -> str:
    """Why a quicker candidate is not the advice."""
    assert other.seconds is not None and chosen.seconds is not None
    ahead = f"{_name(other)} may be quicker ({seconds_text(other.seconds)})"
    if other.keeps == "open" and other.difference is not None:
        low, high = other.difference.interval()
        seeds = other.difference.count
        if seeds < 2:
            return f"{ahead}, but was trained with one seed only: its loss of accuracy is not known."
        return (
            f"{ahead}, but its accuracy is {low:+.2f} to {high:+.2f} points beside exact training: more --seeds decide."
        )
    return f"{ahead}, by less than the model's error: run both to decide."


def _name(choice: CandidateOutcome) -> str:
    return f"{choice.method} on {devices_text(choice.parts)}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def cut_lines(cuts: Mapping[tuple[str, int], Mapping[str, float]]) -> list[str]:
    """Which partitioner was chosen, and what the others would take."""
    said = []
    for (cut, parts), trials in cuts.items():
        if len(trials) > 1:
            each = ", ".join(f"{name} {seconds_text(seconds)}" for name, seconds in trials.items())
            kind = "edges" if cut == "edge" else "vertices"
            said.append(f"cutting {kind} for {devices_text(parts)}, an epoch takes: {each}")
    return said
