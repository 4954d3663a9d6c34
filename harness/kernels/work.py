"""How much one operator does, from the shapes of its tensors; no word of how long that takes.

An operator of `torch.library` declares its work beside its kernel, under its qualified name. Whoever prices operators
(`sims.device`) looks it up here, so that a package which brings an operator brings its price class along. Imports no
torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from torch import Tensor

ACROSS = ":across"
"""Ends the name of a sum over the first dimension and not the last, for which rows are not handled one by one, and of a
product whose longest side is summed over: the gradient of weights reads as much as a product of rows, writes little.
"""

ADDED = ":added"
"""Ends the name of a product that is added to a matrix, not to one row."""

FORMS = ("_", ACROSS, ADDED)
"""Endings of operators' names that tell their forms apart."""

CLASSES = ("gemm", "spmm", "elementwise", "gather", "reduction", "copy", "dropout", "codec", "host")
"""Classes of operators, for each of which devices have a price."""

UNKNOWN = "unknown"
"""The class of an operator that nobody knows; it is priced by its bytes, as elementwise."""


@dataclass(frozen=True)
class Work:
    """How much one operator does.

    Attributes:
        kind: a class of operators for which devices have a price (CLASSES), "free" (a view or an empty tensor), or
            UNKNOWN.
        nbytes: bytes read and written; for codec those of the uncoded rows, for spmm those written.
        flops: multiplications and additions (gemm).
        entries: stored entries times columns (spmm).
        lines: rows that are handled one by one (gather, reduction, dropout, codec): each costs something beside its
            bytes.
        width: columns (spmm, and of the lines); the shortest side of the two factors (gemm).
        bits: bits per element (codec).
        fresh: bytes of new tensors it writes.
        name: the operator (and its bits), for devices that timed it.
        half: whether factors (gemm) or rows (spmm) are of two bytes a number (`--precision bf16`).
        rows, row_bytes: rows among which the stored entries choose, and bytes of one (spmm). Only prices of devices
            with a cache go by them; two works are equal without them.
    """

    kind: str
    nbytes: int = 0
    flops: int = 0
    entries: int = 0
    lines: int = 0
    width: int = 0
    bits: int = 0
    fresh: int = 0
    name: str = ""
    half: bool = False
    rows: int = field(default=0, compare=False)
    row_bytes: int = field(default=0, compare=False)

    @property
    def empty(self) -> bool:
        """Whether nothing is read, written or computed."""
        return not (self.nbytes or self.flops or self.entries)


FREE = Work("free")


class Formula(Protocol):
    """The work of a call, by the shapes of its tensors alone; the caller fills in `fresh` and `name`."""

    @property
    def kind(self) -> str:
        """The class of the operator."""
        ...

    def __call__(self, args: Sequence[Any], inputs: list[Tensor], outputs: list[Tensor]) -> Work:
        """`args` as the operator got them; the tensors among them, and those it returned."""
        ...


