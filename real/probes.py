"""Times the operator classes that a cluster model knows, on this machine, with the operators that training runs.

Every probe answers plain numbers in base units (s, B/s, flop/s), under the keys of a device file. Bytes are counted as
the model counts them: what an operator reads and writes once. Links are not measured here.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from harness.codecs.stochastic import BITS, StochasticRows
from harness.halo import Block
from harness.kernels.dropout import keyed_dropout
from harness.kernels.spmm import aggregate

ROWS, WIDTH = 16384, 256
"""Shape of the dense operand: 16 MiB of float32, larger than the caches, small enough that its memory is reused."""

WIDTHS = (16, 64, 256)
"""Columns at which neighbour sums are timed."""

COMMUNITY = 512
"""Consecutive nodes that half of all edges stay inside, as in a part that was renumbered by clusters."""


def measure(budget_s: float) -> dict[str, float]:
    """Every number of a device file, by its key there; `budget_s` is about how long one operator is timed."""
    torch.manual_seed(0)
    numbers = {"launch": _launch()}
    for probe in (_gemm, _streams, _fresh, _codec):
        numbers |= probe(budget_s)
    return numbers | _spmm(budget_s, numbers["launch"], numbers["bandwidth.elementwise"])


def jitter(budget_s: float) -> float:
    """Standard deviation of the logarithm of the time that equal stretches of compute take, about 20 ms each.

    From the interquartile range, so that a single interruption does not decide. What one rank is late by, all others
    wait for: a cluster model draws it (`[stragglers]`).
    """
    x, w = torch.randn(ROWS // 4, WIDTH), torch.randn(WIDTH, WIDTH)

    def stretch(repeats: int) -> float:
        begin = time.perf_counter()
        for _ in range(repeats):
            torch.relu(x @ w).add_(1.0).sum()
        return time.perf_counter() - begin

    stretch(3)
    repeats = max(1, round(0.02 / max(stretch(4) / 4, 1e-6)))
    times = [stretch(repeats) for _ in range(max(12, round(budget_s / 0.02)))]
    low, high = np.quantile(np.log(times), (0.25, 0.75))
    return float((high - low) / 1.349)  # of a normal distribution, the range between quartiles in deviations


def timed(call: Callable[[], object], budget_s: float) -> float:
    """Seconds of a call: the lower quartile of at least four calls in about `budget_s`, after one not counted.

    Not the median, because other work on the machine only ever makes a call slower.
    """
    call()
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < 4 or time.perf_counter() - begin < budget_s:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.quantile(times, 0.25))


def _gemm(budget_s: float) -> dict[str, float]:
    """Largest rate, the share of it in the three products of a linear layer's training, and bytes/s of a narrow one."""
    square = torch.randn(384, 384)
    peak = 2 * 384**3 / timed(lambda: square @ square, budget_s)
    x, w, g = torch.randn(ROWS, WIDTH), torch.randn(WIDTH, WIDTH), torch.randn(ROWS, WIDTH)
    products: list[Callable[[], Tensor]] = [lambda: x @ w, lambda: g @ w.t(), lambda: x.t() @ g]
    flops = 2 * ROWS * WIDTH * WIDTH
    ordinary = statistics.median(flops / timed(product, budget_s) for product in products)
    narrow = torch.randn(WIDTH, 16)
    touched = 4 * (ROWS * WIDTH + WIDTH * 16 + ROWS * 16)
    return {
        "gemm.peak": max(peak, ordinary),
        "gemm.efficiency": ordinary / max(peak, ordinary),
        "gemm.bandwidth": touched / timed(lambda: x @ narrow, budget_s),
    }


