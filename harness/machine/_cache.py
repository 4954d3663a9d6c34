"""Folders of plain arrays under one cache root, named by the hash of what produced them.

Generated graphs and partitions are expensive to make and to parse: they are stored as `.npy` files and memory-mapped.
Keys are chosen by callers; entries never become stale, because a key identifies the content, and are never evicted.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Literal

import numpy as np

from harness.errors import InputError

_META = "meta.json"


def cache_root() -> Path:
    """`$HALOSCOPE_CACHE`, or `~/.cache/haloscope`; the folder need not exist yet."""
    named = os.environ.get("HALOSCOPE_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "haloscope"


def store_arrays(folder: Path, arrays: dict[str, np.ndarray], meta: dict[str, object]) -> None:
    """Write `arrays` and the JSON-able `meta` as the entry `folder`, all or nothing.

    The files are written to a folder beside it, which is then renamed. If another process was faster its entry is
    kept: the key names the content, so both are equal. Raises InputError when the folder cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        for name, array in arrays.items():
            np.save(made / f"{name}.npy", array, allow_pickle=False)
        listing = {name: [str(array.dtype), list(array.shape)] for name, array in arrays.items()}
        (made / _META).write_text(json.dumps({"arrays": listing, "meta": meta}, sort_keys=True))
        publish_folder(made, folder)
    except OSError as error:
        raise _unwritable(folder, error) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def publish_folder(folder_tmp: Path, folder_final: Path) -> None:
    """Rename `folder_tmp` to `folder_final` (same file system); delete it where the final folder already exists."""
    os.chmod(folder_tmp, 0o755)  # mkdtemp makes it private; a cache root may be shared by a group of users
    try:
        os.rename(folder_tmp, folder_final)
    except OSError:
        if not folder_final.is_dir():
            raise
        shutil.rmtree(folder_tmp, ignore_errors=True)


def load_arrays(folder: Path, mmap: bool = True) -> tuple[dict[str, np.ndarray], dict[str, object]] | None:
    """The arrays and meta of entry `folder`; None when there is none.

    Mapped arrays are copy-on-write: they may be written to (so torch accepts them without a warning) and the files
    never change. A damaged entry (a full disk, a file removed by hand) is removed and treated as absent.
    """
    if not (folder / _META).is_file():
        return None
    try:
        meta = json.loads((folder / _META).read_text())
        arrays = {name: _read(folder, name, mmap, *kind) for name, kind in meta["arrays"].items()}
        return arrays, meta["meta"]
    except (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError):
        _discard(folder)
        return None


def _read(folder: Path, name: str, mmap: bool, dtype: str, shape: list[int]) -> np.ndarray:
    mode: Literal["c"] | None = "c" if mmap and 0 not in shape else None  # an empty array cannot be mapped
    array = np.asarray(np.load(folder / f"{name}.npy", mmap_mode=mode, allow_pickle=False))  # a plain view of the map
    if str(array.dtype) != dtype or list(array.shape) != shape:
        raise ValueError(f"{name}.npy is {array.dtype} {array.shape}")
    return array


def _discard(folder: Path) -> None:
    """Rename first: a reader elsewhere sees either the whole entry or none, and its open maps stay valid."""
    reason = "damaged cache entry that cannot be removed"
    try:
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise InputError(f"{folder}: {reason} ({error.strerror}); delete it") from error
    try:
        os.rename(folder, aside)
    except FileNotFoundError:
        pass  # another process found the same damage first
    except OSError as error:
        raise InputError(f"{folder}: {reason} ({error.strerror}); delete it") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _unwritable(folder: Path, error: OSError) -> InputError:
    return InputError(
        f"{folder}: cannot write the cache entry ({error.strerror or error}); set HALOSCOPE_CACHE to a writable folder"
    )
