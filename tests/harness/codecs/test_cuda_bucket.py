"""The bucket codec on a GPU gives the codes and the rows of the CPU bit for bit."""

from __future__ import annotations

import pytest
import torch

from harness.codecs import Bucket
from harness.kernels.trend import PREDICTED

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("scope", ["matrix", "row"])
@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (1, 1), (70, 33), (3, 9001), (4000, 256)])
def test_codes_are_those_of_the_cpu(bits: int, scope: str, shape: tuple[int, int]) -> None:
    codec, x = Bucket(bits, scope), torch.randn(shape, generator=torch.Generator().manual_seed(bits))
    found = []
    for rows in (x, x.cuda()):
        side = codec.measure(rows, rows)
        codes, error = codec.encode(rows, side, keep_error=True)
        starts = codec.starts(side, torch.tensor([shape[0]]).numpy())
        found.append((side, codes, error, codec.decode(codes, side, starts, shape[1])))
    assert all(torch.equal(a, b.cpu()) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("size", [3e38, 1e-3, 1e-36, 1e-44])
def test_ranges_of_any_size_have_the_buckets_of_the_cpu(bits: int, size: float) -> None:
    """Groups that cross zero, that do not, and constant ones; those whose sums or inverses would overflow."""
    x = torch.rand(60, 21, generator=torch.Generator().manual_seed(bits)) - 0.5
    x[20:40].abs_()
    x[40:50] = 0.25
    x *= size
    starts = torch.tensor([0, 20, 20, 40, 50, 60])
    pieces = [x[a:b] for a, b in zip(starts, starts[1:], strict=False)]
    side = torch.stack([torch.stack(torch.aminmax(p)) if len(p) else torch.zeros(2) for p in pieces])
    expected = torch.ops.haloscope.bucket_encode(x, side, starts, bits, True)
    found = torch.ops.haloscope.bucket_encode(x.cuda(), side.cuda(), starts.cuda(), bits, True)
    assert all(torch.equal(a, b.cpu()) for a, b in zip(expected, found, strict=True))
    back = torch.ops.haloscope.bucket_decode(found[0], side.cuda(), starts.cuda(), bits, 21)
    assert torch.equal(back.cpu(), torch.ops.haloscope.bucket_decode(expected[0], side, starts, bits, 21))


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
def test_chosen_elements_are_those_of_the_cpu(bits: int) -> None:
    generator, ops = torch.Generator().manual_seed(bits), torch.ops.haloscope
    x, base, rate = torch.randn(3, 500, 40, generator=generator)
    side, starts = torch.stack(torch.aminmax(x))[None], torch.tensor([0, 500])
    found = []
    for device in ("cpu", "cuda"):
        given = [t.to(device) for t in (x, x + base / 4, rate)]
        end = (0.1, side.to(device), starts.to(device), bits)
        codes, flags = ops.trend_choose(*given, *end)
        length = ((flags != PREDICTED).sum(1) * bits + 7) // 8
        packed = codes[torch.arange(codes.shape[1], device=device) < length[:, None]]
        rows = ops.trend_restore(packed, flags, length.cumsum(0) - length, *given[1:], *end)
        found.append((codes, flags, packed, rows, ops.trend_score(*given, *end)[0]))
    assert all(torch.equal(a, b.cpu()) for a, b in zip(*found, strict=True))
