"""Checks that all ranks are in the same exchange, so that a slip in a rank program is a message and not a hang.

Before a collective every rank shows the others a header: what it is about to do, in words and hashed, or that it has
returned. Until the first epoch has ended, and always in debug mode, this is done for every collective; after that for
the first one of every epoch, together with the hash and the balance of all steps since (`real.journal`), so that a
slip is found within an epoch. If it makes the ranks wait for each other sooner, they compare through the store after a
second. Headers are the price of checking: they are never booked as traffic.
"""

from __future__ import annotations

import msgspec
import numpy as np
import torch

from harness.effects import AllToAll, Counts, Effect, Recv, Send
from harness.errors import ProgramError
from harness.rank import Rank
from real.exchanges import begin
from real.headers import HEADER_BYTES, RETURNED, Header, agree
from real.journal import Journal, Step, known_counts, unbalanced
from real.receives import Receives
from real.transport import Link, Pending

_HEADERS = 1  # tag of the headers of messages


class _Position(msgspec.Struct):
    """Where a rank has been stuck for a while: in its `number`-th collective, which makes its path `path`."""

    number: int
    path: bytes
    text: str


class Agreement:
    """One rank's side of the checks.

    Args:
        link: how headers travel; it calls `stuck` when a wait takes long.
        rank: whose debug mode and epoch decide how often.
    """

    def __init__(self, link: Link, rank: Rank) -> None:
        self.link, self.rank = link, rank
        self.journal = Journal(link.rank, link.size)
        self.receives = Receives()
        self.epoch: int | None = None  # the last epoch with a header
        link.stuck = self.stuck

    def collective(self, effect: Effect) -> None:
        """Check one collective before it begins, if its turn has come.

        Raises:
            ProgramError: another rank is in something else, has returned, took another path, or counts other rows.
        """
        step = self.journal.add(effect)
        if self._thorough or self.rank.epoch != self.epoch:
            self.epoch = self.rank.epoch
            self._compare(step)
            if self._thorough and isinstance(effect, AllToAll):
                self._compare_counts(known_counts(effect), effect)

    def returned(self) -> None:
        """Check at the end that all ranks return. Raises ProgramError as `collective` does."""
        self._compare(self.journal.end())

    def send(self, effect: Send) -> Pending:
        """Send a message, after its header where its turn has come."""
        if not self._thorough:
            return begin(self.link, effect)
        header = self.link.send(Header.of(effect).pack().to(self.link.device), effect.to, _HEADERS)
        return begin(self.link, effect).then(lambda _: header.result())

    def recv(self, effect: Recv, started: bool) -> Pending:
        """Receive a message, once it is known to be the one that was sent.

        Raises:
            ProgramError: the receiver expects something else than was sent; of a started one, at the wait.
        """
        if not self._thorough:
            self.receives.settle(effect.source)
            return begin(self.link, effect)
        mine, header = Header.of(effect), self.link.recv(HEADER_BYTES, effect.source, _HEADERS)

        def check() -> None:
            agree(effect.source, Header.unpack(header.result().cpu()), self.link.rank, mine)

        if started and self.link.on_host:
            return self.receives.start(effect.source, check, lambda: begin(self.link, effect), self.link.patience)
        check()
        self.receives.settle(effect.source)
        return begin(self.link, effect)

    def stuck(self) -> None:
        """Compare positions with two other ranks through the store; called about every second of a long wait.

        The next rank and rank 0 are enough: if any two ranks disagree, two of these do.

        Raises:
            ProgramError: another rank is in a collective where this one was in something else.
        """
        if not self.journal.steps:
            return
        last = self.journal.steps[-1]
        number = self.journal.begun + len(self.journal.steps) - 1
        words, text = self.link.words, last.effect.text or "its return"
        words.post(msgspec.json.encode(_Position(number, last.path, text)))
        for peer in {0, (self.link.rank + 1) % self.link.size} - {self.link.rank}:
            found = words.posted(peer)
            theirs = msgspec.json.decode(found, type=_Position) if found is not None else None
            at = theirs.number - self.journal.begun if theirs is not None else -1
            if theirs is not None and 0 <= at < len(self.journal.steps) and self.journal.steps[at].path != theirs.path:
                mine = self.journal.steps[at].effect.text or "its return"
                here = "is" if at == len(self.journal.steps) - 1 else "was"
                raise ProgramError(
                    f"ranks disagree: rank {peer} is in {theirs.text}, but rank {self.link.rank} {here} in {mine}"
                )

    @property
    def _thorough(self) -> bool:
        return self.rank.debug or self.link.clock.ended == 0

    def _compare(self, step: Step) -> None:
        headers = [Header.unpack(row) for row in self.link.gather_host(step.effect.pack())]
        if any(header.path != headers[0].path for header in headers):
            self._name_step(headers)
        for rank, header in enumerate(headers[1:], 1):
            agree(0, headers[0], rank, header)
        if unbalanced([header.balance for header in headers]):
            self._name_counts(headers[0].length)
        self.journal.compared()

    def _name_step(self, headers: list[Header]) -> None:
        """Raise for the first step at which the paths parted; all ranks come here together."""
        longest = max(header.length for header in headers) + 1  # with the step that is being compared
        paths = np.zeros((longest, 8), np.uint8)
        for at, step in enumerate(self.journal.steps):
            paths[at] = np.frombuffer(step.path, np.uint8)
        table = torch.stack(self.link.gather_host(torch.from_numpy(paths))).numpy()
        at = int(np.flatnonzero((table != table[0]).any(axis=(0, 2)))[0])
        found = [Header.unpack(row) for row in self.link.gather_host(self.journal.steps[at].effect.pack())]
        rank = next(r for r in range(self.link.size) if (table[r, at] != table[0, at]).any())
        shapes = found[0].what == found[rank].what
        told = []
        for r in (0, rank):
            seen = f"was in {found[r].text}" if found[r].state != RETURNED else "had returned"
            told.append(f"rank {r} {seen}" + (f" with {found[r].signature}" if shapes else ""))
        raise ProgramError(f"ranks took different paths before epoch {self.rank.epoch}: {', '.join(told)}")

    def _name_counts(self, length: int) -> None:
        """Raise for the first step in which a rank expected other rows than were sent; all ranks come here together."""
        own = np.asarray([step.balance for step in self.journal.steps[:length]], np.uint64).view(np.int64)
        table = torch.stack(self.link.gather_host(torch.from_numpy(own.copy()))).numpy()
        at = int(np.flatnonzero(table.sum(axis=0))[0])
        step = self.journal.steps[at]
        self._compare_counts(step.counts, step.effect.text)

    def _compare_counts(self, counts: list[tuple[Counts, Counts]], what: object) -> None:
        """All ranks see all counts, so that all of them fail with the same words."""
        if not counts:
            return
        rows = torch.from_numpy(np.asarray(counts, np.int64))
        table = torch.stack(self.link.gather_host(rows)).numpy()  # [rank, part, send | recv, rank]
        for rank, part, peer in np.argwhere(table[:, :, 1, :] != table[:, :, 0, :].transpose(2, 1, 0)).tolist():
            raise ProgramError(
                f"rank {rank} expects {table[rank, part, 1, peer]} rows from rank {peer}, which sends "
                f"{table[peer, part, 0, rank]}, in {what}"
            )
