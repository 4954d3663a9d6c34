"""Times the operator classes of the cluster model on this machine, with the operators that training runs.

Every probe returns plain numbers in base units (s, B/s, flop/s), under the keys of a device file. Bytes are counted as
the model counts them: what an operator reads and writes once. Links are not measured here. On a GPU an operator's time
is the device's, between two events; the host's time for its launch is a number of its own.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from harness.codecs import ROW_BITS, StochasticRows
from harness.graphs import Block
from harness.kernels.dropout import keyed_dropout
from harness.machine import large_blocks
from harness.nn import aggregate

WIDTH = 256
"""Columns of the dense operand."""

WIDTHS = (16, 64, 256)
"""Columns at which neighbour sums are timed."""

AHEAD = 64 << 20
"""Elements, fp32, that a GPU copies four times while its host launches what is timed: about a millisecond."""

COMMUNITY = 512
"""Size of a community of consecutive nodes; half of all edges are inside, as in a part renumbered by clusters."""


@dataclass(frozen=True)
class Bench:
    """The device on which operators are timed, and about how long each of them.

    Attributes:
        rows: of the dense operand, whose memory is larger than the caches (a CPU's: small enough to be reused).
        square: rows and columns of the product that runs at the highest rate.
    """

    device: torch.device
    budget_s: float
    rows: int
    square: int

    def randn(self, *shape: int) -> Tensor:
        """Normal float32 values on the device."""
        return torch.randn(shape, device=self.device)

    def seconds(self, call: Callable[[], object]) -> float:
        """How long a call keeps the device busy."""
        return timed(call, self.budget_s) if self.device.type == "cpu" else timed_on_gpu(call, self.budget_s)


def bench(device: str, budget_s: float) -> Bench:
    """Sizes that suit a device: 16 MiB on a CPU, 256 MiB on a GPU, where launches take longer than small operators."""
    cpu = device == "cpu"
    return Bench(torch.device(device), budget_s, 16384 if cpu else 262_144, 384 if cpu else 8192)


def measure_device(budget_s: float, device: str = "cpu") -> dict[str, float]:
    """Every number of a device file, by its key there; `budget_s` is about how long one operator is timed."""
    torch.manual_seed(0)
    on = bench(device, budget_s)
    numbers = {"launch": _launch(on.device)} | _gemm(on) | _streams(on) | _codec(on) | _half(on)
    if device == "cpu":
        return numbers | _fresh(budget_s) | _spmm(on, numbers["launch"], numbers["bandwidth.elementwise"])
    return numbers | _spmm(on, 0.0, numbers["bandwidth.elementwise"])


def jitter(budget_s: float) -> float:
    """Standard deviation of the logarithm of the time that equal stretches of compute take, about 20 ms each.

    A cluster model draws delays of ranks from it (`[stragglers]`), since all other ranks wait for a late one.
    """
    x, w = torch.randn(4096, WIDTH), torch.randn(WIDTH, WIDTH)

    def stretch(repeats: int) -> float:
        begin = time.perf_counter()
        for _ in range(repeats):
            torch.relu(x @ w).add_(1.0).sum()
        return time.perf_counter() - begin

    stretch(3)
    repeats = max(1, round(0.02 / max(stretch(4) / 4, 1e-6)))
    return scatter_of([stretch(repeats) for _ in range(max(12, round(budget_s / 0.02)))])


def scatter_of(seconds: Sequence[float]) -> float:
    """Standard deviation of the logarithm of times that follow each other, without what the machine's pace changes by.

    From differences of neighbours: a machine that becomes slower for seconds delays all of its ranks alike, and none
    waits for another. From their interquartile range, so that a single interruption has no influence.
    """
    low, high = np.quantile(np.diff(np.log(seconds)), (0.25, 0.75))
    deviation = (high - low) / 1.349  # interquartile range of a normal distribution in standard deviations
    return float(deviation / math.sqrt(2))  # a difference has twice the variance


def timed(call: Callable[[], object], budget_s: float) -> float:
    """Seconds of a call: the lower quartile of at least four calls in about `budget_s`, after a warm-up call.

    Not the median, because other work on the machine only makes a call slower.
    """
    call()
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < 4 or time.perf_counter() - begin < budget_s:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.quantile(times, 0.25))


def timed_on_gpu(call: Callable[[], object], budget_s: float) -> float:
    """Seconds that a call keeps the current GPU busy: the lower quartile, as `timed`, between two events.

    The GPU copies something first, so that the host is ahead with its launches, as in training.
    """
    timed(call, 0.0)  # compiles, and fills the allocator
    ahead = torch.empty(2, AHEAD, device="cuda")
    pairs: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
    begin = time.perf_counter()
    while len(pairs) < 8 or time.perf_counter() - begin < budget_s:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(4):
            ahead[0].copy_(ahead[1])
        start.record()
        call()
        end.record()
        pairs.append((start, end))
        if len(pairs) % 8 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    return float(np.quantile([start.elapsed_time(end) * 1e-3 for start, end in pairs], 0.25))


def _gemm(on: Bench) -> dict[str, float]:
    """Largest rate, the share of it that a linear layer's three products reach, and bytes/s of a narrow product."""
    square, rows = on.randn(on.square, on.square), on.rows
    peak = 2 * on.square**3 / on.seconds(lambda: square @ square)
    x, w, g = on.randn(rows, WIDTH), on.randn(WIDTH, WIDTH), on.randn(rows, WIDTH)
    products: list[Callable[[], Tensor]] = [lambda: x @ w, lambda: g @ w.t(), lambda: x.t() @ g]
    flops = 2 * rows * WIDTH * WIDTH
    ordinary = statistics.median(flops / on.seconds(product) for product in products)
    narrow = on.randn(WIDTH, 16)
    touched = 4 * (rows * WIDTH + WIDTH * 16 + rows * 16)
    return {
        "gemm.peak": max(peak, ordinary),
        "gemm.efficiency": ordinary / max(peak, ordinary),
        "gemm.bandwidth": touched / on.seconds(lambda: x @ narrow),
    }


def _streams(on: Bench) -> dict[str, float]:
    x, y = on.randn(on.rows, WIDTH), on.randn(on.rows, WIDTH)
    one = x.numel() * 4
    rows = torch.randint(on.rows, (on.rows,), device=on.device)
    halves = x[: on.rows // 2], y[: on.rows // 2]
    nodes = torch.arange(on.rows, device=on.device)
    probes: dict[str, list[tuple[int, Callable[[], Tensor]]]] = {
        "elementwise": [(3 * one, lambda: x + y), (2 * one, lambda: torch.relu(x)), (2 * one, lambda: x * 0.5)],
        "gather": [(2 * one + 8 * on.rows, lambda: x.index_select(0, rows))],
        "reduction": [(one, lambda: x.sum(0)), (one, lambda: x.sum(1)), (2 * one, lambda: torch.log_softmax(x, 1))],
        "copy": [(2 * one, lambda: x.clone()), (2 * one, lambda: torch.cat(halves))],
        "dropout": [(2 * one, lambda: keyed_dropout(x, nodes, 0.5, 7))],
    }
    return {
        f"bandwidth.{kind}": statistics.median(nbytes / on.seconds(call) for nbytes, call in calls)
        for kind, calls in probes.items()
    }


def _fresh(budget_s: float) -> dict[str, float]:
    """Bytes/s at which the system provides memory for tensors that the C library does not keep (above 32 MiB).

    Nothing where ranks keep such memory.
    """
    if large_blocks() is not None:
        return {}
    elements = 16 << 20
    kept = torch.empty(elements)
    again = timed(lambda: kept.fill_(1.0), budget_s)
    anew = timed(lambda: torch.empty(elements).fill_(1.0), budget_s)
    return {"fresh.bandwidth": 4 * elements / max(anew - again, 1e-6), "fresh.above": 32 * 2**20}


def _codec(on: Bench) -> dict[str, float]:
    """Bytes/s of uncompressed rows, over the mean time of encoding and decoding."""
    x = on.randn(on.rows // 4 if on.device.type == "cpu" else on.rows, WIDTH)
    rates = {}
    for bits in ROW_BITS:
        codec = StochasticRows(bits)
        payload = codec.encode(x, 7)
        seconds = on.seconds(lambda c=codec: c.encode(x, 7))  # type: ignore[misc]
        seconds += on.seconds(lambda c=codec, p=payload: c.decode(p, WIDTH, torch.float32))  # type: ignore[misc]
        rates[f"codec.{bits}"] = 2 * x.numel() * 4 / seconds
    return rates


def _spmm(on: Bench, launch: float, bandwidth: float) -> dict[str, float]:
    """Seconds per stored entry and column, mean over a sparse and a dense graph and over A x and its gradient."""
    blocks = [_random_block(on.rows, degree).to(on.device) for degree in (10, 40)]
    costs_by_width = {}
    for width in WIDTHS:
        costs = []
        for block in blocks:
            x, g = on.randn(on.rows, width).requires_grad_(), on.randn(on.rows, width)

            def both(block: Block = block, x: Tensor = x, g: Tensor = g) -> None:
                torch.autograd.grad(aggregate(block, x), x, g)

            written = 2 * on.rows * width * 4
            seconds = on.seconds(both) - 2 * launch - written / bandwidth
            costs.append(seconds / (2 * block.nnz * width))
        costs_by_width[f"spmm.{width}"] = max(statistics.fmean(costs), 1e-13)
    return costs_by_width


def _half(on: Bench) -> dict[str, float]:
    """How fast products and neighbour sums are in bfloat16, as a multiple of fp32's speed.

    A CPU without instructions for it takes many times as long, so that its products are of few rows; a GPU's are those
    of the highest rate, which bytes do not bound. Nothing of a GPU without units for it.
    """
    cpu = on.device.type == "cpu"
    if not cpu and not torch.cuda.is_bf16_supported(including_emulation=False):
        return {}
    count = on.rows // 4 if cpu else on.rows
    block = _random_block(count, 40).to(on.device)
    rows = on.randn(count, WIDTH)
    left, right = (on.randn(count // 4, WIDTH), on.randn(WIDTH, WIDTH)) if cpu else [on.randn(on.square, on.square)] * 2

    def taken(x: Tensor, a: Tensor, b: Tensor) -> tuple[float, float]:
        return on.seconds(lambda: a @ b), on.seconds(lambda: aggregate(block, x))

    whole, half = taken(rows, left, right), taken(*(each.bfloat16() for each in (rows, left, right)))
    return {"bf16.gemm": whole[0] / half[0], "bf16.spmm": whole[1] / half[1]}


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
    """Counts operators as a cluster model does: no views, no values read out, no marks of torch's profiler."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [r for r in func._schema.returns if "Tensor" in str(r.type)]
        self.calls += any(r.alias_info is None or r.alias_info.is_write for r in tensors)  # not a view
        return func(*args, **(kwargs or {}))


def _launch(device: torch.device) -> float:
    """Host seconds per operator of a training step on tiny tensors, which only Python, autograd and Adam determine.

    A GPU computes concurrently with its host, and ends at about the same time.
    """
    block, x = _random_block(COMMUNITY, 2).to(device), torch.randn(COMMUNITY, 4, device=device)
    layers = torch.nn.Linear(4, 4, device=device), torch.nn.Linear(4, 4, device=device)
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
