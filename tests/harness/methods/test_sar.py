"""SAR: exact whatever the depth and the model, with one remote part in memory after the other."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from harness import loopback
from harness.errors import InputError
from harness.exchanges import Pieces
from harness.methods.registry import parse_method
from harness.methods.sar import SAR, SARState
from harness.rank import Rank
from harness.running import run
from tests.conformance.test_drivers import config
from tests.support.conformance import make_model, make_parts
from tests.support.graphs import owners, random_graph

GRAPH = random_graph(60, 400, seed=4)
P = 4
PARTS = make_parts(GRAPH, owners(GRAPH, P, "random"), P, torch.float64)


def losses(method: str, **values: Any) -> list[float]:
    return [epoch["loss"] for epoch in run(config(method, **values)).epochs]


@pytest.mark.parametrize("model", ["gcn", "gcn-no-loop", "sage", "gat"])
@pytest.mark.parametrize("depth", [0, 1, 5])
def test_losses_are_those_of_vanilla_to_rounding(model: str, depth: int) -> None:
    setting: dict[str, Any] = {"model": model, "layer0": "exchange", "parts": 4}
    assert losses(f"sar:depth={depth}", **setting) == pytest.approx(losses("vanilla", **setting), rel=1e-4)


@pytest.mark.parametrize("model", ["gat", "gcn", "sage"])
def test_depth_changes_no_bit(model: str) -> None:
    setting: dict[str, Any] = {"model": model, "layer0": "exchange", "parts": 4}
    assert losses("sar:depth=0", **setting) == losses("sar:depth=1", **setting) == losses("sar:depth=3", **setting)


@pytest.mark.parametrize("order", ["aggregate-first", "linear-first"])
@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_sums_send_the_bytes_of_vanilla(model: str, order: str) -> None:
    setting: dict[str, Any] = {"model": model, "layer0": "exchange", "order": order, "epochs": 1}
    ours, theirs = (run(config(m, **setting)).epochs[0]["bytes"] for m in ("sar", "vanilla"))
    assert (ours["forward"], ours["backward"]) == (theirs["forward"], theirs["backward"])


def test_attention_sends_half_as_much_again() -> None:
    """A layer with H heads of width D exchanges H D + H values a row three times instead of H D twice."""
    setting: dict[str, Any] = {"model": "gat", "layer0": "exchange", "hidden": 12, "heads": 2, "epochs": 1}
    ours, theirs = (run(config(m, **setting)).epochs[0]["bytes"] for m in ("sar", "vanilla"))
    rows = theirs["forward"][1] / (4 * 2 * 12)
    assert ours["forward"][1] == rows * 4 * (24 + 2) and ours["backward"][1] == 2 * ours["forward"][1]


@pytest.mark.parametrize(("depth", "most"), [(0, 1), (1, 2), (7, 3)])
def test_only_depth_plus_one_pieces_are_ever_alive(depth: int, most: int) -> None:
    method, model = SAR(depth=depth), make_model("sage", GRAPH, dtype=torch.float64)
    assert PARTS[0].x is not None

    async def program(rank: Rank) -> tuple[int, int, float]:
        part = PARTS[rank.index]
        state = await method.setup(rank, part, model)
        alive, highest, started, used = 0, 0, rank.start, 0

        def start(effect: Any) -> Any:
            nonlocal alive, highest
            alive += 1
            highest = max(highest, alive)
            return started(effect)

        async def use(owner: int, rows: torch.Tensor) -> None:
            nonlocal alive, used
            alive -= 1
            used += len(rows)
            assert torch.equal(rows, PARTS[owner].x[_rows_read(part, owner)])  # type: ignore[index]

        rank.start = start  # type: ignore[method-assign]
        assert part.x is not None
        await state.pieces.fetch(rank, part.x, use, label="x", direction="forward", layer=1)
        return highest, used, method.measures(part, model, state)["halo rows in memory at a time (rows)"]

    for part, (highest, used, stated) in zip(PARTS, loopback.run_ranks(program, P), strict=True):
        counts = part.plan.recv_counts
        assert highest == most and used == counts.sum()
        assert counts.max() <= stated <= counts.sum() and (depth < P - 1) == (stated < counts.sum())


def _rows_read(part: Any, owner: int) -> torch.Tensor:
    """Local rows of `owner` that the part reads."""
    begin, end = Pieces.of(part.graph, part.plan, 0).read[owner]
    where = {int(node): at for at, node in enumerate(PARTS[owner].nodes)}
    return torch.tensor([where[int(node)] for node in part.halo_nodes[begin:end]], dtype=torch.int64)


def test_blocks_by_owner_are_the_halo_block() -> None:
    for part in PARTS:
        pieces = Pieces.of(part.graph, part.plan, 1)
        whole = torch.ones(part.graph.num_halo, 1, dtype=torch.float64)
        halo = part.graph.halo
        wanted = torch.ops.haloscope.gather_sum(halo.indptr, halo.indices, whole)
        found = sum(
            torch.ops.haloscope.gather_sum(b.indptr, b.indices, torch.ones(b.num_cols, 1, dtype=torch.float64))
            for b in pieces.blocks
        )
        assert torch.equal(wanted, torch.as_tensor(found))


def test_a_modelled_rank_needs_less_memory_than_with_vanilla() -> None:
    """On a dense graph in many parts most of vanilla's memory is halo rows."""
    dense = {"dataset": "synthetic:nodes=4000,degree=60,features=64", "hidden": 64, "parts": 8, "partitioner": "hash"}
    setting: dict[str, Any] = {**dense, "layer0": "exchange", "mode": "sim", "cluster": "ethernet-10g", "epochs": 2}
    ours, theirs = (max(run(config(m, **setting)).epochs[-1]["peak_memory"]) for m in ("sar", "vanilla"))
    assert ours < 0.8 * theirs


def test_on_two_ranks_it_needs_as_much_since_the_one_remote_part_is_the_whole_halo() -> None:
    """Beside one tensor of own rows: vanilla adds gradients that come back over their sums, and makes none for that."""
    setting: dict[str, Any] = {
        "dataset": "synthetic:nodes=4000,degree=30,classes=8,features=32,communities=40,homophily=0.7",
        "hidden": 64, "parts": 2, "mode": "sim", "cluster": "ethernet-10g", "epochs": 2, "eval_every": -1,
        "shapes_only": True,
    }  # fmt: skip
    ours, theirs = (max(run(config(m, **setting)).epochs[-1]["peak_memory"]) for m in ("sar", "vanilla"))
    own_rows = 4 * 64 * 4000 / 2
    assert ours < 1.03 * theirs + own_rows


def test_shapes_only_has_the_same_bytes() -> None:
    setting: dict[str, Any] = {"model": "gat", "mode": "sim", "cluster": "ethernet-1g", "epochs": 2}
    full, shapes = run(config("sar", **setting)), run(config("sar", **setting, shapes_only=True))
    for kind in ("forward", "backward", "reduce"):
        assert full.epochs[-1]["bytes"][kind] == shapes.epochs[-1]["bytes"][kind]


def test_the_state_has_a_piece_per_part() -> None:
    async def program(rank: Rank) -> SARState:
        return await SAR().setup(rank, PARTS[rank.index], make_model("gat", GRAPH, dtype=torch.float64))

    for rank, state in enumerate(loopback.run_ranks(program, P)):
        assert len(state.pieces.blocks) == P and not state.pieces.blocks[rank].num_cols


def test_a_negative_depth_is_refused() -> None:
    with pytest.raises(InputError, match="depth must be at least 0"):
        parse_method("sar:depth=-1")
