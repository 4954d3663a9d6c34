"""Sylvie-A's staleness of exactly one epoch, its bounded variant, and the ablation that quantises everything."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from harness import loopback
from harness.codecs import StochasticRows
from harness.effects import Handle
from harness.errors import InputError
from harness.exchanges import HaloPush, LayerExchange, Quantiser, Returns
from harness.graphs import LocalGraph
from harness.methods.bases.edge_cut import EdgeCutState
from harness.methods.registry import parse_method
from harness.methods.sylvie import SylvieA, SylvieS
from harness.nn import GNN, Drop
from harness.rank import Rank
from harness.running import run
from harness.tape import Tape
from sims.device._profile import DEVICES
from tests.conformance.test_drivers import comparable, config
from tests.support.conformance import make_model, make_parts
from tests.support.graphs import owners, random_graph

GRAPH = random_graph(60, 240, seed=4)
P = 3
PARTS = make_parts(GRAPH, owners(GRAPH, P, "random"), P, torch.float32)
EPOCHS = 6


def exchanged(method: SylvieA | SylvieS, varying: bool) -> list[list[tuple[Tensor, Tensor]]]:
    """Per rank and epoch: the halo of layer 1, and the gradients that an exchange adds to own rows.

    With frozen weights own rows stay the same; `varying` scales them by the epoch.
    """
    model = make_model("sage", GRAPH, dtype=torch.float32)

    async def program(rank: Rank) -> list[tuple[Tensor, Tensor]]:
        part = PARTS[rank.index]
        state = await method.setup(rank, part, model)
        memory = method.remember(rank, part, model, state)
        found = []
        for rank.epoch in range(EPOCHS):
            scale = rank.epoch + 1.0 if varying else 1.0
            push = method.exchange(1, model, state, await method.begin(rank, part, state, memory))
            assert isinstance(push, HaloPush) and part.x is not None
            _, halo = await push.forward(rank, part.x * scale)
            added = await push.adjoint(rank, torch.zeros_like(part.x), halo.new_full(halo.shape, scale))
            found.append((halo, added))
        await method.settle(rank, memory)
        return found

    return loopback.run_ranks(program, P, seed=2)


def test_with_frozen_weights_the_halo_is_the_synchronous_one_an_epoch_later() -> None:
    late, now = exchanged(SylvieA(bits=2), varying=False), exchanged(SylvieS(bits=2), varying=False)
    for a, s in zip(late, now, strict=True):
        for epoch in range(1, EPOCHS):
            assert torch.equal(a[epoch][0], s[epoch - 1][0]) and torch.equal(a[epoch][1], s[epoch - 1][1])
        assert not a[0][0].any() and not a[0][1].any()


def test_rows_are_exactly_one_epoch_old() -> None:
    exact = SylvieS(bits=16)
    scales = [float(halo.abs().sum()) for halo, _ in exchanged(exact, varying=True)[0]]
    late = [float(halo.abs().sum()) for halo, _ in exchanged(SylvieA(bits=16), varying=True)[0]]
    assert late[0] == 0 and late[1:] == scales[:-1]


def test_every_third_epoch_is_synchronous_and_the_next_uses_what_it_sent() -> None:
    now = exchanged(SylvieS(bits=4), varying=True)
    bounded = exchanged(SylvieA(bits=4, staleness=3), varying=True)
    for b, s in zip(bounded, now, strict=True):
        for epoch in range(1, EPOCHS):
            old = epoch if (epoch + 1) % 3 == 0 else epoch - 1
            assert torch.equal(b[epoch][0], s[old][0]) and torch.equal(b[epoch][1], s[old][1])


@pytest.mark.parametrize("mode", ["loopback", "sim"])
def test_synchronising_every_epoch_is_sylvie_s(mode: str) -> None:
    clock = {"mode": mode} | ({"cluster": "ethernet-1g"} if mode == "sim" else {})
    bounded, now = run(config("sylvie-a:staleness=1", **clock)), run(config("sylvie-s", **clock))
    assert comparable(bounded) == comparable(now)
    assert bounded.summary()["seconds"] == now.summary()["seconds"]


def test_the_pipeline_hides_the_exchange_behind_compute() -> None:
    setting = {"mode": "sim", "cluster": "ethernet-1g", "hidden": 64}
    now, late = (run(config(m, **setting)).summary()["seconds"] for m in ("sylvie-s:bits=8", "sylvie-a:bits=8"))
    assert late["halo"] < 0.7 * now["halo"] and late["hidden"] > 0
    assert late["epoch"] < now["epoch"]


@pytest.mark.parametrize("options", ["", ":staleness=3:bits=4:dropout=after"])
def test_where_rows_are_quantised_changes_no_number(options: str) -> None:
    found = [comparable(run(config(f"sylvie-a:quantiser={where}{options}"))) for where in ("background", "inline")]
    assert found[0] == found[1]


def room(folder: Path, factor: float | None) -> str:
    """A CPU cluster whose devices have room for background work, or state nothing about it."""
    text = (DEVICES / "cpu-epyc-1core.toml").read_text()
    file = folder / f"device-{factor}.toml"
    file.write_text(text if factor is None else f"{text}\n[overlap]\nbackground = {factor}\n")
    return f"ethernet-1g:hosts.device={file}"


def test_quantising_beside_the_epoch_makes_it_shorter(tmp_path: Path) -> None:
    """By all the quantiser's seconds where the device has room; on a single core by those in which it would wait."""

    def seconds(where: str, factor: float | None) -> dict[str, float]:
        setting = {"mode": "sim", "cluster": room(tmp_path, factor), "hidden": 64, "shapes_only": True}
        return run(config(f"sylvie-a:quantiser={where}", **setting)).summary()["seconds"]

    inline, roomy, tight = seconds("inline", 1.0), seconds("background", 1.0), seconds("background", None)
    assert inline["reduce"] > inline["codec"] > 0.02 * inline["epoch"], "the ranks wait for longer than they quantise"
    assert roomy["epoch"] == pytest.approx(inline["epoch"] - inline["codec"], rel=0.005)
    assert roomy["compute"] == pytest.approx(inline["compute"])
    assert roomy["codec"] == tight["codec"] == 0
    assert roomy["epoch"] < tight["epoch"] < inline["epoch"]
    assert inline["compute"] < tight["compute"] < inline["compute"] + inline["codec"]


