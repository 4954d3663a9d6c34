"""Small graphs, models and parts of every kind of cut, on which the checks run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch

from harness.config import RunConfig
from harness.errors import InputError
from harness.graphs import Graph, RankGrid, from_edges, replicated
from harness.methods.bases.base import Method
from harness.nn import GNN, Dense, SAGEConv, build_model
from harness.partition.edge import build_parts
from harness.partition.overlap import overlapping_parts
from harness.partition.vertex import build_vertex_parts, masters, undirected_pairs

Deal = Literal["random", "hash", "first", "halves"]
"""Assignment of nodes: random, round-robin, all on rank 0 (the others are empty), or on two ranks that share few."""

RING = 36


def random_graph(num_nodes: int, num_edges: int, *, features: int = 5, classes: int = 3, seed: int = 0) -> Graph:
    """A symmetric graph with random edges, some isolated nodes, and a 60/20/20 split."""
    rng = np.random.default_rng(seed)
    edges = random_edges(num_nodes, num_edges, rng)
    return _graph(edges, rng.standard_normal((num_nodes, features)), classes, rng)


def random_edges(num_nodes: int, num_edges: int, rng: np.random.Generator) -> np.ndarray:
    """Edges between random nodes, int64 [2, E]: at most so many, none from a node to itself."""
    edges = rng.integers(0, num_nodes, (2, num_edges))
    return edges[:, edges[0] != edges[1]]


def ring(num_nodes: int, reach: int, *, classes: int = 3, seed: int = 0) -> Graph:
    """A connected graph in which every node has its `reach` nearest nodes on either side as neighbours."""
    rng = np.random.default_rng(seed)
    return _graph(_around(num_nodes, reach), rng.standard_normal((num_nodes, 5)), classes, rng)


def rings(copies: int = 1) -> Graph:
    """Disjoint equal rings of `RING` nodes with one-hot features: a pass over them gives one random draw per ring.

    Nodes are numbered ring by ring; assigned round-robin to 3 ranks, each rank reads 12 rows of every ring from each of
    the others.
    """
    rng, num_nodes = np.random.default_rng(0), RING * copies
    edges = np.concatenate([_around(RING, 4) + RING * copy for copy in range(copies)], axis=1)
    return _graph(edges, np.eye(num_nodes), 3, rng)


def _around(num_nodes: int, reach: int) -> np.ndarray:
    nodes = np.arange(num_nodes)
    return np.concatenate([np.stack([nodes, (nodes + d) % num_nodes]) for d in range(1, reach + 1)], axis=1)


def _graph(edges: np.ndarray, x: np.ndarray, classes: int, rng: np.random.Generator) -> Graph:
    """The symmetric graph of these edges in one direction, with random labels and a random split."""
    order = rng.permutation(len(x))
    return labelled_graph(both_ways(edges), x, rng.integers(0, classes, len(x)), classes, order)


def both_ways(edges: np.ndarray) -> np.ndarray:
    """Edges [2, E] and the same in the other direction, [2, 2 E]."""
    return np.concatenate([edges, edges[::-1]], axis=1)


def labelled_graph(edges: np.ndarray, x: np.ndarray, y: np.ndarray, classes: int, order: np.ndarray) -> Graph:
    """A graph of edges [2, E] without repetitions, features x [N, F] and labels y [N] below `classes`.

    Of the nodes, in the order of the permutation `order`, 60 % are trained on, 20 % for validation and 20 % for tests.
    """
    num_nodes = len(x)
    train, val, test = np.split(order, [int(0.6 * num_nodes), int(0.8 * num_nodes)])
    return from_edges(
        "small", edges, num_nodes, dedupe=True, num_classes=classes, x=x.astype(np.float32), y=y,
        train=np.sort(train), val=np.sort(val), test=np.sort(test),
    )  # fmt: skip


def owners(num_nodes: int, num_parts: int, deal: Deal, seed: int = 0) -> np.ndarray:
    """The part of every node, int32 [N]."""
    nodes = np.arange(num_nodes)
    dealt = {
        "hash": nodes % num_parts,
        "first": nodes * 0,
        "halves": nodes * 2 // max(num_nodes, 1) % num_parts,
        "random": np.random.default_rng(seed).integers(0, num_parts, num_nodes),
    }
    return dealt[deal].astype(np.int32)


def parts_for_method(
    method: Method, graph: Graph, num_parts: int, deal: Deal, dtype: torch.dtype = torch.float64
) -> list[Any]:
    """Parts of the kind that the method declares, with features of the wanted type, as each of their ranks holds them.

    There are `num_parts` parts, and as many ranks times the method's replicas.
    """
    cut = method.facts.cut
    built: Any
    if cut == "vertex":
        pairs = undirected_pairs(graph)
        part = owners(len(pairs[0]), num_parts, deal)
        built = build_vertex_parts(graph, pairs, part, masters(*pairs, part, graph.num_nodes, num_parts), num_parts)
    elif cut == "overlap":
        owner = owners(graph.num_nodes, num_parts, deal)
        built = overlapping_parts(graph, owner, num_parts, **{"overlap": 0.3, **method.part_settings()})
    else:
        built = build_parts(graph, owners(graph.num_nodes, num_parts, deal), num_parts)
    held = [replace(part, x=part.x.to(dtype)) for part in built]
    if (replicas := method.replicas()) == 1:
        return held
    grid = RankGrid(num_parts * replicas, replicas)
    return [replicated(held[rank // replicas], grid, rank) for rank in range(grid.size)]


@dataclass(frozen=True)
class Ground:
    """The settings of the checks: models and sizes.

    Attributes:
        quick: fewer draws, graphs and epochs.
        options: fields of `RunConfig` that the method's settings need, such as `model`, `order` or `layers`.
        courses: training runs by method, which checks on this ground share.
    """

    quick: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    courses: dict[Method, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The models that exactness is checked with."""
        if "model" in self.options:
            return (str(self.options["model"]),)
        return ("sage",) if self.quick else ("gcn", "sage", "gat")

    def model(
        self,
        method: Method,
        graph: Graph,
        num_parts: int,
        *,
        kind: str | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> GNN:
        """A model that the method accepts, of three layers or else of two; every parameter has a gradient.

        Raises:
            InputError: the method accepts none of them.
        """
        kinds = (kind,) if kind is not None else ("sage", "gcn", "gat")
        given = dict(self.options) if kind is None or kind == self.options.get("model", kind) else {}
        refused: list[str] = []
        for layers in (3, 2):
            for name in (given["model"],) if "model" in given else kinds:
                model = small_model(graph, dtype, **{"layers": layers, **given, "model": name})
                try:
                    method.check(model, graph_totals(graph), num_parts * method.replicas())
                except InputError as error:
                    refused.append(str(error))
                    continue
                return model
        raise InputError(refused[-1])


def small_model(graph: Graph, dtype: torch.dtype = torch.float64, **options: Any) -> GNN:
    """A narrow model of a graph whose parameters, biases too, are not zero, so that every one has a gradient.

    `options`: fields of `RunConfig`, in place of 3 layers of width 4 with 2 heads and LayerNorm.
    """
    config = RunConfig.of(**{"layers": 3, "hidden": 4, "heads": 2, "norm": "layer", **options})
    model = build_model(config.model, graph.num_features, graph.num_classes, config.training.seed).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    return model


def graph_totals(graph: Graph) -> Any:
    """The counts of a graph that its parts store."""
    return build_parts(graph, np.zeros(graph.num_nodes, np.int32), 1)[0].totals


def one_exchange(graph: Graph, dtype: torch.dtype = torch.float64) -> GNN:
    """A dense layer, then one mean over neighbours: linear, because every hidden value is positive.

    With one-hot features (`rings`) the dense layer's weights have a column for each node: their gradients show the
    returned gradient of every node, and the logits the received rows.
    """
    generator = torch.Generator().manual_seed(1)
    dense, conv = Dense(graph.num_features, 3), SAGEConv(3, graph.num_classes)
    with torch.no_grad():
        columns = torch.rand(3, RING, generator=generator) + 0.5
        dense.linear.weight.copy_(columns.repeat(1, graph.num_features // RING))  # all rings alike
        dense.linear.bias.fill_(0.1)
        for weight in (conv.own.weight, conv.neighbour.weight):
            weight.copy_(torch.randn(weight.shape, generator=generator))
    return GNN([dense, conv], [graph.num_features, 3, graph.num_classes]).to(dtype)
