"""Tensors of a forward pass in host memory until its backward pass needs them, and results on their way through it.

Training operator by operator, as ROC does: a `SwapTape` cuts the pass between operators, so that at a cut the device
holds what the next operator reads and, of what autograd saved for the backward pass, as much as a capacity allows. The
rest is in host memory and comes back for its operator. Copies are effects, counted in bytes. Values never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from harness.rank import Rank
from harness.tape import Exchange, Tape


@dataclass(eq=False)
class _Held:
    """One storage that the backward pass needs.

    Attributes:
        nbytes: its size.
        device, host: all of it as one row, where it is; None where it is not.
        first: the first operator that saved it; it is dropped when that one has been differentiated.
    """

    nbytes: int
    first: int
    device: Tensor | None
    host: Tensor | None = None


@dataclass(frozen=True, eq=False)
class _Saved:
    """A saved tensor: a view of a storage."""

    held: _Held
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int

    def tensor(self) -> Tensor:
        """The tensor, which must be on the device."""
        assert self.held.device is not None, "a saved tensor was not fetched from host memory"
        return self.held.device.as_strided(self.shape, self.stride, self.offset)


class SwapTape(Tape):
    """A tape that keeps at most `capacity` bytes on the device between two operators of its forward pass.

    At every cut what autograd has saved leaves for the host, the earliest saved first, until that and the tensors that
    cross the cut fit. The backward pass needs the earliest last, so the fewest bytes move, to within one tensor. A
    tensor that has a copy in host memory leaves without a further one. The capacity does not bind inside an operator:
    its inputs and results and, backwards, what it saved are on the device then, as are rows that cross several cuts.

    Args:
        capacity: in bytes.
        resident: tensors that stay on the device whatever the capacity, such as parameters and the graph.

    Attributes:
        to_host, to_device: bytes copied so far.
    """

    def __init__(self, rank: Rank, parameters: Iterable[Tensor], capacity: float, resident: Iterable[Tensor]) -> None:
        super().__init__(rank, parameters)
        self.capacity = capacity
        self.to_host = self.to_device = 0
        self._resident = {_key(tensor) for tensor in (*self.parameters, *resident)}
        self._held: dict[int, _Held] = {}  # by storage, those on the device, the latest use last
        self._of_segment: dict[int, dict[_Held, None]] = {}
        self._fetched: list[_Held] = []

    @contextmanager
    def operator(self) -> Iterator[None]:
        """What autograd saves inside belongs to the operator up to the next cut; nothing may be awaited inside."""
        with saved_tensors_hooks(self._save, _restore):
            yield

    async def pass_on(self, x: Tensor, *keep: Tensor) -> tuple[Tensor, ...]:
        """A cut after an operator's result `x`, which goes to host memory and back unless the capacity holds it."""
        return await self.apply(_Through(self, _nbytes(x) > self.capacity and _key(x) not in self._resident), x, *keep)

    async def apply(self, exchange: Exchange, x: Tensor, *keep: Tensor) -> tuple[Tensor, ...]:
        await self._settle((x, *keep))
        return await super().apply(exchange, x, *keep)

    async def copy(self, tensor: Tensor, *, to_host: bool) -> Tensor:
        """A copy in the other memory; on a CPU rank the tensor itself, whose bytes are counted all the same."""
        if to_host:
            self.to_host += _nbytes(tensor)
        else:
            self.to_device += _nbytes(tensor)
        copied: Tensor = await self.rank.host_copy(tensor, to_host=to_host, label="swap")
        return copied

    def hold(self, x: Tensor, host: Tensor) -> None:
        """Let the storage of `x` leave the device without a copy, since `host` is one."""
        held = self._held.get(_key(x))
        if held is None:
            self._held[_key(x)] = _Held(_nbytes(x), len(self._cuts) + 1, _flat(x), _flat(host))
        elif held.host is None:
            held.host = _flat(host)

    def host_copy_of(self, x: Tensor) -> Tensor | None:
        """The copy of `x` in host memory, if there is one."""
        held = self._held.get(_key(x))
        return None if held is None or held.host is None else held.host.as_strided(x.shape, x.stride(), 0)

    async def backward(self, loss: Tensor) -> Tensor:
        value = await super().backward(loss)
        self._held.clear()
        self.rank.observe("bytes to the host", self.to_host)
        self.rank.observe("bytes from the host", self.to_device)
        return value

    async def _before(self, segment: int) -> None:
        for held in self._of_segment.get(segment, ()):
            if held.device is None:
                assert held.host is not None
                held.device = await self.copy(held.host, to_host=False)
                self._fetched.append(held)

    async def _after(self, segment: int) -> None:
        for held in self._fetched:
            held.device = None
        self._fetched.clear()
        done = {id(held) for held in self._of_segment.pop(segment, ()) if held.first >= segment}
        self._held = {key: held for key, held in self._held.items() if id(held) not in done}

    def _save(self, tensor: Tensor) -> Tensor | _Saved:
        key, segment = _key(tensor), len(self._cuts)
        if key in self._resident:
            return tensor
        held = self._held.pop(key, None)
        if held is None:
            held = _Held(tensor.untyped_storage().nbytes(), segment, _flat(tensor))
        held.first = min(held.first, segment)
        self._held[key] = held
        self._of_segment.setdefault(segment, {})[held] = None
        return _Saved(held, tensor.shape, tensor.stride(), int(tensor.storage_offset()))

    async def _settle(self, crossing: tuple[Tensor, ...]) -> None:
        """Move saved tensors to the host until the rest fits beside those that cross; free what nothing needs."""
        alive = {_key(tensor): tensor.untyped_storage().nbytes() for tensor in crossing}
        for key in [key for key in self._held if key not in alive]:
            if not any(self._held[key] in used for used in self._of_segment.values()):
                del self._held[key]  # a result that passed through the host and that no operator saved
        leaving = [key for key in self._held if key not in alive]
        total = sum(alive.values()) + sum(self._held[key].nbytes for key in leaving)
        for key in leaving:
            if total <= self.capacity:
                break
            held = self._held.pop(key)
            total -= held.nbytes
            if held.host is None:
                assert held.device is not None
                held.host = await self.copy(held.device, to_host=True)
            held.device = None


@dataclass(frozen=True, eq=False)
class _Through:
    """A result to host memory and back, and its gradient likewise; or neither, where the device has room."""

    tape: SwapTape
    leaves: bool

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor]:
        """x -> (x,)."""
        if not self.leaves:
            return (x,)
        there = self.tape.host_copy_of(x)
        if there is None:
            there = await self.tape.copy(x, to_host=True)
            self.tape.hold(x, there)
        back = await self.tape.copy(there, to_host=False)
        self.tape.hold(back, there)
        return (back,)

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        """(gradient,) -> gradient."""
        (gradient,) = gradients
        if not self.leaves:
            return gradient
        return await self.tape.copy(await self.tape.copy(gradient, to_host=True), to_host=False)


def _restore(saved: Tensor | _Saved) -> Tensor:
    return saved if isinstance(saved, Tensor) else saved.tensor()


def _key(tensor: Tensor) -> int:
    """The identity of a storage while it is alive."""
    return int(tensor.untyped_storage()._cdata)


def _nbytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _flat(tensor: Tensor) -> Tensor:
    """The tensor's whole storage as one row."""
    return tensor.detach().as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)
