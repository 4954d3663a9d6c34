"""Names -> methods, and the one-line syntax `name:option=value:option=value` of the command line."""

from __future__ import annotations

import math
from dataclasses import fields
from importlib.metadata import entry_points
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from harness.errors import InputError, unknown
from harness.methods.base import Method
from harness.methods.bns_gcn import BNSGCN
from harness.methods.cdfgnn import CDFGNN
from harness.methods.ec_graph import ECGraph
from harness.methods.ec_graph_s import ECGraphS
from harness.methods.single import Single
from harness.methods.subgraph_approximation import SubgraphApproximation
from harness.methods.sylvie import SylvieA, SylvieS
from harness.methods.vanilla import Vanilla

METHODS: dict[str, type[Method]] = {
    m.name: m for m in (Single, Vanilla, BNSGCN, SylvieS, SylvieA, SubgraphApproximation, CDFGNN, ECGraph, ECGraphS)
}


GROUP = "haloscope.methods"  # entry points of other packages


def known_methods() -> dict[str, type[Method]]:
    """All methods: built in, and those of other packages (entry-point group `haloscope.methods`)."""
    outside = {point.name: point.load() for point in entry_points(group=GROUP)}
    return {**METHODS, **outside}


def _find(name: str) -> type[Method]:
    """The method with a name; of other packages' methods only this one is loaded."""
    if name in METHODS:
        return METHODS[name]
    outside = {point.name: point for point in entry_points(group=GROUP)}
    if name not in outside:
        raise unknown("method", name, [*METHODS, *outside])
    found: type[Method] = outside[name].load()
    return found


def parse_method(text: str, **defaults: Any) -> Method:
    """A method from `name` or `name:option=value:...`; `defaults` apply where the method has that option.

    Raises:
        InputError: unknown method or option (the nearest one is named), a value of the wrong type, or an option without
            effect because of the others.
    """
    name, *pairs = text.split(":")
    method = _find(name)
    options = {f.name: f for f in fields(method)}
    values = {key: value for key, value in defaults.items() if key in options}
    given: set[str] = set()
    for pair in pairs:
        key, found, value = pair.partition("=")
        if not found:
            raise InputError(f"method {text!r}: {pair!r} is not option=value")
        if key not in options:
            raise unknown(f"option of {name}", key, list(options))
        if key in given:
            raise InputError(f"method {text!r}: option {key} is given twice")
        given.add(key)
        values[key] = value
    types = get_type_hints(method)
    for key, value in values.items():
        values[key] = _converted(text, key, value, types[key])
    made = method(**values)
    made.validate()
    for key, others in made.idle().items():
        if key in given and values[key] != options[key].default:
            raise InputError(f"method {text!r}: {key} changes nothing with {others}")
    return made


def _converted(text: str, key: str, value: Any, kind: Any) -> Any:
    """An option's value, converted to its type. Raises InputError that names the allowed values."""
    try:
        found = msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        found = None
    if found is not None and not (isinstance(found, float) and not math.isfinite(found)):
        return found
    if get_origin(kind) is Literal:
        wanted = f"one of {', '.join(map(str, get_args(kind)))}"
    else:
        wanted = {int: "a whole number", float: "a finite number", bool: "true or false"}.get(kind, str(kind))
    raise InputError(f"method {text!r}: {key} must be {wanted}, not {value!r}")
