"""Checks that all ranks are in the same exchange, so that an error in a rank program is reported instead of hanging.

Before a collective every rank sends the others a header: what it is about to do, as text and as hashes, or that it has
returned. Until the first epoch has ended, and always in debug mode, this is done for every collective; after that for
the first one of every epoch, together with the hash and the balance of all steps since (`_journal`), so that an
error is found within an epoch. Messages between two ranks are compared as often (`_messages`). If an error makes the
ranks wait for each other sooner, they compare through the store after a second. Headers are the cost of checking: they
are never counted as traffic.
"""

from __future__ import annotations

import time

import msgspec
import numpy as np
import torch

from harness.effects import AllToAll, Counts, Effect, Recv, Send
from harness.errors import ProgramError
from harness.rank import Rank
from real.rank._exchanges import start_exchange
from real.rank._headers import RETURNED, Header, agree, shortened
from real.rank._journal import CollectiveJournal, CollectiveStep, known_counts, unbalanced
from real.rank._messages import NOTE_BYTES, MessageStreams, Note, compare
from real.rank._receives import Receives
from real.rank._transport import Endpoint, Pending, Silence

UNHURRIED = "checkpoint"
"""The stage (`Rank.stage`) in which one rank's slow disk may keep the others waiting for longer than an exchange."""

_NOTES = 1  # tag of the notes before messages
_COMPLAINT_BYTES = 1400


class _Position(msgspec.Struct):
    """Where a rank has been blocked for a while: in its `number`-th collective, with the rolling hash `path`."""

    number: int
    path: bytes
    text: str


class Agreement:
    """One rank's side of the checks.

    Args:
        endpoint: how headers travel; it calls `stuck` when a wait takes long.
        rank: its debug mode and epoch decide how often to check.

    Attributes:
        patience_s, startup_s: seconds that an exchange may take, in an epoch and where one rank may keep the others
            waiting: before the first epoch (which the endpoint handles), and while checkpoints are written.
    """

    def __init__(self, endpoint: Endpoint, rank: Rank) -> None:
        self.endpoint, self.rank = endpoint, rank
        self.journal = CollectiveJournal(endpoint.rank, endpoint.size)
        self.messages, self.receives = MessageStreams.none(), Receives()
        self.epoch: int | None = None  # the last epoch with a header
        self.patience_s, self.startup_s = endpoint.patience_s, endpoint.startup_s
        self._since = time.monotonic()  # when the program reached its current effect
        endpoint.stuck = self.stuck

    def enter(self) -> None:
        """The program has reached its next effect: measure the waiting time from now on."""
        self._since = time.monotonic()
        self.endpoint.patience_s = self.startup_s if self.rank.stage == UNHURRIED else self.patience_s

    def collective(self, effect: Effect) -> None:
        """Check one collective before it begins, if a check is due.

        Raises:
            ProgramError: another rank is in another effect, has returned, executed other collectives before, or
                has different row counts.
        """
        step = self.journal.add(effect)
        # While a checkpoint is written, ranks synchronise on the host first: the deadline there is ours, not NCCL's.
        if self._thorough or self.rank.epoch != self.epoch or self.rank.stage == UNHURRIED:
            self.epoch = self.rank.epoch
            self._compare(step)
            if self._thorough and isinstance(effect, AllToAll):
                self._compare_counts(known_counts(effect), effect)

    def returned(self) -> None:
        """Check at the end that all ranks return, and have received what was sent. Raises as `collective` does."""
        self._compare(self.journal.end())
        theirs = self.endpoint.exchange_counts(self.messages.sent_table(self.endpoint.size))
        wrong = shortened(self.messages.complaint(self.endpoint.rank, theirs), _COMPLAINT_BYTES).ljust(
            _COMPLAINT_BYTES, b"\0"
        )
        for row in self.endpoint.gather_host(torch.frombuffer(bytearray(wrong), dtype=torch.uint8)):
            if said := row.numpy().tobytes().rstrip(b"\0").decode(errors="replace"):
                raise ProgramError(said)  # on all ranks alike

    def send(self, effect: Send) -> Pending:
        """Send a message, preceded by its note where a check is due."""
        note = self.messages.sent[effect.to].add(effect, self._thorough)
        if note is None:
            return start_exchange(self.endpoint, effect)
        header = self.endpoint.send(note.pack(), effect.to, _NOTES)
        return start_exchange(self.endpoint, effect).then(lambda _: header.result())

    def recv(self, effect: Recv, started: bool) -> Pending:
        """Receive a message; where a check is due, only after its note has shown that it is the one that was sent.

        Raises:
            ProgramError: the receiver expects another message than was sent, or did so earlier; of a started receive,
                raised at its wait.
        """
        source, mine = effect.source, self.messages.received[effect.source].add(effect, self._thorough)
        note = self.endpoint.recv(NOTE_BYTES, source, _NOTES) if mine is not None else None

        def check() -> None:
            if note is not None and mine is not None:
                compare(source, Note.unpack(note.result()), self.endpoint.rank, mine)

        behind = note is not None or self.receives.under_way(source)
        if started and behind:
            return self.receives.start(
                source, check, lambda: start_exchange(self.endpoint, effect), self.endpoint.patience
            )
        check()
        self.receives.settle(source)
        return start_exchange(self.endpoint, effect)

    def stuck(self) -> None:
        """Compare positions with two other ranks through the store; called about once a second during a long wait.

        The next rank and rank 0 are enough: if any two ranks disagree, two of these do.

        Raises:
            ProgramError: another rank is in a collective where this one was in another effect.
            Silence: another rank is frozen, and the time that an exchange in an epoch may take is over.
        """
        late = time.monotonic() - self._since > self.patience_s
        if late and any(said.state == "stopped" for said in self.endpoint.words.heard().values()):
            raise Silence(f"had no answer within {self.patience_s:g} s")
        if not self.journal.steps:
            return
        last = self.journal.steps[-1]
        number = self.journal.begun + len(self.journal.steps) - 1
        words, text = self.endpoint.words, last.effect.text or "its return"
        words.post(msgspec.json.encode(_Position(number, last.path, text)))
        for peer in {0, (self.endpoint.rank + 1) % self.endpoint.size} - {self.endpoint.rank}:
            posted = words.posted(peer)
            theirs = msgspec.json.decode(posted, type=_Position) if posted is not None else None
            at = theirs.number - self.journal.begun if theirs is not None else -1
            if theirs is not None and 0 <= at < len(self.journal.steps) and self.journal.steps[at].path != theirs.path:
                mine = self.journal.steps[at].effect.text or "its return"
                here = "is" if at == len(self.journal.steps) - 1 else "was"
                raise ProgramError(
                    f"ranks disagree: rank {peer} is in {theirs.text}, but rank {self.endpoint.rank} {here} in {mine}"
                )

    @property
    def _thorough(self) -> bool:
        return self.rank.debug or self.endpoint.clock.ended == 0

    def _compare(self, step: CollectiveStep) -> None:
        headers = [Header.unpack(row) for row in self.endpoint.gather_host(step.effect.pack())]
        if any(header.path != headers[0].path for header in headers):
            self._name_step(headers)
        for rank, header in enumerate(headers[1:], 1):
            agree(0, headers[0], rank, header)
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
            positions.append(f"rank {r} {position}" + (f" with {headers[r].signature}" if shapes else ""))
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
                f"rank {rank} expects {table[rank, part, 1, peer]} rows from rank {peer}, which sends "
                f"{table[peer, part, 0, rank]}, in {what}"
            )
