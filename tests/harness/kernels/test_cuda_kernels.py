"""The kernels of GPUs give the integers of the CPU: codes and masks bit for bit, sums to rounding."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import Tensor

from harness.codecs import LinearRows, MixedRows, StochasticRows
from harness.graphs import Block
from harness.kernels import _dropout_cuda as dropout_cuda
from harness.kernels import _quantize_cuda as quantize_cuda
from harness.kernels import dropout
from harness.kernels._quantize_torch import quantize_linear_torch, quantize_torch
from harness.kernels.dropout import keyed_dropout
from harness.kernels.relu_dropout import relu_dropout
from harness.nn import aggregate, aggregate_weighted
from tests.conftest import REPOSITORY
from tests.support.kernel_devices import INTERPRETED, VARIABLE, KernelDevice, small_tiles

SHAPES = [(1, 1), (5, 33), (2, 150)] if INTERPRETED else [(1, 1), (70, 33), (9, 1100), (3, 9001), (4000, 256)]
"""Of rows that make up less than a tile, several, and parts of one."""

BITS = pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_tiles(monkeypatch, dropout_cuda, quantize_cuda)


@BITS
@pytest.mark.parametrize("side", ["fp32", "fp16"])
@pytest.mark.parametrize("shape", [(0, 5), (3, 0), *SHAPES])
def test_codes_are_those_of_the_cpu(where: KernelDevice, bits: int, side: str, shape: tuple[int, int]) -> None:
    codec = StochasticRows(bits, side)
    generator = torch.Generator().manual_seed(bits)
    x = torch.randn(shape, generator=generator) * 10.0 ** torch.randint(-44, 4, (shape[0], 1), generator=generator)
    for key in (1, -(2**63)) if INTERPRETED else (0, 1, -(2**63), 2**63 - 1):
        expected = codec.encode(x, key)
        with where.kernels():
            found = codec.encode(where.there(x), key)
            decoded = codec.decode(found, shape[1], torch.float32)
        assert all(torch.equal(a, b.cpu()) for a, b in zip(expected, found, strict=True))
        assert torch.equal(decoded.cpu(), codec.decode(expected, shape[1], torch.float32))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused_with_its_row(where: KernelDevice, value: float) -> None:
    x = where.there(torch.ones(9, 4))
    x[3, 2] = x[7, 0] = value
    with where.kernels():
        for codec in (StochasticRows(1), LinearRows(2)):
            with pytest.raises(ValueError, match="^row 3 holds nan or inf$"):
                codec.encode(x, 0)
        codes, _ = StochasticRows(1).encode(x[:3], 0)  # the error is not met again
    assert codes.shape == (3, 1)


@BITS
@pytest.mark.parametrize("shape", [(0, 5), (3, 0), *SHAPES])
def test_nearest_codes_are_those_of_the_cpu(where: KernelDevice, bits: int, shape: tuple[int, int]) -> None:
    codec, generator = LinearRows(bits), torch.Generator().manual_seed(bits)
    x = torch.randn(shape, generator=generator) * 10.0 ** torch.randint(-44, 4, (shape[0], 1), generator=generator)
    expected = codec.encode(x, 0)
    with where.kernels():
        found = codec.encode(where.there(x), 0)
    assert all(torch.equal(a, b.cpu()) for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize("bits", [2, 8])
def test_torch_operators_there_give_the_same_codes(where: KernelDevice, bits: int) -> None:
    x = where.there(torch.randn(15, 37, generator=torch.Generator().manual_seed(1)))
    with where.kernels():
        ours = (StochasticRows(bits, "fp16").encode(x, 5), LinearRows(bits).encode(x, 0))
    for mine, theirs in zip(ours, (quantize_torch(x, bits, 5, True), quantize_linear_torch(x, bits)), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_codes_of_rows_with_different_bits_are_those_of_the_cpu(where: KernelDevice) -> None:
    bits = torch.tensor([2, 4, 8], dtype=torch.uint8).repeat(5)
    x = torch.randn(15, 37, generator=torch.Generator().manual_seed(1))
    ours, theirs = (MixedRows.of(bits.to(device), 37, np.asarray([15])) for device in ("cpu", where.type))
    expected = ours.encode(x, 5)
    with where.kernels():
        found = theirs.encode(where.there(x), 5)
        decoded = theirs.decode(*found, torch.float32)
    assert all(torch.equal(a, b.cpu()) for a, b in zip(expected, found, strict=True))
    assert torch.equal(decoded.cpu(), ours.decode(*expected, torch.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [0.3, 1.0])
def test_dropout_masks_are_those_of_the_cpu(where: KernelDevice, p: float, dtype: torch.dtype) -> None:
    x, nodes = torch.ones(60, 70, dtype=dtype), torch.arange(60) * 10**12
    with where.kernels():
        found = keyed_dropout(where.there(x), where.there(nodes), p, -4)
    assert torch.equal(found.cpu(), keyed_dropout(x, nodes, p, -4))


@pytest.mark.parametrize("apply", [keyed_dropout, relu_dropout])
def test_bfloat16_is_dropped_by_the_kernel_and_rounded_once(
    where: KernelDevice, apply: Callable[[Tensor, Tensor, float, int], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's operators would draw with 64-bit integers, in many passes."""
    monkeypatch.setattr(dropout, "dropout_rows_torch", None)
    x = torch.randn(60, 70, generator=torch.Generator().manual_seed(1)).bfloat16()
    x[0, :4] = torch.tensor([math.nan, math.inf, -math.inf, -0.0])
    nodes = torch.arange(60) * 10**12
    with where.kernels():
        found = apply(where.there(x), where.there(nodes), 0.3, -4).cpu()
    expected = apply(x, nodes, 0.3, -4)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found == 0, expected == 0)
    rtol = 2**-7 if INTERPRETED else 0.0  # Triton's interpreter cuts bits off where GPUs round
    torch.testing.assert_close(found, expected, rtol=rtol, atol=0, equal_nan=True)


