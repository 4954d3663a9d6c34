"""GraphSAINT's samplers against the probabilities of their definitions, and the counts of pre-sampled subgraphs."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats

from harness.graphs import Graph, from_edges
from harness.rank import random_key
from harness.sampling import SubgraphSampler, pre_sample
from harness.sampling._saint import LARGEST_RATIO, UNSEEN, SaintKind, SubgraphCounts
from tests.support.graphs import random_graph

FALSE_ALARM = 1e-4
SMALL = np.array([[0, 0, 1, 1, 2, 3], [1, 2, 2, 3, 3, 4]])  # a node of degree 1, two of degree 3, and node 5 alone


def small() -> Graph:
    return from_edges("small", SMALL, 6, undirected=True)


def drawn(sampler: SubgraphSampler, graph: Graph, draws: int, seed: int = 0) -> list[tuple[int, ...]]:
    pointers, columns = torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices)
    keys = (random_key(seed, -1, 0, -1, f"draw/{d}") for d in range(draws))
    return [tuple(sampler.draw(pointers, columns, key, 0).tolist()) for key in keys]


def shares(sets: list[tuple[int, ...]], num_nodes: int) -> np.ndarray:
    """How often each pair of nodes was in a set; each node, on the diagonal."""
    held = np.zeros((num_nodes, num_nodes))
    for found in sets:
        held[np.ix_(found, found)] += 1
    return held / len(sets)


def within(found: np.ndarray, wanted: np.ndarray, draws: int) -> None:
    """Shares are within the deviation that one of them exceeds in one of 10,000 runs."""
    z = stats.norm.isf(FALSE_ALARM / (2 * wanted.size))
    error = np.sqrt((wanted * (1 - wanted)).clip(min=0.0) / draws)  # rounding leaves some just below 0
    assert np.all(np.abs(found - wanted) <= z * error + 1 / draws)


def edge_list(graph: Graph) -> np.ndarray:
    """Every undirected edge once, [E, 2]."""
    rows = np.repeat(np.arange(graph.num_nodes), graph.in_degree)
    return np.stack([rows, graph.indices], 1)[rows < graph.indices]


def test_nodes_are_drawn_in_proportion_to_their_degree() -> None:
    """p_v = 1 - (1 - q_v)^n, p_uv = 1 - (1 - q_u)^n - (1 - q_v)^n + (1 - q_u - q_v)^n."""
    graph, draws, n = random_graph(60, 90, seed=1), 4000, 25
    q = graph.in_degree / graph.num_edges
    alone = (1 - q) ** n
    wanted = 1 - alone[:, None] - alone[None, :] + (1 - q[:, None] - q[None, :]) ** n
    np.fill_diagonal(wanted, 1 - alone)
    found = shares(drawn(SubgraphSampler("node", n), graph, draws), 60)
    within(found, wanted, draws)
    isolated = graph.in_degree == 0
    assert isolated.any() and not found[isolated].any()


def test_edges_are_drawn_by_the_degrees_of_their_ends() -> None:
    """With S_v the probabilities of v's edges together: p_v = 1 - (1 - S_v)^m, and for an edge uv of probability p_e
    p_uv = 1 - (1 - S_u)^m - (1 - S_v)^m + (1 - S_u - S_v + p_e)^m."""
    graph, draws, m = random_graph(60, 90, seed=1), 4000, 12
    edges, degree = edge_list(graph), graph.in_degree
    p = 1 / degree[edges[:, 0]] + 1 / degree[edges[:, 1]]
    p /= p.sum()
    dense = np.zeros((60, 60))
    dense[edges[:, 0], edges[:, 1]] = dense[edges[:, 1], edges[:, 0]] = p
    s = dense.sum(1)
    alone = (1 - s) ** m
    wanted = 1 - alone[:, None] - alone[None, :] + (1 - s[:, None] - s[None, :] + dense) ** m
    np.fill_diagonal(wanted, 1 - alone)
    within(shares(drawn(SubgraphSampler("edge", m), graph, draws), 60), wanted, draws)


def sets_of_walks(graph: Graph, roots: int, depth: int) -> Counter[tuple[int, ...]]:
    """The probability of every set of visited nodes, by enumeration."""
    walks: Counter[tuple[int, ...]] = Counter()

    def step(path: tuple[int, ...], p: float) -> None:
        near = graph.indices[graph.indptr[path[-1]] : graph.indptr[path[-1] + 1]]
        if len(path) > depth or not len(near):
            walks[path] += p  # type: ignore[assignment]
            return
        for u in near:
            step((*path, int(u)), p / len(near))

    for root in range(graph.num_nodes):
        step((root,), 1 / graph.num_nodes)
    found: Counter[tuple[int, ...]] = Counter()
    for several in product(walks, repeat=roots):
        nodes = tuple(sorted({v for walk in several for v in walk}))
        found[nodes] += np.prod([walks[walk] for walk in several])
    return found


def sets_of_frontiers(graph: Graph, size: int, frontier: int, clip: int) -> Counter[tuple[int, ...]]:
    """The probability of every set that the frontier's walk keeps, by enumeration."""
    found: Counter[tuple[int, ...]] = Counter()

    def step(slots: tuple[int, ...], kept: frozenset[int], left: int, p: float) -> None:
        weights = [min(int(graph.in_degree[v]), clip or 99) for v in slots]
        if not left or not sum(weights):
            found[tuple(sorted(kept | set(slots)))] += p  # type: ignore[assignment]
            return
        for i, v in enumerate(slots):
            for u in map(int, graph.indices[graph.indptr[v] : graph.indptr[v + 1]]):
                now = (*slots[:i], u, *slots[i + 1 :])
                step(now, kept | {u}, left - 1, p * weights[i] / sum(weights) / graph.in_degree[v])

    for slots in product(range(graph.num_nodes), repeat=frontier):
        step(slots, frozenset(), size - frontier, graph.num_nodes**-frontier)
    return found


