"""Counts the bytes that a rank sends, by direction, layer and destination; it never measures time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from harness.effects import Tag


@dataclass
class Traffic:
    """Bytes sent by one rank since the last `take`.

    `layers[direction][layer]` are bytes; `to` is int64 [size], bytes per destination rank; `others` are the bytes of
    direction "other" by the first word of their exchange's label: "request" of "request h1".
    """

    size: int
    layers: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    others: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    to: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.to = np.zeros(self.size, np.int64)

    def add(self, tag: Tag, sent: np.ndarray) -> None:
        """Add the bytes of one effect."""
        total = int(sent.sum())
        if total:
            self.layers[tag.direction][tag.layer] += total
            self.to += sent
            if tag.direction == "other":
                self.others[tag.label.partition(" ")[0]] += total

    def add_all(self, other: Traffic) -> None:
        """Add the bytes of another one."""
        for direction, layers in other.layers.items():
            for layer, nbytes in layers.items():
                self.layers[direction][layer] += nbytes
        for label, nbytes in other.others.items():
            self.others[label] += nbytes
        self.to += other.to

    def copy(self) -> Traffic:
        """The bytes added since the last call of `take`."""
        copied = Traffic(self.size)
        copied.add_all(self)
        return copied

    def take(self) -> Traffic:
        """The bytes added since the last call; the counters are reset to zero."""
        taken = Traffic(self.size, self.layers, self.others)
        taken.to = self.to
        self.layers, self.others = defaultdict(lambda: defaultdict(int)), defaultdict(int)
        self.to = np.zeros(self.size, np.int64)
        return taken
