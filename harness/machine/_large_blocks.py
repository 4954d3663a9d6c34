"""The library that keeps large blocks of memory (`large_blocks.c`)."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from harness.machine._native import native_library

_SOURCE = Path(__file__).with_name("large_blocks.c")


def large_blocks() -> Path | None:
    """The library for LD_PRELOAD (loaded late, it serves nobody); None without glibc, or where it cannot be built."""
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return None
    return native_library(_SOURCE, ("-O2", "-pthread"))
