"""Names -> methods, and the one-line syntax `name:option=value:option=value` of the command line."""

from __future__ import annotations

from dataclasses import fields
from importlib.metadata import entry_points
from typing import Any

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
    """The method of a name; loads no other package's method than the one asked for."""
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
        InputError: unknown method or option (the nearest one is named), or a value of the wrong type.
    """
    name, *pairs = text.split(":")
    method = _find(name)
    options = {f.name for f in fields(method)}
    values = {key: value for key, value in defaults.items() if key in options}
    given: set[str] = set()
    for pair in pairs:
        key, found, value = pair.partition("=")
        if not found:
            raise InputError(f"method {text!r}: {pair!r} is not option=value")
        if key not in options:
            raise unknown(f"option of {name}", key, options)
        if key in given:
            raise InputError(f"method {text!r}: option {key} is given twice")
        given.add(key)
        values[key] = value
    try:
        made = msgspec.convert(values, method, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"method {text!r}: {error}") from None
    made.validate()
    return made
