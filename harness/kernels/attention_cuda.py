"""Triton kernels of attention over neighbours: softmax of scores and weighted sums in one pass, and their gradients.

A program computes some heads of one row and walks over the row's entries, a few at a time; nothing is kept per entry.
Forwards the softmax is rescaled whenever a larger score appears (Milakov and Gimelshein, 2018). Backwards every weight
is computed again from its two scores and four numbers per destination and head; sums over outgoing entries walk the
transposed block. Every sum has one fixed order: there are no atomics, and results repeat bit for bit.

A score is leaky(source + target). The gradient of `target` needs no walk: with w the weights of a destination, those of
positive scores marked +, and y = sum of w x, it is (1 - slope) (g . y+ - (g . y) sum of w+), so that the forward pass
keeps y+ and that sum.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from harness.kernels.triton_code import constant, jit, tl, triton

ELEMENTS = 1024
"""Values of rows that one program reads at a time."""

MOST_ENTRIES = 32
"""Most entries of a row that one program reads at a time."""

WARPS = 1
"""Warps of 32 threads per program: with more, its sums cross warps, and take several times as long."""

NUMBERS = constant(4)
"""Numbers kept per destination and head: target score, largest score, 1 / sum of exponentials, and one more."""

_INF = constant(math.inf)


@jit
def _entries(  # type: ignore[no-untyped-def]
    indptr, indices, source, x, row, head, column, target, heads, width, slope, top, total, share, y, upper,
    KEEP: tl.constexpr, ENTRIES: tl.constexpr,
):  # fmt: skip
    """The state of a row's softmax and sums after the entries of one block."""
    end = tl.load(indptr + row + 1)
    for start in range(tl.load(indptr + row), end, ENTRIES):
        entry = start + tl.arange(0, ENTRIES)
        live = entry < end
        at = tl.load(indices + entry, mask=live, other=0).to(tl.int64)
        there = live[:, None] & (head < heads)[None, :]
        score = tl.load(source + (at * heads)[:, None] + head[None, :], mask=there, other=0.0) + target[None, :]
        positive = score > 0.0
        score = tl.where(live[:, None], tl.where(positive, score, score * slope), -_INF)
        highest = tl.maximum(top, tl.max(score, 0))
        rescale, weight = tl.exp(top - highest), tl.exp(score - highest[None, :])
        place = (at * heads * width)[:, None, None] + (head * width)[None, :, None] + column[None, None, :]
        rows = tl.load(x + place, mask=there[:, :, None] & (column < width)[None, None, :], other=0.0)
        top, total = highest, total * rescale + tl.sum(weight, 0)
        y = y * rescale[:, None] + tl.sum(weight[:, :, None] * rows, 0)
        if KEEP:
            weight = tl.where(positive, weight, 0.0)
            share = share * rescale + tl.sum(weight, 0)
            upper = upper * rescale[:, None] + tl.sum(weight[:, :, None] * rows, 0)
    return top, total, share, y, upper


@jit
def _attend_kernel(  # type: ignore[no-untyped-def]
    indptr, indices, halo_indptr, halo_indices, target, source, halo_source, x, halo_x, out, kept, numbers,
    heads, width, slope, HALO: tl.constexpr, KEEP: tl.constexpr,
    HEADS: tl.constexpr, COLUMNS: tl.constexpr, ENTRIES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head, column = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, COLUMNS)
    inside = head < heads
    pair = row * heads + head
    score = tl.load(target + pair, mask=inside, other=0.0)
    top, total = tl.full([HEADS], -_INF, tl.float32), tl.zeros([HEADS], tl.float32)
    share = tl.zeros([HEADS], tl.float32)
    y, upper = tl.zeros([HEADS, COLUMNS], tl.float32), tl.zeros([HEADS, COLUMNS], tl.float32)
    top, total, share, y, upper = _entries(
        indptr, indices, source, x, row, head, column, score, heads, width, slope, top, total, share, y, upper,
        KEEP, ENTRIES,
    )  # fmt: skip
    if HALO:
        top, total, share, y, upper = _entries(
            halo_indptr, halo_indices, halo_source, halo_x, row, head, column, score, heads, width, slope,
            top, total, share, y, upper, KEEP, ENTRIES,
        )  # fmt: skip
    some = total > 0.0
    inverse = tl.where(some, 1.0 / tl.where(some, total, 1.0), 0.0)
    place = (pair * width)[:, None] + column[None, :]
    there = inside[:, None] & (column < width)[None, :]
    tl.store(out + place, y * inverse[:, None], mask=there)
    if KEEP:
        tl.store(kept + place, upper * inverse[:, None], mask=there)
        tl.store(numbers + pair * NUMBERS, score, mask=inside)
        tl.store(numbers + pair * NUMBERS + 1, tl.where(some, top, 0.0), mask=inside)
        tl.store(numbers + pair * NUMBERS + 2, inverse, mask=inside)
        tl.store(numbers + pair * NUMBERS + 3, share * inverse, mask=inside)


