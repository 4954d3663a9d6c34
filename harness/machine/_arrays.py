"""Arrays that are made piece by piece: in memory while they are small, else as mapped `.npy` files.

A mapped array is written like any other. The kernel writes its pages to the file and takes them back when memory is
short, so that an array larger than memory costs disk only.
"""

from __future__ import annotations

import math
import mmap
import os
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from harness.errors import InputError

IN_MEMORY = 256 << 20
"""Bytes that the arrays of one `ArrayMaker` have in memory together, before further ones are mapped."""


class ArrayMaker:
    """Makes the arrays of one result.

    Attributes:
        folder: where mapped arrays lie, one file `<name>.npy` each; without one all arrays are in memory.
        mapped: those that are files, by name.
    """

    def __init__(self, folder: Path | None = None, within: int | None = None) -> None:
        self.folder, self.mapped = folder, dict[str, np.ndarray]()
        self._left = IN_MEMORY if within is None else within

    def new(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """An array of any content. Raises InputError where the disk has no room for it."""
        kind = np.dtype(dtype)
        size = math.prod(shape) * kind.itemsize
        if self.folder is None or size <= self._left or not size:
            self._left -= size
            return np.empty(shape, kind)
        path = self.folder / f"{name}.npy"
        try:
            # a plain view of the map: its owner is its base
            made = np.asarray(np.lib.format.open_memmap(path, "w+", kind, shape))
            _reserve(path)
        except OSError as error:
            raise InputError(
                f"{path}: no room for {size / 2**30:.2f} GiB ({error.strerror or error}); "
                "set HALOSCOPE_CACHE to a folder that has it"
            ) from error
        self.mapped[name] = made
        return made

    def drop(self, name: str) -> None:
        """Forget an array; its file, if it has one, is deleted once nothing maps it any more."""
        if self.mapped.pop(name, None) is not None and self.folder is not None:
            (self.folder / f"{name}.npy").unlink(missing_ok=True)


def synchronise_map(array: np.ndarray, path: Path) -> None:
    """Wait until the file at `path` has what was written to the array that maps it.

    Before that a host that shares the file system may read older pages of a file that is there already.
    """
    kept = array.base
    if isinstance(kept, mmap.mmap | np.memmap):
        kept.flush()
    with path.open("rb+") as stream:
        os.fsync(stream.fileno())


def _reserve(path: Path) -> None:
    """Take the disk's blocks now: without them the process would be killed when it writes to the map."""
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as stream:
            os.posix_fallocate(stream.fileno(), 0, path.stat().st_size)
