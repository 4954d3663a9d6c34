"""The deterministic codec and the cache's row test: exact levels, error of half a level, refusal of nan."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from harness.codecs import Codec, LinearRows
from harness.errors import InputError
from harness.kernels import threads
from harness.kernels._quantize_torch import quantize_linear_torch
from harness.kernels.changed import changed_rows, changed_rows_torch
from harness.kernels.work import BitsArgument, RowCodec, Streamed, declared_work
from tests.support.codecs import row_bytes

BITS = (1, 2, 4, 8, 16)
EVERY = pytest.mark.parametrize("codec", [LinearRows(bits) for bits in BITS], ids=str)


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch may use two threads during the test, and small tensors are worth both."""
    monkeypatch.setattr(threads, "BYTES_PER_THREAD", 64)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@st.composite
def rows(draw: st.DrawFn) -> Tensor:
    """Rows of one width, of very different sizes; some constant, some zero, some far from zero."""
    num_rows, width = draw(st.integers(0, 5)), draw(st.integers(0, 40))
    x = torch.rand(num_rows, width, generator=torch.Generator().manual_seed(draw(st.integers(0, 10_000)))) * 2 - 1
    for row in x:
        kind = draw(st.sampled_from(["plain", "constant", "zero", "shifted"]))
        if kind == "constant":
            row[:] = row[:1]
        elif kind == "zero":
            row[:] = 0.0
        elif kind == "shifted":
            row[:] = 1 + row / 4096
        row *= draw(st.sampled_from([1.0, 1e-3, 250.0, 1.6e38, 3.4e38, 1e-30, 1e-38, 1e-42]))
    return x


@EVERY
@given(x=rows())
def test_no_value_is_off_by_more_than_half_a_level(codec: LinearRows, x: Tensor) -> None:
    x = x.clamp(-1.65e38, 1.65e38)  # rows wider than float32 are clipped
    payload = codec.encode(x, 0)
    decoded = codec.decode(payload, x.shape[1], torch.float32)
    scale = payload[1][:, :1].double()
    rounding = 2.0**-23 * x.abs().amax(1, keepdim=True).double() if x.numel() else scale
    assert decoded.shape == x.shape and decoded.isfinite().all()
    assert ((decoded.double() - x.double()).abs() <= scale * (0.5 + 2.0**-6) + 2 * rounding + 2.0**-149).all()
    still = (x == x[:, :1]).all(1) if x.shape[1] else torch.ones(len(x), dtype=torch.bool)
    assert torch.equal(decoded[still], x[still]), "constant rows are exact"


@EVERY
@given(x=rows())
def test_torch_operators_give_the_same_codes(codec: LinearRows, x: Tensor) -> None:
    """CUDA's path, and the oracle for the packing."""
    ours, theirs = codec.encode(x, 0), quantize_linear_torch(x, codec.bits)
    assert torch.equal(ours[0], theirs[0]) and torch.equal(ours[1], theirs[1])


@EVERY
def test_levels_are_equation_22_with_2_to_the_b_minus_1(codec: LinearRows) -> None:
    top = 2**codec.bits - 1
    wanted = np.random.default_rng(codec.bits).permutation(np.resize(np.arange(min(top, 255) + 1), 300))
    wanted[:2] = 0, top
    off = np.random.default_rng(9).uniform(-0.4, 0.4, 300)
    off[:2] = 0.0
    x = torch.from_numpy(np.clip(wanted + off, 0, top) / top * 4 - 1).float()[None]
    decoded = codec.decode(codec.encode(x, 0), 300, torch.float64)
    levels = ((decoded[0].numpy() + 1) / 4 * top).round().astype(int)
    assert np.array_equal(levels, wanted)


