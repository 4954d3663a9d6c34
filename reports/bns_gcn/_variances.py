"""The variances of BNS-GCN's Table 2, measured: sampled sums over neighbours of a graph's parts beside closed forms.

A GraphSAGE is trained for some epochs and frozen; the rows that its layers read are the inputs of one layer. Targets
are the inner nodes of METIS parts. Everything is relative: E |Z~ - Z|^2 / |Z|^2 over all parts together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from harness.config import RunConfig, from_mapping
from harness.datasets import source_state
from harness.graphs import Part
from harness.kernels.boundary import draw_rows
from harness.kernels.importance import Draw, importance_draw, inclusion
from harness.nn import GNN, adam, build_model, training_loss
from harness.rank import random_key
from harness.running import prepare
from harness.sampling import (
    column_squares,
    fixed_variance,
    neighbour_variance,
    poisson_variance,
    replacement_variance,
    sample_neighbours,
)
from reports.core.context import code_version, measured_once, versions
from reports.core.train import SETTINGS

Estimator = Callable[[int], np.ndarray]
"""Key -> an estimate of a part's Z."""

MODEL = {"model": "sage", "layers": 3, "hidden": 64, "dropout": 0.1, "norm": "layer", "lr": 0.01}
BUDGETS = {
    "A": "as many draws as BNS-GCN's, p |B_i| (the paper's comparison)",
    "B": "as many rows read as BNS-GCN reads, |V_i| + p |B_i|",
    "C": "as many edges as BNS-GCN aggregates",
}


@dataclass(frozen=True, eq=False)
class TrainedRows:
    """One layer of a trained model on a graph in parts.

    Attributes:
        p: mean over neighbours, [N, N].
        owner: part of every node.
        y: rows that are aggregated, [N, d]: of all hidden layers, side by side.
        history: the same an epoch of training earlier.
    """

    name: str
    p: sp.csr_matrix
    owner: np.ndarray
    y: np.ndarray
    history: np.ndarray

    @classmethod
    def of(cls, name: str, parts: int, epochs: int) -> TrainedRows:
        """A dataset, cut by METIS, with a model trained for so many epochs."""
        settings = {"dataset": name, **SETTINGS.get(name, {}), **MODEL}
        whole = from_mapping({**settings, "parts": 1, "method": "single"})
        cut = prepare(from_mapping({**settings, "parts": parts, "method": "vanilla", "partitioner": "metis"}))
        part = prepare(whole).training(0)
        owner = np.empty(len(part.nodes), np.int64)
        for rank in range(parts):
            owner[cut.training(rank).nodes.numpy()] = rank
        block = part.graph.own
        indptr, indices = block.indptr.numpy(), block.indices.numpy()
        weights = np.repeat(1.0 / np.maximum(np.diff(indptr), 1), np.diff(indptr))
        p = sp.csr_matrix((weights, indices, indptr), shape=(block.num_rows, block.num_cols))
        return cls(name, p, owner[part.nodes.numpy()], *_trained(whole, part, epochs))

    def targets(self) -> Iterator[Targets]:
        """The parts, each with its own targets."""
        for number in np.unique(self.owner):
            yield Targets(self, int(number))


