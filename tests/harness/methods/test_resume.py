"""A method's memory is a tree of tensors, and training resumed from it is bit-equal."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from harness import loopback
from harness.config import RunConfig
from harness.exchanges import Memory
from harness.methods.registry import cut_of
from harness.nn import build_model
from harness.rank import Rank
from harness.running import Job, make_job, plan_of
from tests.conformance.test_drivers import config
from tests.support.settings import label, rows

STOP, END = 4, 9
Saved = tuple[Memory, dict[str, Any], dict[str, Any]]


def copied(memory: Memory) -> Memory:
    """A deep copy, which also checks that the tree is plain."""
    out: Memory = {}
    for name, value in memory.items():
        assert isinstance(name, str) and "/" not in name
        assert isinstance(value, Tensor | dict), f"{name} is a {type(value).__name__}, not a tensor or a tree of them"
        out[name] = value.detach().clone() if isinstance(value, Tensor) else copied(value)
    return out


async def epochs(rank: Rank, job: Job, first: int, last: int, saved: Saved | None) -> tuple[list[float], Saved]:
    """Losses of epochs first..last-1 and the state afterwards."""
    setting = job.config
    part = job.parts.training(rank.index)
    totals = part.totals
    model = build_model(setting.model, totals.num_features, totals.num_classes, setting.training.seed)
    method = job.method
    rank.epoch = -1
    if saved is not None:
        model.load_state_dict(saved[1])
    state = await method.setup(rank, part, model)
    memory = method.remember(rank, part, model, state)
    optimizer = method.optimizer(rank, model, setting.training.lr, setting.training.weight_decay)
    if saved is not None:
        assert set(saved[0]) >= set(memory), "what is remembered at the start lasts"
        memory = copied(saved[0])
        optimizer.load_state_dict(saved[2])
    losses = []
    for rank.epoch in range(first, last):
        model.train()
        losses.append(float(await method.epoch(rank, part, model, state, memory, optimizer)))
    await method.settle(rank, memory)
    return losses, (copied(memory), copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict()))


def run_epochs(setting: RunConfig, first: int, last: int, saved: list[Saved] | None) -> tuple[list[float], list[Saved]]:
    job, _ = make_job(plan_of(setting))

    async def program(rank: Rank) -> Any:
        return await epochs(rank, job, first, last, None if saved is None else saved[rank.index])

    found = loopback.run_ranks(
        program, setting.cut.parts, make_rank=lambda i: Rank(i, setting.cut.parts, seed=setting.training.seed)
    )
    return found[0][0], [left for _, left in found]


@pytest.mark.parametrize("row", rows(), ids=label)
def test_training_goes_on_bit_for_bit_from_what_was_saved(row: dict[str, Any]) -> None:
    setting = config(**row, epochs=END)
    torch.manual_seed(1)
    whole, _ = run_epochs(setting, 0, END, None)
    begun, saved = run_epochs(setting, 0, STOP, None)
    torch.manual_seed(2)  # results must not depend on the global generator
    rest, _ = run_epochs(setting, STOP, END, saved)
    assert begun + rest == whole


def rows_and_parts() -> list[Any]:
    """Every row on 1, 2, 4 and 8 parts, where the method can run on so many."""
    found = []
    for row in rows():
        text = row["method"]
        several = any(option in text for option in ("servers=2", "master=apart", "replication=2"))
        counts = [1] if text.startswith("single") else [2, 4, 8] if several else [1, 2, 4, 8]
        found += [pytest.param(row, parts, id=f"{label(row)}-{parts}") for parts in counts]
    return found


@pytest.mark.parametrize(("row", "parts"), rows_and_parts())
def test_any_number_of_parts_and_empty_ones(row: dict[str, Any], parts: int) -> None:
    """No deadlock, and finite losses, also if a rank owns no node: 'contiguous' leaves the last parts empty."""
    tiny = "synthetic:nodes=9,degree=3,classes=2,features=4,seed=3"
    edges = cut_of(row["method"]) != "vertex"
    extra = {"partitioner": "contiguous"} if "partitioner" not in row and edges else {}
    losses, _ = run_epochs(config(**{**row, "dataset": tiny, "parts": parts, "epochs": 3, **extra}), 0, 3, None)
    assert len(losses) == 3 and all(loss == loss and abs(loss) < 1e6 for loss in losses)