@EVERY
def test_bytes_are_what_is_promised_and_any_rows_of_a_payload_are_a_payload(codec: LinearRows) -> None:
    checked: Codec = codec
    x = torch.randn(7, 13, generator=torch.Generator().manual_seed(2))
    payload = checked.encode(x, 0)
    assert [part.nbytes for part in payload] == [7 * each for each in row_bytes(checked, 13)]
    assert row_bytes(checked, 13) == [(13 * codec.bits + 7) // 8, 8]
    whole, chosen = checked.decode(payload, 13, x.dtype), torch.tensor([5, 0, 3])
    assert torch.equal(checked.decode(tuple(t[chosen] for t in payload), 13, x.dtype), whole[chosen])
    assert torch.equal(checked.encode(x, 1)[0], payload[0]), "no randomness"
    shapes = [tuple(t.shape) for t in checked.encode(x.to("meta"), 0)]
    assert shapes == [tuple(t.shape) for t in payload]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_refused_by_row(value: float) -> None:
    x = torch.ones(9, 6)
    x[4, 5] = x[7, 0] = value
    for encode in (LinearRows(4).encode, lambda rows, _: quantize_linear_torch(rows, 4)):
        with pytest.raises(ValueError, match="row 4 holds nan or inf"):
            encode(x, 0)
    for test in (changed_rows, changed_rows_torch):
        for dtype in (torch.float32, torch.float64):
            with pytest.raises(ValueError, match="row 4 holds nan or inf"):
                test(x.to(dtype), torch.ones(9, 6, dtype=dtype), 0.1)


def test_bits_must_pack_into_bytes() -> None:
    with pytest.raises(InputError, match="1, 2, 4, 8, 16 bits per value, not 3"):
        LinearRows(3)


def test_threads_change_nothing(two_threads: None) -> None:
    x = torch.randn(101, 33, generator=torch.Generator().manual_seed(3))
    cached = x + 0.1 * torch.randn(101, 33, generator=torch.Generator().manual_seed(4))
    for bits in BITS:
        assert torch.equal(LinearRows(bits).encode(x, 0)[0], quantize_linear_torch(x, bits)[0])
    assert torch.equal(changed_rows(x, cached, 0.1), changed_rows_torch(x, cached, 0.1))
    x[100, 1] = x[3, 1] = float("nan")
    with pytest.raises(ValueError, match="row 3 holds"):
        LinearRows().encode(x, 0)


@given(x=rows(), threshold=st.sampled_from([0.0, 0.01, 0.3, 1.0]), double=st.booleans())
def test_changed_rows_are_those_of_algorithm_2(x: Tensor, threshold: float, double: bool) -> None:
    dtype = torch.float64 if double else torch.float32
    x = x.clamp(-1e37, 1e37).to(dtype)
    noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(5), dtype=dtype) * 2 - 1
    cached = torch.where(torch.arange(len(x))[:, None] % 2 == 0, x, x + 2 * threshold * noise * x)
    found = changed_rows(x, cached, threshold)
    naive = [
        max((abs(float(a) - float(b)) for a, b in zip(row, before, strict=True)), default=0.0)
        > threshold * max((abs(float(b)) for b in before), default=0.0)
        for row, before in zip(x, cached, strict=True)
    ]
    assert torch.equal(found, changed_rows_torch(x, cached, threshold))
    if double:
        assert found.tolist() == naive
    assert not found[::2].any(), "rows that did not move are not sent"


def test_zero_rows_of_an_empty_cache_are_not_sent() -> None:
    x = torch.zeros(3, 4)
    x[1, 2] = 1e-30
    assert changed_rows(x, torch.zeros(3, 4), 0.3).tolist() == [False, True, False]
    assert changed_rows(x.to("meta"), torch.zeros(3, 4, device="meta"), 0.3).shape == (3,)


def test_the_simulator_knows_what_the_operators_cost() -> None:
    assert declared_work("haloscope::quantize_linear") == RowCodec(rows=0, bits=BitsArgument(1))
    assert declared_work("haloscope::changed_rows") == Streamed("reduction")
