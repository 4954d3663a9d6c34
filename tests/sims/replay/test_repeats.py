"""Epochs told again equal epochs computed, to the last bit; a promise that is not kept is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from harness.effects import Rows
from harness.errors import ProgramError
from harness.methods.base import Method
from harness.methods.registry import METHODS, parse_method
from harness.methods.vanilla import Vanilla
from harness.rank import Rank
from harness.running import run
from harness.running.results import Result
from sims.cluster import load_cluster
from sims.engine import Simulation, simulate
from sims.replay import Repeats
from sims.replay._repeats import Repeater, Step
from tests.conformance.test_drivers import config
from tests.sims.engine.test_scale import recorded
from tests.support.settings import label, rows
from tests.support.simulated import each

EPOCHS = 6
REPEATING = [row for row in rows() if parse_method(row["method"]).facts.repeats]


def promise(monkeypatch: pytest.MonkeyPatch, method: str, repeats: bool) -> None:
    """Have a method say that its epochs repeat, or not."""
    cls = METHODS[method.split(":")[0]]
    monkeypatch.setattr(cls, "facts", replace(cls.facts, repeats=repeats))


def shapes(row: dict[str, Any], **values: Any) -> Result:
    return run(config(**{"mode": "sim", "shapes_only": True, "epochs": EPOCHS, "eval_every": -1, **row, **values}))


@pytest.mark.parametrize("row", REPEATING, ids=label)
def test_every_method_that_says_so_repeats(
    row: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, told = "sylvie-2x8:stragglers.jitter=0.2", 0
    again = Step.again

    def counted(self: Step, *args: Any) -> Any:
        nonlocal told
        told += 1
        return again(self, *args)

    monkeypatch.setattr(Step, "again", counted)
    rates = str(recorded(tmp_path, [{"kept nodes": 0.4}] * 2, row["method"])) if "sampling" in row["method"] else ""
    found = shapes(row, cluster=cluster, rates=rates)
    exchanges, told = told, 0
    promise(monkeypatch, row["method"], False)
    computed = shapes(row, cluster=cluster, rates=rates)
    assert told == 0 and (exchanges > 0 or row["method"] == "bns-gcn:p=0.0" or row.get("parts") == 1)
    assert found.epochs == computed.epochs
    assert found.facts == computed.facts and found.state == computed.state


class Everything:
    """What `Repeats` needs of a method; its epoch has every kind of effect, and exchanges that compute hides."""

    async def epoch(self, rank: Rank) -> torch.Tensor:
        x = torch.empty(40 + 7 * rank.index, 8, device=rank.device)
        counts = each(rank.size, 5, rank.index)
        late = await rank.start(rank.all_to_all([Rows(x[: 5 * (rank.size - 1)].relu(), counts, None)], label="late"))
        copied = await rank.host_copy((x * 2).sum(1), to_host=True, label="out")
        with rank.span("codec"):
            y = copied[:6] * 3
        rank.observe("rows", 3.0, 7.0)
        if rank.index == 0:
            await rank.send(y[:4], to=1, label="pair")
        elif rank.index == 1:
            y = y + (await rank.recv(y[:4], source=0, label="pair")).sum()
        y = await rank.broadcast(y, root=2, label="b")
        await rank.wait(late)
        return (await rank.all_reduce(y.exp(), label="g", direction="reduce")).sum()


def everything(cluster: str, repeats: Repeats | None) -> tuple[Simulation, list[Any]]:
    """Six epochs of it on three ranks, and the spans."""
    method = cast(Any, Everything() if repeats is None else repeats.method)

    async def program(rank: Rank) -> list[Any]:
        epochs = []
        for rank.epoch in range(EPOCHS):
            rank.traffic.take()
            rank.clock.begin_epoch()
            loss = await method.epoch(rank)
            seconds = rank.clock.end_epoch()
            sent, peak = rank.traffic.take().to.tolist(), rank.clock.peak_memory()
            epochs.append((loss.shape, seconds, sent, peak, rank.take_observed()))
        return epochs

    spans: list[Any] = []
    simulation = simulate(
        program, 3, cluster=load_cluster(cluster), shapes_only=True, repeats=repeats,
        on_span=lambda *span: spans.append(span),
    )  # fmt: skip
    return simulation, spans


@pytest.mark.parametrize("cluster", ["sylvie-2x8", "cdfgnn-2x8a800:stragglers.jitter=0.1", "ec-graph"])
def test_every_effect(cluster: str) -> None:
    """Seconds, spans, bytes, memory, prices: all of what a simulation answers."""
    repeats = Repeats(cast(Method, Everything()))
    found, computed = everything(cluster, repeats), everything(cluster, None)
    assert found == computed
    assert [repeater.memory.known for repeater in repeats.ranks] == [True] * 3, "all have repeated"


def test_a_method_that_breaks_its_promise_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    epoch = Vanilla.epoch

    async def growing(self: Vanilla, rank: Rank, *given: Any) -> torch.Tensor:
        for _ in range(rank.epoch):
            torch.empty(5, device=rank.device).exp()
        return await epoch(self, rank, *given)

    monkeypatch.setattr(Vanilla, "epoch", growing)
    with pytest.raises(ProgramError, match="rank 0: epoch 2 does not repeat the one before"):
        shapes({"method": "vanilla"}, cluster="ethernet-1g")


def test_an_exchange_that_spans_epochs_does_not_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    promise(monkeypatch, "sylvie-a", True)
    with pytest.raises(ProgramError, match="was started in another epoch"):
        shapes({"method": "sylvie-a"}, cluster="ethernet-1g")


def test_epochs_are_computed_until_they_begin_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something that an epoch leaves behind is more memory at the beginning of the next."""
    kept: list[torch.Tensor] = []
    epoch = Vanilla.epoch

    async def leaving(self: Vanilla, rank: Rank, *given: Any) -> torch.Tensor:
        if rank.epoch < 4:
            kept.append(torch.empty(7, device=rank.device).exp())
        return await epoch(self, rank, *given)

    told: list[int] = []
    monkeypatch.setattr(Vanilla, "epoch", leaving)
    tell = Repeater._told
    monkeypatch.setattr(
        Repeater, "_told", lambda self, script, number: told.append(number) or tell(self, script, number)
    )
    shapes({"method": "vanilla"}, cluster="ethernet-1g", epochs=8)
    assert told and min(told) == 5