def test_sums_and_their_gradients_are_those_of_the_cpu(where: KernelDevice) -> None:
    rng = np.random.default_rng(0)
    rows, columns = np.nonzero(rng.random((60, 50)) < 0.2)
    indptr = np.searchsorted(rows, np.arange(61)).astype(np.int32)
    block = Block.from_csr(indptr, columns.astype(np.int32), 50).with_edge_map()
    x, weights = torch.rand(50, 2, 8, dtype=torch.float64), torch.rand(block.nnz, 2, dtype=torch.float64)
    results = []
    for device, kernels in (("cpu", nullcontext()), (where.type, where.kernels())):
        there, w, h = block.to(device), weights.to(device).requires_grad_(), x.to(device).requires_grad_()
        with kernels:
            out = aggregate_weighted(there, w, h).sum(1) + aggregate(there, h[:, 0])
            gradients = torch.autograd.grad(out.square().sum(), (w, h))
        results.append([t.detach().cpu() for t in (out, *gradients)])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.skipif(INTERPRETED or not torch.cuda.is_available(), reason="needs a GPU: elsewhere these are such tests")
def test_interpreted_kernels_pass_where_there_is_a_gpu() -> None:
    """The same tests in a process that interprets."""
    files = ["tests/harness/kernels", "tests/harness/codecs/test_cuda_bucket.py", "-k", "interpreted"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        cwd=REPOSITORY, env={**os.environ, VARIABLE: "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_no_kernel_of_gpus_is_loaded_before_it_is_called() -> None:
    """Triton takes long to import, and decides at that time how kernels run."""
    run = (
        "['run', '--epochs', '1', '--dataset', 'synthetic:nodes=40', '--method', 'sylvie-s', '--parts', '2', '--quiet']"
    )
    command = f"import sys; from harness.cli import main; main({run}); "
    command += "print([name for name in sys.modules if name.startswith('triton') or name.endswith('triton_code')])"
    done = subprocess.run([sys.executable, "-c", command], cwd=REPOSITORY, capture_output=True, text=True)
    assert (done.stdout.splitlines()[-1:], done.returncode) == (["[]"], 0), done.stderr
