"""The driver-free core: the seam, graphs, partitions, codecs, models, methods, configs and results.

For people, in Python: `run`, `compare`, `what_if`, `advise`, `partition_graph`, `load_results`, `Config` and
`InputError`, which do what the commands do and are loaded when they are first used. The command line is `harness.cli`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.user_cache import keep_kernels_apart

if TYPE_CHECKING:
    from harness.commands.python.interface import advise, compare, load_results, partition_graph, run, what_if
    from harness.config import RunConfig as Config
    from harness.errors import InputError

FACE = {
    "Config": ("harness.config", "RunConfig"),
    "InputError": ("harness.errors", "InputError"),
    "advise": ("harness.commands.python.interface", "advise"),
    "compare": ("harness.commands.python.interface", "compare"),
    "load_results": ("harness.commands.python.interface", "load_results"),
    "partition_graph": ("harness.commands.python.interface", "partition_graph"),
    "run": ("harness.commands.python.interface", "run"),
    "what_if": ("harness.commands.python.interface", "what_if"),
}
"""Name -> the module that holds it, and its name there. A function of another command is one line more."""

keep_kernels_apart(Path(__file__))

__all__ = ["Config", "InputError", "advise", "compare", "load_results", "partition_graph", "run", "what_if"]


def __getattr__(name: str) -> Any:
    if name not in FACE:
        raise AttributeError(f"module 'harness' has no attribute {name!r}")
    module, attribute = FACE[name]
    found = getattr(import_module(module), attribute)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *FACE})
