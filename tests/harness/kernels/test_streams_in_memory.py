"""GPU kernels that find their random stream in memory, as those of CUDA graphs do: the bits are the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from harness.kernels import _mixed_cuda as mixed_cuda
from harness.kernels import _quantize_cuda as quantize_cuda
from harness.kernels.dropout import keyed_dropout
from harness.kernels.mixed import quantize_mixed
from harness.kernels.norm_relu_dropout import norm_relu_dropout
from harness.kernels.quantize import quantize_rows
from harness.kernels.random import stream_word, streams_in_memory
from harness.kernels.relu_dropout import relu_dropout
from tests.support.kernel_devices import AVAILABLE, KernelDevice, small_tiles

KEYS = 3, 2**63 - 5
"""Their streams are words of either sign."""


@pytest.fixture(params=AVAILABLE)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> KernelDevice:
    small_tiles(monkeypatch, quantize_cuda, mixed_cuda)
    return KernelDevice(request.param)


def _uses(there: Callable[[Tensor], Tensor]) -> dict[str, Callable[[int], object]]:
    """Every operator that is given a key, on a few rows."""
    generator = torch.Generator().manual_seed(0)
    x, nodes = there(torch.randn(9, 12, generator=generator)), there(torch.arange(9) * 7 + 1)
    bits = torch.tensor([2, 4, 8] * 3, dtype=torch.uint8)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), (bits.long() * 12 // 8).cumsum(0)])
    mixed, norm = (there(bits), there(offsets)), nn.LayerNorm(12).to(x.device)
    return {
        "dropout of bfloat16": lambda key: keyed_dropout(x.bfloat16(), nodes, 0.5, key),
        "dropout": lambda key: keyed_dropout(x, nodes, 0.5, key),
        "relu and dropout": lambda key: relu_dropout(x, nodes, 0.5, key),
        "norm, relu and dropout": lambda key: norm_relu_dropout(x, None, norm, nodes, 0.5, key),
        "codes": lambda key: quantize_rows(x, 2, key, False),
        "mixed codes": lambda key: quantize_mixed(x, *mixed, key, int(offsets[-1])),
    }


@pytest.mark.parametrize("name", _uses(lambda tensor: tensor))
def test_same_bits_from_memory(device: KernelDevice, name: str) -> None:
    use, results = _uses(device.there)[name], []
    with device.kernels():
        for key in KEYS:
            given = tree_leaves(use(key))
            with streams_in_memory(lambda k: device.there(torch.tensor([stream_word(k)]))):
                found = tree_leaves(use(key))
            assert all(torch.equal(a, b) for a, b in zip(given, found, strict=True))
            results.append(torch.cat([part.detach().reshape(-1).float() for part in given]))
    assert not torch.equal(*results), "the key changes nothing, so the comparison cannot fail"


def test_what_memory_holds_when_a_kernel_runs_decides(device: KernelDevice) -> None:
    place = device.there(torch.zeros(1, dtype=torch.int64))
    use = _uses(device.there)["dropout"]
    with device.kernels(), streams_in_memory(lambda _: place):
        place.fill_(stream_word(KEYS[1]))
        found = use(KEYS[0])
    with device.kernels():
        assert torch.equal(found, use(KEYS[1]))  # type: ignore[arg-type]
