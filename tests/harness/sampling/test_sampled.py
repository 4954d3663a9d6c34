"""Neighbour lists of a partitioned graph, drawn neighbourhoods and their weights, beside the graph and closed forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from harness import loopback
from harness.errors import InputError
from harness.graphs import Block, Graph, Part, from_edges
from harness.nn import Aggregation
from harness.rank import Rank
from harness.sampling import (
    EVERYTHING,
    EdgeNeighbours,
    Neighbours,
    SampledLayer,
    addresses,
    draw_hops,
    neighbour_weights,
    node_of,
)
from tests.support.conformance import make_parts
from tests.support.graphs import graphs, owners

KINDS: tuple[Any, ...] = ("mean", "gcn", "symmetric")
SERVICES = (Neighbours, EdgeNeighbours)


def odd_graph(num_nodes: int = 40) -> Graph:
    """A directed graph with a hub that all point to and that points to all, isolated nodes, and a repeated edge."""
    rng = np.random.default_rng(3)
    edges = rng.integers(0, num_nodes - 3, (2, 5 * num_nodes))
    others = np.arange(1, num_nodes - 3)
    hub = np.stack([others, others * 0])
    edges = np.concatenate([edges, hub, hub[::-1], np.array([[4, 4, 4], [5, 5, 5]])], axis=1)
    return from_edges(
        "odd", edges, num_nodes, x=rng.standard_normal((num_nodes, 3)).astype(np.float32),
        y=rng.integers(0, 2, num_nodes), train=np.arange(0, num_nodes, 2),
    )  # fmt: skip


def on_parts(graph: Graph, num_parts: int, kind: str, program: Callable[[Rank, Part], Any]) -> list[Any]:
    parts = make_parts(graph, owners(graph, num_parts, kind), num_parts)
    return loopback.run_ranks(lambda rank: program(rank, parts[rank.index]), num_parts, make_rank=ranks_of(num_parts))


def ranks_of(num_parts: int) -> Callable[[int], Rank]:
    return lambda index: Rank(index, num_parts, seed=7)


def addressed(graph: Graph, num_parts: int, kind: str, nodes: np.ndarray) -> Tensor:
    return addresses(torch.from_numpy(nodes), torch.from_numpy(owners(graph, num_parts, kind)[nodes].astype(np.int64)))


@given(
    graph=graphs(symmetric=False), num_parts=st.integers(1, 4), kind=st.sampled_from(["hash", "random", "first"]),
    service=st.sampled_from(SERVICES), seed=st.integers(0, 99),
)  # fmt: skip
def test_owners_return_the_lists_and_the_rows_of_the_graph(
    graph: Graph, num_parts: int, kind: str, service: type[Neighbours], seed: int
) -> None:
    async def program(rank: Rank, part: Part) -> None:
        assert part.x is not None
        order = np.random.default_rng(seed + rank.index).permutation(graph.num_nodes)
        nodes = order[: seed % (graph.num_nodes + 1)]
        ids, neighbours = addressed(graph, num_parts, kind, nodes), service.of(part)
        lists = await neighbours.lists(rank, ids, EVERYTHING, 1, 0)
        for i, node in enumerate(nodes):
            found = node_of(lists.columns[lists.indptr[i] : lists.indptr[i + 1]])
            assert found.tolist() == graph.indices[graph.indptr[node] : graph.indptr[node + 1]].tolist()
        x, degree = await neighbours.fetch(rank, ids, [part.x, part.graph.degree], label="x")
        assert torch.equal(x, torch.from_numpy(np.asarray(graph.x)[nodes]).double())
        assert degree.tolist() == graph.in_degree[nodes].tolist()
        block, new = lists.block(rank, ids, graph.num_nodes, 0)
        named = torch.cat([ids, new])
        assert len(named.unique()) == len(named) == block.num_cols
        assert torch.equal(named[block.indices.long()], lists.columns)

    on_parts(graph, num_parts, kind, program)


@pytest.mark.parametrize("service", SERVICES)
def test_what_a_node_draws_depends_neither_on_the_partition_nor_on_who_asks(service: type[Neighbours]) -> None:
    graph, seen = odd_graph(), dict[tuple[int, int, int], list[int]]()
    for num_parts, kind in ((1, "first"), (2, "hash"), (5, "random"), (3, "halves")):

        async def program(rank: Rank, part: Part) -> None:
            rank.epoch = 4
            seeds = addressed(graph, rank.size, kind, np.arange(graph.num_nodes)[:: rank.index + 1])  # noqa: B023
            for step in (0, 1):
                hops = await draw_hops(rank, service.of(part), [3, None, 2], seeds, step)
                assert [len(ids) for ids in hops.ids[2:]] == [hops.blocks[2].num_cols, len(seeds)]
                for l in (0, 2):
                    block, nodes = hops.blocks[l], node_of(hops.ids[l])
                    assert block is not None and len(nodes.unique()) == len(nodes) == block.num_cols
                    assert torch.equal(hops.ids[l][: len(hops.ids[l + 1])], hops.ids[l + 1])
                    for row in range(block.num_rows):
                        drawn = nodes[block.indices[block.indptr[row] : block.indptr[row + 1]].long()].tolist()
                        assert len(drawn) == min(int(graph.in_degree[nodes[row]]), 3 if l == 0 else 2)
                        assert seen.setdefault((step, l, int(nodes[row])), drawn) == drawn

        on_parts(graph, num_parts, kind, program)
    hub = [seen[step, l, 0] for step in (0, 1) for l in (0, 2)]
    assert len({tuple(sorted(drawn)[:2]) for drawn in hub}) > 1  # anew in every step and layer


def propagation(graph: Graph, kind: str) -> Tensor:
    """P without the self loop, and the self loop's weights, from the definition. A repeated edge counts twice."""
    dense = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    rows = torch.from_numpy(np.repeat(np.arange(graph.num_nodes), graph.in_degree))
    dense.index_put_((rows, torch.from_numpy(graph.indices.astype(np.int64))), torch.ones(1).double(), accumulate=True)
    degree = dense.sum(1)
    if kind == "mean":
        return dense / degree.clamp(min=1)[:, None]
    scale = (degree + 1 if kind == "gcn" else degree.clamp(min=1)).rsqrt()
    return scale[:, None] * dense * scale[None]


