"""What cannot be advised: one line that says what to do, exit code 2, nothing trained."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from harness import cli

MODULE = """
from torch import nn

from harness.nn import GNN, SAGEConv


class Careless(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        self.map = nn.Linear(inputs + 1, classes)

    def forward(self, graph, own, halo):
        return self.map(own)


class Empty(nn.Module):
    def forward(self, graph, own, halo):
        return own


def careless(config, inputs, classes):
    return GNN([Careless(inputs, classes)], [inputs, classes])


def empty(config, inputs, classes):
    return GNN([Empty()], [inputs, classes])


def unbuilt(config, inputs, classes):
    return GNN([SAGEConv(inputs, config.nothing)], [inputs, classes])
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Graphs that lack something, and models that do not run."""
    (tmp_path / "careless_models.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "careless_models", raising=False)
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    edges, x, y = rng.integers(0, 60, (2, 400)), rng.random((60, 4)), rng.integers(0, 3, 60)
    np.savez("unlabelled.npz", edge_index=edges, x=x)
    np.savez("bare.npz", edge_index=edges, y=y)
    np.savez("unsplit.npz", edge_index=edges, x=x, y=y, train_idx=np.arange(60))
    np.savez("nothing_known.npz", edge_index=edges, x=x, y=np.full(60, -1))
    np.savez("whole.npz", edge_index=edges, x=x, y=y)
    return tmp_path


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--dataset unlabelled.npz", "has no labels, so nothing can be trained on it; add y"),
        ("--dataset bare.npz", "has no features, so nothing can be trained on it; add x"),
        ("--dataset unsplit.npz", "has no validation nodes, by which methods are compared; give --split"),
        ("--dataset nothing_known.npz", "nothing_known: no node has a label"),
        ("--dataset whole.npz --cluster local:hosts.ranks_per_host=1", "one device, so there is nothing to distribute"),
        ("--dataset whole.npz --cluster hosts=4,device=cpu-epyc-1core", "without links between them; add nic="),
        ("--dataset whole.npz --parts 2,9", "--parts 9: from 2 to 8"),
        ("--dataset whole.npz --parts two", "numbers of devices with commas"),
        ("--dataset whole.npz --budget soon", "soon"),
        ("--dataset whole.npz --price -1", "--price: must be"),
        ("--dataset whole.npz --model careless_models:careless --layers 1", "cannot be priced: RuntimeError"),
        ("--dataset whole.npz --model careless_models:empty", "has no parameters"),
        ("--dataset whole.npz --model careless_models:unbuilt", "cannot be built: AttributeError"),
        ("--dataset whole.npz --model careless_models:missing", "has no function 'missing'"),
    ],
)
def test_one_line_and_code_2(flags: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["advise", "--cluster", "ethernet-1g", *flags.split(), "--jobs", "1", "--quiet", "--partitioner", "hash"]
    assert cli.main(words) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1
