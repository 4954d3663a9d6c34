"""Properties of codecs on any row: exact bytes, error bound, no bias, stated variance, refusal of nan."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness.codecs import Cast, Codec, LinearRows, StochasticRows
from harness.errors import InputError
from harness.kernels import _quantize_cuda as quantize_cuda
from harness.kernels import threads
from harness.kernels._quantize_torch import dequantize_torch, half_floor, quantize_torch
from tests.support.codecs import row_bytes

BITS = (1, 2, 4, 8, 16)
EVERY = [StochasticRows(bits, side) for bits in BITS for side in ("fp32", "fp16")]
SPACING, SMALLEST, LARGEST = 2.0**-23, 2.0**-149, torch.finfo(torch.float32).max


@pytest.fixture
def two_threads() -> Iterator[None]:
    """torch may use two threads during the test."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@st.composite
def rows(draw: st.DrawFn, amplitudes: tuple[float, ...]) -> Tensor:
    """Rows of one width; constant, zero, shifted and ordinary ones of very different sizes."""
    num_rows, width = draw(st.integers(0, 5)), draw(st.integers(0, 70))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    x = torch.rand(num_rows, width, generator=generator) * 2 - 1
    for row in x:
        kind = draw(st.sampled_from(["plain", "constant", "zero", "shifted", "positive"]))
        if kind == "constant":
            row[:] = row[:1]
        elif kind == "zero":
            row[:] = 0.0
        elif kind == "shifted":
            row[:] = 1 + row / 4096
        elif kind == "positive":
            row.abs_()
        row *= draw(st.sampled_from(amplitudes))
    return x


def error_bound(x: Tensor, scale: Tensor) -> Tensor:
    """One scale, plus float32's rounding in 2**16 levels and at the magnitude of the row's values."""
    largest = x.abs().amax(1, keepdim=True) if x.numel() else torch.zeros(x.shape[0], 1)
    return scale[:, None].double() * (1 + 2.0**-6) + largest.double() * SPACING + SMALLEST


@pytest.mark.parametrize("codec", EVERY, ids=str)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_no_value_is_off_by_more_than_its_scale(codec: StochasticRows, data: st.DataObject) -> None:
    amplitudes = (1.0, 1e-3, 250.0) if codec.side == "fp16" else (1.0, 1e-3, 1.6e38, 1e-30, 1e-38, 1e-42, 1e-45)
    x = data.draw(rows(amplitudes))
    codes, side = codec.encode(x, data.draw(st.integers(-(2**63), 2**63 - 1)))
    decoded = codec.decode((codes, side), x.shape[1], torch.float32)
    assert decoded.shape == x.shape and decoded.isfinite().all() and side.isfinite().all()
    assert ((decoded.double() - x.double()).abs() <= error_bound(x, side[:, 0])).all()
    assert (side[:, 1, None] <= x).all(), "the minimum is rounded down"
    if codec.side == "fp32":
        still = (x == x[:, :1]).all(1)
        assert torch.equal(decoded[still], x[still]), "constant rows are exact"


@pytest.mark.parametrize("codec", EVERY, ids=str)
@settings(deadline=None, max_examples=15)
@given(x=rows((1.0, 1e-3, 1e5, 3.4e38, 1e-45)), key=st.integers(-(2**70), 2**70))
def test_torch_operators_give_the_same_codes(codec: StochasticRows, x: Tensor, key: int) -> None:
    """The oracle for the definition, and CUDA's path without Triton; rows that must be clipped included."""
    codes, side = codec.encode(x, key)
    signed = (key + 2**63) % 2**64 - 2**63
    codes_torch, side_torch = quantize_torch(x, codec.bits, signed, codec.side == "fp16")
    assert torch.equal(codes, codes_torch) and torch.equal(side, side_torch)
    decoded = codec.decode((codes, side), x.shape[1], torch.float32)
    assert torch.equal(decoded, dequantize_torch(codes, side, codec.bits, x.shape[1])) and decoded.isfinite().all()


