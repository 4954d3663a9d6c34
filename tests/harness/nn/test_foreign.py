"""Convolutions of PyG as layers: alike on one device and in parts, and priced on a modelled cluster."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from harness import cli
from harness.config import RunConfig
from harness.running import run

MODULE = """
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch_geometric.nn import GATv2Conv, GCNConv, GINConv, SAGEConv
from torch.nn import Linear

from harness.nn import GNN, BipartiteConv


def stack(make, config, inputs, classes):
    widths = [inputs, config.hidden, classes]
    layers = [BipartiteConv(make(*pair)) for pair in zip(widths, widths[1:])]
    return GNN(layers, widths, dropout=config.dropout)


def sage(*given):
    return stack(SAGEConv, *given)


def attention(*given):
    return stack(GATv2Conv, *given)


def gin(*given):
    return stack(lambda a, b: GINConv(Linear(a, b)), *given)


def gcn(*given):
    return stack(GCNConv, *given)
"""
GRAPH = "synthetic:nodes=200,degree=6,classes=3,features=8"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models_of_pyg.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # PyG writes the code of its layers there
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "models_of_pyg", raising=False)


@pytest.mark.parametrize("name", ["sage", "attention", "gin"])
def test_parts_train_as_the_whole_and_have_a_price(module: None, name: str) -> None:
    base = RunConfig.of(
        dataset=GRAPH, model=f"models_of_pyg:{name}", hidden=8, epochs=3, partitioner="hash", eval_every=-1, threads=1,
        cluster="ethernet-1g", parts=3, dropout=0.3,
    )  # fmt: skip
    whole = run(base.changed(method="single", parts=1))
    parts, modelled = run(base), run(base.changed(mode="sim"))
    losses = [epoch["loss"] for epoch in parts.epochs]
    assert losses == pytest.approx([epoch["loss"] for epoch in whole.epochs], rel=1e-5)
    assert losses == [epoch["loss"] for epoch in modelled.epochs]
    seconds = modelled.summary()["seconds"]
    assert seconds["compute"] > 0 and seconds["halo"] > 0
    assert modelled.facts["compute_sources"]["measured"] > 0.5, "its operators are known by class"


def test_a_convolution_that_needs_the_whole_graph_is_refused(
    module: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--dataset", GRAPH, "--model", "models_of_pyg:gcn", "--parts", "2", "--out", str(tmp_path / "runs")]
    assert cli.main(["run", *words, "--epochs", "1", "--quiet"]) == 2
    err = capsys.readouterr().err
    assert "GCNConv takes no sources and targets apart" in err and err.count("\n") == 1
