"""What is tried: methods with options, by partitioner and number of devices; and why others are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.config import RunConfig
from harness.errors import InputError
from harness.graphs import Graph
from harness.methods.bases.base import Method
from harness.methods.bases.mini_batch import Batched
from harness.methods.registry import cut_of, parse_method
from harness.methods.vanilla import Vanilla
from harness.nn import build_model
from harness.running import plan_of

EXACT = "vanilla"
"""The method that stands for exact training: it comes out alike on any number of devices."""

TRIED_METHODS = (
    "single", EXACT, "sar", "cagnet", "sylvie-s:bits=1", "sylvie-s:bits=4", "sylvie-a:bits=1", "bns-gcn:p=0.1",
    "bns-gcn:p=0.5", "pipegcn", "ec-graph", "adaqp", "sancus", "subgraph-approximation", "cdfgnn", "distgnn",
    "cluster-gcn", "graphsage-ns",
)  # fmt: skip
"""What is tried where no methods are named, in the order in which they are timed while the budget lasts."""

PARTITIONERS = {"edge": ("metis-cut", "metis", "hash", "contiguous"), "vertex": ("ebv", "hdrf")}
"""Which partitioners are tried where none is named, by what they cut; the quickest epoch decides."""


@dataclass(frozen=True)
class Candidate:
    """One way to train: all settings, and what the method promises.

    Attributes:
        config: of a simulated run on the cluster.
        exact: trains as one process on the whole graph does, so that no training of its own is needed.
        batches: takes several steps an epoch, so that its epochs do not compare with others'.
    """

    config: RunConfig
    exact: bool
    batches: bool = False

    @property
    def method(self) -> str:
        """The text of the method."""
        return self.config.training.method

    @property
    def parts(self) -> int:
        """The number of devices."""
        return self.config.cut.parts

    @property
    def title(self) -> str:
        """Method and number of devices."""
        return f"{self.method}, {devices_text(self.parts)}"


def devices_text(count: int) -> str:
    """A number of devices in words."""
    return f"{count} device" + "s" * (count != 1)


def input_layer(base: RunConfig, graph: Graph) -> str:
    """What all methods do about the input features of halo nodes: what vanilla would, unless the base says it."""
    if base.training.layer0 != "auto":
        return base.training.layer0
    model = build_model(base.model, graph.num_features, graph.num_classes, base.training.seed)
    return Vanilla().input_layer(model)


def candidates(
    base: RunConfig, graph: Graph, methods: Sequence[str], ranks: Sequence[int]
) -> tuple[list[Candidate], dict[str, str]]:
    """Every candidate, method by method, and method -> why it is left out.

    Raises:
        InputError: nothing fits; a method that the user named is not known.
    """
    layer0 = input_layer(base, graph)
    names = list(dict.fromkeys([*(("single", EXACT) if methods else ()), *(methods or TRIED_METHODS)]))
    found: list[Candidate] = []
    left_out: dict[str, str] = {}
    for name in names:
        cut_of(name)  # an unknown method is an error, whatever else is named
        counts = [1] if cut_of(name) == "none" else ranks
        for parts in counts:
            try:
                found.append(_candidate(base, name, parts, layer0))
            except InputError as error:
                left_out[name] = str(error)
    made = {candidate.method for candidate in found}
    if EXACT not in made:
        raise InputError(left_out.get(EXACT, f"{EXACT}, which all others are compared with, cannot run"))
    return found, {name: why for name, why in left_out.items() if name not in made}


def _candidate(base: RunConfig, name: str, parts: int, layer0: str) -> Candidate:
    """Raises InputError if the method cannot run this model on this number of devices."""
    shared = base.changed(
        method=name,
        parts=parts,
        mode="sim",
        device="cpu",
        backend="auto",
        evaluate="ranks",
        shapes_only=False,
        rates="",
    )
    given = base.cut.partitioner
    if given != "auto" and not _fits(given, cut_of(name)):
        shared = shared.changed(partitioner="auto")
    config, method = _with_layer0(shared, layer0)
    if method.facts.timed:
        raise InputError("its decisions depend on when messages arrive, so no recording of it can be timed")
    return Candidate(config, method.promises().exact, isinstance(method, Batched))


def _with_layer0(config: RunConfig, layer0: str) -> tuple[RunConfig, Method]:
    """The config with one treatment of the input layer, or with the method's own where it cannot take that one."""
    try:
        same = config.changed(layer0=layer0)
        return same, plan_of(same).method
    except InputError:
        if layer0 == config.training.layer0:
            raise
        return config, plan_of(config).method


def _fits(partitioner: str, cut: str) -> bool:
    vertex = partitioner.partition(":")[0] in ("ebv", "hep", "dne", "libra", "hdrf")
    return (cut == "vertex") == vertex


def scouts(found: Sequence[Candidate], base: RunConfig) -> Iterator[tuple[str, Candidate, tuple[str, ...]]]:
    """(what is cut, the candidate by whose epoch partitioners are judged, the partitioners): on most devices."""
    for cut, names in PARTITIONERS.items():
        fitting = [each for each in found if partitioned_alike(each, cut) and (cut != "edge" or each.method == EXACT)]
        if fitting and base.cut.partitioner == "auto":
            most = max(each.parts for each in fitting)
            yield cut, next(each for each in fitting if each.parts == most), names


def partitioned_alike(candidate: Candidate, cut: str) -> bool:
    """Whether the partitioner that was chosen for one kind of cut applies: the method leaves it open."""
    method = parse_method(candidate.method)
    return candidate.parts > 1 and method.facts.cut == cut and method.default_partitioner == "auto"