def _trained(config: RunConfig, part: Part, epochs: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows that hidden layers read after the last epoch of training, and after the one before."""
    model = build_model(config.model, part.totals.num_features, part.totals.num_classes, config.training.seed)
    optimizer, found = adam(model.parameters(), config.training.lr, 0.0), list[np.ndarray]()
    for epoch in range(epochs):
        model.train()
        optimizer.zero_grad()
        (training_loss(_rows(model, part, epoch)[-1], part) / part.totals.num_train).backward()
        optimizer.step()
        if epoch >= epochs - 2:
            model.eval()
            with torch.no_grad():
                found.append(torch.cat(_rows(model, part, epoch)[:-1], 1).double().numpy())
    return found[-1], found[0]


def _rows(model: GNN, part: Part, epoch: int) -> list[Tensor]:
    """The output of every layer, with dropout in training."""
    assert part.x is not None
    rows, found = part.x, list[Tensor]()
    for l in range(model.depth):
        rows = model.drop(rows, part.nodes, random_key(0, 0, epoch, l, "dropout"))
        rows = model.update(l, part.graph, rows, rows, rows[:0])
        found.append(rows)
    return found


class Targets:
    """The inner nodes of one part: their rows of P, the nodes that they read, and estimates of Z = P Y.

    Attributes:
        inner, boundary, near: V_i; the foreign nodes among its neighbours, by owner; V_i's neighbours (N_i).
        p, z: rows of P of the inner nodes, and Z.
    """

    def __init__(self, inputs: TrainedRows, number: int) -> None:
        self.inputs, self.inner = inputs, np.flatnonzero(inputs.owner == number)
        self.p = inputs.p[self.inner]
        self.near = np.unique(self.p.indices)
        foreign = self.near[inputs.owner[self.near] != number]
        self.boundary = foreign[np.argsort(inputs.owner[foreign], kind="stable")]
        self.z = self.p @ inputs.y

    @cached_property
    def columns(self) -> sp.csc_matrix:
        """P by columns."""
        return self.p.tocsc()

    @cached_property
    def kept_inside(self) -> np.ndarray:
        """The part of Z from inner nodes, which BNS-GCN never drops."""
        inside: np.ndarray = self.columns[:, self.inner] @ self.inputs.y[self.inner]
        return inside

    def importance(self, q: np.ndarray, count: int, draw: Draw = "replace", divided: bool = False) -> Estimator:
        """`count` nodes drawn by q over all nodes; `divided`: every row of the sampled P by its sum."""
        share, nodes = torch.from_numpy(q), torch.arange(len(q))

        def estimate(key: int) -> np.ndarray:
            places, weights = (found.numpy() for found in importance_draw(share, nodes, count, draw, key, 0))
            sampled = self.columns[:, places] @ sp.diags(weights)
            if divided:
                total = np.asarray(sampled.sum(1)).ravel()
                sampled = sp.diags(np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)) @ sampled
            found: np.ndarray = sampled @ self.inputs.y[places]
            return found

        return estimate

    def kept(self, share: float, fixed: bool) -> Estimator:
        """BNS-GCN: boundary nodes kept alone with a probability, or a fixed number of each owner's."""
        counts = np.bincount(self.inputs.owner[self.boundary], minlength=self.inputs.owner.max() + 1)
        nodes = torch.empty(len(self.boundary), dtype=torch.int64)
        scale = counts / np.maximum(np.floor(share * counts), 1) if fixed else np.full(len(counts), 1 / share)

        def estimate(key: int) -> np.ndarray:
            places = self.boundary[draw_rows(nodes, counts.tolist(), share, fixed, key, 0).numpy()]
            weighted = self.inputs.y[places] * scale[self.inputs.owner[places], None]
            found: np.ndarray = self.kept_inside + self.columns[:, places] @ weighted
            return found

        return estimate

    def neighbours(self, fanout: int, y: np.ndarray, exact: np.ndarray | float = 0.0) -> Estimator:
        """A mean over so many neighbours of each inner node, beside what is known exactly."""
        p = self.inputs.p

        def estimate(key: int) -> np.ndarray:
            indptr, indices = sample_neighbours(p.indptr, p.indices, self.inner, fanout, key)
            drawn = np.diff(indptr)
            weights = np.repeat(1.0 / np.maximum(drawn, 1), drawn)
            sampled = sp.csr_matrix((weights, indices, indptr), shape=self.p.shape)
            found: np.ndarray = sampled @ y + exact
            return found

        return estimate


@dataclass(frozen=True)
class Variance:
    """One estimator on one graph; all squares relative to |Z|^2, over all parts.

    Attributes:
        budget: a key of `BUDGETS`, or "" for what has none.
        measured, error: the mean of |Z~ - Z|^2 over the draws, and its standard error.
        formula: in closed form, or None where there is none.
        bias: |mean of Z~ - Z|^2 less what it has from the variance over so many draws.
        drawn: rows (of GraphSAGE: edges) drawn for a part, in the mean.
    """

    name: str
    budget: str
    measured: float
    error: float
    formula: float | None
    bias: float
    drawn: float


@cache
def measured(name: str, parts: int, epochs: int, share: float, draws: int) -> tuple[Variance, ...]:
    """`variances` of a dataset in METIS parts with a model trained for so many epochs; measured once, and kept."""

    def made() -> list[dict[str, Any]]:
        return [asdict(found) for found in variances(TrainedRows.of(name, parts, epochs), share, draws)]

    source = code_version("harness"), hashlib.sha256(Path(__file__).read_bytes()).hexdigest(), versions("scipy")
    key = [name, source_state(name), parts, epochs, share, draws, *source]
    return tuple(Variance(**found) for found in measured_once("variances", key, made))


@dataclass(frozen=True)
class _Cell:
    """One estimator of one part: a draw, the closed form of its variance, and how many it draws."""

    estimate: Estimator
    formula: float | None
    drawn: float


def variances(inputs: TrainedRows, share: float, draws: int) -> list[Variance]:
    """All estimators on a graph, for BNS-GCN with p = `share`."""
    norms = column_squares(inputs.p)
    cells: dict[tuple[str, str], list[tuple[Targets, _Cell]]] = {}
    for targets in inputs.targets():
        for where, cell in _cells(targets, norms, share):
            cells.setdefault(where, []).append((targets, cell))
    whole = sum(float(np.square(targets.z).sum()) for targets in inputs.targets())
    return [_measured(*where, found, whole, draws) for where, found in cells.items()]


def _cells(targets: Targets, norms: np.ndarray, share: float) -> Iterator[tuple[tuple[str, str], _Cell]]:
    """(name, budget) and estimator; `norms` are the squared column norms of P."""
    inputs, p, boundary = targets.inputs, targets.p, targets.boundary
    y, near = inputs.y, column_squares(targets.p)
    few = share * len(boundary)
    outside = targets.columns[:, boundary].tocsr()
    rate, owner = np.full(len(boundary), share), inputs.owner[boundary]
    kept = (poisson_variance(outside, y[boundary], rate), fixed_variance(outside, y[boundary], owner, share))
    yield ("BNS-GCN", "A"), _Cell(targets.kept(share, False), kept[0], few)
    yield ("BNS-GCN, fixed", "A"), _Cell(targets.kept(share, True), kept[1], few)
    for budget, count in (("A", round(few)), ("B", len(targets.inner) + round(few))):
        for name, q in (("FastGCN", norms), ("LADIES", near), ("LADIES, root norms", np.sqrt(near))):
            q = q / q.sum()
            yield (name, budget), _Cell(targets.importance(q, count), replacement_variance(p, y, q, count), count)
        q = near / near.sum()
        yield ("LADIES, without replacement", budget), _Cell(targets.importance(q, count, "ordered"), None, count)
        chance = np.zeros(len(q))
        chance[targets.near] = inclusion(q[targets.near], count)
        yield (
            ("LADIES, Poisson", budget),
            _Cell(targets.importance(q, count, "poisson"), poisson_variance(p, y, chance), count),
        )
        yield ("LADIES, rows divided", budget), _Cell(targets.importance(q, count, divided=True), None, count)
        yield ("LADIES, authors' code", budget), _Cell(targets.importance(q, count, "authors", True), None, count)
    edges = (p.nnz - outside.nnz * (1 - share)) / max(len(targets.inner), 1)
    for fanout, budget in ((1, "A"), (2, ""), (max(round(edges), 1), "C")):
        name = f"GraphSAGE, f = {fanout}" if budget != "C" else "GraphSAGE, f matched"
        drawn = float(np.minimum(np.diff(p.indptr), fanout).sum())
        yield (name, budget), _Cell(targets.neighbours(fanout, y), neighbour_variance(p, y, fanout), drawn)
    change = y - inputs.history
    history = targets.neighbours(1, change, p @ inputs.history)
    yield ("VR-GCN, f = 1", "A"), _Cell(history, neighbour_variance(p, change, 1), float((np.diff(p.indptr) > 0).sum()))


def _measured(name: str, budget: str, cells: Sequence[tuple[Targets, _Cell]], whole: float, draws: int) -> Variance:
    """The estimates of all parts, drawn `draws` times."""
    squares, bias = np.zeros(draws), 0.0
    for number, (targets, cell) in enumerate(cells):
        mean = np.zeros_like(targets.z)
        for draw in range(draws):
            found = cell.estimate(random_key(0, number, draw, -1, name)) - targets.z
            squares[draw] += np.square(found).sum()
            mean += found / draws
        bias += float(np.square(mean).sum())
    squares /= whole
    measured, formulas = float(squares.mean()), [cell.formula for _, cell in cells]
    return Variance(
        name, budget, measured, float(squares.std(ddof=1)) / draws**0.5,
        None if None in formulas else sum(f for f in formulas if f is not None) / whole,
        (bias / whole - measured / draws) / (1 - 1 / draws), float(np.mean([cell.drawn for _, cell in cells])),
    )  # fmt: skip
