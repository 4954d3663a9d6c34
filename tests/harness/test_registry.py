"""Registries: a common form for all named components, components of other packages, one notation of options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

from harness import datasets, registry
from harness.config import ModelConfig, RunConfig
from harness.datasets import GRAPH_SOURCES, GraphSource
from harness.errors import InputError
from harness.graphs import Graph, LocalGraph
from harness.methods import registry as method_registry
from harness.methods.registry import METHODS, parse_method
from harness.methods.vanilla import Vanilla
from harness.nn import GNN, MODELS, build_model
from harness.nn._layers import SAGEConv
from harness.partition import NodePartitioner, cutting
from harness.partition.edge import assign
from harness.partition.partitioners import PARTITIONERS
from harness.rank import Rank
from harness.registry import Optioned, Registry, Unbounded, parse_named, syntax, text_of
from harness.running import run
from harness.sampling import SAMPLERS, BoundaryDraw, BoundarySampler
from sims.cluster import TRANSPORTS, load_cluster, place
from sims.cluster._load import CLUSTERS
from sims.engine import simulate
from sims.study import variants
from sims.transport import LIBRARIES, Library
from tests.support.graphs import random_graph

ALL: list[Registry[Any]] = [METHODS, MODELS, PARTITIONERS, GRAPH_SOURCES, LIBRARIES, SAMPLERS]
GRAPH = random_graph(20, 60)


@dataclass(frozen=True, kw_only=True)
class Quiet(Vanilla):
    """A method of another package."""

    name = "quiet"
    loud: bool = False


@dataclass(frozen=True)
class Halves(NodePartitioner):
    """A partitioner of another package: the first `at` nodes, and all others."""

    name = "halves"
    at: int = 3

    def owners(self, graph: Graph, num_parts: int, seed: int) -> np.ndarray:
        return (np.arange(graph.num_nodes) >= self.at).astype(np.int32)


class Folklore(GraphSource):
    """A source of graphs of another package."""

    def load(self, dataset: str) -> Graph:
        return GRAPH

    def state(self, dataset: str) -> str:
        return f"as told: {dataset}"

    def listed(self) -> list[tuple[str, str, bool]]:
        return [("folk:tale", "a graph by word of mouth", True)]


class Everyone(BoundarySampler):
    """A stranger's boundary sampler: keeps all, whatever is asked for."""

    def draw(self, rank: Rank, available: np.ndarray, graph: LocalGraph, share: float) -> BoundaryDraw:
        return BoundaryDraw(graph, torch.arange(int(available.sum())), available)

    def scale(self, share: float, available: np.ndarray, kept: np.ndarray, device: torch.device) -> None:
        return None


class Pigeons(Library):
    """A stranger's communication library: as the plainest, but it moves device memory."""

    staged = False


def wide(config: ModelConfig, inputs: int, classes: int) -> nn.Module:
    """A model of another package."""
    return GNN([SAGEConv(inputs, classes)], [inputs, classes])


FOLKLORE, EVERYONE = Folklore(), Everyone()
STRANGERS = {
    "haloscope.methods": ("quiet", "Quiet"),
    "haloscope.models": ("wide", "wide"),
    "haloscope.partitioners": ("halves", "Halves"),
    "haloscope.datasets": ("folk", "FOLKLORE"),
    "haloscope.samplers": ("everyone", "EVERYONE"),
    "haloscope.transports": ("pigeons", "Pigeons"),
}
"""Group -> the name in it, and what of this module it means."""


