"""The steady state of a run: ranks begin an epoch as they began the last one of its kind, so that what follows repeats.

Epochs that repeat move the same bytes and compute the same, but the first ones differ in time: ranks begin epoch 0
together and leave every epoch one by one. When the times at which they begin an epoch, relative to each other, are
those of one cycle of epochs before, all later epochs last as those of that cycle, and need not be simulated.
Step 8 of `docs/network.md`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

SAME_START = 1e-9
"""Times, relative to the duration of the cycle, that are equal where the network's are exact."""


class SteadyState:
    """Compares the times at which the ranks of a run begin their epochs.

    A decision holds for all ranks: it is taken when the last one begins an epoch, and only if none has ended it then.

    Args:
        cycle: epoch e + cycle is of the same kind as epoch e.
        resolution: returns the seconds by which times may differ without the network telling them apart (see
            `FluidNetwork.resolution`).
        settle: called once, when the steady state is found: no duration that is simulated later counts.

    Attributes:
        since: the first epoch that all ranks began as one cycle before; None as long as there is none.
    """

    def __init__(self, cycle: int, resolution: Callable[[], float], settle: Callable[[], None]) -> None:
        self._cycle, self._resolution, self._settle = cycle, resolution, settle
        self._ranks, self._shared = 0, False
        self._starts: dict[int, np.ndarray] = {}  # epoch -> seconds per rank, NaN where it has not begun
        self._new: set[int] = set()  # epochs in which a rank does what it has not recorded yet
        self.since: int | None = None

    def add_rank(self, *, shared: bool) -> None:
        """Expect one more rank; none has begun an epoch yet.

        Where ranks share cores (`shared`) there is no steady state: who has them at the start of an epoch is not known
        from times.
        """
        self._ranks += 1
        self._shared |= shared

    def begin(self, rank: int, epoch: int, now: float, *, repeats: bool) -> None:
        """A rank begins an epoch; `repeats`: it has recorded one that begins alike."""
        if self.since is not None or self._shared:
            return
        starts = self._starts.setdefault(epoch, np.full(self._ranks, np.nan))
        starts[rank] = now
        if not repeats:
            self._new.add(epoch)
        if not np.isnan(starts).any():
            if self._settled(epoch):
                self.since = epoch
                self._settle()
            self._starts.pop(epoch - self._cycle, None)

    def source(self, epoch: int) -> int | None:
        """The epoch that this one lasts as long as, of the cycle before `since`; None if it is not known yet.

        Of `since` itself it is known only when its last rank begins, and the others are in the middle of it.
        """
        if self.since is None or epoch < self.since:
            return None
        return self.since - self._cycle + (epoch - self.since) % self._cycle

    def _settled(self, epoch: int) -> bool:
        """Whether all ranks began this epoch, and do in it, as one cycle before."""
        before = self._starts.get(epoch - self._cycle)
        if before is None or epoch + 1 in self._starts or epoch in self._new:
            return False
        lasted = self._starts[epoch] - before
        return bool(np.ptp(lasted) <= max(self._resolution(), SAME_START * lasted.max()))
