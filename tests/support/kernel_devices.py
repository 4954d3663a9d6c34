"""Where the tests of GPU kernels run: on a GPU, or by Triton's interpreter on tensors of the CPU.

Triton decides when a kernel is defined whether it will be compiled or interpreted, and so a process does one of them:
it compiles where there is a GPU, and interprets elsewhere or if TRITON_INTERPRET is 1 in its environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from harness.kernels.custom_operator import OPERATORS

VARIABLE = "TRITON_INTERPRET"
if not torch.cuda.is_available():
    os.environ.setdefault(VARIABLE, "1")

INTERPRETED = os.environ.get(VARIABLE) == "1"


class KernelDevice:
    """One of the two ways to run GPU kernels.

    Attributes:
        name: `interpreted` or `cuda`.
        type: of the device of the tensors that kernels get.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.type = "cuda" if name == "cuda" else "cpu"

    def there(self, tensor: Tensor) -> Tensor:
        """The tensor on the device of the kernels."""
        return tensor.to(self.type)

    @contextmanager
    def kernels(self) -> Iterator[None]:
        """Within, operators run their GPU kernels: on CPU tensors too where kernels are interpreted."""
        if self.name == "cuda":
            yield
            return
        # lanes beyond a tensor hold anything, and numpy, with which Triton interprets, warns of what comes out
        with np.errstate(all="ignore"), _GpuKernels():
            yield


class _GpuKernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Calls of an operator that has a kernel for CUDA tensors call that, whatever tensors they have."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: with True, torch would wrap the mode in a call that imports its compiler."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operator = OPERATORS.get(func._schema.name)
        kernel = func if operator is None else operator.kernels.get("CUDA", func)
        return kernel(*args, **(kwargs or {}))


def small_tiles(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Make kernels of these modules, where they are interpreted, work on few values at a time, so that few suffice."""
    for module in modules if INTERPRETED else ():
        monkeypatch.setattr(module, "ELEMENTS", 64)
        monkeypatch.setattr(module, "WIDEST", 32)


def _available() -> list[Any]:
    if INTERPRETED and find_spec("triton") is None:
        return [pytest.param("interpreted", marks=pytest.mark.skip(reason="no Triton on this machine"))]
    return ["interpreted" if INTERPRETED else "cuda"]


AVAILABLE = _available()
"""The ways of this process, as values of a parametrised fixture."""