def test_without_triton_gpus_use_torch_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantize_cuda, "triton", None)
    x = torch.randn(50, 37, generator=torch.Generator().manual_seed(1))
    for bits in BITS:
        stochastic, nearest = StochasticRows(bits), LinearRows(bits)
        payload = stochastic.encode(x, 5)
        assert all(map(torch.equal, payload, quantize_cuda.quantize(x, bits, 5, False)))
        assert torch.equal(stochastic.decode(payload, 37, torch.float32), quantize_cuda.dequantize(*payload, bits, 37))
        assert all(map(torch.equal, nearest.encode(x, 0), quantize_cuda.quantize_linear(x, bits)))


@pytest.mark.parametrize("codec", EVERY, ids=str)
@pytest.mark.parametrize("width", [0, 1, 7, 8, 9, 256])
def test_bytes_are_what_the_codec_says(codec: StochasticRows, width: int) -> None:
    for num_rows in (0, 1, 3):
        payload = codec.encode(torch.rand(num_rows, width), 1)
        assert all(tensor.shape[0] == num_rows for tensor in payload)
        assert [tensor.nbytes for tensor in payload] == [num_rows * each for each in row_bytes(codec, width)]
    assert row_bytes(codec, width) == [math.ceil(width * codec.bits / 8), 8 if codec.side == "fp32" else 4]


def test_layout_is_planes_of_columns() -> None:
    """1 bit: byte j holds columns j, j + B, ... from the lowest bit; 16 bits: little-endian."""
    row = torch.tensor([[1.0, 0, 0, 0, 1, 1, 0, 1, 1, 0, 1]])
    codes, side = StochasticRows(1).encode(row, 0)
    assert side.tolist() == [[1.0, 0.0]]
    assert codes.tolist() == [[0b110101, 0b001100]]
    codes, _ = StochasticRows(16).encode(torch.tensor([[0.0, 65535.0, 258.0]]), 0)
    assert codes.tolist() == [[0, 0, 255, 255, 2, 1]]


def bernstein(variance: Tensor, width: Tensor, draws: int, tests: int) -> Tensor:
    """Bound of the error of a mean of `draws` values within `width`, exceeded in any of `tests` once in a million."""
    t = math.log(2 * tests * 1e6)
    return (2 * t * variance / draws).sqrt() + 2 * t * width / (3 * draws)


@pytest.mark.parametrize("codec", EVERY, ids=str)
def test_decoded_rows_are_unbiased_with_the_stated_variance(codec: StochasticRows) -> None:
    """1,000 draws over rows and 1,000 over keys: Eq. 6, and the variance that the docstring states."""
    width, draws = 200, 1000
    x = torch.rand(1, width, generator=torch.Generator().manual_seed(3)) * 2 - 0.7
    by_row = codec.encode(x.expand(draws, width), 5)
    by_key = tuple(torch.cat(parts) for parts in zip(*(codec.encode(x, key) for key in range(draws)), strict=True))
    for payload in (by_row, by_key):
        scale, low = payload[1][0].double()
        fraction = ((x.double() - low) / scale) % 1
        variance = scale**2 * fraction * (1 - fraction)
        noise = codec.decode(payload, width, torch.float64) - x
        slack = 2 * SPACING
        assert (noise.mean(0).abs() <= bernstein(variance, scale, draws, width) + slack).all()
        pooled = bernstein(variance.mean(), scale, draws * width, 1)
        assert noise.mean().abs() <= pooled + slack
        total = noise.square().sum(1).mean()
        assert total <= width * scale**2 / 4
        assert total == pytest.approx(float(variance.sum()), rel=0.03)
        if codec.side == "fp32":
            eq7 = width * (x.max() - x.min()) ** 2 / (6 * (2**codec.bits - 1) ** 2)
            assert total == pytest.approx(float(eq7), rel=0.15), "f is uniform here, so Eq. 7 holds"