def self_loops(graph: Graph, kind: str) -> Tensor:
    degree = torch.from_numpy(graph.in_degree).double()
    return (1 / (degree + 1) if kind == "gcn" else degree * 0)[:, None]


def sampled(kind: Any, block: Block, degree: Tensor) -> SampledLayer:
    weights = neighbour_weights(Aggregation(kind), block, degree, torch.zeros(1, dtype=torch.float64))
    return SampledLayer(block, *weights)


@pytest.mark.parametrize("kind", KINDS)
def test_all_neighbours_give_the_whole_sum_and_its_gradient(kind: str) -> None:
    graph = odd_graph()
    exact = propagation(graph, kind) + torch.diag(self_loops(graph, kind)[:, 0])

    async def program(rank: Rank, part: Part) -> None:
        nodes = np.arange(graph.num_nodes)[rank.index :: 2]
        seeds = addressed(graph, rank.size, "random", nodes)
        hops = await draw_hops(rank, Neighbours.of(part), [EVERYTHING], seeds, 0)
        sources = node_of(hops.ids[0])
        assert hops.blocks[0] is not None
        degree = torch.from_numpy(graph.in_degree)[sources]
        y = torch.randn(len(sources), 3, dtype=torch.float64, requires_grad=True)
        z = sampled(kind, hops.blocks[0], degree).aggregate(y)
        dense = exact[nodes][:, sources]
        assert torch.allclose(z, dense @ y, rtol=0, atol=1e-12)
        upstream = torch.randn_like(z)
        (gradient,) = torch.autograd.grad((z * upstream).sum(), [y])
        assert torch.allclose(gradient, dense.T @ upstream, rtol=0, atol=1e-12)

    on_parts(graph, 3, "random", program)


