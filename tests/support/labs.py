"""What tests of the lab share: a skip where none can be built, and who still has namespaces."""

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
    """Skip, with the reason, where this machine cannot build a lab."""
    if _obstacle():
        pytest.skip(f"no lab here: {_obstacle()}")


def namespaces_of(pid: int) -> list[str]:
    """Names of the namespaces that a process made and that are still there."""
    folder = namespaces.FOLDER
    return sorted(entry.name for entry in folder.glob(f"hs{pid}-*")) if folder.is_dir() else []
