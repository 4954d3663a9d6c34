"""The whole of an advice: times every candidate, trains the promising ones, and says what to run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pandas as pd
from matplotlib.figure import Figure

from harness.errors import InputError
from harness.graphs import Graph
from harness.machine import kept_json, write_atomically
from harness.numbers import count_text
from reports.advice._bandwidth import BandwidthRange, deciding_link, stretches
from reports.advice._candidates import candidates
from reports.advice._certainty import assumed, error_of
from reports.advice._choices import CandidateOutcome, Recommendation, choices, recommendation
from reports.advice._commands import commands
from reports.advice._intervals import draws_for
from reports.advice._pricing import Priced, Pricing
from reports.advice._progress import AdviceProgress, Tell, silent
from reports.advice._question import Question, checked_cluster, ranks_to_try, trainable_graph
from reports.advice._sample import FEWEST_NODES, write_sample
from reports.advice._sentences import (
    about_the_devices,
    by_bandwidth,
    compared_with,
    cut_lines,
    how_sure,
    undecided,
    what_to_run,
)
from reports.advice._training import BUDGET_SPENT, Contender, Race, expected_training
from reports.draw.advice import advice_figure, draw_advice
from sims.cluster import Cluster

WORTH_SAMPLING = 0.7
"""A sample of a larger share of the graph would save too little to be worth its error."""


SHOWN = (
    "method", "devices", "partitioner", "epoch_seconds", "epoch_low_seconds", "epoch_high_seconds", "epochs_to_target",
    "seconds_to_target", "accuracy", "difference", "difference_half_width", "memory_bytes", "cost", "note",
)  # fmt: skip
"""Columns that a notebook shows."""


@dataclass(frozen=True, eq=False)
class Advice:
    """What to run, and everything that it rests on.

    Attributes:
        question: what was asked.
        graph: name and size of the graph, and notes on it.
        target: mean validation score that counts as reached, per cent.
        choices: every candidate that was timed, the quickest to the target first.
        verdict: what to run; None where nothing fits or reaches the target.
        sentences: the advice in words.
        commands: how to follow it, by what the command does.
        notes: what must be known beside it, one line each.
        left_out: method -> why it was not timed.
        curves: (method, devices) -> (seconds, validation score) of the first seed's evaluations.
        stretches: what is quickest at which bandwidth.
        intervals: (method, devices) -> 90 % interval of a predicted epoch, of the advice and what it is compared with.
    """

    question: Question
    graph: dict[str, Any]
    target: float
    choices: list[CandidateOutcome]
    verdict: Recommendation | None
    sentences: list[str]
    commands: dict[str, str]
    notes: list[str]
    left_out: dict[str, str]
    curves: dict[tuple[str, int], list[tuple[float, float]]] = field(default_factory=dict)
    stretches: list[BandwidthRange] = field(default_factory=list)
    intervals: dict[tuple[str, int], tuple[float, float]] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """A row per candidate; seconds and bytes, accuracies in per cent; the epoch's interval where it is known."""
        found = []
        for each in self.choices:
            low, high = self.intervals.get((each.method, each.parts), (None, None))
            found.append({**each.row(), "epoch_low_seconds": low, "epoch_high_seconds": high})
        return found

    def frame(self) -> pd.DataFrame:
        """The rows: `accuracy`, `difference` and `accuracy_half_width` in per cent and points, unlike the fractions of
        `RunOutcome.frame` and `Comparison.frame`; seconds, bytes."""
        return pd.DataFrame(self.rows())

    def content(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        question, chosen = self.question, self.verdict.chosen if self.verdict is not None else None
        return {
            "dataset": question.base.data.dataset,
            "cluster": question.base.cluster.name,
            "graph": self.graph,
            "within": question.within,
            "target": self.target,
            "recommended": None if chosen is None else chosen.row(),
            "holds": "" if self.verdict is None else self.verdict.holds,
            "said": self.sentences,
            "commands": self.commands,
            "candidates": self.rows(),
            "bandwidths": [
                {
                    "low": each.low,
                    "high": each.high if math.isfinite(each.high) else None,
                    "high_interval": each.high_span,
                    "method": each.priced.candidate.method,
                    "devices": each.priced.candidate.parts,
                }
                for each in self.stretches
            ],
            "notes": self.notes,
            "left_out": self.left_out,
        }

    def plot(self, path: Path | None = None) -> Figure:
        """Accuracy against time, a figure; also written to `path` (PNG) where one is given."""
        chosen = self.verdict.chosen if self.verdict is not None else None
        rows = [{**each.row(), "chosen": each is chosen} for each in self.choices]
        curves = {f"{method}, {parts}": points for (method, parts), points in self.curves.items()}
        caption = [*self.sentences, *self.notes[:3]]
        if path is not None:
            draw_advice(rows, curves, path, self.target, caption)
        return advice_figure(rows, curves, self.target, caption)

    def _repr_html_(self) -> str:
        said = [*self.sentences, *(f"{what}: {command}" for what, command in self.commands.items())]
        lines = "".join(f"<div>{escape(line)}</div>" for line in said)
        shown = self.frame()[[*SHOWN]].dropna(axis="columns", how="all")
        return lines + str(shown.to_html(float_format=lambda value: f"{value:.4g}", na_rep="-", border=0))

    def save(self) -> list[Path]:
        """Write the table (CSV) and the figure into the question's folder; returns the paths."""
        folder = self.question.out
        folder.mkdir(parents=True, exist_ok=True)
        table = folder / "advice.csv"
        write_atomically(table, self.frame().to_csv(index=False).encode())
        self.plot(folder / "advice.png")
        return [table, folder / "advice.png"]


def make_advice(question: Question, tell: Tell = silent) -> Advice:
    """Find what to run. Everything that is computed is kept in the question's folder, and used again.

    Raises:
        InputError: whatever the user can mend: no such graph, model or cluster, nothing to train on, nothing that fits.
    """
    cluster = checked_cluster(question)
    progress = AdviceProgress(question.budget, tell)
    progress.say(f"loading {question.base.data.dataset}")
    graph = trainable_graph(question.base)
    ranks = ranks_to_try(question, cluster, graph.num_nodes)
    found, left_out = candidates(question.base, graph, question.methods, ranks)
    pricing = Pricing(cluster, question.out / "recordings", progress)
    priced = pricing.price(found)
    if not any(each.candidate.exact and each.candidate.parts > 1 for each in priced):
        raise InputError(next(iter(pricing.left_out.values()), "nothing can be timed on this cluster"))
    race, notes = _raced(question, graph, priced, progress)
    made = choices(race, question.price, 100 / _tests(race, graph))
    progress.say("replaying for intervals")
    return _told(
        question, cluster, graph, race, made, [*notes, *cut_lines(pricing.cuts)], {**left_out, **pricing.left_out}
    )


def _tests(race: Race, graph: Graph) -> int:
    assert graph.test is not None
    return len(graph.test)


def _raced(question: Question, graph: Graph, priced: list[Priced], progress: AdviceProgress) -> tuple[Race, list[str]]:
    """The trainings, on a sample where the whole graph would take too long; and notes on them."""
    notes, data = [], dict[str, Any]()
    count = _sample_size(question, graph, priced, progress)
    share = (count or graph.num_nodes) / graph.num_nodes
    contenders = [Contender(replace(each, work=each.work * share)) for each in priced]
    if count:
        path = write_sample(graph, count, question.base.training.seed, question.out)
        data = {"dataset": str(path), "split": "public", "features": "raw"}
        notes.append(
            f"accuracies and epochs are those of a part of the graph: {count:,} of {graph.num_nodes:,} nodes; times "
            "and memory are those of the whole. Parts of a small graph have larger boundaries: what a method loses is "
            "rather overstated"
        )
    race = Race(question, contenders, progress, data)
    race.run()
    first = race.reference[race.seed(0)]
    if first.failure:
        raise InputError(f"exact training failed: {first.failure}; try a lower --lr")
    if first.scores and first.best()[0] == first.scores[-1][1] and first.epochs > race.every:
        notes.append(
            f"exact training was still improving after {count_text(first.epochs, 'epoch')}: "
            "with more --epochs the target is higher"
        )
    if race.out_of_budget:
        notes.append("the budget ended before all seeds were trained; the same command with a larger --budget goes on")
    return race, notes


def _sample_size(question: Question, graph: Graph, priced: list[Priced], progress: AdviceProgress) -> int:
    """Nodes to train on; 0 for the whole graph."""
    if question.sample:
        return min(question.sample, graph.num_nodes) if question.sample < graph.num_nodes else 0
    expected, left = expected_training(question, priced), max(progress.remaining(), 1.0)
    share = left / expected
    count = 0 if share >= WORTH_SAMPLING else min(max(FEWEST_NODES, int(share * graph.num_nodes)), graph.num_nodes)
    return _decided(question, graph, 0 if count == graph.num_nodes else count)


def _decided(question: Question, graph: Graph, count: int) -> int:
    """The size of the sample that an earlier call with the same budget decided on, so that its trainings count."""
    path = question.out / "sample.json"
    key = f"{graph.fingerprint()} {question.budget:g} {question.base.training.epochs} {question.seeds}"
    known = kept_json(path, dict[str, Annotated[int, msgspec.Meta(ge=0)]]) or {}
    if key not in known:
        known[key] = count
        write_atomically(path, msgspec.json.encode(known), durable=False)
    return known[key]


def _told(
    question: Question,
    cluster: Cluster,
    graph: Graph,
    race: Race,
    made: list[CandidateOutcome],
    notes: list[str],
    left_out: dict[str, str],
) -> Advice:
    """The result, in words and numbers."""
    seeds = list(race.reference)
    target = sum(race.target(seed) for seed in seeds) / len(seeds)
    error = error_of(cluster)
    found = recommendation(made, error)
    described = {
        "name": graph.name, "nodes": graph.num_nodes, "edges": graph.num_edges, "features": graph.num_features,
        "classes": graph.num_classes, "notes": list(graph.notes),
    }  # fmt: skip
    said, lines = ["Nothing fits this cluster and reaches the target."], dict[str, str]()
    ranges, intervals = list[BandwidthRange](), dict[tuple[str, int], tuple[float, float]]()
    if found is not None:
        metric = "micro-F1" if graph.y is not None and graph.y.ndim == 2 else "accuracy"
        told = [found.chosen, *compared_with(found.chosen, made)]
        drawn = draws_for(cluster, [each.priced for each in told], race.progress)
        intervals = {(each.method, each.parts): span for each in told if (span := drawn.epoch(each.priced)) is not None}
        said = what_to_run(found, made, target, question.within, metric, drawn) + about_the_devices(found.chosen)
        eligible = [(each.priced, each.epochs) for each in made if each.possible and each.epochs is not None]
        link = deciding_link(cluster, [priced for priced, _ in eligible])
        if link is not None:
            ranges = stretches(cluster, link, eligible, drawn)
            said.append(by_bandwidth(link, cluster.links[link].bandwidth.value, ranges))
        said += [*how_sure(found, error, assumed(cluster), len(seeds)), *undecided(made, BUDGET_SPENT)]
        lines = commands(found.chosen.priced.candidate, cluster)
    if any(each.priced.unmeasured > 0.5 for each in made):
        notes = [*notes, "most compute times rest on numbers that were not measured (haloscope clusters show NAME)"]
    notes = [*notes, *graph.notes]
    return Advice(
        question, described, target, made, found, said, lines, notes, left_out, _curves(race), ranges, intervals
    )


def _curves(race: Race) -> dict[tuple[str, int], list[tuple[float, float]]]:
    """Validation score against modelled time of the first seed, for candidates that were trained to the end."""
    found, seed = {}, race.seed(0)
    for each in race.contenders:
        done = each.trainings.get(seed)
        if done is not None and not done.failure and not each.priced.too_large and done.epochs >= race.whole(each):
            key = each.priced.candidate.method, each.priced.candidate.parts
            found[key] = [(at * each.priced.epoch, val) for at, val, _ in done.scores]
    return found