@jit
def _target_kernel(  # type: ignore[no-untyped-def]
    gradient, out, kept, numbers, d_target, numbers_after, pairs, width, slope,
    PAIRS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    pair = tl.program_id(0).to(tl.int64) * PAIRS + tl.arange(0, PAIRS)
    column, inside = tl.arange(0, COLUMNS), pair < pairs
    there, place = inside[:, None] & (column < width)[None, :], (pair * width)[:, None] + column[None, :]
    g = tl.load(gradient + place, mask=there, other=0.0)
    mean = tl.sum(g * tl.load(out + place, mask=there, other=0.0), 1)
    upper = tl.sum(g * tl.load(kept + place, mask=there, other=0.0), 1)
    share = tl.load(numbers + pair * NUMBERS + 3, mask=inside, other=0.0)
    tl.store(d_target + pair, (1.0 - slope) * (upper - mean * share), mask=inside)
    for k in tl.static_range(3):
        number = tl.load(numbers + pair * NUMBERS + k, mask=inside, other=0.0)
        tl.store(numbers_after + pair * NUMBERS + k, number, mask=inside)
    tl.store(numbers_after + pair * NUMBERS + 3, mean, mask=inside)


@jit
def _source_kernel(  # type: ignore[no-untyped-def]
    t_indptr, t_indices, numbers, source, x, gradient, d_source, d_x, heads, width, slope,
    HEADS: tl.constexpr, COLUMNS: tl.constexpr, ENTRIES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head, column = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, COLUMNS)
    inside = head < heads
    pair = row * heads + head
    there, place = inside[:, None] & (column < width)[None, :], (pair * width)[:, None] + column[None, :]
    mine = tl.load(x + place, mask=there, other=0.0)
    score_of_row = tl.load(source + pair, mask=inside, other=0.0)
    d_score, d_rows = tl.zeros([HEADS], tl.float32), tl.zeros([HEADS, COLUMNS], tl.float32)
    end = tl.load(t_indptr + row + 1)
    for start in range(tl.load(t_indptr + row), end, ENTRIES):
        entry = start + tl.arange(0, ENTRIES)
        live = (entry < end)[:, None] & inside[None, :]
        at = tl.load(t_indices + entry, mask=entry < end, other=0).to(tl.int64)
        number = numbers + ((at * heads)[:, None] + head[None, :]) * NUMBERS
        score = score_of_row[None, :] + tl.load(number, mask=live, other=0.0)
        leak = tl.where(score > 0.0, 1.0, slope)
        weight = tl.exp(score * leak - tl.load(number + 1, mask=live, other=_INF))
        weight = weight * tl.load(number + 2, mask=live, other=0.0)
        far = (at * heads * width)[:, None, None] + (head * width)[None, :, None] + column[None, None, :]
        g = tl.load(gradient + far, mask=live[:, :, None] & (column < width)[None, None, :], other=0.0)
        along = tl.sum(g * mine[None, :, :], 2)
        d_score += tl.sum(weight * (along - tl.load(number + 3, mask=live, other=0.0)) * leak, 0)
        d_rows += tl.sum(weight[:, :, None] * g, 0)
    tl.store(d_source + pair, d_score, mask=inside)
    tl.store(d_x + place, d_rows, mask=there)


def _tile(heads: int, width: int) -> dict[str, Any]:
    """Heads of one program, columns with room for all, and entries at a time; for any of the three kernels."""
    columns = triton.next_power_of_2(width)
    most = min(triton.next_power_of_2(heads), max(1, ELEMENTS // 4 // columns))
    entries = min(MOST_ENTRIES, max(1, ELEMENTS // (most * columns)))
    return {"HEADS": most, "COLUMNS": columns, "ENTRIES": entries, "num_warps": WARPS, "enable_fp_fusion": False}


def attended_rows(
    blocks: tuple[Tensor, Tensor, Tensor, Tensor], target: Tensor, sources: tuple[Tensor, Tensor],
    rows: tuple[Tensor, Tensor], slope: float, keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`haloscope::attend` for CUDA tensors."""
    x, halo_x = (each.contiguous() for each in rows)
    num_rows, (heads, width) = target.shape[0], x.shape[1:]
    out = x.new_empty((num_rows, heads, width))
    kept = torch.empty_like(out) if keep else out.new_empty(0)
    numbers = out.new_empty((num_rows, heads, 4) if keep else 0)
    tile = _tile(heads, width)
    _attend_kernel[(num_rows, triton.cdiv(heads, tile["HEADS"]))](
        *blocks, target.contiguous(), *(each.contiguous() for each in sources), x, halo_x, out, kept, numbers,
        heads, width, slope, HALO=blocks[3].numel() > 0, KEEP=keep, **tile,
    )  # fmt: skip
    return out, kept, numbers


def target_gradient(
    gradient: Tensor, out: Tensor, kept: Tensor, numbers: Tensor, slope: float
) -> tuple[Tensor, Tensor]:
    """`haloscope::attend_target_gradient` for CUDA tensors."""
    d_target, after = out.new_empty(out.shape[:2]), torch.empty_like(numbers)
    columns = triton.next_power_of_2(out.shape[2])
    tile = {"PAIRS": max(1, ELEMENTS // columns), "COLUMNS": columns, "num_warps": WARPS, "enable_fp_fusion": False}
    _target_kernel[(triton.cdiv(d_target.numel(), tile["PAIRS"]),)](
        gradient.contiguous(), out, kept, numbers, d_target, after, d_target.numel(), out.shape[2], slope, **tile
    )
    return d_target, after


def source_gradient(
    t_indptr: Tensor, t_indices: Tensor, numbers: Tensor, source: Tensor, x: Tensor, gradient: Tensor, slope: float
) -> tuple[Tensor, Tensor]:
    """`haloscope::attend_source_gradient` for CUDA tensors."""
    heads, width = x.shape[1:]
    source, x, tile = source.contiguous(), x.contiguous(), _tile(heads, width)
    d_source, d_x = torch.empty_like(source), torch.empty_like(x)
    _source_kernel[(x.shape[0], triton.cdiv(heads, tile["HEADS"]))](
        t_indptr, t_indices, numbers, source, x, gradient.contiguous(), d_source, d_x,
        heads, width, slope, **tile,
    )  # fmt: skip
    return d_source, d_x
