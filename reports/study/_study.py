"""Runs what claims need, seed by seed, until their intervals are narrow enough or the budget ends; and judges them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import stdev
from typing import Any

from harness.datasets import read_standins
from harness.errors import InputError
from reports.statistics import FEWEST_SEEDS, Estimate, Judgement, estimate, judged, more_seeds, seeds_needed
from reports.study._allocation import WORTH_IT, gain_per_second, power_with
from reports.study._cells import COMPUTED, RunLine, Store, StudyCell, graph_state, without_seed
from reports.study._claims import USUAL_PRECISION, AccuracyClaim
from reports.study._forecast import graph_size
from reports.study._metrics import reaches, shown_score
from reports.study._runs import Runs

TRIED = 2  # seeds that are run first: where both diverge, no more are
MOST_SEEDS = 40


@dataclass(frozen=True)
class ClaimFinding:
    """A claim with what was found.

    Attributes:
        found: the mean of the paired differences; None without a pair of runs.
        scores: means of both sides.
        power: the probability that as many runs that vary as these do reproduce it, if the printed difference is the
            true one, or none for "no worse" and "level"; None where none is printed, or with too few runs.
        stale: runs whose code or graph has changed since.
        note: why there are no more runs.
    """

    claim: AccuracyClaim
    found: Estimate | None
    scores: tuple[float, float] | None
    judgement: Judgement
    power: float | None
    stale: tuple[str, ...] = ()
    note: str = ""

    @property
    def half_width(self) -> float | None:
        """Of the interval that decides for all claims judged together; None with fewer than two pairs of runs."""
        if self.found is None or self.found.count < 2:
            return None
        return self.found.half_width(self.judgement.confidence)

    @property
    def precision(self) -> float | None:
        """Width of its own 95 % interval, in the unit of `USUAL_PRECISION`; None with fewer than two pairs of runs."""
        if self.found is None or self.found.count < 2:
            return None
        return USUAL_PRECISION * 2 * self.found.half_width() / self.claim.width

    def row(self) -> dict[str, Any]:
        """Ready for JSON."""
        found, claim = self.found, self.claim
        return {
            "claim": claim.key,
            "text": claim.text,
            "judge": claim.judge,
            "metric": claim.metric,
            "printed": claim.difference,
            "ours": None if found is None else found.mean,
            "half_width": None if found is None or found.count < 2 else found.half_width(),
            "confidence": self.judgement.confidence,
            "half_width_together": self.half_width,
            "holds_between": [_finite(claim.band.low), _finite(claim.band.high)],
            "counts_from": claim.band.least,
            "margin_from": claim.margin_from,
            "scores": self.scores,
            "seeds": 0 if found is None else found.count,
            "precision": self.precision,
            "verdict": self.judgement.verdict,
            "alone": self.judgement.alone,
            "p": self.judgement.p,
            "corrected_p": self.judgement.corrected,
            "power": self.power,
            "stale": list(self.stale),
            "note": self.note,
            "methods": [settings["method"] for settings in claim.settings],
        }


APART = 0.01
"""Share by which the bytes of a run may differ from before: what some methods send depends on values."""


def _finite(value: float) -> float | None:
    return value if abs(value) != float("inf") else None


def comes_out_as_before(now: RunLine, before: RunLine, *others: RunLine) -> bool:
    """Whether a run came out as `before`, also on a machine that rounds sums otherwise.

    Either all numbers are the same, or as many epochs ended in the same state with the same bytes (within APART), and
    the scores differ by no more than the standard deviation over the seeds, of which `others` are the rest.
    """
    if all(now[name] == before[name] for name in COMPUTED):
        return True
    if len(others) < 2 or any(now[name] != before[name] for name in ("state", "epochs")):
        return False
    found, wanted = float(now["megabytes"]), float(before["megabytes"])
    scores = [name for name in ("test", "best", "last") if before[name] and all(line[name] for line in others)]
    if any(bool(now[name]) != bool(before[name]) for name in ("test", "best", "last")):
        return False
    return abs(found - wanted) <= APART * wanted and all(
        abs(float(now[name]) - float(before[name])) <= stdev(float(line[name]) for line in (before, *others))
        for name in scores
    )


@dataclass
class Study:
    """Claims, and the runs that decide them.

    Attributes:
        scale: of the nodes of stand-ins.
        most: seeds of a claim at most.
        precision: that intervals shall reach; of all claims alike, whatever their verdicts are so far.
    """

    claims: Sequence[AccuracyClaim]
    runs: Runs
    scale: float = 1.0
    most: int = MOST_SEEDS
    precision: float = USUAL_PRECISION
    notes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        fitted = read_standins()
        for claim in self.claims:
            if claim.standin and claim.standin not in fitted:
                self.notes[claim.key] = f"stand-in {claim.standin} is not fitted: haloscope standin fit {claim.standin}"
            elif not claim.standin:
                self._note_missing(claim)
        self.runs.know([cell for claim in self.ready for seed in range(self.most) for cell in self._cells(claim, seed)])

    def _note_missing(self, claim: AccuracyClaim) -> None:
        """Leave out a claim whose graph is not here."""
        try:
            graph_size(str(claim.settings[0]["dataset"]))
        except InputError as error:
            self.notes[claim.key] = str(error)

    @property
    def ready(self) -> list[AccuracyClaim]:
        """Claims whose graphs are there."""
        return [claim for claim in self.claims if claim.key not in self.notes]

    def _cells(self, claim: AccuracyClaim, seed: int) -> tuple[StudyCell, StudyCell]:
        return claim.cells(seed, self.scale)

    def first_cells(self) -> list[StudyCell]:
        """The cells without which there is no verdict, cheap claims first, those that are finished left out."""
        costs = {claim.key: sum(map(self.runs.forecast.seconds, self._cells(claim, 0))) for claim in self.ready}
        ordered = sorted(self.ready, key=lambda claim: costs[claim.key])
        found = [cell for claim in ordered for seed in range(FEWEST_SEEDS) for cell in self._cells(claim, seed)]
        return [cell for cell in dict.fromkeys(found) if self.runs.store.finished(cell) is None]

    def _stale(self) -> list[StudyCell]:
        every = [cell for claim in self.ready for seed in range(self.most) for cell in self._cells(claim, seed)]
        return list(dict.fromkeys(self.runs.store.stale(every)))

    def refresh(self) -> bool:
        """Run stale cells again."""
        return self.runs.make(self._stale(), again=True)

    def recheck(self) -> int:
        """Run one seed of stale cells again; where it comes out as before, the other seeds are not stale.

        Only where the code has changed and the graph has not. The cheapest cell of every method and model comes first,
        so that a budget that ends early has met as much code as it could. Returns how many runs that spares.
        """
        groups: dict[str, list[StudyCell]] = {}
        for cell in self._stale():
            line = self.runs.store.lines.get(cell.key)
            if line is not None and line["graph"] == graph_state(line["dataset"]):
                groups.setdefault(f"{line['code']} {sorted(without_seed(cell.settings).items())}", []).append(cell)
        before = {cell.key: self.runs.store.lines[cell.key] for cells in groups.values() for cell in cells}
        self.runs.make(self._code_first([cells[0] for cells in groups.values()]), again=True)
        spared = 0
        for first, *others in groups.values():
            now = self.runs.store.lines[first.key]
            kept = [before[cell.key] for cell in (first, *others)]
            if now["code"] == kept[0]["code"] or not comes_out_as_before(now, *kept):
                continue  # not run, or with other numbers
            for cell in others:
                self.runs.store.keep({**self.runs.store.lines[cell.key], "code": now["code"]})
            spared += len(others)
        return spared

    def _code_first(self, cells: list[StudyCell]) -> list[StudyCell]:
        """The cheapest cell of every method and model, then the next one of each, and so on."""
        turns: Counter[tuple[str, str]] = Counter()
        placed: list[tuple[int, int, StudyCell]] = []
        for cell in sorted(cells, key=self.runs.forecast.seconds):
            code = str(cell.settings["method"]), str(cell.settings.get("model", ""))
            placed.append((turns[code], len(placed), cell))
            turns[code] += 1
        return [cell for *_, cell in sorted(placed, key=lambda each: each[:2])]

    def run(self) -> None:
        """Run cells until every claim's interval is narrow enough, cannot become so, or the budget ends."""
        todo = self.first_cells()
        self.runs.make([cell for cell in todo if int(cell.settings["seed"]) < TRIED])
        self._drop_diverging()
        self.runs.make([cell for cell in self.first_cells() if int(cell.settings["seed"]) >= TRIED])
        while time.monotonic() < self.runs.deadline:
            cells = self._further()
            if not cells or not self.runs.make(cells):
                break

    def _drop_diverging(self) -> None:
        """Leave out claims of which one side diverged with every seed that was tried."""
        for claim in self.ready:
            for side in (0, 1):
                lines = [self.runs.store.finished(self._cells(claim, seed)[side]) for seed in range(TRIED)]
                if all(line is not None and line["state"] == "diverged" for line in lines):
                    method = claim.settings[side]["method"]
                    self.notes[claim.key] = f"{method} diverges with the first {TRIED} seeds: no more are run"

    def _further(self) -> list[StudyCell]:
        """Cells of the next seeds of all claims that need and can have some, those that gain most by them first."""
        wanted: list[tuple[float, list[StudyCell]]] = []
        for claim in self.ready:
            found, more = self._more(claim)
            have = found.count if found else 0
            if more is None:
                width = claim.width_at(self.precision)
                self.notes[claim.key] = f"an interval {width:.2g} wide is out of reach of the budget"
            elif more:
                cells = [cell for seed in range(have, have + more) for cell in self._cells(claim, seed)]
                missing = [cell for cell in cells if self.runs.store.finished(cell) is None]
                seconds = sum(map(self.runs.forecast.seconds, missing))
                gain = gain_per_second(claim, found, more, seconds, self.precision) if found else 0.0
                wanted.append((gain, cells))
        wanted.sort(key=lambda one: -one[0])
        return list(dict.fromkeys(cell for _, cells in wanted for cell in cells))

    def _more(self, claim: AccuracyClaim) -> tuple[Estimate | None, int | None]:
        """What is known of a claim, and how many seeds it gets next; None where its interval is out of reach."""
        found = estimate_of(claim, seed_pairs(claim, self.runs.store, self.scale, self.most))
        have = 0 if found is None else found.count
        affordable = min(self.most - have, self._affordable(claim))
        more = more_seeds(found, claim.width_at(self.precision), affordable)
        if more and found and power_with(claim, found, have + affordable, self.precision) < WORTH_IT:
            return found, None
        return found, more

    def expected_cells(self) -> list[StudyCell]:
        """Cells that the claims with enough seeds for a verdict are expected to need until intervals are narrow enough.

        As many as their deviation so far says; those of claims that cannot reach it are left out.
        """
        cells: list[StudyCell] = []
        for claim in self.ready:
            found, more = self._more(claim)
            if found is not None and found.count >= FEWEST_SEEDS and more:
                seeds = min(self.most, seeds_needed(found.deviation, claim.width_at(self.precision)))
                cells += [cell for seed in range(found.count, seeds) for cell in self._cells(claim, seed)]
        return [cell for cell in dict.fromkeys(cells) if self.runs.store.finished(cell) is None]

    def _affordable(self, claim: AccuracyClaim) -> int:
        """Seeds of a claim that the time left allows, if it had all of it."""
        left = self.runs.deadline - time.monotonic()
        cost = sum(map(self.runs.forecast.seconds, self._cells(claim, 0)))
        return self.most if left == float("inf") else max(0, int(left * self.runs.jobs / max(cost, 1e-9)))


