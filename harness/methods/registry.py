"""Names -> methods, and the one-line syntax `name:option=value:option=value` of the command line."""

from __future__ import annotations

from dataclasses import fields
from importlib.metadata import entry_points
from typing import Any

import msgspec

from harness.errors import InputError, unknown
from harness.methods.base import Method
from harness.methods.bns_gcn import BNSGCN
from harness.methods.single import Single
from harness.methods.sylvie import SylvieS
from harness.methods.vanilla import Vanilla

METHODS: dict[str, type[Method]] = {m.name: m for m in (Single, Vanilla, BNSGCN, SylvieS)}


def known_methods() -> dict[str, type[Method]]:
    """All methods: built in, and those of other packages (entry-point group `haloscope.methods`)."""
    outside = {point.name: point.load() for point in entry_points(group="haloscope.methods")}
    return {**METHODS, **outside}


def parse_method(text: str, **defaults: Any) -> Method:
    """A method from `name` or `name:option=value:...`; `defaults` apply where the method has that option.

    Raises:
        InputError: unknown method or option (the nearest one is named), or a value of the wrong type.
    """
    name, *pairs = text.split(":")
    methods = known_methods()
    if name not in methods:
        raise unknown("method", name, methods)
    options = {f.name for f in fields(methods[name])}
    values = {key: value for key, value in defaults.items() if key in options}
    for pair in pairs:
        key, found, value = pair.partition("=")
        if not found:
            raise InputError(f"method {text!r}: {pair!r} is not option=value")
        if key not in options:
            raise unknown(f"option of {name}", key, options)
        values[key] = value
    try:
        return msgspec.convert(values, methods[name], strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"method {text!r}: {error}") from None
