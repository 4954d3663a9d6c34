"""What a core computes longer after it has idled.

While a rank waits for others its core idles, and others use the caches that it shares with them; what it needs next it
must fetch again. How long that takes grows with the wait, from a tenth of a millisecond to several, and is measured by
a calibration (`[idle]` of a device file).
"""

from __future__ import annotations

import bisect
import math

from sims.device import DeviceProfile


class IdleCore:
    """One core, or those of one rank.

    Args:
        profile: its `idle` and `idle_factor`.

    Attributes:
        behind: seconds that are left to be computed longer.
    """

    def __init__(self, profile: DeviceProfile) -> None:
        self._waits = [milliseconds / 1e3 for milliseconds in profile.idle]
        self._seconds = [cost.value for cost in profile.idle.values()]
        self._more = profile.idle_factor.value - 1
        self.behind = self._at_first = 0.0

    def idled(self, seconds: float) -> None:
        """The core has had nothing to compute for so long."""
        lost = self._lost(seconds)
        if lost > self.behind:
            self.behind = self._at_first = lost

    def longer(self, seconds: float) -> float:
        """By how much what takes so many seconds takes longer now.

        The first work after a wait takes `idle_factor` times as long; what is left to be fetched falls exponentially.
        """
        if not self.behind:
            return 0.0
        more = self.behind * -math.expm1(-self._more * seconds / self._at_first)
        self.behind -= more
        return more

    def _lost(self, wait: float) -> float:
        """Interpolated in the logarithm of the wait; in proportion to it below the shortest that was measured."""
        waits, seconds = self._waits, self._seconds
        at = bisect.bisect_left(waits, wait)
        if at == len(waits):
            return seconds[-1] if seconds else 0.0
        if at == 0:
            return seconds[0] * wait / waits[0]
        share = math.log(wait / waits[at - 1]) / math.log(waits[at] / waits[at - 1])
        return seconds[at - 1] + share * (seconds[at] - seconds[at - 1])
