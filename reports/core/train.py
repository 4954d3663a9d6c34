"""Accuracies behind a report: the graph to train on, the numbers of epochs and seeds, and the scores.

The paper's graph is used where it is on disk and within the budget, otherwise a stand-in, named as such: for every
published graph the most similar one that is there. Epochs follow from the budget by a fixed estimate of cost,
not by the clock: an equal budget trains equal runs on every machine. Where several published graphs have one stand-in,
a table says so (`reports.core.table.shared_stand_ins`), and orderings of the same runs count once
(`Ordering.runs`).
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import numpy as np

from harness.config import RunConfig, from_mapping
from harness.errors import InputError, unknown
from harness.methods.registry import cut_of
from reports.core.context import Context, demand
from reports.core.table import POINTS, STANDS_IN, Ordering, Row
from reports.statistics import estimate

# Published name -> (names under which the real one may be found, its directed edges, stand-ins by preference).
GRAPHS: dict[str, tuple[tuple[str, ...], float, tuple[str, ...]]] = {
    "cora": (("cora", "pyg:Cora"), 10_556, ("citeseer", "synthetic:nodes=2700,degree=4,features=256")),
    "citeseer": (("citeseer", "pyg:CiteSeer"), 9_104, ("cora", "synthetic:nodes=3300,degree=3,features=256")),
    "pubmed": (("pubmed", "pyg:PubMed"), 88_654, ("citeseer", "cora", "synthetic:nodes=4000,degree=4.5,classes=3")),
    "reddit": (  # skewed degrees, the densest here of which neighbours agree as often (0.78)
        ("reddit", "pyg:Reddit"), 114.6e6, ("amazon_computers", "synthetic:reddit-like,scale=0.01,degree=40")
    ),
    "reddit2": (  # CDFGNN's and subgraph approximation's Reddit: a fifth of the edges (X1), as GraphSAINT sampled them
        ("reddit2", "pyg:Reddit2"), 23.2e6, ("amazon_computers", "synthetic:reddit-like,scale=0.01,degree=40")
    ),
    "ogbn-products": (  # many nodes, dense features, neighbours that nearly always agree
        ("ogbn-products", "ogb:ogbn-products"), 123.7e6, ("mnist_knn15", "synthetic:products-like,scale=0.003")
    ),
    "amazon2m": (("amazon2m",), 96.7e6, ("facebook_pages", "synthetic:products-like,scale=0.003")),
    "ogbn-papers100m": (("ogb:ogbn-papers100M",), 3.23e9, ("coauthor_physics", "synthetic:nodes=6000,degree=29")),
    "yelp": (  # users and their friends
        ("yelp", "pyg:Yelp"), 14.0e6,
        ("github_social",
         "synthetic:yelp-like,scale=0.01,classes=20,features=64,signal=0.7,label_noise=0.2,multilabel=0"),
    ),
    "amazon": (
        ("amazon", "pyg:AmazonProducts"), 264.3e6,
        ("synthetic:amazon-like,scale=0.004,degree=40,classes=20,signal=0.7,label_noise=0.2,multilabel=0",),
    ),
    "friendster": ((), 3.6e9, ("facebook_pages", "synthetic:nodes=6000,degree=29")),  # who befriends whom
}  # fmt: skip
PROJECTED = ("amazon_computers", "mnist_knn15", "facebook_pages", "coauthor_physics")
STANDARDISED = ("yelp", "pyg:Yelp", "amazon", "pyg:AmazonProducts", "reddit2", "pyg:Reddit2")
SETTINGS = dict.fromkeys(PROJECTED, {"features": "projected"}) | dict.fromkeys(STANDARDISED, {"features": "standard"})
"""Features as a graph is trained with. Projected: a stand-in is learnt in few epochs at low cost, 256 columns of many.
Standard: graphs of GraphSAINT's files, which its own loader, and those of the systems that read them, standardise."""
EDGES_PER_SECOND = 50_000  # a real graph is used where it has at most so many edges per second of the table's share
EPOCHS = (6, 10, 15, 20, 30, 40, 60, 80, 100, 150, 200, 300, 400, 600, 800, 1000)
FEWEST = 30  # epochs; the number of seeds is reduced first
FLOPS, EDGE_VALUES = 8e10, 4e9  # per second of one core; all such rates are from `benchmarks.training_cost`
INPUTS = 1.2e8  # values of the input features that GraphSAGE joins with their neighbours' mean, per second
PER_LAYER_S = 0.005  # of one rank's layer, forward and backward, with the evaluations
COSTLIER = {"ec-graph": 2.0, "ec-graph-s": 1.5, "cdfgnn": 5.0}  # over plain exchanges: codecs, selectors, caches
SAMPLED = {"graphsage-ns": 3.0, "fastgcn": 2.0, "ladies": 1.5, "as-gcn": 6.0, "vr-gcn": 1.7}
"""Times as much as subgraph approximation's mini-batches."""
ATTENTION, BATCHES = 4.5, 4.0  # times as much with attention, with mini-batches
EVALUATIONS = 20  # of a run at most
LEARNT = 2.0  # points over the majority class from which a score counts as learnt


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Results of training.

    Attributes:
        scores: label -> (mean, standard deviation over seeds) of the test accuracy at the best validation, in per cent.
        records: label -> one result record per seed.
        data: what a row's `data` should say: "" on the paper's graph, "cora stands in for reddit" otherwise.
        summary: epochs, seeds and graph in one line, for the assumptions.
        commands: one command per label.
        where: the graph and the number of parts of the training.
        majority: per cent of the labelled nodes that are of the commonest class; None where nodes have several labels.
    """

    scores: dict[str, tuple[float, float]]
    records: dict[str, list[dict[str, Any]]] = field(repr=False)
    data: str
    summary: str
    commands: tuple[str, ...]
    where: str = ""
    majority: float | None = None

    def mean(self, label: str) -> float | None:
        """Mean test accuracy in per cent; None for a label that was not trained."""
        return self.scores[label][0] if label in self.scores else None

    def each(self, label: str) -> list[float]:
        """Test accuracy of every seed at its best validation, in per cent; none for a label that was not trained."""
        return [100 * record["summary"]["test_at_best_val"] for record in self.records.get(label, ())]

    def half_width(self, label: str) -> float | None:
        """Half of the 95 % interval (Student's) of `mean`, in points; None with fewer than two seeds."""
        each = self.each(label)
        return estimate(each).half_width() if len(each) > 1 else None

    def difference(self, label: str, printed: float | None, first: str, second: str, **more: Any) -> Row:
        """A printed difference of two scores (first - second, points) beside ours with its 95 % confidence interval.

        The runs of one seed share splits, initial weights and random keys, so differences are taken seed by seed; the
        interval is Student's. With one seed there is none, and the row cannot be judged.

        Args:
            first, second: labels of the scores; a label that was not trained leaves the row without a result.
            more: further fields of the row.
        """
        gaps = [ours - other for ours, other in zip(self.each(first), self.each(second), strict=False)]
        interval = estimate(gaps).half_width() if len(gaps) > 1 else None
        fields: dict[str, Any] = {"how": "trained" if gaps else "needs data", "data": self.data, "judge": "difference"}
        fields["seeds"] = len(gaps) if gaps else None
        return Row(
            label=label, quantity="difference of accuracy", unit="points", published=printed,
            ours=statistics.fmean(gaps) if gaps else None, interval=interval, **{**fields, **more},
        )  # fmt: skip

    def ordering(
        self,
        text: str,
        expected: Mapping[str, str],
        ties: Literal["right", "not judged", "demanded"] = "not judged",
        *,
        values: Mapping[str, Sequence[float]] | None = None,
        conflict: str = "",
    ) -> Ordering:
        """A claim about scores.

        Args:
            expected: name as printed -> label, the best first.
            ties: what the claim is: "not judged" that each is ahead of the next, "right" that it is no worse by
                `POINTS`, "demanded" that they are level within `POINTS`.
            values: label -> score of every seed; by default the test accuracy at the best validation.
        """
        each = [self.each(label) if values is None else values.get(label, ()) for label in expected.values()]
        return Ordering.of_seeds(
            text, tuple(expected), each, tolerance=POINTS, ties=ties, conflict=conflict,
            floor=None if self.majority is None else self.majority + LEARNT, runs=self.evidence(expected.values()),
        )  # fmt: skip

    def evidence(self, labels: Iterable[str]) -> str:
        """An identifier of the runs of these labels; "" where there are none."""
        ids = sorted({str(record["run_id"]) for label in labels for record in self.records.get(label, [])})
        return hashlib.sha256(" ".join(ids).encode()).hexdigest()[:16] if ids else ""

    def curve(self, label: str) -> tuple[list[int], list[float]]:
        """Epochs done (from 1) and test accuracy in per cent of the first seed's evaluations."""
        return self.curves(label)[0]

    def curves(self, label: str) -> list[tuple[list[int], list[float]]]:
        """`curve` of every seed."""
        found = []
        for record in self.records[label]:
            points = [(e["epoch"] + 1, 100 * e["test"]) for e in record["epochs"] if e["test"] is not None]
            found.append(([epoch for epoch, _ in points], [score for _, score in points]))
        return found

    def early(self, label: str) -> list[float]:
        """Mean test accuracy over the first half of the epochs, of every seed: the area under the early curve."""
        halves = [[score for epoch, score in zip(*curve, strict=True) if epoch <= max(curve[0]) / 2]
                  for curve in self.curves(label)]  # fmt: skip
        return [sum(half) / max(len(half), 1) for half in halves]


def accuracies(
    context: Context,
    graph: str,
    rows: Mapping[str, str | Mapping[str, Any]],
    *,
    parts: int,
    model: Mapping[str, Any],
    seeds: int = 3,
    epochs: int = 200,
    share: float = 1.0,
    fewest: int = FEWEST,
) -> Trained:
    """Train every row on the paper's graph or its stand-in.

    Args:
        graph: the published name, a key of `GRAPHS`.
        rows: label -> method text, or -> settings over `model` (with "method", and "parts" where it differs). "longer"
            is how many times as many epochs a row is trained for as the others, of which each costs as much less.
        parts: partitions of every row but those of one device.
        model: settings of `RunConfig` that all rows share.
        seeds, epochs: the paper's, trained with `--full`; otherwise the most that is trained.
        share: of the table's training time, where a table trains several graphs.
        fewest: epochs below which the number of seeds is reduced; fewer suffice where an epoch has many steps.

    Raises:
        InputError: no row can be trained, or one of the runs failed.
    """
    if not rows:
        raise InputError(f"nothing to train on {graph}: no method of these rows is built")
    name, data = chosen_graph(context, graph)
    plain = {label: {"method": row} if isinstance(row, str) else dict(row) for label, row in rows.items()}
    common = {"dataset": name, "parts": parts, "threads": 1, **SETTINGS.get(name, {}), **model}
    longer = {label: float(row.pop("longer", 1.0)) for label, row in plain.items()}
    cases = {label: {**common, **row} for label, row in plain.items()}
    cases = {k: {**case, "parts": 1} if cut_of(case["method"]) == "none" else case for k, case in cases.items()}
    cost = 0.0 if context.full else sum(epoch_seconds(case) for case in cases.values())
    count, runs = (epochs, seeds) if context.full else affordable(
        share * context.seconds, cost, epochs, seeds, fewest
    )  # fmt: skip
    made = {label: {**case, **_lasting(round(count * longer[label]))} for label, case in cases.items()}
    configs = [{**case, "seed": seed} for case in made.values() for seed in range(runs)]
    records = [dict(demand(record)) for record in context.runs(configs, f"training on {name}", made.values())]
    grouped = {label: records[at * runs : (at + 1) * runs] for at, label in enumerate(made)}
    limit = "as in the paper" if context.full else f"chosen for {share * context.seconds:.0f} s on one core"
    summary = f"{data or name}: {count} epochs, {runs} seed{'s' * (runs > 1)}, {parts} parts; {limit}"
    where, commands = f"{data or name}, {parts} parts", context.texts_of(made.values())
    return Trained(
        scores={label: _score(group) for label, group in grouped.items()}, records=grouped, data=data,
        summary=summary + caveats(name), commands=commands, where=where, majority=_majority(name),
    )  # fmt: skip


def _lasting(epochs: int) -> dict[str, int]:
    """Settings of a run of so many epochs, at most about `EVALUATIONS` of them evaluated."""
    return {"epochs": epochs, "eval_every": max(1, epochs // EVALUATIONS)}


def caveats(name: str) -> str:
    """A note on projected features."""
    return "; features projected to 256 columns" * (SETTINGS.get(name, {}).get("features") == "projected")


@cache
def _majority(name: str) -> float | None:
    from harness.datasets import load

    labels = load(name).y
    if labels is None or labels.ndim > 1:
        return None
    counts = np.bincount(labels[labels >= 0])
    return float(100 * counts.max() / counts.sum())


def chosen_graph(context: Context, graph: str) -> tuple[str, str]:
    """(dataset name, text for `data`) of a published name: the real graph, or the first available stand-in.

    Raises:
        InputError: a name that is not in `GRAPHS`.
    """
    from harness.datasets import known_datasets

    if graph not in GRAPHS:
        raise unknown("published graph", graph, GRAPHS)
    real, edges, others = GRAPHS[graph]
    there = {name for name, _, here in known_datasets() if here}
    if context.full or edges <= EDGES_PER_SECOND * context.seconds:
        for name in real:
            if name in there:
                return name, ""
    chosen = next(name for name in others if name.startswith("synthetic:") or name in there)
    return chosen, f"{chosen}{STANDS_IN}{graph}"


def affordable(seconds: float, per_epoch: float, epochs: int, seeds: int, fewest: int = FEWEST) -> tuple[int, int]:
    """(epochs, seeds) within `seconds`, where `per_epoch` is the cost of one epoch of every row on one core.

    The number of seeds is reduced before epochs fall below `fewest`; the fewest of `EPOCHS` are trained at any cost.
    """
    for runs in range(seeds, 0, -1):
        most = min(epochs, seconds / (per_epoch * runs))
        fitting = [count for count in EPOCHS if count <= most]
        if fitting and (fitting[-1] >= min(fewest, epochs) or runs == 1):
            return (epochs if most == epochs else fitting[-1]), runs
    return min(EPOCHS[0], epochs), 1


def epoch_seconds(case: Mapping[str, Any]) -> float:
    """Estimated seconds of an epoch of a run on one core (`work_seconds`), of the graph as it is loaded."""
    from harness.running import prepare

    config = from_mapping(case)
    facts = prepare(config).graph
    return work_seconds(config, facts["num_nodes"], facts["num_edges"], facts["num_features"])


def work_seconds(config: RunConfig, nodes: int, edges: int, wide: int) -> float:
    """Estimated seconds of an epoch on one core: products, sums over edges, and an overhead for every layer of every
    rank, times factors of the method and the model. `wide` is the number of features.
    """
    hidden, layers = config.model.hidden * config.model.heads, config.model.layers
    maps = 6 * nodes * hidden * (wide + (layers - 1) * hidden) * (2 if config.model.name == "sage" else 1)
    sums = 3 * edges * hidden * layers
    inputs = nodes * wide * (config.model.name == "sage")
    work, overhead = maps / FLOPS + sums / EDGE_VALUES + inputs / INPUTS, PER_LAYER_S * layers * config.cut.parts
    name, _, options = config.training.method.partition(":")
    if ("batch=" in options or name in SAMPLED) and "batch=0" not in options.split(":"):
        # as many batches in all, whatever the number of parts
        return float(BATCHES * SAMPLED.get(name, 1.0) * work)
    more = (COSTLIER.get(name, 1.0), ATTENTION * (config.model.name == "gat"))
    return float(max(more) * (work + overhead))


def _score(records: list[dict[str, Any]]) -> tuple[float, float]:
    values = [100 * record["summary"]["test_at_best_val"] for record in records]
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
