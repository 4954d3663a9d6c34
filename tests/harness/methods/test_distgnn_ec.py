"""EC-Graph's DistGNN: halo rows in turns, zeros or remembered rows for the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from harness import loopback
from harness.errors import InputError
from harness.methods.distgnn_ec import DistGNNEC, TurnsState
from harness.methods.registry import parse_method
from harness.rank import Rank
from harness.running import run
from tests.conformance.test_drivers import config
from tests.support.conformance import make_model, make_parts
from tests.support.graphs import owners, random_graph

GRAPH = random_graph(90, 400, seed=4)
P = 3
PARTS = make_parts(GRAPH, owners(GRAPH, P, "random"), P, torch.float32)


def states(method: DistGNNEC) -> list[TurnsState]:
    model = make_model("gcn", GRAPH, dtype=torch.float32)

    async def program(rank: Rank) -> TurnsState:
        return await method.setup(rank, PARTS[rank.index], model)

    return loopback.run_ranks(program, P)


def halos(method: DistGNNEC, epochs: int) -> list[list[Tensor]]:
    """Per rank and epoch the halo of global node numbers, times the epoch's number from 1."""
    model = make_model("gcn", GRAPH, dtype=torch.float32)

    async def program(rank: Rank) -> list[Tensor]:
        part = PARTS[rank.index]
        state, memory, found = await method.setup(rank, part, model), {}, []  # type: ignore[var-annotated]
        for rank.epoch in range(epochs):
            plan = await method.begin(rank, part, state, memory)
            exchange: Any = method.exchange(1, model, state, plan)
            found.append(await exchange.forwards(rank, (part.nodes + 1).float()[:, None] * (rank.epoch + 1)))
        return found

    return loopback.run_ranks(program, P)


@pytest.mark.parametrize("r", [1, 2, 5, 40])
def test_targets_fetch_every_neighbour_of_their_slice(r: int) -> None:
    for part, state in zip(PARTS, states(DistGNNEC(r=r)), strict=True):
        rows = torch.repeat_interleave(torch.arange(part.graph.num_own), part.graph.halo.indptr.diff().long())
        slices = torch.div(rows * r, part.graph.num_own, rounding_mode="floor")
        for k, turn in enumerate(state.turns):
            begin, end = (part.graph.num_own * at // r for at in (k, k + 1))
            read = part.graph.halo.indices[(rows >= begin) & (rows < end)]
            assert set(turn.places.tolist()) == set(read.tolist()) and len(slices) == part.graph.halo.nnz
        fetched = torch.cat([turn.places for turn in state.turns])
        assert set(fetched.tolist()) == set(range(part.graph.num_halo))


@pytest.mark.parametrize("r", [1, 3, 50])
def test_bins_of_the_halo_fetch_every_row_once_in_r_epochs(r: int) -> None:
    for part, state in zip(PARTS, states(DistGNNEC(r=r, bins="halo")), strict=True):
        fetched = torch.cat([turn.places for turn in state.turns])
        assert sorted(fetched.tolist()) == list(range(part.graph.num_halo))


@pytest.mark.parametrize("missing", ["zero", "cached"])
@pytest.mark.parametrize("bins", ["targets", "halo"])
def test_rows_of_other_turns_are_zero_or_those_of_their_last(missing: str, bins: str) -> None:
    method = parse_method(f"distgnn-ec:r=3:missing={missing}:bins={bins}")
    assert isinstance(method, DistGNNEC)
    for part, state, found in zip(PARTS, states(method), halos(method, 7), strict=True):
        wanted = torch.zeros(part.graph.num_halo)
        for epoch, halo in enumerate(found):
            if missing == "zero":
                wanted = torch.zeros_like(wanted)
            places = state.turns[epoch % 3].places
            wanted[places] = (part.halo_nodes[places] + 1).float() * (epoch + 1)
            assert torch.equal(halo[:, 0], wanted)


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_one_turn_is_exact(model: str) -> None:
    ours, theirs = (run(config(m, model=model, layer0="cache")) for m in ("distgnn-ec:r=1", "vanilla"))
    assert [e["loss"] for e in ours.epochs] == pytest.approx([e["loss"] for e in theirs.epochs], rel=1e-4)


def test_with_frozen_weights_remembered_rows_become_exact() -> None:
    still = {"lr": 1e-12, "dropout": 0.0, "layer0": "cache", "layers": 2, "epochs": 6}
    exact = run(config("vanilla", **still)).epochs[0]["loss"]
    for bins in ("targets", "halo"):
        losses = [e["loss"] for e in run(config(f"distgnn-ec:r=3:missing=cached:bins={bins}", **still)).epochs]
        assert losses[2:] == pytest.approx([exact] * 4, rel=1e-6) and abs(losses[0] / exact - 1) > 1e-5
    zeros = [e["loss"] for e in run(config("distgnn-ec:r=3", **still)).epochs]
    assert all(abs(loss / exact - 1) > 1e-5 for loss in zeros)


def test_dense_graphs_save_little() -> None:
    """Nearly every slice of targets reads nearly every halo node; turns of the halo save all but one in r."""
    dense = {"dataset": "synthetic:nodes=300,degree=60,classes=4,features=12", "epochs": 5, "partitioner": "hash"}
    whole = sum(run(config("vanilla", layer0="cache", **dense)).epochs[0]["bytes"]["forward"])

    def mean(method: str) -> float:
        return sum(sum(e["bytes"]["forward"]) for e in run(config(method, **dense)).epochs) / 5 / whole

    assert mean("distgnn-ec:r=5") > 0.9 and mean("distgnn-ec:r=5:bins=halo") == pytest.approx(0.2, abs=0.01)


def test_shapes_only_needs_the_share_of_targets_and_knows_that_of_the_halo() -> None:
    setting: dict[str, Any] = {"mode": "sim", "cluster": "ethernet-1g", "shapes_only": True}
    with pytest.raises(InputError, match="fetched rows"):
        run(config("distgnn-ec:r=4", **setting))
    few = run(config("distgnn-ec:r=4:bins=halo", **setting)).epochs[-1]["bytes"]["forward"]
    whole = run(config("vanilla", layer0="cache", order="aggregate-first", **setting)).epochs[-1]["bytes"]["forward"]
    assert sum(few) == pytest.approx(sum(whole) / 4, rel=0.05)


@pytest.mark.parametrize(
    ("text", "said"),
    [("distgnn-ec:r=0", "r must be at least 1"), ("distgnn-ec:r=x", "r"), ("distgnn-ec:bins=y", "bins")],
)
def test_options_that_make_no_sense_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_method(text)


def test_attention_is_refused() -> None:
    with pytest.raises(InputError, match="linear in rows"):
        run(config("distgnn-ec", model="gat"))
