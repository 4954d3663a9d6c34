"""Writes `docs/accuracy.md` and its figures from the kept runs of the studies; trains nothing.

python -m docs.generate.accuracy            # write the page and a figure per study
python -m docs.generate.accuracy --check    # exit code 1 if the page is not what would be written
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.accuracy import CELLS, finished, report, whole_study
from docs.generate.pages import write_or_check
from harness.datasets import FittedScore, read_standins
from reports import study
from reports.whole.papers import PAPERS

PAGE = Path(__file__).resolve().parent.parent / "accuracy.md"
VERDICTS = ("reproduced", "contradicted", "undecided", "not enough runs")

ABOUT = """\
Made from the kept runs of the studies by `python -m docs.generate.accuracy` (half a minute; it trains nothing), not
written by hand. [Studies of accuracy](studies.md) says what a stand-in is, how claims are judged, and what the columns
mean; `haloscope study NAME --budget 2h` goes on from here, `--report` names runs whose code has changed since. Every
number comes from runs on stand-ins or real graphs, none from the papers' own clusters; a verdict holds for the settings
in the study's file. A claim of "better" is contradicted also where the interval, not above 0, ends below the smallest
difference that counts: there is none to see."""
ABOUT_REAL = """\
`python -m benchmarks.accuracy` trains every method on seven real graphs (`HALOSCOPE_DATA`), cut in 4 and 8 parts, with
three seeds; its runs are lines of [accuracy.csv](accuracy.csv). Three seeds decide nothing on one graph, so that the
first two tables are descriptive. Claims are judged over the seven graphs (interval of the mean over graphs, at most 5 %
of the decided claims wrong): the verdict says what holds on average, not on each graph.

