"""From a config to partitioned data on disk: load the graph, split it, partition it, and remember where that lies.

A small index in the cache maps the data settings of a config to the partition's folder, so that a rank of a real run
reads its own part and never loads the whole graph.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from harness import datasets
from harness.config import CutConfig, RunConfig
from harness.errors import InputError
from harness.graphs import Graph, RankGrid, Totals, replicated
from harness.machine import cache_root, kept_json, write_atomically
from harness.methods.bases.base import Method
from harness.methods.registry import parse_method
from harness.nn import GNN
from harness.partition import PARTITIONERS, Cutting, Folder, cutting, parse_partitioner
from harness.partition.edge import Renumber, partition_version
from harness.steps import begin_step
from harness.workloads import is_workload, load_workload

DATA_KEYS = ("dataset", "split", "protocol", "features", "parts", "renumber", "seed", "hosts")
INDEX_FORMAT = 4


@dataclass(frozen=True, eq=False)
class Prepared:
    """Partitioned data of one config. A `PartSource`: each rank asks for its own part.

    Attributes:
        graph: name, fingerprint, counts, notes.
        replicas: ranks that hold the same part.
    """

    train: Folder
    evaluate: Folder
    graph: dict[str, Any]
    totals: Totals
    replicas: int = 1

    def training(self, rank: int) -> Any:
        """The part that `rank` trains on; its type is the kind of cut's."""
        return self._held(self.train, rank)

    def evaluation(self, rank: int) -> Any:
        """The part that `rank` evaluates on; of the whole graph, also where training sees a subgraph."""
        return self._held(self.evaluate, rank)

    def largest_tensor(self, model: GNN) -> int:
        """Bytes of the largest tensor of rows of a rank, in float32: of own rows, halo rows or rows sent."""
        return 4 * model.widest * max(folder.quality.largest_rows for folder in (self.train, self.evaluate))

    def _held(self, folder: Folder, rank: int) -> Any:
        part = folder.part(rank // self.replicas)
        if self.replicas == 1:
            return part
        return replicated(part, RankGrid(folder.num_parts * self.replicas, self.replicas), rank)

    def made_of(self) -> list[str]:
        """The hash of the graph, and that of the code that cut it where a partitioner did: for keys of what is kept."""
        return [self.graph["fingerprint"], str(self.train.settings.get("code", ""))]

    def describe(self) -> dict[str, Any]:
        """Graph and partition as the result file records them."""
        return {**self.graph, "partition": {**self.train.settings, **self.train.quality.summary()}}


def prepare(config: RunConfig, cut: Cutting | None = None, ranks: Sequence[int] | None = None) -> Prepared:
    """Partitioned data for a config, from the cache or made now.

    Args:
        cut: how the config cuts, where that is known already.
        ranks: those whose parts must be there, by default all.

    Raises:
        InputError: unknown dataset or partitioner, a damaged file, a missing split, more parts than nodes.
    """
    if cut is None:
        training = config.training
        cut = cutting_of(config.cut, parse_method(training.method, layer0=training.layer0))
    if is_workload(config.data.dataset):
        num_parts = cut.num_parts(config.cut.parts)
        workload = load_workload(config.data.dataset, num_parts, cut=cut.kind, seed=config.training.seed)
        return Prepared(workload, workload, workload.graph, workload.totals, cut.replicas)
    datasets.download(config.data.dataset)  # before the index is looked for, whose key tells the files
    index = cache_root() / "prepared" / f"{_index_key(config, cut)}.json"
    known = _from_index(index, cut, ranks)
    if known is not None:
        return known
    graph = _loaded(config)
    datasets.require_trainable(graph)
    trained = datasets.training_graph(graph)[0] if config.data.protocol == "inductive" else graph
    settings = (config.cut.parts, config.training.seed, _renumber(config), config.cut.hosts)
    train = cut.parts(trained, *settings)
    evaluate = train if trained is graph and cut.exact() == cut else cut.exact().parts(graph, *settings)
    described = _describe(graph)
    totals = train.part(0).totals
    record = _Record(str(train.path), str(evaluate.path), described, totals)
    index.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(index, msgspec.json.format(msgspec.json.encode(record), indent=1), durable=False)
    return Prepared(train, evaluate, described, totals, cut.replicas)


def comparable_partitioners(config: RunConfig, partitioners: Sequence[str] = ()) -> list[str]:
    """The partitioners that can be compared on a config: these, or all that cut what its method does.

    Raises:
        InputError: an unknown partitioner, one that cuts edges where the method cuts vertices, or the other way round,
            or a workload, which has no edges.
    """
    training, data = config.training, config.data
    cut = cutting_of(config.cut, parse_method(training.method, layer0=training.layer0))
    if is_workload(data.dataset):
        raise InputError(f"{data.dataset} is counts without edges; name a graph to compare partitioners on")
    cuts = "vertex" if cut.kind == "vertex" else "edge"
    for name in partitioners:
        if parse_partitioner(name).cuts != cuts:
            raise InputError(f"partitioner {name} does not cut what {training.method} does ({cuts} cut); leave it out")
    return list(partitioners) or [name for name, kind in PARTITIONERS.known().items() if kind.cuts == cuts]


def cuts_by(config: RunConfig, partitioners: Sequence[str]) -> Iterator[Folder]:
    """The config's graph as each of several partitioners cuts it, from the cache or made now; possibly without parts.

    An empty sequence means all that cut what the config's method does, edges or vertices. For an inductive protocol it
    is the graph that is trained on; of overlapping parts the edge cut below them.

    Raises:
        InputError: as `prepare` and `comparable_partitioners`.
    """
    names, training = comparable_partitioners(config, partitioners), config.training
    cut = cutting_of(config.cut, parse_method(training.method, layer0=training.layer0))
    graph = _loaded(config)
    trained = datasets.training_graph(graph)[0] if config.data.protocol == "inductive" else graph
    for name in names:
        cut.compile(name)
        yield cut.assigned(trained, name, config.cut.parts, training.seed, _renumber(config), config.cut.hosts)


def _loaded(config: RunConfig) -> Graph:
    data = config.data
    if size := datasets.size_of(data.dataset):
        begin_step(f"loading {data.dataset}: {size[0]:,} nodes, {size[1]:,} directed edges", size[1])
    return datasets.load(data.dataset, split=data.split, seed=config.training.seed, features=data.features)


def _renumber(config: RunConfig) -> Renumber:
    return "auto" if config.cut.renumber == "auto" else int(config.cut.renumber)


class _Record(msgspec.Struct):
    """The content of an index file."""

    train: str  # folders of the parts
    evaluate: str
    graph: dict[str, Any]
    totals: Totals


def cutting_of(config: CutConfig, method: Method) -> Cutting:
    """How a partitioner cuts the graph for a method. Raises InputError if the ranks do not fit its replicas."""
    name = method.default_partitioner if config.partitioner == "auto" else config.partitioner
    cut = replace(cutting(name, method.facts.cut, method.part_settings()), replicas=method.replicas())
    cut.num_parts(config.parts)
    return cut


def _from_index(index: Path, cut: Cutting, ranks: Sequence[int] | None) -> Prepared | None:
    record = kept_json(index, _Record)
    if record is None:
        return None
    parts = None if ranks is None else sorted({rank // cut.replicas for rank in ranks})
    train = cut.open(Path(record.train), parts)
    same = record.evaluate == record.train
    evaluate = train if same else cut.exact().open(Path(record.evaluate), parts)
    if train is None or evaluate is None or not (_is_of_this_code(train) and _is_of_this_code(evaluate)):
        return None
    return Prepared(train, evaluate, record.graph, record.totals, cut.replicas)


def _is_of_this_code(folder: Folder) -> bool:
    """Whether the partitioner that made a cut has the code that it had then."""
    return bool(folder.settings.get("code") == parse_partitioner(folder.settings["partitioner"]).code())


def _index_key(config: RunConfig, cut: Cutting) -> str:
    """Hash of the settings that decide the data, and of the state of the file it comes from."""
    settings = {key: config.flat()[key] for key in DATA_KEYS} | asdict(cut)
    text = json.dumps(
        [INDEX_FORMAT, partition_version(), settings, datasets.source_state(config.data.dataset)], sort_keys=True
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _describe(graph: Graph) -> dict[str, Any]:
    if graph.y is None or graph.x is None:
        raise InputError(f"{graph.name} has no features or labels")
    return {
        "name": graph.name,
        "fingerprint": graph.fingerprint(),
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "num_features": graph.num_features,
        "num_classes": graph.num_classes,
        "multilabel": graph.multilabel,
        "num_test": 0 if graph.test is None else len(graph.test),
        "notes": list(graph.notes),
    }
