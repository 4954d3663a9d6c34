"""Properties of the bucket codec on any matrix: midpoints, error bound, zeros, signs, bytes, refusal of nan."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness.codecs import Bucket
from harness.errors import InputError
from harness.kernels import _bucket_torch as bucket_torch
from harness.kernels import threads

BITS = (1, 2, 4, 8, 16)
EVERY = [Bucket(bits, scope) for bits in BITS for scope in ("matrix", "row")]
SPACING, SMALLEST = 2.0**-23, 2.0**-149
AMPLITUDES = (1.0, 1e-3, 1.6e38, 1e-30, 1e-38, 1e-42, 1e-45)


def name(codec: Bucket) -> str:
    return f"{codec.bits}-bit {codec.scope}"


@pytest.fixture
def two_threads() -> Iterator[None]:
    """torch may use two threads during the test."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@st.composite
def matrices(draw: st.DrawFn) -> Tensor:
    """Matrices of one size of numbers: constant, zero, one-sided, shifted, with zeros among them, or ordinary."""
    shape = draw(st.integers(1, 6)), draw(st.integers(1, 40))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    x = torch.rand(shape, generator=generator) * 2 - 1
    kind = draw(st.sampled_from(["plain", "constant", "zero", "shifted", "positive", "negative", "sparse"]))
    if kind == "constant":
        x[:] = x[0, 0]
    elif kind == "shifted":
        x = 1 + x / 4096
    elif kind in ("positive", "negative"):
        x = x.abs() * (1 if kind == "positive" else -1)
    elif kind == "sparse":
        x[x.abs() < 0.5] = 0
    return x * (0.0 if kind == "zero" else draw(st.sampled_from(AMPLITUDES)))


