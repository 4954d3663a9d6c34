"""Expected sizes of sampled neighbourhoods, beside neighbourhoods that are sampled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from harness import loopback
from harness.graphs import Graph, from_edges
from harness.methods.registry import parse_method
from harness.rank import Rank
from harness.workloads import Degrees, hash_boundary
from reports.core.context import Context
from reports.ec_graph._metis import cut_by_metis
from reports.ec_graph._rivals import FULL, Sampling, rival_config, rival_method
from reports.ec_graph._times import Machines, timed_counts, workload
from tests.support.conformance import make_model, make_parts

NODES, MEAN, SPREAD, PARTS = 6000, 12.0, 1.2, 3
HASH = 1 - 1 / PARTS  # share of edges that hash parts cut
SAMPLING = Sampling(Degrees(mean=MEAN, spread=SPREAD), NODES, PARTS, HASH)


def graph(cut: float) -> Graph:
    """Degrees near the assumed distribution: edges between nodes in proportion to gamma distributed weights. Below the
    cut of hash parts (id modulo their number), both ends are of one part but for a share of the edges."""
    rng = np.random.default_rng(0)
    shape, count = 1 / (SPREAD**2 - 1 / MEAN), int(NODES * MEAN / 2)
    weights = rng.gamma(shape, size=NODES)
    ends = rng.choice(NODES, (2, count), p=weights / weights.sum())
    for home in range(PARTS) if cut < HASH else ():
        moved = (ends[0] % PARTS == home) & (rng.random(count) >= cut / HASH)
        nodes = np.arange(home, NODES, PARTS)
        ends[1, moved] = rng.choice(nodes, moved.sum(), p=weights[nodes] / weights[nodes].sum())
    return from_edges(
        "gamma", ends, NODES, undirected=True, x=np.zeros((NODES, 3), np.float32), y=np.zeros(NODES, np.int64),
        num_classes=2, train=np.arange(0, NODES, 20), val=None, test=None,
    )  # fmt: skip


GRAPHS = {cut: graph(cut) for cut in (HASH, 0.15)}


@pytest.mark.parametrize(("fanout", "z"), [(3, 1.0), (3, 0.6), (20, 0.9), (FULL, 1.0), (FULL, 0.7)])
def test_means_are_those_of_the_distribution(fanout: float, z: float) -> None:
    shape = 1 / (SPREAD**2 - 1 / MEAN)
    rng = np.random.default_rng(1)
    degree = rng.poisson(rng.gamma(shape, MEAN / shape, size=400_000))
    values = np.minimum(degree, fanout) * z**degree
    assert SAMPLING.kept(fanout, z) == pytest.approx(values.mean(), abs=5 * values.std() / 400_000**0.5)


@pytest.mark.parametrize(
    ("text", "cut"),
    [("distdgl:fanout=4/3:batch=0", HASH), ("agl:fanout=4/3:batch=0", HASH), ("aligraph-fg:fanout=4/3", HASH),
     ("agl:fanout=full/full:batch=0", HASH), ("distdgl:fanout=full/full:batch=0", HASH),
     ("distdgl:fanout=4/3:batch=0", 0.15), ("distdgl:fanout=full/full:batch=0", 0.15)],
)  # fmt: skip
def test_expected_shares_are_near_those_of_a_sample(text: str, cut: float) -> None:
    whole_graph = GRAPHS[cut]
    parts = make_parts(whole_graph, (np.arange(NODES) % PARTS).astype(np.int32), PARTS, torch.float32)
    model, method = make_model("gcn", whole_graph, dtype=torch.float32, layers=2), parse_method(text)

    async def program(rank: Rank) -> dict[str, list[float]]:
        rank.epoch = -1
        state = await method.setup(rank, parts[rank.index], model)
        rank.take_observed()
        rank.epoch = 0
        await method.epoch(rank, parts[rank.index], model, state, {}, method.optimizer(rank, model, 0.01, 0.0))
        return rank.take_observed()

    seen = loopback.run_ranks(program, PARTS)
    fanouts = [FULL if word == "full" else int(word) for word in text.split("fanout=")[1].partition(":")[0].split("/")]
    sampling = replace(SAMPLING, cut=cut)
    expected = sampling.rates(method.name, len(whole_graph.train) / PARTS, fanouts)  # type: ignore[arg-type]
    for name, share in expected.items():
        part, whole = (sum(each[name][at] for each in seen) for at in (0, 1))
        if not whole:  # no list of another rank's node is asked for by the last layer
            assert share == 0.0 and name == "remote_edges/1"
            continue
        assert share == pytest.approx(part / whole, rel=0.15, abs=0.02), name
    assert {name for each in seen for name in each} - {"disk_bytes"} == set(expected)


def test_texts_have_the_fan_outs_from_the_training_nodes_outwards() -> None:
    assert rival_method("DistDGL", "10/5") == "distdgl:fanout=10/5:batch=0"
    assert rival_method("AGL", "10/5", 1000) == "agl:fanout=10/5:batch=1000"
    assert rival_method("AliGraph-FG", "full/full") == "aligraph-fg:fanout=full/full"


@pytest.mark.parametrize("dataset", ["reddit", "ogbn-products"])
def test_metis_has_the_printed_boundary_and_cuts_less_than_hash(dataset: str, tmp_path: Path) -> None:
    context = Context(out=tmp_path, seconds=0.1, quiet=True)
    printed = {"reddit": (8, 460_000 / (0.66 * 232_965)), "ogbn-products": (10, 1_848_000 / 2_449_029)}
    parts, per_node = printed[dataset]
    bed = Machines(context, dataset, 2, parts)
    found, nodes = cut_by_metis(bed), timed_counts(dataset)["vertices"]
    assert found.boundary * parts / nodes == pytest.approx(per_node, rel=0.01)
    assert 0 < found.edges < 1 - 1 / parts
    assert found.boundary < hash_boundary(nodes, bed.degrees(), parts)


def test_distdgl_has_the_parts_of_metis_and_the_others_of_hash(tmp_path: Path) -> None:
    context = Context(out=tmp_path, seconds=0.1, quiet=True)
    bed = Machines(context, "reddit", 2)
    described = {system: rival_config(bed, system, "10/5")["dataset"] for system in ("DistDGL", "AGL", "AliGraph-FG")}
    assert described["AGL"] == described["AliGraph-FG"] == workload(context, "reddit")
    assert described["DistDGL"] != described["AGL"]
    assert str(round(cut_by_metis(bed).boundary)) in Path(described["DistDGL"]).read_text()
