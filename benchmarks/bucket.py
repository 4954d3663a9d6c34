"""Speed of EC-Graph's codec and of its choice between codes and predictions, against the same in torch operators.

Run with `python -m benchmarks.bucket`. Rates are fp32 bytes of the rows per second; the choice reads three times as
many (rows, bases, rates of change). Kernels and operators take turns, so that a busy machine hits both.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from harness.codecs import Bucket
from harness.kernels import _bucket_torch as bucket_torch
from harness.kernels import _trend_torch as trend_torch
from harness.kernels import trend
from harness.kernels._trend_cpu import PREDICTED

Contender = Callable[[], object]


def best(contenders: list[Contender], repeat: int) -> list[float]:
    """Shortest time of each in seconds, after one warm-up run."""
    shortest = [float("inf")] * len(contenders)
    for turn in range(repeat + 1):
        for at, run in enumerate(contenders):
            start = time.perf_counter()
            run()
            if turn:
                shortest[at] = min(shortest[at], time.perf_counter() - start)
    return shortest


def pairs(rows: torch.Tensor, bits: int) -> dict[str, tuple[Contender, Contender]]:
    """The measured pairs: the compiled operator and its form in torch operators."""
    codec, num_rows, width = Bucket(bits), *rows.shape
    side, starts = codec.measure(rows, rows), torch.tensor([0, num_rows])
    generator = torch.Generator().manual_seed(1)
    base, rate = rows + torch.randn(rows.shape, generator=generator) / 4, torch.randn(rows.shape, generator=generator)
    codes, scores = trend.trend_score(rows, base, rate, 0.1, side, starts, bits)
    flags = torch.tensor([PREDICTED, 2, 0], dtype=torch.uint8)[scores.argmin(1)]
    length = (flags != PREDICTED) * codes.shape[1]
    packed, offsets = codes[flags != PREDICTED].view(-1), length.cumsum(0) - length
    chosen = rows, base, rate, 0.1, side, starts, bits
    made = packed, flags, offsets, base, rate, 0.1, side, starts, bits
    return {
        "encode": (lambda: codec.encode(rows, side), lambda: bucket_torch.encode(rows, side, starts, bits, False)),
        "+ residual": (
            lambda: codec.encode(rows, side, keep_error=True),
            lambda: bucket_torch.encode(rows, side, starts, bits, True),
        ),
        "decode": (
            lambda: codec.decode(codes, side, starts, width),
            lambda: bucket_torch.decode(codes, side, starts, bits, width),
        ),
        "choose": (lambda: trend.trend_score(*chosen), lambda: trend_torch.score(*chosen)),
        "restore": (lambda: trend.trend_restore(*made), lambda: trend_torch.restore(*made)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Rates of the bucket codec, fp32 bytes per second.")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = torch.randn(options.rows, options.width, generator=torch.Generator().manual_seed(0))
    print(f"{options.rows} x {options.width} fp32, {options.threads} thread(s)")
    print(f"{'':<16}{'kernel':>14}{'torch':>14}{'ratio':>8}")
    for bits in (1, 2, 4, 8, 16):
        for name, contenders in pairs(rows, bits).items():
            ours, theirs = (rows.nbytes / seconds / 1e9 for seconds in best(list(contenders), options.repeat))
            print(f"{bits:2}b {name:<12}{ours:>9.2f} GB/s{theirs:>9.3f} GB/s{ours / theirs:>8.1f}")


if __name__ == "__main__":
    main()
