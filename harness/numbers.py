"""Numbers as people read them: digits, units of time and of bytes, percentages, counts."""

from __future__ import annotations

import math
from collections.abc import Sequence

DASH = "-"
"""What stands for a number that there is none of."""


def time_unit(seconds: Sequence[float | None]) -> tuple[float, str]:
    """A factor and the unit in which the largest of `seconds` reads well."""
    largest = max((s for s in seconds if s is not None), default=0.0)
    return (1.0, "s") if largest >= 1 else (1e3, "ms") if largest >= 1e-3 else (1e6, "us")


def significant(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits, all digits before the point, and no exponent; a dash for None."""
    if value is None:
        return DASH
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    rounded = float(f"{value:.{digits - 1}e}")
    places = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{value:,.{places}f}"


def duration(seconds: float) -> str:
    """Seconds in a readable form: 0.4 s, 12 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{significant(seconds, 2)} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def megabytes(count: float | None) -> str:
    """Bytes in MB (10**6), without the unit."""
    return significant(None if count is None else count / 1e6)


def byte_text(count: float | None) -> str:
    """Bytes with the unit that reads well (powers of 1000)."""
    if count is None:
        return DASH
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{significant(count / size)} {unit}"
    return f"{count:.0f} B"


def count_text(count: float, what: str) -> str:
    """A number, a fraction with three digits, and what is counted: 1 epoch, 2 epochs, 2.50 epochs."""
    number = f"{count:.0f}" if count == round(count) else significant(count)
    return f"{number} {what}" if number == "1" else f"{number} {what}s"


def percent(share: float | None) -> str:
    """A fraction as a percentage."""
    return DASH if share is None else f"{100 * share:.2f} %"
