"""Synthetic graphs of any size and density, and stand-ins with the published statistics of real graphs.

A degree-corrected block model gives the edges (`_sbm`), class centroids plus noise the features. Equal strings give
equal graphs on every machine. Accuracies on stand-ins are not comparable with published ones; a note on every graph
says what it stands in for.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
from pathlib import Path

import numpy as np

from harness.datasets import _sbm as sbm
from harness.datasets import _splits as splits
from harness.datasets._recipe import Recipe, parse_recipe
from harness.datasets._standins import fitted_recipes
from harness.errors import InputError
from harness.graphs import Graph, NodeData, from_csr, index_dtype
from harness.machine import building, cache_root, load_arrays, store_arrays

CACHED_EDGES = 1_000_000  # above this many directed edges a graph is generated once and mapped from the cache
_VERSION = 1  # part of the cache key: raise it whenever the same recipe gives another graph
_BLOCK = 65_536  # rows of features made at a time
_RELATED = (0.5, 0.3, 0.2)  # multi-label: probabilities of the classes related to a node's main class
_RELATED_SIGNAL = 0.5  # of a centroid, for each label beside the main one
_BYTES_PER_PAIR = 24  # peak while the edges are drawn, per undirected edge; measured: 22 at 62 M edges
_BYTES_PER_NODE = 64


def load_synthetic(dataset: str) -> Graph:
    """The graph of a `synthetic:` or `standin:` string, from the cache or generated now.

    Raises InputError for a bad string, edges that do not fit, or more memory than the machine has.
    """
    recipe, settings = parse_recipe(dataset, fitted_recipes())
    if recipe.nodes * recipe.degree > CACHED_EDGES:
        folder = cache_root() / "graphs" / _key(recipe)
        with building(folder):
            graph = _cached(dataset, folder) or _store(_made(dataset, recipe), folder)
    else:
        graph = _made(dataset, recipe)
    what = "generated graph (degree-corrected block model), a stand-in for no real one"
    if recipe.standin:
        made = "fitted to printed scores of it" if recipe.fitted else "with its published statistics"
        what = ", ".join((f"stand-in for {recipe.standin}: synthetic graph {made}", *settings))
    return dataclasses.replace(graph, notes=(what, *graph.notes))


def _made(dataset: str, recipe: Recipe) -> Graph:
    _check_memory(dataset, recipe)
    return _generate(dataset, recipe)


def identity(dataset: str) -> str:
    """A hash that is equal for two strings if and only if they give equal graphs, with this version of the
    generator."""
    return _key(parse_recipe(dataset, fitted_recipes())[0])


def expected_size(dataset: str) -> tuple[int, int, int]:
    """Nodes, directed edges and features of a generated graph, without making it."""
    recipe = parse_recipe(dataset, fitted_recipes())[0]
    return recipe.nodes, round(recipe.nodes * recipe.degree), recipe.features


def _key(recipe: Recipe) -> str:
    described = json.dumps([_VERSION, dataclasses.asdict(recipe)], sort_keys=True)
    return hashlib.sha256(described.encode()).hexdigest()


def _cached(name: str, folder: Path) -> Graph | None:
    cached = load_arrays(folder)
    if cached is None:
        return None
    arrays, meta = cached
    notes, classes = meta["notes"], meta["num_classes"]
    assert isinstance(notes, list) and isinstance(classes, int)
    train, val, test = (arrays.get(split) for split in ("train", "val", "test"))
    topology = arrays["indptr"], arrays["indices"]
    return Graph(name, *topology, arrays["x"], arrays["y"], train, val, test, classes, tuple(notes))


def _store(graph: Graph, folder: Path) -> Graph:
    """The same graph, memory-mapped from the cache so that its memory can be reclaimed; itself if it cannot be
    stored."""
    arrays = {"indptr": graph.indptr, "indices": graph.indices, "x": graph.x, "y": graph.y, **graph.splits}
    present = {name: array for name, array in arrays.items() if array is not None}
    with contextlib.suppress(InputError):
        store_arrays(folder, present, {"notes": list(graph.notes), "num_classes": graph.num_classes})
    return _cached(graph.name, folder) or graph


def _generate(dataset: str, recipe: Recipe) -> Graph:
    rng = np.random.default_rng([recipe.seed, 1])
    weight = sbm.weights(recipe.nodes, recipe.degree, recipe.exponent, rng)
    bound = sbm.bounds(recipe.nodes, recipe.communities)
    num_pairs = round(recipe.nodes * recipe.degree / 2)
    homophily, notes = _homophily(dataset, recipe, weight, bound, num_pairs)
    number = np.arange(recipe.nodes) if recipe.order == "community" else rng.permutation(recipe.nodes)
    number = number.astype(index_dtype(recipe.nodes))
    main = np.empty(recipe.nodes, np.int64)
    main[number] = _classes(recipe, bound)
    akin = _akin(dataset, recipe, bound, num_pairs, homophily)
    indptr, indices = sbm.sample(
        weight, bound, num_pairs, homophily, number, recipe.seed, akin=akin, classes=recipe.classes
    )
    related, has = _related(recipe, main)
    data: NodeData = {"x": _features(recipe, main, related, has), "num_classes": recipe.classes, "notes": notes}
    data["y"] = _indicators(recipe, main, related, has) if recipe.multilabel else main
    graph = from_csr(dataset, indptr, indices, **data)
    if recipe.split is None:
        return graph
    return splits.apply(graph, "random:" + "/".join(map(repr, recipe.split)), recipe.seed)


def _homophily(
    dataset: str, recipe: Recipe, weight: np.ndarray, bound: np.ndarray, num_pairs: int
) -> tuple[float, tuple[str, ...]]:
    """The share of edges inside communities, with a note if the default had to be lowered."""
    least, most = sbm.homophily_range(weight, bound, num_pairs)
    used = recipe.homophily if recipe.fixed_homophily else min(recipe.homophily, most)
    if not least <= used <= most:
        raise InputError(
            f"{dataset}: {num_pairs} edges do not fit into {recipe.nodes} nodes in {recipe.communities} communities"
            f" with homophily {used:.3g}: lower degree, take fewer communities"
            + (f", or give homophily={_up(least)} to {-_up(-most)}" if _up(least) <= -_up(-most) else "")
        )
    if used == recipe.homophily:
        return used, ()
    return used, (
        f"homophily lowered from {recipe.homophily:g} to {used:.3g}: no more edges fit inside the communities",
    )


def _akin(dataset: str, recipe: Recipe, bound: np.ndarray, num_pairs: int, homophily: float) -> float:
    """The share of edges between communities of one class, so that `agreement` is met."""
    wanted = max(0.0, recipe.agreement - homophily)
    most = sbm.most_akin(bound, recipe.classes, num_pairs) if wanted else 0.0
    if wanted > most:
        raise InputError(
            f"{dataset}: {round(num_pairs * wanted)} edges do not fit between communities of one class: lower degree, "
            f"or give agreement={-_up(-homophily - most):g} or less"
        )
    return wanted


def _up(share: float) -> float:
    return math.ceil(share * 1000) / 1000


def _classes(recipe: Recipe, bound: np.ndarray) -> np.ndarray:
    """The (main) class of every node in the model's order: its community's, or a random other by label noise."""
    classes = np.repeat(np.arange(recipe.communities) % recipe.classes, np.diff(bound))
    rng = np.random.default_rng([recipe.seed, 4])
    astray = np.flatnonzero(rng.random(recipe.nodes) < recipe.label_noise) if recipe.classes > 1 else classes[:0]
    classes[astray] += rng.integers(1, max(recipe.classes, 2), len(astray))
    return classes % recipe.classes


def _related(recipe: Recipe, main: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Multi-label: the classes related to every class, int64 [C, R], and those of them that a node has, bool [N, R]."""
    count = min(len(_RELATED), recipe.classes - 1) if recipe.multilabel else 0
    rng = np.random.default_rng([recipe.seed, 2])
    related = np.zeros((recipe.classes, count), np.int64)
    for c in range(recipe.classes if count else 0):
        related[c] = (c + 1 + rng.choice(recipe.classes - 1, count, replace=False)) % recipe.classes
    has = rng.random((len(main), count), np.float32) < np.array(_RELATED[:count], np.float32)
    return related, has


