"""Keeps torch's compiler out of processes that compile nothing by it: its import takes as long as that of torch.

Where its compiler shall not look inside a function (some of an optimizer's, and the kernels of custom operators), torch
wraps it, and the wrapper imports the compiler at its first call, to mark the function. A mark that is there already is
kept, so the functions are marked here as what they are: called directly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch._library.custom_ops import OPDEFS
from torch.optim import Optimizer

_MARK = "__dynamo_disable"
_OF_OPTIMIZERS: tuple[Callable[..., Any], ...] = (
    Optimizer.add_param_group,
    Optimizer.load_state_dict,
    Optimizer.state_dict,
    Optimizer.zero_grad,
)


def without_compiler() -> None:
    """Mark what training calls; changes nothing where the compiler is loaded, or where torch has no such wrappers."""
    if "torch._dynamo" in sys.modules:
        return
    kernels = [
        kernel
        for name, operator in list(OPDEFS.items())
        if name.startswith("haloscope::")
        for kernel in operator._backend_fns.values()
    ]
    for wrapper in (*_OF_OPTIMIZERS, *kernels):
        wrapped = getattr(wrapper, "__wrapped__", None)
        if wrapped is not None and not hasattr(wrapped, _MARK):
            setattr(wrapped, _MARK, wrapped)
