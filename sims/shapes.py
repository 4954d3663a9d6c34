"""Remembers what operators on meta tensors return, so that each shape is worked out once.

torch computes the shapes of many operators in Python, at up to a millisecond a call; a shapes-only run repeats the same
calls for every rank and epoch. Only metadata is remembered: nothing here may be used on tensors that hold numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, strided
from torch._ops import OpOverload

KEYS_KEPT = 200_000

_IGNORED = ("key", "generator")
"""Arguments that never change a shape: random keys, which differ on every call."""


class ShapeMemory:
    """Calls operators on meta tensors; a call seen before is answered from memory. Shared by all ranks."""

    def __init__(self) -> None:
        self._how: dict[OpOverload, str] = {}
        self._ignored: dict[OpOverload, frozenset[int]] = {}
        self._known: dict[Any, Callable[[], Any] | None] = {}

    def call(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What `func(*args, **kwargs)` returns, with equal shapes, strides and types.

        Raises what the operator raises: a call that failed is not remembered.
        """
        how = self._how.get(func)
        if how is None:
            how = self._how[func] = _how(func)
            self._ignored[func] = frozenset(i for i, a in enumerate(func._schema.arguments) if a.name in _IGNORED)
        key = None if how == "call" else self._key(func, args, kwargs)
        if key is None:
            return func(*args, **kwargs)
        if key in self._known:
            make = self._known[key]
            return args[0] if make is None else make()
        result = func(*args, **kwargs)
        if len(self._known) >= KEYS_KEPT:
            self._known.clear()
        self._known[key] = None if how == "inplace" else _maker(result)
        return result

    def _key(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call as a hashable value, or None where it cannot be remembered."""
        ignored = self._ignored[func]
        parts = [func]
        tensors = 0
        for position, value in enumerate((*args, *kwargs.items())):
            if position in ignored:
                continue
            part = _part(value)
            if part is None:
                return None
            tensors += type(part) is _Meta or (type(value) in (list, tuple) and any(type(p) is _Meta for p in part))
            parts.append(part)
        return tuple(parts) if tensors else None


class _Meta(tuple[Any, ...]):
    """Marks the description of a tensor among the parts of a key."""

    __slots__ = ()


def _part(value: Any) -> Any:
    """One argument as a hashable value; None for what must not be remembered."""
    if isinstance(value, Tensor):
        if value.layout is not strided or not value.is_meta:
            return None
        return _Meta((value.shape, value.stride(), value.dtype))
    kind = type(value)
    if kind is float:
        return float  # its value changes no shape
    if kind is list or kind is tuple:
        parts = tuple(_part(item) for item in value)
        return None if None in parts else parts
    if value is None or kind in (int, bool, str, torch.dtype, torch.device, torch.layout, torch.memory_format):
        return (kind, value)  # the type too: 1, 1.0 and True hash alike
    return None


def _how(func: OpOverload) -> str:
    """How an operator may be answered: `make` new tensors, return the first argument `inplace`, or `call` it."""
    schema = func._schema
    plain = [r.alias_info is None for r in schema.returns]
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