def _indicators(recipe: Recipe, main: np.ndarray, related: np.ndarray, has: np.ndarray) -> np.ndarray:
    y = np.zeros((recipe.nodes, recipe.classes), np.uint8)
    y[np.arange(recipe.nodes), main] = 1
    for j in range(has.shape[1]):
        nodes = np.flatnonzero(has[:, j])
        y[nodes, related[main[nodes], j]] = 1
    return y


def _features(recipe: Recipe, main: np.ndarray, related: np.ndarray, has: np.ndarray) -> np.ndarray:
    """float32 [N, F]: unit noise, plus the main class's centroid (norm `signal`) and half of those of related ones.

    Made in blocks of rows, with sums in a fixed order, so the result depends neither on memory nor on threads.
    """
    rng = np.random.default_rng([recipe.seed, 3])
    centroids = rng.standard_normal((recipe.classes, recipe.features), np.float32)
    centroids *= recipe.signal / np.linalg.norm(centroids, axis=1, keepdims=True)
    x = np.empty((recipe.nodes, recipe.features), np.float32)
    for start in range(0, recipe.nodes, _BLOCK):
        block, classes = x[start : start + _BLOCK], main[start : start + _BLOCK]
        rng.standard_normal(out=block, dtype=np.float32)
        block += centroids[classes]
        for j in range(has.shape[1]):
            share = _RELATED_SIGNAL * has[start : start + _BLOCK, j, None].astype(np.float32)
            block += share * centroids[related[classes, j]]
    return x


def _check_memory(dataset: str, recipe: Recipe) -> None:
    """Raise InputError for a graph that exceeds the machine's memory, before work begins."""
    pairs = recipe.nodes * recipe.degree / 2
    rows = recipe.nodes * (4 * recipe.features + recipe.multilabel * recipe.classes)
    need = recipe.nodes * _BYTES_PER_NODE + max(pairs * _BYTES_PER_PAIR, pairs * 8 + rows)
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if need > have:
        raise InputError(
            f"{dataset}: generating it takes about {need / 2**30:.0f} GiB, this machine has {have / 2**30:.0f};"
            " use a smaller scale or fewer nodes"
        )
