"""What would decide a claim that is not decided yet: runs, and seconds on one core."""

from __future__ import annotations

from dataclasses import dataclass

from harness.datasets import read_standins, size_of
from reports.statistics import FEWEST_SEEDS, seeds_needed
from reports.study._cells import StudyCell
from reports.study._forecast import Forecast
from reports.study._standins import design_of
from reports.study._study import ClaimFinding


@dataclass(frozen=True)
class Need:
    """Runs that are missing before a claim is decided, or is as well known as its paper's difference asks.

    Attributes:
        seeds: that it needs in all.
        runs: that are missing.
        seconds: of these, on one core; None on a graph of a file, whose size is not known where it is not.
        standin: the stand-in that has to be fitted first; "" for none.
    """

    seeds: int
    runs: int
    seconds: float | None
    standin: str = ""


def need_of(finding: ClaimFinding, forecast: Forecast) -> Need | None:
    """What an undecided claim needs; None for a decided one. Costs are forecast from finished runs."""
    claim, found = finding.claim, finding.found
    if finding.judgement.verdict in ("reproduced", "contradicted"):
        return None
    have = 0 if found is None else found.count
    seeds = FEWEST_SEEDS
    if found is not None and have >= FEWEST_SEEDS:
        seeds = max(have + 1, seeds_needed(found.deviation, claim.width))
    missing = seeds - have
    unfitted = bool(claim.standin) and claim.standin not in read_standins()
    if not unfitted and size_of(str(claim.cells(0)[0].settings["dataset"])) is None:
        return Need(seeds, 2 * missing, None)
    one = sum(forecast.seconds(_as_designed(cell, claim.standin) if unfitted else cell) for cell in claim.cells(0))
    return Need(seeds, 2 * missing, missing * one, claim.standin if unfitted else "")


def _as_designed(cell: StudyCell, standin: str) -> StudyCell:
    """The cell on the graph at which the search for a stand-in begins: as large as the one to be found."""
    design = design_of(standin)
    start = design.settings({knob.name: knob.start for knob in design.knobs}, cell.method, 0)
    return StudyCell({**cell.settings, "dataset": start["dataset"], "split": start["split"]})
