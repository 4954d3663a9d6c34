"""Opens pages in a headless Chromium, where there is one."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

FIXED = (
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
    "--enable-logging=stderr", "--virtual-time-budget=6000",
)  # fmt: skip


def browser() -> str:
    """A Chromium, or a skip."""
    for name in ("chromium", "chromium-browser", "google-chrome", "headless_shell"):
        if found := shutil.which(name):
            return found
    pytest.skip("no Chromium on this machine (apt-get install chromium)")


def open_page(chromium: str, address: str, profile: Path) -> tuple[str, list[str]]:
    """The page's document after its scripts have run, and the lines of its console that are errors."""
    flags = [*FIXED, f"--user-data-dir={profile / 'profile'}", "--dump-dom"]
    done = subprocess.run([chromium, *flags, address], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    errors = [
        line for line in done.stderr.splitlines() if "CONSOLE" in line and re.search(r"rror|refused|Refused", line)
    ]
    return done.stdout, errors
