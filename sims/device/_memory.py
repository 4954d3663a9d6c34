"""Live bytes of one rank, from the storages that its operators allocate and access, independent of their values.

A storage counts from the first operator that allocates or reads it until it is freed, for real and for meta tensors. A
rank's own copies of shared inputs count as its own. Fragmentation of allocators and internal memory of libraries are
not included.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from harness.numbers import byte_text

CONTRIBUTORS = {
    "parameters": "model parameters",
    "optimizer": "what the optimizer makes of parameters and its own state",
    "features": "floating-point tensors made before the first epoch: input rows, and what layer 0 keeps of the halo",
    "graph": "integer tensors: sparse blocks, exchange plans, samples, labels, splits",
    "activations": "made in the forward pass: kept for the backward pass, or still in use",
    "gradients": "made since the backward pass began",
    "halo": "received rows, decoded rows, and buffers of exchanges in flight",
    "payloads": "rows that are being sent, and their codes",
    "carried": "what a method kept from the epoch before: caches, stale rows, error feedback",
}
"""Categories of bytes, with descriptions."""

LARGEST = 4  # contributors named in a message

_OF_EPOCH = ("activations", "gradients", "halo", "payloads")  # tensors of these that outlive their epoch are "carried"

_in_backward = torch._C._current_graph_task_id  # -1 outside autograd's engine


class _Watch(weakref.ref["torch.UntypedStorage"]):
    """A weak reference to a counted storage, with the data that its callback needs to subtract it."""

    __slots__ = ("key", "label", "nbytes")
    key: int
    label: str
    nbytes: int


class LiveMemory:
    """Bytes alive on one rank, and their peak.

    Attributes:
        live: bytes now.
        peak: most bytes so far.
        at_peak: contributor -> bytes when the peak was reached.
        setup_peak: most bytes before the first epoch.
        played: the rank is replayed from a recording to its end, without tensors; peaks are not computed.
        replaying: one of its epochs is, and others are computed: what it sends and receives has no tensors of its own.
    """

    def __init__(self) -> None:
        self.live = self.peak = self.setup_peak = 0
        self.at_peak = dict.fromkeys(CONTRIBUTORS, 0)
        self.played = self.replaying = False
        self._phase = "features"  # category of new floating-point tensors
        self._by_label = dict.fromkeys(CONTRIBUTORS, 0)
        self._known: dict[int, _Watch] = {}
        self._freed = _forget(weakref.ref(self))

    def begin_epoch(self) -> None:
        """Begin an epoch: tensors left by the last one become "carried", and a forward pass begins."""
        if self._phase == "features":
            self.setup_peak = self.peak
        self._phase = "activations"
        for watch in self._known.values():
            if watch.label in _OF_EPOCH:
                self._relabel(watch, "carried")

    def touch(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], codec: bool = False) -> None:
        """Count inputs and outputs of an operator (of a codec) that are not counted yet."""
        known, of_state = self._known, True
        for tensor in inputs:
            if tensor.layout is not torch.strided:
                continue
            storage = tensor.untyped_storage()
            watch = known.get(storage._cdata)
            label = self._resident(tensor, storage).label if watch is None else watch.label
            if label != "parameters" and type(tensor) is Parameter:
                self._relabel(known[storage._cdata], "parameters")
            elif label != "parameters" and label != "optimizer":
                of_state = False
        for tensor in outputs:
            if tensor.layout is torch.strided:
                storage = tensor.untyped_storage()
                if storage._cdata not in known:
                    self._watch(storage, self._made(tensor, codec, of_state and bool(inputs)), storage.nbytes())

    def received(self, tensors: Iterable[Tensor]) -> None:
        """Count tensors received in an exchange."""
        self._mark(tensors, "halo")

    def sending(self, tensors: Iterable[Tensor]) -> None:
        """Count tensors sent in an exchange as payload; views of larger storages keep their category."""
        self._mark((t for t in tensors if t.numel() * t.element_size() == t.untyped_storage().nbytes()), "payloads")

    def contents(self) -> dict[str, int]:
        """Bytes now, by contributor."""
        return self._by_label.copy()

    def exclude(self, tensor: Tensor) -> None:
        """Never count this tensor's storage: it is in another memory."""
        self._watch(tensor.untyped_storage(), "halo", 0)

    def hold(self, nbytes: int) -> None:
        """Count bytes that have no tensor yet: a receive buffer of a pending exchange."""
        self._add("halo", nbytes)

    def release(self, nbytes: int) -> None:
        """End a `hold`."""
        self._add("halo", -nbytes)

    def _resident(self, tensor: Tensor, storage: torch.UntypedStorage) -> _Watch:
        """Count a tensor that no operator of this rank allocated."""
        return self._watch(storage, "features" if tensor.is_floating_point() else "graph", storage.nbytes())

    def _made(self, tensor: Tensor, codec: bool, of_state: bool) -> str:
        """Category of a new tensor; `of_state`: its inputs are only parameters and optimizer state."""
        if self._phase == "features":
            return "graph" if not tensor.is_floating_point() else "optimizer" if of_state else "features"
        inside = _in_backward() != -1
        if inside:
            self._phase = "gradients"
        if codec:
            return "halo"
        if not tensor.is_floating_point():
            return "graph"
        return "optimizer" if of_state and not inside and self._phase == "gradients" else self._phase

    def _mark(self, tensors: Iterable[Tensor], label: str) -> None:
        if self.played or self.replaying:
            return
        for tensor in tensors:
            storage = tensor.untyped_storage()
            watch = self._known.get(storage._cdata)
            if watch is None:
                self._watch(storage, label, storage.nbytes())
            elif watch.label in _OF_EPOCH or watch.label == "features":
                self._relabel(watch, label)

    def _relabel(self, watch: _Watch, label: str) -> None:
        self._by_label[watch.label] -= watch.nbytes
        self._by_label[label] += watch.nbytes
        watch.label = label

    def _watch(self, storage: torch.UntypedStorage, label: str, nbytes: int) -> _Watch:
        watch = _Watch(storage, self._freed)
        watch.key, watch.label, watch.nbytes = storage._cdata, label, nbytes
        self._known[watch.key] = watch
        self._add(label, nbytes)
        return watch

    def _add(self, label: str, nbytes: int) -> None:
        self.live += nbytes
        self._by_label[label] += nbytes
        if self.live > self.peak and not self.played:
            self.peak = self.live
            self.at_peak = self._by_label.copy()