@pytest.mark.parametrize("value", [math.nan, -math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("bits", BITS)
def test_nan_and_inf_are_refused_with_their_row(value: float, bits: int, two_threads: None) -> None:
    x = torch.ones(3000, 256)
    x[7, 255] = x[2999, 0] = value
    with pytest.raises(ValueError, match="^row 7 holds nan or inf$"):
        StochasticRows(bits).encode(x, 0)
    with pytest.raises(ValueError, match="^row 7 holds nan or inf$"):
        quantize_torch(x, bits, 0, False)


@pytest.mark.parametrize("codec", EVERY, ids=str)
def test_the_largest_and_smallest_numbers_pass(codec: StochasticRows) -> None:
    """Rows whose range exceeds float32 or fp16 are clipped, not turned into nan or inf."""
    x = torch.tensor([[LARGEST, -LARGEST, 0.0], [LARGEST, LARGEST, LARGEST], [SMALLEST, 0.0, -0.0], [-7e4, 7e4, 1.0]])
    decoded = codec.decode(codec.encode(x, 2), 3, torch.float32)
    assert decoded.isfinite().all()
    if codec.side == "fp32":
        assert torch.equal(decoded[1:3], x[1:3])


def test_codes_do_not_depend_on_threads(two_threads: None) -> None:
    x = torch.randn(3000, 256, generator=torch.Generator().manual_seed(0))
    assert threads.num_ranges(x.nbytes) == 2
    for codec in EVERY:
        parallel = codec.encode(x, 1)
        decoded = codec.decode(parallel, 256, torch.float32)
        torch.set_num_threads(1)
        serial = codec.encode(x, 1)
        assert all(torch.equal(a, b) for a, b in zip(parallel, serial, strict=True))
        assert torch.equal(decoded, codec.decode(serial, 256, torch.float32))
        torch.set_num_threads(2)


def test_other_layouts_and_types_of_rows_are_taken() -> None:
    x = torch.randn(20, 30, generator=torch.Generator().manual_seed(0))
    codec = StochasticRows(4)
    plain = codec.encode(x, 3)
    for same in (x.double(), x.T.contiguous().T, torch.cat([x, x], 1)[:, :30]):
        assert all(torch.equal(a, b) for a, b in zip(codec.encode(same, 3), plain, strict=True))
    part = tuple(tensor[5:9] for tensor in plain)
    assert torch.equal(codec.decode(part, 30, torch.float64), codec.decode(plain, 30, torch.float64)[5:9])
    assert not torch.equal(codec.encode(x, 4)[0], plain[0])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-65504, 65504, width=32), min_size=1, max_size=20))
def test_rounding_down_to_fp16(values: list[float]) -> None:
    x = torch.tensor(values)
    down = half_floor(x)
    assert torch.equal(down.half().float(), down) and (down <= x).all()
    above = torch.nextafter(down.half(), torch.tensor(math.inf, dtype=torch.float16)).float()
    assert (above > x).all()


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_casts(dtype: torch.dtype | None) -> None:
    codec: Codec = Cast(dtype)
    x = torch.randn(5, 9)
    payload = codec.encode(x, 0)
    assert [payload[0].nbytes] == [5 * each for each in row_bytes(codec, 9)]
    assert torch.equal(codec.decode(payload, 9, torch.float32), x.to(dtype or torch.float32).float())
    assert codec.encode(x.to("meta"), 0)[0].is_meta
    if dtype in (None, torch.float32):
        assert payload[0] is x and codec.decode(payload, 9, torch.float32) is x


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_casts_refuse_nan_and_inf_with_their_row(value: float, dtype: torch.dtype) -> None:
    x = torch.ones(30, 4)
    x[7, 2] = x[29, 0] = value
    with pytest.raises(ValueError, match="^row 7 holds nan or inf$"):
        Cast(dtype).encode(x, 0)
    assert Cast().encode(x, 0)[0] is x, "what travels as it is, is not looked at"


def test_casts_refuse_what_does_not_fit() -> None:
    x = torch.ones(30, 4)
    x[5, 3] = 1e6
    with pytest.raises(ValueError, match="^row 5 does not fit fp16$"):
        Cast(torch.float16).encode(x, 0)
    assert Cast(torch.bfloat16).encode(x, 0)[0].isfinite().all()


def test_wrong_settings() -> None:
    with pytest.raises(InputError, match="not 3"):
        StochasticRows(3)
    with pytest.raises(InputError, match="not 'bf16'"):
        StochasticRows(1, "bf16")
    with pytest.raises(InputError, match="int8"):
        Cast(torch.int8)
