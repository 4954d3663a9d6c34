"""Methods by name, and the syntax `name:option=value:option=value` of `--method`.

Names are known without the import of any method; a method's module is imported when the method is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness import registry
from harness.registry import Registry, class_places

if TYPE_CHECKING:
    from harness.methods.bases.base import Method

GROUP = "haloscope.methods"

_CLASSES = {
    "single": "single:Single",
    "vanilla": "vanilla:Vanilla",
    "bns-gcn": "bns_gcn:BNSGCN",
    "pipegcn": "pipegcn:PipeGCN",
    "sar": "sar:SAR",
    "sylvie-s": "sylvie:SylvieS",
    "sylvie-a": "sylvie:SylvieA",
    "subgraph-approximation": "subgraph_approximation:SubgraphApproximation",
    "cdfgnn": "cdfgnn:CDFGNN",
    "ec-graph": "ec_graph:ECGraph",
    "ec-graph-s": "ec_graph_s:ECGraphS",
    "distgnn": "distgnn:DistGNN",
    "distgnn-ec": "distgnn_ec:DistGNNEC",
    "cagnet": "cagnet:CAGNET",
    "sancus": "sancus:SANCUS",
    "roc": "roc:ROC",
    "adaqp": "adaqp:AdaQP",
    "graphsage-ns": "graphsage_ns:GraphSAGENS",
    "distdgl": "distdgl:DistDGL",
    "vr-gcn": "vr_gcn:VRGCN",
    "fastgcn": "fastgcn:FastGCN",
    "ladies": "ladies:LADIES",
    "as-gcn": "as_gcn:ASGCN",
    "cluster-gcn": "cluster_gcn:ClusterGCN",
    "graphsaint": "graphsaint:GraphSAINT",
    "agl": "agl:AGL",
    "aligraph-fg": "aligraph_fg:AliGraphFG",
}
"""Name -> module of this folder, and class."""

METHODS: Registry[type[Method]] = Registry("method", GROUP, class_places("harness.methods", GROUP, _CLASSES))


def parse_method(text: str, **defaults: Any) -> Method:
    """A method from `name` or `name:option=value:...`; `defaults` apply where the method has that option.

    Raises:
        InputError: as `harness.registry.parse_named`.
    """
    return registry.parse_named(METHODS, text, **defaults)


def typical_methods(layers: int) -> list[str]:
    """Texts of all built-in methods of several ranks, as studies run them on models of so many layers."""
    made = [kind().typical(layers) for kind in METHODS.own().values() if kind.facts.cut != "none"]
    return [registry.short_text(method) for method in made]


def cut_of(text: str) -> str:
    """`facts.cut` of the method that a text names, whatever its options. InputError for an unknown name."""
    return METHODS.find(text.partition(":")[0]).facts.cut