Rows of EC-Graph that compress were trained with `ec-graph:wire=product:tuner=pooled:features=exact`, which is not
today's default. Features of the four wide graphs are projected to 256 columns by one fixed matrix of random signs, for
all methods alike."""


def page() -> str:
    """The whole page."""
    found = {name: study.found_of(name) for name in study.names()}
    lines = [*_introduction(found)]
    for name, findings in found.items():
        lines += _section(name, findings)
    lines += _real_graphs()
    return "\n".join(lines).rstrip() + "\n"


def _introduction(found: dict[str, list[study.ClaimFinding]]) -> Iterator[str]:
    yield "# What methods cost in accuracy"
    yield ""
    yield from ABOUT.splitlines()
    yield ""
    printed = [one for name, each in found.items() if name in PAPERS for one in each]
    yield from _table(
        ("study", "claims", *VERDICTS, "decided"),
        [
            *([f"[{name}](#{name})", *_counts(each)] for name, each in found.items()),
            ["the papers' claims", *_counts(printed)],
            ["all", *_counts([one for each in found.values() for one in each])],
        ],
    )
    yield ""


def _counts(found: Sequence[study.ClaimFinding]) -> list[str]:
    counts = [sum(one.judgement.verdict == verdict for one in found) for verdict in VERDICTS]
    return [str(len(found)), *map(str, counts), f"{100 * sum(counts[:2]) / max(len(found), 1):.0f} %"]


def _section(name: str, found: list[study.ClaimFinding]) -> Iterator[str]:
    file = study.read_file(study.file_of(name))
    yield f"## {name}"
    yield ""
    yield f"{file.title}. For {file.matters}."
    yield ""
    known = [one for one in found if one.found is not None and one.found.count > 1]
    if known:
        yield f"![Effects of {name} with intervals](accuracy-{name}.png)"
        yield ""
        yield study.EFFECTS
        yield ""
    yield from _standins(found)
    if known:
        yield from _table(
            ("claim", "first", "second", "printed", "found", "holds", "seeds", "power", "verdict"),
            [_row(one) for one in known],
        )
        yield ""
        if file.remarks:
            yield from file.remarks.strip().splitlines()
            yield ""
    yield from _undecided(name, found)


def _row(one: study.ClaimFinding) -> list[str]:
    claim = one.claim
    assert one.found is not None
    unit = " %" * (claim.unit == "%")
    scores = ["" if one.scores is None else f"{score:.2f}" for score in one.scores or ("", "")]
    printed = "" if claim.difference is None else f"{claim.difference:+.2f}{unit}"
    power = "" if one.power is None else f"{100 * one.power:.0f} %"
    what = "" if claim.metric == "test" else f"; {claim.metric}"
    text = f"{claim.text} ({claim.judge}{what})" + f"; {one.note}" * bool(one.note)
    found = f"{one.found.mean:+.2f} ± {one.half_width:.2f}{unit}"
    holds = study.band_text(claim.band)
    return [text, *scores, printed, found, holds, str(one.found.count), power, one.judgement.verdict]


def _standins(found: Sequence[study.ClaimFinding]) -> Iterator[str]:
    fitted = read_standins()
    for name in sorted({one.claim.standin for one in found} - {""}):
        if name not in fitted:
            yield f"- `standin:{name}` is not fitted: `haloscope standin fit {name}`."
            continue
        scores = "; ".join(
            f"{score.label} {score.ours:.2f}{_half(score)} (printed {score.printed:.2f})"
            for score in fitted[name].scores
        )
        knobs = ", ".join(f"{knob} {value:g}" for knob, value in fitted[name].fitted.items())
        fit = fitted[name].fit
        yield f"- `standin:{name}`: {knobs}; {scores}; {fit.state}, {fit.seeds} seeds; {fit.note}."
    yield ""


def _half(score: FittedScore) -> str:
    return "" if score.half_width is None else f" ± {score.half_width:.2f}"


def _undecided(name: str, found: Sequence[study.ClaimFinding]) -> Iterator[str]:
    """What the claims would take that are not decided: those with runs one by one, the others together."""
    store = study.store_of(name)
    forecast = _forecast(store, found)
    needs = [(one, need) for one in found if (need := study.need_of(one, store)) is not None]
    new = [need for one, need in needs if one.judgement.verdict == "not enough runs"]
    if new:
        unfitted = sorted({need.standin for need in new if need.standin})
        after = f", after fitting {', '.join(f'`{each}`' for each in unfitted)}" * bool(unfitted)
        yield f"{len(new)} claims have fewer than {study.FEWEST_SEEDS} seeds. They need {_cost(new, forecast)}{after}."
        yield ""
    more = [(one, need) for one, need in needs if one.judgement.verdict == "undecided"]
    if more:
        rows = [
            [
                one.claim.key.partition("/")[2], str(one.found.count if one.found else 0), f"{one.precision:.2g}",
                f"{need.precision:g}", str(need.seeds), _cost([need], forecast),
            ]
            for one, need in more
        ]  # fmt: skip
        yield from _table(("undecided", "seeds", "precision", "next precision", "seeds for it", "that is"), rows)
        yield ""


def _forecast(store: study.Store, found: Sequence[study.ClaimFinding]) -> study.Forecast:
    """What runs on stand-ins cost, from all that are finished."""
    runs, fitted = study.Runs(store, jobs=1), read_standins()
    claims = [one.claim for one in found if one.claim.standin in fitted]
    runs.know([cell for claim in claims for seed in range(study.MOST_SEEDS) for cell in claim.cells(seed)])
    return runs.forecast


def _cost(needs: Sequence[study.Need], forecast: study.Forecast) -> str:
    """Runs and their forecast; how long runs on real graphs take, `--dry-run` says."""
    cost = study.needed_runs(needs, forecast)
    seconds, told = cost.seconds, cost.runs - cost.untold
    time = f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{max(1, round(seconds / 60))} min"
    parts = [f"{told} runs, {time} on one core"] * bool(told) + [f"{cost.untold} runs on real graphs"] * bool(
        cost.untold
    )
    return " and ".join(parts)


def _real_graphs() -> Iterator[str]:
    yield "## Real graphs"
    yield ""
    yield from ABOUT_REAL.splitlines()
    yield ""
    yield from report(whole_study(), finished(CELLS)).splitlines()


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield from (f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def draw_figures() -> None:
    """A figure for every study that has runs."""
    for name in study.names():
        found = study.found_of(name)
        with TemporaryDirectory() as folder:
            paths = Path(folder) / "figure.png", Path(folder) / "figure.svg"
            if any(one.found is not None and one.found.count > 1 for one in found):
                study.draw_effects(found, paths)
                (PAGE.parent / f"accuracy-{name}.png").write_bytes(paths[0].read_bytes())


def main(arguments: list[str] | None = None) -> int:
    """Write or check; returns the exit code."""
    code = write_or_check(page(), PAGE, arguments, __doc__, "what the kept runs say")
    if "--check" not in (sys.argv[1:] if arguments is None else arguments):
        draw_figures()
    return code


if __name__ == "__main__":
    sys.exit(main())
