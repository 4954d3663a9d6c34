"""Observers of simulations that several tests use."""

from __future__ import annotations

from harness.effects import Effect
from sims.engine import Observer


class Spans(Observer):
    """Every stretch of compute and every effect: (rank, component, name, start_s, end_s, bytes sent).

    Compute has its component as its name, an effect its label.
    """

    def __init__(self) -> None:
        self.found: list[tuple[int, str, str, float, float, int]] = []

    def computed(self, rank: int, component: str, start: float, end: float) -> None:
        self.found.append((rank, component, component, start, end, 0))

    def carried_out(self, rank: int, component: str, effect: Effect, start: float, end: float, nbytes: int) -> None:
        self.found.append((rank, component, effect.tag.label, start, end, nbytes))