SeedPairs = list[tuple[RunLine, RunLine, float]]
"""Lines of both sides and the difference, seed by seed."""


def seed_pairs(claim: AccuracyClaim, store: Store, scale: float = 1.0, most: int = MOST_SEEDS) -> SeedPairs:
    """The finished pairs of runs of a claim."""
    found = []
    for seed in range(most):
        first, second = (store.finished(cell) for cell in claim.cells(seed, scale))
        if first is not None and second is not None:
            found.append((first, second, claim.gap(first, second)))
    return found


def estimate_of(claim: AccuracyClaim, finished: SeedPairs) -> Estimate | None:
    """The mean difference of finished pairs, known no better than one test node or the time between evaluations."""
    if not finished:
        return None
    step = max(claim.resolution(first, second) for first, second, _ in finished)
    return estimate([gap for _, _, gap in finished], step)


def findings(
    claims: Sequence[AccuracyClaim], store: Store, scale: float = 1.0, notes: Mapping[str, str] | None = None
) -> list[ClaimFinding]:
    """What the finished runs say of every claim, corrected for all of them."""
    every = {claim.key: seed_pairs(claim, store, scale) for claim in claims}
    estimates = {claim.key: estimate_of(claim, every[claim.key]) for claim in claims}
    judgements = judged([(estimates[claim.key], claim.band) for claim in claims])
    found = []
    for claim, judgement in zip(claims, judgements, strict=True):
        finished, mean = every[claim.key], estimates[claim.key]
        cells = [cell for seed in range(MOST_SEEDS) for cell in claim.cells(seed, scale)]
        stale = tuple(cell.title for cell in store.stale(cells))
        scores = None
        if finished:
            number = [[shown_score(claim.metric, line, b, claim.below or 0.0) for line in (a, b)]
                      for a, b, _ in finished]  # fmt: skip
            scores = sum(a for a, _ in number) / len(number), sum(b for _, b in number) / len(number)
        note = "; ".join(filter(None, [(notes or {}).get(claim.key, ""), _late(claim, finished)]))
        found.append(ClaimFinding(claim, mean, scores, judgement, _power(claim, mean), stale, note))
    return found


