"""Names of a folder that are imported when they are first used: commands that only list things need few of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, Collection[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a folder's `__init__` that imports these names from its modules when they are asked for.

    A type checker sees none of this: the same imports stand beside it under TYPE_CHECKING.

    Args:
        package: the folder's `__name__`.
        modules: module of the folder -> names that it hands out.
    """
    places = {name: module for module, names in modules.items() for name in names}

    def imported(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{places[name]}"), name)

    return imported