@pytest.mark.parametrize("kind", KINDS)
def test_mean_and_variance_over_draws_are_those_of_the_closed_form(kind: str) -> None:
    """Var_v = (1/k) (d-k)/(d-1) sigma_v^2, over the places in v's list; z of nodes that draw all has no variance."""
    graph, fanout, draws = odd_graph(), 3, 2000
    y = torch.randn(graph.num_nodes, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    everything = np.arange(graph.num_nodes)

    async def program(rank: Rank, part: Part) -> Tensor:
        neighbours, found = Neighbours.of(part), []
        seeds = addressed(graph, rank.size, "hash", everything if rank.index == 0 else everything[:0])
        for step in range(draws):
            hops = await draw_hops(rank, neighbours, [fanout], seeds, step)
            sources = node_of(hops.ids[0])
            assert hops.blocks[0] is not None
            layer = sampled(kind, hops.blocks[0], torch.from_numpy(graph.in_degree)[sources])
            found.append(layer.aggregate(y[sources]))
        return torch.stack(found)

    z = on_parts(graph, 2, "hash", program)[0]
    p, loop = propagation(graph, kind), self_loops(graph, kind)
    exact, variance = p @ y + loop * y, torch.zeros_like(y)
    for v in range(graph.num_nodes):
        sources = graph.indices[graph.indptr[v] : graph.indptr[v + 1]].astype(np.int64)
        d, k = len(sources), min(len(sources), fanout)
        if d > k:
            times = np.bincount(sources, minlength=graph.num_nodes)[sources]
            terms = d * (p[v, sources] / torch.from_numpy(times))[:, None] * y[sources]
            variance[v] = terms.var(0, correction=0) / k * (d - k) / (d - 1)
    error = (z.mean(0) - exact).abs()
    assert float((error - 4 * (variance / draws).sqrt()).max()) < 1e-12
    assert float(z.var(0)[variance == 0].max()) < 1e-24
    assert float(z.var(0).sum()) == pytest.approx(float(variance.sum()), rel=0.1)
    assert float(variance.sum()) > 0


def test_shapes_follow_the_shares_of_a_recorded_draw() -> None:
    graph, fanouts = odd_graph(400), [4, None, EVERYTHING, 3]

    async def program(rank: Rank, part: Part) -> tuple[Any, ...]:
        seeds = Neighbours.of(part).own(part.train)
        hops = await draw_hops(rank, Neighbours.of(part), fanouts, seeds, 0)
        await Neighbours.of(part).fetch(rank, hops.ids[0], [part.x], label="x")  # type: ignore[list-item]
        counted, sent = rank.take_observed(), rank.traffic.take()
        ghost = Rank(rank.index, rank.size, device="meta")
        return [len(ids) for ids in hops.ids], [b.nnz for b in hops.blocks if b], counted, sent, ghost

    found = on_parts(graph, 3, "hash", program)
    total: dict[str, list[float]] = {}
    for _, _, counted, _, _ in found:
        for name, (part, whole) in counted.items():
            sums = total.setdefault(name, [0.0, 0.0])
            sums[0], sums[1] = sums[0] + part, sums[1] + whole
    rates = {name: part / whole for name, (part, whole) in total.items() if whole}
    parts = [part.shapes_only() for part in make_parts(graph, owners(graph, 3, "hash"), 3)]

    async def shapes(rank: Rank) -> tuple[Any, ...]:
        part = parts[rank.index]
        seeds = Neighbours.of(part).own(part.train)
        hops = await draw_hops(rank, Neighbours.of(part), fanouts, seeds, 0)
        await Neighbours.of(part).fetch(rank, hops.ids[0], [part.x], label="x")  # type: ignore[list-item]
        return [len(ids) for ids in hops.ids], [b.nnz for b in hops.blocks if b], rank.traffic.take()

    def ghost(index: int) -> Rank:
        rank = Rank(index, 3, device="meta")
        rank.rates = rates
        return rank

    drawn = loopback.run_ranks(shapes, 3, make_rank=ghost)
    for at in (0, 1):
        ours, theirs = (np.array([each[at] for each in runs]).sum(0) for runs in (drawn, found))
        assert np.abs(ours / theirs - 1).max() < 0.02, (ours, theirs)
    ours, theirs = (sum(int(sent.to.sum()) for sent in each) for each in ([d[2] for d in drawn], [f[3] for f in found]))
    assert ours == pytest.approx(theirs, rel=0.02)
    with pytest.raises(InputError, match="remote_nodes/3"):
        loopback.run_ranks(shapes, 3, make_rank=lambda index: Rank(index, 3, device="meta"))
