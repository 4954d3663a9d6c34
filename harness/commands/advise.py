"""`haloscope advise`: what to run on a graph, a model and a cluster, and how sure that is.

A thin layer over `reports.advice`: flags in, sentences and a table out.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.text import Text

from harness.commands.arguments import given_config, settings_given
from harness.commands.arguments.engines import telling
from harness.commands.arguments.numbers import whole_numbers
from harness.commands.shared.cells import deliver, json_target, writable
from harness.commands.shared.questionnaire import ask_for_cluster
from harness.commands.shared.tables import table
from harness.config import check
from harness.console import show, stderr
from harness.errors import InputError
from harness.numbers import DASH, duration, megabytes, significant, time_unit
from harness.running.engines import CellEngine, LocalProcesses, opened_engine
from harness.running.sweep import seconds_of
from reports.advice import Advice, CandidateOutcome, Question, Tell, make_advice
from sims.cluster import load_cluster


def main(args: argparse.Namespace) -> int:
    """Ask, and print the answer; returns 1 if nothing can be recommended."""
    writable(args.out, folder=True)
    json_target(args.json)
    if "cluster" not in settings_given(args):
        args.cluster = _own_cluster(args.out)
    begin = time.monotonic()
    warnings.filterwarnings("ignore", "A worker stopped while some jobs")  # loky renews workers that have grown
    with opened_engine(args.on, args.jobs, args.out, telling(args.quiet)) as engine:
        question = question_of(args, engine)
        with _telling(args.quiet) as tell:
            advice = make_advice(question, tell)
    written = advice.save()
    lines = [*_report(advice), f"{duration(time.monotonic() - begin)}; written: {', '.join(map(str, written))}"]
    deliver(advice.content(), lines, args.json, args.quiet)
    return 0 if advice.verdict is not None else 1


def _own_cluster(out: Path) -> str:
    """The cluster that was, or now is, described in answers.

    Raises:
        InputError: none was, and stdin is no terminal; or as `ask_for_cluster`.
    """
    path = out / "cluster.toml"
    if not path.exists():
        if not sys.stdin.isatty():
            raise InputError(
                "which cluster? --cluster NAME (haloscope clusters), --cluster hosts=4,device=l4,nic=10Gb/s,bus=12GB/s "
                "or any other line, or haloscope clusters --ask FILE.toml"
            )
        ask_for_cluster(path)
    show([f"cluster {path}: {load_cluster(path).summary}"], stderr())
    return str(path)


def question_of(args: argparse.Namespace, engine: CellEngine | None = None) -> Question:
    """The question that the flags ask; trainings run on an engine. Raises InputError for bad flags."""
    parts, args.parts = tuple(whole_numbers(args.devices, "--parts", "devices")), 2
    base = given_config(args)
    check(base.changed(mode="sim"))  # it trains in loopback, and predicts on the cluster
    return Question(
        base=base,
        parts=parts,
        methods=tuple(text.strip() for text in args.methods.split(",") if text.strip()),
        within=args.within,
        seeds=args.seeds,
        budget=seconds_of(args.budget),
        price=args.price,
        out=args.out,
        jobs=LocalProcesses(args.jobs).places() if engine is None else engine.places(),
        engine=engine,
        sample=args.sample,
    )


@contextmanager
def _telling(quiet: bool) -> Iterator[Tell]:
    """Shows what is done and the time left on stderr: one line that is replaced on a terminal, else a line each."""
    console = stderr()

    def text(what: str, left: float | None) -> str:
        return what if left is None else f"{what}; about {duration(left)} left"

    if quiet:
        yield lambda what, left: None
    elif console.is_terminal:
        with console.status("beginning") as status:
            yield lambda what, left: status.update(text(what, left))
    else:
        yield lambda what, left: show([text(what, left)], console)


def _report(advice: Advice) -> list[Any]:
    """The answer in words, the table behind it, the command lines, and notes."""
    graph, question = advice.graph, advice.question
    model = question.base.model
    size = f"{graph['nodes']:,} nodes, {graph['edges']:,} directed edges, {graph['features']} features"
    head = (
        f"{graph['name']} ({size}); {model.name} {model.layers} x {model.hidden}; cluster {question.base.cluster.name}"
    )
    lines: list[Any] = [Text(head), "", *map(Text, advice.sentences), ""]
    chosen = advice.verdict.chosen if advice.verdict is not None else None
    lines += _tables(advice.choices, chosen, advice.intervals)
    lines += [f"{what + ':':10}{command}" for what, command in advice.commands.items()]
    lines += [Text(f"note: {note}") for note in advice.notes]
    return lines + [Text(line) for line in _left_out(advice.left_out)]


def _left_out(reasons: Mapping[str, str]) -> list[str]:
    """A line per reason, with the candidates that it concerns; of one method, all its numbers of devices together."""
    lines = []
    for why in dict.fromkeys(reasons.values()):
        methods: dict[str, list[str]] = {}
        for title, reason in reasons.items():
            method, _, devices = title.partition(", ")
            if reason == why:
                methods.setdefault(method, []).append(devices.partition(" ")[0])
        named = [f"{method} ({', '.join(counts)})" if any(counts) else method for method, counts in methods.items()]
        lines.append(f"left out: {', '.join(named)}: {why}")
    return lines


def _tables(
    choices: Sequence[CandidateOutcome],
    chosen: CandidateOutcome | None,
    intervals: Mapping[tuple[str, int], tuple[float, float]],
) -> list[Any]:
    """All candidates: those with a time to the target first, then those that were dropped, with the reason."""
    factor, unit = time_unit([each.priced.epoch for each in choices])
    longest, unit_to = time_unit([each.seconds for each in choices])
    priced = any(each.cost is not None for each in choices)
    interval, cost = ["90 %"] if intervals else [], ["cost"] if priced else []
    columns = ["method", "devices", f"epoch {unit}", *interval, "MB sent", "MB memory", "epochs",
               f"to target {unit_to}", *cost, "test %", "beside exact", "seeds"]  # fmt: skip
    rows = [
        [
            ("> " if each is chosen else "  ") + each.method + " *" * each.pareto,
            str(each.parts),
            significant(each.priced.epoch * factor),
            *([_span(intervals.get((each.method, each.parts)), factor)] if intervals else []),
            megabytes(each.priced.sent),
            megabytes(each.priced.fullest.peak),
            DASH if each.epochs is None else f"{each.epochs:.3g}",
            significant(None if each.seconds is None else each.seconds * longest),
            *([significant(each.cost)] if priced else []),
            DASH if each.accuracy is None else f"{each.accuracy.mean:.2f}",
            _beside(each),
            str(each.accuracy.count if each.accuracy else 0),
        ]
        for each in choices
        if each.accuracy is not None
    ]
    legend = "> advised; * no other is as accurate and quicker; MB sent by all devices, MB memory of the fullest"
    told: list[Any] = [table("", columns, rows, left=2), Text(legend)]
    told += [Text(line) for line in _untrained([each for each in choices if each.accuracy is None], factor, unit)]
    return [*told, ""]


def _span(ends: tuple[float, float] | None, factor: float) -> str:
    return DASH if ends is None else "-".join(significant(end * factor) for end in ends)


def _untrained(rest: Sequence[CandidateOutcome], factor: float, unit: str) -> list[str]:
    """What was not trained to the end: a line for every reason, with the epochs on every number of devices."""
    lines = []
    for why in dict.fromkeys(each.note for each in rest):
        alike = [each for each in rest if each.note == why]
        named = []
        for method in dict.fromkeys(each.method for each in alike):
            epochs = [f"{significant(each.priced.epoch * factor)} {unit} on {each.parts}" for each in alike
                      if each.method == method]  # fmt: skip
            named.append(f"{method} ({', '.join(epochs)})")
        lines.append(f"not trained to the end ({why}): {', '.join(named)}")
    return lines


def _beside(choice: CandidateOutcome) -> str:
    """The difference to exact training with half its interval."""
    if choice.keeps == "exact":
        return "exact"
    if choice.difference is None:
        return DASH
    half = choice.difference.half_width() if choice.difference.count > 1 else None
    return f"{choice.difference.mean:+.2f}" + (f" ± {half:.2f}" if half is not None else "")
