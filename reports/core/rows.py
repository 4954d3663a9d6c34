"""Rows of kinds that tables of several papers have: times, and accuracies with what is assumed of them."""

from __future__ import annotations

from typing import Any, Literal

from reports.core.context import Context
from reports.core.predict import Seconds
from reports.core.table import How, Row
from reports.core.train import Trained


def seconds_row(
    label: str, quantity: str, printed: float, ours: float | None, *, fitted: bool = False, **more: Any
) -> Row:
    """A row in seconds; `more`: other fields of a row."""
    how: How = "fitted" if fitted else "simulated"
    return Row(label=label, quantity=quantity, unit="s", published=printed, ours=ours, how=how, **more)


def scored(label: str, printed: float, run: Trained | None, method: str, *, how: How = "trained", **more: Any) -> Row:
    """The row of an accuracy with its 95 % interval: only its place in orderings is judged, unless the graph is the
    paper's."""
    judge: Literal["points", "order"] = "points" if run and not run.data else "order"
    if run and method not in run.scores:
        how = "needs data"
    return Row(
        label=label, quantity="accuracy", unit="%", published=printed, ours=run.mean(method) if run else None, how=how,
        data=run.data if run else "", judge=judge, seeds=len(run.each(method)) if run else None,
        interval=run.half_width(method) if run else None, **more,
    )  # fmt: skip


def ratio(slow: Seconds, fast: Seconds) -> float:
    """Speed-up of the faster epoch."""
    return slow.epoch / fast.epoch


def judged_in(context: Context, study: str) -> tuple[str, ...]:
    """What is assumed of accuracies that are those of a study (`reports.study.kept_scores`): of all but those of
    `--full`."""
    if context.full:
        return ()
    return (
        "accuracies are means over the seeds of a study's runs, with 95 % intervals, on stand-ins, or on the paper's "
        f"graph where no stand-in is named; claims about them are judged in study/{study}, seed by seed. A stand-in is "
        "fitted to two printed scores, as a rule those of full-graph training and of one isolated partition. Curves "
        "are of the first seed, unless all are drawn",
    )
