"""The row kernels against dense arithmetic and against their torch forms: sums, dropout, random bits, shapes only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness.errors import InputError, ProgramError
from harness.graphs import Block
from harness.kernels import dropout, mixed, quantize, random, threads
from harness.kernels.dropout import keyed_dropout
from harness.nn import _aggregate as spmm
from harness.nn import aggregate, aggregate_weighted

KEYS = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """torch may use two threads during the test."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def block_of(dense: np.ndarray, dtype: type = np.int32) -> Block:
    """The block of a 0/1 matrix, with its edge map."""
    rows, columns = np.nonzero(dense)
    indptr = np.searchsorted(rows, np.arange(dense.shape[0] + 1)).astype(dtype)
    return Block.from_csr(indptr, columns.astype(dtype), dense.shape[1]).with_edge_map()


@st.composite
def matrices(draw: st.DrawFn) -> np.ndarray:
    """0/1 matrices with empty rows and columns, or none at all."""
    rows, columns = draw(st.integers(0, 7)), draw(st.integers(0, 7))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    return rng.random((rows, columns)) < draw(st.sampled_from([0.0, 0.3, 1.0]))


def uniform(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.rand(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed)) * 2 - 1


@settings(deadline=None, max_examples=50)
@given(matrices(), st.integers(0, 9), st.sampled_from([np.int32, np.int64]), st.booleans())
def test_sums_equal_dense_products(dense: np.ndarray, width: int, dtype: type, double: bool) -> None:
    block = block_of(dense, dtype)
    real = torch.float64 if double else torch.float32
    a, x = torch.from_numpy(dense).to(real), uniform(dense.shape[1], width, dtype=real)
    g, weights = uniform(dense.shape[0], width, dtype=real, seed=1), uniform(block.nnz, dtype=real, seed=2)
    weighted = torch.zeros_like(a)
    weighted[a > 0] = weights
    close = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(spmm.gather_sum(block.indptr, block.indices, x), a @ x, **close)
    torch.testing.assert_close(spmm.gather_weighted_sum(block.indptr, block.indices, weights, x), weighted @ x, **close)
    dots = spmm.edge_dot(block.indptr, block.indices, g, x)
    torch.testing.assert_close(dots, (g @ x.T)[a > 0], **close)
    torch.testing.assert_close(spmm.edge_dot_torch(block.indptr, block.indices, g, x), dots, **close)


@settings(deadline=None, max_examples=15)
@given(matrices(), st.integers(1, 3))
def test_heads_are_independent(dense: np.ndarray, heads: int) -> None:
    block = block_of(dense)
    x, g = uniform(dense.shape[1], heads, 4), uniform(dense.shape[0], heads, 4)
    weights = uniform(block.nnz, heads)
    out = spmm.gather_weighted_sum(block.indptr, block.indices, weights, x)
    dots = spmm.edge_dot(block.indptr, block.indices, g, x)
    for head in range(heads):
        one = spmm.gather_weighted_sum(block.indptr, block.indices, weights[:, head], x[:, head].contiguous())
        torch.testing.assert_close(out[:, head], one)
        torch.testing.assert_close(dots[:, head], spmm.edge_dot(block.indptr, block.indices, g[:, head], x[:, head]))
    torch.testing.assert_close(spmm.edge_dot_torch(block.indptr, block.indices, g, x), dots)


def test_gradients_of_aggregation() -> None:
    dense = np.random.default_rng(0).random((6, 5)) < 0.5
    dense[2] = dense[:, 3] = False
    block = block_of(dense)
    x, x3 = uniform(5, 3).requires_grad_(), uniform(5, 2, 3).requires_grad_()
    weights = uniform(block.nnz, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: aggregate(block, x), (x,))
    assert torch.autograd.gradcheck(lambda w, x: aggregate_weighted(block, w, x), (weights, x3))
    assert torch.autograd.gradcheck(lambda w, x: aggregate_weighted(block, w[:, 0], x), (weights, x))
    (only_x,) = torch.autograd.grad(aggregate_weighted(block, weights.detach(), x3).sum(), (x3,))
    torch.testing.assert_close(only_x, torch.autograd.grad(aggregate_weighted(block, weights, x3).sum(), (x3,))[0])


