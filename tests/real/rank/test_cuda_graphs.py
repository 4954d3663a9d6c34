"""Epochs recorded as CUDA graphs, on ranks that share a GPU: the same losses and bytes as without."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from harness.config import RunConfig
from harness.errors import REPEATED, Diverged, InputError
from harness.kernels.finite_rows_cuda import NONE
from harness.methods.registry import parse_method
from harness.rank import Rank
from harness.running import open_run, run
from harness.running.results import Result
from real.rank.cuda_graphs import CudaGraphs
from tests.conformance.test_drivers import config
from tests.support.real_rows import run_in_turn
from tests.support.settings import rows

STATIC = [row for row in rows() if parse_method(row["method"]).promises().static]
BACKENDS = ("gloo", "nccl")


def _by_parts() -> dict[int, list[RunConfig]]:
    found: dict[int, list[RunConfig]] = {}
    for row in STATIC:
        setting = config(**{**row, "epochs": 8, "eval_every": 3})
        found.setdefault(setting.cut.parts, []).append(setting)
    return found


@pytest.mark.processes
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_replayed_epochs_are_those_that_run(tmp_path: Path) -> None:
    for backend in BACKENDS:
        for parts, settings in _by_parts().items():
            on_gpus = [s.changed(mode="real", device="cuda", backend=backend) for s in settings]
            both = [s.changed(cuda_graphs=graphs) for s in on_gpus for graphs in (False, True)]
            folder = tmp_path / f"{backend}-{parts}"
            folder.mkdir()
            results = run_in_turn(both, folder)
            for setting, plain, graphs in zip(settings, results[::2], results[1::2], strict=True):
                _compare(f"{backend}: {setting.training.method} {setting.model.name}", plain, graphs)


def _compare(where: str, plain: Result, graphs: Result) -> None:
    for ours, theirs in zip(graphs.epochs, plain.epochs, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-6), where  # sums of atomics are not bit-equal
        assert ours["bytes"] == theirs["bytes"] and ours["observed"] == theirs["observed"], where
        parts = [v for k, v in ours["seconds"].items() if k not in ("epoch", "hidden")]
        assert sum(parts) == pytest.approx(ours["seconds"]["epoch"], rel=1e-6)
        assert min(parts) >= 0 and ours["seconds"]["compute"] > 0


def test_methods_whose_epochs_differ_are_refused() -> None:
    settings = {"mode": "real", "device": "cuda", "cuda_graphs": True}
    with pytest.raises(InputError, match="cuda-graphs.*bns-gcn"):
        open_run(RunConfig.of(method="bns-gcn:p=0.1", **settings))
    for dtype in ("fp16", "bf16"):
        with pytest.raises(InputError, match=f"cuda-graphs.*{dtype}"):
            open_run(RunConfig.of(method=f"vanilla:dtype={dtype}", **settings))
    open_run(RunConfig.of(method="vanilla", **settings))


@pytest.mark.parametrize(
    ("others", "why"), [({}, "needs --mode real"), ({"mode": "sim"}, "is no GPU"), ({"mode": "real"}, "--device cuda")]
)
def test_graphs_are_of_gpus(others: dict[str, str], why: str) -> None:
    with pytest.raises(InputError, match=f"cuda-graphs.* {why}"):
        run(config("vanilla", **{**others, "cuda_graphs": True}))


def test_rows_that_are_not_finite_are_divergence() -> None:
    """Kernels of graphs write such a row down; the run has diverged then, and is not started again."""
    graphs = object.__new__(CudaGraphs)  # without a GPU
    graphs.rank, graphs._bad = Rank(1, 2), torch.full((1,), NONE)
    graphs.rank.epoch = 7
    graphs.ended()
    graphs._bad.fill_(3)
    with pytest.raises(Diverged, match=r"^rank 1, epoch 7: .*row 3 .*nan or inf"):
        graphs.ended()
    assert Diverged.__name__ in REPEATED
    graphs.ended()  # only once


def test_some_rows_are_static() -> None:
    names = {row["method"].partition(":")[0] for row in STATIC}
    assert {"single", "vanilla", "sylvie-s", "sar", "cagnet"} <= names
