"""A `.bin` file that `dgl.save_graphs` wrote, read without DGL; graphs of several types are turned homogeneous.

The layout is DGL's second one (magic numbers, counts, names and plain arrays; DGL 0.5 of 2020 and later). Nothing in
it can run. Every count is compared with what is left of the file before anything is made of it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from harness.datasets._pyg_files import SPLITS, graph_of
from harness.errors import InputError
from harness.graphs import Graph

FILE, HETEROGRAPH, META, CSR, COO, RELATION, ARRAY = (
    0xDD2E4FF046B4A13F, 0xDD589FBE35224ABF, 0xDD3C5FFE20046ABF, 0xDD6CD31205DFF127, 0xDD61FFD305DFF127,
    0xDD2E60F0F6B4A127, 0xDD5E40F096B4A13F,
)  # fmt: skip
"""Magic numbers, little-endian uint64, that begin the parts of a file."""

HEADER, VERSION, KIND = 4096, 2, 2
LONGEST_NAME, MOST_AXES = 4096, 8
CODED = 1 << 32
"""Bit that says that the other bits of a relation's formats are flags; files before DGL 0.6 have one number instead."""

OLD_FORMATS = {1: 1, 2: 2, 3: 4}
FORMATS = {1: "coo", 2: "csr", 4: "csc"}

REMEDY = (
    "with DGL: np.savez(FILE, edge_index=np.stack(g.edges()), x=g.ndata['feat'], y=g.ndata['label']) (docs/graphs.md)"
)
KEYS = {"x": ("feat", "feature", "features", "x"), "y": ("label", "labels", "y")}
"""What haloscope calls a field -> the names under which DGL's data sets and users keep it, the first one wins."""

OneRead = TypeVar("OneRead")


class _Damaged(Exception):
    """The file is not what it says it is; the text says where."""


def read_dgl_file(path: Path) -> Graph:
    """The one graph of a file, named after the file.

    Node data `feat` (also feature, features, x), `label` (labels, y), `train_mask`, `val_mask` and `test_mask` are
    taken, all other data is left. Several types of nodes and edges become one graph as PyG's do.

    Raises:
        InputError: no such file, a damaged one, one of a DGL before 0.5, several graphs, or a graph that is not valid.
    """
    try:
        content = np.memmap(path, np.uint8, mode="r")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({str(error).splitlines()[0]:.80}); {REMEDY}") from None
    try:
        found = _content(_Bytes(content))
    except (_Damaged, struct.error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}, so this is no whole file of dgl.save_graphs; {REMEDY}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return graph_of(path, found)


class _Bytes:
    """A file that is read from its beginning to its end."""

    def __init__(self, content: np.ndarray) -> None:
        self.content, self.at = content, 0

    @property
    def left(self) -> int:
        """Bytes that have not been read."""
        return len(self.content) - self.at

    def take(self, size: int) -> np.ndarray:
        """The next bytes, uint8 [size]."""
        if not 0 <= size <= self.left:
            raise _Damaged(f"it ends early, at byte {len(self.content)}")
        self.at += size
        return self.content[self.at - size : self.at]

    def number(self, form: str = "<Q") -> int:
        """The next number."""
        return int(struct.unpack(form, self.take(struct.calcsize(form)).tobytes())[0])

    def magic(self, expected: int, what: str) -> None:
        """The number that begins a part."""
        if self.number() != expected:
            raise _Damaged(f"there is no {what} at byte {self.at - 8}")

    def text(self) -> str:
        """A name."""
        length = self.number()
        if length > LONGEST_NAME:
            raise _Damaged(f"a name of {length} letters at byte {self.at}")
        return self.take(length).tobytes().decode()

    def many(self, one: Callable[[], OneRead], least: int) -> list[OneRead]:
        """A list, of which each item takes at least so many bytes."""
        count = self.number()
        if count * least > self.left:
            raise _Damaged(f"a list of {count} at byte {self.at} is longer than the file")
        return [one() for _ in range(count)]

    def array(self) -> torch.Tensor:
        """An array of numbers."""
        self.magic(ARRAY, "array")
        self.number()
        self.take(8)  # where the numbers were when they were saved
        axes = self.number("<i")
        code, bits, lanes = struct.unpack("<BBH", self.take(4).tobytes())
        dtype = _DTYPES.get((code, bits))
        if not 0 <= axes <= MOST_AXES or dtype is None or lanes != 1:
            raise _Damaged(f"an array of an unknown kind at byte {self.at}")
        shape = [self.number() for _ in range(axes)]
        size = self.number()
        if size != math.prod(shape) * bits // 8 or max(shape, default=0) > len(self.content):
            raise _Damaged(f"an array at byte {self.at} has {size} bytes, which is not its shape")
        raw = torch.from_numpy(np.array(self.take(size)))  # a copy: numbers in the file are not aligned
        return raw.view(dtype).reshape(shape) if size else torch.zeros(shape, dtype=dtype)


