"""Quantities with units and provenance, and strict reading of the TOML tables that hold them.

Used by cluster and device files. Converts texts such as "25 GB/s" to numbers with a source, and raises errors of one
line for anything else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from harness.errors import InputError, unknown
from harness.keys import read_table

SOURCES = ("published", "datasheet", "measured", "extrapolated", "assumed")
"""The source of a number. extrapolated: scaled from numbers that were measured elsewhere."""

SPREADS = {"measured": 1.13, "published": 1.25, "datasheet": 1.25, "extrapolated": 1.5, "assumed": 2.0}
"""Factor either way within which 90 % of the numbers of a source are taken to lie, where no `range` is given.

measured: the epochs of one run on one machine, whose quartiles are 11 % apart in the median of 16 undisturbed cells
(docs/validation-history.md), which is 13 % either way for 90 %. published, datasheet: what programs get of what is
promised.
assumed: the factor with which reports try whether an ordering can come out otherwise.
"""

SMALLEST, LARGEST = 1e-15, 1e21
"""Range of a number that is not zero, in its base unit: outside of it sums of seconds or bytes mean nothing."""

MOST = 2**31 - 1
"""Largest whole number: hosts, devices, adapters."""

NORMAL_90 = 1.6448536269514722
"""Standard deviations that end the central 90 % of a normal distribution."""

STATED = "stated in its file"
"""Where the range of a number is from that has one of its own."""

MARKED = ("value", "from", "note", "range")
"""Keys of a number that says where it is from."""


def _prefixed(unit: str, prefixes: str, scale: float = 1.0) -> dict[str, float]:
    """Decimal multiples of a unit: 'kMGTP' upwards, 'mun' and 'p' downwards."""
    powers = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "m": 1e-3, "u": 1e-6, "n": 1e-9, "p": 1e-12}
    return {prefix + unit: powers[prefix] * scale for prefix in ("", *prefixes)}


_BINARY = {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}

UNITS: dict[str, dict[str, float]] = {
    "bandwidth": _prefixed("B/s", "kMGT")
    | _prefixed("b/s", "kMGT", 1 / 8)
    | {f"{unit}/s": scale for unit, scale in _BINARY.items()},
    "time": _prefixed("s", "munp"),
    "size": _prefixed("B", "kMGT") | _BINARY,
    "rate": _prefixed("flop/s", "kMGTP"),
}
"""Dimension -> unit -> factor to the base unit (B/s, s, B, flop/s); Gb/s is bits, GB/s is bytes."""

_EXAMPLES = {"bandwidth": '"25 GB/s" or "100 Gb/s"', "time": '"5 us"', "size": '"24 GB"', "rate": '"35.6 Tflop/s"'}
_WRITTEN = re.compile(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/]+)")


@dataclass(frozen=True)
class Quantity:
    """A number in base units (B/s, s, B, flop/s, or plain) with its source, an optional note, and the `range` that
    holds it with a probability of 90 %, where it is known."""

    value: float
    source: str = "assumed"
    note: str = ""
    range: tuple[float, float] | None = None

    @property
    def factors(self) -> tuple[float, float]:
        """Ends of the 90 % range over the value: of `range`, or of the source (SPREADS)."""
        if self.range is None or not self.value:
            return 1 / SPREADS[self.source], SPREADS[self.source]
        return self.range[0] / self.value, self.range[1] / self.value


def fitted(value: float, note: str = "") -> Quantity:
    """A number that a fit found, as files have it: four digits, and 0 below the smallest number that files may hold,
    which is what rounding leaves of a term that the fit does not use."""
    return Quantity(float(f"{value:.4g}") if abs(value) >= SMALLEST else 0.0, "measured", note)


def parse(text: str, dimension: str, where: str, zero: bool = False) -> float:
    """`text` such as "25 GB/s" in the base unit of `dimension` (a key of UNITS); a time, or with `zero`, may be zero.

    Raises:
        InputError: no number, no unit of that dimension, negative, not finite, or zero where it may not be.
    """
    units = UNITS[dimension]
    match = _WRITTEN.fullmatch(text.strip())
    if match is None or match[2] not in units:
        raise InputError(
            f"{where}: {text!r} is not a {dimension}; write a number and a unit ({', '.join(units)}), "
            f"such as {_EXAMPLES[dimension]}"
        )
    try:
        value = float(Decimal(match[1]) * Decimal(str(units[match[2]])))
    except InvalidOperation:
        raise InputError(f"{where}: {match[1]!r} in {text!r} is not a number") from None
    except ArithmeticError:
        value = math.inf
    if not math.isfinite(value) or (value == 0 and not zero and dimension != "time"):
        raise InputError(f"{where}: {text!r} must be {'finite' if value else 'more than zero'}")
    _within(value, where, text)
    return value


def _within(value: float, where: str, text: str) -> None:
    """Raise InputError for a number with which sums of the model would lose all meaning."""
    if value and not SMALLEST <= abs(value) <= LARGEST:
        raise InputError(f"{where}: {text!r} is out of range; in its base unit it must be {SMALLEST:g} to {LARGEST:g}")


def format_quantity(value: float, dimension: str) -> str:
    """`value` in the unit with the shortest text that is parsed back exactly."""
    base = next(iter(UNITS[dimension]))
    choices = [f"{value!r} {base}"]
    for unit, scale in UNITS[dimension].items():
        text = f"{value / scale:.12g} {unit}"
        with suppress(InputError):  # rounded out of range
            if unit.endswith(base) and parse(text, dimension, unit, zero=True) == value:
                choices.append(text)
    return min(choices, key=len)


def quoted(text: str) -> str:
    """A TOML basic string."""
    escaped = "".join(c if c.isprintable() else " " for c in text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class Table:
    """One TOML table. Every reader raises InputError in one line for a key that is missing or holds something else.

    Args:
        values: the table.
        where: how messages name it, such as "cluster file lab.toml: links.nic".
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values, self.where = values, where

    def only(self, known: Collection[str], needed: Collection[str] | None = None) -> None:
        """Raise InputError for a key that is not in `known`; the nearest one that is is named.

        With `needed`, only where one of those is missing: a misspelt key is likelier than a missing one.
        """
        if needed is not None and all(key in self.values for key in needed):
            return
        for key in self.values:
            if key not in known:
                raise unknown(f"key in {self.where}:", key, known)

    def table(self, key: str) -> Table:
        """A sub-table."""
        value = self._get(key, f"the table [{key}]")
        if not isinstance(value, Mapping):
            raise InputError(f"{self.at(key)}: must be a table, [{key}]")
        return Table(value, self.at(key))

    def text(self, key: str, choices: Collection[str] = ()) -> str:
        """A string, one of `choices` where there are some."""
        value = self._get(key, "a string")
        if not isinstance(value, str):
            raise InputError(f"{self.at(key)}: must be a string, not {value!r}")
        if choices and value not in choices:
            raise unknown(f"value of {self.at(key)}:", value, choices)
        return value

    def integer(self, key: str, minimum: int = 1) -> int:
        """A whole number of at least `minimum`."""
        value = self._get(key, "a whole number")
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise InputError(f"{self.at(key)}: must be a whole number of at least {minimum}, not {value!r}")
        if value > MOST:
            raise InputError(f"{self.at(key)}: must be a whole number of at most {MOST:,}")
        return value

    def flag(self, key: str) -> bool:
        """true or false."""
        value = self._get(key, "true or false")
        if not isinstance(value, bool):
            raise InputError(f"{self.at(key)}: must be true or false, not {value!r}")
        return value

    def quantity(self, key: str, dimension: str, zero: bool = False) -> Quantity:
        """A value with its unit and source; see `quantity`."""
        return quantity(self._get(key, f"a {dimension}"), dimension, self.at(key), zero)

    def numbers(self) -> dict[int, str]:
        """The keys of a table whose keys are whole numbers (widths, bits), ascending -> how they are written."""
        found = {}
        for key in self.values:
            if not (key.isascii() and key.isdigit() and len(key) < 10) or int(key) < 1:
                raise InputError(f"{self.at(key)}: the key must be a whole number of at least 1")
            found[int(key)] = key
        if not found:
            raise InputError(f"{self.where}: is empty")
        return dict(sorted(found.items()))

    def numbered(self, dimension: str) -> dict[int, Quantity]:
        """The quantities of such a table."""
        return {number: self.quantity(key, dimension) for number, key in self.numbers().items()}

    def at(self, key: str) -> str:
        """How messages name a key of the table."""
        return f"{self.where}{'.' if ':' in self.where else ': '}{key}"

    def _get(self, key: str, what: str) -> Any:
        """The value of a key. Raises InputError where it is missing."""
        if key in self.values:
            return self.values[key]
        raise InputError(f"{self.at(key)}: {what} is missing")


