"""The choice between codes and predictions on GPUs is that of the CPU: bit for bit, but for sums of errors."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from harness.kernels.trend import PREDICTED
from tests.support.kernel_devices import INTERPRETED, KernelDevice


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
def test_chosen_elements_are_those_of_the_cpu(where: KernelDevice, bits: int) -> None:
    generator, ops = torch.Generator().manual_seed(bits), torch.ops.haloscope
    rows = 50 if INTERPRETED else 500
    x, base, rate = torch.randn(3, rows, 40, generator=generator)
    side, starts = torch.stack(torch.aminmax(x))[None], torch.tensor([0, rows])
    found = []
    for device, kernels in (("cpu", nullcontext()), (where.type, where.kernels())):
        given = [t.to(device) for t in (x, x + base / 4, rate)]
        end = (0.1, side.to(device), starts.to(device), bits)
        with kernels:
            codes, flags = ops.trend_choose(*given, *end)
            length = ((flags != PREDICTED).sum(1) * bits + 7) // 8
            packed = codes[torch.arange(codes.shape[1], device=device) < length[:, None]]
            rows_again = ops.trend_restore(packed, flags, length.cumsum(0) - length, *given[1:], *end)
            found.append((codes, flags, packed, rows_again, ops.trend_score(*given, *end)[0]))
    assert all(torch.equal(a, b.cpu()) for a, b in zip(*found, strict=True))
