"""What is asked: a graph, a model, a cluster, and what may be spent; checked before anything is computed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from harness import datasets
from harness.config import RunConfig, check
from harness.errors import InputError
from harness.graphs import Graph
from harness.running.engines import CellEngine
from harness.workloads import is_workload
from sims.cluster import Cluster, load_cluster
from sims.study import check_links

MOST_AUTO_RANKS = 16
"""Ranks at most where no numbers of ranks are given: more are seldom tried first, and every one is trained here."""

AUTO_COUNTS = 3
"""How many numbers of ranks are tried where none are given."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What `advise` is asked.

    Attributes:
        base: graph, model, training and cluster; its method and parts are replaced by the candidates'.
        parts: numbers of devices to try; empty for powers of two that the cluster has.
        methods: texts of methods to try; empty for a list of promising ones.
        within: points of accuracy that may be lost against exact training.
        seeds: paired seeds of the finalists.
        budget: seconds that everything may take here.
        price: of one device for one hour, in any currency; 0 for none.
        out: folder of recordings, finished trainings, tables and figure.
        jobs: trainings at a time.
        engine: where they run; by default in `jobs` processes of this machine.
        sample: nodes of the part of the graph that trainings use; 0 for as many as the budget asks for.
    """

    base: RunConfig
    parts: tuple[int, ...] = ()
    methods: tuple[str, ...] = ()
    within: float = 0.5
    seeds: int = 5
    budget: float = 900.0
    price: float = 0.0
    out: Path = field(default_factory=lambda: Path("advice"))
    jobs: int = 1
    engine: CellEngine | None = field(default=None, compare=False)
    sample: int = 0


def checked_cluster(question: Question) -> Cluster:
    """The cluster of a question.

    Raises:
        InputError: a number out of range, or a cluster on which nothing can be distributed.
    """
    rules = (
        (0 <= question.within <= 100, "--within must be from 0 to 100 points of accuracy"),
        (question.seeds >= 1, "--seeds must be at least 1"),
        (math.isfinite(question.price) and question.price >= 0, "--price must be a number, 0 or more"),
        (question.sample >= 0, "--sample must not be negative"),
        (question.jobs >= 1, "--jobs must be at least 1"),
    )
    for holds, message in rules:
        if not holds:
            raise InputError(message)
    base = question.base
    check(base.changed(mode="sim", shapes_only=False, rates=""))
    if is_workload(base.data.dataset):
        raise InputError(
            f"{base.data.dataset} is known by counts only, so nothing can be trained on it; for times alone: "
            "haloscope what-if --shapes-only"
        )
    cluster = load_cluster(base.cluster.name)
    if cluster.capacity < 2:
        raise InputError(
            f"cluster {cluster.name} has one device, so there is nothing to distribute; name one with links, such as "
            f"ethernet-10g (haloscope clusters), or give it more: {cluster.name}:hosts.count=4"
        )
    check_links(cluster)
    return cluster


def ranks_to_try(question: Question, cluster: Cluster, num_nodes: int) -> list[int]:
    """Numbers of devices, ascending.

    Raises:
        InputError: a number that the cluster or the graph cannot have.
    """
    most = min(cluster.capacity, num_nodes)
    if question.parts:
        for parts in question.parts:
            if not 2 <= parts <= most:
                raise InputError(
                    f"--parts {parts}: from 2 to {most} on cluster {cluster.name}; one device is always compared"
                )
        return sorted(set(question.parts))
    powers = [2**power for power in range(1, 16) if 2**power <= min(most, MOST_AUTO_RANKS)]
    if not powers:
        raise InputError(f"a graph of {num_nodes} nodes is too small to be distributed")
    return powers[-AUTO_COUNTS:]


def trainable_graph(base: RunConfig) -> Graph:
    """The graph of a question, with its split.

    Raises:
        InputError: no such graph; no features, labels, or nodes to train, validate and test on.
    """
    data = base.data
    graph = datasets.load(data.dataset, split=data.split, seed=base.training.seed, features=data.features)
    datasets.require_trainable(graph)
    for what, nodes in (("validation", graph.val), ("test", graph.test)):
        if nodes is None or not len(nodes):
            raise InputError(
                f"{graph.name} has no {what} nodes, by which methods are compared; give --split random:0.6/0.2/0.2"
            )
    return graph
