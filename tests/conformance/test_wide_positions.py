"""Blocks of more than 2^31 entries have positions of 64 bits: every method trains on such to the same numbers.

Small blocks get them here, as large ones would; kernels are compiled for them, and choose them for what they make.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from harness.config import RunConfig
from harness.graphs import Block, _part
from harness.methods.registry import typical_methods
from harness.running import run
from harness.sampling import _columns, _lists, _stored


def numbers(method: str, model: str) -> list[list[Any]]:
    """Losses and scores of a short run."""
    config = RunConfig.of(
        dataset="synthetic:nodes=200,degree=6,classes=4,features=8", method=method, model=model, hidden=8,
        parts=1 if method == "single" else 3, epochs=2, threads=1, eval_every=1,
    )  # fmt: skip
    return [[epoch[name] for name in ("loss", "train", "test")] for epoch in run(config).epochs]


CASES = [(method, "sage") for method in ("single", *typical_methods(2))]
CASES += [("vanilla", "gat"), ("bns-gcn", "gat"), ("graphsage-ns", "gat")]


@pytest.mark.parametrize(("method", "model"), CASES)
def test_positions_of_64_bits_change_no_number(method: str, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, seen = numbers(method, model), set[torch.dtype]()

    def widened(self: Block, device: Any) -> Block:
        seen.add(self.indptr.dtype)
        names = ("indptr", "indices", "t_indptr", "t_indices", "t_edge")
        tensors = (getattr(self, name) for name in names)
        return type(self)(*(None if each is None else each.long().to(device) for each in tensors))

    for module in (_part, _columns, _lists, _stored):
        monkeypatch.setattr(module, "position_dtype", lambda entries: torch.int64)
    monkeypatch.setattr(Block, "to", widened)
    assert numbers(method, model) == expected
    assert torch.int32 in seen, "no block was widened"
