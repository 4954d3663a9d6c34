"""Every method trains on eight ranks of which some own nothing; its memory is a tree of tensors that keeps its names.

That training goes on bit for bit from what was saved is tested through files (`tests/harness/running/test_checkpoint`),
and by `harness.conformance` (memory).
"""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from harness import loopback
from harness.exchanges import Memory
from harness.methods.registry import cut_of
from harness.nn import build_model
from harness.rank import Rank
from harness.running import Job, make_job, plan_of
from tests.conformance.test_drivers import config
from tests.support.settings import label, rows

EPOCHS = 3


def check_plain(memory: Memory) -> None:
    """The tree holds tensors and trees of them only."""
    for name, value in memory.items():
        assert isinstance(name, str) and "/" not in name
        assert isinstance(value, Tensor | dict), f"{name} is a {type(value).__name__}, not a tensor or a tree of them"
        if isinstance(value, dict):
            check_plain(value)


async def losses_of(rank: Rank, job: Job) -> list[float]:
    """Losses of a rank's epochs."""
    setting, part = job.config, job.parts.training(rank.index)
    model = build_model(setting.model, part.totals.num_features, part.totals.num_classes, setting.training.seed)
    method, rank.epoch = job.method, -1
    state = await method.setup(rank, part, model)
    memory = method.remember(rank, part, model, state)
    begun = set(memory)
    optimizer = method.optimizer(rank, model, setting.training.lr, setting.training.weight_decay)
    losses = []
    for rank.epoch in range(EPOCHS):
        model.train()
        losses.append(float(await method.epoch(rank, part, model, state, memory, optimizer)))
    await method.settle(rank, memory)
    assert set(memory) >= begun, "what is remembered at the start lasts"
    check_plain(memory)
    return losses


@pytest.mark.parametrize("row", rows(), ids=label)
def test_eight_parts_and_empty_ones(row: dict[str, Any]) -> None:
    """No deadlock, and finite losses, also if a rank owns no node: 'contiguous' leaves the last parts empty.

    Fewer ranks are tested by `harness.conformance` (cut).
    """
    tiny, edges = "synthetic:nodes=9,degree=3,classes=2,features=4,seed=3", cut_of(row["method"]) != "vertex"
    parts = 1 if row["method"].startswith("single") else 8
    extra = {"partitioner": "contiguous"} if "partitioner" not in row and edges else {}
    setting = config(**{**row, "dataset": tiny, "parts": parts, "epochs": EPOCHS, **extra})
    job, _ = make_job(plan_of(setting))

    async def program(rank: Rank) -> list[float]:
        return await losses_of(rank, job)

    found = loopback.run_ranks(program, parts, make_rank=lambda i: Rank(i, parts, seed=setting.training.seed))
    assert len(found[0]) == EPOCHS and all(loss == loss and abs(loss) < 1e6 for loss in found[0])