def coded(codec: Bucket, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, ranges, and decoded values."""
    side = codec.measure(x, x)
    codes, _ = codec.encode(x, side)
    return codes, side, codec.decode(codes, side, codec.starts(side, np.array([len(x)])), x.shape[1])


def midpoints(low: float, high: float, bits: int) -> list[float]:
    """All values that codes can decode to, from the definition, in double precision."""
    if bits == 1:
        return [low + (high - low) / 4, low + (high - low) * 3 / 4]
    crosses = low < 0 < high
    count = 2**bits - (2 if crosses else 1)
    edges = {low + (high - low) * i / count for i in range(count)} | {high}
    ordered = sorted(edges | {0.0}) if crosses else sorted(edges)
    return [0.0, *((a + b) / 2 for a, b in zip(ordered[:-1], ordered[1:], strict=True))] if low < high else [0.0, low]


def interval(side: Tensor, bits: int) -> Tensor:
    """Width of an interval of every range, float64."""
    low, high = side.double().unbind(1)
    count = torch.full_like(low, 2.0) if bits == 1 else 2.0**bits - 1 - ((low < 0) & (high > 0)).double()
    return (high - low) / count


@pytest.mark.parametrize("codec", EVERY, ids=name)
@settings(max_examples=25)
@given(x=matrices())
def test_no_value_is_off_by_more_than_half_an_interval(codec: Bucket, x: Tensor) -> None:
    _, side, decoded = coded(codec, x)
    bound = interval(side, codec.bits)[:, None] / 2 * (1 + 2.0**-6) + x.abs().max().double() * SPACING + SMALLEST
    assert decoded.isfinite().all() and ((decoded.double() - x.double()).abs() <= bound).all()
    still = side[:, 0] == side[:, 1]
    assert torch.equal(decoded[still.expand(len(x))], x[still.expand(len(x))]), "a constant range is exact"
    if codec.bits > 1:
        assert (decoded[x == 0] == 0).all() and (decoded * x.sign() >= 0).all(), "zeros and signs stay"


@pytest.mark.parametrize("bits", [1, 2, 4])
@settings(max_examples=25)
@given(x=matrices())
def test_values_decode_to_the_midpoint_of_their_bucket(bits: int, x: Tensor) -> None:
    _, side, decoded = coded(Bucket(bits), x)
    found = np.array(midpoints(float(side[0, 0]), float(side[0, 1]), bits))
    off = np.abs(decoded.double().numpy()[:, :, None] - found).min(2)
    assert (off <= np.abs(x.double().numpy()).max() * 4 * SPACING + SMALLEST).all()


@pytest.mark.parametrize("codec", EVERY, ids=name)
@settings(max_examples=15)
@given(x=matrices())
def test_torch_operators_give_the_same_codes(codec: Bucket, x: Tensor) -> None:
    """The oracle for the compiled kernels, and CUDA's path."""
    codes, side, decoded = coded(codec, x)
    starts = codec.starts(side, np.array([len(x)]))
    _, error = codec.encode(x, side, keep_error=True)
    theirs, their_error = bucket_torch.encode(x, side, starts, codec.bits, True)
    assert torch.equal(codes, theirs) and torch.equal(error, their_error)
    assert torch.equal(error, x - decoded)
    assert torch.equal(decoded, bucket_torch.decode(codes, side, starts, codec.bits, x.shape[1]))


def test_the_example_of_figure_3() -> None:
    """2 bits on [0, 1]: three buckets and zero; 0.7 is in the last, as in the paper, 0.0 is zero itself."""
    x = torch.tensor([[0.0, 0.1, 0.4, 0.7, 1.0, 0.0, 0.3, 0.9]])
    codes, side, decoded = coded(Bucket(2), x)
    assert side.tolist() == [[0.0, 1.0]]
    assert decoded.tolist()[0] == pytest.approx([0, 1 / 6, 1 / 2, 5 / 6, 5 / 6, 0, 1 / 6, 5 / 6])
    # Codes 0 1 2 3 3 0 1 3 in two bytes, byte j holding columns j, j + 2, ...
    assert codes.tolist() == [[0 | 2 << 2 | 3 << 4 | 1 << 6, 1 | 3 << 2 | 0 << 4 | 3 << 6]]


def test_one_bit_has_two_midpoints_of_the_range() -> None:
    _, _, decoded = coded(Bucket(1), torch.tensor([[-1e-6, 3e-6, 0.9e-6, 1.1e-6]]))
    assert decoded.tolist()[0] == pytest.approx([0, 2e-6, 0, 2e-6], abs=1e-12)


def test_sixteen_bits_are_little_endian() -> None:
    x = torch.tensor([[0.0, 65535.0, 300.5]])
    assert coded(Bucket(16), x)[0].tolist() == [[0, 0, 255, 255, 301 % 256, 301 // 256]]


@pytest.mark.parametrize("codec", EVERY, ids=name)
@pytest.mark.parametrize("width", [0, 1, 7, 8, 9, 256])
def test_bytes_are_what_the_codec_says(codec: Bucket, width: int) -> None:
    for num_rows in (0, 1, 3):
        codes, side, decoded = coded(codec, torch.rand(num_rows, width))
        assert codes.nbytes == num_rows * math.ceil(width * codec.bits / 8) and decoded.shape == (num_rows, width)
        assert side.nbytes == 8 * (num_rows if codec.scope == "row" else 1)


@pytest.mark.parametrize("bits", BITS)
def test_groups_of_rows_have_their_own_ranges(bits: int) -> None:
    """The rows that a reader receives from several owners, some of which send none."""
    codec, generator = Bucket(bits), torch.Generator().manual_seed(bits)
    parts = [torch.randn(n, 11, generator=generator) * scale for n, scale in ((3, 1.0), (0, 1.0), (1, 50.0), (4, 1e-9))]
    each = [coded(codec, part) for part in parts]
    codes, side = (torch.cat([e[k] for e in each]) for k in (0, 1))
    starts = codec.starts(side, np.array([len(part) for part in parts]))
    together = codec.decode(codes, side, starts, 11)
    assert torch.equal(together, torch.cat([e[2] for e in each]))
    assert torch.equal(together, bucket_torch.decode(codes, side, starts, bits, 11))


def test_a_range_may_span_more_than_the_rows() -> None:
    rows, whole = torch.tensor([[1.0, 2.0]]), torch.tensor([[-4.0, 1.0], [0.0, 1.5]])
    assert Bucket(2).measure(rows, whole).tolist() == [[-4.0, 2.0]]
    assert Bucket(2, "row").measure(rows, whole).tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize("value", [math.nan, -math.nan, math.inf, -math.inf, 1e39])
@pytest.mark.parametrize("codec", EVERY, ids=name)
def test_nan_and_inf_are_refused_with_their_row(value: float, codec: Bucket) -> None:
    x = torch.ones(30, 8, dtype=torch.float64)
    x[7, 5] = x[29, 0] = value
    with pytest.raises(ValueError, match="^boundary row 7 holds nan or inf$"):
        codec.measure(x, x)
    if codec.scope == "matrix":
        with pytest.raises(ValueError, match="^own row 7 holds nan or inf$"):
            codec.measure(x[:7], x)


def test_codes_do_not_depend_on_threads(two_threads: None) -> None:
    x = torch.randn(3000, 256, generator=torch.Generator().manual_seed(0))
    assert threads.num_ranges(x.nbytes) == 2
    for codec in EVERY:
        torch.set_num_threads(2)
        parallel = coded(codec, x)
        torch.set_num_threads(1)
        assert all(torch.equal(a, b) for a, b in zip(parallel, coded(codec, x), strict=True))


def test_other_layouts_and_types_of_rows_are_taken() -> None:
    x = torch.randn(20, 30, generator=torch.Generator().manual_seed(0))
    plain = coded(Bucket(4), x)[0]
    for same in (x.double(), x.T.contiguous().T, torch.cat([x, x], 1)[:, :30]):
        assert torch.equal(coded(Bucket(4), same)[0], plain)


def test_shapes_only() -> None:
    x = torch.empty(5, 9, device="meta")
    for codec in EVERY:
        codes, side, decoded = coded(codec, x)
        assert codes.shape == (5, math.ceil(9 * codec.bits / 8)) and decoded.shape == (5, 9) and side.is_meta
        assert codec.encode(x, side, keep_error=True)[1].shape == (5, 9)


def test_wrong_settings() -> None:
    with pytest.raises(InputError, match="not 3"):
        Bucket(3)
    with pytest.raises(InputError, match="'column'"):
        Bucket(2, "column")
