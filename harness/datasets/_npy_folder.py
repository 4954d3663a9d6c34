"""Graphs as a folder of plain `.npy` files, which are mapped: the form for graphs that do not fit in memory.

The neighbour lists are taken as they are, so that nothing of them is ever copied; all else that a graph is checked for
is checked, in one pass over the files.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from harness.datasets._npz import scalar
from harness.errors import InputError
from harness.graphs import Graph, NodeData, from_csr

NEEDED = ("indptr", "indices")
OTHERS = ("x", "y", "train_idx", "val_idx", "test_idx", "num_classes")


def npy_files(folder: Path) -> list[Path]:
    """The files that `read_folder` reads. Raises InputError if the neighbour lists are missing."""
    for name in NEEDED:
        if not (folder / f"{name}.npy").is_file():
            raise InputError(f"{folder}: no {name}.npy; a folder of a graph has indptr.npy and indices.npy")
    return [path for name in (*NEEDED, *OTHERS) if (path := folder / f"{name}.npy").is_file()]


def read_folder(folder: Path) -> Graph:
    """The validated graph in `folder`, named after it, with its arrays mapped from the files.

    `indptr.npy` is int64 [N+1] and `indices.npy` int32 [E] (int64 from 2**31 nodes on), with ascending rows, as `Graph`
    has them; self loops and repeated edges stay. The others are as in an npz file; features that are not float32 and
    labels that are not int64 are converted, in memory. Raises InputError for what is missing, damaged or wrong.
    """
    arrays = {path.stem: _mapped(path) for path in npy_files(folder)}
    data: NodeData = {"x": arrays.get("x"), "y": arrays.get("y")}
    data |= {"train": arrays.get("train_idx"), "val": arrays.get("val_idx"), "test": arrays.get("test_idx")}
    try:
        if "num_classes" in arrays:
            data["num_classes"] = scalar(arrays, "num_classes")
        return from_csr(folder.resolve().name, arrays["indptr"], arrays["indices"], **data)
    except InputError as error:
        raise InputError(f"{folder}: {error}") from error


def _mapped(path: Path) -> np.ndarray:
    """The array of a file, mapped copy-on-write, or in memory if it has no entry."""
    try:
        return np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, EOFError) as error:
        raise InputError(f"{path}: not a plain .npy file: {str(error).splitlines()[0]:.120}") from None
