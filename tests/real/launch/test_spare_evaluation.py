"""Evaluation by a spare process: accuracies equal those of the ranks, and clear messages when it fails."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness import loopback, running
from harness.config import RunConfig, from_mapping
from harness.errors import HaloscopeError, InputError
from harness.nn import build_model
from harness.rank import Rank
from harness.running import prepare, whole_graph
from harness.running._evaluation import SpareJudge
from harness.running.results import RankEpoch
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
            while spare.counts(0, 1.0) is None:
                pass
    finally:
        spare.close()


@pytest.mark.processes
def test_counts_are_not_waited_for_longer_than_asked() -> None:
    config = from_mapping(RUN)
    spare = SpareProcess(config)
    try:
        begin = time.monotonic()
        assert spare.counts(7, 0.01) is None and time.monotonic() - begin < 5
        totals = prepare(config).totals
        with torch.random.fork_rng():
            model = build_model(config.model, totals.num_features, totals.num_classes, config.training.seed)
        spare.submit(3, model.state_dict())
        found = None
        while found is None and time.monotonic() - begin < 60:
            found = spare.counts(3, 1.0)
        assert found is not None
        assert sum(found[0][:2]) == totals.num_train
    finally:
        spare.close()


class Slow:
    """A spare process that takes a while for each evaluation."""

    def __init__(self, *takes_s: float) -> None:
        self.takes_s, self.submitted, self.asked_at = list(takes_s), list[int](), dict[int, float]()

    def submit(self, epoch: int, parameters: Mapping[str, Tensor]) -> None:
        self.submitted.append(epoch)

    def counts(self, epoch: int, patience_s: float) -> list[list[float]] | None:
        at, now = self.submitted.index(epoch), time.monotonic()
        return [[1.0, 0.0, 0.0]] * 3 if now - self.asked_at.setdefault(epoch, now) > self.takes_s[at] else None


def judged(spare: Slow, limits: tuple[float, float], rounds: int) -> tuple[list[RankEpoch], list[int]]:
    """Rank 0's records of two ranks that evaluate and settle after each epoch, and which have no scores."""
    records = [RankEpoch(epoch, 1.0, {}, {}, b"", None, 0) for epoch in range(rounds)]

    async def program(rank: Rank) -> list[int]:
        judge = SpareJudge(None if rank.index else spare, limits)
        for epoch in range(rounds):
            rank.epoch = epoch
            await judge.judge(rank, nn.Linear(1, 1))  # type: ignore[arg-type]
            await judge.settle(rank, records)
        return judge.missing

    return records, loopback.run_ranks(program, 2)[0]


def test_the_first_evaluation_may_take_as_long_as_preparing_the_data(caplog: pytest.LogCaptureFixture) -> None:
    """It includes loading the graph; later ones do not."""
    spare = Slow(1.0, 0.0, 60.0, 0.0)
    records, missing = judged(spare, (30.0, 0.3), 4)
    assert [record.counts is None for record in records] == [False, False, True, True]
    assert missing == [2, 3] and spare.submitted == [0, 1, 2]
    assert "epoch 2 takes longer than 0.3 s (--startup-timeout)" in caplog.text


def test_epochs_are_not_lost_for_want_of_scores(caplog: pytest.LogCaptureFixture) -> None:
    records, missing = judged(Slow(60.0), (0.3, 60.0), 2)
    assert [record.counts for record in records] == [None, None] and missing == [0, 1]
    assert "(--prepare-timeout)" in caplog.text
