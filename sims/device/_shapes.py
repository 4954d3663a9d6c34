"""Caches the results of operators on meta tensors, so that each shape is computed once.

torch computes the shapes of many operators in Python, at up to a millisecond per call; a shapes-only run repeats the
same calls for every rank and epoch. Only metadata is cached, so this must not be used on tensors with values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, strided
from torch._ops import OpOverload
from torch.nn import Parameter

KEYS_KEPT = 600_000  # enough for about 4,000 different ranks, 1 KB each

_IGNORED = ("key", "generator")
"""Arguments that do not affect shapes: random keys, which differ in every call."""

_PLAIN = frozenset((type(None), int, str, torch.dtype, torch.device, torch.layout, torch.memory_format))

_SIMPLE = _PLAIN | {float, bool, list, tuple}  # a lookup is faster than isinstance of Tensor


class Call:
    """A cached call: the operator, and the types and shapes of its arguments. Compared by identity.

    Attributes:
        make: makes its result; None if it returns its first argument, modified in place.
        prices: price list -> price of the call.
    """

    __slots__ = ("make", "prices")

    def __init__(self, make: Callable[[], Any] | None) -> None:
        self.make = make
        self.prices: dict[object, Any] = {}


class ShapeMemory:
    """Calls operators on meta tensors, with cached results for repeated calls. Shared by all ranks."""

    def __init__(self) -> None:
        self._functions: dict[int, tuple[str, frozenset[int]]] = {}  # by id: operators live as long as torch
        self._known: dict[Any, Call] = {}

    def call(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: list[Tensor]
    ) -> tuple[Any, Call | None]:
        """The result of `func(*args, **kwargs)`, with equal shapes, strides and types; and the call, if cached.

        The tensors among the arguments are appended to `inputs`. Exceptions of the operator are passed on; failed calls
        are not cached.
        """
        function = self._functions.get(id(func))
        if function is None:
            ignored = frozenset(i for i, a in enumerate(func._schema.arguments) if a.name in _IGNORED)
            function = self._functions[id(func)] = (_how(func), ignored)
        how, ignored = function
        key = None if how == "call" else _key(func, args, kwargs, ignored, inputs)
        if key is None:
            inputs[:] = tensors_of((*args, *kwargs.values()) if kwargs else args)
            return func(*args, **kwargs), None
        call = self._known.get(key)
        if call is not None:
            return (args[0] if call.make is None else call.make()), call
        result = func(*args, **kwargs)
        if len(self._known) >= KEYS_KEPT:
            self._known.clear()
        call = self._known[key] = Call(None if how == "inplace" else _maker(result))
        return result, call


def tensors_of(values: Any) -> list[Tensor]:
    """The tensors among arguments or results, and in lists of them."""
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += [item for item in value if isinstance(item, Tensor)]
    return found


def _key(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], ignored: frozenset[int], inputs: list[Tensor]
) -> Any:
    """The call as a hashable value, or None if it cannot be cached: without tensors, or with one that is not meta."""
    parts: list[Any] = [id(func)]
    for position, value in enumerate(args):
        kind = type(value)
        if kind is Tensor or kind is Parameter or (kind not in _SIMPLE and isinstance(value, Tensor)):
            if value.layout is not strided or not value.is_meta:
                return None
            inputs.append(value)
            parts.append((value.shape, value.stride(), value.dtype))
        elif position not in ignored:
            if kind is list or kind is tuple:
                inputs += [item for item in value if isinstance(item, Tensor)]
            part = _part(value)
            if part is NotImplemented:
                return None
            parts.append(part)
    for name, value in kwargs.items():
        part = _part(value)
        if part is NotImplemented:
            return None
        inputs += tensors_of((value,))
        parts.append((name, part))
    return tuple(parts) if inputs else None


def _part(value: Any) -> Any:
    """One argument as a hashable value; NotImplemented if it prevents caching."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        return float  # its value changes no shape
    if kind is bool:
        return (bool, value)  # True and 1 hash alike
    if kind is list or kind is tuple:
        parts = tuple(map(_part, value))
        return NotImplemented if NotImplemented in parts else parts
    if isinstance(value, Tensor) and value.layout is strided and value.is_meta:
        return (value.shape, value.stride(), value.dtype)
    return NotImplemented


def _how(func: OpOverload) -> str:
    """How results of an operator are cached: `make` new tensors (or none), return the first argument `inplace`, or
    `call` it always."""
    schema = func._schema
    plain = [r.alias_info is None for r in schema.returns]
    if not plain and schema.name.startswith(("aten::_foreach_", "aten::_fused_")):
        return "make"  # they write to lists of tensors, which keep their shapes
    if plain and all(plain) and not schema.is_mutable and all("Tensor" in str(r.type) for r in schema.returns):
        return "make"
    first = schema.arguments[0].alias_info if schema.arguments else None
    writes = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    mine = len(plain) == 1 and first is not None and len(writes) == 1 and first.is_write
    return "inplace" if mine and not plain[0] and torch.Tag.inplace_view not in func.tags else "call"


def _maker(result: Any) -> Callable[[], Any]:
    """A function that makes tensors like these."""
    if result is None:
        return lambda: None
    if isinstance(result, Tensor):
        shape, stride, dtype = result.shape, result.stride(), result.dtype
        return lambda: torch.empty_strided(shape, stride, dtype=dtype, device="meta")
    makers, kind = [_maker(item) for item in result], type(result)
    return lambda: kind(make() for make in makers)