_DTYPES = {
    (0, 8): torch.int8, (0, 16): torch.int16, (0, 32): torch.int32, (0, 64): torch.int64, (1, 8): torch.uint8,
    (2, 16): torch.float16, (2, 32): torch.float32, (2, 64): torch.float64, (4, 16): torch.bfloat16,
}  # fmt: skip
"""(code, bits) of DLPack's types -> torch's."""


@dataclass(frozen=True)
class _Matrix:
    """Edges of one type."""

    rows: int
    columns: int
    edges: torch.Tensor


def _content(file: _Bytes) -> dict[Any, Any]:
    """The graph as the dict that PyG's `to_dict()` would return."""
    file.magic(FILE, "mark of DGL")
    version, kind, graphs = (file.number() for _ in range(3))
    if (version, kind) != (VERSION, KIND):
        raise InputError(f"written by a DGL before 0.5 (layout {version}); {REMEDY}")
    if graphs != 1:
        raise InputError(f"holds {graphs} graphs; keep one: dgl.save_graphs(FILE, [g])")
    file.take(HEADER - file.at)
    begin = file.number()
    if not file.at <= begin <= len(file.content):
        raise _Damaged("its graph begins outside of it")
    file.take(begin - file.at)  # labels of whole graphs
    ends, relations, counts = _structure(file)
    nodes, edges = (file.many(lambda: file.many(lambda: (file.text(), file.array()), 44), 8) for _ in range(2))
    node_types, edge_types = (file.many(file.text, 8) for _ in range(2))
    if len(node_types) != len(counts) or len(nodes) != len(counts) or len(edge_types) != len(relations):
        raise _Damaged("names, data and graph do not agree")
    if max(len(edges), len(ends)) > len(relations) or len(set(node_types)) < len(node_types):
        raise _Damaged("names, data and graph do not agree")
    return _as_dict(ends, relations, counts, [dict(data) for data in nodes], node_types, edge_types)


def _structure(file: _Bytes) -> tuple[list[tuple[int, int]], list[_Matrix], list[int]]:
    """(types of nodes of every type of edges, their edges, nodes of every type)."""
    file.magic(HETEROGRAPH, "graph")
    meta = _meta(file)
    relations = file.many(lambda: _relation(file), 100)
    counts = file.many(file.number, 8)
    ends = list(zip(*meta.edges.tolist(), strict=True))
    if len(ends) != len(relations) or meta.rows != len(counts):
        raise _Damaged("types and edges do not agree")
    for (source, target), matrix in zip(ends, relations, strict=True):
        if (matrix.rows, matrix.columns) != (counts[source], counts[target]):
            raise _Damaged("edges and nodes do not agree")
    if sum(counts) > len(file.content):  # almost all would be without edges and data
        raise _Damaged(f"it has {sum(counts)} nodes, more than bytes")
    return ends, relations, counts


def _meta(file: _Bytes) -> _Matrix:
    """Which types of nodes every type of edges joins, in the order of the types of edges."""
    file.magic(META, "graph of types")
    return _csr(file, ordered=True)


