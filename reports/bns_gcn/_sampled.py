"""Sampling-based systems beside BNS-GCN: their settings, and epochs on one device of its machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harness.errors import InputError
from reports.bns_gcn._machine import CLUSTER
from reports.bns_gcn.testbed import TITLES, bed_of, sage, shape
from reports.core.context import Context, demand
from reports.core.predict import Fit, Seconds
from reports.core.table import Ordering, Row
from reports.core.train import Trained

WORKERS = {"reddit": 26, "ogbn-products": 12}
"""Cores that draw batches. ogbn-products: the data-loader workers of PyG's script (pyg-team/pytorch_geometric,
examples/ogbn_products_sage.py), whose accuracy Table 5 quotes. Reddit: those of the one processor that the machine is
printed with; what drew the batches of Table 11 is not printed."""
STAND_IN_NODES = 5_000  # of the graph on which shares of sampled edges and rows are recorded
SAMPLED_TIMES = (
    "sampling-based systems run on one device of the machine, with the settings of their authors' code as far as they "
    "are known (batch, neighbours or nodes drawn; the paper prints none, nor the devices); the model is the table's. "
    f"How many rows and edges a step draws is recorded on a synthetic graph of {STAND_IN_NODES} nodes with the printed "
    "degree, with batches and draws that are the same share of it. Batches are drawn ahead of training by several "
    "cores: 12 for ogbn-products, the workers of PyG's script, and 26 for Reddit, the cores of a Xeon 6230R, of which "
    "the machine has at least one; the paper says of no system how many cores draw. Each draws at the rate of one core "
    "that was measured, so they share no memory bandwidth, and the fitted factor of the devices is not on it. What is "
    "left of the epochs is training; only orders are judged"
)
RECORDED = ("graphsage-ns", "fastgcn", "ladies", "as-gcn", "vr-gcn")
"""Methods whose draws on a smaller graph, with batches in proportion, say what they draw on the published one."""
OF_PARTS = "how many edges a batch of clusters or a subgraph keeps depends on the structure of the graph itself"
ONE_DEVICE = (
    "sampling-based systems train on one rank, with the settings of their authors' code as far as known; they take "
    "many steps an epoch where the full graph takes one"
)


def in_proportion(method: str, share: float) -> str:
    """The method with that share of its batch and of the nodes that it draws, at least one."""
    name, *words = method.split(":")
    pairs = [word.partition("=") for word in words]
    scaled = (
        f"{key}={max(round(share * int(value)), 1) if key in ('batch', 'nodes') else value}" for key, _, value in pairs
    )
    return ":".join([name, *scaled])


def recorded_rates(context: Context, method: str, name: str) -> dict[str, float]:
    """What a sampling method observes in an epoch on a synthetic graph with the degree of a published one."""
    nodes, edges, _, classes = shape(name)
    made = f"synthetic:nodes={STAND_IN_NODES},degree={edges / nodes:.0f},features=8,classes={min(classes, 40)}"
    config = {
        **sage(name), "dataset": made, "split": "random:0.1/0.05/0.05", "parts": 1, "epochs": 1, "hidden": 8,
        "method": in_proportion(method, STAND_IN_NODES / nodes), "eval_every": -1, "threads": 1,
    }  # fmt: skip
    (record,) = context.runs([config], f"sampled shares of {method}")
    last = demand(record)["epochs"][-1]
    return {key: float(share) for key, share in (last.get("observed") or {}).items()}


def drawn_ahead(one_core: Seconds, workers: int, slower: float) -> Seconds:
    """An epoch whose batches so many cores draw during training, from one in which one core draws before each step.

    `slower` is the fitted factor on the machine's speed in that epoch: it is of training, not of what cores draw.
    """
    trained, drawn = one_core.epoch - one_core.sample, one_core.sample / slower / workers
    compute = one_core.compute - one_core.sample + drawn
    return replace(one_core, epoch=max(trained, drawn), sample=drawn, compute=compute)


def sampled_epoch(context: Context, method: str, name: str, fit: Fit) -> tuple[Seconds | None, str]:
    """An epoch of a sampling-based system on one device, or None and the reason."""
    if method.partition(":")[0] not in RECORDED:
        return None, OF_PARTS
    bed = replace(bed_of(context, CLUSTER, name, 1, halo=0.0), epochs=1)  # of hundreds of steps, all alike
    try:
        one_core = bed.seconds(method, fit.of_program(0.0), recorded_rates(context, method, name))
        return drawn_ahead(one_core, WORKERS[name], fit.compute), ""
    except InputError as error:
        return None, str(error).rpartition(".json: ")[2]


def sampled_time(label: str, line: Any, seconds: float | None, why: str, method: str, at: tuple[str, str]) -> Row:
    """The row of a time of a sampling-based system; only its place in orders is judged."""
    return Row(
        label=label, quantity=line.metric.replace("_", " "), unit=line.unit, published=line.value, ours=seconds,
        how="needs data" if seconds is None else "simulated", judge="order",
        note=why or f"{method}, on one device, batches drawn ahead by several cores", at=at,
    )  # fmt: skip


def behind_full_graph(name: str, printed: Mapping[str, float], run: Trained, best: str, worst: str) -> list[Ordering]:
    """Orders of accuracies: the full graph against each sampling-based system, and those against the worst one.

    Args:
        printed: system as printed -> printed score, `best` (trained on the full graph) among them; only those trained.
        worst: the printed system that is behind all others.
    """
    pairs = [(best, system) for system in printed if system != best]
    pairs += [(system, worst) for system in printed if worst in printed and system not in (best, worst)]
    found = []
    for pair in pairs:
        ahead, behind = sorted(pair, key=lambda system: -printed[system])
        text = f"{ahead} is more accurate than {behind}, {TITLES[name]}, {run.where}"
        found.append(run.ordering(text, {ahead: ahead, behind: behind}))
    return found
