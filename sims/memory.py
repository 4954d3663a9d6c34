"""Live bytes of one rank, from the storages that its operators make and touch; the numbers in them do not matter.

A storage counts from the first operator that makes or reads it until it is freed, on real and on meta tensors alike. A
rank's own copies of shared inputs count as its own. What an allocator wastes and what libraries hide is not seen.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import torch
from torch import Tensor

ORIGINS = ("resident", "computed", "received")
"""resident: made outside the rank's operators (graph, features). computed: made by them. received: by an exchange."""


class LiveMemory:
    """Bytes alive on one rank, and their peak.

    Attributes:
        live: bytes now.
        peak: most bytes so far.
        at_peak: origin -> bytes when the peak was reached.
    """

    def __init__(self) -> None:
        self.live = self.peak = 0
        self.at_peak = dict.fromkeys(ORIGINS, 0)
        self._by_origin = dict.fromkeys(ORIGINS, 0)
        self._known: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def see(self, tensor: Tensor, origin: str = "resident") -> None:
        """Count the storage of a tensor unless it is counted already."""
        if tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._known:
            self._watch(key, storage, origin, storage.nbytes())

    def see_all(self, tensors: Iterable[Tensor], origin: str) -> None:
        """`see` for many."""
        for tensor in tensors:
            self.see(tensor, origin)

    def exclude(self, tensor: Tensor) -> None:
        """Never count this tensor's storage: it is in another memory."""
        storage = tensor.untyped_storage()
        self._watch(storage._cdata, storage, "resident", 0)

    def hold(self, nbytes: int) -> None:
        """Count bytes that no tensor stands for yet: a receive buffer in flight."""
        self._add("received", nbytes)

    def release(self, nbytes: int) -> None:
        """End a `hold`."""
        self._add("received", -nbytes)

    def _watch(self, key: int, storage: torch.UntypedStorage, origin: str, nbytes: int) -> None:
        owner = weakref.ref(self)

        def freed(_: object) -> None:
            memory = owner()
            if memory is not None:
                memory._known.pop(key, None)
                memory._add(origin, -nbytes)

        self._known[key] = weakref.ref(storage, freed)
        self._add(origin, nbytes)

    def _add(self, origin: str, nbytes: int) -> None:
        self.live += nbytes
        self._by_origin[origin] += nbytes
        if self.live > self.peak:
            self.peak = self.live
            self.at_peak = dict(self._by_origin)
