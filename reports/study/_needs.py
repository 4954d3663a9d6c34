"""What would decide claims that are not decided yet: runs, and seconds on one core."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.datasets import read_standins, size_of
from reports.statistics import FEWEST_SEEDS, seeds_needed
from reports.study._cells import Store, StudyCell
from reports.study._claims import USUAL_PRECISION
from reports.study._forecast import Forecast
from reports.study._standins import design_of
from reports.study._study import ClaimFinding


@dataclass(frozen=True)
class Need:
    """What is missing before a claim has a verdict, or is as well known as its paper's difference asks.

    Attributes:
        seeds: that it needs in all.
        cells: runs that are missing.
        standin: the stand-in that has to be fitted first; "" for none.
        precision: that so many seeds are expected to reach.
    """

    seeds: int
    cells: tuple[StudyCell, ...]
    standin: str = ""
    precision: float = USUAL_PRECISION


@dataclass(frozen=True)
class NeededRuns:
    """The runs of several needs, each counted once.

    Attributes:
        seconds: on one core, without those of `untold`.
        untold: runs on graphs of files, whose size is not known where they are not.
    """

    runs: int
    seconds: float
    untold: int


def need_of(finding: ClaimFinding, store: Store) -> Need | None:
    """What an undecided claim needs, to be run of all claims alike; None for a decided one."""
    claim, found = finding.claim, finding.found
    if finding.judgement.verdict in ("reproduced", "contradicted"):
        return None
    have = 0 if found is None else found.count
    seeds, precision = FEWEST_SEEDS, next_precision(finding)
    if found is not None and have >= FEWEST_SEEDS:
        seeds = max(have + 1, seeds_needed(found.deviation, claim.width_at(precision)))
    cells = (cell for seed in range(seeds) for cell in claim.cells(seed))
    unfitted = bool(claim.standin) and claim.standin not in read_standins()
    missing = tuple(cell for cell in cells if store.finished(cell) is None)
    return Need(seeds, missing, claim.standin if unfitted else "", precision)


def next_precision(finding: ClaimFinding) -> float:
    """The usual precision, or the first of its halves that the interval has not reached."""
    if finding.found is None or finding.found.count < FEWEST_SEEDS or not finding.precision:
        return USUAL_PRECISION
    halvings = max(0, math.floor(math.log2(USUAL_PRECISION / finding.precision)) + 1)
    return math.ldexp(USUAL_PRECISION, -halvings)


def needed_runs(needs: Sequence[Need], forecast: Forecast) -> NeededRuns:
    """Number and cost of what the needs are missing."""
    each = {cell.key: _as_designed(cell, need.standin) for need in needs for cell in need.cells}
    told = [cell for cell in each.values() if size_of(str(cell.settings["dataset"])) is not None]
    return NeededRuns(len(each), sum(map(forecast.seconds, told)), len(each) - len(told))


def _as_designed(cell: StudyCell, standin: str) -> StudyCell:
    """The cell on the graph at which the search for a stand-in begins: as large as the one to be found."""
    if not standin:
        return cell
    design = design_of(standin)
    start = design.settings({knob.name: knob.start for knob in design.knobs}, cell.method, 0)
    return StudyCell({**cell.settings, "dataset": start["dataset"], "split": start["split"]})
