"""Numbers of flags: in ASCII digits, as files have them. Python's own also takes `1_0`, and digits of other scripts."""

from __future__ import annotations

import argparse
import re

from harness.errors import InputError

_WHOLE = re.compile(r"[+-]?[0-9]{1,1000}")
_NUMBER = re.compile(r"[+-]?([0-9.eE+-]{1,1000}|inf|nan)")


def whole(text: str) -> int:
    """The type of a flag with a whole number."""
    if not _WHOLE.fullmatch(text.strip()):
        raise argparse.ArgumentTypeError(f"invalid int value: {in_quotes(text)}")
    return int(text)


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


def in_quotes(text: str) -> str:
    """A text in quotes, shortened where it is long."""
    return repr(text if len(text) <= 80 else f"{text[:80]}...")