def test_weighted_aggregation_asks_for_the_edge_map() -> None:
    block = Block.from_csr(np.array([0, 1], np.int32), np.array([0], np.int32), 1)
    with pytest.raises(ProgramError, match="with_edge_map"):
        aggregate_weighted(block, torch.ones(1), torch.ones(1, 2))


def test_edge_dot_does_not_depend_on_threads(two_threads: None) -> None:
    """Degrees so uneven that one row is more than half of the edges; the ranges are cut between rows."""
    dense = np.random.default_rng(0).random((40, 3000)) < 0.1
    dense[7] = True
    block = block_of(dense)
    g, x = uniform(40, 64, dtype=torch.float32), uniform(3000, 64, dtype=torch.float32)
    assert threads.num_ranges(block.nnz * 64 * 4) == 2
    parallel = spmm.edge_dot(block.indptr, block.indices, g, x)
    torch.set_num_threads(1)
    assert torch.equal(parallel, spmm.edge_dot(block.indptr, block.indices, g, x))


@settings(deadline=None, max_examples=30)
@given(KEYS, st.lists(st.integers(0, 2**62), min_size=0, max_size=9), st.integers(0, 40))
def test_random_bits_are_the_same_integers_in_torch(key: int, rows: list[int], width: int) -> None:
    low, high = random.row_words_torch(key, torch.tensor(rows, dtype=torch.int64))
    table = random.element_bits_torch(low, high, width)
    for r, row in enumerate(rows):
        words = random.row_words(random.stream_of(key), row)
        assert [int(w) for w in words] == [int(low[r]), int(high[r])]
        assert [int(random.element_bits(*words, c)) for c in range(width)] == table[r].tolist()


def test_random_bits_look_uniform_and_unrelated() -> None:
    """All 24 bits, and correlations of neighbouring columns, rows and keys, typical defects of such generators."""
    samples = []
    for key in (0, 1, -1):
        words = random.row_words_torch(key, torch.arange(500))
        samples.append(random.element_bits_torch(*words, 400).double() / 2**24)
    u = torch.stack(samples)
    limit = 5 / math.sqrt(u[0].numel())
    for bit in range(24):
        ones = torch.floor(u * 2 ** (bit + 1)) % 2
        assert abs(float(ones.mean()) - 0.5) < limit / 2
    z = (u - 0.5) * math.sqrt(12)
    pairs = [(z[:, :, 1:], z[:, :, :-1]), (z[:, 1:], z[:, :-1]), (z[1:], z[:-1]), (z[:, 1:, 1:], z[:, :-1, :-1])]
    for left, right in pairs:
        assert abs(float((left * right).mean())) < limit
    counts = torch.histc(u[0], bins=256, min=0.0, max=1.0)
    expected = u[0].numel() / 256
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    assert abs(chi2 - 255) < 5 * math.sqrt(2 * 255)


def test_dropout_does_not_depend_on_the_partition() -> None:
    x = uniform(50, 33, dtype=torch.float32)
    nodes = torch.arange(50) * 10**11
    whole = keyed_dropout(x, nodes, 0.4, 7)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))[:20]
    assert torch.equal(keyed_dropout(x[order], nodes[order], 0.4, 7), whole[order])
    assert torch.equal(dropout.dropout_rows_torch(x, nodes, 0.4, 7), whole)
    assert not torch.equal(keyed_dropout(x, nodes, 0.4, 8), whole)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_drops_the_stated_share_and_scales_the_rest(p: float) -> None:
    x = torch.ones(400, 300)
    out = keyed_dropout(x, torch.arange(400), p, 3)
    kept = out != 0
    assert torch.equal(out[kept], torch.full_like(out[kept], 1 / (1 - p)))
    assert abs(float(kept.double().mean()) - (1 - p)) < 5 * math.sqrt(p * (1 - p) / x.numel())
    for share in (kept.double().mean(0), kept.double().mean(1)):
        assert float((share - (1 - p)).abs().max()) < 6 * math.sqrt(p * (1 - p) / 300)


