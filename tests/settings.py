"""The configs under which the conformance suite runs every registered method, in loopback, simulated and real.

A method without rows fails the suite. Values are laid over `tests.test_drivers.config`.
"""

from __future__ import annotations

from typing import Any

SETTINGS: dict[str, list[dict[str, Any]]] = {
    "single": [{"method": "single", "parts": 1}],
    "vanilla": [{"method": "vanilla:dtype=fp16"}, {"method": "vanilla:style=pull"}],
    "bns-gcn": [{"method": "bns-gcn:p=0.4"}, {"method": "bns-gcn:p=0.0"}],
    "sylvie-s": [{"method": "sylvie-s:bits=1"}, {"method": "sylvie-s:bits=4:side=fp16"}],
}


def rows() -> list[dict[str, Any]]:
    """Every row of every method."""
    return [row for found in SETTINGS.values() for row in found]


def label(row: dict[str, Any]) -> str:
    """The row as a test's id."""
    return ",".join(str(value) for value in row.values())
