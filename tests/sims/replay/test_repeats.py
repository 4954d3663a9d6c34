"""Replayed epochs equal computed ones bit for bit; a method that wrongly declares repetition is detected."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.effects import Rows
from harness.errors import ProgramError
from harness.methods.bases.base import Method
from harness.methods.registry import METHODS, parse_method
from harness.methods.vanilla import Vanilla
from harness.rank import Rank
from harness.running import run
from harness.running.results import Result
from sims.cluster import load_cluster, place
from sims.engine import Simulation, simulate
from sims.replay import Recorder, Repeats
from sims.replay._replay import needed
from sims.study import _execute
from tests.conformance.test_drivers import config
from tests.sims.engine.test_scale import recorded
from tests.support.background import halved
from tests.support.observers import Spans
from tests.support.settings import label, rows
from tests.support.simulated import each

EPOCHS = 6
REPEATING = [row for row in rows() if parse_method(row["method"]).epoch_kind(1) is not None]


def promise(monkeypatch: pytest.MonkeyPatch, method: str, kind: int | None) -> None:
    """Set the kind that a method declares all its epochs to be of."""
    monkeypatch.setattr(METHODS.find(method.split(":")[0]), "epoch_kind", lambda self, epoch: kind)


class Kept:
    """Keeps every `Repeats` that runs make."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Repeats] = []
        monkeypatch.setattr(_execute, "Repeats", self)

    def __call__(self, method: Method, *, copying: bool) -> Repeats:
        self.made.append(Repeats(method, copying=copying))
        return self.made[-1]

    @property
    def played(self) -> list[list[int]]:
        """Epochs that were replayed in the last run, by rank; empty if none repeats."""
        return self.made[-1].played if self.made else []


KEEPING = ("cagnet", "roc", "ec-graph", "ec-graph-s")
"""Methods that keep something of their first epoch."""


def second_alike(row: dict[str, Any]) -> int:
    """The second epoch that begins and acts as one before it: of most methods epoch 1."""
    if row["method"].split(":")[0] in KEEPING:
        return 2
    # factors of the degrees that set-up had no use for: in bfloat16, or of halo rows in the backward pass
    late = row.get("precision") == "bf16" or row == {"method": "vanilla:style=pull"}
    return 2 if late else 1


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    return Kept(monkeypatch)


def shapes(row: dict[str, Any], **values: Any) -> Result:
    return run(config(**{"mode": "sim", "shapes_only": True, "epochs": EPOCHS, "eval_every": -1, **row, **values}))


def rates_of(row: dict[str, Any], folder: Path) -> str:
    """The file of a recorded run, for a method that needs its ratios; else nothing."""
    if "sampling" in row["method"]:
        return str(recorded(folder, [{"kept nodes": 0.4}] * 2, row["method"]))
    if row["method"].startswith(("aligraph-fg", "adaqp", "ec-graph")) and "fp=compressed" not in row["method"]:
        return str(run(config(**row, epochs=4, eval_every=-1)).save(folder))
    return ""


@pytest.mark.parametrize("row", REPEATING, ids=label)
def test_every_method_that_says_so_repeats(
    row: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Kept
) -> None:
    cluster, rates = "sylvie-2x8:stragglers.jitter=0.2", rates_of(row, tmp_path)
    cycle = parse_method(row["method"]).cycle()
    epochs = EPOCHS if cycle == 1 else 2 * cycle + 3
    found = shapes(row, cluster=cluster, rates=rates, epochs=epochs)
    if cycle == 1:
        first = second_alike(row)
        others = [[*range(first, EPOCHS)]] * (len(kept.played) - 1)
        assert kept.played == [[*range(first + 1, EPOCHS)], *others], "the first rank checks"
    else:
        assert all(0 < len(kept.played[0]) < len(played) for played in kept.played[1:]), "the first rank checks"
    kept.made.clear()
    promise(monkeypatch, row["method"], None)
    computed = shapes(row, cluster=cluster, rates=rates, epochs=epochs)
    assert not kept.made, "all epochs are computed"
    assert found.epochs == computed.epochs
    assert found.facts == computed.facts and found.state == computed.state


class Everything:
    """An epoch with every kind of effect, exchanges hidden by compute, and one off the clock."""

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
        if rank.index > 0:
            y = await rank.all_reduce(y, label="two of three", group=(1, 2))
        with rank.off_the_clock():
            await rank.all_reduce(y.exp(), label="off")
        torch.linalg.qr(torch.outer(y, y))  # in no table of operators
        await rank.wait(late)
        return (await rank.all_reduce(y.exp(), label="g", direction="reduce")).sum()


def everything(cluster: str, repeats: Repeats | None) -> tuple[Simulation, list[Any]]:
    """Six epochs of it on three ranks, and the spans."""
    method = Everything()

    async def program(rank: Rank) -> list[Any]:
        epochs = []
        for rank.epoch in range(EPOCHS):
            rank.traffic.take()
            rank.clock.begin_epoch()
            compute = partial(method.epoch, rank)
            loss = await (compute() if repeats is None else repeats.epoch(rank, compute))
            seconds = rank.clock.end_epoch()
            sent, peak = rank.traffic.take().to.tolist(), rank.clock.peak_memory()
            epochs.append((loss.shape, seconds, sent, peak, rank.take_observed()))
        return epochs

    spans = Spans()
    observers = [spans] if repeats is None else [spans, repeats]
    simulation = simulate(program, place(load_cluster(cluster), 3), shapes_only=True, observers=observers)
    return simulation, spans.found


