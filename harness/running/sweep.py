"""A sweep: a TOML file of axes -> the config of every cell, which cells are finished, and how long the rest may take.

    [run]                      # what all cells share: fields of RunConfig
    [grid]                     # axes: fields of RunConfig, or options of the methods (bits, p); [[grid]] for several
    [cluster]                  # changes to the cluster's file; a list is an axis: links.nic.bandwidth = ["1 Gb/s", ...]

The result file alone marks a finished cell: a sweep that is killed at any time loses none and reruns none. Cells are
run elsewhere.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec

from harness.config import COMMAND_DEFAULTS, RUN_SETTINGS, Mode, RunConfig, check, in_modes, laid_over
from harness.errors import InputError, unknown
from harness.keys import read_table
from harness.methods.registry import parse_method

TABLES = ("run", "grid", "cluster")
SPENT = "seconds.jsonl"  # beside the results: one line per cell that was run


@dataclass(frozen=True)
class Cell:
    """One run of a sweep, and its values on the axes."""

    config: RunConfig
    axes: dict[str, Any] = field(hash=False)

    @property
    def title(self) -> str:
        """The cell's values on the axes, in one line."""
        others = (f"{key.removeprefix('cluster.')}={value}" for key, value in self.axes.items() if key != "method")
        return ", ".join([str(self.axes.get("method", self.config.training.method)), *others])


def read_sweep(path: Path) -> list[Cell]:
    """Every cell of a sweep file, methods outermost; equal configs are one cell.

    Raises:
        InputError: unreadable file, unknown table, axis or option (the nearest one is named), a bad value.
    """
    tables = read_table(path, "sweep file")
    for key in tables:
        if key not in TABLES:
            raise unknown(f"table in sweep file {path.name}", key, TABLES)
    base = laid_over(_table(tables, "run", path), COMMAND_DEFAULTS, source=f"{path.name}: run")
    grids = tables.get("grid", {})
    found: dict[RunConfig, Cell] = {}
    grids = grids if isinstance(grids, list) else [_table(tables, "grid", path)]
    modes = _modes(grids, base)
    for grid in grids:
        for cell in _cells(grid, _flat(_table(tables, "cluster", path)), base, modes, path.name):
            found.setdefault(cell.config, cell)
    return list(found.values())


def _table(tables: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    table = tables.get(key, {})
    if not isinstance(table, dict):
        raise InputError(f"sweep file {path.name}: {key} must be a table, [{key}]")
    return table


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one, with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _modes(grids: Sequence[Any], base: RunConfig) -> list[Mode]:
    """The modes of a sweep's cells; what is no mode is refused where its cell is read."""
    named = [grid["mode"] for grid in grids if isinstance(grid, Mapping) and "mode" in grid]
    texts = [text for value in named for text in (value if isinstance(value, list) else [value])]
    return [mode for mode in get_args(Mode) if mode in texts or (len(named) < len(grids) and mode == base.run.mode)]


def _cells(grid: Any, cluster: Mapping[str, Any], base: RunConfig, modes: Sequence[Mode], name: str) -> Iterator[Cell]:
    if not isinstance(grid, Mapping):
        raise InputError(f"sweep file {name}: grid must be a table, [grid]")
    axes = {key.replace("-", "_"): _values(value, f"{name}: grid.{key}") for key, value in grid.items()}
    axes = {"method": axes.pop("method", [base.training.method]), **axes}  # methods outermost
    changes = {f"cluster.{key}": _values(value, f"{name}: cluster.{key}") for key, value in cluster.items()}
    known = {str(method): _options(str(method)) for method in axes["method"]}
    options = {option for found in known.values() for option in found} - RUN_SETTINGS.keys()
    for key in axes:
        if key not in RUN_SETTINGS.keys() | options:
            raise unknown(f"axis in {name}", key, RUN_SETTINGS.keys() | options)
    shown = [key for key, values in {**axes, **changes}.items() if len(values) > 1]
    for point in product(*axes.values(), *changes.values()):
        values = dict(zip((*axes, *changes), point, strict=True))
        method = str(values["method"])
        mine = {key: values[key] for key in axes if key in options and key in known[method]}
        given = {key: values[key] for key in axes if key in RUN_SETTINGS}
        given["method"] = ":".join([method, *(f"{key}={_text(value)}" for key, value in mine.items())])
        config = _in_its_mode(laid_over(given, base, source=name), modes)
        config = _placed(config, {key: values[key] for key in changes}, name)
        values["parts"] = config.cut.parts  # one for methods that keep the graph whole, whatever the axis says
        yield Cell(config, {key: values[key] for key in shown if key not in options or key in mine})


def _in_its_mode(config: RunConfig, modes: Sequence[Mode]) -> RunConfig:
    """The config without settings that act in other `modes` of the sweep only. Raises InputError as `check`."""
    found = in_modes(config, [config.run.mode, *modes])[0]
    check(found)
    return found


def _placed(config: RunConfig, changes: Mapping[str, Any], name: str) -> RunConfig:
    """The config with changes to its modelled cluster, and on one part if the method requires that.

    Raises InputError for changes to a cluster in a mode that models none.
    """
    if changes:
        if config.run.mode != "sim":
            raise InputError(
                f'{name}: [cluster] changes a modelled cluster, but mode is {config.run.mode}; set mode = "sim" in '
                "[run], or remove [cluster]"
            )
        texts = (f"{key.removeprefix('cluster.')}={_text(value)}" for key, value in changes.items())
        config = config.changed(cluster=":".join([config.cluster.name, *texts]))
    return config.changed(parts=1) if keeps_whole(config) else config


def keeps_whole(config: RunConfig) -> bool:
    """Whether the method of a config does not cut the graph, and so runs on one part."""
    return parse_method(config.training.method, layer0=config.training.layer0).facts.cut == "none"


def _values(value: Any, where: str) -> list[Any]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise InputError(f"{where}: an axis without values")
    for one in values:
        if not isinstance(one, str | int | float):
            raise InputError(f"{where}: {one!r} is not a number, a text or true/false")
    return values


def _options(method: str) -> frozenset[str]:
    """Options of a method that its text does not set."""
    fixed = {pair.partition("=")[0] for pair in method.split(":")[1:]}
    return frozenset(f.name for f in fields(parse_method(method))) - fixed


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).replace(" ", "")


