"""The memory of this process that the kernel cannot reclaim, now and at most while something runs."""

from __future__ import annotations

import resource
import sys
import threading
from pathlib import Path

LOOK_S = 0.01
"""Seconds between two looks; a process touches some 40 MB of new memory in that time."""


def resident() -> int:
    """Bytes of memory that belong to this process alone: without pages of files, mapped or shared.

    On systems other than Linux the peak so far, with such pages.
    """
    try:
        _, pages, shared = Path("/proc/self/statm").read_text().split()[:3]
        return (int(pages) - int(shared)) * resource.getpagesize()
    except (OSError, ValueError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


class ResidentPeak:
    """Context: the most that `resident` was while it was open, looked at by a thread every `LOOK_S`.

    Attributes:
        before: bytes when it was opened.
        most: bytes, until now or until it was closed.
    """

    def __init__(self) -> None:
        self.before = self.most = resident()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, name="peak memory", daemon=True)

    def _look(self) -> None:
        while not self._end.wait(LOOK_S):
            self.most = max(self.most, resident())

    def __enter__(self) -> ResidentPeak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self.most = max(self.most, resident())
