"""The graphs, models, testbed and program of BNS-GCN's experiments, as counts and settings; Sylvie has the same graphs.

Counts are those of the stand-ins' presets (published, `harness.datasets`); depth, width and dropout are printed
(`reports/published/bns-gcn-setup.toml`). Sylvie's are in `reports.sylvie`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from harness.datasets import PRESETS
from harness.workloads import METIS_LAW, RANDOM_LAW, halo_spread
from reports.core import load
from reports.core.context import Context
from reports.core.predict import OF_HOST, Fit, Testbed, parts_of
from reports.core.table import Fitted

TITLES = {
    "reddit": "Reddit",
    "yelp": "Yelp",
    "ogbn-products": "ogbn-products",
    "amazon": "Amazon",
    "ogbn-papers100m": "ogbn-papers100M",
}
PRESET = {"reddit": "reddit-like", "yelp": "yelp-like", "ogbn-products": "products-like", "amazon": "amazon-like"}
INDUCTIVE = ("reddit", "yelp", "amazon")  # only training nodes, and edges between them, are in the graph that trains
LINEAR = {"yelp": 2}  # of the layers, in the authors' script: dense, exchange nothing
AMAZON = {"layers": 4, "linear_layers": 2, "hidden": 512, "dropout": 0.1}  # which only Sylvie has: of its scripts
SPREAD = 1.5  # coefficient of variation of degrees; fitted on the three counts of BNS-GCN's Table 8 for random parts

WORKS = {"p=1.0": "vanilla", "p=0.1": "bns-gcn:p=0.1", "p=0.01": "bns-gcn:p=0.01", "p=0.0": "bns-gcn:p=0"}
"""Setting as printed -> method."""
RATES = {"p = 1": WORKS["p=1.0"], "p = 0.1": WORKS["p=0.1"], "p = 0.01": WORKS["p=0.01"]}
"""The rates that the figures draw -> method."""
SYSTEMS = {
    "AS-GCN": "as-gcn:batch=256:nodes=512", "ClusterGCN": "cluster-gcn", "FastGCN": "fastgcn:batch=256:nodes=400",
    "GraphSAGE": "graphsage-ns:batch=512:fanout=10", "GraphSAINT": "graphsaint", "GraphSAINT sampler": "graphsaint",
    "LADIES": "ladies:batch=512:nodes=512", "NeighborSampling": "graphsage-ns:batch=1024:fanout=15/10/5",
    "VR-GCN": "vr-gcn:batch=512:fanout=2", "sampling-based": "graphsage-ns",
}  # fmt: skip
"""Sampling-based system as printed -> the method that corresponds to it, with its authors' settings as far as known (of
GraphSAGE 10 neighbours in every layer, PyG's script for NeighborSampling); rows stay empty while haloscope has none."""


def shape(name: str, *, whole: bool = False) -> tuple[int, int, int, int]:
    """Nodes, directed edges, features and classes of the graph that trains; a subgraph keeps edges by the share of
    nodes squared. `whole`: of the graph with all its nodes, for programs that leave none out."""
    recipe = PRESETS[PRESET[name]]
    share = recipe.split[0] if name in INDUCTIVE and recipe.split and not whole else 1.0
    edges = recipe.nodes * recipe.degree * share**2
    return round(recipe.nodes * share), round(edges), recipe.features, recipe.classes


def sage(name: str) -> dict[str, Any]:
    """Settings of the GraphSAGE that a graph is trained with."""
    printed = _printed_model(name)
    known = {k: printed[k] for k in ("layers", "hidden", "dropout")} if printed else AMAZON
    linear = {"linear_layers": LINEAR[name]} if name in LINEAR else {}
    return {"model": "sage", "norm": "layer", "layer0": "precompute", **known, **linear}


def num_exchanging_layers(model: Mapping[str, Any]) -> int:
    """Layers that exchange rows in every epoch: all graph layers but the first, whose inputs are summed once."""
    return int(model["layers"]) - int(model.get("linear_layers", 0)) - 1


def halo_of(volume_mb: float, model: Mapping[str, Any]) -> float:
    """Halo rows of one exchange behind a printed volume of an epoch: both directions, fp32, summed over ranks."""
    return volume_mb * load.MB / (2 * num_exchanging_layers(model) * int(model["hidden"]) * 4)


def bed_of(
    context: Context,
    cluster: str,
    name: str,
    parts: int,
    *,
    halo: float | None = None,
    model: Mapping[str, Any] | None = None,
    how: Literal["METIS", "random"] = "METIS",
    whole: bool = False,
    **counts: Any,
) -> Testbed:
    """A graph in parts with `halo` boundary nodes in all, or with the keys of `[parts]` given instead.

    Random parts are equal. METIS balances own nodes only: Reddit's boundary nodes differ from part to part as Table 1
    prints them, those of other graphs as on the graphs measured (`halo_spread`); edges follow by `how`'s law. `whole`:
    with the nodes that an inductive training leaves out (`shape`).
    """
    counts = {"partitioner": how.lower(), "degrees": {"spread": SPREAD}, **counts}
    if halo is not None:
        mean = round(halo / parts)
        counts["boundary"] = mean if how == "random" or parts == 1 else uneven(name, mean, parts)
    described = parts_of(*shape(name, whole=whole), count=parts, **counts)
    return Testbed(
        context=context, cluster=cluster, model=sage(name) if model is None else model, workload=described, parts=parts,
        hooks=True,
    )  # fmt: skip


