"""Evaluation by a spare process: accuracies equal those of the ranks, and clear messages when it fails."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from harness import running
from harness.config import RunConfig, from_mapping
from harness.errors import HaloscopeError, InputError
from harness.nn import build_model
from harness.running import prepare, whole_graph
from real.launch.spare import SpareProcess

GRAPH = "synthetic:nodes=300,degree=6,classes=4,features=8"
RUN: dict[str, Any] = {"dataset": GRAPH, "parts": 2, "epochs": 4, "eval_every": 2, "lr": 0.05, "threads": 1}


def accuracies(config: RunConfig) -> list[tuple[float | None, ...]]:
    epochs = running.run(config).epochs
    return [(e["loss"], e["train"], e["val"], e["test"]) for e in epochs]


@pytest.mark.processes
@pytest.mark.parametrize("method", ["sylvie-a:bits=1", "subgraph-approximation:overlap=0.5", "cdfgnn"])
def test_a_spare_process_finds_what_the_ranks_find(method: str) -> None:
    by_ranks = from_mapping({**RUN, "method": method})
    by_spare = by_ranks.changed(mode="real", evaluate="spare")
    assert accuracies(by_spare) == accuracies(by_ranks)


@pytest.mark.processes
def test_inductive_runs_are_evaluated_on_the_whole_graph() -> None:
    by_ranks = from_mapping({**RUN, "protocol": "inductive"})
    assert accuracies(by_ranks.changed(mode="real", evaluate="spare")) == accuracies(by_ranks)


def test_only_real_runs_have_a_spare_process() -> None:
    with pytest.raises(InputError, match="evaluate=spare needs --mode real"):
        from_mapping({**RUN, "evaluate": "spare"})


def test_the_spare_process_reads_the_graph_in_one_part() -> None:
    config = whole_graph(from_mapping({**RUN, "mode": "real", "evaluate": "spare", "method": "cdfgnn"}))
    assert (config.cut.parts, config.training.method, config.run.evaluate, config.run.mode) == (
        1,
        "single",
        "ranks",
        "loopback",
    )
    assert prepare(config).totals.num_nodes == 300


@pytest.mark.processes
def test_a_spare_process_that_fails_says_why() -> None:
    spare = SpareProcess(from_mapping({**RUN, "dataset": "synthetic:nodes=300", "split": "counts:1/1/9999"}))
    try:
        spare.submit(0, {})
        with pytest.raises(HaloscopeError, match="no evaluation of epoch 0: its process ended: .*300"):
            while spare.counts(0, 1.0, time.monotonic() + 60) is None:
                pass
    finally:
        spare.close()


@pytest.mark.processes
def test_an_evaluation_has_a_deadline() -> None:
    config = from_mapping(RUN)
    spare = SpareProcess(config)
    try:
        with pytest.raises(HaloscopeError, match="epoch 7 takes too long; raise --startup-timeout"):
            spare.counts(7, 0.01, time.monotonic() - 1)
        assert spare.counts(7, 0.01, time.monotonic() + 60) is None
        totals = prepare(config).totals
        with torch.random.fork_rng():
            model = build_model(config.model, totals.num_features, totals.num_classes, config.training.seed)
        spare.submit(3, model.state_dict())
        begin = time.monotonic()
        found = None
        while found is None:
            found = spare.counts(3, 1.0, begin + 60)
        assert sum(found[0][:2]) == totals.num_train
    finally:
        spare.close()
