"""Sums beside an exchange: the same bits as after it, and really while rows travel."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from harness.errors import InputError
from harness.methods.registry import parse_method
from harness.nn import Aggregation
from harness.running import run
from harness.running.results import Result
from tests.conformance.test_drivers import config

CASES: list[tuple[str, dict[str, Any]]] = [
    ("vanilla", {}),
    ("vanilla", {"order": "linear-first"}),
    ("vanilla", {"layer0": "exchange", "model": "gcn", "order": "linear-first"}),
    ("vanilla", {"model": "gcn-no-loop", "layer0": "exchange"}),
    ("vanilla:style=pull", {"model": "gcn"}),
    ("vanilla:style=pull", {"layer0": "exchange"}),
    ("vanilla:dtype=bf16", {"norm": "l2"}),
    ("bns-gcn:p=0.5", {"order": "auto"}),
    ("bns-gcn:p=0.3:sampling=dropedge", {}),
    ("sylvie-s:bits=2", {"layer0": "exchange"}),
    ("vanilla", {"model": "gat", "hidden": 4}),
]


def told(result: Result) -> list[tuple[Any, ...]]:
    kept = ("forward", "backward", "reduce", "other")
    return [(e["loss"], e["test"], *(e["bytes"][name] for name in kept)) for e in result.epochs]


@pytest.mark.parametrize(("method", "values"), CASES, ids=[f"{m}-{v}" for m, v in CASES])
def test_losses_and_bytes_are_those_without_overlap(method: str, values: dict[str, Any]) -> None:
    plain, beside = (run(config(text, epochs=4, **values)) for text in (method, f"{method}:overlap=true"))
    assert told(plain) == told(beside)


def test_modelled_epochs_hide_what_travels_beside_sums() -> None:
    values: dict[str, Any] = {
        "dataset": "synthetic:nodes=4000,degree=30,classes=4,features=16,seed=1", "hidden": 128, "mode": "sim",
        "cluster": "ethernet-10g", "epochs": 2,
    }  # fmt: skip
    seconds = [run(config(m, **values)).summary()["seconds"] for m in ("vanilla", "vanilla:overlap=true")]
    assert seconds[0]["hidden"] == 0 and seconds[1]["hidden"] > 0
    assert seconds[1]["halo"] < seconds[0]["halo"] and seconds[1]["epoch"] < seconds[0]["epoch"]


@pytest.mark.parametrize("step", ["begin", "own_gradient"])
def test_own_rows_are_summed_between_start_and_wait(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every exchange of an epoch, in both directions, by the order of what ranks of a loopback do."""
    from harness.rank import Rank

    seen: list[str] = []
    plain = getattr(Aggregation, step)

    def noted(self: Aggregation, *args: Any, **named: Any) -> Tensor:
        seen.append("sum")
        found: Tensor = plain(self, *args, **named)
        return found

    def noting(name: str) -> None:
        method = getattr(Rank, name)
        monkeypatch.setattr(Rank, name, lambda self, *args: seen.append(name) or method(self, *args))

    noting("start")
    noting("wait")
    monkeypatch.setattr(Aggregation, step, noted)
    run(config("vanilla:overlap=true", parts=1, epochs=1, eval_every=-1, layer0="cache"))
    at = [number for number, name in enumerate(seen) if name == "sum" and "start" in seen[:number]]
    assert at and all(seen[number - 1] == "start" and seen[number + 1] == "wait" for number in at)


def test_gradients_of_halo_and_own_rows_are_autograds() -> None:
    from harness.graphs import Block, LocalGraph

    source = torch.Generator().manual_seed(0)
    flags = torch.rand(9, 13, generator=source) < 0.4
    blocks = []
    for part in (flags[:, :9], flags[:, 9:]):
        indptr = torch.nn.functional.pad(part.sum(1).cumsum(0), (1, 0)).to(torch.int32)
        blocks.append(Block.from_csr(indptr.numpy(), part.nonzero()[:, 1].to(torch.int32).numpy(), part.shape[1]))
    graph = LocalGraph(*blocks, torch.arange(9) + 1, torch.arange(4) + 2)
    for kind in ("gcn", "symmetric", "mean"):
        aggregation = Aggregation(kind)  # type: ignore[arg-type]
        own, halo = (torch.randn(n, 5, generator=source, dtype=torch.float64, requires_grad=True) for n in (9, 4))
        z = aggregation.forward(graph, own, halo)
        g = torch.randn(9, 5, generator=source, dtype=torch.float64)
        wanted = torch.autograd.grad(z, (own, halo), g)
        scaled, g_halo = aggregation.halo_gradient(graph, g)
        assert torch.equal(g_halo, wanted[1]) and torch.equal(aggregation.own_gradient(graph, scaled), wanted[0])


@pytest.mark.parametrize("text", ["sylvie-s:scope=all:overlap=true", "sylvie-s:dropout=after:overlap=true"])
def test_overlap_that_changes_nothing_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="overlap changes nothing"):
        parse_method(text)
