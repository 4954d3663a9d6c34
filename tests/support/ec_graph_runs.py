"""Short trainings with EC-Graph in process, which record memory, bytes and ratios; each is run once."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from harness import loopback
from harness.exchanges import Memory
from harness.graphs import Part
from harness.methods.ec_graph import ECGraph
from harness.methods.ec_graph_s import ECGraphS
from harness.rank import Rank
from tests.support.conformance import make_model, make_parts
from tests.support.graphs import owners, random_graph

GRAPH = random_graph(60, 240, features=7, seed=3)
NON_CP = ECGraph(fp="exact", bp="exact")
ABLATIONS = {
    "Non-cp": NON_CP,
    "Cp-fp-2": ECGraph(fp="compressed", bits=2, bp="exact"),
    "Cp-bp-4": ECGraph(fp="exact", bp="compressed", backward_bits=4),
    "ReqEC-FP-1": ECGraph(bits=1, tune=False, bp="exact", period=4),
    "ReqEC-adapt": ECGraph(bp="exact", period=5),
    "ResEC-BP-1": ECGraph(fp="exact", bp="residual", backward_bits=1),
    "EC-Graph": ECGraph(period=4),
    "element": ECGraph(select="element", period=4),
    "matrix": ECGraph(select="matrix", period=4, range="row"),
    "pooled": ECGraph(period=5, tuner="pooled", requests=False),
    "requested": ECGraph(period=4, range="requested", table="values"),
    "product": ECGraph(period=4, wire="product"),
    "EC-Graph-S": ECGraphS(fanouts="3/2/2", period=4),
}


@dataclass
class Run:
    """Records of one rank: losses, memory after every epoch, bytes by direction and layer, observed ratios."""

    losses: list[float]
    memories: list[Memory]
    traffic: list[Any]
    observed: list[dict[str, list[float]]]


def tensors_of(memory: Memory) -> Memory:
    """A deep copy; fails for values that a checkpoint cannot contain."""
    copied: Memory = {}
    for key, value in memory.items():
        assert isinstance(key, str) and isinstance(value, dict | Tensor)
        copied[key] = tensors_of(value) if isinstance(value, dict) else value.clone()
    return copied


def parts_of(parts: int, owner: str = "random") -> list[Part]:
    return make_parts(GRAPH, owners(GRAPH, parts, owner), parts, torch.float32)


@cache
def train(
    method: ECGraph, num_parts: int, epochs: int, owner: str = "random", kind: str = "sage", stop_at: int = -1
) -> list[Run]:
    """Epochs of all ranks in process. After epoch `stop_at` everything is saved and restored in new objects."""
    base = make_model(kind, GRAPH, dtype=torch.float32, norm="none", order="auto")
    parts = parts_of(num_parts, owner)

    async def program(rank: Rank) -> Run:
        part, model, seen = parts[rank.index], copy.deepcopy(base), Run([], [], [], [])
        rank.epoch = -1
        state = await method.setup(rank, part, model)
        memory = method.remember(rank, part, model, state)
        optimizer = method.optimizer(rank, model, 0.02, 0.0)
        rank.traffic.take()
        for epoch in range(epochs):
            rank.epoch = epoch
            loss = await method.epoch(rank, part, model, state, memory, optimizer)
            seen.losses.append(float(loss))
            seen.memories.append(tensors_of(memory))
            seen.traffic.append(rank.traffic.take())
            seen.observed.append(rank.take_observed())
            if epoch == stop_at:
                saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
                memory, model = tensors_of(memory), copy.deepcopy(base)
                rank.epoch = -1
                state = await method.setup(rank, part, model)
                rank.traffic.take()
                optimizer = method.optimizer(rank, model, 0.02, 0.0)
                model.load_state_dict(saved[0])
                optimizer.load_state_dict(saved[1])
        return seen

    return loopback.run_ranks(program, len(parts), seed=4)


def uncompressed(method: ECGraph) -> ECGraph:
    """The method with uncompressed messages."""
    plain = {"fp": "exact", "bp": "exact"}
    return replace(method, **plain) if isinstance(method, ECGraphS) else ECGraph(**plain)  # type: ignore[arg-type]


def layer_bytes(runs: list[Run], epoch: int, direction: str) -> list[int]:
    return [sum(r.traffic[epoch].layers.get(direction, {}).get(l, 0) for r in runs) for l in range(3)]