def _streams(budget_s: float) -> dict[str, float]:
    x, y = torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)
    one = x.numel() * 4
    rows = torch.randint(ROWS, (ROWS,))
    halves = x[: ROWS // 2], y[: ROWS // 2]
    nodes = torch.arange(ROWS)
    probes: dict[str, list[tuple[int, Callable[[], Tensor]]]] = {
        "elementwise": [(3 * one, lambda: x + y), (2 * one, lambda: torch.relu(x)), (2 * one, lambda: x * 0.5)],
        "gather": [(2 * one + 8 * ROWS, lambda: x.index_select(0, rows))],
        "reduction": [(one, lambda: x.sum(0)), (one, lambda: x.sum(1)), (2 * one, lambda: torch.log_softmax(x, 1))],
        "copy": [(2 * one, lambda: x.clone()), (2 * one, lambda: torch.cat(halves))],
        "dropout": [(2 * one, lambda: keyed_dropout(x, nodes, 0.5, 7))],
    }
    return {
        f"bandwidth.{kind}": statistics.median(nbytes / timed(call, budget_s) for nbytes, call in calls)
        for kind, calls in probes.items()
    }


def _fresh(budget_s: float) -> dict[str, float]:
    """Bytes/s at which the system hands out memory for tensors that the allocator does not keep (above 32 MiB)."""
    elements = 16 << 20
    kept = torch.empty(elements)
    again = timed(lambda: kept.fill_(1.0), budget_s)
    anew = timed(lambda: torch.empty(elements).fill_(1.0), budget_s)
    return {"fresh.bandwidth": 4 * elements / max(anew - again, 1e-6), "fresh.above": 32 * 2**20}


def _codec(budget_s: float) -> dict[str, float]:
    """Bytes/s of uncoded rows, mean time of coding and decoding."""
    x = torch.randn(ROWS // 4, WIDTH)
    found = {}
    for bits in BITS:
        codec = StochasticRows(bits)
        payload = codec.encode(x, 7)
        seconds = timed(lambda c=codec: c.encode(x, 7), budget_s)  # type: ignore[misc]
        seconds += timed(lambda c=codec, p=payload: c.decode(p, WIDTH, torch.float32), budget_s)  # type: ignore[misc]
        found[f"codec.{bits}"] = 2 * x.numel() * 4 / seconds
    return found


def _spmm(budget_s: float, launch: float, bandwidth: float) -> dict[str, float]:
    """Seconds per stored entry and column, mean over a sparse and a dense graph and over A x and its gradient."""
    blocks = [_random_block(ROWS, degree) for degree in (10, 40)]
    found = {}
    for width in WIDTHS:
        costs = []
        for block in blocks:
            x = torch.randn(ROWS, width, requires_grad=True)
            g = torch.randn(ROWS, width)

            def both(block: Block = block, x: Tensor = x, g: Tensor = g) -> None:
                torch.autograd.grad(aggregate(block, x), x, g)

            written = 2 * ROWS * width * 4
            seconds = timed(both, budget_s) - 2 * launch - written / bandwidth
            costs.append(seconds / (2 * block.nnz * width))
        found[f"spmm.{width}"] = max(statistics.fmean(costs), 1e-13)
    return found


def _random_block(num_nodes: int, degree: int) -> Block:
    """A square block whose nodes have `degree` neighbours each, half of them in the node's community."""
    random = np.random.default_rng(degree)
    anywhere = random.integers(0, num_nodes, (num_nodes, degree - degree // 2))
    start = np.arange(num_nodes) // COMMUNITY * COMMUNITY
    near = start[:, None] + random.integers(0, COMMUNITY, (num_nodes, degree // 2))
    columns = np.sort(np.concatenate([anywhere, near % num_nodes], axis=1), axis=1).astype(np.int32)
    indptr = np.arange(0, num_nodes * degree + 1, degree, dtype=np.int32)
    return Block.from_csr(indptr, columns.reshape(-1), num_nodes)


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operators as a cluster model does."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += any(r.alias_info is None or r.alias_info.is_write for r in func._schema.returns)  # not a view
        return func(*args, **(kwargs or {}))


def _launch() -> float:
    """Seconds per operator of a training step on tensors so small that nothing else counts: Python, autograd, Adam."""
    block, x = _random_block(COMMUNITY, 2), torch.randn(COMMUNITY, 4)
    layers = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    optimizer = torch.optim.Adam([p for layer in layers for p in layer.parameters()])

    def step() -> None:
        optimizer.zero_grad()
        h = torch.relu(layers[0](aggregate(block, x)))
        torch.log_softmax(layers[1](aggregate(block, h)), 1).sum().backward()
        optimizer.step()

    step()
    with _Counter() as counter:
        step()
    return timed(step, 0.2) / int(counter.calls)