def seconds_of(text: str) -> float:
    """Seconds of a time such as 90s, 30m, 1h30m or 2.5h. Raises InputError for anything else."""
    parts = re.findall(r"([0-9.]+)([hms])", text)
    try:
        total = sum(float(number) * {"h": 3600, "m": 60, "s": 1}[unit] for number, unit in parts)
    except ValueError:
        total = 0.0
    if total <= 0 or "".join(number + unit for number, unit in parts) != text:
        raise InputError(f"{text!r} is not a time; write 90s, 30m or 1h30m")
    return total


class Spent(msgspec.Struct):
    """Seconds of one cell, in which `epochs` epochs were trained."""

    run_id: str
    key: list[Any]
    epochs: Annotated[int, msgspec.Meta(ge=1)]
    seconds: float


class Stopwatch:
    """Seconds of cells that were run, stored beside the results, and estimates for the others.

    A lost or damaged line affects estimates only.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / SPENT
        self.known: list[Spent] = []
        try:
            lines = self.file.read_bytes().splitlines()
        except OSError:
            lines = []
        for line in lines:
            try:
                self.known.append(msgspec.json.decode(line, type=Spent))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue  # the line was being written when the sweep was killed

    def add(self, config: RunConfig, seconds: float, *, keep: bool = True) -> None:
        """Record the seconds of a cell; a probe is not stored."""
        spent = Spent(config.run_id(), _key(config), config.training.epochs, seconds)
        self.known.append(spent)
        if keep:
            with self.file.open("ab") as stream:
                stream.write(b"\n" + msgspec.json.encode(spent) + b"\n")

    def expect(self, config: RunConfig) -> float | None:
        """Estimated seconds of a cell: the median of the most similar ones, scaled by epochs; None without any."""
        key = _key(config)
        for depth in range(len(key), -1, -1):
            alike = [s.seconds / s.epochs for s in self.known if s.key[:depth] == key[:depth]]
            if alike:
                return statistics.median(alike) * config.training.epochs
        return None


def _key(config: RunConfig) -> list[Any]:
    """The settings that affect the duration of a cell, the most important first."""
    name = config.training.method.partition(":")[0]
    return [
        config.run.mode,
        config.data.dataset,
        config.cluster.shapes_only,
        config.model.name,
        config.model.hidden,
        config.cut.parts,
        name,
    ]


def time_left(cells: Sequence[Cell], expect: Callable[[RunConfig], float | None], jobs: int) -> float | None:
    """Seconds until all cells are done on `jobs` workers, assigned in order to free workers; None if unknown."""
    free = [0.0] * max(1, jobs)
    for cell in cells:
        seconds = expect(cell.config)
        if seconds is None:
            return None
        at = free.index(min(free))
        free[at] += seconds
    return max(free)
