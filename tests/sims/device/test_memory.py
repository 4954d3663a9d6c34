"""The composition of a rank's peak memory, for tensors of known sizes, and out-of-memory results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from harness.config import from_mapping
from harness.effects import Rows
from harness.numbers import byte_text
from harness.rank import Rank
from harness.running import run
from harness.running.results import Result
from sims.cluster import load_cluster, place
from sims.device import LiveMemory, ShapeMemory, fullest, load_device
from sims.device._memory import CONTRIBUTORS
from sims.engine import Ledger, Prices, simulate

DEVICES = ["cpu", "meta"]
SCALARS = 100  # bytes of step counts and the like that no operator made


class Meter:
    """A clock that only has a component."""

    def __init__(self) -> None:
        self.paused, self.kind = False, "compute"

    def charge(self, seconds: float, launches: float = 1) -> None:
        """Does nothing."""


def ledger(memory: LiveMemory, device: str, meter: Meter | None = None) -> Ledger:
    shapes = ShapeMemory() if device == "meta" else None
    return Ledger(Prices(load_device("cpu-epyc-1core")), meter or Meter(), memory, shapes)


def contributors(memory: LiveMemory) -> dict[str, int]:
    return {name: nbytes for name, nbytes in memory.at_peak.items() if nbytes}


@pytest.mark.parametrize("device", DEVICES)
def test_a_training_step_by_hand(device: str) -> None:
    """x [100, 8] -> linear 8 -> 6, relu, sum; float32 is 4 bytes."""
    x, rows = torch.ones(100, 8, device=device), torch.arange(50, device=device)
    memory = LiveMemory()
    with ledger(memory, device):
        model = nn.Linear(8, 6, device=device)
        (rows + 1).sum()
        memory.begin_epoch()
        loss = model(x).relu().sum()
        forward = dict(memory._by_label)
        del rows
        loss.backward()
    assert forward["features"] == 100 * 8 * 4 and forward["graph"] >= 50 * 8
    assert forward["parameters"] == (8 * 6 + 6) * 4
    assert forward["activations"] == 100 * 6 * 4 + 4, "relu keeps its result; the linear map's is gone; the loss"
    after = memory._by_label
    assert after["gradients"] == (8 * 6 + 6) * 4, "of the parameters alone: x needs none"
    assert after["optimizer"] == 0
    assert sum(after.values()) == memory.live
    assert sum(memory.at_peak.values()) == memory.peak


@pytest.mark.parametrize("device", DEVICES)
def test_adam_keeps_two_values_a_parameter(device: str) -> None:
    memory = LiveMemory()
    x = torch.ones(10, 40, device=device)
    with ledger(memory, device):
        model = nn.Linear(40, 30, bias=False, device=device)
        optimizer = torch.optim.Adam(model.parameters())
        memory.begin_epoch()
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert memory._by_label["optimizer"] == 2 * 30 * 40 * 4
    assert memory._by_label["parameters"] == 30 * 40 * 4


def test_integer_tensors_are_graph_and_codes_are_not() -> None:
    memory, meter = LiveMemory(), Meter()
    with ledger(memory, "cpu", meter):
        memory.begin_epoch()
        sample = torch.arange(10)
        meter.kind = "codec"
        codes = torch.zeros(100, dtype=torch.uint8)
    assert memory._by_label["graph"] == 80 and memory._by_label["halo"] == 100
    memory.sending([codes, sample[:5]])
    assert memory._by_label["payloads"] == 100, "a piece of a larger tensor stays what it is"
    assert memory._by_label["graph"] == 80


def test_what_outlives_its_epoch_is_carried() -> None:
    memory = LiveMemory()
    with ledger(memory, "cpu"):
        features = torch.ones(5)
        memory.begin_epoch()
        cache = features * 2
        memory.begin_epoch()
        fresh = features * 3
    assert {k: v for k, v in memory._by_label.items() if v} == {"features": 20, "carried": 20, "activations": 20}
    del cache, fresh
    assert memory._by_label["carried"] == memory._by_label["activations"] == 0


def test_exchanges_hold_what_they_send_and_receive() -> None:
    """2 ranks send 1,000 rows of 25 float32 to each other: 100,000 bytes out, 100,000 in."""

    async def program(rank: Rank) -> dict[str, int]:
        rank.clock.begin_epoch()
        counts = np.full(2, 1000, np.int64)
        counts[rank.index] = 0
        rows = torch.ones(1000, 25, device=rank.device)
        received = await rank.all_to_all([Rows(rows, counts, counts)], label="h")
        assert received.tensors[0].shape == rows.shape
        return dict(rank.clock.memory._by_label)  # type: ignore[attr-defined]

    simulation = simulate(program, place(load_cluster("ethernet-1g"), 2), shapes_only=True)
    assert simulation.peak_memory == [200_000, 200_000]
    assert simulation.fullest.contributors == {"halo": 100_000, "payloads": 100_000}
    assert simulation.results[0]["halo"] == simulation.results[0]["payloads"] == 100_000


def test_the_fullest_rank_is_the_one_with_the_least_room() -> None:
    memories = [LiveMemory(), LiveMemory()]
    memories[0].hold(100)
    memories[1].hold(90)
    found = fullest(memories, [1000, 100])
    assert (found.rank, found.peak, found.capacity, found.contributors) == (1, 90, 100, {"halo": 90})
    assert "rank 1 needs 90 B (halo 90 B), its device has 100 B" in str(found)


# -- runs ----------------------------------------------------------------------------------------------------------


def described(folder: Path, nodes: int, features: int, boundary: int) -> str:
    path = folder / "described.json"
    graph = {"nodes": nodes, "edges": 10 * nodes, "features": features, "classes": 10, "train": nodes // 2}
    path.write_text(json.dumps({"graph": graph, "parts": {"boundary": boundary}}))
    return str(path)


def shapes_run(dataset: str, **values: Any) -> Result:
    base: dict[str, Any] = {"model": "gcn", "layers": 2, "hidden": 64, "epochs": 2, "parts": 2, "eval_every": -1}
    base |= {"mode": "sim", "shapes_only": True, "cluster": "sylvie-2x8", "layer0": "exchange"}
    return run(from_mapping({"dataset": dataset, **base, **values}))


def test_out_of_memory_names_the_largest_contributors(tmp_path: Path) -> None:
    """200 M nodes x 32 float32 features are 12.8 GB a rank, as much again is received, and the device has 24 GiB."""
    result = shapes_run(described(tmp_path, 200_000_000, 32, 100_000_000))
    assert result.state == "out_of_memory"
    memory = result.facts["memory"]
    assert memory["contributors"]["features"] == pytest.approx(100_000_000 * 32 * 4, abs=SCALARS)
    assert memory["contributors"]["halo"] >= 100_000_000 * 32 * 4
    assert set(memory["contributors"]) <= set(CONTRIBUTORS)
    assert sum(memory["contributors"].values()) == memory["peak"] == max(result.epochs[-1]["peak_memory"])
    assert memory["capacity"] == 24 * 2**30
    largest = next(iter(memory["contributors"]))
    assert f"2 ranks do not fit: rank {memory['rank']} needs {byte_text(memory['peak'])}" in result.message
    assert f"({largest} {byte_text(memory['contributors'][largest])}" in result.message
    assert "its device has 25.8 GB" in result.message


def test_memory_of_a_run_that_fits(tmp_path: Path) -> None:
    """Activations of a GCN without dropout: hidden rows before and after ReLU, z1, logits and their softmax."""
    nodes, features, boundary = 20_000, 100, 3_000
    result = shapes_run(described(tmp_path, nodes, features, boundary), layer0="precompute")
    memory, own = result.facts["memory"], nodes // 2
    assert result.state == "done" and not result.message and memory["rank"] in (0, 1)
    parts = memory["contributors"]
    assert parts["parameters"] == (features * 64 + 64 + 64 * 10 + 10) * 4
    steps = 4 * 4  # a count for each of the four tensors
    assert parts["optimizer"] == 2 * parts["parameters"] + steps
    factors = (own + boundary) * 4
    expected = 2 * own * features * 4 + factors
    assert parts["features"] == pytest.approx(expected, abs=SCALARS), "x, the precomputed z0, factors of degrees"
    edges, halo = 10 * nodes // 2, boundary
    blocks = 4 * (2 * edges + 2 * (own + 1) + (own + 1) + (halo + 1))  # both blocks, with their transposes
    assert blocks <= parts["graph"] <= blocks + 8 * 12 * own, "and degrees, labels, ids, the plan"
    # The peak may be an exchange of the forward pass, before there are gradients.
    assert own * 64 * 4 <= parts["activations"] + parts.get("gradients", 0) <= 8 * own * 64 * 4
    assert not memory["setup"]
