"""Masters and the quality of vertex cuts against counting by hand and by brute force."""

from __future__ import annotations

import json
import re
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import InputError
from harness.graphs import Graph
from harness.partition.partitioners import undirected_pairs
from harness.partition.vertex import VertexQuality, assign_edges, vertex_quality
from harness.partition.vertex import _masters as masters_module
from harness.partition.vertex._masters import masters
from tests.support.cuts import both_ways, circulant, pairs_of, real_graph, replicas, symmetric_graphs


@st.composite
def cuts(draw: st.DrawFn) -> tuple[Graph, np.ndarray, int, int]:
    """A graph, any part of every edge (parts may be empty), the number of parts, a number of hosts that divides it."""
    graph, hosts = draw(symmetric_graphs()), draw(st.integers(1, 3))
    num_parts, count = hosts * draw(st.integers(1, 3)), len(pairs_of(graph))
    part = draw(st.lists(st.integers(0, num_parts - 1), min_size=count, max_size=count))
    return graph, np.array(part, np.int32), num_parts, hosts


def chosen_masters(graph: Graph, part: np.ndarray, num_parts: int, hosts: int) -> list[int]:
    """The documented rule: host with most replicas, then most edges, fewest masters so far, lowest."""
    pairs, found, size = pairs_of(graph), [], num_parts // hosts
    for node in range(graph.num_nodes):
        edges = [sum(p == i and node in pair for p, pair in zip(part, pairs, strict=True)) for i in range(num_parts)]
        held = [sum(e > 0 for e in edges[i // size * size : (i // size + 1) * size]) for i in range(num_parts)]
        found.append(min(range(num_parts), key=lambda i: (-held[i], -edges[i], found.count(i), i)))  # noqa: B023
    return found


@settings(max_examples=100)
@given(cut=cuts())
def test_masters_follow_their_rule(cut: tuple[Graph, np.ndarray, int, int]) -> None:
    graph, part, num_parts, hosts = cut
    u, v = undirected_pairs(graph)
    found = masters(u, v, part, graph.num_nodes, num_parts, hosts)
    assert found.dtype == np.int32
    assert found.tolist() == chosen_masters(graph, part, num_parts, hosts)


def test_masters_do_not_depend_on_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = circulant(97, 3)
    u, v = undirected_pairs(graph)
    part = assign_edges(graph, "dne", 6, 2)
    whole = masters(u, v, part, 97, 6, 2)
    monkeypatch.setattr(masters_module, "_COUNTERS", 60)
    assert (masters(u, v, part, 97, 6, 2) == whole).all()


def test_isolated_nodes_get_masters_in_turn() -> None:
    u, v = undirected_pairs(both_ways(10, [(0, 1)]))
    found = masters(u, v, np.array([1], np.int32), 10, 4)
    assert found.tolist() == [1, 1, 0, 2, 3, 0, 2, 3, 0, 1]


@settings(max_examples=100)
@given(cut=cuts())
def test_quality_equals_brute_force(cut: tuple[Graph, np.ndarray, int, int]) -> None:
    graph, part, num_parts, hosts = cut
    found, home = vertex_quality(graph, part, num_parts, hosts), chosen_masters(graph, part, num_parts, hosts)
    held = [replicas(pairs_of(graph), part, node) | {home[node]} for node in range(graph.num_nodes)]
    inner, outer = [0] * num_parts, [0] * num_parts
    for node, parts in enumerate(held):
        for mirror in parts - {home[node]}:
            near = mirror * hosts // num_parts == home[node] * hosts // num_parts
            for sender in (mirror, home[node]):  # gather, scatter
                (inner if near else outer)[sender] += 1
    assert list(found.replicas) == [sum(i in parts for parts in held) for i in range(num_parts)]
    assert list(found.edges) == [part.tolist().count(i) for i in range(num_parts)]
    assert list(found.masters) == [home.count(i) for i in range(num_parts)]
    assert (list(found.inner), list(found.outer)) == (inner, outer)
    mirrors = sum(len(parts) - 1 for parts in held)
    assert found.num_mirrors == mirrors and sum(inner) + sum(outer) == 2 * mirrors
    assert found.replication == pytest.approx(1 + mirrors / graph.num_nodes, abs=1e-12)


def test_quality_of_the_path_by_hand() -> None:
    """a-b-c-d with an edge on each of parts 0, 1 and 3: b and c are cut; hosts are {0, 1} and {2, 3}; e is isolated."""
    found = vertex_quality(both_ways(5, [(0, 1), (1, 2), (2, 3)]), np.array([0, 1, 3], np.int32), 4, 2)
    assert found.replicas == (2, 2, 1, 2)  # part 2 holds e alone
    assert found.masters == (1, 1, 1, 2)  # a at 0, b at 1 (0 has one already), c at 3, d at 3, e at 2
    assert found.edges == (1, 1, 0, 1)
    assert found.inner == (1, 1, 0, 0)  # b between 0 and 1
    assert found.outer == (0, 1, 0, 1)  # c between 1 and 3
    assert found.largest_rows == 2
    assert found.replication == 7 / 5 and found.num_mirrors == 2
    assert found.edge_balance == 4 / 3 and found.vertex_balance == 8 / 7 and found.master_balance == 8 / 5


def test_summary_and_rows_are_plain() -> None:
    graph = circulant(30, 2)
    found = vertex_quality(graph, assign_edges(graph, "hep", 6, 0, 3), 6, 3)
    summary, rows = found.summary(), found.rows()
    assert json.loads(json.dumps([summary, rows])) == [summary, rows]
    assert summary["num_parts"] == len(rows) == 6
    assert summary["max_outer"] == max(found.outer) and summary["inner"] == sum(found.inner)
    assert [row["part"] for row in rows] == list(range(6))
    assert [row["replicas"] for row in rows] == list(found.replicas)
    stored = json.loads(json.dumps(asdict(found)))
    assert VertexQuality(**{name: tuple(column) for name, column in stored.items()}) == found


def test_one_part_has_no_mirrors() -> None:
    found = vertex_quality(circulant(9, 1), np.zeros(9, np.int32), 1)
    assert found == VertexQuality((9,), (9,), (9,), (0,), (0,))
    assert found.replication == found.edge_balance == found.vertex_balance == 1


def test_a_graph_without_edges() -> None:
    found = vertex_quality(both_ways(5, []), np.empty(0, np.int32), 2)
    assert found.replicas == found.masters == (3, 2) and found.edge_balance == 1


@pytest.mark.parametrize("num_parts", [4, 8, 16])
def test_the_share_of_outer_messages_is_that_of_the_published_table(num_parts: int) -> None:
    """CDFGNN, Table 3, EBV without hosts in its score on two hosts: the master lies where most replicas do."""
    graph = real_graph("facebook_pages")
    found = vertex_quality(graph, assign_edges(graph, "ebv:gamma=0", num_parts), num_parts, 2)
    published = {4: 138583 / (104217 + 138583), 8: 639459 / (695905 + 639459), 16: 9988776 / (12395102 + 9988776)}
    assert sum(found.outer) / (sum(found.inner) + sum(found.outer)) == pytest.approx(published[num_parts], abs=0.02)


@pytest.mark.parametrize(
    ("part", "num_parts", "hosts", "message"),
    [
        (np.zeros(4, np.int32), 2, 1, "must be integers [5], one per undirected edge, not int32 [4]"),
        (np.zeros(5), 2, 1, "not float64 [5]"),
        (np.full(5, 2, np.int32), 2, 1, "must be 0 to 1, not 2 to 2"),
        (np.full(5, -1, np.int32), 2, 1, "must be 0 to 1, not -1 to -1"),
        (np.zeros(5, np.int32), 4, 3, "cannot be spread evenly over 3 hosts"),
    ],
)
def test_bad_parts_are_refused(part: np.ndarray, num_parts: int, hosts: int, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        vertex_quality(circulant(5, 1), part, num_parts, hosts)
