"""Builds the library that keeps large blocks of memory (`large_blocks.c`), once on a machine, with its C compiler."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.machine._cache import cache_root
from harness.machine._files import replacing

_SOURCE = Path(__file__).with_name("large_blocks.c")
_COMPILER_S = 60.0
"""A compiler that takes longer is given up; it needs a second."""


def large_blocks() -> Path | None:
    """The library for LD_PRELOAD, in the cache folder; None without glibc, a C compiler, or a folder to write to."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc" or compiler is None:
        return None
    source = _SOURCE.read_bytes()
    key = hashlib.sha256(source + platform.machine().encode()).hexdigest()[:16]
    built = cache_root() / "native" / f"large-blocks-{key}.so"
    with contextlib.suppress(OSError):
        if not built.exists():
            built.parent.mkdir(parents=True, exist_ok=True)
            _build(compiler, built)
        ctypes.CDLL(str(built))  # refused where a symbol is missing; loaded late, it serves nobody
        return built.absolute()
    return None


def _build(compiler: str, built: Path) -> None:
    """Compile beside the others, all or nothing. Raises OSError where that fails."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "library.so")
        command = [compiler, "-O2", "-fPIC", "-shared", "-pthread", "-o", str(made), str(_SOURCE)]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_COMPILER_S, check=False)
        except subprocess.TimeoutExpired as late:
            raise OSError("the compiler did not end") from late
        if done.returncode:
            raise OSError(done.stderr.decode(errors="replace"))
        with replacing(built, durable=False) as stream:
            stream.write(made.read_bytes())