def test_a_synchronous_epoch_quantises_where_it_computes() -> None:
    epochs = run(config("sylvie-a:staleness=3", mode="sim", cluster="ethernet-1g")).epochs
    assert [e["seconds"]["codec"] > 0 for e in epochs[:6]] == [False, False, True] * 2


@pytest.mark.parametrize(("where", "kind"), [("background", torch.float32), ("inline", torch.uint8)])
def test_what_is_in_flight_becomes_plain_tensors(where: Quantiser, kind: torch.dtype) -> None:
    model, method = make_model("sage", GRAPH, dtype=torch.float32), SylvieA(quantiser=where)

    async def program(rank: Rank) -> Any:
        part = PARTS[rank.index]
        state = await method.setup(rank, part, model)
        memory: dict[str, Any] = {}
        push = method.exchange(1, model, state, await method.begin(rank, part, state, memory))
        assert isinstance(push, HaloPush) and part.x is not None
        await push.forward(rank, part.x)
        kinds = [type(entry) for entry in memory.values()]
        await method.settle(rank, memory)
        arrived = memory["h1"]
        return kinds, arrived.dtype if isinstance(arrived, Tensor) else arrived["0"].dtype

    assert loopback.run_ranks(program, P) == [([Handle], kind)] * P


def test_quantising_everything_touches_own_rows_with_the_codes_that_are_sent() -> None:
    model, method = make_model("sage", GRAPH, dtype=torch.float32), SylvieS(bits=1, scope="all")

    async def program(rank: Rank) -> Any:
        part = PARTS[rank.index]
        state = await method.setup(rank, part, model)
        push = method.exchange(1, model, state, None)
        assert part.x is not None
        own, halo = await push.forward(rank, part.x)
        gradient = await push.adjoint(rank, part.x, torch.zeros_like(halo))
        return own, halo, gradient

    found = loopback.run_ranks(program, P, seed=1)
    whole = torch.zeros(GRAPH.num_nodes, GRAPH.num_features)
    for part, (own, _, _) in zip(PARTS, found, strict=True):
        whole[part.nodes] = own
    for part, (own, halo, gradient) in zip(PARTS, found, strict=True):
        assert torch.equal(halo, whole[part.halo_nodes])
        assert part.x is not None
        for coded in (own, gradient):
            assert not torch.equal(coded, part.x)
            low, high = part.x.amin(1, keepdim=True), part.x.amax(1, keepdim=True)
            ends = torch.minimum((coded - low).abs(), (coded - high).abs())
            assert float(ends.max()) < 1e-5, "one bit has two values per row: the extremes"


