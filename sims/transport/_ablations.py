"""NCCL with one of its mechanisms left out, to measure what each is worth against published curves."""

from __future__ import annotations

import numpy as np

from sims.transport._collectives import Wire
from sims.transport._nccl import Nccl


class _NoSwitchSums(Nccl):
    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self._sums = False


class _EveryChannel(Nccl):
    def _most_of_ll(self, nbytes: int, kind: str, runs: bool) -> float:
        return super()._most_of_ll(nbytes, kind, False)


class _OneRing(Nccl):
    def _mesh_orders(self) -> list[np.ndarray]:
        return [np.arange(self.wire.size)]


class _BareSends(Nccl):
    def _grouped_steps(self) -> np.ndarray:
        short = np.concatenate([[0.0], super()._grouped_steps()[0, 1:]])
        return np.stack([short, short])


ABLATIONS: dict[str, type[Nccl]] = {
    "sums in NVLink switches": _NoSwitchSums,
    "few channels for small tensors": _EveryChannel,
    "rings over every link of a mesh": _OneRing,
    "start and protocols of grouped sends": _BareSends,
}
"""Mechanism -> NCCL without it."""
