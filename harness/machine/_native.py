"""Builds the project's C libraries, each once on a machine, with its C compiler, into the cache folder."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.machine._files import replacing
from harness.user_cache import cache_root, instructions

_COMPILER_S = 60.0
"""A compiler that takes longer is given up; it needs a second."""

THIS_PROCESSOR = "-march=native"
"""The flag for code that may use every instruction of the machine's processor."""

_ALWAYS = ("-fPIC", "-shared")


def native_library(source: Path, flags: Sequence[str]) -> Path | None:
    """The library of a C source; None without a C compiler, or a folder to write to, or where it cannot be loaded.

    Its name has a checksum of source, flags and compiler, and of the processor, so that a cache folder may be shared by
    unlike machines. Processes that build it at the same time do not disturb each other.

    Args:
        source: one C file.
        flags: of the compiler, beside those for a library.
    """
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return None
    with contextlib.suppress(OSError):
        code, told = source.read_bytes(), "\n".join([compiler, *flags, platform.machine()])
        more = instructions() if THIS_PROCESSOR in flags else b""
        key = hashlib.sha256(b"\0".join([code, told.encode(), more])).hexdigest()[:16]
        built = cache_root() / "native" / f"{source.stem.replace('_', '-')}-{key}.so"
        if not built.exists():
            built.parent.mkdir(parents=True, exist_ok=True)
            _build([compiler, *_ALWAYS, *flags], source, built)
        ctypes.CDLL(str(built))  # refused where a symbol is missing
        return built.absolute()
    return None


def _build(command: Sequence[str], source: Path, built: Path) -> None:
    """Compile beside the others, all or nothing. Raises OSError where that fails."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "library.so")
        try:
            done = subprocess.run(
                [*command, "-o", str(made), str(source)], capture_output=True, timeout=_COMPILER_S, check=False
            )
        except subprocess.TimeoutExpired as late:
            raise OSError("the compiler did not end") from late
        if done.returncode:
            raise OSError(done.stderr.decode(errors="replace"))
        with replacing(built, durable=False) as stream:
            stream.write(made.read_bytes())
