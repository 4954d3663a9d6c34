"""`haloscope study`: judge the papers' claims on accuracy, or a user's own, from runs with paired seeds.

Finished runs are lines of a file; the same command goes on from there. Verdicts are printed from all finished runs,
also when the budget ends first.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.commands.arguments.engines import telling
from harness.commands.shared.cells import deliver, json_target, writable
from harness.commands.shared.tables import table
from harness.errors import InputError
from harness.numbers import DASH, duration
from harness.running.engines import CellEngine, opened_engine
from harness.running.sweep import seconds_of
from reports import study

STALE_SHOWN = 10
ALL = "all"
"""In place of a study's name: every study of the project."""


def main(args: argparse.Namespace) -> int:
    """Run and judge; returns 1 if a run failed."""
    json_target(args.json)
    if args.name == "list":
        return _list(args)
    if args.name == ALL:
        return _every_study(args)
    done = _study(args)
    deliver(done.content, done.lines, args.json, args.quiet)
    return done.code


@dataclass(frozen=True)
class _Done:
    """What became of a study: exit code, what JSON has, lines, and findings where claims were judged."""

    code: int
    content: dict[str, Any]
    lines: list[Any]
    found: Sequence[Any] = ()


def _every_study(args: argparse.Namespace) -> int:
    """The project's studies one after another, within one budget; then the counts of all."""
    if args.file is not None or args.only is not None:
        raise InputError(f"--file and --only are for one study, not for {ALL!r}")
    end, done = time.monotonic() + seconds_of(args.budget), dict[str, _Done]()
    for name in study.names():
        left = max(1.0, end - time.monotonic())  # too short for a run; what is finished is still judged
        one = argparse.Namespace(**{**vars(args), "name": name, "budget": f"{left:.0f}s"})
        telling(args.quiet)(f"study {name}")
        done[name] = _study(one)
        deliver(None, done[name].lines, None, args.quiet or args.json == "-")
    rows = [[name, study.verdict_counts(each.found)] for name, each in done.items() if each.found]
    summary = [table("all studies", ["study", "verdicts"], rows, left=2)] if rows else []
    deliver({"studies": [each.content for each in done.values()]}, summary, args.json, args.quiet)
    return max(each.code for each in done.values())


def _study(args: argparse.Namespace) -> _Done:
    """Run what one study misses, and judge its claims."""
    _check(args)
    claims = _chosen(args)
    path: Path = args.file or study.results_of(args.name, args.scale)
    writable(path, folder=False)
    with opened_engine(args.on, args.jobs, path.parent, telling(args.quiet), one_here=False) as engine:
        return _judged(args, claims, path, engine)


def _judged(args: argparse.Namespace, claims: Sequence[Any], path: Path, engine: CellEngine) -> _Done:
    """Run what is missing on an engine, and judge."""
    begin, say = time.monotonic(), telling(args.quiet)
    jobs = 1 if args.report else engine.places()
    store = study.store_of(args.name, args.scale) if args.file is None else study.Store.open(path)
    runs = study.Runs(store, jobs, begin + seconds_of(args.budget), say, engine=engine)
    made = study.Study(claims, runs, args.scale, args.most, args.precision)
    if args.dry_run:
        return _foretold(made, jobs)
    if not args.report:
        warnings.filterwarnings("ignore", "A worker stopped while some jobs")  # loky renews workers that have grown
        for line in study.cost_lines(made.first_cells(), runs.forecast, jobs):
            say(line)
        if args.recheck:
            say(f"{made.recheck()} runs have the numbers of today's code, by another seed of theirs")
        if args.refresh:
            made.refresh()
        made.run()
        runs.store.tidy()
    found = study.findings(claims, runs.store, args.scale, made.notes)
    content = {"study": args.name, "file": str(path), "claims": [finding.row() for finding in found]}
    lines = [*_tables(found), f"{duration(time.monotonic() - begin)}; runs: {path}", *_failures(runs.failures)]
    code = 1 if any(why != study.BUDGET_SPENT for why in runs.failures.values()) else 0
    return _Done(code, content, lines, found)


