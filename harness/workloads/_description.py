"""Reads descriptions of workloads from TOML or JSON.

A number stands alone, or as `{ value = ..., from = "published" | "derived" | "measured" | "assumed", note = "..." }`.
What a description leaves out and a default stands in for is marked as assumed. `docs/workloads.md` lists the keys.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from harness.errors import InputError, unknown

PREFIX = "workload:"
SHIPPED = Path(__file__).parent
SOURCES = ("published", "derived", "measured", "assumed", "given")
Sources = dict[str, dict[str, Any]]


class Shape(msgspec.Struct, forbid_unknown_fields=True):
    """A distribution over ranks: a mean with a coefficient of variation (log-normal), or quantiles [[q, value], ...].

    Values are the distribution's own quantiles, dealt to ranks in an order drawn from `seed`.
    """

    mean: float = 0.0
    spread: float = 0.0
    quantiles: list[tuple[float, float]] = []
    seed: int = 0


Numbers = float | list[float] | Shape | None


class GraphCounts(msgspec.Struct, forbid_unknown_fields=True):
    """[graph]; `dataset` names a graph whose topology and partition are real (it needs neither features nor labels)."""

    features: int
    classes: int
    train: int
    val: int = 0
    test: int = 0
    nodes: int = 0
    edges: int = 0  # directed
    dataset: str = ""
    multilabel: bool = False
    symmetric: bool = True


class PartCounts(msgspec.Struct, forbid_unknown_fields=True):
    """[parts]; one of: counts (inner, boundary or ratio), a partition file, a closed form, a replication factor."""

    count: int = 0  # 0: whatever the run asks for
    inner: Numbers = None
    boundary: Numbers = None
    ratio: Numbers = None  # boundary nodes per inner node
    pairs: Literal["even", "proportional"] | list[list[int]] = "even"
    edges_per_boundary_node: float | None = None
    partition: str = ""  # partition.json of `haloscope partition --export`
    cut: Literal["", "hash", "random"] = ""
    degrees: dict[Literal["mean", "spread"], float] | list[tuple[int, int]] | None = None
    partitioner: str = ""  # of graph.dataset
    replication: float | None = None
    mirrors: Numbers = None  # per rank; replication and balance spread them evenly
    mirrors_per_shared_master: float | None = None


class Description(msgspec.Struct, forbid_unknown_fields=True):
    """A whole file."""

    graph: GraphCounts
    parts: PartCounts
    name: str = ""
    summary: str = ""
    reference: str = ""
    notes: list[str] = []


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
    try:
        return path, msgspec.convert(plain, Description), sources
    except msgspec.ValidationError as error:
        raise InputError(f"workload {path.name}: {error}") from None


def _path(dataset: str) -> Path:
    if not dataset.startswith(PREFIX):
        return Path(dataset)
    name = dataset.removeprefix(PREFIX)
    path = SHIPPED / f"{name}.toml"
    if not path.is_file():
        raise unknown("workload", name, shipped())
    return path


def read(path: Path) -> dict[str, Any]:
    """A TOML or JSON file as a table; InputError where it is none."""
    try:
        text = path.read_text()
        found = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"{path} is not a table of keys")
    return found


def _unwrap(value: Any, name: str, sources: Sources, file: str) -> Any:
    """`value` with every {value, from, note} replaced by its value; `sources` gets what each came from."""
    if not isinstance(value, dict):
        if name.startswith(("graph.", "parts.")):
            sources.setdefault(name, {"value": value, "from": "given", "note": ""})
        return value
    if "value" not in value:
        return {key: _unwrap(item, f"{name}.{key}" if name else key, sources, file) for key, item in value.items()}
    source = value.get("from", "given")
    if source not in SOURCES or set(value) - {"value", "from", "note"}:
        raise InputError(f"workload {file}: {name}: wants value, from ({', '.join(SOURCES)}) and note, nothing else")
    sources[name] = {"value": value["value"], "from": source, "note": str(value.get("note", ""))}
    return value["value"]
