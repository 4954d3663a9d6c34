"""What a rank computes between the last exchange of rows of an epoch and its all-reduce.

Programs of GPUs that time their own parts wait for the device where an exchange begins, and again at the all-reduce.
What they compute after the last exchange is then in the time of the all-reduce, not in that of compute.
"""

from __future__ import annotations

from harness.effects import AllReduce, AllToAll, Effect


class Tail:
    """The computation after the last exchange of one rank.

    Attributes:
        seconds: of the last epoch; 0 where no rows are exchanged.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since: float | None = None

    def step(self, effect: Effect, computed: float) -> None:
        """Take note that the rank computed for so many seconds and then began an effect."""
        if self._since is not None:
            self._since += computed
        met = effect.wire
        if isinstance(met, AllToAll):
            self._since = 0.0
        elif isinstance(met, AllReduce) and self._since is not None:
            self.seconds, self._since = self._since, None
