"""The bucket codec of GPUs gives the codes and the rows of the CPU bit for bit."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from harness.codecs import Bucket
from harness.kernels import _bucket_cuda as bucket_cuda
from tests.support.kernel_devices import INTERPRETED, KernelDevice, small_tiles

SHAPES = [(1, 1), (5, 33), (2, 150)] if INTERPRETED else [(1, 1), (70, 33), (9, 1100), (3, 9001), (4000, 256)]
"""Of rows that make up less than a tile, several, and parts of one."""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_tiles(monkeypatch, bucket_cuda)


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("scope", ["matrix", "row"])
@pytest.mark.parametrize("shape", [(0, 5), (3, 0), *SHAPES])
def test_codes_are_those_of_the_cpu(where: KernelDevice, bits: int, scope: str, shape: tuple[int, int]) -> None:
    codec, x = Bucket(bits, scope), torch.randn(shape, generator=torch.Generator().manual_seed(bits))
    found = []
    for rows, kernels in ((x, nullcontext()), (where.there(x), where.kernels())):
        with kernels:
            side = codec.measure(rows, rows)
            codes, error = codec.encode(rows, side, keep_error=True)
            starts = codec.starts(side, torch.tensor([shape[0]]).numpy())
            found.append((side, codes, error, codec.decode(codes, side, starts, shape[1])))
    assert all(torch.equal(a, b.cpu()) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("size", [3e38, 1e-3, 1e-36, 1e-44])
def test_ranges_of_any_size_have_the_buckets_of_the_cpu(where: KernelDevice, bits: int, size: float) -> None:
    """Groups that cross zero, that do not, and constant ones; those whose sums or inverses would overflow."""
    x = torch.rand(24, 13, generator=torch.Generator().manual_seed(bits)) - 0.5
    x[8:16].abs_()
    x[16:20] = 0.25
    x *= size
    starts = torch.tensor([0, 8, 8, 16, 20, 24])
    pieces = [x[a:b] for a, b in zip(starts, starts[1:], strict=False)]
    side = torch.stack([torch.stack(torch.aminmax(p)) if len(p) else torch.zeros(2) for p in pieces])
    expected = torch.ops.haloscope.bucket_encode(x, side, starts, bits, True)
    given = (where.there(side), where.there(starts), bits)
    with where.kernels():
        found = torch.ops.haloscope.bucket_encode(where.there(x), *given, True)
        back = torch.ops.haloscope.bucket_decode(found[0], *given, 13)
    assert all(torch.equal(a, b.cpu()) for a, b in zip(expected, found, strict=True))
    assert torch.equal(back.cpu(), torch.ops.haloscope.bucket_decode(expected[0], side, starts, bits, 13))
