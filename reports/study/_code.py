"""A hash of the code that one method's training runs: a change of another method leaves finished cells valid.

Commands, the list of all methods, and kernels of GPUs, on which no study runs, are left out.
"""

from __future__ import annotations

from functools import cache

from harness.machine import GPU_KERNELS, used_code
from harness.methods.registry import METHODS
from harness.running import run

APART = (*GPU_KERNELS, "harness.methods.registry")


@cache
def code_of(method: str) -> str:
    """16 hexadecimal digits, for the text of a method with or without its options."""
    return used_code(METHODS.find(method.partition(":")[0]), run, apart=APART)[:16]
