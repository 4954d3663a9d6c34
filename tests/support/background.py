"""A background exchange of two parts, for tests of all drivers."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from harness.effects import Conversion, Counts, Received, Rows, Start
from harness.rank import Rank


def halved(
    rank: Rank,
    rows: Tensor,
    send: Counts,
    recv: Counts,
    *,
    label: str,
    first: Callable[[], None] = lambda: None,
    written: bool = False,
    seen: list[weakref.ref[Tensor]] | None = None,
) -> Start:
    """Sends rows [n, d] in fp16 with their sums in fp64, and adds both where they arrive: [sum(recv), d] of fp32.

    Args:
        first: called before the rows are encoded.
        written: write to the rows while encoding them, which is a mistake.
        seen: gets references to the rows, the payload and what is received.
    """

    kept = [] if seen is None else seen

    def encode() -> tuple[Tensor, ...]:
        first()
        if written:
            rows.add_(1)
        payload = rows.half(), rows.double().sum(1, keepdim=True)
        kept.extend(map(weakref.ref, (rows, *payload)))
        return payload

    def decode(received: Received) -> Tensor:
        halves, sums = received.tensors
        kept.extend(map(weakref.ref, received.tensors))
        return halves.float() + sums.float() * 0.5

    columns = ((rows.shape[1], torch.float16), (1, torch.float64))
    parts = [Rows(torch.empty(len(rows), width, dtype=dtype, device="meta"), send, recv) for width, dtype in columns]
    return rank.background(parts, Conversion(encode, decode, (rows,)), label=label, direction="forward", layer=1)
