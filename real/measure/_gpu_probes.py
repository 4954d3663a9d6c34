"""Measurements of GPUs only: copies to and from the host, and how compute and such copies slow each other down.

Results are plain numbers in base units. The operators themselves are timed by `_probes`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from real.measure._probes import WIDTH, Bench, timed

COPIED = 256 << 20
"""Bytes of one timed copy."""

SMALL = 1024
"""Bytes of a copy whose latency is timed."""


def host_copies(on: Bench) -> dict[str, float]:
    """Bytes/s of large pinned copies in each direction, and seconds that a small one takes from call to arrival."""
    there = torch.empty(COPIED, dtype=torch.uint8, device=on.device)
    here = torch.empty(COPIED, dtype=torch.uint8, pin_memory=True)
    small = slice(0, SMALL)

    def arrival() -> None:
        here[small].copy_(there[small], non_blocking=True)
        torch.cuda.synchronize()

    return {
        "to_host": COPIED / on.seconds(lambda: here.copy_(there, non_blocking=True)),
        "from_host": COPIED / on.seconds(lambda: there.copy_(here, non_blocking=True)),
        "latency": timed(arrival, 0.1),
    }


def overlap(on: Bench) -> dict[str, float]:
    """How much longer compute takes beside copies to the host, and those beside compute; never below 1.

    Compute is the mix of a layer's training: a product, an elementwise operator, rows by index.
    """
    x, w = on.randn(on.rows, WIDTH), on.randn(WIDTH, WIDTH)
    rows = torch.randint(on.rows, (on.rows,), device=on.device)
    there = torch.empty(COPIED, dtype=torch.uint8, device=on.device)
    here = torch.empty(COPIED, dtype=torch.uint8, pin_memory=True)
    main, side = torch.cuda.current_stream(on.device), torch.cuda.Stream(on.device)

    def compute() -> None:
        torch.relu(x @ w).index_select(0, rows)

    def copy() -> None:
        here.copy_(there, non_blocking=True)

    alone = on.seconds(compute), on.seconds(copy)
    calls = max(1, round(alone[1] * 8 / alone[0]))
    together = _together(main, side, [compute] * calls, [copy] * 8)
    return {
        "overlap.compute": max(1.0, together[0] / (alone[0] * calls)),
        "overlap.communication": max(1.0, together[1] / (alone[1] * 8)),
    }


def _together(
    main: torch.cuda.Stream, side: torch.cuda.Stream, first: list[Callable[[], None]], second: list[Callable[[], None]]
) -> tuple[float, float]:
    """Seconds of two lists of calls on two streams that begin at the same moment."""
    torch.cuda.synchronize()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(2)]
    for stream, calls, (begin, end) in zip((side, main), (second, first), events, strict=True):
        with torch.cuda.stream(stream):
            begin.record(stream)
            for call in calls:
                call()
            end.record(stream)
    torch.cuda.synchronize()
    (copies, work) = (begin.elapsed_time(end) * 1e-3 for begin, end in events)
    return work, copies
