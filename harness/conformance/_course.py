"""Checks of the sequence of epochs: repeats, cycle, settles, timed, bytes, memory, and the kinds of parts."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from harness.conformance._ground import Deal, Ground, parts_for_method, random_graph
from harness.conformance._rounds import EpochSettings, NotKept, RankSeen, plain, run_epochs
from harness.errors import InputError
from harness.methods.bases.base import Method, Seen, WireBytes
from harness.nn import GNN

COURSE, SHORT_COURSE = 20, 8
"""Epochs in which what comes round is looked for, beside two whole cycles; in short, for messages."""

ADAPTING = 24
"""Epochs of training in which a method that adapts must send something else."""

CODED_WIDTH = 12
"""Hidden width with which bytes are checked: rows of it differ in bytes with every number of bits."""

CUTS: tuple[tuple[int, Deal], ...] = ((1, "hash"), (2, "first"), (3, "random"), (3, "first"), (5, "halves"))

QUICK_CUTS: tuple[tuple[tuple[int, Deal], ...], ...] = (
    ((1, "hash"), (3, "random"), (5, "halves")),
    ((2, "first"), (3, "first")),
)
"""The same, each on one of the two graphs."""


def check_cut(method: Method, ground: Ground) -> None:
    """Trains on 1, 2, 3 and 5 ranks: parts without nodes, isolated nodes, pairs of ranks that share nothing."""
    ran = 0
    for at, graph in enumerate((random_graph(24, 40, seed=1), random_graph(7, 5, seed=2))):
        for num_parts, deal in QUICK_CUTS[at] if ground.quick else CUTS:
            try:
                model = ground.model(method, graph, num_parts)
            except InputError as error:
                if num_parts == 1:
                    refusal = str(error)
                continue
            if method.facts.cut == "none" and num_parts > 1:
                raise NotKept(f"cut=none: the method accepts {num_parts} ranks")
            ran += 1
            where = f"{graph.num_nodes} nodes on {num_parts} ranks ({deal})"
            try:
                ranks = run_epochs(method, model, parts_for_method(method, graph, num_parts, deal), EpochSettings(3))
            except NotKept as error:
                raise NotKept(f"cut={method.facts.cut}: {where}: {error}") from error
            losses = [e.loss for e in ranks[0].epochs]
            if not all(math.isfinite(loss) for loss in losses):
                raise NotKept(f"cut={method.facts.cut}: losses {losses} with {where}")
            for index, rank in enumerate(ranks):
                if not all(
                    torch.equal(a, b) for a, b in zip(*(r.epochs[-1].parameters for r in (rank, ranks[0])), strict=True)
                ):
                    raise NotKept(
                        f"cut={method.facts.cut}: rank {index} ends with other parameters than rank 0 ({where})"
                    )
    if not ran:
        raise NotKept(f"cut={method.facts.cut}: the method runs on no number of ranks: {refusal}")


def _ranks(method: Method) -> int:
    """Of parts that differ."""
    return 1 if method.facts.cut == "none" else 3


def _played(method: Method, ground: Ground, settings: EpochSettings) -> list[RankSeen]:
    graph = random_graph(40, 160, seed=5)
    model = ground.model(method, graph, _ranks(method), dtype=torch.float32)
    return run_epochs(method, model, parts_for_method(method, graph, _ranks(method), "hash", torch.float32), settings)


def _course(method: Method, ground: Ground, epochs: int) -> list[RankSeen]:
    """At least so many epochs of training, run once for all checks on this ground."""
    known: list[RankSeen] | None = ground.courses.get(method)
    if known is None or len(known[0].epochs) < epochs:
        known = ground.courses[method] = _played(method, ground, EpochSettings(max(epochs, _longest(method, ground))))
    return known


def _longest(method: Method, ground: Ground) -> int:
    """Epochs that `check_cycle` or `check_adaptive` looks at."""
    if method.promises().adaptive:
        return ADAPTING
    return _steady(method) + 2 * method.cycle() + (SHORT_COURSE if ground.quick else COURSE)


def _steady(method: Method) -> int:
    """The first epoch from which messages are periodic."""
    return max(method.promises().settles, method.promises().staleness + 1)


def check_repeats(method: Method, ground: Ground) -> None:
    """With shapes only, epochs of a kind after the first have the same effects, of the same sizes, and operators."""
    for index, rank in enumerate(_played(method, ground, EpochSettings(2 * method.cycle() + 2, shapes_only=True))):
        first: dict[int | None, int] = {}
        for epoch, seen in enumerate(rank.epochs[1:], 1):
            like = first.setdefault(method.epoch_kind(epoch), epoch)
            wanted = rank.epochs[like].steps
            for at, (a, b) in enumerate(zip(seen.steps, wanted, strict=False)):
                if a != b:
                    raise NotKept(f"repeats: step {at} of rank {index} is {a} in epoch {epoch} and {b} in epoch {like}")
            if len(seen.steps) != len(wanted):
                raise NotKept(
                    f"repeats: rank {index} has {len(seen.steps)} steps in epoch {epoch}, {len(wanted)} in {like}"
                )


def check_cycle(method: Method, ground: Ground) -> None:
    """The messages (kinds, names and types) are periodic with period `cycle`, and with no smaller one."""
    cycle, start, longest = method.cycle(), _steady(method), _longest(method, ground)
    for index, rank in enumerate(_course(method, ground, longest)):
        steps = [seen.steps for seen in rank.epochs[start:longest]]
        for e in range(len(steps) - cycle):
            if steps[e] != steps[e + cycle]:
                raise NotKept(
                    f"cycle={cycle}: rank {index} sends other messages in epoch {start + e + cycle} than {start + e}"
                )
        if cycle > 1 and all(steps[e] == steps[0] for e in range(cycle)):
            raise NotKept(f"cycle={cycle} is idle: every epoch sends the same messages")


def check_adaptive(method: Method, ground: Ground) -> None:
    """Some epoch sends other messages than the one before; otherwise the method has a cycle."""
    for rank in _course(method, ground, ADAPTING):
        steps = [seen.steps for seen in rank.epochs[max(method.promises().settles, 1) : ADAPTING]]
        if all(a == steps[0] for a in steps):
            raise NotKept(f"adaptive is idle: from epoch {method.promises().settles} on every epoch sends the same")


def _bytes(ranks: list[RankSeen], epoch: int) -> WireBytes:
    """Bytes over all ranks by direction and layer."""
    found: WireBytes = {}
    for rank in ranks:
        for direction, layers in rank.epochs[epoch].traffic.layers.items():
            into = found.setdefault(direction, {})
            for layer, count in layers.items():
                into[layer] = into.get(layer, 0) + count
    return found


def check_settles(method: Method, ground: Ground) -> None:
    """With frozen weights, bytes are periodic from epoch `settles` on, and not before."""
    settles, cycle = method.promises().settles, method.cycle()
    end = settles + max(cycle, SHORT_COURSE if ground.quick else COURSE)
    ranks = _played(method, ground, EpochSettings(end + cycle, frozen=True))
    for e in range(settles, end):
        if _bytes(ranks, e) != _bytes(ranks, e + cycle):
            raise NotKept(
                f"settles={settles}: epoch {e} sends {_bytes(ranks, e)}, epoch {e + cycle} {_bytes(ranks, e + cycle)}"
            )
    if all(_bytes(ranks, e) == _bytes(ranks, e + cycle) for e in range(settles)):
        raise NotKept(f"settles={settles} is idle: bytes come round from the first epoch on")


def check_bytes(method: Method, ground: Ground) -> None:
    """Counted bytes equal those of `wire_bytes`, in every epoch, layer and direction."""
    epochs = max(method.cycle(), method.promises().settles) + 3
    settings = EpochSettings(epochs)
    graph, num_parts = random_graph(40, 160, seed=5), _ranks(method)
    wide = replace(ground, options={"hidden": CODED_WIDTH, **ground.options})
    model = wide.model(method, graph, num_parts, dtype=torch.float32)
    ranks = run_epochs(method, model, parts_for_method(method, graph, num_parts, "hash", torch.float32), settings)
    for epoch in range(epochs):
        wanted = stated(method, model, ranks, epoch)
        if wanted is None:
            continue
        found = _bytes(ranks, epoch)
        for direction in {*found, *wanted}:
            ours, theirs = ({l: n for l, n in b.get(direction, {}).items() if n} for b in (found, wanted))
            if ours != theirs:
                raise NotKept(f"bytes: epoch {epoch}, {direction}: by layer {ours} were sent, the formula has {theirs}")


def stated(method: Method, model: GNN, ranks: list[RankSeen], epoch: int) -> WireBytes | None:
    """The bytes by the method's formula for an epoch that was run."""
    return method.wire_bytes(model, [Seen(r.part, r.state, r.epochs[epoch].observed) for r in ranks], epoch)


