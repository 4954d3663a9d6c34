"""Checks of exactness, also with some options, and of staleness, by comparing gradients with those of one process."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.conformance._ground import (
    RING,
    Deal,
    Ground,
    graph_totals,
    one_exchange,
    owners,
    parts_for_method,
    random_graph,
    ring,
    rings,
)
from harness.conformance._reference import adjacency, dense_forward, reference_gradients, reference_losses
from harness.conformance._rounds import EpochSettings, NotKept, Passed, first_logits, passes, run_epochs
from harness.errors import InputError
from harness.graphs import Graph
from harness.methods.bases.base import Method
from harness.nn import GNN

DOUBLE, SINGLE = 1e-10, 1e-6
EPOCHS, LR = 6, 0.05
SEVERED_CASES: tuple[tuple[int, Deal], ...] = ((1, "hash"), (2, "hash"), (3, "hash"), (3, "halves"))
CASES: tuple[tuple[int, Deal], ...] = ((1, "hash"), (2, "random"), (3, "first"), (3, "hash"), (5, "halves"))


def difference(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """Euclidean norm of the difference over that of the wanted values, over all tensors together."""
    scale = sum(float(w.double().square().sum()) for w in wanted) ** 0.5
    error = sum(float((f.double() - w.double()).square().sum()) for f, w in zip(found, wanted, strict=True)) ** 0.5
    return float(error / max(scale, 1e-12))


def check_exact(method: Method, ground: Ground) -> None:
    """Loss and gradients equal those of one process, and losses stay equal while weights move."""
    graphs = [random_graph(30, 90, seed=3)] if ground.quick else [random_graph(30, 90, seed=3), random_graph(9, 8)]
    ran = 0
    for kind in ground.kinds:
        for graph in graphs:
            for num_parts, deal in _runnable(method):
                ran += _compare(method, ground, kind, graph, num_parts, deal, torch.float64, DOUBLE)
        graph = random_graph(120, 480, seed=8)
        num_parts, deal = _runnable(method)[-1]
        still = replace(ground, options={**ground.options, "norm": "none"})  # normalisation amplifies rounding
        ran += _compare(method, still, kind, graph, num_parts, deal, torch.float32, SINGLE)
    if not ran:
        raise NotKept("exact: the method runs none of the models gcn, sage and gat")


def _runnable(method: Method) -> list[tuple[int, Deal]]:
    return [case for case in CASES if case[0] == 1] if method.facts.cut == "none" else list(CASES)


def _compare(
    method: Method, ground: Ground, kind: str, graph: Graph, num_parts: int, deal: Deal, dtype: Any, tolerance: float
) -> int:
    """Compare one case; returns 1, or 0 if the method refuses the model."""
    try:
        model = ground.model(method, graph, num_parts, kind=kind, dtype=dtype)
    except InputError:
        return 0
    parts = parts_for_method(method, graph, num_parts, deal, dtype)
    where = f"{kind}, {graph.num_nodes} nodes, {num_parts} ranks ({deal})"
    loss, wanted = reference_gradients(copy.deepcopy(model).double(), graph)
    ranks = run_epochs(method, model, parts, EpochSettings(1, frozen=True))
    for index, rank in enumerate(ranks):
        error = difference(rank.epochs[0].parameters, wanted)
        if not error < tolerance:
            raise NotKept(f"exact: gradients of rank {index} are off by {error:.2g} of their size ({where})")
        if not abs(rank.epochs[0].loss - loss) <= tolerance * abs(loss) + 1e-9:
            raise NotKept(f"exact: the loss is {rank.epochs[0].loss:.9g}, of one process {loss:.9g} ({where})")
    if dtype == torch.float64 and deal == "hash":
        trained = [e.loss for e in run_epochs(method, model, parts, EpochSettings(3, lr=LR))[0].epochs]
        alone = reference_losses(copy.deepcopy(model), graph, 3, LR)
        if any(abs(a - b) > 1e-6 * abs(b) for a, b in zip(trained, alone, strict=True)):
            raise NotKept(f"exact: losses {trained} leave those of one process {alone} while weights move ({where})")
    return 1


def check_exact_when(method: Method, ground: Ground) -> None:
    """With the options of `exact_when`, the method declares to be exact, and is."""
    exact = _with(method, method.facts.exact_when)
    if not exact.promises().exact:
        raise NotKept(f"exact_when: with {dict(method.facts.exact_when)} the method does not promise to be exact")
    check_exact(exact, ground)


def check_vanishes_with(method: Method, ground: Ground) -> None:
    """With these options gradients are exact on a connected graph whose parts all own nodes."""
    made = _with(method, method.facts.vanishes_with)
    graph = ring(24, 3)
    for num_parts in (2, 3):
        model = ground.model(made, graph, num_parts) if made == method else Ground().model(made, graph, num_parts)
        _, wanted = reference_gradients(model, graph)
        ranks = run_epochs(made, model, parts_for_method(made, graph, num_parts, "hash"), EpochSettings(1, frozen=True))
        error = difference(ranks[0].epochs[0].parameters, wanted)
        if not error < DOUBLE:
            raise NotKept(f"vanishes_with: gradients are off by {error:.2g} of their size on {num_parts} ranks")


def check_severed_with(method: Method, ground: Ground) -> None:
    """With these options gradients are exact on the graph without the edges between ranks."""
    made, graph = _with(method, method.facts.severed_with), ring(24, 3)
    for num_parts, deal in SEVERED_CASES:
        model = Ground().model(made, graph, num_parts)
        _, wanted = reference_gradients(model, severed(graph, owners(graph.num_nodes, num_parts, deal)))
        ranks = run_epochs(made, model, parts_for_method(made, graph, num_parts, deal), EpochSettings(1, frozen=True))
        error = difference(ranks[0].epochs[0].parameters, wanted)
        if not error < DOUBLE:
            raise NotKept(f"severed_with: gradients are off by {error:.2g} of their size on {num_parts} ranks ({deal})")


def severed(graph: Graph, owner: np.ndarray) -> Graph:
    """The graph without the edges between nodes of different owners."""
    rows = np.repeat(np.arange(graph.num_nodes), graph.in_degree)
    kept = owner[rows] == owner[graph.indices]
    indptr = np.zeros(graph.num_nodes + 1, np.int64)
    np.cumsum(np.bincount(rows[kept], minlength=graph.num_nodes), out=indptr[1:])
    return replace(graph, indptr=indptr, indices=graph.indices[kept])


def _with(method: Method, options: Any) -> Method:
    made = replace(method, **options)
    try:
        made.validate()
    except InputError as error:
        raise NotKept(f"the options {dict(options)} are refused: {error}") from None
    return made


def check_inexact(method: Method, ground: Ground) -> None:
    """A method with exact=False differs from one process in some loss; otherwise the declaration has no content."""
    for graph in (random_graph(40, 160, seed=5), random_graph(60, 700, seed=6)):
        num_parts = 3
        model = ground.model(method, graph, num_parts)
        found = [
            e.loss
            for e in run_epochs(
                method, model, parts_for_method(method, graph, num_parts, "hash"), EpochSettings(EPOCHS, lr=LR)
            )[0].epochs
        ]
        alone = reference_losses(copy.deepcopy(model), graph, EPOCHS, LR)
        if any(abs(a - b) > 1e-7 * abs(b) for a, b in zip(found, alone, strict=True)):
            return
    raise NotKept(f"exact=False is idle: over {EPOCHS} epochs every loss equals that of one process")


def check_isolated(method: Method, ground: Ground) -> None:
    """Logits of the first rank stay as they are when the features of the nodes of all other ranks change."""
    graph = random_graph(60, 700, seed=6)
    for num_parts in (2, 3):
        foreign = np.arange(graph.num_nodes) % num_parts != 0
        moved = replace(graph, x=np.asarray(graph.x) + foreign[:, None].astype(np.float32))
        model = ground.model(method, graph, num_parts)
        ours, theirs = (
            first_logits(method, model, parts_for_method(method, each, num_parts, "hash")) for each in (graph, moved)
        )
        if not torch.equal(ours[0], theirs[0]):
            raise NotKept(f"isolated: logits of rank 0 of {num_parts} change with features of other parts")
        if any(torch.equal(a, b) for a, b in zip(ours[1:], theirs[1:], strict=True)):
            raise NotKept("isolated is idle: logits do not change with a rank's own features")


def check_staleness(method: Method, ground: Ground) -> None:
    """With frozen weights, received rows are exact after k epochs, and not before."""
    k, nearest = method.promises().staleness, method.lossless()
    graph = rings()
    model = one_exchange(graph)
    upstream = torch.randn(RING, graph.num_classes, generator=torch.Generator().manual_seed(2)).double()
    found = passed(nearest, graph, upstream, k + 4)
    logits, gradient = single_process_pass(model, graph, upstream)
    errors = [
        max(difference([found.logits[e]], [logits]), difference([found.gradients[e]], [gradient])) for e in range(k + 4)
    ]
    remains = 1e-3 if nearest.promises().lossy else DOUBLE
    late = [e for e in range(k, k + 4) if not errors[e] < remains]
    if late:
        raise NotKept(
            f"staleness={k}: in epoch {late[0]} of frozen weights what is received is off by {errors[late[0]]:.2g}"
        )
    if k and errors[k - 1] < 10 * remains:
        raise NotKept(f"staleness={k}: already in epoch {k - 1} of frozen weights what is received is right")


def single_process_pass(model: GNN, graph: Graph, upstream: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and the gradients of the first weights of one process, with the loss sum(upstream * logits)."""
    assert graph.x is not None
    logits = dense_forward(model, adjacency(graph), torch.from_numpy(np.asarray(graph.x)).to(upstream.dtype))
    (gradient,) = torch.autograd.grad((logits * upstream).sum(), [next(model.parameters())])
    return logits.detach(), gradient


def on_one_exchange(method: Method) -> Method | None:
    """The method with options for `one_exchange`, whose first layer cannot be precomputed; None if it refuses."""
    graph = rings()
    if getattr(method, "layer0", "auto") == "precompute":
        options: dict[str, Any] = {"layer0": "auto"}
        method = replace(method, **options)
    try:
        method.check(one_exchange(graph), graph_totals(graph), 3)
    except InputError:
        return None
    return method


def passed(method: Method, graph: Graph, upstream: Tensor, epochs: int, drift: float = 0.0) -> Passed:
    """`passes` through `one_exchange` on 3 ranks. Raises NotKept if the method refuses that model."""
    made = on_one_exchange(method)
    if made is None:
        raise NotKept("the method refuses a model of one exchange, which this check needs: use other options")
    return passes(made, one_exchange(graph), parts_for_method(made, graph, 3, "hash"), upstream, epochs, drift=drift)
