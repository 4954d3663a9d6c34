"""Checks of lossy, unbiased, bounded and compensated: errors of received rows."""

from __future__ import annotations

from statistics import NormalDist

import torch
from torch import Tensor

from harness.conformance._exactness import EPOCHS, LR, difference, passed, single_process_pass
from harness.conformance._ground import RING, Ground, one_exchange, parts_for_method, random_graph, rings
from harness.conformance._rounds import EpochSettings, NotKept, grow, run_epochs
from harness.methods.bases.base import Method
from harness.nn import Dense, SAGEConv

RINGS, PASSES = 25, 40  # 1,000 draws
FALSE_ALARM = 1e-4
AVERAGED = 32


def check_lossy(method: Method, ground: Ground) -> None:
    """A lossy method's losses differ from its lossless form's; if it has none, `check_inexact` is the same test."""
    nearest = method.lossless()
    if nearest == method:
        return
    graph, num_parts = random_graph(60, 700, seed=6), 3
    model = ground.model(method, graph, num_parts)
    curves = [
        [
            e.loss
            for e in run_epochs(m, model, parts_for_method(m, graph, num_parts, "hash"), EpochSettings(EPOCHS, lr=LR))[
                0
            ].epochs
        ]
        for m in (method, nearest)
    ]
    if all(abs(a - b) <= 1e-9 * abs(b) for a, b in zip(*curves, strict=True)):
        raise NotKept(f"lossy is idle: over {EPOCHS} epochs every loss equals that of the lossless form")


def check_unbiased(method: Method, ground: Ground) -> None:
    """The mean over draws of aggregated rows and of returned gradients equals the exact one statistically.

    The mean of every entry may deviate by z standard errors, with z such that an unbiased method fails once in 10,000
    runs. The standard error is that of the entry's sample plus, for rare events that the sample may lack, one largest
    deviation over all draws.
    """
    epochs, skip = PASSES // 4 if ground.quick else PASSES, method.promises().staleness
    graph, one, draws = rings(RINGS), rings(), RINGS * epochs
    upstream = _upstream(one.num_classes)
    found = passed(method, graph, upstream.repeat(RINGS, 1), epochs + skip)
    aggregated = found.logits[skip:].view(draws, RING, -1)
    returned = found.gradients[skip:].view(epochs, -1, RINGS, RING).transpose(1, 2).reshape(draws, -1, RING)
    wanted = single_process_pass(one_exchange(one), one, upstream)
    for name, sample, exact in zip(("aggregated rows", "gradients"), (aggregated, returned), wanted, strict=True):
        scale, largest = float(exact.abs().max()), float((sample - exact).abs().max())
        if not largest > 1e-9 * scale:
            raise NotKept(f"unbiased is idle: {name} are exact in all of {draws} draws")
        error = sample.std(0) / draws**0.5 + largest / draws + 1e-7 * scale
        z = NormalDist().inv_cdf(1 - FALSE_ALARM / (2 * exact.numel()))
        worst = float(((sample.mean(0) - exact).abs() / error).max())
        if worst > z:
            raise NotKept(f"unbiased: over {draws} draws the mean of {name} is off by {worst:.1f} standard errors")


def _upstream(num_classes: int) -> Tensor:
    return torch.randn(RING, num_classes, generator=torch.Generator().manual_seed(2)).double()


DRIFT, DRIFTING = 0.05, 12
"""Growth of what is sent from epoch to epoch, and the number of such epochs."""


def check_bounded(method: Method, ground: Ground) -> None:
    """Errors of received rows and returned gradients are within `error_bound`, and not all zero.

    Once with the same values in every epoch, and once with values that grow: what is kept from earlier epochs must
    follow them.
    """
    begin = method.promises().settles + method.promises().staleness
    for drift, epochs in ((0.0, begin + 3), (DRIFT, begin + DRIFTING)):
        _check_bounded(method, epochs, drift)


def _check_bounded(method: Method, epochs: int, drift: float) -> None:
    graph, num_parts = rings(), 3
    model, upstream, bound = one_exchange(graph), _upstream(graph.num_classes), method.error_bound(num_parts)
    found = passed(method, graph, upstream, epochs, drift)
    grow(model, (1.0 + drift) ** (epochs - 1))
    logits, gradient = single_process_pass(model, graph, upstream)
    dense, conv = model.layers
    assert isinstance(dense, Dense) and isinstance(conv, SAGEConv)
    hidden, weight = dense.linear.weight.detach() + dense.linear.bias.detach()[:, None], conv.neighbour.weight.detach()
    # The mean over neighbours passes on at most the largest error; the weight of the layer mixes hidden columns.
    forward = bound * float((hidden.abs().max() * weight.abs().sum(1)).max())
    # Gradients are sent before the weights mix them, or after that.
    backward = bound * num_parts * float((upstream.abs().max() * weight.abs().sum(0)).max())
    worst = float((found.logits[-1] - logits).abs().max()), float((found.gradients[-1] - gradient).abs().max())
    for name, error, limit in zip(("aggregated rows", "gradients"), worst, (forward, backward), strict=True):
        if not error <= limit:
            moving = f" while values grow by {drift:.0%} an epoch" if drift else ""
            raise NotKept(
                f"bounded: {name} are off by {error:.3g}{moving}; error_bound = {bound:.3g} allows {limit:.3g}"
            )
    if not max(worst) > 0:
        raise NotKept("bounded is idle: what is received is exact")


def check_compensated(method: Method, ground: Ground) -> None:
    """With frozen weights, gradients averaged over T epochs approach those of the lossless form as 1 / T."""
    graph, num_parts = random_graph(40, 160, seed=5), 3
    model, start = ground.model(method, graph, num_parts), method.promises().settles
    epochs = start + AVERAGED
    rounds = [
        run_epochs(m, model, parts_for_method(m, graph, num_parts, "hash"), EpochSettings(epochs, frozen=True))[
            0
        ].epochs
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