def check_memory(method: Method, ground: Ground) -> None:
    """Training resumed from the memory of an epoch is bit-equal to unbroken training; the memory is a tree of
    tensors."""
    stop = max(method.promises().staleness, method.promises().settles // 2) + 3
    end = stop + 3
    first = _played(method, ground, EpochSettings(stop))
    saved = [(plain(r.left[0]), *r.left[1:]) for r in first]
    torch.manual_seed(2)  # results must not depend on the global generator
    rest = _played(method, ground, EpochSettings(end, first=stop, saved=saved))
    torch.manual_seed(1)
    whole = _course(method, ground, end)
    for index in range(len(whole)):
        losses = [e.loss for e in first[index].epochs + rest[index].epochs]
        unbroken = [e.loss for e in whole[index].epochs[:end]]
        if losses != unbroken:
            epoch = int(np.flatnonzero(np.asarray(losses) != np.asarray(unbroken))[0])
            raise NotKept(
                f"memory: gone on from epoch {stop}, epoch {epoch} has the loss {losses[epoch]}, not {unbroken[epoch]}"
            )


def check_untimed(method: Method, ground: Ground) -> None:
    """Losses and bytes do not depend on the order in which ranks begin; for a `timed` method they do."""
    backwards = tuple(reversed(range(_ranks(method) * method.replicas())))
    ours, theirs = _course(method, ground, 5), _played(method, ground, EpochSettings(5, order=backwards))
    same = all(
        a.loss == b.loss and a.traffic.layers == b.traffic.layers
        for one, other in zip(ours, theirs, strict=True)
        for a, b in zip(one.epochs[:5], other.epochs, strict=True)
    )
    if method.promises().timed and same:
        raise NotKept("timed is idle: losses and bytes are the same whichever rank begins")
    if not method.promises().timed and not same:
        raise NotKept("timed=False: losses or bytes change with the order in which ranks begin")
