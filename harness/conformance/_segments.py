"""Segments of a recorded epoch as lists of operators, for `Facts.static` on CPU tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from harness.errors import ProgramError

READS = ("_local_scalar_dense", "nonzero", "equal", "is_nonzero", "masked_select", "unique")
"""Operators whose result, or its shape, only the host can use once it knows the numbers."""

_Call = tuple[Any, Any, Any, Any]


class OperatorSegments:
    """Segments that are lists of operators on CPU tensors; implements `harness.static_epochs.EpochSegments`."""

    def __init__(self) -> None:
        self.keys: Mapping[int, int] = {}

    def warming_up(self) -> AbstractContextManager[None]:
        """Nothing to prepare."""
        return nullcontext()

    def new(self) -> _OperatorSegment:
        """A segment to be recorded."""
        return _OperatorSegment(self)

    def renew(self, keys: Mapping[int, int]) -> None:
        """Use other keys from now on."""
        self.keys = keys

    def ended(self) -> None:
        """Nothing to do: operators on a CPU raise at once."""


class _OperatorSegment:
    """Operators are computed while they are recorded, so that the first `run` has nothing left to do."""

    def __init__(self, segments: OperatorSegments) -> None:
        self.segments = segments
        self.calls: list[_Call] = []
        self._computed = False

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what is computed inside."""
        with _Calls(self.calls):
            yield
        self._computed = True

    def run(self) -> None:
        """Compute every operator again, into the tensors that the recorded ones returned."""
        if self._computed:
            self._computed = False
            return
        keys = self.segments.keys
        with torch.no_grad():
            for func, args, kwargs, before in self.calls:
                args, kwargs = tree_map(lambda value: _renewed(value, keys), (args, kwargs))
                for old, new in zip(tree_leaves(before), tree_leaves(func(*args, **kwargs)), strict=True):
                    if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)


class _Calls(TorchDispatchMode):
    """Records every operator with its arguments and results."""

    def __init__(self, calls: list[_Call]) -> None:
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in READS or _indexes_by_truth(func, args) or _counts(func, kwargs):
            raise ProgramError(f"{func} makes the host wait for numbers")
        found = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, found))
        return found


def _indexes_by_truth(func: Any, args: Any) -> bool:
    """Whether an index is of truth values, of which the true ones are counted first."""
    indices = (
        args[1] if func.overloadpacket.__name__ in ("index", "index_put", "index_put_", "_index_put_impl_") else ()
    )
    return any(isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8) for i in indices)


def _counts(func: Any, kwargs: Any) -> bool:
    """Whether the length of the result is the sum of a tensor."""
    return func.overloadpacket.__name__ == "repeat_interleave" and (kwargs or {}).get("output_size") is None


def _renewed(value: Any, keys: Mapping[int, int]) -> Any:
    return keys.get(value, value) if type(value) is int else value
