"""What a core of the host takes to sample boundary nodes, beside what a model charges: `python -m benchmarks.sampling`.

Draws and rebuilt blocks of one part, as BNS-GCN makes them every epoch with rebuild=host; bytes are those that are
written (`harness.kernels.boundary`). The rate is `host.bandwidth` of a device file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from rich.table import Table

from harness.console import stdout
from harness.graphs import Block, HostBlock
from harness.kernels.boundary import draw_rows
from sims.device import load_device

CASES = ((20_000, 57_500, 1_000_000), (20_000, 57_500, 4_000_000), (100_000, 250_000, 1_000_000))
"""Own nodes, boundary nodes and edges between them; the first are those of Reddit in 8 parts."""
SHARES, OWNERS, REPEATS = (0.1, 0.01), 8, 9


def halo_block(rows: int, columns: int, edges: int) -> HostBlock:
    """A random block."""
    rng = np.random.default_rng(0)
    row, column = np.sort(rng.integers(0, rows, edges)), rng.integers(0, columns, edges).astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))]).astype(np.int32)
    return HostBlock.of(Block.from_csr(indptr, column[np.lexsort((column, row))], columns))


def best(work: Callable[[], object]) -> float:
    """Seconds of the fastest of some calls."""
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def rows_of(rows: int, columns: int, edges: int, p: float, rate: float) -> Iterator[tuple[str, ...]]:
    """Lines of the table for one part and share: measured and charged milliseconds, and the rate of writing."""
    block, nodes = halo_block(rows, columns, edges), torch.arange(columns)
    owners = [columns // OWNERS] * (OWNERS - 1)
    owners.append(columns - sum(owners))
    kept = draw_rows(nodes, owners, p, False, 1, 0)
    small = block.select_columns(kept)
    arrays = (small.indptr, small.indices, small.t_indptr, small.t_indices)
    written = sum(array.numel() * array.element_size() for array in arrays)
    draws = 4 * columns + 8 * len(kept)
    for what, work, nbytes in (
        ("draw", lambda: draw_rows(nodes, owners, p, False, 1, 0), draws),
        ("draw, fixed", lambda: draw_rows(nodes, owners, p, True, 1, 0), draws),
        ("rebuild", lambda: block.select_columns(kept), written),
    ):
        seconds = best(work)
        times = (f"{1e3 * seconds:.3f}", f"{1e3 * nbytes / rate:.3f}", f"{nbytes / seconds / 1e9:.2f}")
        yield f"{rows:,}", f"{columns:,}", f"{edges:,}", f"{p:g}", what, *times


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    rate = load_device("rtx-2080ti").host.value
    table = Table("own", "boundary", "edges", "p", "what", "measured ms", "charged ms", "GB/s written")
    for case in CASES:
        for p in SHARES:
            for line in rows_of(*case, p, rate):
                table.add_row(*line)
    stdout().print(table)


if __name__ == "__main__":
    main()
