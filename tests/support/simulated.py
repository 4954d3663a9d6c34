"""Small clusters and programs that the tests of the simulated driver share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.effects import Rows
from harness.rank import Rank
from sims.cluster import Cluster, load_cluster, place
from sims.engine import Simulation, simulate

BANDWIDTH, LATENCY = 1e6, 1e-3  # of the plain cluster, from host to host


def plain(tmp_path: Path, hosts: int = 2, *, transport: str = "", nic: str = "1 MB/s") -> Cluster:
    """CPU hosts with one rank each, connected by NICs."""
    path = tmp_path / "plain.toml"
    path.write_text(
        f'[hosts]\ncount = {hosts}\ndevice = "cpu-epyc-1core"\n[links.nic]\nbandwidth = "{nic}"\nlatency = "500 us"\n'
        f'[transport]\nkind = "gloo"\n{transport}'
    )
    return load_cluster(path)


def gpus(tmp_path: Path, kind: str) -> Cluster:
    """One host with two GPUs; the bus carries 10 MB/s, host memory 1 MB/s."""
    path = tmp_path / "gpus.toml"
    path.write_text(
        '[hosts]\ncount = 1\ndevices = 2\ndevice = "rtx-3090"\n'
        '[links.bus]\nbandwidth = "10 MB/s"\nlatency = "1 ms"\n'
        '[links.loopback]\nbandwidth = "1 MB/s"\nlatency = "5 ms"\n'
        f'[transport]\nkind = "{kind}"\n'
    )
    return load_cluster(path)


def work(rank: Rank, seconds: float) -> None:
    """Compute that takes `seconds` on the modelled clock."""
    rank.clock.charge(seconds)  # type: ignore[attr-defined]


def each(size: int, rows: int, own: int = -1) -> np.ndarray:
    """`rows` for every rank but `own`."""
    counts = np.full(size, rows, np.int64)
    if own >= 0:
        counts[own] = 0
    return counts


def everyone_sends(rank: Rank, rows: int, *, known: bool = True) -> list[Rows]:
    """A one-column all-to-all of `rows` rows per pair, without rows to itself."""
    counts = each(rank.size, rows, rank.index)
    return [Rows(torch.empty(int(counts.sum()), 1, device="meta"), counts, counts if known else None)]


def timed(program: Callable[[Rank], Any], size: int, cluster: Cluster, **options: Any) -> Simulation:
    """Run with one epoch around the program; every result is (value, seconds)."""

    async def run(rank: Rank) -> Any:
        rank.clock.begin_epoch()
        value = await program(rank)
        return value, rank.clock.end_epoch()

    return simulate(run, place(cluster, size), **options)


def seconds_of(simulation: Simulation, rank: int = 0) -> dict[str, float]:
    found: dict[str, float] = simulation.results[rank][1]
    return found


async def exchange_once(rank: Rank) -> None:
    await rank.all_to_all(everyone_sends(rank, 250), label="h", direction="forward", layer=0)


def sent_beside_compute(elements: int, seconds: float) -> Callable[[Rank], Any]:
    """Rank 0 sends fp32 to rank 1, while rank 2 computes; then all meet."""

    async def program(rank: Rank) -> None:
        tensor = torch.empty(elements, device="meta")
        if rank.index == 0:
            await rank.send(tensor, to=1, label="h")
        elif rank.index == 1:
            await rank.recv(tensor, source=0, label="h")
        else:
            work(rank, seconds)
        await rank.all_reduce(torch.empty(0, device="meta"), label="together")

    return program