def uneven(name: str, mean: int, parts: int) -> dict[str, Any]:
    """The boundary nodes of METIS' parts as a distribution over them (docs/workloads.md), of the given mean."""
    if name != "reddit":
        return {"mean": mean, "spread": round(halo_spread(parts), 3)}
    printed = load.select(load.published("bns-gcn-table1"), metric="boundary_inner_ratio")["value"].to_numpy(float)
    count = len(printed)
    places, at = (np.arange(count) + 0.5) / count, (np.arange(parts) + 0.5) / parts
    found = np.interp(at, places, np.sort(printed) / printed.mean())
    found = 1 + (found / found.mean() - 1) * halo_spread(parts) / halo_spread(count)
    quantiles = zip(np.linspace(0, 1, parts).tolist(), (mean * found).tolist(), strict=True)
    return {"quantiles": [[place, boundary] for place, boundary in quantiles]}


def laws_of(*hows: str) -> tuple[str, ...]:
    """What is assumed of the edges and the balance of parts, one line per kind of partition."""
    metis = (
        METIS_LAW,
        "boundary nodes differ from part to part: Reddit's as in BNS-GCN's Table 1, those of other graphs as METIS "
        "leaves them on the graphs measured by the same command",
    )
    return (*(metis if "METIS" in hows else ()), *((RANDOM_LAW,) if "random" in hows else ()))


def eq4(inner: float, halo: float, share: float) -> float:
    """Memory with a share of the boundary over memory with all of it, by Eq. 4 per layer: 3 inner + boundary."""
    return (3 * inner + share * halo) / (3 * inner + halo)


GRADIENT_HOOKS = (
    "gradients are summed during the backward pass (gradients=early): the authors' programs start the all-reduce of "
    "every parameter from a hook on its gradient (helper/reducer.py), so that only the lowest layer's is waited for, "
    "and the others share the links with the exchanges below"
)
"""What is assumed of the all-reduce of BNS-GCN's program and of those made from it."""

AS_CODED = (
    "times are of the authors' program, which keeps int(p n) of each pair's n boundary nodes (sampling=fixed): both "
    "ranks know how many, and one message announces which. Alg. 1 draws each alone, which a second message with their "
    "number would have to announce; accuracies are of that"
)
"""What is assumed of the draws in timed epochs."""


def as_coded(method: str) -> str:
    """A method of `WORKS` as the authors' program draws its boundary nodes (`AS_CODED`)."""
    return f"{method}:sampling=fixed" if method.startswith("bns-gcn:") and "sampling=" not in method else method


LOGGED_PARTS = 4, 8  # of Sylvie's public logs


def logged_host_s(parts: int) -> float:
    """The least seconds of an epoch that were logged of BNS-GCN's program outside its exchanges and all-reduce.

    `parts`: one of `LOGGED_PARTS`.
    """
    logs = load.published("sylvie-logs")
    own = logs[logs["system"].str.startswith("BNS-GCN") & (logs["partitions"].astype(int) == parts)]
    return float(own["compute_s"].min())


def program_host() -> tuple[float, float]:
    """Seconds of an epoch that the host of BNS-GCN's program works alone, and for every other part.

    The line through what was logged in 4 and in 8 parts: the program draws from the boundary with every other part,
    and adds its edges to the epoch's graph, one part after the other.
    """
    few, many = LOGGED_PARTS
    each = (logged_host_s(many) - logged_host_s(few)) / (many - few)
    return logged_host_s(few) - each * (few - 1), each


def with_program_host(fit: Fit, context: Context) -> Fit:
    """The constants under BNS-GCN's program (`program_host`), whose numbers join those in `context.fits`."""
    host, each = program_host()
    few, many = LOGGED_PARTS
    row = f"the least compute logged of it in {few} and in {many} parts (sylvie/logs-compute)"
    for constant, seconds in ((OF_HOST, host), (f"{OF_HOST} for every other part", each)):
        known = Fitted(testbed="BNS-GCN's program", constant=constant, value=1e3 * seconds, unit="ms", row=row)
        context.fits[known] = None
    return fit.of_program(host, each)


def work_of(setting: str) -> str:
    """The method of a printed setting ("p=0.3; METIS")."""
    rate = setting.split(";")[0].strip()
    return WORKS.get(rate, f"bns-gcn:{rate}")


def trainable(name: str, **changes: Any) -> dict[str, Any]:
    """Settings that the paper trains a graph with (`--full`)."""
    protocol = "inductive" if name in INDUCTIVE else "transductive"
    return {**sage(name), "lr": _printed_model(name).get("lr", 0.01), "protocol": protocol, **changes}


def epochs_of(name: str) -> int:
    """Epochs that BNS-GCN trains a graph for; 1000 where it does not say."""
    return int(_printed_model(name).get("epochs", 1000))


def _printed_model(name: str) -> dict[str, Any]:
    """BNS-GCN's GraphSAGE on a graph, as printed; empty for a graph that only Sylvie has."""
    models = load.entries("bns-gcn", "model", name="GraphSAGE", dataset=name)
    return models[0] if models else {}
