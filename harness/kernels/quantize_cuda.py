"""The stochastic row quantiser on CUDA: Triton kernels where Triton is installed, torch operators where it is not.

Both give the codes of the CPU kernels bit for bit; the torch form also runs on CPU, where tests compare it. The
ranges of the rows are found in torch operators: they are two numbers per row, and they need exact IEEE division,
which Triton's own `/` is not. See `quantize` for the definition and the layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from harness.kernels.quantize import code_bytes, not_finite
from harness.kernels.quantize_cpu import FLOAT_MAX, HALF_MAX, LIFT, RANGE_MAX, TINY_SCALE
from harness.kernels.random import LOW_A, LOW_B, UNIFORM_BITS, element_bits_torch, row_words_torch

try:
    import triton  # type: ignore[import-not-found]
    import triton.language as tl  # type: ignore[import-not-found]

    jit: Callable[[Any], Any] = triton.jit
except ImportError:
    triton = None

    def jit(kernel: Any) -> Any:
        """Leave the kernel a plain function that nobody calls."""
        return kernel


ELEMENTS_PER_PROGRAM = 1024


def half_floor(x: Tensor) -> Tensor:
    """The largest multiple of the fp16 spacing at x that is not above x; float32 in and out."""
    exponent = (((x.view(torch.int32) >> 23) & 0xFF) - 127).clamp(min=-14)
    quantum = ((exponent - 10 + 127) << 23).view(torch.float32)
    return torch.floor(x / quantum) * quantum


def row_grid(rows: Tensor, bits: int, half: bool) -> tuple[Tensor, Tensor]:
    """Scale and minimum [n] of float32 rows [n, d > 0], on the fp16 grid if `half`. ValueError for nan and inf."""
    low, high = torch.aminmax(rows, dim=1)
    finite = torch.isfinite(low) & torch.isfinite(high)
    if not finite.all():  # waits for the device: the price of naming the row instead of training on nan
        raise not_finite(int(torch.nonzero(~finite)[0, 0]))
    levels = float(2**bits - 1)
    if half:
        low = half_floor(low).clamp(-float(HALF_MAX), float(HALF_MAX))
    spread = (high - low).clamp(0.0, float(RANGE_MAX))
    scale = spread / levels
    scale = torch.where(scale * levels < spread, (scale.view(torch.int32) + 1).view(torch.float32), scale)
    if half:
        scale = (-half_floor(-scale)).clamp(max=float(HALF_MAX))
    return scale, low


def fraction_bits(bits: int) -> int:
    """Fractional bits of the fixed-point form, so that it stays below 2**31."""
    return min(UNIFORM_BITS, 31 - bits)


def _factors(scale: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Two factors per row, together 2**F / scale, neither of which overflows; 1 and 0 for a constant row."""
    up = torch.where((scale > 0) & (scale < float(TINY_SCALE)), float(LIFT), 1.0)
    zero = torch.zeros((), device=scale.device)
    return up, torch.where(scale > 0, float(2 ** fraction_bits(bits)) / (scale * up), zero)


def _empty(rows: Tensor, bits: int, half: bool) -> tuple[Tensor, Tensor]:
    codes = rows.new_empty((rows.shape[0], code_bytes(rows.shape[1], bits)), dtype=torch.uint8)
    return codes, rows.new_zeros((rows.shape[0], 2), dtype=torch.float16 if half else torch.float32)


def quantize_torch(rows: Tensor, bits: int, key: int, half: bool) -> tuple[Tensor, Tensor]:
    """`quantize_rows` in torch operators, any device."""
    codes, side = _empty(rows, bits, half)
    if not rows.numel():
        return codes, side
    rows, fraction = rows.float(), fraction_bits(bits)
    scale, low = row_grid(rows, bits, half)
    up, mul = _factors(scale, bits)
    top = float((2**bits - 1) * 2**fraction)
    fixed = ((rows - low[:, None]) * up[:, None] * mul[:, None]).clamp(0.0, top).long()
    words = row_words_torch(key, torch.arange(rows.shape[0], device=rows.device))
    noise = element_bits_torch(*words, rows.shape[1]) >> (UNIFORM_BITS - fraction)
    levels = (fixed + noise) >> fraction
    return pack_torch(levels, bits), torch.stack((scale, low), dim=1).to(side.dtype)