def _relation(file: _Bytes) -> _Matrix:
    """The edges of one type, from the first of the formats in which they are written."""
    file.magic(RELATION, "type of edges")
    code = file.number()
    file.number()  # formats that DGL may make of it
    written = code % CODED if code & CODED else OLD_FORMATS.get(code, 0)
    if not 0 < written <= sum(FORMATS):
        raise _Damaged(f"edges in an unknown format at byte {file.at}")
    found = []
    for flag, name in FORMATS.items():
        if written & flag:
            _meta(file)
            found.append(_coo(file) if name == "coo" else _csr(file))
            if name == "csc":  # rows are targets
                found[-1] = _Matrix(found[-1].columns, found[-1].rows, found[-1].edges.flip(0))
    return found[0]


def _coo(file: _Bytes) -> _Matrix:
    file.magic(COO, "list of edges")
    columns, rows = file.number(), file.number()
    source, target, order = (file.array() for _ in range(3))
    file.take(2)  # whether they are sorted
    if source.ndim != 1 or source.shape != target.shape or len(order) not in (0, len(source)):
        raise _Damaged("a list of edges has ends that do not agree")
    return _Matrix(rows, columns, _integers(torch.stack([_integers(source), _integers(target)])))


def _csr(file: _Bytes, ordered: bool = False) -> _Matrix:
    """Edges from row to column; `ordered` by their ids."""
    file.magic(CSR, "matrix of edges")
    columns, rows = file.number(), file.number()
    starts, ends, ids = (_integers(file.array()) for _ in range(3))
    file.take(1)  # whether it is sorted
    lengths = starts.diff()
    if starts.ndim != 1 or ends.ndim != 1 or len(starts) != rows + 1 or bool((lengths < 0).any()):
        raise _Damaged("a matrix of edges has rows that do not agree")
    if int(starts[0]) != 0 or int(starts[-1]) != len(ends) or len(ids) not in (0, len(ends)):
        raise _Damaged("a matrix of edges has rows that do not agree")
    edges = torch.stack([torch.repeat_interleave(torch.arange(rows), lengths), ends])
    if ordered and len(ids):
        if not torch.equal(ids.sort().values, torch.arange(len(ids))):
            raise _Damaged("types of edges are not numbered")
        edges = edges[:, ids.argsort()]
    if ordered and len(ends) and not 0 <= int(ends.min()) <= int(ends.max()) < columns == rows:
        raise _Damaged("types of edges join types of nodes that are not there")
    return _Matrix(rows, columns, edges)


def _integers(values: torch.Tensor) -> torch.Tensor:
    if values.is_floating_point():
        raise _Damaged("numbers of nodes are not whole")
    return values.long()


def _as_dict(
    ends: list[tuple[int, int]],
    relations: list[_Matrix],
    counts: list[int],
    data: list[dict[str, torch.Tensor]],
    node_types: list[str],
    edge_types: list[str],
) -> dict[Any, Any]:
    """One type of nodes and edges as plain fields, several as a dict for each."""
    fields = [_fields(known, count) for known, count in zip(data, counts, strict=True)]
    if len(counts) == len(relations) == 1:
        return {**fields[0], "edge_index": relations[0].edges}
    found: dict[Any, Any] = dict(zip(node_types, fields, strict=True))
    for at, ((source, target), matrix) in enumerate(zip(ends, relations, strict=True)):
        found[node_types[source], f"{at} {edge_types[at]}", node_types[target]] = {"edge_index": matrix.edges}
    return found


def _fields(data: dict[str, torch.Tensor], count: int) -> dict[str, Any]:
    """The data of one type of nodes under haloscope's names."""
    found: dict[str, Any] = {"num_nodes": count}
    for key, names in KEYS.items():
        known = next((name for name in names if name in data), None)
        if known is not None:
            found[key] = data[known]
            if found[key].ndim == 0 or len(found[key]) != count:
                raise _Damaged(f"{known!r} is not of {count} nodes")
    for name in SPLITS:
        mask = data.get(f"{name}_mask")
        if mask is not None:  # DGL writes true and false as 1 and 0
            known_bits = not mask.is_floating_point() and bool(((mask == 0) | (mask == 1)).all())
            found[f"{name}_mask"] = mask == 1 if known_bits else mask
    return found
