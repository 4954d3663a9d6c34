"""Expected sizes of sampled neighbourhoods, beside neighbourhoods that are sampled."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harness import loopback
from harness.graphs import Graph, from_edges
from harness.methods.registry import parse_method
from harness.rank import Rank
from harness.workloads import Degrees
from reports.ec_graph._rivals import FULL, Sampling, method_of
from tests.support.conformance import make_model, make_parts

NODES, MEAN, SPREAD, PARTS = 6000, 12.0, 1.2, 3
SAMPLING = Sampling(Degrees(mean=MEAN, spread=SPREAD), NODES, PARTS)


def graph() -> Graph:
    """Degrees near the assumed distribution: edges between nodes in proportion to gamma distributed weights."""
    rng = np.random.default_rng(0)
    shape = 1 / (SPREAD**2 - 1 / MEAN)
    weights = rng.gamma(shape, size=NODES)
    ends = rng.choice(NODES, (2, int(NODES * MEAN / 2)), p=weights / weights.sum())
    return from_edges(
        "gamma", ends, NODES, undirected=True, x=np.zeros((NODES, 3), np.float32), y=np.zeros(NODES, np.int64),
        num_classes=2, train=np.arange(0, NODES, 20), val=None, test=None,
    )  # fmt: skip


GRAPH = graph()


@pytest.mark.parametrize(("fanout", "z"), [(3, 1.0), (3, 0.6), (20, 0.9), (FULL, 1.0), (FULL, 0.7)])
def test_means_are_those_of_the_distribution(fanout: float, z: float) -> None:
    shape = 1 / (SPREAD**2 - 1 / MEAN)
    rng = np.random.default_rng(1)
    degree = rng.poisson(rng.gamma(shape, MEAN / shape, size=400_000))
    values = np.minimum(degree, fanout) * z**degree
    assert SAMPLING.kept(fanout, z) == pytest.approx(values.mean(), abs=5 * values.std() / 400_000**0.5)


@pytest.mark.parametrize("text", ["distdgl:fanout=4/3:batch=0", "agl:fanout=4/3:batch=0", "aligraph-fg:fanout=4/3",
                                  "agl:fanout=full/full:batch=0", "distdgl:fanout=full/full:batch=0"])  # fmt: skip
def test_expected_shares_are_near_those_of_a_sample(text: str) -> None:
    parts = make_parts(GRAPH, (np.arange(NODES) % PARTS).astype(np.int32), PARTS, torch.float32)
    model, method = make_model("gcn", GRAPH, dtype=torch.float32, layers=2), parse_method(text)

    async def program(rank: Rank) -> dict[str, list[float]]:
        rank.epoch = -1
        state = await method.setup(rank, parts[rank.index], model)
        rank.take_observed()
        rank.epoch = 0
        await method.epoch(rank, parts[rank.index], model, state, {}, method.optimizer(rank, model, 0.01, 0.0))
        return rank.take_observed()

    seen = loopback.run_ranks(program, PARTS)
    fanouts = [FULL if word == "full" else int(word) for word in text.split("fanout=")[1].partition(":")[0].split("/")]
    expected = SAMPLING.rates(method.name, len(GRAPH.train) / PARTS, fanouts)  # type: ignore[arg-type]
    for name, share in expected.items():
        part, whole = (sum(each[name][at] for each in seen) for at in (0, 1))
        if name.startswith(("kept_rows", "remote_labels")) and share in (0.0, 1.0):
            continue
        assert share == pytest.approx(part / whole, rel=0.15, abs=0.02), name
    assert {name for each in seen for name in each} - {"disk_bytes"} == set(expected)


def test_texts_have_the_fan_outs_from_the_training_nodes_outwards() -> None:
    assert method_of("DistDGL", "10/5") == "distdgl:fanout=10/5:batch=0"
    assert method_of("AGL", "10/5", 1000) == "agl:fanout=10/5:batch=1000"
    assert method_of("AliGraph-FG", "full/full") == "aligraph-fg:fanout=full/full"
