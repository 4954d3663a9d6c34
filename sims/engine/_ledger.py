"""Charges every tensor operator of a rank by its shapes: a torch dispatch mode, so programs need no annotation.

It reads shapes only, and so works on real and on meta tensors, in the forward and the backward pass. The work of an
operator comes from `sims.device`, its seconds from the device profile; both are cached per operator and shapes.

Every rank's program is run, even if shapes repeat: a program may depend on its rank, its epoch and its own state, so
one rank's operators cannot be reused for another. Prices are cached per call instead; whole epochs are replayed if a
method declares that they repeat (`sims.replay`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from torch import Tensor, strided
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from sims.device import UNKNOWN, Call, DeviceProfile, GammaRates, LiveMemory, Operator, ShapeMemory, Work, tensors_of

Price = tuple[float, Work, float]
"""Seconds of an operator, the work that they were computed from, and its host time as a multiple of a launch."""

_MANY = (list, tuple)  # what operators with several results return


class Meter(Protocol):
    """The clock that a ledger charges.

    Attributes:
        paused: whether nothing is charged.
        kind: the component under which compute is booked now.
    """

    paused: bool
    kind: str

    def charge(self, seconds: float, launches: float = 1) -> None:
        """Book compute seconds of operators, whose host time is that of so many launches."""
        ...


class Prices:
    """Seconds of operators on one device, cached by operator and shapes; shared by all ranks.

    Args:
        skew: coefficient of variation of the graph's degrees.

    Attributes:
        unknown: unknown operator -> calls; these are charged by their bytes, as elementwise.
    """

    def __init__(self, profile: DeviceProfile, skew: float = 0.0) -> None:
        self.profile, self._popularity = profile, GammaRates(skew)
        self.unknown: Counter[str] = Counter()
        self._operators: dict[int, Operator] = {}  # by id: operators live as long as torch
        self._prices: dict[tuple[Any, ...], Price] = {}

    def operator(self, func: OpOverload) -> Operator:
        """The cached description of an operator."""
        operator = self._operators.get(id(func))
        if operator is None:
            operator = self._operators[id(func)] = Operator(func)
        return operator

    def price(
        self, func: OpOverload, args: Any, inputs: list[Tensor], outputs: list[Tensor], call: Call | None = None
    ) -> Price:
        """The price of one call that is not free.

        `call` is the record of the same call in `ShapeMemory`; the price is cached in it.
        """
        found: Price | None = None if call is None else call.prices.get(self)
        if found is not None:
            return found
        operator = self.operator(func)
        key = (id(func), operator.bits(args), *map(_signature, inputs), None, *map(_signature, outputs))
        found = self._prices.get(key)
        if found is None:
            work = operator.work(args, inputs, outputs)
            found = (self.seconds(work), work, self.profile.launches(work))
            if call is None:
                self._prices[key] = found
        if call is not None:
            call.prices[self] = found
        return found

    def seconds(self, work: Work) -> float:
        """Seconds of one operator's work on this device."""
        return self.profile.seconds(work, self._popularity)


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The torch dispatch mode under which one rank's program runs.

    Args:
        shapes: cached results of operators on meta tensors; None for tensors with values.
        charged: callbacks of that hook for this rank (see `Observer`).

    Attributes:
        seconds: operator class, or UNKNOWN -> seconds charged so far, without work off the clock.
        halves: classes of which operators ran in bfloat16.
    """

    def __init__(
        self,
        prices: Prices,
        meter: Meter,
        memory: LiveMemory,
        shapes: ShapeMemory | None = None,
        charged: Sequence[Callable[[str, Work, float], None]] = (),
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.prices, self.meter, self.memory, self._shapes, self._charged = prices, meter, memory, shapes, charged
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.halves: set[str] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: with True, torch would wrap the mode in a call that imports its compiler and slows every operator."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operator = self.prices.operator(func)
        if operator.view:  # more than half of all operators
            self.memory.touch(tensors_of((*args, *kwargs.values()) if kwargs else args), ())
            return func(*args, **kwargs) if kwargs else func(*args)
        inputs: list[Tensor] = []
        call = None
        if self._shapes is None:
            result = func(*args, **(kwargs or {}))
            inputs = tensors_of((*args, *kwargs.values()) if kwargs else args)
        else:
            result, call = self._shapes.call(func, args, kwargs or {}, inputs)
        meter = self.meter
        outputs = [result] if type(result) is Tensor else tensors_of(result if type(result) in _MANY else (result,))
        self.memory.touch(inputs, outputs, meter.kind == "codec")
        if not meter.paused and not operator.free:
            seconds, work, launches = self.prices.price(func, args, inputs, outputs, call)
            meter.charge(seconds, launches)
            self.count(meter.kind, work, seconds)
        return result

    @contextmanager
    def aside(self, meter: Meter, charged: Sequence[Callable[[str, Work, float], None]]) -> Iterator[None]:
        """Operators within are charged to another meter, with other callbacks: those of the rank's second thread."""
        usual = self.meter, self._charged
        self.meter, self._charged = meter, charged
        try:
            if self.memory.played:
                yield
            else:
                with self:
                    yield
        finally:
            self.meter, self._charged = usual

    def count(self, component: str, work: Work, seconds: float) -> None:
        """Count an operator that is charged to the clock: under its class, and by name if its class is unknown."""
        self.seconds[work.kind] += seconds
        if work.half:
            self.halves.add(work.kind)
        if work.kind == UNKNOWN:
            self.prices.unknown[work.name] += 1
        for notify in self._charged:
            notify(component, work, seconds)


def _signature(tensor: Tensor) -> tuple[Any, ...]:
    if tensor.layout is strided:
        return (tensor.shape, tensor.dtype)
    return (tensor.shape, tensor.dtype, tensor._nnz())
