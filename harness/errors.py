"""The kinds of failure that callers distinguish; without behaviour.

`InputError` is bad input that a user can correct (a flag, a file, a name): the command line prints its one line and
exits with code 2. `ProgramError` is a defect in a rank program (a deadlock, a mismatch, a forgotten await): its text
names rank, file, line, label and epoch.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Literal


class HaloscopeError(Exception):
    """Base of every error that haloscope raises on purpose.

    Attributes:
        state: of the result of a run that the error ends: failed, killed where a signal ended a rank, or diverged.
    """

    state: Literal["failed", "killed", "diverged"] = "failed"


class InputError(HaloscopeError):
    """Bad input from the user; the message is one line and names a remedy."""


class ProgramError(HaloscopeError):
    """A rank program violated the interface to its driver; the message names the place."""


class Diverged(HaloscopeError):
    """Training produced a value that cannot be sent (nan or inf)."""

    state = "diverged"


REPEATED: dict[str, type[HaloscopeError]] = {each.__name__: each for each in (Diverged, InputError, ProgramError)}
"""Errors that another attempt would meet again, by class name: what a rank of another process leaves of its error."""


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """An `InputError` for a name that is not in `known`, with the nearest known one, or all if none is similar."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names) or 'none'}"
    return InputError(f"unknown {kind} {name!r}; {hint}")
