"""Checks that the ranks of a group enter the same collectives, in the same order and with the same shapes.

Each group of ranks has checks of its own, like its collectives. When and how often they compare is decided in
`_agreement`.
"""

from __future__ import annotations

import numpy as np
import torch

from harness.effects import AllToAll, Counts, Effect, Group
from harness.errors import ProgramError
from harness.rank import Rank
from real.rank._headers import RETURNED, Header, agree
from real.rank._journal import CollectiveJournal, CollectiveStep, known_counts, unbalanced
from real.rank._transport import Endpoint


class CollectiveChecks:
    """One rank's side of the checks of one group.

    Args:
        members: the group's ranks.
        endpoint: how its headers travel; None until its members have met.
        rank: its epoch is named in messages.

    Attributes:
        epoch: the last epoch with a header.
    """

    def __init__(self, members: Group, endpoint: Endpoint | None, rank: Rank) -> None:
        self.members, self.rank, self._endpoint = members, rank, endpoint
        self.journal = CollectiveJournal(members.index(rank.index), len(members))
        self.epoch: int | None = None

    @property
    def joined(self) -> bool:
        """Whether the group's ranks have met."""
        return self._endpoint is not None

    @property
    def begun(self) -> int:
        """Number of its collectives that this rank has begun."""
        return self.journal.begun + len(self.journal.steps)

    @property
    def endpoint(self) -> Endpoint:
        """The end of the group's exchanges."""
        assert self._endpoint is not None
        return self._endpoint

    def collective(self, effect: Effect, world: Endpoint, thorough: bool, due: bool) -> None:
        """Check one collective before it begins, if a check is due; the first one of a group always is.

        Args:
            world: the end of the exchanges of all ranks, through which a new group is joined.
            thorough: compare counts, and not only in the first collective of an epoch.
            due: compare also where the rank has compared in this epoch already.

        Raises:
            ProgramError: another rank is in another effect, has returned, executed other collectives before, or
                has different row counts.
        """
        step = self.journal.add(effect)
        if self._endpoint is None:
            self._endpoint = world.within(self.members)
        if thorough or due or self.rank.epoch != self.epoch:
            self.epoch = self.rank.epoch
            self._compare(step)
            if thorough and isinstance(effect, AllToAll):
                self._compare_counts(known_counts(effect), effect)

    def returned(self) -> None:
        """Check at the end that all ranks of the group return. Raises as `collective` does."""
        self._compare(self.journal.end())

    def _compare(self, step: CollectiveStep) -> None:
        headers = [Header.unpack(row) for row in self.endpoint.gather_host(step.effect.pack())]
        if any(header.path != headers[0].path for header in headers):
            self._name_step(headers)
        for rank, header in enumerate(headers[1:], 1):
            agree(self.members[0], headers[0], self.members[rank], header)
        if unbalanced([header.balance for header in headers]):
            self._name_counts(headers[0].length)
        self.journal.compared()

    def _name_step(self, headers: list[Header]) -> None:
        """Raise for the first step at which the ranks' paths differ; called by all ranks together."""
        longest = max(header.length for header in headers) + 1  # with the step that is being compared
        paths = np.zeros((longest, 8), np.uint8)
        for at, step in enumerate(self.journal.steps):
            paths[at] = np.frombuffer(step.path, np.uint8)
        table = torch.stack(self.endpoint.gather_host(torch.from_numpy(paths))).numpy()
        at = int(np.flatnonzero((table != table[0]).any(axis=(0, 2)))[0])
        headers = [Header.unpack(row) for row in self.endpoint.gather_host(self.journal.steps[at].effect.pack())]
        rank = next(r for r in range(self.endpoint.size) if (table[r, at] != table[0, at]).any())
        shapes = headers[0].what == headers[rank].what
        positions = []
        for r in (0, rank):
            position = f"was in {headers[r].text}" if headers[r].state != RETURNED else "had returned"
            positions.append(f"rank {self.members[r]} {position}" + (f" with {headers[r].signature}" if shapes else ""))
        raise ProgramError(f"ranks took different paths before epoch {self.rank.epoch}: {', '.join(positions)}")

    def _name_counts(self, length: int) -> None:
        """Raise for the first step in which a rank expected other rows than were sent; called by all ranks together."""
        own = np.asarray([step.balance for step in self.journal.steps[:length]], np.uint64).view(np.int64)
        table = torch.stack(self.endpoint.gather_host(torch.from_numpy(own.copy()))).numpy()
        at = int(np.flatnonzero(table.sum(axis=0))[0])
        step = self.journal.steps[at]
        self._compare_counts(step.counts, step.effect.text)

    def _compare_counts(self, counts: list[tuple[Counts, Counts]], what: object) -> None:
        """All ranks see all counts, so that all of them fail with the same message."""
        if not counts:
            return
        rows = torch.from_numpy(np.asarray(counts, np.int64))
        table = torch.stack(self.endpoint.gather_host(rows)).numpy()  # [rank, part, send | recv, rank]
        for rank, part, peer in np.argwhere(table[:, :, 1, :] != table[:, :, 0, :].transpose(2, 1, 0)).tolist():
            raise ProgramError(
                f"rank {self.members[rank]} expects {table[rank, part, 1, peer]} rows from rank "
                f"{self.members[peer]}, which sends "
                f"{table[peer, part, 0, rank]}, in {what}"
            )
