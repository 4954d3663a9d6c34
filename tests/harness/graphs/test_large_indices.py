"""Positions and bytes beyond 2^31: lists read from the end of a sparse file, and shapes without memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from harness.graphs import Block
from harness.kernels.work import bytes_of
from harness.nn import aggregate
from harness.sampling._neighbours import sample_neighbours
from sims.device import Operator

BEYOND = 2**31 + 1024


@pytest.mark.parametrize("fanout", [2, 5])
def test_neighbours_that_lie_beyond_two_to_the_31(tmp_path: Path, fanout: int) -> None:
    """The second node's list ends a file of 8.6 GB, of which one page is on disk; the first one's is never read."""
    file, mine = tmp_path / "indices", np.asarray([7, 1, 5, 3], np.int32)
    with file.open("wb") as stream:
        stream.seek(4 * BEYOND)
        stream.write(mine.tobytes())
    assert file.stat().st_size > 4 * 2**31 > 1000 * 512 * file.stat().st_blocks
    indptr, indices = np.asarray([0, BEYOND, BEYOND + 4]), np.memmap(file, np.int32, "r")
    starts, drawn = sample_neighbours(indptr, indices, np.asarray([1]), fanout, key=3)
    assert starts.tolist() == [0, len(drawn)] and len(drawn) == min(fanout, 4)
    assert set(drawn.tolist()) <= set(mine.tolist()) and len(set(drawn.tolist())) == len(drawn)


def test_sums_over_more_edges_than_two_to_the_31_are_priced_whole() -> None:
    """A block of shapes: its positions have 64 bits, and the work of a sum over it has them all."""
    edges, width = 3 * 10**9, 16
    block = Block.meta(1000, 1000, edges)
    assert block.indptr.dtype == block.t_indices.dtype == torch.int64
    assert Block.meta(1000, 1000, 2**31 - 1).indptr.dtype == torch.int32
    x = torch.empty(1000, width, device="meta")
    out = aggregate(block, x)
    assert out.shape == (1000, width) and out.is_meta
    args = (block.indptr, block.indices, x)
    work = Operator(torch.ops.haloscope.gather_sum.default).work(args, list(args), [out])
    assert work.entries == edges * width > 2**35
    assert bytes_of([torch.empty(2**31, 5, device="meta")]) == 4 * 5 * 2**31
