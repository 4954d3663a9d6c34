"""Custom operators of torch: a schema and one kernel for each kind of device.

`torch.library.custom_op` checks every call for outputs that share memory with inputs, and wraps every kernel so that
torch's compiler leaves it alone. On tensors of a few rows those checks take longer than the kernels, and a modelled
rank makes thousands of such calls in an epoch; here a kernel is called as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, cast

import torch

P = ParamSpec("P")
R = TypeVar("R")
Kernel = TypeVar("Kernel", bound=Callable[..., object])

_FAKE = "Meta"
_LIBRARIES: dict[str, torch.library.Library] = {}
"""Namespace -> its definitions, which live as long as the process."""


class CustomOperator(Generic[P, R]):
    """An operator that torch dispatches; calling it is calling `torch.ops.NAMESPACE.NAME`.

    Attributes:
        name: namespace::name.
        kernels: dispatch key (`CPU`, `CUDA`, `Meta`) -> kernel.
    """

    def __init__(self, name: str, schema: str, kernel: Callable[P, R]) -> None:
        namespace, _, short = name.partition("::")
        if namespace not in _LIBRARIES:
            _LIBRARIES[namespace] = torch.library.Library(namespace, "FRAGMENT")
        self.name = name
        self.kernels: dict[str, Callable[..., object]] = {}
        self._library, self._short = _LIBRARIES[namespace], short
        self._library.define(short + schema)
        self._overload = cast("Callable[P, R]", getattr(getattr(torch.ops, namespace), short).default)
        self._register("CPU", kernel)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._overload(*args, **kwargs)

    def register_kernel(self, device: str) -> Callable[[Kernel], Kernel]:
        """Decorator: the kernel for tensors of a type of device ("cuda")."""
        return lambda kernel: self._register(device.upper(), kernel)

    def register_fake(self, kernel: Kernel) -> Kernel:
        """Decorator: for tensors of the meta device, which have shapes and no numbers, returns empty results."""
        return self._register(_FAKE, kernel)

    def _register(self, key: str, kernel: Kernel) -> Kernel:
        self._library.impl(self._short, kernel, key)
        self.kernels[key] = kernel
        return kernel


OPERATORS: dict[str, CustomOperator[..., Any]] = {}
"""Every operator that was defined so far, by its name."""


def custom_operator(name: str, schema: str) -> Callable[[Callable[P, R]], CustomOperator[P, R]]:
    """Decorator: define operator `name` (namespace::name), computed on CPU tensors by the decorated function.

    Args:
        name: namespace::name, for one definition in a process.
        schema: arguments and results in torch's notation, as in "(Tensor x, int bits) -> Tensor". Results share no
            memory with arguments, and arguments are not written to.

    Raises:
        RuntimeError: of torch, for a schema that cannot be read or a name that is defined already.
    """

    def define(kernel: Callable[P, R]) -> CustomOperator[P, R]:
        operator = CustomOperator(name, schema, kernel)
        OPERATORS[name] = operator
        return operator

    return define
