"""CAGNET's whole blocks, and SANCUS's blocks of earlier epochs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from harness.cli import main
from harness.conformance._exactness import difference
from harness.conformance._ground import Deal, Ground, parts_for_method, random_graph
from harness.conformance._reference import reference_gradients
from harness.conformance._rounds import EpochSettings, run_epochs
from harness.errors import InputError
from harness.graphs import RankGrid
from harness.methods.cagnet import grid_bytes
from harness.methods.registry import parse_method
from harness.nn import counts
from harness.running import prepare, run
from tests.conformance.test_drivers import config

WHOLE = {"layer0": "exchange", "dropout": 0.0}
NODES, WIDTHS = 300, [12, 10, 10, 4]  # of the graph and the model of `config`


def losses(method: str, **values: Any) -> list[float]:
    return [epoch["loss"] for epoch in run(config(method, **values)).epochs]


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_losses_are_those_of_one_device_to_rounding(model: str, parts: int) -> None:
    setting: dict[str, Any] = {"model": model, "dropout": 0.0}
    whole = losses("single", parts=1, **setting)
    assert losses("cagnet", parts=parts, partitioner="contiguous", **setting) == pytest.approx(whole, rel=1e-3)


def test_bytes_follow_from_nodes_alone() -> None:
    """4 n (P - 1) (f_l + f_(l+1)) summed over layers, whatever the partition and the edges."""
    for partitioner in ("contiguous", "metis-cut"):
        for dataset in (
            "synthetic:nodes=300,degree=8,classes=4,features=12",
            "synthetic:nodes=300,degree=2,classes=4,features=12",
        ):
            found = run(config("cagnet", partitioner=partitioner, dataset=dataset, epochs=1)).epochs[0]["bytes"]
            assert found["forward"] == [4 * NODES * 2 * width for width in WIDTHS[:-1]]
            assert found["backward"] == [4 * NODES * 2 * width for width in WIDTHS[1:]]


GRIDS = [(4, 1), (2, 2), (4, 2), (6, 2), (8, 2), (10, 2), (3, 3), (6, 3), (9, 3), (12, 3), (4, 4), (8, 4)]


@pytest.mark.parametrize("deal", ["hash", "first", "halves"])
@pytest.mark.parametrize(("ranks", "c"), GRIDS)
def test_gradients_of_every_grid_are_those_of_one_process(ranks: int, c: int, deal: Deal) -> None:
    """In double precision, on all ranks alike; also with blocks without nodes."""
    method, graph = parse_method(f"cagnet:algorithm=1.5d:replication={c}"), random_graph(31, 90, seed=4)
    model = Ground().model(method, graph, ranks // c, kind="sage" if deal == "hash" else "gcn")
    loss, wanted = reference_gradients(model, graph)
    parts = parts_for_method(method, graph, ranks // c, deal)
    assert len(parts) == ranks
    for rank in run_epochs(method, model, parts, EpochSettings(1, frozen=True)):
        assert difference(rank.epochs[0].parameters, wanted) < 1e-10
        assert rank.epochs[0].loss == pytest.approx(loss, rel=1e-10)


@pytest.mark.parametrize(("ranks", "c"), [(4, 1), (4, 2), (8, 2), (6, 3), (4, 4)])
def test_bytes_of_a_grid(ranks: int, c: int) -> None:
    """4 n f (P / c - 1) broadcast and 8 n f (c - 1) summed; gradients of weights over the columns only."""
    method = f"cagnet:algorithm=1.5d:replication={c}"
    found = run(config(method, parts=ranks, epochs=1, partitioner="contiguous")).epochs[0]["bytes"]
    copies = ranks // c - 1 + 2 * (c - 1)
    assert found["forward"] == [4 * NODES * copies * width for width in WIDTHS[:-1]]
    assert found["backward"] == [4 * NODES * copies * width for width in WIDTHS[1:]]
    whole = run(config("cagnet", parts=2, epochs=1)).epochs[0]["bytes"]["reduce"]
    assert found["reduce"] == (ranks - c) * whole
    assert found["other"] == 0


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_a_grid_learns_as_its_blocks_do(dropout: int) -> None:
    """Losses and accuracies are those of 1D on as many parts, and every node is counted once."""
    common = {"dropout": dropout, "partitioner": "contiguous", "eval_every": 3}
    grid = run(config("cagnet:algorithm=1.5d:replication=2", parts=6, **common))
    plain = run(config("cagnet", parts=3, **common))
    assert [e["loss"] for e in grid.epochs] == pytest.approx([e["loss"] for e in plain.epochs], rel=1e-3)
    for ours, theirs in zip(grid.epochs, plain.epochs, strict=True):
        assert [ours[s] for s in ("train", "val", "test")] == pytest.approx(
            [theirs[s] for s in ("train", "val", "test")]
        )


def test_a_column_has_every_node_once_and_one_column_counts() -> None:
    settings = config("cagnet:algorithm=1.5d:replication=2", parts=6)
    prepared, grid = prepare(settings), RankGrid(6, 2)
    parts = [prepared.training(rank) for rank in range(6)]
    for rank, part in enumerate(parts):
        column = torch.cat([parts[other].nodes for other in grid.column(rank)])
        assert sorted(column.tolist()) == list(range(NODES))
        assert all(torch.equal(part.nodes, parts[other].nodes) for other in grid.row(rank))
        assert {at for at in range(6) if part.plan.recv_counts[at]} <= set(grid.column(rank))
    hits = [counts(torch.zeros(len(part.nodes), 4), part).sum(0)[:2].sum() for part in parts]
    assert sum(map(float, hits)) == sum(len(part.train) + len(part.val) + len(part.test) for part in parts[::2])
    assert hits[1] == hits[3] == hits[5] == 0


def test_half_of_the_blocks_are_multiplied_in_each_column() -> None:
    """A modelled rank of a grid with c = 2 does half of the sums of one of 1D on as many blocks, on twice the ranks."""
    dense = {"dataset": "synthetic:nodes=4000,degree=300,features=64", "hidden": 64, "layer0": "exchange"}
    setting: dict[str, Any] = {**dense, "mode": "sim", "cluster": "ethernet-10g", "epochs": 2, "model": "gcn"}
    compute = {
        ranks: run(config(method, parts=ranks, partitioner="contiguous", **setting)).epochs[-1]["seconds"]["compute"]
        for method, ranks in (("cagnet", 4), ("cagnet:algorithm=1.5d", 8))
    }
    assert 0.4 < compute[8] / compute[4] < 0.75


@pytest.mark.parametrize(
    ("method", "ranks", "says"),
    [
        ("cagnet:algorithm=1.5d:replication=3", 4, "replication=3 does not divide 4 ranks: use one of 1, 2, 4"),
        ("cagnet:algorithm=1.5d:replication=0", 4, "replication must be at least 1, not 0"),
        ("cagnet:replication=4", 4, "replication changes nothing with algorithm=1d"),
        ("cagnet:algorithm=2d", 6, "needs a square of ranks: 4 or 9, not 6"),
        ("cagnet:algorithm=3d", 9, "needs a cube of ranks: 8 or 27, not 9"),
        ("cagnet:algorithm=2d", 4, "cannot be run; algorithm=1d sends .* MB, algorithm=1.5d:replication=2 .* MB"),
    ],
)
def test_grids_that_do_not_fit_are_one_line(
    method: str, ranks: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["run", "--dataset", "synthetic:nodes=300,degree=8,classes=4,features=12", "--model", "gcn"]
    assert main([*arguments, "--method", method, "--parts", str(ranks), "--mode", "loopback"]) == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    with pytest.raises(InputError, match=says):
        raise InputError(said)


@pytest.mark.parametrize("q", [1, 2, 3, 4])
def test_bytes_of_two_and_three_dimensions_stage_by_stage(q: int) -> None:
    """What every rank receives: sparse blocks of 3 numbers an edge and dense blocks, of stages that are not its own."""
    totals = prepare(config("vanilla", parts=2)).totals
    n, nnz = totals.num_nodes, totals.num_edges
    squared = cubed = 0.0
    for before, after in zip(WIDTHS, WIDTHS[1:], strict=False):
        sparse, rows = 3 * nnz / q**2, {f: n / q * f / q for f in (before, after)}
        for _ in range(q - 1):  # A H, then Z W; A G, then S W^T and H^T S
            squared += sparse + rows[before] + rows[before]
            squared += sparse + rows[after] + rows[after] + rows[before] + rows[after]
        if q > 1:
            squared += n * before / q**2 + before * after  # blocks of H change places; blocks of dW are gathered
        for f in (before, after):
            for _ in range(q - 1):
                cubed += 3 * nnz / q**3 + n / q**2 * f / q
            cubed += 2 * (q - 1) / q * (n / q * f / q)  # the sum over the third dimension
    assert grid_bytes("2d", WIDTHS, totals, q**2) == pytest.approx(4 * q**2 * squared)
    assert grid_bytes("3d", WIDTHS, totals, q**3) == pytest.approx(4 * q**3 * cubed)


def test_order_changes_nothing() -> None:
    assert losses("cagnet", order="linear-first") == losses("cagnet", order="aggregate-first")


@pytest.mark.parametrize("rule", ["age", "change"])
def test_a_bound_of_0_is_cagnet_bit_for_bit(rule: str) -> None:
    assert losses(f"sancus:rule={rule}:bound=0", **WHOLE) == losses("cagnet", **WHOLE)


def test_cached_features_are_exact_without_dropout_and_sent_once() -> None:
    cached = run(config("sancus:bound=0", dropout=0.0))
    assert [e["loss"] for e in cached.epochs] == losses("cagnet", **WHOLE)
    features = [e["bytes"]["forward"][0] for e in cached.epochs]
    assert features == [4 * NODES * 2 * WIDTHS[0], *[0] * 9]
    assert all(e["bytes"]["backward"][0] for e in cached.epochs)  # the weights of layer 0 need it


@pytest.mark.parametrize("rule", ["age:bound=3", "change:bound=0.5", "period:period=4:warmup=1"])
def test_with_frozen_weights_old_blocks_are_new(rule: str) -> None:
    still = {**WHOLE, "lr": 1e-12}
    assert losses(f"sancus:rule={rule}", **still) == pytest.approx(losses("cagnet", **still), rel=1e-6)


def sent(method: str) -> list[int]:
    """Blocks of layer 1 that are broadcast, by epoch."""
    block = 4 * WIDTHS[1] * 2 * NODES // 3
    found = run(config(method, partitioner="contiguous", dropout=0.0))
    return [e["bytes"]["forward"][1] // block for e in found.epochs]


def test_rules_that_count() -> None:
    assert sent("sancus:bound=2") == [3, 0, 0, 3, 0, 0, 3, 0, 0, 3]
    assert sent("sancus:rule=period:period=3:warmup=2") == [3, 3, 3, 0, 0, 3, 0, 0, 3, 0]


def test_a_larger_bound_on_the_change_sends_less() -> None:
    few, some, every = (sum(sent(f"sancus:rule=change:bound={b}")) for b in (0.3, 0.05, 0))
    assert 3 <= few < some < every == 30


def test_decisions_cost_a_byte_to_every_other_rank() -> None:
    other = [e["bytes"]["other"] for e in run(config("sancus:rule=change:bound=0.1")).epochs]
    assert other == [0, *[2 * 3 * 2] * 9]  # two layers decide, three ranks tell two others


def test_every_rank_keeps_all_blocks() -> None:
    """Memory of a modelled rank grows by n x width values a layer."""
    dense = {"dataset": "synthetic:nodes=4000,degree=10,features=64", "hidden": 64, "parts": 8, "dropout": 0.0}
    setting: dict[str, Any] = {**dense, "layer0": "exchange", "mode": "sim", "cluster": "ethernet-10g", "epochs": 3}
    old, new = (max(run(config(m, **setting)).epochs[-1]["peak_memory"]) for m in ("sancus", "cagnet"))
    assert old - new > 0.8 * 4 * 4000 * 64 * 2


@pytest.mark.parametrize("method", ["cagnet", "cagnet:algorithm=1.5d", "sancus:bound=2"])
def test_shapes_only_has_the_same_bytes(method: str) -> None:
    setting: dict[str, Any] = {"mode": "sim", "cluster": "ethernet-1g", "parts": 4}
    full, shapes = run(config(method, **setting)), run(config(method, **setting, shapes_only=True))
    for ours, theirs in zip(full.epochs, shapes.epochs, strict=True):
        assert all(ours["bytes"][kind] == theirs["bytes"][kind] for kind in ("forward", "backward", "other", "reduce"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sancus:bound=-1", "bound must be"),
        ("sancus:bound=0.5", "bound must be"),
        ("sancus:rule=period:period=0", "period must be at least 1"),
        ("sancus:layer0=precompute", "cache or exchange"),
    ],
)
def test_options_that_make_no_sense_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_method(text)


@pytest.mark.parametrize("method", ["cagnet", "sancus"])
def test_attention_is_refused(method: str) -> None:
    with pytest.raises(InputError, match="linear in rows"):
        run(config(method, model="gat"))
