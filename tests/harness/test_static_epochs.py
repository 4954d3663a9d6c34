"""Recorded epochs: effects, keys and what is observed come again as in epochs that run as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from harness import loopback
from harness.conformance._segments import OperatorSegments
from harness.effects import Rows
from harness.errors import ProgramError
from harness.kernels.dropout import keyed_dropout
from harness.rank import Rank
from harness.static_epochs import BEFORE_RECORDING, StaticEpochs

SIZE, EPOCHS = 3, BEFORE_RECORDING + 5
SEND = np.full(SIZE, 2)


async def _epoch(rank: Rank, weight: Tensor) -> Tensor:
    """Every kind of effect that results in tensors, and one that is waited for later."""
    rows = keyed_dropout(weight.repeat(2 * SIZE, 1), torch.arange(2 * SIZE), 0.5, rank.key("dropout", 1))
    started = await rank.start(rank.all_to_all([Rows(rows * 2, SEND, SEND)], label="later", layer=2))
    received = await rank.all_to_all([Rows(rows, SEND, SEND)], label="rows", direction="forward", layer=1)
    mixed = keyed_dropout(received.tensors[0], torch.arange(2 * SIZE), 0.5, rank.key("dropout/all", 2, per_rank=False))
    root = await rank.broadcast(mixed.sum(0), root=1, label="root")
    late = await rank.wait(started)
    rank.observe("rows", 2 * SIZE, 3 * SIZE)
    total = await rank.all_reduce(mixed.sum(0) + late.tensors[0].sum(0) * 1e-2, label="sum")
    weight.add_(total * 1e-3 + root * 1e-2)
    return total.sum()


def _run(epochs: Callable[[], StaticEpochs] | None, epoch: Callable[[Rank, Tensor], Any] = _epoch) -> list[Any]:
    async def program(rank: Rank) -> Any:
        weight, seen, ours = torch.ones(4) + rank.index, [], epochs() if epochs else None
        for rank.epoch in range(EPOCHS):
            loss = await (epoch(rank, weight) if ours is None else ours.epoch(rank, lambda: epoch(rank, weight)))
            traffic = rank.traffic.take()
            seen.append((float(loss), weight.tolist(), rank.take_observed(), traffic.layers, traffic.others))
        return seen, ours

    return loopback.run_ranks(program, SIZE)


def test_replayed_epochs_equal_those_that_run() -> None:
    plain, recorded = _run(None), _run(lambda: StaticEpochs(OperatorSegments()))
    for (theirs, _), (ours, epochs) in zip(plain, recorded, strict=True):
        assert ours == theirs
        assert epochs.replayed == EPOCHS - BEFORE_RECORDING - 1
    losses = [loss for loss, *_ in plain[0][0]]
    assert len(set(losses)) == EPOCHS, "epochs that are all alike would say nothing"


def test_an_effect_of_the_epoch_before_is_refused() -> None:
    left: dict[int, Any] = {}

    async def epoch(rank: Rank, weight: Tensor) -> Tensor:
        before = left.get(rank.index)
        left[rank.index] = await rank.start(rank.all_reduce(weight.clone(), label="late"))
        return weight.sum() if before is None else (await rank.wait(before)).sum()

    with pytest.raises(ProgramError, match="'late'.*started in an earlier epoch"):
        _run(lambda: StaticEpochs(OperatorSegments()), epoch)


def test_draws_on_the_host_are_refused_in_the_epoch_that_is_recorded() -> None:
    async def epoch(rank: Rank, weight: Tensor) -> Tensor:
        return weight.sum() * float(rank.generator("noise").random())

    with pytest.raises(ProgramError, match=f"'noise' is drawn on the host(.|\n)*epoch {BEFORE_RECORDING}"):
        _run(lambda: StaticEpochs(OperatorSegments()), epoch)


def test_an_operator_that_the_host_waits_for_is_refused() -> None:
    async def epoch(rank: Rank, weight: Tensor) -> Tensor:
        return weight[weight > 0].sum()

    with pytest.raises(ProgramError, match="index.*makes the host wait"):
        _run(lambda: StaticEpochs(OperatorSegments()), epoch)


def test_rows_repeated_a_known_number_of_times_are_no_reason_to_wait() -> None:
    """A part without edges repeats them zero times in all."""

    async def epoch(rank: Rank, weight: Tensor) -> Tensor:
        counts = torch.zeros(4, dtype=torch.int64)
        return weight.sum() + torch.repeat_interleave(torch.arange(4), counts, output_size=0).sum()

    assert all(epochs.replayed for _, epochs in _run(lambda: StaticEpochs(OperatorSegments()), epoch))


def test_a_failed_recording_leaves_the_rank_as_it_was() -> None:
    ranks: list[Rank] = []

    async def epoch(rank: Rank, weight: Tensor) -> Tensor:
        ranks.append(rank)
        if rank.epoch == BEFORE_RECORDING:
            raise RuntimeError("broken")
        return weight.sum()

    with pytest.raises(RuntimeError, match="broken"):
        _run(lambda: StaticEpochs(OperatorSegments()), epoch)
    assert all(rank.drawn is None for rank in ranks)
