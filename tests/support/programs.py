"""Rank programs for tests that start real processes: `-m tests.support.programs NAME FOLDER TIMEOUT [DEVICE BACKEND]`.

Importable, so that the same program can run on loopback in the test and on gloo in the ranks. Each rank writes its
results to `FOLDER/rankR.json` and fails as a rank of `python -m real` does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.effects import Handle, Received, Rows
from harness.rank import Rank
from harness.trampoline import blame
from real.launch import ERROR_PREFIX
from real.rank import run_program
from real.rank._agreement import UNHURRIED
from real.rank.connection import SHARING, connect
from real.rank.health import end_process
from tests.support.background import halved
from tests.support.group_slips import killed_in_group, one_call_less, other_members, other_shape_in_group
from tests.support.heap import kept_by_collectives
from tests.support.lifetimes import freed, left_of_sums, let_go
from tests.support.messages import counts, crossed, killed_between, rows, show
from tests.support.slips import slips

HALF = torch.float16


def keep(found: dict[str, Any], name: str, received: Received) -> None:
    found[name] = [[show(t) for t in received.tensors], [c.tolist() for c in received.counts]]


async def dealt(rank: Rank, found: dict[str, Any]) -> None:
    """All-to-alls: one part and several, uneven, empty, of every width of element, with and without known counts."""
    send, recv = counts(rank, rank.epoch)
    more, less = counts(rank, 1)
    whole = Rows(rows(rank, int(send.sum()), 5), send, recv)
    keep(found, "one", await rank.all_to_all([whole], label="one", direction="forward", layer=1))
    turned = rows(rank, 5, int(send.sum())).t()  # not contiguous
    keep(
        found,
        "turned",
        await rank.all_to_all([Rows(turned, send, None)], label="turned", direction="backward", layer=0),
    )
    mixed = [
        Rows(rows(rank, int(send.sum()), 3, dtype=HALF), send, recv),
        Rows(rows(rank, int(more.sum()), 7, dtype=torch.uint8), more, less),
        Rows(rows(rank, int(send.sum()), dtype=torch.float64), send, None),
        Rows(rows(rank, int(more.sum()), 2, 3, dtype=torch.bfloat16), more, None),
        Rows(rows(rank, int(send.sum()), 1, dtype=torch.bool), send, recv),
    ]
    keep(found, "mixed", await rank.all_to_all(mixed, label="mixed", direction="forward", layer=0))
    none = np.zeros(rank.size, np.int64)
    empty = [Rows(rows(rank, 0, 4), none, none), Rows(rows(rank, 0, dtype=HALF), none, None)]
    keep(found, "empty", await rank.all_to_all(empty, label="empty"))
    keep(found, "narrow", await rank.all_to_all([Rows(rows(rank, int(send.sum()), 0), send, recv)], label="narrow"))


async def summed(rank: Rank, found: dict[str, Any]) -> None:
    """All-reduces of sizes that do not divide by the ranks, and a broadcast."""
    for size in (7, 1, 0, 30):
        found[f"sum{size}"] = show(await rank.all_reduce(rows(rank, size), label=f"sum{size}"))
    found["scalar"] = show(await rank.all_reduce(rows(rank, 1)[0], label="scalar"))
    found["wide"] = show(await rank.all_reduce(rows(rank, 2, 3, dtype=torch.float64), label="wide", direction="other"))
    sent = rows(rank, 2, 2, dtype=HALF)
    found["broadcast"] = show(await rank.broadcast(sent, root=rank.size - 1, label="broadcast"))


async def grouped(rank: Rank, found: dict[str, Any]) -> None:
    """Collectives of overlapping groups of ranks, blocking and started, between those of all ranks."""
    pairs = [(at, (at + 1) % rank.size) for at in range(rank.size)]
    for at, group in enumerate(pairs):
        if rank.index in group:
            total = await rank.all_reduce(rows(rank, 7), label=f"pair {at}", group=group, direction="backward", layer=1)
            sent = await rank.broadcast(rows(rank, 2, 3), root=group[1], label=f"from {at}", group=group)
            found[f"pair {at}"] = [show(total), show(sent)]
    await rank.all_reduce(rows(rank, 3), label="all of them")
    handle = None
    if rank.index < 2:
        handle = await rank.start(rank.all_reduce(rows(rank, 9), label="two", group=(0, 1)))
    if rank.index > 0:
        found["others"] = show(
            await rank.all_reduce(rows(rank, 4), label="others", group=range(1, rank.size), direction="forward")
        )
    if handle is not None:
        found["two"] = show(await rank.wait(handle))
    found["alone"] = show(await rank.all_reduce(rows(rank, 5), label="alone", group=[rank.index]))
    found["none"] = show(await rank.broadcast(rows(rank, 0), root=rank.index, label="alone", group=[rank.index]))


async def paired(rank: Rank, found: dict[str, Any]) -> None:
    """A message round the ring, begun by rank 0, and messages that are under way in all directions at once."""
    after, before = (rank.index + 1) % rank.size, (rank.index - 1) % rank.size
    token = rows(rank, 3, dtype=HALF)
    if rank.index > 0:
        token = token + await rank.recv(token, source=before, label="ring")
    await rank.send(token, to=after, label="ring")
    if rank.index == 0:
        token = await rank.recv(token, source=before, label="ring")
    out = await rank.start(rank.send(token[:0], to=after, label="nothing"))
    found["nothing"] = show(await rank.recv(token[:0], source=before, label="nothing"))
    await rank.wait(out)
    out = await rank.start(rank.send(token, to=after, label="late"))
    into = await rank.start(rank.recv(token, source=before, label="late"))
    found["late"], found["ring"] = show(await rank.wait(into)), show(token)
    await rank.wait(out)
    more = torch.cat([token, token])
    first = await rank.start(rank.recv(token, source=before, label="first"))
    second = await rank.start(rank.recv(more, source=before, label="second"))
    await rank.send(token, to=after, label="first")
    await rank.send(more, to=after, label="second")
    if rank.index == 0:
        await rank.send(token[:1], to=after, label="third")
    found["third"] = show(await rank.recv(token[:1], source=before, label="third"))
    if rank.index > 0:
        await rank.send(token[:1], to=after, label="third")
    found["second"], found["first"] = show(await rank.wait(second)), show(await rank.wait(first))


async def started(rank: Rank, found: dict[str, Any]) -> None:
    """Exchanges behind compute; the ranks wait for them at different places among the other collectives."""
    send, recv = counts(rank, 2)
    halo = rank.all_to_all([Rows(rows(rank, int(send.sum()), 4), send, None)], label="halo", direction="forward")
    first = await rank.start(halo)
    second = await rank.start(rank.all_reduce(rows(rank, 11), label="second"))
    time.sleep(0.02)
    early = rank.index % 2 == 0
    if early:
        found["second"] = show(await rank.wait(second))
    found["between"] = show(await rank.all_reduce(rows(rank, 5), label="between"))
    third = await rank.start(rank.all_reduce(rows(rank, 4), label="third"))
    if not early:
        found["second"] = show(await rank.wait(second))
    keep(found, "halo", await rank.wait(first))
    if early:
        found["third"] = show(await rank.wait(third))
    copied = await rank.host_copy(rows(rank, 2), to_host=True, label="copy")
    found["copy"] = show(await rank.host_copy(copied, to_host=False, label="copy"))
    await rank.start(rank.all_reduce(rows(rank, 3), label="never waited for"))


async def beside(rank: Rank, found: dict[str, Any]) -> None:
    """Background exchanges among others, which ranks wait for at different places; the last is not waited for."""
    send, recv = counts(rank, rank.epoch)
    handles = [
        await halved(rank, rows(rank, int(send.sum()), 4 + k), send, recv, label=f"beside {k}") for k in range(3)
    ]
    halo = await rank.start(rank.all_to_all([Rows(rows(rank, int(send.sum()), 4), send, recv)], label="halo"))
    if rank.index % 2:
        found["beside 1"] = show(await rank.wait(handles[1]))
    found["sum"] = show(await rank.all_reduce(rows(rank, 9), label="sum"))
    found["beside 0"] = show(await rank.wait(handles[0]))
    keep(found, "halo beside", await rank.wait(halo))
    if not rank.index % 2:
        found["beside 1"] = show(await rank.wait(handles[1]))


async def everything(rank: Rank) -> dict[str, Any]:
    """Every effect in three epochs, timed; returns tensors, seconds and bytes."""
    epochs = []
    for epoch in range(3):
        rank.epoch = epoch
        found: dict[str, Any] = {}
        rank.clock.begin_epoch()
        with rank.span("codec"):
            time.sleep(0.01)
        for program in (dealt, summed, grouped, paired):
            await program(rank, found)
        with rank.off_the_clock():
            time.sleep(0.05)
            await rank.all_reduce(rows(rank, 3), label="evaluation", direction="other")
        await started(rank, found)
        await beside(rank, found)
        seconds = rank.clock.end_epoch()
        traffic = rank.traffic.take()
        layers = {direction: {str(k): v for k, v in layer.items()} for direction, layer in traffic.layers.items()}
        epochs.append({"found": found, "layers": layers, "to": traffic.to.tolist(), "seconds": seconds})
    return {"epochs": epochs, "peak_memory": rank.clock.peak_memory()}


# -- slips of one rank -------------------------------------------------------------------------------------------------


async def _slip_in_third_epoch(rank: Rank, slip: Callable[[], None], who: int = 1) -> None:
    """One rank makes a mistake after the epoch in which every collective is checked; the others wait for it."""
    for epoch in range(3):
        rank.epoch = epoch
        rank.clock.begin_epoch()
        if epoch == 2 and rank.index == who:
            slip()
        await rank.all_reduce(torch.ones(4, device=rank.device), label="gradients")
        rank.clock.end_epoch()


async def exception(rank: Rank) -> None:
    def slip() -> None:
        raise ValueError("a row of nan")

    await _slip_in_third_epoch(rank, slip)


async def killed(rank: Rank) -> None:
    await _slip_in_third_epoch(rank, lambda: os.kill(os.getpid(), signal.SIGKILL))


async def killed_first(rank: Rank) -> None:
    await _slip_in_third_epoch(rank, lambda: os.kill(os.getpid(), signal.SIGKILL), who=0)


async def killed_beside(rank: Rank) -> None:
    """In its second epoch rank 1 dies in its second thread; the others wait for its rows in the third."""
    handle = None
    for epoch in range(3):
        rank.epoch = epoch
        rank.clock.begin_epoch()
        if handle is not None:
            await rank.wait(handle)
        send, recv = counts(rank, 1)
        die = partial(os.kill, os.getpid(), signal.SIGKILL) if epoch == 1 and rank.index == 1 else lambda: None
        handle = await halved(rank, rows(rank, int(send.sum()), 3), send, recv, label="rows", first=die)
        rank.clock.end_epoch()


async def nan_beside(rank: Rank) -> None:
    """In its second epoch rank 1 cannot encode the first of its exchanges; it is told at the wait."""

    def refuse() -> None:
        raise ValueError("a row of nan")

    handles: list[Handle] = []
    for epoch in range(3):
        rank.epoch = epoch
        rank.clock.begin_epoch()
        for handle in handles:
            await rank.wait(handle)
        send, recv = counts(rank, 1)
        handles = []
        for k in range(3):
            first = refuse if (epoch, rank.index, k) == (1, 1, 0) else lambda: None
            mine = rows(rank, int(send.sum()), 3 + k)
            handles.append(await halved(rank, mine, send, recv, label=f"rows {k}", first=first))
        rank.clock.end_epoch()


async def frozen(rank: Rank) -> None:
    await _slip_in_third_epoch(rank, lambda: os.kill(os.getpid(), signal.SIGSTOP))


async def parted(rank: Rank) -> None:
    """Rank 1 enters one more collective in its second epoch, so that all ranks wait for each other."""
    for epoch in range(2):
        rank.epoch = epoch
        rank.clock.begin_epoch()
        await rank.all_reduce(torch.ones(4), label="gradients")
        if epoch == 1 and rank.index == 1:
            await rank.broadcast(torch.ones(1), root=0, label="one more")
        await rank.all_reduce(torch.ones(4), label="norms")
        rank.clock.end_epoch()


async def strayed(rank: Rank) -> None:
    """In its second epoch rank 1 confuses the last two messages, which have equal sizes, so no rank waits."""
    for epoch in range(4):
        rank.epoch = epoch
        rank.clock.begin_epoch()
        names = ["one", "two"] if epoch != 1 or rank.index == 0 else ["two", "one"]
        for name in ("zero", *names):
            if rank.index == 0:
                await rank.send(torch.ones(3), to=1, label=name)
            else:
                await rank.wait(await rank.start(rank.recv(torch.ones(3), source=0, label=name)))
        rank.clock.end_epoch()


async def slow_disk(rank: Rank) -> str:
    """Rank 1 takes three seconds for a checkpoint."""
    for epoch in range(2):
        rank.epoch = epoch
        rank.clock.begin_epoch()
        await rank.all_reduce(torch.ones(4), label="gradients")
        rank.clock.end_epoch()
        with rank.off_the_clock(UNHURRIED):
            if epoch == 1 and rank.index == 1:
                time.sleep(3)
            await rank.all_reduce(torch.ones(1), label="complete", direction="other")
    return "done"


async def frozen_at_disk(rank: Rank) -> None:
    """Rank 1 freezes while it writes a checkpoint."""
    for epoch in range(2):
        rank.epoch = epoch
        rank.clock.begin_epoch()
        await rank.all_reduce(torch.ones(4), label="gradients")
        rank.clock.end_epoch()
    with rank.off_the_clock(UNHURRIED):
        if rank.index == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        await rank.all_reduce(torch.ones(1), label="complete", direction="other")


async def sums(rank: Rank) -> list[Any]:
    """All-reduces in the library's own order, of numbers whose sum is exact in any order."""
    values = torch.arange(10, dtype=torch.float32, device=rank.device) * (rank.index + 1)
    handle = await rank.start(rank.all_reduce(values, label="started"))
    total = await rank.all_reduce(values[3:], label="whole")
    pair = torch.zeros(1)
    if rank.index < 2:
        pair = await rank.all_reduce(values[:2], label="pair", group=(0, 1))
    whole, to = show(await rank.wait(handle)), rank.traffic.take().to.tolist()
    return [show(total), whole, show(values), show(pair), to]


