"""GB/s of the row codecs and of dropout beside the same work in torch operators, as ratios in one run.

    python -m benchmarks.codec [--rows 200000] [--width 256] [--threads 1] [--repeat 7]
    python -m benchmarks.codec --device cuda [--rows 1000000] [--width 256]

On CUDA: bytes that an operator must move (rows, codes, ranges) per second, as a share of what a copy on the same
device moves; the lower quartile of the device's own times, in 0.02 s per repeat. On the CPU, GB/s counts the fp32
rows (input of encode, output of decode, input of dropout). "into new memory" is what a caller of the operator gets,
the page faults of its results included; "kernel" writes into memory that exists, as `copy` (also fp32 rows read and
written once) does. The best of the repeats counts; contenders take turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks import codec_cuda
from harness.codecs import StochasticRows
from harness.kernels._quantize_cpu import dequantize_range, quantize_range
from harness.kernels.dropout import keyed_dropout
from harness.kernels.random import stream_of
from harness.kernels.threads import over_rows

Contenders = dict[str, Callable[[], object]]


def encode_with_operators(rows: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """The codec in torch operators, with torch's own random numbers."""
    levels = 2**bits - 1
    low, high = torch.aminmax(rows, dim=1, keepdim=True)
    scale = (high - low) / levels
    codes = ((rows - low) / scale.clamp(min=1e-30) + torch.rand_like(rows)).clamp_(0, levels)
    side = torch.cat([scale, low], dim=1)
    if bits == 16:
        return codes.int().to(torch.uint16).view(torch.uint8), side
    planes = codes.to(torch.uint8).view(rows.shape[0], 8 // bits, -1)
    packed = planes[:, 0].clone()
    for k in range(1, 8 // bits):
        packed |= planes[:, k] << (k * bits)
    return packed, side


def decode_with_operators(codes: Tensor, side: Tensor, bits: int) -> Tensor:
    """The inverse of `encode_with_operators`."""
    if bits == 16:
        values = codes.view(torch.uint16).float()
    else:
        planes = [(codes >> (k * bits)) & (2**bits - 1) for k in range(8 // bits)]
        values = torch.cat(planes, dim=1).float()
    return torch.addcmul(side[:, 1:], values, side[:, :1])


def gigabytes_per_second(contenders: Contenders, num_bytes: int, repeat: int) -> dict[str, float]:
    """Best rate of each; they take turns, so that a busy machine hits all of them."""
    best = dict.fromkeys(contenders, float("inf"))
    for run in contenders.values():
        run()
    for _ in range(repeat):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return {name: num_bytes / seconds / 1e9 for name, seconds in best.items()}


def codec_contenders(rows: Tensor, bits: int) -> Contenders:
    """Both directions: the bare kernels into existing memory, the operators of the codec, and torch operators."""
    codec = StochasticRows(bits)
    codes, side = codec.encode(rows, 1)
    num_rows, width = rows.shape
    out, x, sides = np.zeros((num_rows, width), np.float32), rows.numpy(), side.numpy()
    packed = codes.numpy().view(np.uint16) if bits == 16 else codes.numpy()

    def encode(start: int, stop: int) -> None:
        quantize_range(x, bits, stream_of(1), False, packed, sides, start, stop)

    def decode(start: int, stop: int) -> None:
        dequantize_range(packed, sides, bits, out, start, stop)

    return {
        "encode kernel": lambda: over_rows(encode, num_rows, rows.nbytes),
        "encode": lambda: codec.encode(rows, 1),
        "encode torch": lambda: encode_with_operators(rows, bits),
        "decode kernel": lambda: over_rows(decode, num_rows, rows.nbytes),
        "decode": lambda: codec.decode((codes, side), width, torch.float32),
        "decode torch": lambda: decode_with_operators(codes, side, bits),
    }


def print_line(label: str, *cells: str) -> None:
    print(f"{label:<12}" + "".join(f"{cell:>16}" for cell in cells))


def report(rows: Tensor, repeat: int) -> None:
    """Measure and print every line."""
    print_line("", "kernel", "into new memory", "torch operators", "ratio")
    for bits in (1, 2, 4, 8, 16):
        rates = gigabytes_per_second(codec_contenders(rows, bits), rows.nbytes, repeat)
        for way in ("encode", "decode"):
            kernel, whole, torch_rate = rates[f"{way} kernel"], rates[way], rates[f"{way} torch"]
            cells = (f"{kernel:.2f} GB/s", f"{whole:.2f} GB/s", f"{torch_rate:.3f} GB/s", f"{whole / torch_rate:.1f}")
            print_line(f"{bits:2}b {way}", *cells)
    nodes, target = torch.arange(rows.shape[0]), torch.zeros_like(rows)
    contenders: Contenders = {
        "dropout": lambda: keyed_dropout(rows, nodes, 0.5, 1),
        "F.dropout": lambda: functional.dropout(rows, 0.5),
        "copy": lambda: target.copy_(rows),
        "clone": lambda: rows.clone(),
    }
    rates = gigabytes_per_second(contenders, rows.nbytes, repeat)
    ours, theirs = rates["dropout"], rates["F.dropout"]
    print_line("dropout", "", f"{ours:.2f} GB/s", f"{theirs:.3f} GB/s", f"{ours / theirs:.1f}")
    print_line("copy", f"{rates['copy']:.2f} GB/s", f"{rates['clone']:.2f} GB/s")


def main() -> None:
    parser = argparse.ArgumentParser(description="Rates of row codecs and dropout, fp32 bytes per second.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rows", type=int, default=0, help="default: 200,000, on cuda 1,000,000")
    parser.add_argument("--width", type=int, default=256, help="a multiple of 8")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    options.rows = options.rows or (200_000 if options.device == "cpu" else 1_000_000)
    if options.width % 8 or options.width <= 0 or options.rows <= 0:
        parser.error("rows must be positive and the width a positive multiple of 8")
    if options.device == "cuda":
        codec_cuda.main(options.rows, options.width, 0.02 * options.repeat)
        return
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    print(f"{options.rows} x {options.width} fp32, {options.threads} thread(s)")
    report(torch.randn(options.rows, options.width), options.repeat)


if __name__ == "__main__":
    main()
