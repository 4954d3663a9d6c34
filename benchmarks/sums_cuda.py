"""Neighbour sums and attention of a GPU, beside torch's operators, and with other tiles than the usual ones.

    python -m benchmarks.sums_cuda [--nodes 400000] [--degree 30] [--widths 16,64,256] [--heads 1,4]

A random graph of which half of the edges stay inside communities of 512 consecutive nodes. Printed are milliseconds and
gathered bytes per second (stored entries times the bytes of a row). `slice`: most columns that a program sums,
the usual number marked; `bag`: torch's embedding bag; `cusparse`: torch's product of a sparse matrix. Attention, with
one head and with four, forwards and with its gradients, by values that a program reads at a time and its warps.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from harness.graphs import Block
from harness.kernels import attention_cuda, neighbour_sum_cuda
from harness.nn._attention import Attended, attend
from real.measure._probes import _random_block, timed_on_gpu

SLICES = (16, 32, 64, 128, 256)
TILES = ((1024, 1), (1024, 2), (1024, 4), (2048, 2), (2048, 4), (4096, 4))


def line(label: str, nbytes: int, took: float) -> str:
    """One row of the table."""
    return f"{label:<34}{1e3 * took:>9.3f} ms{nbytes / took / 1e9:>9.0f} GB/s"


def sums(block: Block, width: int, budget_s: float) -> None:
    """Print the sums of rows of one width."""
    x = torch.randn(block.num_cols, width, device="cuda")
    nbytes, ones = block.nnz * width * 4, torch.ones(block.nnz, device="cuda")
    matrix = torch.sparse_csr_tensor(block.indptr, block.indices, ones, (block.num_rows, block.num_cols))

    def bag() -> Tensor:
        return functional.embedding_bag(block.indices, x, block.indptr, mode="sum", include_last_offset=True)

    others: tuple[tuple[str, Callable[[], Tensor]], ...] = (("bag", bag), ("cusparse", lambda: matrix @ x))
    for name, call in others:
        print(line(f"{width:>4} {name}", nbytes, timed_on_gpu(call, budget_s)), flush=True)
    usual = neighbour_sum_cuda.WIDEST
    marked = min(usual, 1 << (width - 1).bit_length())
    for columns in (each for each in SLICES if each <= max(width, min(SLICES))):
        neighbour_sum_cuda.WIDEST = columns
        took = timed_on_gpu(lambda: torch.ops.haloscope.gather_sum(block.indptr, block.indices, x), budget_s)
        print(line(f"{width:>4} slice {columns}{' (usual)' if columns == marked else ''}", nbytes, took), flush=True)
    neighbour_sum_cuda.WIDEST = usual


def attention(block: Block, width: int, heads: int, budget_s: float) -> None:
    """Print attention over rows of one width in all."""
    scores = [torch.randn(block.num_cols, heads, device="cuda", requires_grad=True) for _ in range(2)]
    x = torch.randn(block.num_cols, heads, width // heads, device="cuda", requires_grad=True)
    empty = Block.from_csr(torch.zeros(block.num_rows + 1).int().numpy(), torch.zeros(0).int().numpy(), 0).to(x.device)
    given = Attended(*scores, scores[0][:0].detach(), x, x[:0].detach())
    gradient = torch.randn_like(x)
    usual = attention_cuda.ELEMENTS, attention_cuda.WARPS
    for elements, warps in TILES:
        attention_cuda.ELEMENTS, attention_cuda.WARPS = elements, warps
        forward = timed_on_gpu(lambda: attend(block, empty, 0.2, given), budget_s)
        both = timed_on_gpu(
            lambda: torch.autograd.grad(attend(block, empty, 0.2, given), [*scores, x], gradient), budget_s
        )
        label = f"{width:>4} / {heads} heads, {elements} x {warps}{' (usual)' if (elements, warps) == usual else ''}"
        rate = block.nnz * width * 4 / forward / 1e9
        print(f"{label:<38}{1e3 * forward:>9.3f} ms{rate:>7.0f} GB/s, with gradients {1e3 * both:>9.3f} ms", flush=True)
    attention_cuda.ELEMENTS, attention_cuda.WARPS = usual


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=400_000)
    parser.add_argument("--degree", type=int, default=30)
    parser.add_argument("--widths", default="16,64,256")
    parser.add_argument("--heads", default="1,4")
    parser.add_argument("--budget", type=float, default=0.05, help="seconds for which a call is repeated, about")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("no GPU is visible here")
    block = _random_block(options.nodes, options.degree).to(torch.device("cuda"))
    print(f"{torch.cuda.get_device_name()}, {options.nodes} nodes x {options.degree}")
    widths = [int(width) for width in options.widths.split(",")]
    for width in widths:
        sums(block, width, options.budget)
    for width, heads in itertools.product(widths, [int(heads) for heads in options.heads.split(",")]):
        attention(block, width, heads, options.budget)


if __name__ == "__main__":
    main()
