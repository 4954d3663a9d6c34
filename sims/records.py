"""Tables of cluster, device and transport files as frozen records, each key said once: what it holds, default, meaning.

A record is a frozen dataclass whose fields `key` makes. `filled` makes it of a TOML table, and `docs/reference.md` is
made from the same fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any, TypeVar

from harness import keys
from harness.errors import InputError
from harness.registry import Registry
from sims.units import Quantity, Table, quoted

R = TypeVar("R")


@dataclass(frozen=True)
class Content:
    """What a key may hold.

    Attributes:
        words: the type, in words.
        read: the value of a key of a table.
        unit: dimension of its numbers (a key of `units.UNITS`, or "number"), or "".
        rows: of a table whose keys are fixed: key -> meaning.
        each: of a table: what each of its keys holds.
        record: of a table that is a record: which one.
        defaults: fields of that record with another default in this place.
        all_needed: of `rows`: every one must be given.
        free: the keys of the table are names of any characters, quoted where they are written.
    """

    words: str
    read: Callable[[Table, str], Any]
    unit: str = ""
    rows: Mapping[str, str] = field(default_factory=dict)
    each: Content | None = None
    record: type | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    all_needed: bool = False
    free: bool = False


TEXT = Content("text", Table.text)
FLAG = Content("true or false", Table.flag)


def choice(*names: str) -> Content:
    """One of these texts."""
    return Content(" or ".join(f'"{name}"' for name in names), lambda table, key: table.text(key, names))


def known_name(registry: Registry[Any]) -> Content:
    """A name of a registry, those of other packages included."""
    own = " or ".join(f'"{name}"' for name in registry.builtin)
    return Content(f"{own}, or of an installed package", lambda table, key: table.text(key, registry.names()))


def integer(minimum: int = 1) -> Content:
    """A whole number of at least `minimum`."""
    return Content(f"whole number from {minimum}", lambda table, key: table.integer(key, minimum))


def dimensioned(dimension: str, zero: bool = False) -> Content:
    """A number with its unit and source."""
    return Content(dimension, lambda table, key: table.quantity(key, dimension, zero), unit=dimension)


def factor(least: float = 0.0, most: float = float("inf")) -> Content:
    """A plain number with its source, within limits."""

    def limited(table: Table, key: str) -> Quantity:
        found = table.quantity(key, "number")
        for fits, words in ((found.value >= least, f"least {least:g}"), (found.value <= most, f"most {most:g}")):
            if not fits:
                raise InputError(f"{table.at(key)}: must be at {words}")
        return found

    words = ", at least 1" if least else ", at most 1" if most == 1 else ""
    return Content(f"number{words}", limited, unit="number")


def numbered(dimension: str, what: str) -> Content:
    """A table whose keys are whole numbers of something (`what`), and whose values are quantities."""
    each = dimensioned(dimension)
    return Content(f"table: {what} = {dimension}", lambda table, key: table.table(key).numbered(dimension), each=each)


def numbered_tables(what: str, each: Content) -> Content:
    """A table whose keys are whole numbers of something (`what`), and whose values are tables of one kind."""

    def read_tables(inside: Table, key: str) -> dict[int, Any]:
        found = inside.table(key)
        return {number: each.read(found, name) for number, name in found.numbers().items()}

    return Content(f"table: {what} = {each.words}", read_tables)


def subtable(record: type[R], **defaults: Any) -> Content:
    """A table that is a record; `defaults` differ from those of the record's own keys in this place."""
    return Content(
        "table", lambda inside, key: filled(record, inside.table(key), **defaults), record=record, defaults=defaults
    )


def named(rows: Mapping[str, str], each: Content, all_needed: bool = False) -> Content:
    """A table whose keys are fixed (key -> meaning) and all hold the same kind; what is not given is left out."""

    def read_named(inside: Table, key: str) -> dict[str, Any]:
        found = inside.table(key)
        found.only(rows, rows if all_needed else ())
        read_rows = {name: each.read(found, name) for name in rows if all_needed or name in found.values}
        found.only(rows)
        return read_rows

    words = f"table: {', '.join(rows)} = {each.words}"
    return Content(words, read_named, rows=rows, each=each, all_needed=all_needed)


def listed(each: Content) -> Content:
    """A table whose keys are names of any kind."""

    def read_names(inside: Table, key: str) -> dict[str, Any]:
        found = inside.table(key)
        return {name: each.read(found, name) for name in found.values}

    return Content("table", read_names, each=each, record=each.record, free=True)


