"""Central and marginal rows: sums in two steps are bit-equal to those in one, and central ones need no halo."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from harness import loopback
from harness.effects import Direction
from harness.exchanges import BitAssignment, CentralSplit, CodedMessage
from harness.exchanges._bit_assignment import squared_factors
from harness.exchanges._mixed_pull import SplitSum
from harness.graphs import Graph, from_edges
from harness.nn import Aggregation
from harness.rank import Rank
from tests.support.conformance import make_parts
from tests.support.graphs import owners, random_graph

GRAPH = random_graph(90, 200, seed=4)
OWNER = owners(GRAPH, 3, "random")
PARTS = make_parts(GRAPH, OWNER, 3, torch.float32)


def mostly_inside() -> Graph:
    """A dense graph of the same parts without most of the edges between them."""
    whole = random_graph(90, 700, seed=5)
    edges = np.stack([whole.indices, np.repeat(np.arange(90), whole.in_degree)])
    kept = (OWNER[edges[0]] == OWNER[edges[1]]) | (edges.sum(0) % 11 == 0)
    return from_edges("near", edges[:, kept], 90, x=whole.x, y=whole.y)


KINDS = [Aggregation("gcn"), Aggregation("symmetric"), Aggregation("mean")]
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("aggregation", KINDS, ids=lambda a: a.kind)
@pytest.mark.parametrize("local", [True, False])
def test_sums_in_two_steps_are_bit_equal(aggregation: Aggregation, direction: Direction, local: bool) -> None:
    """On random parts, of which no node is central, and on parts of a graph that has most edges within them."""
    parts, shares = make_parts(mostly_inside() if local else GRAPH, OWNER, 3, torch.float32), []
    for part in parts:
        split = CentralSplit.of(Rank(0, 3), part.graph)
        generator = torch.Generator().manual_seed(1)
        x, halo = (torch.randn(n, 7, generator=generator) for n in (part.graph.num_own, part.graph.num_halo))
        total = SplitSum(split, aggregation, x, direction)
        total.central()
        central = total.out.index_select(0, split.central).clone()
        found = total.marginal(halo)
        once = aggregation.forward if direction == "forward" else aggregation.adjoint
        assert torch.equal(found, once(part.graph, x, halo))
        assert torch.equal(central, found.index_select(0, split.central))
        assert torch.equal(central, once(part.graph, x, torch.zeros_like(halo)).index_select(0, split.central))
        assert sorted([*split.central.tolist(), *split.marginal.tolist()]) == list(range(part.graph.num_own))
        shares.append(len(split.central) / part.graph.num_own)
    assert all(0.2 < share < 0.9 for share in shares) if local else max(shares) < 0.2


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("aggregation", KINDS, ids=lambda a: a.kind)
def test_factors_are_those_of_the_aggregation(aggregation: Aggregation, direction: Direction) -> None:
    """Column by column, from the aggregation of unit vectors."""
    graph = PARTS[1].graph
    unit = torch.eye(graph.num_halo)
    once = aggregation.forward if direction == "forward" else aggregation.adjoint
    table = once(graph, torch.zeros(graph.num_own, graph.num_halo), unit)
    assert torch.allclose(squared_factors(graph, aggregation, direction), table.square().sum(0), rtol=1e-5)


MESSAGES = [CodedMessage(1, direction, 20, KINDS[2]) for direction in DIRECTIONS]


def assigned(group: int, weight: float) -> list[tuple[BitAssignment, Any, Any]]:
    """Per rank: the assignment, the ranges it was given, and the bits it chose."""

    async def program(rank: Rank) -> tuple[BitAssignment, Any, Any]:
        part = PARTS[rank.index]
        made = await BitAssignment.of(rank, part.plan, part.graph, MESSAGES, group, weight)
        generator = torch.Generator().manual_seed(rank.index)
        count = len(part.plan.send_rows)
        trace = {m.label: 10 ** (4 * torch.rand(count, generator=generator)) for m in MESSAGES}
        return made, trace, await made.assign(rank, trace)

    return loopback.run_ranks(program, 3)


def test_readers_know_the_bits_of_what_owners_send() -> None:
    found = assigned(4, 0.5)
    for message in MESSAGES:
        for owner, (made, _, bits) in enumerate(found):
            ends = made.plan.send_counts.cumsum()
            for reader, (theirs, _, known) in enumerate(found):
                starts = theirs.plan.recv_counts.cumsum() - theirs.plan.recv_counts
                begin, count = int(starts[owner]), int(theirs.plan.recv_counts[owner])
                mine = bits["sent"][message.label][int(ends[reader]) - count : int(ends[reader])]
                assert torch.equal(known["read"][message.label][begin : begin + count], mine)
    assert len({int(b) for _, _, bits in found for t in bits["sent"].values() for b in t}) == 3


@pytest.mark.parametrize("group", [1, 4, 1000])
def test_rows_of_more_variance_never_get_fewer_bits_and_groups_are_alike(group: int) -> None:
    for rank, (made, trace, bits) in enumerate(assigned(group, 0.4)):
        for at, message in enumerate(MESSAGES):
            scores = trace[message.label] * made.weights[:, at]
            for mine, chosen in zip(
                scores.split(made.plan.send_counts.tolist()),
                bits["sent"][message.label].split(made.plan.send_counts.tolist()),
                strict=True,
            ):
                ordered: Tensor = chosen[mine.argsort(descending=True)].int()
                assert (ordered.diff() <= 0).all()
                assert all(len(set(piece.tolist())) == 1 for piece in ordered.split(group) if len(piece))
        assert made.num_groups(rank) == sum(-(-int(n) // group) for n in made.plan.send_counts)


def test_weights_are_those_of_the_readers() -> None:
    (first, *_), *others = assigned(4, 0.5)
    begin = 0
    for reader, count in enumerate(first.plan.send_counts.tolist()):
        if count:
            theirs = squared_factors(PARTS[reader].graph, KINDS[2], "forward")
            assert torch.equal(first.weights[begin : begin + count, 0], theirs[:count])  # rank 0's nodes come first
        begin += count
    assert len(others) == 2
