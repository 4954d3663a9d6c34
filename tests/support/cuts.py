"""Graphs for tests of vertex cuts, and reference partitioners in plain Python, edge by edge from the definitions."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from hypothesis import strategies as st

from harness.datasets import _npz as npz
from harness.graphs import Graph, from_edges
from tests.conftest import real_data

Pairs = list[tuple[int, int]]


@st.composite
def symmetric_graphs(draw: st.DrawFn, most_nodes: int = 16, most_edges: int = 40) -> Graph:
    """Every edge in both directions, with isolated nodes, self loops and repeated edges."""
    n = draw(st.integers(1, most_nodes))
    ends = st.integers(0, n - 1)
    return both_ways(n, draw(st.lists(st.tuples(ends, ends), max_size=most_edges)))


def both_ways(num_nodes: int, edges: Pairs) -> Graph:
    """The symmetric graph with these undirected edges."""
    directed = [*edges, *((b, a) for a, b in edges if a != b)]
    return from_edges("small", np.array(directed, np.int64).reshape(-1, 2).T, num_nodes)


def circulant(num_nodes: int, reach: int) -> Graph:
    """A ring in which every node has an edge to the next `reach` nodes."""
    return both_ways(num_nodes, [(a, (a + d) % num_nodes) for a in range(num_nodes) for d in range(1, reach + 1)])


def real_graph(name: str) -> Graph:
    return npz.read_graph(real_data() / f"{name}.npz")


def pairs_of(graph: Graph) -> Pairs:
    """The undirected edges, row by row of the neighbour lists."""
    rows = [graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist() for v in range(graph.num_nodes)]
    return [(u, v) for v, row in enumerate(rows) for u in row if u <= v]


def degrees(pairs: Pairs, num_nodes: int) -> list[int]:
    """Edges of every node, a self loop counted once."""
    return [sum(node in pair for pair in pairs) for node in range(num_nodes)]


def in_order(pairs: Pairs, degree: list[int], order: str) -> list[int]:
    if order == "degree":
        return sorted(range(len(pairs)), key=lambda e: degree[pairs[e][0]] + degree[pairs[e][1]])
    return list(range(len(pairs)))


def replicas(pairs: Pairs, part: Iterable[int], node: int) -> set[int]:
    """The parts with an edge of the node."""
    return {int(p) for p, pair in zip(part, pairs, strict=True) if node in pair}


def ebv(graph: Graph, num_parts: int, hosts: int, weights: tuple[float, float, float], order: str) -> list[int]:
    """CDFGNN, Eq. 24, term by term."""
    gamma, alpha, beta = weights
    pairs, n = pairs_of(graph), graph.num_nodes
    size, part = num_parts // hosts, [-1] * len(pairs)
    held: list[set[int]] = [set() for _ in range(num_parts)]
    edges = [0] * num_parts
    for e in in_order(pairs, degrees(pairs, n), order):
        ends, scores = set(pairs[e]), []
        for i in range(num_parts):
            host = set().union(*held[i // size * size : (i // size + 1) * size])
            new, far = len(ends - held[i]), len(ends - host)
            balance = alpha * edges[i] / (len(pairs) / num_parts) + beta * len(held[i]) / (n / num_parts)
            scores.append((1 - gamma) * new + gamma * far + balance)
        part[e] = scores.index(min(scores))
        held[part[e]] |= ends
        edges[part[e]] += 1
    return part


def hdrf(
    pairs: Pairs,
    order: Iterable[int],
    part: list[int],
    num_parts: int,
    degree: list[int] | None,
    capacity: float,
    weights: tuple[float, float],
) -> list[int]:
    """HDRF from the edges already in `part`; `degree` None counts the edges read."""
    held: list[set[int]] = [set() for _ in range(num_parts)]
    load = [part.count(i) for i in range(num_parts)]
    for pair, p in zip(pairs, part, strict=True):
        if p >= 0:
            held[p] |= set(pair)
    seen: dict[int, int] = {}
    for e in order:
        a, b = pairs[e]
        for end in {a, b}:
            seen[end] = seen.get(end, 0) + 1
        d = seen if degree is None else dict(enumerate(degree))
        share = d[a] / (d[a] + d[b])
        best, largest = -1, -1.0
        for i in range(num_parts):
            gain = (2 - share if a in held[i] else 0.0) + (1 + share if b in held[i] and a != b else 0.0)
            score = gain + weights[0] / (weights[1] + max(load) - min(load)) * (max(load) - load[i])
            if load[i] < capacity and score > largest:
                best, largest = i, score
        part[e] = best
        load[best] += 1
        held[best] |= {a, b}
    return part


def open_edges(pairs: Pairs, part: list[int], x: int) -> list[tuple[int, int]]:
    """(other end, edge) of the unassigned edges of x."""
    return sorted((sum(pair) - x, e) for e, pair in enumerate(pairs) if x in pair and part[e] < 0)


def hep(graph: Graph, num_parts: int, tau: float, lam: float) -> list[int]:
    """Neighbourhood expansion with sets, then HDRF."""
    pairs, n = pairs_of(graph), graph.num_nodes
    degree, count = degrees(pairs, n), len(pairs)
    high = {x for x in range(n) if degree[x] > tau * (2 * count / n)}
    between = [e for e, pair in enumerate(pairs) if set(pair) <= high]
    part, capacity, enough = [-1] * count, count // num_parts + 1, (count - len(between)) // num_parts + 1

    def join(x: int, i: int, members: set[int]) -> None:
        if x in members:
            return
        members.add(x)
        for y, e in open_edges(pairs, part, x) if x not in high else []:
            if y in high or y in members:
                room = [j for j in range(i, num_parts) if part.count(j) < capacity]
                part[e] = room[0] if room else num_parts - 1

    for i in range(num_parts - 1):
        members: set[int] = set()
        boundary: set[int] = set()
        while part.count(i) < enough:
            if boundary:
                x = min(boundary, key=lambda y: (len(open_edges(pairs, part, y)), y))
            else:
                free = [y for y in range(n) if y not in high and open_edges(pairs, part, y)]
                if not free:
                    break
                x = free[0]
                join(x, i, members)
            for y, e in open_edges(pairs, part, x):
                if part[e] < 0:
                    join(y, i, members)
                    boundary |= {y} - high
            boundary -= {x}
    rest = [e for e in range(count) if part[e] < 0 and e not in between] + between
    return hdrf(pairs, rest, part, num_parts, degree, capacity, (lam, 1.0))


def dne(graph: Graph, num_parts: int, balance: float, expand: float, seed: int) -> list[int]:
    """Rounds of expansion with sets."""
    pairs, n = pairs_of(graph), graph.num_nodes
    part, count = [-1] * len(pairs), len(pairs)
    capacity = max(-(-count // num_parts), int(balance * count / num_parts))
    starts = np.random.default_rng(seed).permutation(n).tolist()
    held: list[set[int]] = [set() for _ in range(num_parts)]
    boundary: list[set[int]] = [set() for _ in range(num_parts)]

    def left(x: int) -> tuple[int, int]:
        return len(open_edges(pairs, part, x)), x

    while -1 in part:
        smallest = min(range(num_parts), key=part.count)
        if (part.count(-1) + part.count(smallest)) * num_parts <= count:
            return [smallest if p < 0 else p for p in part]
        joined: set[int] = set()
        for i in [i for i in range(num_parts) if part.count(i) < capacity]:
            alive = sorted((x for x in boundary[i] if left(x)[0]), key=left)
            taken = max(1, int(expand * len(alive)))
            boundary[i] = set(alive[taken:])
            for x in alive[:taken] or [x for x in starts if left(x)[0]][:1]:
                for y, e in open_edges(pairs, part, x)[: capacity - part.count(i)]:
                    part[e] = i
                    held[i].add(x)
                    fresh = {y} - held[i]
                    held[i] |= fresh
                    boundary[i] |= fresh
                    joined |= fresh
        for x in sorted(joined):
            for y, e in open_edges(pairs, part, x):
                shared = [i for i in range(num_parts) if {x, y} <= held[i] and part.count(i) < capacity]
                part[e] = min(shared, key=part.count, default=-1)
    return part
