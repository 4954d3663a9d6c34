"""Reads descriptions of workloads from TOML or JSON.

A number stands alone, or as `{ value = ..., from = "published" | "derived" | "measured" | "assumed", note = "..." }`.
What a description leaves out and a default stands in for is marked as assumed. `docs/reference.md` lists the keys.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.errors import InputError, unknown
from harness.keys import convert, key, read_table

PREFIX = "workload:"
SHIPPED = Path(__file__).parent
SOURCES = ("published", "derived", "measured", "assumed", "given")
Sources = dict[str, dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A distribution over ranks: a mean with a coefficient of variation (log-normal), or quantiles.

    Values are the distribution's own quantiles, dealt to ranks in an order drawn from `seed`.
    """

    mean: float = key("mean over the parts", default=0.0)
    spread: float = key("coefficient of variation of a log-normal distribution", default=0.0)
    quantiles: list[tuple[float, float]] = key(
        "instead of mean and spread: [quantile, value] pairs, linear between them", default=[]
    )
    seed: int = key("of the order in which the parts get their values", default=0)


Numbers = float | list[float] | Shape | None


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Degrees of nodes as a negative binomial distribution."""

    mean: float | None = key("mean degree", default=None, shown="that of the graph")
    spread: float | None = key(
        "coefficient of variation; 0, all degrees equal, gives the largest boundary", default=None, shown="0"
    )


@dataclass(frozen=True, kw_only=True)
class GraphCounts:
    """The graph as a whole."""

    features: int = key("columns of the nodes' features")
    classes: int = key("classes")
    train: int = key("training nodes; every part gets its share", unit="nodes")
    val: int = key("validation nodes", default=0, unit="nodes")
    test: int = key("test nodes", default=0, unit="nodes")
    nodes: int = key("nodes", default=0, unit="nodes")
    edges: int = key("edges in both directions", default=0, unit="edges")
    dataset: str = key(
        "instead of `nodes` and `edges`: a real graph (`haloscope datasets`) that is partitioned for real; it needs "
        "neither features nor labels",
        default="",
    )
    multilabel: bool = key("a node may have several classes", default=False)
    symmetric: bool = key("every edge goes both ways", default=True)


@dataclass(frozen=True, kw_only=True)
class PartCounts:
    """One of: counts (`boundary` or `ratio`), a partition file, a closed form (`cut`), a replication factor."""

    count: int = key("number of parts", default=0, shown="what `--parts` says")
    inner: Numbers = key("nodes that a part owns", default=None, unit="nodes", shown="equal shares")
    boundary: Numbers = key("halo nodes of a part", default=None, unit="nodes")
    ratio: Numbers = key("instead of `boundary`: halo nodes per inner node", default=None)
    pairs: Literal["even", "proportional"] | list[list[int]] = key(
        "who sends to whom: the same from every part, in proportion to inner nodes, or a matrix whose row i is what "
        "part i receives from every part; with a matrix `boundary` may be left out, and vertex cuts read it too "
        "(mirrors of part i whose masters part j has)",
        default="even",
    )
    edges_per_boundary_node: float | None = key(
        "cut edges per halo node, where they are known", default=None, unit="edges", shown="by `partitioner`"
    )
    partition: str = key(
        "`partition.json` of `haloscope partition --export`: counts of a real partition; rows between pairs are fitted "
        "to what each part receives and sends",
        default="",
    )
    cut: Literal["", "hash", "random"] = key(
        "hash: the expected boundary of a partition that looks at no edge, N (1 - 1/P) (1 - G(1 - 1/P)) with G the "
        "generating function of the degrees; random: a vertex cut whose edges are dealt at random",
        default="",
    )
    degrees: Spread | list[tuple[int, int]] | None = key(
        "[degree, nodes] pairs, or a distribution: the boundary of `cut` follows from them, and how often a modelled "
        "GPU finds rows in its cache",
        default=None,
        shown="all degrees equal",
    )
    partitioner: str = key(
        "what made the parts. Of counts: metis, whose cut edges follow from the halo nodes by a measured law "
        "(`benchmarks.boundary_edges`), or random, of which 1 - 1/P of the edges are cut and the halo, where it is not "
        'given, is that of `cut = "hash"`. Of `graph.dataset`: any partitioner, metis-cut if none is named',
        default="",
        shown="metis",
    )
    replication: float | None = key("vertex cuts: the replication factor, copies of a node", default=None)
    mirrors: Numbers = key("vertex cuts: mirrors of a part where they differ", default=None, unit="nodes")
    edges: Numbers = key("vertex cuts: undirected edges of a part", default=None, unit="edges", shown="equal shares")
    mirrors_per_shared_master: float | None = key(
        "vertex cuts: mirrors of a master that has some", default=None, unit="nodes", shown="2"
    )


@dataclass(frozen=True, kw_only=True)
class Description:
    """A whole file."""

    graph: GraphCounts = key("the graph as a whole")
    parts: PartCounts = key("its parts")
    name: str = key("name of the workload", default="", shown="the file's name")
    summary: str = key("one line about it", default="")
    reference: str = key("where its numbers are printed", default="")
    notes: list[str] = key("remarks that results repeat", default=[])


def is_workload(dataset: str) -> bool:
    """Whether a dataset's name means a description: `workload:NAME`, or a .toml or .json file."""
    return dataset.startswith(PREFIX) or dataset.endswith((".toml", ".json"))


def shipped() -> dict[str, str]:
    """Name -> summary of the descriptions that come with haloscope."""
    return {path.stem: tomllib.loads(path.read_text())["summary"] for path in sorted(SHIPPED.glob("*.toml"))}


def read_description(dataset: str) -> tuple[Path, Description, Sources]:
    """The file that a dataset's name means, what it says, and whence every number in it comes.

    Raises:
        InputError: unknown name, unreadable file, unknown key or wrong type; one line that names file and key.
    """
    path = _path(dataset)
    sources: Sources = {}
    plain = _unwrap(read(path), "", sources, path.name)
    return path, convert(plain, Description, f"workload {path.name}"), sources


def _path(dataset: str) -> Path:
    if not dataset.startswith(PREFIX):
        return Path(dataset)
    name = dataset.removeprefix(PREFIX)
    path = SHIPPED / f"{name}.toml"
    if not path.is_file():
        raise unknown("workload", name, shipped())
    return path


def read(path: Path) -> dict[str, Any]:
    """A TOML or JSON file as a table. Raises InputError if it is none."""
    return read_table(path, "workload file")


def _unwrap(value: Any, name: str, sources: Sources, file: str) -> Any:
    """`value` with every {value, from, note} replaced by its value; `sources` gets what each came from."""
    if not isinstance(value, dict):
        if name.startswith(("graph.", "parts.")):
            sources.setdefault(name, {"value": value, "from": "given", "note": ""})
        return value
    if "value" not in value:
        return {
            inner: _unwrap(item, f"{name}.{inner}" if name else inner, sources, file) for inner, item in value.items()
        }
    source = value.get("from", "given")
    if source not in SOURCES or set(value) - {"value", "from", "note"}:
        raise InputError(f"workload {file}: {name}: wants value, from ({', '.join(SOURCES)}) and note, nothing else")
    sources[name] = {"value": value["value"], "from": source, "note": str(value.get("note", ""))}
    return value["value"]
