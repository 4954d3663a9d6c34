"""Scenario files of raw flows: read, checked, and run through the fluid network.

Format `flow-reference/1`, JSON. `scenarios` list named links and every flow with its route, start, latency and the
flows that it follows; `big_scenarios` are all-to-alls of GPUs in hosts with one adapter each, whose sizes are a formula
of source `s` and destination `d`. Keys for expected values and provenance are ignored; unknown keys are refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import InputError, unknown
from sims.network import EXACT_FLOWS, RouteTable, Schedule, route_table, schedule, schedule_by_segments

FORMAT = "flow-reference/1"
MOST_RANKS = 1024
_MADE = ("description", "simgrid_check")
_KEYS = {
    "file": ("format", "scenarios", "big_scenarios", "model", "provenance", "tolerance", *_MADE),
    "scenario": ("name", "links", "flows", "makespan_s", *_MADE),
    "link": ("bandwidth_Bps", *_MADE),
    "flow": (
        "id", "route", "bytes", "start_s", "latency_s", "after", "src", "dst", "begin_s", "finish_s", *_MADE,
    ),
    "big scenario": (
        "name", "size_formula", "nodes", "gpus_per_node", "pcie_Bps", "nic_Bps", "latency_intra_s", "latency_inter_s",
        "n_flows", "makespan_s", "mean_finish_s", "quantiles_s", "sample_finish_s", *_MADE,
    ),
}  # fmt: skip
"""Kind of object -> allowed keys: those that are read, and those that are ignored."""

_SIZES = re.compile(r"bytes\s*(?:\(\s*s\s*->\s*d\s*\))?\s*=(.*?)(?:for every ordered pair.*)?", re.DOTALL)
_TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d+)?)|(mod\b|[sd]\b|[-+*()%]))")
_DEEPEST = 50


@dataclass(frozen=True)
class ScenarioResult:
    """The schedule of a scenario; `ids` names its flows."""

    name: str
    ids: list[str]
    schedule: Schedule

    @property
    def makespan_s(self) -> float:
        """Time at which the last flow ends."""
        return float(self.schedule.finish_s.max(initial=0.0))


def run_file(path: Path, window: float = 0.0, exact_flows: int = EXACT_FLOWS) -> Iterator[ScenarioResult]:
    """Run the scenarios of a file in order; `window` and `exact_flows` as for `sims.network.schedule`.

    Raises:
        InputError: the file cannot be read, is not JSON of this format, or names unknown links or flows.
    """
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path.name} is not JSON: {error}") from None
    top = _Object(content, path.name, "file")
    if top.get("format", FORMAT) != FORMAT:
        raise InputError(f"{path.name}: format {top.get('format')!r} is not {FORMAT!r}")
    if not {"scenarios", "big_scenarios"} & set(top.values):
        raise InputError(f"{path.name}: has neither scenarios nor big_scenarios; docs/network.md has an example")
    kinds = (("scenarios", "scenario", _run_small), ("big_scenarios", "big scenario", _run_big))
    for key, kind, run in kinds:
        for at, scenario in enumerate(top.list(key)):
            yield run(_Object(scenario, f"{path.name}: {key}[{at}]", kind), window, exact_flows)


class _Object:
    """A JSON object whose members are checked as they are read; messages begin with `where`.

    `kind` is one of _KEYS; without it any key is allowed.
    """

    def __init__(self, values: object, where: str, kind: str = "") -> None:
        if not isinstance(values, Mapping):
            raise InputError(f"{where}: must be an object")
        for key in values:
            if kind and key not in _KEYS[kind]:
                raise unknown(f"key in {where}:", key, _KEYS[kind])
        self.values, self.where = values, where

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def need(self, key: str) -> Any:
        if key not in self.values:
            raise InputError(f"{self.where}: {key} is missing")
        return self.values[key]

    def text(self, key: str) -> str:
        value = self.need(key)
        if not isinstance(value, str):
            raise InputError(f"{self.where}.{key}: must be a string, not {value!r:.40}")
        return value

    def number(self, key: str, default: float | None = None, *, positive: bool = False) -> float:
        value = self.need(key) if default is None else self.get(key, default)
        low = not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf
        if low or value > 1e300 or (positive and value == 0):
            raise InputError(f"{self.where}.{key}: must be a number {'more than' if positive else 'of at least'} 0")
        return float(value)

    def count(self, key: str) -> int:
        value = self.need(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(f"{self.where}.{key}: must be a whole number of at least 1")
        return value

    def list(self, key: str) -> list[Any]:
        value = self.get(key, [])
        if not isinstance(value, list):
            raise InputError(f"{self.where}.{key}: must be a list")
        return value


def _run_small(scenario: _Object, window: float, exact_flows: int) -> ScenarioResult:
    links = _Object(scenario.need("links"), f"{scenario.where}.links")
    number = {name: at for at, name in enumerate(links.values)}
    capacity = [
        _Object(link, f"{links.where}.{name}", "link").number("bandwidth_Bps", positive=True)
        for name, link in links.values.items()
    ]  # fmt: skip
    flows = [_Object(flow, f"{scenario.where}.flows[{at}]", "flow") for at, flow in enumerate(scenario.list("flows"))]
    ids = [flow.text("id") for flow in flows]
    place = {name: at for at, name in enumerate(ids)}
    if len(place) < len(ids):
        raise InputError(f"{scenario.where}: two flows have the same id")
    routes = [[_found(number, name, f"link in {flow.where}.route:") for name in flow.list("route")] for flow in flows]
    after = [[_found(place, name, f"flow in {flow.where}.after:") for name in flow.list("after")] for flow in flows]
    size, start, latency = (
        np.asarray([flow.number(key, default) for flow in flows])
        for key, default in (("bytes", None), ("start_s", 0.0), ("latency_s", 0.0))
    )
    try:
        found = schedule(np.asarray(capacity), route_table(routes), size, start, latency, after, window, exact_flows)
    except InputError as error:
        raise InputError(f"{scenario.where}: {error} (the first is flow 0)") from None
    return ScenarioResult(scenario.text("name"), ids, found)


def _found(number: Mapping[str, int], name: object, what: str) -> int:
    if not isinstance(name, str) or name not in number:
        raise unknown(what, str(name), number)
    return number[name]


def _run_big(scenario: _Object, window: float, exact_flows: int) -> ScenarioResult:
    """GPUs with a bus and hosts with an adapter, both per direction; a flow inside a host crosses the buses only."""
    nodes, each = scenario.count("nodes"), scenario.count("gpus_per_node")
    size = nodes * each
    if size > MOST_RANKS:
        raise InputError(f"{scenario.where}: {size} GPUs; at most {MOST_RANKS}")
    src, dst = (axis.astype(np.int32) for axis in np.nonzero(~np.eye(size, dtype=bool)))
    nbytes = sizes(scenario.text("size_formula"), src, dst, f"{scenario.where}.size_formula")
    bus, nic = (scenario.number(key, positive=True) for key in ("pcie_Bps", "nic_Bps"))
    gpu = np.arange(size)
    none = np.full(size, -1)
    # Segments: empty; out of a GPU to its own host, and to other hosts; into a GPU from its own host, and from others.
    out, back = [gpu, 2 * size + gpu // each], [2 * size + nodes + gpu // each, size + gpu]
    columns = ([gpu, none], out, [size + gpu, none], back)
    segments = np.concatenate([np.full((1, 2), -1), *(np.stack(pair, axis=1) for pair in columns)])
    table = RouteTable(np.repeat([bus, nic], [2 * size, 2 * nodes]), segments)
    inside = src // each == dst // each
    head = np.where(inside, 1, 1 + size) + src
    tail = np.where(inside, 1 + 2 * size, 1 + 3 * size) + dst
    latency = np.where(inside, scenario.number("latency_intra_s", 0.0), scenario.number("latency_inter_s", 0.0))
    found = schedule_by_segments(table, head, tail, nbytes, 0.0, latency, None, window, exact_flows)
    ids = [f"{i}->{j}" for i, j in zip(src.tolist(), dst.tolist(), strict=True)]
    return ScenarioResult(scenario.text("name"), ids, found)


def sizes(formula: str, src: np.ndarray, dst: np.ndarray, where: str) -> np.ndarray:
    """Bytes of every flow, float64 [n], by a formula such as "bytes(s->d) = (1 + (7*s mod 17)) * 20000".

    Allowed are integers and decimals, `s`, `d`, `+`, `-`, `*`, `mod` (or `%`) and brackets; text from "for every
    ordered pair" on is ignored. Raises InputError for anything else, and for sizes below 0.
    """
    match = _SIZES.fullmatch(formula.strip())
    if match is None:
        raise InputError(f'{where}: {formula!r:.60} does not begin with "bytes(s->d) =" or "bytes ="')
    with np.errstate(all="ignore"):
        found = _Formula(match[1], {"s": src.astype(np.float64), "d": dst.astype(np.float64)}, where).value()
    nbytes = np.array(np.broadcast_to(found, src.shape), np.float64)
    if not (np.isfinite(nbytes) & (nbytes >= 0)).all():
        raise InputError(f"{where}: {formula!r:.60} gives a size that is below 0 or not a number")
    return nbytes


class _Formula:
    """Parser and evaluator of: sum = product (+|- product)*, product = term ((*|mod) term)*."""

    def __init__(self, text: str, names: Mapping[str, np.ndarray], where: str) -> None:
        self._where, self._names = where, names
        self._tokens: list[str] = []
        at, text = 0, text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise InputError(f"{where}: cannot read {text[at:].strip()!r:.40}; + - * mod, s, d and numbers only")
            self._tokens.append(match[1] or match[2])
            at = match.end()
        self._deep = 0

    def value(self) -> np.ndarray | float:
        """The value of the whole formula."""
        found = self._sum()
        if self._tokens:
            raise InputError(f"{self._where}: unexpected {self._tokens[0]!r} after the formula")
        return found

    def _sum(self) -> np.ndarray | float:
        found = self._product()
        while self._tokens and self._tokens[0] in "+-":
            sign = 1.0 if self._tokens.pop(0) == "+" else -1.0
            found = found + sign * self._product()
        return found

    def _product(self) -> np.ndarray | float:
        found = self._term()
        while self._tokens and self._tokens[0] in ("*", "mod", "%"):
            times = self._tokens.pop(0) == "*"
            by = self._term()
            found = found * by if times else np.mod(found, by)
        return found

    def _term(self) -> np.ndarray | float:
        token = self._tokens.pop(0) if self._tokens else "the end"
        if token in self._names:
            return self._names[token]
        if token[0].isdigit():
            return float(token)
        if token == "(" and self._deep < _DEEPEST:
            self._deep += 1
            found = self._sum()
            self._deep -= 1
            if self._tokens and self._tokens.pop(0) == ")":
                return found
            raise InputError(f"{self._where}: a bracket is not closed")
        raise InputError(f"{self._where}: {token!r} where a number, s, d or a bracket should be")
