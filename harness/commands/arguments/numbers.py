"""Numbers of flags: in ASCII digits, as files have them. Python's own also takes `1_0`, and digits of other scripts."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import TypeVar

from harness.errors import InputError

T = TypeVar("T", int, float)

MOST_EPOCHS, MOST_RANKS, MOST_NODES, MOST_WIDTH = 10**9, 10**6, 10**12, 10**6
SEEDS_AT_MOST = MOST_REPLAYS = MOST_POINTS = MOST_RECORDED = MOST_JOBS = 10_000
"""More than anybody means: of what a command makes a list, before it begins."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,1000}")
_NUMBER = re.compile(r"[+-]?([0-9.eE+-]{1,1000}|inf|nan)")


def whole(text: str) -> int:
    """The type of a flag with a whole number."""
    if not _WHOLE.fullmatch(text.strip()):
        raise argparse.ArgumentTypeError(f"invalid int value: {in_quotes(text)}")
    return int(text)


def whole_in(least: int, most: int) -> Callable[[str], int]:
    """The type of a flag with a whole number of a range."""
    return _within(whole, least, most, f"{least} to {most:,}")


def whole_numbers(text: str | None, flag: str, what: str) -> list[int]:
    """Whole numbers from 0 with commas between; none of no text. Raises InputError that names the flag."""
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    if not all(word.isascii() and word.isdigit() and len(word) < 7 for word in words):
        raise InputError(f"{flag} {in_quotes(text or '')}: numbers of {what} with commas between, such as 2,4,8")
    return [int(word) for word in words]


def number(text: str) -> float:
    """The type of a flag with a number; whether it must be finite is checked with its range."""
    try:
        if _NUMBER.fullmatch(text.strip()):
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"invalid float value: {in_quotes(text)}")


def number_in(least: float, most: float) -> Callable[[str], float]:
    """The type of a flag with a finite number of a range."""
    return _within(number, least, most, f"{least:g} to {most:g}")


def _within(parse: Callable[[str], T], least: T, most: T, where: str) -> Callable[[str], T]:
    def within(text: str) -> T:
        value = parse(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"must be from {where}, not {in_quotes(text)}")
        return value

    return within


def in_quotes(text: str) -> str:
    """A text in quotes, shortened where it is long."""
    return repr(text if len(text) <= 80 else f"{text[:80]}...")