@dataclass(frozen=True)
class NeighbourSum:
    """Rows summed over the stored entries of a sparse matrix.

    Attributes:
        columns: position of the entries' columns among the arguments.
        rows: position of the dense rows.
    """

    columns: int
    rows: int
    kind: ClassVar[str] = "spmm"

    def __call__(self, args: Sequence[Any], inputs: list[Tensor], outputs: list[Tensor]) -> Work:
        columns, rows = args[self.columns], args[self.rows]
        entries = columns.numel() * (rows.numel() // max(rows.shape[0], 1))
        width = rows.shape[-1]
        return Work(
            self.kind, bytes_of(outputs), entries=entries, width=width, half=is_half(rows), rows=rows.shape[0],
            row_bytes=width * rows.element_size(),
        )  # fmt: skip


@dataclass(frozen=True)
class AttentionSum:
    """Rows of all heads summed over stored entries, with weights that are computed on the way: one launch.

    Attributes:
        columns: positions of the entries' columns among the arguments.
        rows: positions of the dense rows [n, H, D] of each.
        beside: numbers read for every entry and head beside its row.
    """

    columns: tuple[int, ...]
    rows: tuple[int, ...]
    beside: int
    kind: ClassVar[str] = "spmm"

    def __call__(self, args: Sequence[Any], inputs: list[Tensor], outputs: list[Tensor]) -> Work:
        dense = [args[position] for position in self.rows]
        heads, width = dense[0].shape[1:]
        values = heads * (width + self.beside)
        entries = sum(args[position].numel() for position in self.columns) * values
        chosen = sum(rows.shape[0] for rows in dense)
        return Work(
            self.kind, bytes_of(outputs), entries=entries, width=values, half=is_half(dense[0]), rows=chosen,
            row_bytes=values * dense[0].element_size(),
        )  # fmt: skip


@dataclass(frozen=True)
class BitsArgument:
    """The bits per element are the operator's argument at this position."""

    position: int


@dataclass(frozen=True)
class MeanBits:
    """Rows have different numbers of bits: what counts is the mean, by the bytes of all codes, to the nearest bit.

    Attributes:
        codes: position of the codes, without side information; None for the first output.
    """

    codes: int | None


@dataclass(frozen=True)
class RowCodec:
    """Rows coded or decoded: as float32, to which those of two bytes a number are converted first.

    Attributes:
        rows: position of the uncoded rows; None for the output.
        bits: bits per element of the codes: a number where there is no choice, or where it is found.
    """

    rows: int | None
    bits: int | BitsArgument | MeanBits
    kind: ClassVar[str] = "codec"

    def __call__(self, args: Sequence[Any], inputs: list[Tensor], outputs: list[Tensor]) -> Work:
        uncoded = outputs if self.rows is None else [args[self.rows]]
        lines, width = lines_of(uncoded[:1])
        nbytes = sum(rows.numel() * max(rows.element_size(), 4) for rows in uncoded)
        return Work(self.kind, nbytes, lines=lines, width=width, bits=self._bits(args, outputs, lines * width))

    def _bits(self, args: Sequence[Any], outputs: list[Tensor], elements: int) -> int:
        if isinstance(self.bits, int):
            return self.bits
        if isinstance(self.bits, BitsArgument):
            return int(args[self.bits.position])
        codes = outputs[0] if self.bits.codes is None else args[self.bits.codes]
        return max(1, round(8 * codes.numel() * codes.element_size() / elements)) if elements else 0


@dataclass(frozen=True)
class Gather:
    """Rows or entries picked by an index: what is written is read first, and so are the index tensors."""

    kind: ClassVar[str] = "gather"

    def __call__(self, args: Sequence[Any], inputs: list[Tensor], outputs: list[Tensor]) -> Work:
        index = [tensor for tensor in inputs[1:] if not tensor.is_floating_point()]
        lines, width = lines_of(outputs[:1])
        return Work(self.kind, 2 * bytes_of(outputs) + bytes_of(index), lines=lines, width=width)


@dataclass(frozen=True)
class Streamed:
    """Everything read once and written once.

    Attributes:
        kind: the class of the operator, such as reduction, copy, dropout or elementwise. Reductions and dropout treat
            rows one by one.
    """

    kind: str

    def __call__(self, args: Sequence[Any], inputs: list[Tensor], outputs: list[Tensor]) -> Work:
        lines, width = lines_of(inputs[:1] if self.kind in ("reduction", "dropout") else [])
        return Work(self.kind, bytes_of(inputs) + bytes_of(outputs), lines=lines, width=width)


def lines_of(tensors: Sequence[Tensor]) -> tuple[int, int]:
    """Rows of the first tensor, if there is one, and their columns; numbers of a vector are rows of one column."""
    if not tensors:
        return 0, 0
    width = tensors[0].shape[-1] if tensors[0].ndim > 1 else 1
    return tensors[0].numel() // max(width, 1), width


def is_half(tensor: Tensor) -> bool:
    """Whether a tensor has floating-point numbers of two bytes."""
    return tensor.is_floating_point() and tensor.element_size() == 2


_DECLARED: dict[str, Formula] = {}


def declare_work(operator: str, formula: Formula) -> None:
    """Say what a call of an operator (`namespace::name`) does.

    Raises:
        ValueError: it was said before, or its class is none of CLASSES.
    """
    if formula.kind not in CLASSES:
        raise ValueError(f"the work of {operator} is of no known class: {formula.kind!r}; known: {', '.join(CLASSES)}")
    if operator in _DECLARED:
        raise ValueError(f"the work of {operator} is declared already")
    _DECLARED[operator] = formula


def declared_work(operator: str) -> Formula | None:
    """What was declared of an operator, or None."""
    return _DECLARED.get(operator)


def bytes_of(tensors: Sequence[Tensor]) -> int:
    """Bytes of dense tensors; sparse ones count nothing."""
    from torch import strided  # here, so that prices are read without torch

    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor.layout is strided)
