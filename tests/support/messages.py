"""Programs of messages between all pairs of ranks, begun in any order."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.rank import Rank


def show(tensor: Tensor) -> list[Any]:
    """Type, shape and exact bits of a tensor, ready for JSON."""
    bits = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes().hex()
    return [str(tensor.dtype), list(tensor.shape), bits]


def counts(rank: Rank, offset: int) -> tuple[np.ndarray, np.ndarray]:
    """Uneven row counts with zeros among them: to every rank, from every rank."""
    table = np.asarray([[(3 * i + 2 * j + offset) % 4 for j in range(rank.size)] for i in range(rank.size)], np.int64)
    return table[rank.index], table[:, rank.index].copy()


def rows(rank: Rank, count: int, *tail: int, dtype: torch.dtype = torch.float32, purpose: str = "rows") -> Tensor:
    """Rows that differ on every rank."""
    values = torch.from_numpy(rank.generator(purpose).normal(size=(count, *tail)) * 100)
    values = (values > 0) if dtype == torch.bool else values.abs().to(dtype)
    return values.to(rank.device)


async def crossed(rank: Rank) -> list[dict[str, Any]]:
    """What methods exchange, as messages between all pairs, begun on every rank in an order of its own.

    A drawn sample's indices (as BNS-GCN), rows at one bit with their scales (Sylvie), and the bits wanted of each owner
    (EC-Graph). All ranks begin to receive before they send, and start collectives between.
    """
    others, epochs = [r for r in range(rank.size) if r != rank.index], []
    for rank.epoch in range(4):
        rank.clock.begin_epoch()
        found: dict[str, Any] = {}
        kinds = ("indices", "packed", "scales", "bits")
        likes = (
            torch.arange(40 + rank.epoch),
            torch.zeros(300, 2, dtype=torch.uint8),
            torch.zeros(9, 2),
            torch.zeros(()),
        )
        like = dict(zip(kinds, [t.to(rank.device) for t in likes], strict=True))
        order = [(kind, peer) for kind in kinds for peer in others]
        turn = rank.generator("order").permutation(len(order)).tolist()
        order = sorted(order, key=lambda way: (way[1] * 7 + rank.index * rank.epoch) % rank.size)  # kinds stay in order
        into = {way: await rank.start(rank.recv(like[way[0]], source=way[1], label=way[0])) for way in order}
        total = await rank.start(rank.all_reduce(rows(rank, 6), label="between"))
        out = []
        for kind, peer in reversed(order) if rank.epoch == 3 else order:
            if rank.epoch == 3:
                kind = kinds[len(kinds) - 1 - kinds.index(kind)]
            mine = (like[kind] + rank.index + 10 * peer).to(like[kind].dtype)
            out.append(await rank.start(rank.send(mine, to=peer, label=kind)))
        for at in turn:
            found[f"{order[at]}"] = show(await rank.wait(into[order[at]]))
        found["between"] = show(await rank.wait(total))
        for handle in out:
            await rank.wait(handle)
        epochs.append(found)
        rank.clock.end_epoch()
    return epochs


async def killed_between(rank: Rank) -> None:
    """Rank 1 is killed where the others wait for its message."""
    for rank.epoch in range(3):
        rank.clock.begin_epoch()
        if rank.epoch == 2 and rank.index == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        others = [r for r in range(rank.size) if r != rank.index]
        into = [await rank.start(rank.recv(torch.ones(3), source=r, label="rows")) for r in others]
        for r in others:
            await rank.send(torch.ones(3), to=r, label="rows")
        for handle in into:
            await rank.wait(handle)
        rank.clock.end_epoch()
