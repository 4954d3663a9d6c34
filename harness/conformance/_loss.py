"""Lossy, unbiased, bounded, compensated: how far what is received is from what was sent."""

from __future__ import annotations

from statistics import NormalDist

import torch
from torch import Tensor

from harness.conformance._exactness import EPOCHS, LR, difference, whole
from harness.conformance._ground import Ground, one_exchange, parts_of, random_graph, ring
from harness.conformance._rounds import NotKept, Round, passes, play
from harness.methods.base import Method

DRAWS, FALSE_ALARM = 1000, 1e-4
AVERAGED = 32


def check_lossy(method: Method, ground: Ground) -> None:
    """A lossy method trains differently from its lossless form; if it has none, `check_inexact` is the same test."""
    nearest = method.lossless()
    if nearest == method:
        return
    graph, num_parts = random_graph(60, 700, seed=6), 3
    model = ground.model(method, graph, num_parts)
    curves = [
        [e.loss for e in play(m, model, parts_of(m, graph, num_parts, "hash"), Round(EPOCHS, lr=LR))[0].epochs]
        for m in (method, nearest)
    ]
    if all(abs(a - b) <= 1e-9 * abs(b) for a, b in zip(*curves, strict=True)):
        raise NotKept(f"lossy is idle: over {EPOCHS} epochs every loss equals that of the lossless form")


def check_unbiased(method: Method, ground: Ground) -> None:
    """The mean over draws of aggregated rows and of returned gradients equals the exact one, as far as chance allows.

    Every entry's mean may be off by z standard errors of its own sample, z so that a right method fails once in 10,000.
    """
    graph, num_parts, skip = ring(36, 4, one_hot=True), 3, method.promises().staleness
    model, draws = one_exchange(graph), DRAWS // 4 if ground.quick else DRAWS
    upstream = _upstream(graph.num_nodes, graph.num_classes)
    found = passes(method, model, parts_of(method, graph, num_parts, "hash"), upstream, draws + skip)
    wanted = whole(model, graph, upstream)
    for name, sample, exact in zip(
        ("aggregated rows", "gradients"), (found.logits, found.gradients), wanted, strict=True
    ):
        sample = sample[skip:]
        error = sample.std(0) / draws**0.5
        scale = float(exact.abs().max())
        z = NormalDist().inv_cdf(1 - FALSE_ALARM / (2 * exact.numel()))
        worst = float(((sample.mean(0) - exact).abs() / (error + 1e-6 * scale)).max())
        if worst > z:
            raise NotKept(f"unbiased: over {draws} draws the mean of {name} is off by {worst:.1f} standard errors")
        if not float(error.max()) > 1e-9 * scale:
            raise NotKept(f"unbiased is idle: {name} are the same in all of {draws} draws")


def _upstream(num_nodes: int, num_classes: int) -> Tensor:
    return torch.randn(num_nodes, num_classes, generator=torch.Generator().manual_seed(2)).double()


def check_bounded(method: Method, ground: Ground) -> None:
    """Received rows and returned gradients are as near to the exact ones as `error_bound` says, and not exact."""
    promises, graph, num_parts = method.promises(), ring(36, 4, one_hot=True), 3
    model, epochs = one_exchange(graph), promises.settles + promises.staleness + 3
    upstream, bound = _upstream(graph.num_nodes, graph.num_classes), method.error_bound(num_parts)
    found = passes(method, model, parts_of(method, graph, num_parts, "hash"), upstream, epochs)
    logits, gradient = whole(model, graph, upstream)
    dense, conv = model.layers[0].linear, model.layers[1]
    hidden = dense.weight.t() + dense.bias  # features are one-hot
    # The mean over neighbours hands on at most the largest error; the weight of the layer mixes hidden columns.
    forward = bound * float((hidden.abs().max() * conv.neighbour.weight.abs().sum(1)).max())
    sent = upstream @ conv.neighbour.weight
    backward = bound * num_parts * float(sent.abs().max())
    worst = float((found.logits[-1] - logits).abs().max()), float((found.gradients[-1] - gradient).abs().max())
    for name, error, limit in zip(("aggregated rows", "gradients"), worst, (forward, backward), strict=True):
        if not error <= limit:
            raise NotKept(f"bounded: {name} are off by {error:.3g}; error_bound = {bound:.3g} allows {limit:.3g}")
    if not max(worst) > 0:
        raise NotKept("bounded is idle: what is received is exact")


def check_compensated(method: Method, ground: Ground) -> None:
    """Under frozen weights, gradients averaged over T epochs come near those of the lossless form, as 1 / T."""
    graph, num_parts = random_graph(40, 160, seed=5), 3
    model, start = ground.model(method, graph, num_parts), method.promises().settles
    epochs = start + AVERAGED
    rounds = [
        play(m, model, parts_of(m, graph, num_parts, "hash"), Round(epochs, frozen=True))[0].epochs
        for m in (method, method.lossless())
    ]
    ours, exact = ([e.parameters for e in r[start:]] for r in rounds)
    single = max(difference(found, wanted) for found, wanted in zip(ours, exact, strict=True))
    mean = [torch.stack(tensors).mean(0) for tensors in zip(*ours, strict=True)]
    error = difference(mean, exact[0])
    if single < 1e-9:
        raise NotKept("compensated is idle: gradients under frozen weights are exact in every epoch")
    if error > 4 * single / AVERAGED:
        raise NotKept(
            f"compensated: gradients of {AVERAGED} epochs of frozen weights average to an error of {error:.2g}; single "
            f"ones are off by {single:.2g}, so {4 * single / AVERAGED:.2g} is allowed"
        )