@pytest.fixture
def strangers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Other packages have an entry point in every group, and one that cannot be loaded; yields the groups asked."""
    asked: list[str] = []
    own = registry.entry_points

    def entry_points(*, group: str) -> Iterable[EntryPoint]:
        if group not in STRANGERS:
            return own(group=group)
        asked.append(group)
        name, attribute = STRANGERS[group]
        broken = EntryPoint("broken", "no_such_module:thing", group)
        return [EntryPoint(name, f"{__name__}:{attribute}", group), broken]

    monkeypatch.setattr(registry, "entry_points", entry_points)
    yield asked


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: str(kind.kind))
def test_every_kind_has_a_registry_of_one_shape(kind: Registry[Any], strangers: list[str]) -> None:
    name, attribute = STRANGERS[kind.group]
    assert kind.names() == [*kind.builtin, name, "broken"]
    assert kind.find(name) is globals()[attribute] and name in kind, "and the broken one was not loaded"
    asked = len(strangers)
    for own in kind.builtin:
        assert kind.find(own) is kind.builtin[own] and own in kind
    assert len(strangers) == asked, "built-in names need no look at other packages"
    with pytest.raises(InputError, match=rf"^unknown {kind.kind} '{name}x'; did you mean '{name}'\?$"):
        kind.find(f"{name}x")
    with pytest.raises(ModuleNotFoundError):
        kind.known()


def test_a_strangers_sampler_trains(strangers: list[str]) -> None:
    settings = {"dataset": "synthetic:nodes=60,degree=4,classes=3,features=8", "epochs": 2, "eval_every": -1}
    kept, vanilla = (
        run(RunConfig.of(method=method, layer0="exchange", **settings)).epochs
        for method in ("bns-gcn:p=0.5:sampling=everyone", "vanilla")
    )
    assert [epoch["loss"] for epoch in kept] == [epoch["loss"] for epoch in vanilla]
    with pytest.raises(InputError, match="unknown boundary sampler 'bernouli'; did you mean 'bernoulli'"):
        parse_method("bns-gcn:sampling=bernouli")


def test_a_strangers_transport_carries_the_bytes_of_a_cluster_file(strangers: list[str], tmp_path: Path) -> None:
    file = tmp_path / "l4.toml"
    known = load_cluster("l4-4x8")
    file.write_text((CLUSTERS / "l4-4x8.toml").read_text().replace('"nccl"', '"pigeons"'))
    flown = load_cluster(file)
    assert flown.transport.kind == "pigeons" and not flown.transport.staged
    assert [v.label for v in variants(known, [], ["pigeons"])] == ["", "over pigeons"]

    async def program(rank: Rank) -> float:
        return float((await rank.all_reduce(torch.ones(1000), label="ones"))[0])

    simulation = simulate(program, place(flown, 8), deterministic=False)
    assert simulation.results == [8.0] * 8 and simulation.makespan_s > 0


def test_clusters_and_transports_agree_on_the_libraries() -> None:
    assert TRANSPORTS.group == LIBRARIES.group and list(TRANSPORTS.builtin) == list(LIBRARIES.builtin)
    for name, library in LIBRARIES.own().items():
        assert TRANSPORTS.find(name).staged == library.staged
        assert TRANSPORTS.find(name).software == library.software
        assert load_cluster(library.software).transport.kind == name


def test_groups_are_the_documented_ones() -> None:
    assert {kind.group for kind in ALL} == set(STRANGERS)
    assert all(kind.known() == kind.own() == kind.builtin for kind in ALL), "no other package is installed here"


def test_a_strangers_things_work_where_their_kind_is_named(strangers: list[str]) -> None:
    assert parse_method("quiet:loud=true", layer0="cache") == Quiet(loud=True, layer0="cache")
    assert assign(GRAPH, "halves:at=5", 2).tolist() == [0] * 5 + [1] * 15
    assert cutting("halves:at=5", "edge", {}).kind == "edge"
    with pytest.raises(InputError, match="unknown option of halves 'a'; did you mean 'at'"):
        assign(GRAPH, "halves:a=5", 2)
    assert datasets.load("folk:tale", split="random:0.5/0.2/0.3").num_nodes == GRAPH.num_nodes
    assert datasets.source_state("folk:tale") == "as told: folk:tale"
    assert build_model(ModelConfig(name="wide", layers=1), 4, 2, seed=0).widths == (4, 2)


@dataclass(frozen=True)
class Everything(Optioned):
    """One option of each type."""

    name = "everything"
    count: int = 1
    share: float = 0.5
    most: Unbounded = 1.0
    flag: bool = False
    word: str = "a"
    side: Literal["left", "right"] = "left"
    lambda_: float = 2.0

    def validate(self) -> None:
        if self.count < 0:
            raise InputError("everything: count must not be negative")

    def idle(self) -> dict[str, str]:
        return {} if self.flag else {"word": "flag=false"}


KIND: Registry[type[Everything]] = Registry("thing", "haloscope.things", {"everything": Everything})


def test_options_are_converted_by_the_type_of_their_field() -> None:
    text = "everything:count=2:share=1e-3:most=inf:flag=true:word=b:side=right:lambda=3"
    assert parse_named(KIND, text) == Everything(2, 1e-3, float("inf"), True, "b", "right", 3.0)
    assert parse_named(KIND, "everything", count=4, absent=1) == Everything(count=4), "others are left out"
    assert parse_named(KIND, "everything:count=5", count=4) == Everything(count=5), "what is written wins"
    assert parse_named(KIND, "everything:word=a") == Everything(), "a default may be said"


@pytest.mark.parametrize("made", [Everything(), Everything(2, 0.1, float("inf"), True, "x", "right", 1.0)])
def test_what_is_written_is_read_back(made: Everything) -> None:
    assert parse_named(KIND, text_of(made)) == made
    options = [word.partition("=")[0] for word in text_of(made).split(":")[1:]]
    assert options == sorted(options) and "lambda" in options
    assert len(syntax("everything", Everything).split(":")) == 1 + len(fields(Everything))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", r"unknown thing 'nothing'; did you mean 'everything'\?"),
        ("everything:cuont=1", r"unknown option of everything 'cuont'; did you mean 'count'\?"),
        ("everything:count", "thing 'everything:count': 'count' is not option=value"),
        ("everything:count=1:count=1", "thing 'everything:count=1:count=1': option count is given twice"),
        ("everything:count=1.5", "thing 'everything:count=1.5': count must be a whole number, not '1.5'"),
        ("everything:share=inf", "thing 'everything:share=inf': share must be a finite number, not 'inf'"),
        ("everything:most=nan", "thing 'everything:most=nan': most must be a number, not 'nan'"),
        ("everything:flag=maybe", "thing 'everything:flag=maybe': flag must be true or false, not 'maybe'"),
        ("everything:side=up", "thing 'everything:side=up': side must be one of left, right, not 'up'"),
        ("everything:lambda_=1", r"unknown option of everything 'lambda_'; did you mean 'lambda'\?"),
        ("everything:count=-1", "everything: count must not be negative"),
        ("everything:word=b", "thing 'everything:word=b': word changes nothing with flag=false"),
    ],
)
def test_a_wrong_text_is_one_line_that_names_the_option(text: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        parse_named(KIND, text)


def test_modules_of_methods_are_those_of_systems() -> None:
    """What several systems share is in `bases`, not between them."""
    folder = Path(method_registry.__file__).parent
    modules = {place.partition(":")[0] for place in method_registry._CLASSES.values()}
    assert {path.stem for path in folder.glob("*.py")} == modules | {"__init__", "registry"}
