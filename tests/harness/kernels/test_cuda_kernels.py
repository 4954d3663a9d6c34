"""The kernels on a GPU give the integers of the CPU: codes and masks bit for bit, sums to rounding."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from harness.codecs import LinearRows, MixedRows, StochasticRows
from harness.graphs import Block
from harness.kernels._quantize_torch import quantize_linear_torch, quantize_torch
from harness.kernels.dropout import keyed_dropout
from harness.nn import aggregate, aggregate_weighted

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("side", ["fp32", "fp16"])
@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (1, 1), (70, 33), (9, 1100), (3, 9001), (4000, 256)])
def test_codes_are_those_of_the_cpu(bits: int, side: str, shape: tuple[int, int]) -> None:
    codec = StochasticRows(bits, side)
    generator = torch.Generator().manual_seed(bits)
    x = torch.randn(shape, generator=generator) * 10.0 ** torch.randint(-44, 4, (shape[0], 1), generator=generator)
    for key in (0, 1, -(2**63), 2**63 - 1):
        expected = codec.encode(x, key)
        found = codec.encode(x.cuda(), key)
        assert all(torch.equal(a, b.cpu()) for a, b in zip(expected, found, strict=True))
        decoded = codec.decode(found, shape[1], torch.float32)
        assert torch.equal(decoded.cpu(), codec.decode(expected, shape[1], torch.float32))


def test_nan_is_refused_with_its_row() -> None:
    x = torch.ones(9, 4, device="cuda")
    x[3, 2] = math.nan
    with pytest.raises(ValueError, match="^row 3 holds nan or inf$"):
        StochasticRows(1).encode(x, 0)


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (70, 33), (3, 9001), (4000, 256)])
def test_nearest_codes_are_those_of_the_cpu(bits: int, shape: tuple[int, int]) -> None:
    codec, generator = LinearRows(bits), torch.Generator().manual_seed(bits)
    x = torch.randn(shape, generator=generator) * 10.0 ** torch.randint(-44, 4, (shape[0], 1), generator=generator)
    expected, found = codec.encode(x, 0), codec.encode(x.cuda(), 0)
    assert all(torch.equal(a, b.cpu()) for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize("bits", [2, 8])
def test_torch_operators_on_a_gpu_give_the_same_codes(bits: int) -> None:
    x = torch.randn(300, 37, generator=torch.Generator().manual_seed(1)).cuda()
    for ours, theirs in (
        (StochasticRows(bits, "fp16").encode(x, 5), quantize_torch(x, bits, 5, True)),
        (LinearRows(bits).encode(x, 0), quantize_linear_torch(x, bits)),
    ):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_codes_of_rows_with_different_bits_are_those_of_the_cpu() -> None:
    bits = torch.tensor([2, 4, 8], dtype=torch.uint8).repeat(100)
    x = torch.randn(300, 37, generator=torch.Generator().manual_seed(1))
    ours, theirs = (MixedRows.of(bits.to(device), 37, np.asarray([300])) for device in ("cpu", "cuda"))
    expected, found = ours.encode(x, 5), theirs.encode(x.cuda(), 5)
    assert all(torch.equal(a, b.cpu()) for a, b in zip(expected, found, strict=True))
    decoded = theirs.decode(*found, torch.float32)
    assert torch.equal(decoded.cpu(), ours.decode(*expected, torch.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dropout_masks_are_those_of_the_cpu(dtype: torch.dtype) -> None:
    x, nodes = torch.ones(300, 70, dtype=dtype), torch.arange(300) * 10**12
    assert torch.equal(keyed_dropout(x.cuda(), nodes.cuda(), 0.3, -4).cpu(), keyed_dropout(x, nodes, 0.3, -4))


def test_sums_and_their_gradients_are_those_of_the_cpu() -> None:
    rng = np.random.default_rng(0)
    rows, columns = np.nonzero(rng.random((60, 50)) < 0.2)
    indptr = np.searchsorted(rows, np.arange(61)).astype(np.int32)
    block = Block.from_csr(indptr, columns.astype(np.int32), 50).with_edge_map()
    x, weights = torch.rand(50, 2, 8, dtype=torch.float64), torch.rand(block.nnz, 2, dtype=torch.float64)
    results = []
    for device in ("cpu", "cuda"):
        there, w, h = block.to(device), weights.to(device).requires_grad_(), x.to(device).requires_grad_()
        out = aggregate_weighted(there, w, h).sum(1) + aggregate(there, h[:, 0])
        results.append([t.cpu() for t in (out, *torch.autograd.grad(out.square().sum(), (w, h)))])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected)
