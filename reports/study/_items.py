"""What a report shows of the studies: a table of claims per paper, and a figure of effects with intervals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from reports.core.context import Context
from reports.core.table import Outcome, PaperTable, Plot, Row
from reports.study._cells import Store
from reports.study._claims import file_of, names, read_claims
from reports.study._effects import draw_effects
from reports.study._metrics import BYTES, SCORES
from reports.study._study import ClaimFinding, findings, verdict_counts

RESULTS = Path(__file__).with_name("results")
VERDICTS: dict[str, Outcome] = {
    "reproduced": "reproduced",
    "contradicted": "contradicted",
    "undecided": "undecided",
    "not enough runs": "cannot be judged",
}
RULE = (
    "paired seeds, Student's intervals, so wide that of the study's decided claims at most 5 % are wrong (Benjamini "
    "and Yekutieli); no verdict from fewer than 5 seeds; order: first is ahead; size: within half of the printed "
    "difference, or what the paper's own deviations leave open; no worse and level: within the margin"
)


EFFECTS = (
    "Mean paired difference with the interval that decides, coloured by verdict; diamond: the printed difference; "
    "green: where the claim holds; beige: where its order holds, by a difference too small to count."
)
QUANTITIES = dict.fromkeys(SCORES, "difference of accuracy") | {BYTES: "bytes, ratio"}


def results_of(name: str, scale: float = 1.0) -> Path:
    """The file of a study's runs: in the project, or beside a user's own file of claims; one for every scale."""
    path = file_of(name)
    scaled = "" if scale == 1 else f"-scale-{scale:g}"
    folder = path.parent if name.endswith(".toml") else RESULTS
    return folder / f"{path.stem}{scaled}.csv"


def store_of(name: str, scale: float = 1.0) -> Store:
    """The runs of a study; those that come with the project share theirs."""
    path = results_of(name, scale)
    others = [] if name.endswith(".toml") else [results_of(other, scale) for other in names() if other != name]
    return Store.open(path, others)


def found_of(name: str) -> list[ClaimFinding]:
    """What the kept runs say of every claim of a study. Trains nothing."""
    return findings(read_claims(file_of(name)), store_of(name))


def table_of(name: str) -> Callable[[Context], PaperTable]:
    """What makes the table of a study; its docstring says which."""

    def make(_: Context) -> PaperTable:
        return judged_claims(name)

    make.__doc__ = f"Claims of {name} on accuracy: differences with intervals, power and verdicts."
    return make


def figure_of(name: str) -> Callable[[Context], Plot]:
    """What makes the figure of a study; its docstring says which."""

    def make(context: Context) -> Plot:
        return forest(name, context)

    make.__doc__ = f"Effects on accuracy of {name}, with intervals, beside the printed ones."
    return make


def judged_claims(name: str) -> PaperTable:
    """The claims of a study that have runs, with verdicts; trains nothing."""
    found = [finding for finding in found_of(name) if finding.found is not None]
    stale = sorted({title for finding in found for title in finding.stale})
    without = () if found else (f"no runs yet: haloscope study {name}",)
    return PaperTable(
        key=f"study/{name}", title=f"Claims of {name} on accuracy, with intervals", rows=tuple(map(_row, found)),
        assumptions=(RULE, *without, *(verdict_counts(found),) * bool(found), *(f"stale: {title}" for title in stale)),
        commands=(f"haloscope study {name}",),
    )  # fmt: skip


def _row(finding: ClaimFinding) -> Row:
    claim, found = finding.claim, finding.found
    assert found is not None
    power = "" if finding.power is None else f", power {100 * finding.power:.0f} %"
    return Row(
        label=f"{claim.text} ({claim.judge})",
        quantity=QUANTITIES.get(claim.metric, f"difference of {claim.metric}"),
        unit=claim.unit,
        published=claim.difference,
        ours=found.mean,
        interval=finding.half_width,
        how="trained",
        data=str(claim.settings[0]["dataset"]),
        judge="difference",
        decided=VERDICTS[finding.judgement.verdict],
        note=f"{found.count} seeds{power}",
    )


def forest(name: str, context: Context) -> Plot:
    """Effect with interval of every claim that has runs, printed difference as a mark, where the claim holds shaded."""
    key = f"study/{name}-effects"
    paths = context.figure_paths(key)
    found = found_of(name)
    draw_effects(found, paths)
    without = () if any(one.found is not None for one in found) else (f"no runs yet: haloscope study {name}",)
    return Plot(
        key=key, title=f"Effects on accuracy, {name}", paths=paths, caption=EFFECTS,
        assumptions=(RULE, *without), commands=(f"haloscope study {name}",),
    )  # fmt: skip
