"""Keeps torch's compiler out of processes that compile nothing by it: its import takes as long as that of torch.

Where its compiler shall not look inside a function (some of an optimizer's, and elementwise operators on the meta
device), torch wraps it, and the wrapper imports the compiler at its first call, to mark the function. A mark that is
there already is kept, so the functions are marked here as what they are: called directly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import FunctionType
from typing import Any

from torch._compile import _disable_dynamo
from torch._decomp import global_decomposition_table
from torch.optim import Optimizer

_MARK = "__dynamo_disable"
_WRAPPER = _disable_dynamo(lambda: None).__code__
_OF_OPTIMIZERS: tuple[Callable[..., Any], ...] = (
    Optimizer.add_param_group,
    Optimizer.load_state_dict,
    Optimizer.state_dict,
    Optimizer.zero_grad,
)


@cache
def without_compiler() -> None:
    """Mark what training calls; changes nothing where the compiler is loaded, or where torch has no such wrappers.

    Done once in a process: every rank of a model comes here.
    """
    if "torch._dynamo" in sys.modules:
        return
    _mark(_OF_OPTIMIZERS)
    for operators in global_decomposition_table.values():
        _mark(operators.values())


def _mark(functions: Iterable[Any]) -> None:
    for function in functions:
        for wrapped in _kept_from_compiler(function):
            if not hasattr(wrapped, _MARK):
                setattr(wrapped, _MARK, wrapped)


def _kept_from_compiler(function: Any) -> Iterator[Any]:
    """What torch's wrapper calls, of every such wrapper around a function.

    Such wrappers lie in others, which all call what they wrap `fn`; `__wrapped__` can skip some of them.
    """
    while isinstance(function, FunctionType):
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        inner = cells["fn"].cell_contents if "fn" in cells else getattr(function, "__wrapped__", None)
        if function.__code__ is _WRAPPER:
            yield inner
        function = inner
