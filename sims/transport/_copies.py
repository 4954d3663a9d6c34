"""What moving bytes takes of the cores that ranks share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import simpy


class Copies:
    """What moving bytes takes of the cores that ranks share: as long as the bytes travel, or longer.

    Half of the copies is work of the sender, half of the receiver, who also waits for the frames.

    Args:
        work: begins seconds of work on the cores that a rank shares; returns its end.
        shares: whether a rank shares cores, by rank.
        host: int64 [ranks], the ranks' hosts.
        per_byte: seconds for a byte, at both ends together.
        per_framed: seconds for a byte between hosts beside that.
    """

    def __init__(
        self,
        work: Callable[[int, float], simpy.Event],
        shares: Sequence[bool],
        host: np.ndarray,
        per_byte: float,
        per_framed: float,
    ) -> None:
        self.shares, self._work = shares, work
        self._host, self._per_byte, self._per_framed = host, per_byte, per_framed
        self._of_group: dict[int, list[simpy.Event]] = {}

    def seconds(self, src: np.ndarray, dst: np.ndarray, nbytes: np.ndarray) -> np.ndarray:
        """Seconds of work of the sender and of the receiver of every transfer, float64 [n, 2]."""
        copied = nbytes * (self._per_byte / 2)
        framed = nbytes * (self._per_framed * (self._host[src] != self._host[dst]))
        return np.stack([copied, copied + framed], axis=1)

    def begin(self, rank: int, seconds: float) -> list[simpy.Event]:
        """Begin to move bytes that a rank sends or receives; returns the ends."""
        return [self._work(rank, seconds)] if seconds and self.shares[rank] else []

    def ring_seconds(self, rank: int, ranks: np.ndarray, nbytes: int) -> float:
        """Seconds of work of a rank in a ring of ranks, in order, each of which sends so many bytes to the next."""
        at = int(np.flatnonzero(ranks == rank)[0])
        ends = ranks[[at - 1, at]], ranks[[at, (at + 1) % len(ranks)]]
        came, left = self.seconds(*ends, np.asarray([nbytes, nbytes])).tolist()
        return float(came[1] + left[0])

    def begin_round(self, pairs: np.ndarray, groups: np.ndarray) -> None:
        """Begin those of transfers: src, dst and bytes, [3, n], and the groups of both ends, [n, 2]."""
        found, at = np.unique(groups, return_inverse=True)
        seconds = np.bincount(at.ravel(), self.seconds(*pairs).ravel())
        ranks = np.zeros(len(found), np.int64)
        ranks[at.ravel()] = pairs[:2].T.ravel()
        for group, rank, each in zip(found.tolist(), ranks.tolist(), seconds.tolist(), strict=True):
            self._of_group.setdefault(group, []).extend(self.begin(rank, each))

    def ends(self, group: int) -> list[simpy.Event]:
        """Ends of what a rank's group of transfers takes of its cores, when all of these have begun."""
        return self._of_group.pop(group, [])
