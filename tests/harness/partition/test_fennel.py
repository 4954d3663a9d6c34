"""Fennel's stream against its definition, node by node; what passes gain; bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import InputError
from harness.graphs import Graph
from harness.partition.edge import assign, quality
from harness.partition.partitioners import Fennel
from tests.harness.partition.test_partition import communities, graphs


def by_definition(graph: Graph, num_parts: int, kind: Fennel) -> list[int]:
    """FENNEL, Sec. 3, and restreaming, in file order."""
    nodes, edges = graph.num_nodes, graph.num_edges / 2
    alpha = num_parts**0.5 * edges / nodes**1.5
    full = max(-(-nodes // num_parts), int((1 + kind.imbalance) * nodes / num_parts))
    owner = [-1] * nodes
    for _ in range(kind.passes):
        before = list(owner)
        for v in range(nodes):
            old, owner[v] = owner[v], -1
            neighbours = [u for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist() if u != v]
            gains = {}
            for part in range(num_parts):
                size = owner.count(part)
                if size < full:
                    near = sum(owner[u] == part for u in neighbours)
                    gains[part] = near - alpha * kind.gamma * size ** (kind.gamma - 1)
            most = max(gains.values())
            owner[v] = old if gains.get(old, -np.inf) == most else min(p for p, gain in gains.items() if gain == most)
        if owner == before:
            break
    return owner


@settings(deadline=None, max_examples=40)
@given(
    graph=graphs(), num_parts=st.integers(2, 6), passes=st.integers(1, 4), imbalance=st.sampled_from([0.0, 0.1, 1.0])
)
def test_it_streams_as_defined(graph: Graph, num_parts: int, passes: int, imbalance: float) -> None:
    num_parts = min(num_parts, graph.num_nodes)
    if num_parts < 2:
        return
    kind = Fennel(passes=passes, gamma=2.0, imbalance=imbalance, order="file")  # a power of 1: no rounding
    assert kind.owners(graph, num_parts, 0).tolist() == by_definition(graph, num_parts, kind)


def test_passes_find_communities_and_parts_stay_below_their_bound() -> None:
    graph = communities(4000, groups=4)
    text = "fennel:passes={}:imbalance=0.02"
    once, often, none = (quality(graph, assign(graph, name, 4), 4) for name in (text.format(1), text.format(8), "hash"))
    assert often.volume < 0.95 * once.volume and once.volume < none.volume
    assert often.volume < 1.1 * quality(graph, assign(graph, "metis-cut", 4), 4).volume
    assert max(often.inner) <= 1020 and max(once.inner) <= 1020


def test_the_order_is_the_files_or_of_the_seed() -> None:
    graph = communities(500)
    assert not Fennel(order="file").seeded and Fennel().seeded
    assert (assign(graph, "fennel:order=file", 3, 1) == assign(graph, "fennel:order=file", 3, 2)).all()
    assert (assign(graph, "fennel", 3, 1) != assign(graph, "fennel", 3, 2)).any()


@pytest.mark.parametrize("option", ["passes=0", "gamma=1", "gamma=2.5", "imbalance=-1", "order=bfs"])
def test_options_out_of_range(option: str) -> None:
    with pytest.raises(InputError, match=option.partition("=")[0]):
        assign(communities(20), f"fennel:{option}", 2)
