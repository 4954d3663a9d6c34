"""Neighbour sums by the C function: the bits of `embedding_bag`, whatever the width, the indices and the threads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from harness.nn import _neighbour_sums as native
from harness.nn._neighbour_sums import native_sums, sums_natively

SPECIAL = [0.0, -0.0, 1e-45, 3e38, float("inf"), -float("inf"), float("nan")]


@pytest.fixture(autouse=True)
def compiled() -> None:
    if native._library() is None:
        pytest.skip("no C compiler")


def made(degrees: list[int], columns: int, width: int, wide: bool, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """A matrix with rows of these degrees, and rows to sum, some values of them special."""
    rng = np.random.default_rng(seed)
    dtype = np.int64 if wide else np.int32
    indptr = torch.from_numpy(np.cumsum([0, *degrees]).astype(dtype))
    indices = torch.from_numpy(rng.integers(0, columns, sum(degrees)).astype(dtype))
    x = rng.standard_normal((columns, width)).astype(np.float32)
    x.reshape(-1)[5::41] = rng.choice(SPECIAL, len(x.reshape(-1)[5::41]))
    return indptr, indices, torch.from_numpy(x)


def by_torch(indptr: Tensor, indices: Tensor, x: Tensor) -> Tensor:
    """The same sums by the operator of torch."""
    return functional.embedding_bag(indices, x, indptr, mode="sum", include_last_offset=True)


def same(one: Tensor, other: Tensor) -> bool:
    """Whether values have the same bits, nan being nan."""
    words = [torch.where(values.isnan(), torch.zeros_like(values), values).view(torch.int32) for values in (one, other)]
    return torch.equal(one.isnan(), other.isnan()) and torch.equal(*words)


@settings(deadline=None, max_examples=120)
@given(
    st.lists(st.integers(0, 90), min_size=1, max_size=12), st.integers(1, 60), st.integers(1, 300), st.booleans(),
    st.integers(0, 2**31),
)  # fmt: skip
def test_bits_are_those_of_torch(degrees: list[int], columns: int, width: int, wide: bool, seed: int) -> None:
    indptr, indices, x = made(degrees, columns, width, wide, seed)
    if indices.numel():
        assert same(native_sums(indptr, indices, x), by_torch(indptr, indices, x))
    assert not native_sums(indptr * 0, indices, x).any(), "rows without entries are zeros"


@pytest.mark.parametrize("width", [*range(1, 34), 47, 128, 129, 143, 602])
def test_every_kind_of_width(width: int) -> None:
    given_ = made([0, 5, 40, 1], 30, width, False, width)
    assert same(native_sums(*given_), by_torch(*given_))


def test_rows_that_are_not_contiguous() -> None:
    indptr, indices, x = made([3, 0, 70], 11, 20, False, 4)
    turned = x.t().contiguous().t()
    assert not turned.is_contiguous() and same(native_sums(indptr, indices, turned), native_sums(indptr, indices, x))
    part = torch.cat([x, x], 1)[:, 3:17]
    assert same(native_sums(indptr, indices, part), by_torch(indptr, indices, part.contiguous()))


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_result_does_not_depend_on_threads(threads: None) -> None:
    given_ = made([0, 3000, *[7] * 500, 2000], 900, 100, False, 1)
    found = []
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        found.append(native_sums(*given_))
    assert all(same(found[0], other) for other in found[1:])


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("wrong", [-1, 11, 2**31 - 1])
def test_entries_outside_are_refused(wide: bool, wrong: int) -> None:
    indptr, indices, x = made([3, 0, 70], 11, 20, wide, 4)
    indices[50] = wrong
    with pytest.raises(IndexError, match="row 2 has an entry outside the 11 rows"):
        native_sums(indptr, indices, x)


@pytest.mark.parametrize("starts", [[0, 5, 4, 73], [0, 3, 3, 74], [-1, 3, 3, 73]])
def test_rows_outside_the_entries_are_refused(starts: list[int]) -> None:
    _, indices, x = made([3, 0, 70], 11, 20, False, 4)
    with pytest.raises(IndexError, match="outside"):
        native_sums(torch.tensor(starts, dtype=torch.int32), indices, x)


def test_others_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    indptr, indices, x = made([3, 0, 70], 11, 20, False, 4)
    assert sums_natively(indptr, indices, x)
    assert not any(sums_natively(indptr, indices, other) for other in (x.double(), x.bfloat16(), x.to("meta")))
    assert not sums_natively(indptr.long(), indices, x)
    calls: list[int] = []
    monkeypatch.setattr("harness.nn._aggregate.native_sums", lambda *given_: calls.append(1) or native_sums(*given_))
    ours = torch.ops.haloscope.gather_sum(indptr, indices, x)
    assert calls == [1]
    monkeypatch.setattr(native, "_library", lambda: None)
    assert same(torch.ops.haloscope.gather_sum(indptr, indices, x), ours) and calls == [1]
