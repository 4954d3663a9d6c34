"""Charges every tensor operator of a rank from its shapes: a dispatch mode, so nothing needs annotation.

It works on real and on meta tensors, forwards and backwards, because it reads shapes only. How much work an operator is
comes from `sims.operators`, how long that takes from the device profile; both are remembered per operator and shapes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, Protocol

from torch import Tensor, strided
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from sims.device import DeviceProfile
from sims.memory import LiveMemory
from sims.operators import Operator
from sims.shapes import ShapeMemory


class Meter(Protocol):
    """What a ledger charges: a clock."""

    paused: bool

    def charge(self, seconds: float) -> None:
        """Book compute seconds."""
        ...


class Prices:
    """Seconds of operators on one device, remembered by operator and shapes; shared by all ranks.

    Attributes:
        unknown: operator -> how often it was met without being known; charged by its bytes, as elementwise.
    """

    def __init__(self, profile: DeviceProfile, slowdown: float = 1.0) -> None:
        self.profile, self.slowdown = profile, slowdown
        self.unknown: Counter[str] = Counter()
        self._operators: dict[OpOverload, Operator] = {}
        self._prices: dict[tuple[Any, ...], tuple[str, float]] = {}

    def price(self, func: OpOverload, args: Any, inputs: list[Tensor], outputs: list[Tensor]) -> tuple[str, float]:
        """(class, seconds) of one call; the class of an operator that is not known is "unknown"."""
        operator = self._operators.get(func)
        if operator is None:
            operator = self._operators[func] = Operator(func)
        if operator.free:
            return "free", 0.0
        key = (func, operator.bits(args), *map(_signature, inputs), None, *map(_signature, outputs))
        found = self._prices.get(key)
        if found is None:
            work = operator.work(args, inputs, outputs)
            kind = work.kind if operator.known else "unknown"
            found = self._prices[key] = (kind, self.profile.seconds(work) * self.slowdown)
        if not operator.known:
            self.unknown[operator.name] += 1
        return found


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The mode under which one rank's program runs.

    Args:
        shapes: answers operators on meta tensors from memory; None where tensors hold numbers.

    Attributes:
        seconds: operator class -> seconds charged so far, off-the-clock work left out.
    """

    def __init__(self, prices: Prices, meter: Meter, memory: LiveMemory, shapes: ShapeMemory | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.prices, self.meter, self.memory, self._shapes = prices, meter, memory, shapes
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here; the wrapper that True asks for would import the compiler and slow every call."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs) if self._shapes is None else self._shapes.call(func, args, kwargs)
        inputs = _tensors((*args, *kwargs.values())) if kwargs else _tensors(args)
        outputs = _tensors(result if isinstance(result, list | tuple) else (result,))
        self.memory.see_all(inputs, "resident")
        self.memory.see_all(outputs, "computed")
        if not self.meter.paused:
            kind, seconds = self.prices.price(func, args, inputs, outputs)
            if seconds:
                self.meter.charge(seconds)
                self.seconds[kind] += seconds
        return result


def _signature(tensor: Tensor) -> tuple[Any, ...]:
    if tensor.layout is strided:
        return (tensor.shape, tensor.dtype)
    return (tensor.shape, tensor.dtype, tensor._nnz())


def _tensors(values: Any) -> list[Tensor]:
    """The tensors among arguments, and in lists of them."""
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += [item for item in value if isinstance(item, Tensor)]
    return found
