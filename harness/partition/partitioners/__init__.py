"""The partitioners: METIS, label propagation, KaMinPar, Fennel, hash, contiguous and ranges cut edges; EBV, HEP, DNE,
Libra and HDRF cut vertices.

Only the assignment of nodes or edges to parts is made here; `harness.partition.edge` and `harness.partition.vertex`
check what they are given and build the parts. A new partitioner is one class in a file of its own and one line in
`PARTITIONERS`; other packages use the entry-point group `haloscope.partitioners`.
"""

from harness import registry
from harness.partition.partitioners._dne import DNE
from harness.partition.partitioners._ebv import EBV
from harness.partition.partitioners._fennel import Fennel
from harness.partition.partitioners._hdrf import HDRF
from harness.partition.partitioners._hep import HEP
from harness.partition.partitioners._kaminpar import KaMinPar, kaminpar_version
from harness.partition.partitioners._label_propagation import LabelPropagation, clustered_order
from harness.partition.partitioners._libra import Libra
from harness.partition.partitioners._metis import Metis, MetisCut, metis, metis_version, undirected
from harness.partition.partitioners._numbered import Contiguous, Hash
from harness.partition.partitioners._pairs import has, pair_ids, put, replica_sets, undirected_pairs
from harness.partition.partitioners._partitioner import EdgePartitioner, NodePartitioner, Partitioner
from harness.partition.partitioners._ranges import Ranges
from harness.registry import Registry

_BUILTIN: tuple[type[Partitioner], ...] = (
    MetisCut, Metis, LabelPropagation, KaMinPar, Fennel, Hash, Contiguous, Ranges, EBV, HEP, DNE, Libra, HDRF,
)  # fmt: skip

PARTITIONERS: Registry[type[Partitioner]] = Registry(
    "partitioner", "haloscope.partitioners", {kind.name: kind for kind in _BUILTIN}
)


def parse_partitioner(text: str) -> Partitioner:
    """A partitioner from `name` or `name:option=value:...`. InputError as `harness.registry.parse_named`."""
    return registry.parse_named(PARTITIONERS, text)


__all__ = [
    "EdgePartitioner",
    "NodePartitioner",
    "PARTITIONERS",
    "Partitioner",
    "Ranges",
    "clustered_order",
    "has",
    "kaminpar_version",
    "metis",
    "metis_version",
    "pair_ids",
    "parse_partitioner",
    "put",
    "replica_sets",
    "undirected",
    "undirected_pairs",
]