def quantity(value: object, dimension: str, where: str, zero: bool = False) -> Quantity:
    """A `Quantity` from `"25 GB/s"` (then its source is `assumed`) or `{ value = ..., from = ..., note = ... }`.

    `dimension` is a key of UNITS, or `number` for a plain positive number; with `zero` it may be zero, for none.
    """
    if isinstance(value, Mapping):
        table = Table(value, where)
        table.only(MARKED)
        source, note = table.text("from", SOURCES), table.text("note") if "note" in value else ""
        inner = value.get("value")
        plain = quantity(repr(inner) if isinstance(inner, Mapping) else inner, dimension, where, zero).value
        return Quantity(plain, source, note, _range(table, plain, dimension) if "range" in value else None)
    if dimension == "number":
        if not isinstance(value, int | float) or isinstance(value, bool) or not _positive(value, zero):
            shown = repr(value) if len(repr(value)) < 40 else f"{repr(value)[:20]}..."
            raise InputError(f"{where}: must be a number {'of at least' if zero else 'more than'} zero, not {shown}")
        if value > LARGEST:
            raise InputError(f"{where}: must be at most {LARGEST:g}")
        _within(value, where, repr(value))
        return Quantity(float(value))
    if not isinstance(value, str):
        raise InputError(f"{where}: must be a string with a unit, such as {_EXAMPLES[dimension]}, not {value!r}")
    return Quantity(parse(value, dimension, where, zero))