def key(help: str, kind: Content, *, default: Any = MISSING, at: str = "", together: bool = False, **more: Any) -> Any:
    """A field that is a key of a file.

    Args:
        at: where the key stands in the file, if not in the record's table under the field's name: "gemm.peak".
        together: a key with a default that must be given where its table is.
        more: `shown`, the default in words where no value says it.
    """
    return keys.key(help, default=default, unit=kind.unit, type=kind.words, kind=kind, at=at, together=together, **more)


def path_of(member: Field[Any]) -> str:
    """The key of a field, dotted where it stands in a table."""
    return member.metadata["at"] or member.name


def filled(record: type[R], table: Table, **defaults: Any) -> R:
    """The record that a table fills.

    Args:
        defaults: values of fields whose keys are not given.

    Raises:
        InputError: unknown or missing key, or a value that does not fit; one line that names file and key.
    """
    members, found = _by_table(record), dict(defaults)
    needed = {
        inside: [name for name, m in row.items() if keys.default_of(m) is MISSING and m.name not in defaults]
        for inside, row in members.items()
    }
    tables = [inside for inside in members if inside]
    needed[""] += [inside for inside in tables if needed[inside]]
    known = {"": [*members[""], *tables], **{inside: list(members[inside]) for inside in tables}}
    for inside, row in members.items():
        if inside and inside not in needed[""] and inside not in table.values:
            continue
        table.only(known[""], needed[""])
        given = table.table(inside) if inside else table
        must = [*needed[inside], *(name for name, m in row.items() if m.metadata["together"])]
        given.only(known[inside], must)
        for name, member in row.items():
            if name in must or name in given.values:
                found[member.name] = member.metadata["kind"].read(given, name)
        given.only(known[inside])
    return record(**found)


def quantities_of(values: Any, prefix: str = "") -> list[tuple[str, str, Quantity]]:
    """Every quantity of a filled record as (key, dimension, value), defaults left out; those of tables come last."""
    found: list[tuple[str, str, Quantity]] = []
    members: tuple[Field[Any], ...] = fields(values)
    changed = [member for member in members if getattr(values, member.name) != keys.default_of(member)]
    given = {path_of(member).rpartition(".")[0] for member in changed}  # tables of which something is given
    for member in members:
        path = path_of(member)
        if member in changed or (member.metadata["together"] and path.rpartition(".")[0] in given):
            found += _quantities(member.metadata["kind"], f"{prefix}{path}", getattr(values, member.name))
    return sorted(found, key=lambda row: "." in row[0].removeprefix(prefix))


def _quantities(kind: Content, path: str, value: Any) -> Iterator[tuple[str, str, Quantity]]:
    if isinstance(value, Quantity):
        yield path, kind.unit, value
    elif isinstance(value, Mapping) and kind.each is not None:
        for name, item in value.items():
            yield from _quantities(kind.each, f"{path}.{quoted(name) if kind.free else name}", item)
    elif kind.record is not None and value is not None:
        yield from quantities_of(value, f"{path}.")


def scaled(values: R, factor: Callable[[str, str, Quantity], float], prefix: str = "") -> R:
    """A copy of a filled record in which every quantity is multiplied.

    Args:
        factor: of a quantity with this key (see `quantities_of`) and dimension.
    """
    changed = {}
    for member in fields(values):  # type: ignore[arg-type]
        value = getattr(values, member.name)
        changed[member.name] = _scaled(member.metadata["kind"], f"{prefix}{path_of(member)}", value, factor)
    return type(values)(**changed)


def _scaled(kind: Content, path: str, value: Any, factor: Callable[[str, str, Quantity], float]) -> Any:
    if isinstance(value, Quantity):
        by = factor(path, kind.unit, value)
        return value if by == 1 else replace(value, value=value.value * by)
    if isinstance(value, Mapping) and kind.each is not None:
        each = kind.each
        return {
            name: _scaled(each, f"{path}.{quoted(name) if kind.free else name}", item, factor)
            for name, item in value.items()
        }
    if kind.record is not None and value is not None:
        return scaled(value, factor, f"{path}.")
    return value


def _by_table(record: type) -> dict[str, dict[str, Field[Any]]]:
    """Table inside the record's own ("" for that one) -> key -> field, in the order of the fields."""
    found: dict[str, dict[str, Field[Any]]] = {"": {}}
    for member in fields(record):  # type: ignore[arg-type]
        inside, _, name = path_of(member).rpartition(".")
        found.setdefault(inside, {})[name] = member
    return found
