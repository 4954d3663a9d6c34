"""NCCL with one of its mechanisms left out, to measure what each is worth against published curves."""

from __future__ import annotations

import numpy as np

from sims.transport._communicator import Communicator
from sims.transport._nccl import Nccl


class _WithoutSums(Communicator):
    def _offered(self, algorithm: str, protocol: str) -> bool:
        return algorithm != "nvls" and super()._offered(algorithm, protocol)


class _EveryChannel(Communicator):
    def _most_of_ll(self, nbytes: int, kind: str, runs: bool) -> float:
        return super()._most_of_ll(nbytes, kind, False)


class _OneRing(Communicator):
    def _mesh_orders(self) -> list[np.ndarray]:
        return [self.ranks]


class _NoSwitchSums(Nccl):
    communicators = _WithoutSums


class _FullChannels(Nccl):
    communicators = _EveryChannel


class _RankOrder(Nccl):
    communicators = _OneRing


class _BareSends(Nccl):
    def _grouped_steps(self) -> np.ndarray:
        short = np.concatenate([[0.0], super()._grouped_steps()[0, 1:]])
        return np.stack([short, short])


ABLATIONS: dict[str, type[Nccl]] = {
    "sums in NVLink switches": _NoSwitchSums,
    "few channels for small tensors": _FullChannels,
    "rings over every link of a mesh": _RankOrder,
    "start and protocols of grouped sends": _BareSends,
}
"""Mechanism -> NCCL without it."""
