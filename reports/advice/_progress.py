"""How far an advice is, and about how long it will take: steps of known length are counted, others estimated."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

Tell = Callable[[str, float | None], None]
"""Called with what is done now, and about how many seconds are left (None where that is not known yet)."""


def silent(what: str, left: float | None) -> None:
    """Tells nobody."""


@dataclass
class AdviceProgress:
    """What has been spent, and what is left.

    Attributes:
        budget: seconds that everything may take.
        ahead: kind of work that is still to come -> its expected seconds.
    """

    budget: float
    tell: Tell = silent
    begin: float = field(default_factory=time.monotonic)
    ahead: dict[str, float] = field(default_factory=dict)

    def spent(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.begin

    def remaining(self) -> float:
        """Seconds of the budget that are left; below 0 when it is overdrawn."""
        return self.budget - self.spent()

    def say(self, what: str) -> None:
        """Tell what is done now."""
        self.tell(what, min(sum(self.ahead.values()), max(self.remaining(), 0.0)) if self.ahead else None)