def _range(table: Table, value: float, dimension: str) -> tuple[float, float]:
    """`range` of a number, "LOW..HIGH" with its units. Raises InputError unless it holds the value."""
    text, where = table.text("range"), table.at("range")
    low, dots, high = (part.strip() for part in text.partition(".."))
    try:
        ends = [float(end) if dimension == "number" else parse(end, dimension, where) for end in (low, high)]
    except ValueError:
        dots = ""
    if not dots or not 0 < ends[0] <= value <= ends[1] < math.inf:
        raise InputError(f"{where}: {text!r} is not LOW..HIGH around the value, such as " + '"5 us..20 us"')
    return ends[0], ends[1]


def format_range(ends: tuple[float, float], dimension: str) -> str:
    """A range as files have it."""
    low, high = (repr(end) if dimension == "number" else format_quantity(end, dimension) for end in ends)
    return f"{low}..{high}"


def _positive(value: float, zero: bool) -> bool:
    return 0 < value < math.inf or (zero and value == 0)


def read_toml(path: Path, kind: str) -> Table:
    """The top table of a TOML file. Raises InputError when it cannot be read or is not TOML."""
    return Table(read_table(path, f"{kind} file"), f"{kind} file {path.name}")


def find(name_or_path: str | Path, kind: str, folder: Path) -> Path:
    """The file for a name in `folder`, or the path itself when it ends in .toml or is there in another folder.

    Raises InputError for an unknown name; the nearest one is named.
    """
    path = Path(name_or_path)
    if path.suffix == ".toml" or (len(path.parts) > 1 and path.exists()):
        return path
    inside = folder / f"{name_or_path}.toml"
    if not inside.exists():
        raise unknown(kind, str(name_or_path), toml_names(folder))
    return inside


def toml_names(folder: Path) -> list[str]:
    """Names of the TOML files in a folder, sorted."""
    return sorted(path.stem for path in folder.glob("*.toml"))