@pytest.mark.parametrize("cluster", ["sylvie-2x8", "cdfgnn-2x8a800:stragglers.jitter=0.1", "ec-graph"])
def test_every_effect(cluster: str) -> None:
    """All results of a simulation: seconds, spans, bytes, memory, prices."""
    repeats = Repeats(Vanilla())
    found, computed = everything(cluster, repeats), everything(cluster, None)
    assert found == computed
    assert repeats.played == [[3, 4, 5], [2, 3, 4, 5], [2, 3, 4, 5]], "the loss that the program keeps is memory"
    assert computed[0].unknown_ops == {"linalg_qr": 3 * EPOCHS}


@dataclass(frozen=True, kw_only=True)
class Growing(Vanilla):
    """Declares that its epochs repeat, but computes more in each."""

    name = "growing"

    async def epoch(self, rank: Rank, *given: Any) -> torch.Tensor:
        for _ in range(rank.epoch):
            torch.empty(5, device=rank.device).exp()
        return await Vanilla.epoch(self, rank, *given)


@dataclass(frozen=True, kw_only=True)
class Widening(Vanilla):
    """Declares that its epochs repeat, but copies more in each, with equal compute."""

    name = "widening"

    async def epoch(self, rank: Rank, *given: Any) -> torch.Tensor:
        await rank.host_copy(torch.empty(5 + rank.epoch, device=rank.device), to_host=True, label="wider")
        return await Vanilla.epoch(self, rank, *given)


@dataclass(frozen=True, kw_only=True)
class Drifting(Vanilla):
    """Declares that its epochs repeat, but observes another value in each."""

    name = "drifting"

    async def epoch(self, rank: Rank, *given: Any) -> torch.Tensor:
        rank.observe("rows", rank.epoch)
        return await Vanilla.epoch(self, rank, *given)


@pytest.mark.parametrize("method", [Growing, Widening, Drifting])
def test_a_method_that_breaks_its_promise_is_named(method: type[Vanilla], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS.builtin, method.name, method)
    with pytest.raises(ProgramError, match="rank 0: epoch 1 does not repeat an earlier one"):
        shapes({"method": method.name}, cluster="ethernet-1g")


@dataclass(frozen=True, kw_only=True)
class Beside(Vanilla):
    """Has an exchange in the background within its epoch."""

    name = "beside"

    async def epoch(self, rank: Rank, *given: Any) -> torch.Tensor:
        ones = np.ones(rank.size, np.int64)
        rows = torch.ones(rank.size, 2, device=rank.device)
        await rank.wait(await halved(rank, rows, ones, ones, label="h"))
        return await Vanilla.epoch(self, rank, *given)


def test_background_exchanges_do_not_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS.builtin, Beside.name, Beside)
    with pytest.raises(ProgramError, match="Background 'h' .* runs beside its epoch") as caught:
        shapes({"method": "beside"}, cluster="ethernet-1g")
    assert any("rank" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    ("where", "why"), [("inline", "was started in another epoch"), ("background", "runs beside its epoch")]
)
def test_an_exchange_that_spans_epochs_does_not_repeat(where: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    promise(monkeypatch, "sylvie-a", 0)
    with pytest.raises(ProgramError, match=why) as caught:
        shapes({"method": f"sylvie-a:quantiser={where}"}, cluster="ethernet-1g")
    assert any("rank" in note for note in caught.value.__notes__)


LEFT: list[torch.Tensor] = []
"""Tensors that `Leaving` keeps."""


@dataclass(frozen=True, kw_only=True)
class Leaving(Vanilla):
    """Keeps more memory from epoch to epoch, up to the fourth."""

    name = "leaving"

    async def epoch(self, rank: Rank, *given: Any) -> torch.Tensor:
        if rank.epoch < 4:
            LEFT.append(torch.empty(7, device=rank.device).exp())
        return await Vanilla.epoch(self, rank, *given)


def test_epochs_are_computed_until_they_begin_alike(monkeypatch: pytest.MonkeyPatch, kept: Kept) -> None:
    """A tensor that an epoch keeps is more memory at the beginning of the next."""
    monkeypatch.setitem(METHODS.builtin, Leaving.name, Leaving)
    try:
        shapes({"method": Leaving.name}, cluster="ethernet-1g", epochs=8)
    finally:
        LEFT.clear()
    assert min(min(epochs) for epochs in kept.played if epochs) == 5
    assert all(min(epochs) >= 5 for epochs in kept.made[-1].copies)


def test_a_recording_of_played_epochs_is_that_of_computed_ones() -> None:
    """Other observers are notified of replayed epochs as of computed ones."""
    recordings = []
    for repeats in (None, Repeats(Vanilla())):
        recorder = Recorder(3)
        method = Everything()

        async def program(rank: Rank, repeats: Repeats | None = repeats, method: Everything = method) -> None:
            for rank.epoch in range(EPOCHS):
                rank.take_observed()
                rank.clock.begin_epoch()
                compute = partial(method.epoch, rank)
                await (compute() if repeats is None else repeats.epoch(rank, compute))
                rank.clock.end_epoch()

        observers = [recorder] if repeats is None else [recorder, repeats]
        simulation = simulate(program, place(load_cluster("ec-graph"), 3), shapes_only=True, observers=observers)
        recordings.append(recorder.recording({}, {}, {}, needed(simulation)))
    assert recordings[0] == recordings[1]
