"""Blocks, local graphs and plans against dense references; parts of shapes only."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.graphs import Block, LocalGraph, Part, Totals
from harness.kernels import csr
from harness.kernels.columns import select_columns_torch

TOTALS = Totals(100, 900, 60, 20, 20, 8, 3, False, True)


@st.composite
def matrices(draw: st.DrawFn, square: bool = False) -> np.ndarray:
    """Small 0/1 matrices, empty rows, columns and shapes included."""
    rows = draw(st.integers(0, 9))
    cols = rows if square else draw(st.integers(0, 9))
    bits = draw(st.lists(st.booleans(), min_size=rows * cols, max_size=rows * cols))
    return np.array(bits, np.int64).reshape(rows, cols)


def block_of(dense: np.ndarray, dtype: type = np.int32) -> Block:
    indptr = np.concatenate([[0], np.cumsum(dense.sum(axis=1))])
    return Block.from_csr(indptr.astype(dtype), np.nonzero(dense)[1].astype(dtype), dense.shape[1])


def dense_of(indptr: torch.Tensor, indices: torch.Tensor, num_cols: int) -> np.ndarray:
    """Entry counts of a CSR block; its rows must ascend."""
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr.numpy()))
    dense = np.zeros((len(indptr) - 1, num_cols), np.int64)
    np.add.at(dense, (rows, indices.numpy()), 1)
    assert all((np.diff(indices[a:b].numpy()) >= 0).all() for a, b in zip(indptr[:-1], indptr[1:], strict=True))
    return dense


def assert_block(block: Block, dense: np.ndarray) -> None:
    """Both orientations of `block`, and its edge map if it has one, agree with `dense`."""
    assert (block.num_rows, block.num_cols, block.nnz) == (*dense.shape, dense.sum())
    assert (dense_of(block.indptr, block.indices, block.num_cols) == dense).all()
    assert (dense_of(block.t_indptr, block.t_indices, block.num_rows) == dense.T).all()
    assert len({t.dtype for t in (block.indptr, block.indices, block.t_indptr, block.t_indices)}) == 1
    if block.t_edge is not None:
        columns = torch.repeat_interleave(torch.arange(block.num_cols), block.t_indptr.diff().long())
        rows = torch.repeat_interleave(torch.arange(block.num_rows), block.indptr.diff().long())
        assert torch.equal(block.indices[block.t_edge.long()].long(), columns)
        assert torch.equal(rows[block.t_edge.long()], block.t_indices.long())


@settings(deadline=None, max_examples=50)
@given(dense=matrices(), dtype=st.sampled_from([np.int32, np.int64]), data=st.data())
def test_selected_columns_equal_the_dense_columns(dense: np.ndarray, dtype: type, data: st.DataObject) -> None:
    mask = data.draw(st.lists(st.booleans(), min_size=dense.shape[1], max_size=dense.shape[1]))
    columns = torch.tensor(np.flatnonzero(mask), dtype=torch.int64)
    block = block_of(dense, dtype)
    assert_block(block, dense)
    assert_block(block.select_columns(columns), dense[:, columns.numpy()])
    mapped = block.with_edge_map().select_columns(columns)
    assert mapped.t_edge is not None and mapped.t_edge.dtype == block.indices.dtype
    assert_block(mapped, dense[:, columns.numpy()])
    arrays = (block.indptr, block.indices, block.t_indptr, block.t_indices)
    by_operators = Block(*select_columns_torch(*arrays, columns))
    assert_block(by_operators, dense[:, columns.numpy()])
    assert by_operators.indices.dtype == block.indices.dtype


def test_all_columns_are_the_block_itself_and_bad_columns_are_refused() -> None:
    block = block_of(np.eye(4, dtype=np.int64))
    assert block.select_columns(torch.arange(4)) is block
    assert block.with_edge_map().with_edge_map().t_edge is not None
    for bad in ([1, 0], [2, 2], [3, 4], [-1, 2]):
        with pytest.raises(ValueError, match=r"ascend strictly and lie in 0\.\.3"):
            block.select_columns(torch.tensor(bad))


def test_duplicate_entries_survive_transposition_and_selection() -> None:
    block = Block.from_csr(np.array([0, 3, 4], np.int32), np.array([1, 1, 2, 1], np.int32), 3).with_edge_map()
    assert_block(block, np.array([[0, 2, 1], [0, 1, 0]]))
    assert_block(block.select_columns(torch.tensor([1])), np.array([[2], [1]]))


@settings(deadline=None, max_examples=50)
@given(dense=matrices(square=True), mapped=st.booleans())
def test_self_loops_are_added_once(dense: np.ndarray, mapped: bool) -> None:
    own = block_of(dense).with_edge_map() if mapped else block_of(dense)
    degree = torch.from_numpy(dense.sum(axis=1))
    graph = LocalGraph(own, block_of(dense[:, :0]), degree, degree[:0]).with_self_loops()
    assert_block(graph.own, np.maximum(dense, np.eye(len(dense), dtype=np.int64)))
    assert (graph.own.t_edge is not None) == mapped
    assert torch.equal(graph.degree, degree)  # the loop that was added is not counted


def test_meta_blocks_have_shapes_only() -> None:
    block = Block.meta(5, 8, 40)
    assert (block.num_rows, block.num_cols, block.nnz) == (5, 8, 40)
    assert block.indices.is_meta and block.indices.dtype == torch.int32
    half = block.with_edge_map().select_columns(torch.empty(4, dtype=torch.int64, device="meta"))
    assert (half.num_rows, half.num_cols, half.nnz) == (5, 4, 20)
    assert half.t_edge is not None and half.t_edge.is_meta
    assert Block.meta(1, 1, 2**31).indices.dtype == torch.int64
    empty = Block.meta(3, 0, 0)
    assert empty.select_columns(torch.empty(0, dtype=torch.int64, device="meta")) is empty


def test_a_described_part_has_the_shapes_of_its_counts() -> None:
    part = Part.describe(1, 3, 50, np.array([4, 0, 6]), np.array([5, 0, 0]), 300, 40, TOTALS)
    assert part.x is not None and part.x.shape == (50, 8) and part.x.is_meta
    assert part.y is not None and part.y.shape == (50,) and part.y.dtype == torch.int64
    assert (len(part.train), len(part.val), len(part.test)) == (30, 10, 10)
    assert (part.graph.own.nnz, part.graph.halo.nnz, part.graph.num_own, part.graph.num_halo) == (300, 40, 50, 10)
    assert part.plan.send_rows.shape == (5,) and part.plan.recv_counts.tolist() == [4, 0, 6]
    assert part.graph.with_self_loops().own.nnz == 350
    multi = Totals(100, 900, 0, 0, 0, 0, 3, True, True)
    bare = Part.describe(0, 1, 100, np.array([0]), np.array([0]), 900, 0, multi)
    assert bare.x is None and bare.y is not None and bare.y.shape == (100, 3) and bare.y.dtype == torch.float32
    assert (
        Part.describe(0, 1, 0, np.array([0]), np.array([0]), 0, 0, Totals(0, 0, 0, 0, 0, 0, 0, False, True)).y is None
    )


def test_moving_keeps_values_and_meta_keeps_shapes() -> None:
    block = block_of(np.array([[0, 1], [1, 1]])).with_edge_map()
    same = block.to("cpu")
    assert torch.equal(same.indices, block.indices) and same.t_edge is not None
    moved = LocalGraph(block, block, torch.ones(2), torch.ones(2)).to("meta")
    assert moved.own.t_edge is not None and moved.own.t_edge.is_meta and moved.halo.nnz == 3
    assert moved.degree.is_meta and moved.degree.dtype == torch.float32


def test_the_kernels_accept_no_rows_at_all() -> None:
    none = np.zeros(1, np.int32)
    assert csr.transpose(none, none[:0], 0)[0].tolist() == [0]
    assert csr.add_self_loops(none, none[:0])[1].tolist() == []
    assert csr.ascending_in_range(np.zeros(0, np.int64), 0)