def test_quantising_everything_sends_no_more() -> None:
    every, boundary = run(config("sylvie-s:scope=all")), run(config("sylvie-s"))
    assert [e["bytes"] for e in every.epochs] == [e["bytes"] for e in boundary.epochs]
    assert [e["loss"] for e in every.epochs] != [e["loss"] for e in boundary.epochs]


def test_wrong_options_say_so() -> None:
    with pytest.raises(InputError, match="staleness must be 0"):
        parse_method("sylvie-a:staleness=-1")
    with pytest.raises(InputError, match="sylvie-a: bits must be"):
        parse_method("sylvie-a:bits=3")
    assert isinstance(SylvieA(bits=4).codec(), StochasticRows)


def sent_and_received(method: SylvieS, keep: float) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """What ranks hand to the exchange of the second layer, what its model reads of own rows, and of halo rows."""
    model = make_model("sage", GRAPH, dtype=torch.float32, hidden=32, dropout=1 - keep, norm="none").train()
    sent: dict[int, Tensor] = {}
    seen: dict[int, tuple[Tensor, Tensor]] = {}

    async def program(rank: Rank) -> None:
        part, mine = PARTS[rank.index], copy.deepcopy(model)
        state = await method.setup(rank, part, mine)

        class Watching(SylvieS):
            def exchange(self, l: int, model: GNN, state: EdgeCutState, plan: Any) -> LayerExchange:
                return Spy(super().exchange(l, model, state, plan), sent if l == 1 else {})

        def update(
            l: int, graph: LocalGraph, rows: Tensor, own: Tensor, halo: Tensor, drop: Drop | None = None
        ) -> Tensor:
            if l == 1:
                seen[rank.index] = own, halo
            return GNN.update(mine, l, graph, rows, own, halo, drop)

        mine.update = update  # type: ignore[method-assign]
        await Watching(**vars(method)).forward(rank, part, mine, state, {}, Tape(rank))

    loopback.run_ranks(program, P)
    return [sent[r] for r in range(P)], [seen[r][0] for r in range(P)], [seen[r][1] for r in range(P)]


@dataclass
class Spy:
    """An exchange that keeps what each rank hands to it."""

    inner: LayerExchange
    sent: dict[int, Tensor]

    @property
    def returns(self) -> Returns:
        return self.inner.returns

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor, ...]:
        self.sent[rank.index] = x
        return await self.inner.forward(rank, x)

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        return await self.inner.adjoint(rank, *gradients)


def test_dropout_is_on_either_side_of_the_quantiser() -> None:
    """Before: owners send zeros, the same to all. After: whole rows travel, and every reader drops its own copies."""
    before, after = (sent_and_received(SylvieS(bits=16, dropout=side), keep=0.5) for side in ("before", "after"))  # type: ignore[arg-type]
    alive = [float((rows != 0).float().mean()) for rows in (torch.cat(before[0]), torch.cat(after[0]))]
    assert alive[0] == pytest.approx(0.5 * alive[1], rel=0.1), "half of what is sent is dropped"
    halo = float((torch.cat(after[2]).abs() < 1e-6).float().mean())
    assert halo == pytest.approx(1 - 0.5 * alive[1], abs=0.05), "half of what is read is dropped"
    rows = {}  # node -> which columns its readers see
    for part, own, theirs in zip(PARTS, after[1], after[2], strict=True):
        for node, row in zip([*part.nodes.tolist(), *part.halo_nodes.tolist()], [*own, *theirs], strict=True):
            rows.setdefault(node, []).append(tuple((row.abs() > 1e-6).tolist()))
    shared = [masks for masks in rows.values() if len(masks) > 1]
    assert shared and sum(len(set(masks)) == len(masks) for masks in shared) > 0.9 * len(shared)


def test_one_part_drops_the_same_wherever_the_exchange_is() -> None:
    losses = [
        [e.get("loss") for e in run(config(f"sylvie-s:dropout={side}", parts=1, epochs=3, dropout=0.5)).epochs]
        for side in ("before", "after")
    ]
    assert losses[0] == losses[1]


def test_late_dropout_needs_the_aggregation_first() -> None:
    with pytest.raises(InputError, match="use order=aggregate-first"):
        run(config("sylvie-a:dropout=after", order="linear-first"))