def _forget(owner: weakref.ref[LiveMemory]) -> Any:
    """The callback of a rank's watches; it does not keep the memory alive."""

    def freed(watch: _Watch) -> None:
        memory = owner()
        if memory is not None:
            memory._known.pop(watch.key, None)
            memory._add(watch.label, -watch.nbytes)

    return freed


@dataclass(frozen=True)
class Fullest:
    """The rank with the highest share of its device's memory.

    Attributes:
        peak, capacity: its peak bytes, and the bytes of its device.
        setup: whether the peak was reached before the first epoch.
        contributors: the peak by category (see CONTRIBUTORS), bytes, largest first.
    """

    rank: int
    peak: int
    capacity: int
    setup: bool
    contributors: dict[str, int]

    def __str__(self) -> str:
        parts = [f"{name} {byte_text(nbytes)}" for name, nbytes in list(self.contributors.items())[:LARGEST]]
        return (
            f"rank {self.rank} needs {byte_text(self.peak)}{' in set-up' * self.setup} ({', '.join(parts)}), "
            f"its device has {byte_text(self.capacity)}"
        )


def fullest(memories: Sequence[LiveMemory], capacity: Sequence[int]) -> Fullest:
    """The rank whose peak is the largest share of `capacity`, bytes of each rank's device."""
    rank = max(range(len(memories)), key=lambda r: memories[r].peak / capacity[r])
    memory = memories[rank]
    order = sorted(memory.at_peak.items(), key=lambda item: -item[1])
    contributors = {name: nbytes for name, nbytes in order if nbytes}
    return Fullest(rank, memory.peak, capacity[rank], memory.setup_peak == memory.peak, contributors)