def _late(claim: AccuracyClaim, finished: SeedPairs) -> str:
    """How many runs never reach the target; "" where all do."""
    if claim.below is None:
        return ""
    first = sum(not reaches(one, other, claim.below) for one, other, _ in finished)
    second = sum(not reaches(other, other, claim.below) for _, other, _ in finished)
    if not first and not second:
        return ""
    return f"of {len(finished)} runs {first} of the first and {second} of the second never reach the target"


def _power(claim: AccuracyClaim, found: Estimate | None) -> float | None:
    """The power that the runs so far have, with their deviation taken for the true one.

    Of "no worse" and "level" it is the power if there is no difference at all, of others if the printed one is true.
    """
    if found is None or found.count < FEWEST_SEEDS:
        return None
    if claim.difference is None and claim.judge == "order":
        return None
    return power_with(claim, found, found.count)


def verdict_counts(found: Sequence[ClaimFinding]) -> str:
    """One line: how many claims have which verdict, and how many are stale."""
    verdicts = [finding.judgement.verdict for finding in found]
    counts = [
        f"{verdicts.count(name)} {name}" for name in ("reproduced", "contradicted", "undecided", "not enough runs")
    ]
    stale = sum(bool(finding.stale) for finding in found)
    return f"{len(found)} claims: {', '.join(counts)}" + f"; {stale} rest on stale runs" * bool(stale)
