"""The codecs and dropout on a GPU, as shares of the rate at which it copies: `benchmarks.codec --device cuda`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from harness.codecs import Bucket, LinearRows, StochasticRows
from harness.kernels.dropout import keyed_dropout
from harness.kernels.triton_code import triton
from real.measure._probes import timed_on_gpu

BITS = (1, 2, 4, 8, 16)


def line(label: str, nbytes: float, took: float, copy: float) -> str:
    """One row of the table."""
    return f"{label:<22}{1e3 * took:>9.3f} ms{nbytes / took / 1e9:>9.0f} GB/s{nbytes / took / copy:>9.0%} of copy"


def report(rows: Tensor, budget_s: float) -> None:
    """Measure and print every line."""
    target, width = torch.empty_like(rows), rows.shape[1]
    took = timed_on_gpu(lambda: target.copy_(rows), budget_s)
    copy = 2 * rows.nbytes / took
    print(line("copy", 2 * rows.nbytes, took, copy))
    for bits in BITS:
        codec = StochasticRows(bits)
        payload = codec.encode(rows, 1)
        moved = rows.nbytes + sum(part.nbytes for part in payload)
        took = timed_on_gpu(lambda: codec.encode(rows, 1), budget_s)  # noqa: B023
        print(line(f"{bits:2}b quantise", moved, took, copy))
        took = timed_on_gpu(lambda: codec.decode(payload, width, torch.float32), budget_s)  # noqa: B023
        print(line(f"{bits:2}b dequantise", moved, took, copy))
    linear, bucket = LinearRows(8), Bucket(8)
    side, starts = bucket.measure(rows, rows), torch.tensor([0, rows.shape[0]], device=rows.device)
    codes, _ = bucket.encode(rows, side)
    nodes, moved = torch.arange(rows.shape[0], device=rows.device), rows.nbytes + codes.nbytes
    others: list[tuple[str, int, Callable[[], object]]] = [
        (" 8b nearest (CDFGNN)", moved, lambda: linear.encode(rows, 0)),
        (" 8b bucket (EC-Graph)", moved, lambda: bucket.encode(rows, side)),
        (" 8b bucket, decoded", moved, lambda: bucket.decode(codes, side, starts, width)),
        ("keyed dropout", 2 * rows.nbytes, lambda: keyed_dropout(rows, nodes, 0.5, 1)),
        ("torch's dropout", 2 * rows.nbytes, lambda: torch.dropout(rows, 0.5, True)),
    ]
    for label, nbytes, call in others:
        print(line(label, nbytes, timed_on_gpu(call, budget_s), copy))


def main(num_rows: int, width: int, budget_s: float) -> None:
    """Print the device, then measure."""
    if not torch.cuda.is_available():
        raise SystemExit("--device cuda, but no GPU is visible here")
    kernels = f"Triton {triton.__version__}" if triton is not None else "torch operators (no Triton)"
    print(f"{num_rows} x {width} fp32 on {torch.cuda.get_device_name()}, torch {torch.__version__}, {kernels}")
    generator = torch.Generator("cuda").manual_seed(0)
    report(torch.randn(num_rows, width, device="cuda", generator=generator), budget_s)