PROGRAMS: dict[str, Callable[[Rank], Awaitable[Any]]] = {
    p.__name__: p
    for p in (
        everything,
        sums,
        exception,
        killed,
        killed_first,
        killed_beside,
        killed_between,
        killed_in_group,
        other_members,
        other_shape_in_group,
        one_call_less,
        nan_beside,
        frozen,
        parted,
        strayed,
        slow_disk,
        frozen_at_disk,
    )  # fmt: skip
}


def share_gpus(backend: str) -> None:
    """Let the ranks of this machine share a GPU over NCCL: each has its own host id, on loopback. Slow."""
    if backend == "nccl":
        os.environ |= {SHARING: "1", "NCCL_HOSTID": f"rank{os.environ['RANK']}", "NCCL_SOCKET_IFNAME": "lo"}


def main(name: str, folder: Path, timeout_s: float, device: str = "cpu", backend: str = "auto") -> int:
    """Run one program on this process's rank, all programs that succeed ("tour"), or those of messages in batches."""
    try:
        share_gpus(backend)
        startup_s = max(timeout_s, 30.0)
        limits: dict[str, float] = {"timeout_s": timeout_s, "startup_s": startup_s}
        batched = name in ("batches", "killed_between") or None
        with connect(device=device, backend=backend, batched=batched, **limits) as connection:
            (folder / f"{connection.rank}.joined").touch()
            if name == "tour":
                answers: Any = {
                    "everything": run_program(everything, connection, seed=7),
                    "debug": run_program(everything, connection, seed=7, debug=True),
                    "sums": run_program(sums, connection, deterministic=False),
                    "freed": run_program(freed, connection),
                    "let go": run_program(let_go, connection),
                    "left of sums": [run_program(left_of_sums, connection, deterministic=d) for d in (True, False)],
                    "heap": run_program(kept_by_collectives, connection),
                    "threads": [thread.name for thread in threading.enumerate()],
                }
            elif name == "batches":
                answers = {
                    "everything": run_program(everything, connection, seed=7),
                    "crossed": run_program(crossed, connection, seed=3),
                    "debug": run_program(crossed, connection, seed=3, debug=True),
                    "threads": [thread.name for thread in threading.enumerate()],
                }
            elif name == "slips":
                answers = slips(connection)
            else:
                answers = run_program(PROGRAMS[name], connection)  # type: ignore[arg-type]
        (folder / f"rank{connection.rank}.json").write_text(json.dumps(answers))
    except Exception as error:
        print(ERROR_PREFIX + " ".join(blame(error).split()), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    warnings.simplefilter("error")
    end_process(main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:]))
