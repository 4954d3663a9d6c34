"""Methods by name, and the syntax `name:option=value:option=value` of `--method`."""

from __future__ import annotations

from typing import Any

from harness import registry
from harness.methods.adaqp import AdaQP
from harness.methods.agl import AGL
from harness.methods.aligraph_fg import AliGraphFG
from harness.methods.as_gcn import ASGCN
from harness.methods.base import Method
from harness.methods.bns_gcn import BNSGCN
from harness.methods.cagnet import CAGNET
from harness.methods.cdfgnn import CDFGNN
from harness.methods.cluster_gcn import ClusterGCN
from harness.methods.distdgl import DistDGL
from harness.methods.distgnn import DistGNN
from harness.methods.distgnn_ec import DistGNNEC
from harness.methods.ec_graph import ECGraph
from harness.methods.ec_graph_s import ECGraphS
from harness.methods.fastgcn import FastGCN
from harness.methods.graphsage_ns import GraphSAGENS
from harness.methods.graphsaint import GraphSAINT
from harness.methods.ladies import LADIES
from harness.methods.pipegcn import PipeGCN
from harness.methods.roc import ROC
from harness.methods.sancus import SANCUS
from harness.methods.sar import SAR
from harness.methods.single import Single
from harness.methods.subgraph_approximation import SubgraphApproximation
from harness.methods.sylvie import SylvieA, SylvieS
from harness.methods.vanilla import Vanilla
from harness.methods.vr_gcn import VRGCN
from harness.registry import Registry

_BUILTIN: tuple[type[Method], ...] = (
    Single, Vanilla, BNSGCN, PipeGCN, SAR, SylvieS, SylvieA, SubgraphApproximation, CDFGNN, ECGraph, ECGraphS,
    DistGNN, DistGNNEC, CAGNET, SANCUS, ROC, AdaQP, GraphSAGENS, DistDGL, VRGCN,
    FastGCN, LADIES, ASGCN, ClusterGCN, GraphSAINT, AGL, AliGraphFG,
)  # fmt: skip

METHODS: Registry[type[Method]] = Registry("method", "haloscope.methods", {m.name: m for m in _BUILTIN})


def parse_method(text: str, **defaults: Any) -> Method:
    """A method from `name` or `name:option=value:...`; `defaults` apply where the method has that option.

    Raises:
        InputError: as `harness.registry.parse_named`.
    """
    return registry.parse_named(METHODS, text, **defaults)


def typical_methods(layers: int) -> list[str]:
    """Texts of all built-in methods of several ranks, as studies run them on models of so many layers."""
    made = [kind().typical(layers) for kind in METHODS.builtin.values() if kind.facts.cut != "none"]
    return [registry.short_text(method) for method in made]


def cut_of(text: str) -> str:
    """`facts.cut` of the method that a text names, whatever its options. InputError for an unknown name."""
    return METHODS.find(text.partition(":")[0]).facts.cut
