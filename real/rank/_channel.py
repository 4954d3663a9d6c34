"""The collectives and messages of one torch.distributed process group: the only file that calls them.

A group of ranks is joined by its members alone: `torch.distributed.new_group` is collective over all ranks, so the
backend is made directly, on a part of the key-value store that the group's ranks name.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]

from harness.effects import Group
from real.rank._gloo_threads import schedule_gloo_threads


class Channel:
    """Begins exchanges on one process group; each returns its work, which completes later, as torch has it by default.

    Args:
        group: a process group or its backend; None is the default group. Its own numbers of ranks are used.
    """

    def __init__(self, group: Any) -> None:
        self.group: Any = dist.group.WORLD if group is None else group

    def all_to_all(self, target: Tensor, source: Tensor, received: Sequence[int] = (), sent: Sequence[int] = ()) -> Any:
        """Pieces of `source` to all ranks, theirs into `target`; equal pieces where no sizes are given."""
        return self.group.alltoall_base(target, source, list(received), list(sent), dist.AllToAllOptions())

    def all_reduce(self, total: Tensor) -> Any:
        """The library's own sum over ranks, in place."""
        return self.group.allreduce([total], dist.AllreduceOptions())

    def broadcast(self, buffer: Tensor, root: int) -> Any:
        """The root's buffer into that of every rank."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        return self.group.broadcast([buffer], options)

    def gather(self, rows: Sequence[Tensor], row: Tensor) -> Any:
        """Every rank's row into `rows`; over gloo only."""
        return self.group.allgather([list(rows)], [row])

    def send(self, data: Tensor, to: int, tag: int) -> Any:
        """A message to one rank; over gloo only."""
        return self.group.send([data], to, tag)

    def recv(self, buffer: Tensor, source: int, tag: int) -> Any:
        """A message from one rank; over gloo only."""
        return self.group.recv([buffer], source, tag)

    def batch(self, into: Sequence[Tensor], out: Sequence[Tensor], peer: int) -> list[Any]:
        """Messages from and to one rank, all begun at once; over NCCL they are one grouped operation.

        `torch.distributed.batch_isend_irecv` does the same in groups that all ranks have made.
        """
        grouped = self.group.supports_coalescing
        if grouped:
            self.group._start_coalescing()
        works = [self.group.recv([buffer], peer, 0) for buffer in into]
        works += [self.group.send([data], peer, 0) for data in out]
        return [self.group._end_coalescing()] if grouped else works


def join_members(backend: str, store: Store, group: Group, rank: int, limit: timedelta) -> Channel:
    """The channel of a group of ranks for `rank`, one of them. Blocks until all of them call it.

    Args:
        store: a part of the key-value store for this group and backend alone.
        limit: how long it may take; over NCCL also any of its operations.
    """
    place, count = group.index(rank), len(group)
    if backend == "gloo":
        channel = Channel(dist.ProcessGroupGloo(store, place, count, limit))
        schedule_gloo_threads()
        return channel
    options = dist.ProcessGroupNCCL.Options()
    options._timeout, options.global_ranks_in_group = limit, list(group)  # the latter for its watchdog's messages
    return Channel(dist.ProcessGroupNCCL(store, place, count, options))
