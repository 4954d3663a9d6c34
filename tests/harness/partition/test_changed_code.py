"""A partitioner whose code was changed cuts again, and says so; nothing else makes a kept cut be made again."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.commands.shared.cells import finished, run_or_reuse
from harness.config import RunConfig
from harness.machine import used_code, used_modules
from harness.methods.registry import METHODS
from harness.partition import PARTITIONERS, partitioned
from harness.partition.vertex import vertex_partitioned
from harness.running import data_inputs, open_run, plan_of, prepare
from harness.sampling import SAMPLERS
from tests.support.graphs import random_graph

NODES = """
from dataclasses import dataclass

import numpy as np
from harness.partition.partitioners import EdgePartitioner, NodePartitioner, undirected_pairs

SHIFT = 0


@dataclass(frozen=True)
class Shifted(NodePartitioner):
    name = "shifted"

    def owners(self, graph, num_parts, seed):
        return ((np.arange(graph.num_nodes) + SHIFT) % num_parts).astype(np.int32)


@dataclass(frozen=True)
class ShiftedEdges(EdgePartitioner):
    name = "shifted-edges"

    def parts(self, graph, num_parts, seed, hosts):
        return ((undirected_pairs(graph)[0] + SHIFT) % num_parts).astype(np.int32)
"""
METHOD = """
from dataclasses import dataclass

from harness.methods.vanilla import Vanilla


@dataclass(frozen=True, kw_only=True)
class Edited(Vanilla):
    name = "edited"
"""
SAID = "the code of partitioner {} has changed since the graph was cut into 3 parts; it is cut again"
Edit = Callable[[str], None]


@pytest.fixture
def edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Edit:
    """Writes and loads the module of two partitioners."""
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(text: str) -> None:
        (tmp_path / "edited_partitioners.py").write_text(text)
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, "edited_partitioners", raising=False)
        made = importlib.import_module("edited_partitioners")
        monkeypatch.setitem(PARTITIONERS.builtin, "shifted", made.Shifted)
        monkeypatch.setitem(PARTITIONERS.builtin, "shifted-edges", made.ShiftedEdges)

    load(NODES)
    return load


@pytest.mark.parametrize("name", ["shifted", "shifted-edges"])
def test_an_edited_partitioner_cuts_again(edit: Edit, name: str, caplog: pytest.LogCaptureFixture) -> None:
    graph, make = random_graph(30, 60, seed=1), vertex_partitioned if name.endswith("edges") else partitioned
    caplog.set_level(logging.WARNING, "haloscope")
    first = make(graph, name, 3)
    edit("# A comment\n" + NODES)
    assert make(graph, name, 3).path == first.path and not caplog.messages
    edit(NODES.replace("SHIFT = 0", "SHIFT = 1"))
    second = make(graph, name, 3)
    assert second.path != first.path and not np.array_equal(second.owner, first.owner)
    assert [line.partition(": ")[2] for line in caplog.messages] == [SAID.format(name)]
    assert make(graph, name, 3).path == second.path and len(caplog.messages) == 1, "said once"
    edit(NODES)
    assert make(graph, name, 3).path == first.path, "cuts of the code of before are still there"


def test_a_run_uses_the_new_cut_and_is_made_again(edit: Edit, tmp_path: Path) -> None:
    config = RunConfig.of(dataset="synthetic:nodes=60,degree=4,classes=3,features=4", partitioner="shifted", parts=2,
                          epochs=1, eval_every=-1)  # fmt: skip
    first, before = run_or_reuse(open_run(config), tmp_path / "out", quiet=True), prepare(config).train
    assert run_or_reuse(open_run(config), tmp_path / "out", quiet=True).reused
    edit(NODES.replace("SHIFT = 0", "SHIFT = 1"))
    assert finished(first.path, lambda: open_run(config), reuse="any") is not None, "any code's result"
    assert not np.array_equal(prepare(config).train.owner, before.owner)  # type: ignore[attr-defined]
    assert not run_or_reuse(open_run(config), tmp_path / "out", quiet=True).reused
    assert run_or_reuse(open_run(config), tmp_path / "out", quiet=True).reused


def test_a_built_in_one_counts_with_its_folder_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("metis-cut", "kaminpar", "ebv"):
        chosen = PARTITIONERS.find(name)()
        with monkeypatch.context() as patch:
            patch.setattr("harness.machine._code._place", lambda top: None)
            nothing = used_code(within="harness.partition.partitioners")
            assert chosen.code() == nothing, "without files there is nothing"
        assert chosen.code() != nothing
    metis = used_modules(PARTITIONERS.find("metis-cut")(), within="harness.partition.partitioners")
    assert metis.keys() == {f"harness.partition.partitioners.{name}" for name in ("_metis", "_partitioner")}


def test_an_edited_sampler_of_another_package_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "edited_sampler.py"
    path.write_text("from harness.sampling._boundary import Fixed\n\nclass Own(Fixed):\n    SHARE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "edited_sampler", raising=False)
    monkeypatch.setitem(SAMPLERS.builtin, "own", importlib.import_module("edited_sampler").Own())
    plans = [plan_of(RunConfig.of(method=f"bns-gcn:sampling={name}")) for name in ("own", "fixed")]
    before = [data_inputs(plan) for plan in plans]
    path.write_text(path.read_text().replace("SHARE = 1", "SHARE = 2"))
    importlib.reload(sys.modules["edited_sampler"])
    assert [data_inputs(plan) == known for plan, known in zip(plans, before, strict=True)] == [False, True]


def test_an_edited_method_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "edited_method.py"
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def edit(text: str) -> None:
        path.write_text(text)
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, "edited_method", raising=False)
        monkeypatch.setitem(METHODS.builtin, "edited", importlib.import_module("edited_method").Edited)

    for mode in ("loopback", "sim"):
        config = RunConfig.of(dataset="synthetic:nodes=60,degree=4,classes=3,features=4", method="edited", parts=2,
                              epochs=1, eval_every=-1, mode=mode, cluster="ethernet-1g")  # fmt: skip
        edit(METHOD)
        out = tmp_path / mode
        first = run_or_reuse(open_run(config), out, quiet=True)
        edit(METHOD + "\n# A comment\n")
        assert run_or_reuse(open_run(config), out, quiet=True).reused
        edit(METHOD + "    bf16 = False\n")
        assert finished(first.path, lambda config=config: open_run(config), reuse="any") is not None  # type: ignore[misc]
        assert not run_or_reuse(open_run(config), out, quiet=True).reused
