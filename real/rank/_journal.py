"""What a rank did since the ranks last compared: a rolling hash of its collectives, and the balance of their rows.

The hash covers kind, tag and shape of every collective. The balance adds the rows that every all-to-all sends and
subtracts those it expects, with a different weight for each pair of ranks: summed over all ranks it is 0 when their
counts agree. Both cost microseconds and no message; the steps are kept until the next comparison, to name the first
that differs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.effects import AllToAll, Counts, Effect
from real.rank._headers import RETURNED, Header, digest

_MODULUS = 1 << 64
_SEED = 20260101


@dataclass(frozen=True, eq=False)
class CollectiveStep:
    """One collective of this rank, or its return.

    Attributes:
        path: the rolling hash up to and including it.
        balance: its own contribution to the balance, mod 2^64.
        effect: its header.
        counts: rows to and from every rank, int64 [size] each, of the parts whose counts the receiver passed.
    """

    path: bytes
    balance: int
    effect: Header
    counts: list[tuple[Counts, Counts]]


class CollectiveJournal:
    """The steps of one rank since the last comparison.

    Attributes:
        path: rolling hash of all steps ever.
        begun: number of steps before `steps[0]`.
    """

    def __init__(self, rank: int, size: int) -> None:
        weights = np.random.default_rng(_SEED).integers(0, 1 << 62, (size, size))
        self._out, self._in = weights[rank].copy(), weights[:, rank].copy()
        self.path, self.begun = b"", 0
        self.steps: list[CollectiveStep] = []
        self.balance = 0

    def add(self, effect: Effect) -> CollectiveStep:
        """Add a collective that is about to begin and return its step, whose header has the path before it."""
        counts = known_counts(effect) if isinstance(effect, AllToAll) else []
        header = Header.of(effect, self.path, len(self.steps), self.balance)
        return self._add(header, digest(self.path, header.what, header.shape), counts)

    def end(self) -> CollectiveStep:
        """Add that the program has returned."""
        header = Header(RETURNED, b"", b"", self.path, len(self.steps), self.balance, "", "")
        return self._add(header, digest(self.path, b"returned"), [])

    def compared(self) -> None:
        """Drop the steps before the latest one: all ranks have agreed on them."""
        self.begun += len(self.steps) - 1
        del self.steps[:-1]
        self.balance = self.steps[0].balance

    def _add(self, header: Header, path: bytes, counts: list[tuple[Counts, Counts]]) -> CollectiveStep:
        factor, own = 2 * (self.begun + len(self.steps)) + 1, 0
        for part, (send, recv) in enumerate(counts):  # products of int64 wrap; what matters is that they cancel
            own += (int(send @ self._out) - int(recv @ self._in)) * (factor + 2 * part * _SEED)
        step = CollectiveStep(path, own % _MODULUS, header, counts)
        self.steps.append(step)
        self.path, self.balance = path, (self.balance + own) % _MODULUS
        return step


def known_counts(effect: AllToAll) -> list[tuple[Counts, Counts]]:
    """Rows to and from every rank, of the parts whose counts the receiver passed."""
    return [(part.send, np.asarray(part.recv, np.int64)) for part in effect.parts if part.recv is not None]


def unbalanced(balances: list[int]) -> bool:
    """Whether the balances of all ranks show that some rank expects other rows than are sent."""
    return sum(balances) % _MODULUS != 0