def pack_torch(levels: Tensor, bits: int) -> Tensor:
    """Codes int64 [n, width] -> uint8 [n, ceil(width bits / 8)] in the layout of `quantize`."""
    if bits >= 8:
        planes = [(levels >> shift) & 0xFF for shift in range(0, bits, 8)]
        return torch.stack(planes, dim=2).to(torch.uint8).flatten(1)
    plane = code_bytes(levels.shape[1], bits)
    levels = torch.nn.functional.pad(levels, (0, plane * (8 // bits) - levels.shape[1]))
    shifts = torch.arange(0, 8, bits, device=levels.device)[:, None]
    return (levels.view(-1, 8 // bits, plane) << shifts).sum(1).to(torch.uint8)


def dequantize_torch(codes: Tensor, side: Tensor, bits: int, width: int) -> Tensor:
    """`dequantize_rows` in torch operators, any device."""
    if bits == 16:
        levels = codes[:, 0::2].int() | (codes[:, 1::2].int() << 8)
    else:
        shifts = torch.arange(0, 8, bits, device=codes.device)[:, None]
        levels = ((codes[:, None, :].int() >> shifts) & (2**bits - 1)).flatten(1)[:, :width]
    scale, low = side.float().unbind(1)
    return (low[:, None] + levels.float() * scale[:, None]).clamp(max=float(FLOAT_MAX))


@jit
def _encode_kernel(  # type: ignore[no-untyped-def]
    x, low, up, mul, first, second, codes, num_rows, width, plane, top,
    BITS: tl.constexpr, FRACTION: tl.constexpr, PLANES: tl.constexpr, A: tl.constexpr, B: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    live, start = row < num_rows, row.to(tl.int64)
    minimum = tl.load(low + row, mask=live, other=0.0)[:, None]
    lift = tl.load(up + row, mask=live, other=0.0)[:, None]
    factor = tl.load(mul + row, mask=live, other=0.0)[:, None]
    word = tl.load(first + row, mask=live, other=0).to(tl.uint32, bitcast=True)[:, None]
    fold = tl.load(second + row, mask=live, other=0).to(tl.uint32, bitcast=True)[:, None]
    packed = tl.zeros((ROWS, COLUMNS), dtype=tl.int32)
    for k in tl.static_range(PLANES):
        column = k * plane + at
        inside = live[:, None] & ((at < plane) & (column < width))[None, :]
        h = tl.load(x + start[:, None] * width + column[None, :], mask=inside, other=0.0)
        t = tl.maximum(tl.minimum((h - minimum) * lift * factor, top), 0.0)
        bits = word + column.to(tl.uint32)[None, :]
        bits = ((bits ^ (bits >> 16)) * A) ^ fold
        bits = (bits ^ (bits >> 15)) * B
        noise = ((bits ^ (bits >> 15)) >> (32 - FRACTION)).to(tl.int32)
        packed |= tl.where(inside, (t.to(tl.int32) + noise) >> FRACTION, 0) << (k * BITS)
    target = codes + start[:, None] * plane + at[None, :]
    tl.store(target, packed.to(codes.dtype.element_ty), mask=live[:, None] & (at < plane)[None, :])


@jit
def _decode_kernel(  # type: ignore[no-untyped-def]
    codes, scale, low, out, num_rows, width, plane, largest,
    BITS: tl.constexpr, PLANES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    live, start = row < num_rows, row.to(tl.int64)
    step = tl.load(scale + row, mask=live, other=0.0)[:, None]
    minimum = tl.load(low + row, mask=live, other=0.0)[:, None]
    inside = live[:, None] & (at < plane)[None, :]
    packed = tl.load(codes + start[:, None] * plane + at[None, :], mask=inside, other=0).to(tl.int32)
    for k in tl.static_range(PLANES):
        column = k * plane + at
        code = (packed >> (k * BITS)) & ((1 << BITS) - 1)
        value = tl.minimum(minimum + code.to(tl.float32) * step, largest)
        tl.store(out + start[:, None] * width + column[None, :], value, mask=inside & (column < width)[None, :])


def _launch(num_rows: int, plane: int) -> tuple[tuple[int, int], dict[str, Any]]:
    """Grid and tile of a kernel over [num_rows, plane]; fused multiply-adds off, or the bits would differ from CPU."""
    columns = min(128, triton.next_power_of_2(plane))
    tile = {"ROWS": ELEMENTS_PER_PROGRAM // columns, "COLUMNS": columns, "enable_fp_fusion": False}
    return (triton.cdiv(num_rows, tile["ROWS"]), triton.cdiv(plane, columns)), tile


def quantize(rows: Tensor, bits: int, key: int, half: bool) -> tuple[Tensor, Tensor]:
    """`quantize_rows` for CUDA tensors; see `quantize`."""
    if triton is None or not rows.numel():
        return quantize_torch(rows, bits, key, half)
    codes, side = _empty(rows, bits, half)
    rows, fraction = rows.float().contiguous(), fraction_bits(bits)
    scale, low = row_grid(rows, bits, half)
    words = [w.int() for w in row_words_torch(key, torch.arange(rows.shape[0], device=rows.device))]
    packed = codes.view(torch.uint16) if bits == 16 else codes
    grid, tile = _launch(rows.shape[0], packed.shape[1])
    _encode_kernel[grid](
        rows, low.contiguous(), *_factors(scale, bits), *words, packed,
        rows.shape[0], rows.shape[1], packed.shape[1], float((2**bits - 1) * 2**fraction),
        BITS=bits, FRACTION=fraction, PLANES=max(1, 8 // bits), A=LOW_A, B=LOW_B, **tile,
    )  # fmt: skip
    return codes, torch.stack((scale, low), dim=1).to(side.dtype)


def dequantize(codes: Tensor, side: Tensor, bits: int, width: int) -> Tensor:
    """`dequantize_rows` for CUDA tensors; see `quantize`."""
    if triton is None or not codes.numel():
        return dequantize_torch(codes, side, bits, width)
    out = codes.new_empty((codes.shape[0], width), dtype=torch.float32)
    scale, low = (column.contiguous() for column in side.float().unbind(1))
    packed = codes.contiguous().view(torch.uint16) if bits == 16 else codes.contiguous()
    grid, tile = _launch(codes.shape[0], packed.shape[1])
    _decode_kernel[grid](
        packed, scale, low, out, out.shape[0], width, packed.shape[1], float(FLOAT_MAX),
        BITS=bits, PLANES=max(1, 8 // bits), **tile,
    )  # fmt: skip
    return out
