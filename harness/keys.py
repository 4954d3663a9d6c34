"""Keys of files as fields of frozen records: name, type, unit, default and meaning, each written once.

Readers fill the records from TOML or JSON, and `docs/reference.md` is made from the same fields.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from harness.errors import InputError, unknown

R = TypeVar("R")


def key(help: str, *, default: Any = MISSING, unit: str = "", **more: Any) -> Any:
    """A field of a record that is a key of a file; without `default` the key must be given.

    Args:
        help: what the key means, as the reference prints it.
        more: whatever else the reader of the record has to know of the key.
    """
    metadata = {"help": help, "unit": unit, **more}
    if isinstance(default, list | dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def default_of(member: Field[Any]) -> Any:
    """What stands in for a key that is not given; MISSING where it must be given."""
    return member.default if member.default_factory is MISSING else member.default_factory()


def convert(values: Mapping[str, Any], record: type[R], where: str) -> R:
    """The record that a table of a file fills, tables in it included.

    Raises:
        InputError: an unknown key (the nearest one is named), a key that is missing, a value of the wrong type, or a
            number that is not finite; one line that begins with `where`.
    """
    _only_known(values, record, where)
    _only_finite(values, where)
    try:
        return msgspec.convert(values, record)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {error}") from None


def _only_known(values: Mapping[str, Any], record: type, where: str) -> None:
    """Raise InputError for a key that is none of the record's, here or in a table inside."""
    types, names = _types(record), [member.name for member in fields(record)]
    for name, value in values.items():
        if name not in names:
            raise unknown(f"key in {where}:", name, names)
        for inner in records_in(types[name]):
            if isinstance(value, Mapping):
                _only_known(value, inner, f"{where}{'.' if ':' in where else ': '}{name}")


@cache
def _types(record: type) -> dict[str, Any]:
    """Types of a record's fields; a file may hold one record a thousand times."""
    return get_type_hints(record)


def _only_finite(value: Any, where: str) -> None:
    """Raise InputError for nan and inf, which TOML has words for, in a table or a list: no limit excludes nan."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where}: {value} is no number that can be meant here")
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _only_finite(inner, f"{where}{'.' if ':' in where else ': '}{name}")
    elif isinstance(value, list):
        for inner in value:
            _only_finite(inner, where)


def read_table(path: Path, kind: str) -> dict[str, Any]:
    """The top table of a TOML file, or of a JSON file by its suffix.

    Args:
        kind: how messages name the file, such as "config file".

    Raises:
        InputError: it cannot be read, is not text, not TOML or JSON, not a table, nested too deeply, or has a number of
            thousands of digits.
    """
    written = "JSON" if path.suffix == ".json" else "TOML"
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if written == "JSON" else tomllib.loads(text)
    except OSError as error:
        raise InputError(f"cannot read {kind} {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{kind} {path} is not {written}: it is not UTF-8 text ({error.reason})") from None
    except RecursionError:
        raise InputError(f"{kind} {path} is not {written} as it is used here: it is nested too deeply") from None
    except ValueError as error:
        raise InputError(f"{kind} {path} is not {written}: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise InputError(f"{kind} {path} is not a table of keys")
    return found


def records_in(annotation: Any) -> Iterator[type]:
    """The records that a field of this type may hold."""
    if isinstance(annotation, type) and is_dataclass(annotation):
        yield annotation
    for argument in get_args(annotation):
        yield from records_in(argument)
