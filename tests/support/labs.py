"""Helpers of lab tests: a skip if no lab can be built, and the namespaces of a process."""

from __future__ import annotations

from functools import cache

import pytest

from harness.errors import InputError
from real.lab import _hosts as lab
from real.lab import _namespaces as namespaces


@cache
def _obstacle() -> str:
    try:
        namespaces.require()
        return "" if lab.available("tbf") else "this kernel has no tbf"
    except InputError as error:
        return str(error)


def needs_lab() -> None:
    """Skip the test, with the reason, if this machine cannot build a lab."""
    if _obstacle():
        pytest.skip(f"no lab here: {_obstacle()}")


def namespaces_of(pid: int) -> list[str]:
    """Names of the existing namespaces that a process made."""
    folder = namespaces.FOLDER
    return sorted(entry.name for entry in folder.glob(f"hs{pid}-*")) if folder.is_dir() else []
