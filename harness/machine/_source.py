"""A hash of this project's own source, for cache keys: a cached result is valid only for the code that made it."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


@cache
def code_version(*packages: str) -> str:
    """SHA-256 of the source and tables of `packages` of this project; commands, which only show results, left out.

    Raises FileNotFoundError for a package that does not exist.
    """
    digest = hashlib.sha256()
    for package in packages:
        if not (_ROOT / package).is_dir():
            raise FileNotFoundError(f"{_ROOT / package} has no source to hash")
        for path in sorted((_ROOT / package).rglob("*")):
            if path.suffix in (".py", ".toml", ".csv", ".c") and "commands" not in path.parts:
                digest.update(f"{path.relative_to(_ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