def fits(sets: list[tuple[int, ...]], wanted: Counter[tuple[int, ...]]) -> None:
    """Chi-square of the sets that were drawn; rare ones are put together."""
    assert set(sets) <= set(wanted)
    assert sum(wanted.values()) == pytest.approx(1.0)
    seen, draws = Counter(sets), len(sets)
    often = [found for found in wanted if wanted[found] * draws >= 10]
    counts = [seen[found] for found in often]
    expected = [wanted[found] * draws for found in often]
    if draws - sum(expected) > 1:
        counts.append(draws - sum(counts))
        expected.append(draws - sum(expected))
    scaled = np.array(expected) * draws / sum(expected)
    assert stats.chisquare(counts, scaled).pvalue > FALSE_ALARM


def test_walks_visit_every_set_as_often_as_they_should() -> None:
    sets = drawn(SubgraphSampler("rw", 2, depth=2), small(), 20_000)
    fits(sets, sets_of_walks(small(), 2, 2))
    assert (5,) in sets  # the node without edges: both walks began and stayed there


@pytest.mark.parametrize("clip", [0, 1])
def test_the_frontier_is_replaced_by_degree(clip: int) -> None:
    sets = drawn(SubgraphSampler("mrw", 4, frontier=2, clip=clip), small(), 20_000)
    fits(sets, sets_of_frontiers(small(), 4, 2, clip))
    other = sets_of_frontiers(small(), 4, 2, 1 - clip)
    with pytest.raises(AssertionError):  # the two rules differ by more than chance
        fits(sets, other)


def test_a_frontier_of_three_slots_is_drawn_from_the_tree_of_four() -> None:
    fits(drawn(SubgraphSampler("mrw", 4, frontier=3), small(), 20_000), sets_of_frontiers(small(), 4, 3, 0))


@pytest.mark.parametrize("kind", ["node", "edge", "rw", "mrw"])
def test_a_draw_is_a_function_of_its_key(kind: SaintKind) -> None:
    sampler, graph = SubgraphSampler(kind, 6, depth=2, frontier=3), random_graph(60, 150, seed=1)
    assert drawn(sampler, graph, 5) == drawn(sampler, graph, 5)
    assert len(set(drawn(sampler, graph, 50))) > 40
    assert all(list(found) == sorted(set(found)) for found in drawn(sampler, graph, 5))


@pytest.mark.parametrize("kind", ["node", "edge", "rw", "mrw"])
def test_graphs_without_edges_or_nodes(kind: SaintKind) -> None:
    sampler = SubgraphSampler(kind, 5, depth=2, frontier=3)
    empty, isolated = (from_edges("none", np.empty((2, 0), np.int64), n) for n in (0, 4))
    assert drawn(sampler, empty, 3) == [()] * 3
    found = drawn(sampler, isolated, 3)
    assert found == [()] * 3 if kind in ("node", "edge") else all(found)
    assert pre_sample(sampler, empty.indptr, empty.indices, lambda i: i, 10.0).subgraphs == 0


def test_counts_are_those_of_the_subgraphs() -> None:
    graph, sampler = random_graph(60, 150, seed=1), SubgraphSampler("node", 20)
    counts = pre_sample(sampler, graph.indptr, graph.indices, lambda i: random_key(0, -1, 0, -1, f"draw/{i}"), 500.0)
    sets = drawn(sampler, graph, counts.subgraphs)
    assert sum(map(len, sets[:-1])) <= 500 < sum(map(len, sets))
    held = shares(sets, 60) * len(sets)
    rows = np.repeat(np.arange(60), graph.in_degree)
    assert np.array_equal(counts.nodes, np.rint(held.diagonal()))
    assert np.array_equal(counts.edges, np.rint(held[rows, graph.indices]))


def test_what_was_not_seen_has_the_authors_values() -> None:
    counts = SubgraphCounts(8, np.array([4, 0, 8]), np.array([2, 0, 0, 8]))
    indptr = np.array([0, 2, 3, 4])
    assert counts.edge_ratios(indptr).tolist() == [2.0, LARGEST_RATIO, UNSEEN, 1.0]
    assert counts.loss_weights().tolist() == [2.0, 8 / UNSEEN, 1.0]