def test_dropout_gradient_and_limits() -> None:
    x, nodes = uniform(6, 20).requires_grad_(), torch.arange(6)
    assert torch.autograd.gradcheck(lambda x: keyed_dropout(x, nodes, 0.3, 2**63 + 5), (x,))
    assert keyed_dropout(x, nodes, 0.0, 1) is x
    assert not keyed_dropout(x, nodes, 1.0, 1).any()
    assert keyed_dropout(x[:0], nodes[:0], 0.5, 1).shape == (0, 20)
    with pytest.raises(InputError, match="outside"):
        keyed_dropout(x, nodes, 1.5, 1)


def test_dropout_does_not_depend_on_threads(two_threads: None) -> None:
    x, nodes = uniform(3000, 256, dtype=torch.float32), torch.arange(3000)
    assert threads.num_ranges(2 * x.nbytes) == 2
    parallel = keyed_dropout(x, nodes, 0.5, 1)
    torch.set_num_threads(1)
    assert torch.equal(parallel, keyed_dropout(x, nodes, 0.5, 1))


def test_a_range_that_fails_fails_the_call(two_threads: None) -> None:
    def kernel(start: int, stop: int) -> None:
        if start > 0:
            raise ValueError(f"rows {start} to {stop}")

    with pytest.raises(ValueError, match="rows 5 to 10"):
        threads.over_rows(kernel, 10, 1 << 22)


def operator_calls() -> list[tuple[str, tuple[object, ...]]]:
    """Every operator with arguments that it accepts."""
    block = block_of(np.random.default_rng(1).random((6, 5)) < 0.5)
    csr = (block.indptr, block.indices)
    g, x, x3 = uniform(6, 3), uniform(5, 3), uniform(5, 2, 3)
    rows = uniform(4, 11, dtype=torch.float32)
    calls: list[tuple[str, tuple[object, ...]]] = [
        ("gather_sum", (*csr, x)),
        ("gather_weighted_sum", (*csr, uniform(block.nnz), x)),
        ("gather_weighted_sum", (*csr, uniform(block.nnz, 2), x3)),
        ("edge_dot", (*csr, g, x)),
        ("edge_dot", (*csr, uniform(6, 2, 3), x3)),
        ("dropout_rows", (x, torch.arange(5), 0.5, -3)),
    ]
    row_bits, offsets = torch.tensor([8, 2, 2, 4], dtype=torch.uint8), torch.tensor([0, 11, 14, 17, 23])
    calls.append(("quantize_mixed", (rows, row_bits, offsets, 9, 23)))
    calls.append(("dequantize_mixed", (*mixed.quantize_mixed(rows, row_bits, offsets, 9, 23), row_bits, offsets, 11)))
    for bits in (1, 2, 4, 8, 16):
        for half in (False, True):
            calls.append(("quantize_rows", (rows, bits, 9, half)))
            calls.append(("dequantize_rows", (*quantize.quantize_rows(rows, bits, 9, half), bits, 11)))
    return calls


@pytest.mark.parametrize(("name", "args"), operator_calls(), ids=lambda value: value if isinstance(value, str) else "")
def test_shapes_only_tensors_tell_the_truth(name: str, args: tuple[object, ...]) -> None:
    op: Callable[..., object] = getattr(torch.ops.haloscope, name)
    real = op(*args)
    fake = op(*(a.to("meta") if isinstance(a, Tensor) else a for a in args))
    pairs = [(real, fake)] if isinstance(real, Tensor) else list(zip(real, fake, strict=True))  # type: ignore[call-overload]
    for left, right in pairs:
        assert right.is_meta and (left.shape, left.dtype) == (right.shape, right.dtype)
    torch.library.opcheck(op, args, test_utils=("test_schema", "test_faketensor"))


def test_aggregation_of_shapes_only_blocks() -> None:
    block = Block.meta(6, 5, 11).with_edge_map()
    x = torch.empty(5, 2, 3, device="meta", requires_grad=True)
    weights = torch.empty(11, 2, device="meta", requires_grad=True)
    out = aggregate_weighted(block, weights, x)
    assert out.shape == (6, 2, 3)
    d_weights, d_x = torch.autograd.grad(out, (weights, x), torch.empty_like(out))
    assert (d_weights.shape, d_x.shape) == (weights.shape, x.shape)