def _foretold(made: Any, jobs: int) -> _Done:
    """What there is to run, and what it takes."""
    forecast, first, further = made.runs.forecast, made.first_cells(), made.expected_cells()
    lines = [
        f"{study.FEWEST_SEEDS} seeds of {len(made.ready)} of {len(made.claims)} claims",
        *study.cost_lines(first, forecast, jobs),
        f"more seeds, until intervals have a precision of {made.precision:g}, of the claims that can reach it",
        *study.cost_lines(further, forecast, jobs),
        *_notes(made.notes),
    ]
    first_s, further_s = (forecast.left(cells, jobs) for cells in (first, further))
    content = {
        "runs": len(first), "seconds": first_s, "jobs": jobs, "precision": made.precision,
        "further_runs": len(further), "further_seconds": further_s,
    }  # fmt: skip
    return _Done(0, content, lines)


def _check(args: argparse.Namespace) -> None:
    if not 0 < args.scale <= 100:
        raise InputError("--scale must be above 0 and at most 100")
    if args.most < study.FEWEST_SEEDS:
        raise InputError(f"--most must be at least {study.FEWEST_SEEDS}: fewer seeds have no verdict")
    if not 0 < args.precision <= 1:
        raise InputError("--precision must be above 0 and at most 1: the printed difference, or twice the margin")


def _chosen(args: argparse.Namespace) -> list[Any]:
    """The claims that --only names. Raises InputError where there is none."""
    claims = study.read_claims(study.file_of(args.name))
    wanted = [text.strip() for text in (args.only or "").split(";") if text.strip()]
    found = [claim for claim in claims if args.only is None or any(text in claim.key for text in wanted)]
    if not found:
        raise InputError(f"no claim of {args.name} contains {args.only!r}; the first is {claims[0].key!r}")
    return found


def _tables(found: Sequence[Any]) -> list[Any]:
    """Verdicts as a table, stale runs by name, and the count."""
    columns = ["claim", "printed", "ours", "+-", "holds", "seeds", "power", "alone", "verdict"]
    rows = [
        [
            finding.claim.key.partition("/")[2],
            *(_signed(value) for value in (finding.claim.difference, finding.found.mean if finding.found else None)),
            DASH if finding.half_width is None else f"{finding.half_width:.2f}",
            study.band_text(finding.claim.band),
            str(finding.found.count if finding.found else 0),
            DASH if finding.power is None else f"{100 * finding.power:.0f} %",
            finding.judgement.alone,
            finding.judgement.verdict,
        ]
        for finding in found
    ]
    stale = list(dict.fromkeys(title for finding in found for title in finding.stale))
    lines = [f"stale (code or graph has changed; --refresh runs it again): {title}" for title in stale[:STALE_SHOWN]]
    more = [f"stale: {len(stale) - STALE_SHOWN} more"] if len(stale) > STALE_SHOWN else []
    notes = _notes({finding.claim.key: finding.note for finding in found if finding.note})
    return [
        table("differences in points, of bytes in per cent", columns, rows),
        f"printed, ours: first minus second; +-: half the {_confidence(found)} interval, which decides, so that of the "
        "decided claims at most 5 % are wrong; holds: where the claim holds; alone: the verdict of the 95 % interval",
        *notes, *lines, *more, study.verdict_counts(found),
    ]  # fmt: skip


def _confidence(found: Sequence[Any]) -> str:
    """The one confidence of all intervals, in per cent."""
    return f"{100 * found[0].judgement.confidence:.4g} %"


def _signed(value: float | None) -> str:
    return DASH if value is None else f"{value:+.2f}"


def _notes(notes: dict[str, str]) -> list[str]:
    """Each reason once, with the number of its claims."""
    reasons = list(notes.values())
    return [f"{reasons.count(why)} claims: {why}" for why in dict.fromkeys(reasons)]


def _failures(failures: dict[str, str]) -> list[str]:
    spent = sum(why == study.BUDGET_SPENT for why in failures.values())
    lines = [f"failed: {title}: {why}" for title, why in failures.items() if why != study.BUDGET_SPENT]
    return lines + [f"{spent} runs were not begun: {study.BUDGET_SPENT}"] * bool(spent)


def _list(args: argparse.Namespace) -> int:
    """The studies of the project with their verdicts so far."""
    rows = []
    for name in study.names():
        found = study.findings(study.read_claims(study.file_of(name)), study.store_of(name, args.scale), args.scale)
        rows.append([name, str(len(found)), study.verdict_counts([one for one in found if one.found is not None])])
    content = [dict(zip(("study", "claims", "judged"), row, strict=True)) for row in rows]
    deliver(content, [table("", ["study", "claims", "with runs"], rows, left=3)], args.json, args.quiet)
    return 0
