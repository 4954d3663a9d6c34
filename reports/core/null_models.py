"""What a reader would predict without any model, and how much better a table's predictions are than that."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Null:
    """What a reader would predict for a row without any model, each in the row's unit; None where it means nothing.

    Attributes:
        same: the printed value of the row that the constant was fitted on (1 for a speed-up: nothing is gained).
        by_bytes: that, times this row's bytes over that row's bytes.
        by_layers: that, times this row's layers over that row's layers.
    """

    same: float | None = None
    by_bytes: float | None = None
    by_layers: float | None = None


NULLS = {
    "same": "equal to the fitted row",
    "by_bytes": "in proportion to bytes",
    "by_layers": "in proportion to layers",
}


@dataclass(frozen=True)
class Skill:
    """Median errors (fractions) of ours and of a null model over the same rows."""

    null: str
    rows: int
    ours: float
    theirs: float

    @property
    def value(self) -> float | None:
        """1 - ours / null's: 1 is exact, 0 no better than the null model; None where that is exact."""
        return 1 - self.ours / self.theirs if self.theirs else None

    def text(self) -> str:
        """One phrase for a table's summary."""
        skill = "it is exact" if self.value is None else f"skill {self.value:+.2f}"
        return f"null model, {self.null}: {100 * self.theirs:.1f} % against our {100 * self.ours:.1f} %, {skill}"
