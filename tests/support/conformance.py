"""Runs one gradient step of a method on all ranks in process, for the conformance suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness import loopback
from harness.conformance._ground import small_model
from harness.graphs import Graph, Part
from harness.methods.bases.base import Method
from harness.nn import GNN, training_loss
from harness.partition.edge import build_parts
from harness.rank import Rank
from harness.tape import Tape


def make_model(kind: str, graph: Graph, *, dtype: torch.dtype = torch.float64, **options: Any) -> GNN:
    """A model of one kind, as the checks of `harness.conformance` have it."""
    return small_model(graph, dtype, model=kind, **options)


def make_parts(graph: Graph, owner: np.ndarray, parts: int, dtype: torch.dtype = torch.float64) -> list[Part]:
    """The parts of a graph with features of the wanted type."""
    built = build_parts(graph, owner, parts)
    return [replace(part, x=part.x.to(dtype)) for part in built if part.x is not None]


def step(
    method: Method, model: GNN, parts: Sequence[Part], *, seed: int = 0, epoch: int = 0
) -> tuple[float, list[Tensor], list[Any]]:
    """Global loss and gradients after one forward and backward pass, and every rank's traffic."""

    async def program(rank: Rank) -> Any:
        part = parts[rank.index]
        state = await method.setup(rank, part, model)
        memory = method.remember(rank, part, model, state)
        rank.traffic.take()
        rank.epoch, part = epoch, method.trained(part, state)
        tape = Tape(rank, model.parameters())
        loss = await tape.backward(training_loss(await method.forward(rank, part, model, state, memory, tape), part))
        mine = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        return loss, mine, rank.traffic.take()

    def isolated(rank: Rank) -> Any:
        return _with_own_gradients(program(rank), model)

    results = loopback.run_ranks(isolated, len(parts), make_rank=lambda i: Rank(i, len(parts), seed=seed))
    count = max(parts[0].totals.num_train, 1)
    total = [torch.zeros_like(p) for p in model.parameters()]
    for _, gradients, _ in results:
        for sum_, gradient in zip(total, gradients, strict=True):
            if gradient is not None:
                sum_ += gradient / count
    return float(sum(r[0] for r in results)), total, [r[2] for r in results]


async def _with_own_gradients(program: Any, model: GNN) -> Any:
    """Gives each rank its own gradients, because ranks of one process share the model here."""
    return await _Swapped(program, model)


class _Swapped:
    """Steps a coroutine with the rank's own `.grad` fields in place."""

    def __init__(self, program: Any, model: GNN) -> None:
        self.program, self.parameters = program, list(model.parameters())
        self.grads: list[Tensor | None] = [None] * len(self.parameters)

    def __await__(self) -> Any:
        results = None
        while True:
            for parameter, gradient in zip(self.parameters, self.grads, strict=True):
                parameter.grad = gradient
            try:
                effect = self.program.send(results)
            except StopIteration as stop:
                return stop.value
            finally:
                self.grads = [p.grad for p in self.parameters]
                for parameter in self.parameters:
                    parameter.grad = None
            results = yield effect


def relative_error(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """Euclidean norm of the difference over that of the wanted values, over all tensors together."""
    scale = sum(float(w.square().sum()) for w in wanted) ** 0.5
    error = sum(float((f - w).square().sum()) for f, w in zip(found, wanted, strict=True)) ** 0.5
    return error / max(scale, 1e-12)
