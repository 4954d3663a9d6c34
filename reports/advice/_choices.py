"""What became of every candidate: a row each, and which of them is the advice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal

from reports.advice._certainty import ModelError
from reports.advice._pricing import Priced
from reports.advice._training import Contender, Race
from reports.statistics import Estimate, estimate

Keeps = Literal["exact", "yes", "no", "open", ""]
"""Whether a candidate loses no more accuracy than allowed: exact ones do not; open where the interval has the limit."""


@dataclass(frozen=True, eq=False)
class CandidateOutcome:
    """One candidate with everything that is known of it.

    Attributes:
        epochs: mean over seeds of the epochs to the target; None where a seed does not reach it or none was trained.
        accuracy: test score at the best validation, per cent, over seeds.
        difference: points above exact training, paired by seed.
        keeps: see `Keeps`.
        cost: of training to the target, in the currency of the price.
        pareto: none of the others is as accurate and quicker, or as quick and more accurate.
        note: why it is not followed further.
    """

    priced: Priced
    epochs: float | None
    accuracy: Estimate | None
    difference: Estimate | None
    keeps: Keeps
    cost: float | None
    pareto: bool
    note: str

    @property
    def method(self) -> str:
        """The text of the method."""
        return self.priced.candidate.method

    @property
    def parts(self) -> int:
        """The number of devices."""
        return self.priced.candidate.parts

    @property
    def seconds(self) -> float | None:
        """Predicted seconds to the target."""
        return None if self.epochs is None else self.epochs * self.priced.epoch

    @property
    def possible(self) -> bool:
        """It fits, reaches the target, and keeps the accuracy."""
        return self.seconds is not None and not self.priced.too_large and self.keeps in ("exact", "yes")

    def row(self) -> dict[str, Any]:
        """Plain values in SI units, accuracies in per cent."""
        priced, config = self.priced, self.priced.candidate.config
        return {
            "method": self.method,
            "devices": self.parts,
            "partitioner": config.cut.partitioner if self.parts > 1 else "",
            "layer0": priced.replay.recording.facts.get("layer0", ""),
            "epoch_seconds": priced.epoch,
            **{f"{name}_seconds": value for name, value in priced.seconds.items() if name != "epoch"},
            "bytes_per_epoch": priced.sent,
            "memory_bytes": priced.fullest.peak,
            "device_bytes": priced.fullest.capacity,
            "fits": not priced.too_large,
            "epochs_to_target": self.epochs,
            "seconds_to_target": self.seconds,
            "accuracy": None if self.accuracy is None else self.accuracy.mean,
            "accuracy_half_width": _half(self.accuracy),
            "difference": None if self.difference is None else self.difference.mean,
            "difference_half_width": _half(self.difference),
            "seeds": 0 if self.accuracy is None else self.accuracy.count,
            "keeps_accuracy": self.keeps,
            "cost": self.cost,
            "pareto": self.pareto,
            "note": self.note,
        }


def _half(found: Estimate | None) -> float | None:
    return None if found is None or found.count < 2 else found.half_width()


def choices(race: Race, price: float, resolution: float) -> list[CandidateOutcome]:
    """Every contender's row, the quickest to the target first.

    Args:
        price: of a device for an hour.
        resolution: the step of a score, in points.
    """
    made = [_choice(race, each, price, resolution) for each in race.contenders]
    return sorted(_with_front(made), key=lambda each: each.seconds if each.seconds is not None else math.inf)


def _choice(race: Race, contender: Contender, price: float, resolution: float) -> CandidateOutcome:
    trained = {
        seed: done
        for seed, done in contender.trainings.items()
        if seed in race.reference and done.epochs >= race.whole(contender)
    }
    epochs = [done.epochs_to(race.target(seed)) for seed, done in trained.items()]
    reached = [count for count in epochs if count is not None]
    mean = fmean(reached) if reached and len(reached) == len(epochs) else None
    tests = [done.best()[1] for done in trained.values()]
    gaps = [done.best()[1] - race.reference[seed].best()[1] for seed, done in trained.items()]
    difference = estimate(gaps, resolution) if gaps and not contender.exact else None
    seconds = None if mean is None else mean * contender.priced.epoch
    return CandidateOutcome(
        contender.priced,
        mean,
        estimate(tests, resolution) if tests else None,
        difference,
        _keeps(contender, difference, race.question.within),
        seconds * contender.priced.candidate.parts * price / 3600 if seconds is not None and price else None,
        False,
        f"does not fit: {contender.priced.too_large}" if contender.priced.too_large else contender.dropped,
    )


def _keeps(contender: Contender, difference: Estimate | None, within: float) -> Keeps:
    if contender.exact:
        return "exact"
    if difference is None:
        return ""
    low, high = difference.interval()
    return "yes" if low >= -within else "no" if high < -within else "open"


def _with_front(made: Sequence[CandidateOutcome]) -> list[CandidateOutcome]:
    """The choices with `pareto` set."""

    def beaten(mine: CandidateOutcome) -> bool:
        return any(_dominates(other, mine) for other in made if other is not mine)

    return [replace(each, pareto=_on_map(each) and not beaten(each)) for each in made]


def _on_map(choice: CandidateOutcome) -> bool:
    return choice.seconds is not None and choice.accuracy is not None and not choice.priced.too_large


def _dominates(other: CandidateOutcome, mine: CandidateOutcome) -> bool:
    if not _on_map(other) or not _on_map(mine):
        return False
    assert other.seconds is not None and mine.seconds is not None and other.accuracy and mine.accuracy
    as_good = other.seconds <= mine.seconds and other.accuracy.mean >= mine.accuracy.mean
    return as_good and (other.seconds < mine.seconds or other.accuracy.mean > mine.accuracy.mean)


@dataclass(frozen=True, eq=False)
class Recommendation:
    """The advice among the choices.

    Attributes:
        chosen: what to run.
        exact: the quickest exact one; None where none fits.
        tempting: quicker than the chosen one, but not known well enough: in accuracy, or beyond the model's error.
        holds: "surely" if the chosen one is quicker than the exact one at the 90th percentile of the model's errors,
            "likely" at their median; "" where the exact one is chosen, or none fits.
    """

    chosen: CandidateOutcome
    exact: CandidateOutcome | None
    tempting: tuple[CandidateOutcome, ...]
    holds: Literal["surely", "likely", ""]


def recommendation(made: Sequence[CandidateOutcome], error: ModelError) -> Recommendation | None:
    """What to run: the quickest that keeps the accuracy, and an exact one unless it is surely slower than that.

    None if nothing fits.
    """
    possible = [each for each in made if each.possible]
    if not possible:
        return None
    exact = next((each for each in possible if each.keeps == "exact"), None)
    first = possible[0]
    holds: Literal["surely", "likely", ""] = ""
    if exact is not None and first is not exact:
        pair = [(each.priced, each.epochs or 0.0) for each in (first, exact)]
        sure = error.survives(pair[0], pair[1], error.ninetieth)
        holds = "surely" if sure else "likely" if error.survives(pair[0], pair[1], error.median) else ""
    chosen = first if holds or exact is None else exact
    quicker = [
        each for each in made
        if each is not chosen and each.seconds is not None and chosen.seconds is not None
        and each.seconds < chosen.seconds and not each.priced.too_large and each.keeps in ("exact", "yes", "open")
    ]  # fmt: skip
    return Recommendation(chosen, exact, tuple(quicker[:2]), holds)
