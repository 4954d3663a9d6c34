"""Checks that all ranks are in the same exchange, so that an error in a rank program is reported instead of hanging.

Before a collective every rank sends the others a header: what it is about to do, as text and as hashes, or that it has
returned. Until the first epoch has ended, and always in debug mode, this is done for every collective; after that for
the first one of every epoch, together with the hash and the balance of all steps since (`_journal`), so that an
error is found within an epoch. The ranks of a group compare among themselves, the first time when they first meet.
Messages between two ranks are compared as often (`_messages`). If an error makes the ranks wait for each other sooner,
they compare through the store after a second, where they wait on the host: over gloo. Over NCCL such an error ends with
the deadline of the device's wait (`_device_waits`), and only the effect that is waited for is named. Headers are the
cost of checking: they are never counted as traffic.
"""

from __future__ import annotations

import time

import msgspec
import torch

from harness.effects import Effect, Group, Recv, Send
from harness.errors import ProgramError
from harness.rank import Rank
from real.rank._checks import CollectiveChecks
from real.rank._exchanges import start_exchange
from real.rank._headers import shortened
from real.rank._messages import NOTE_BYTES, MessageStreams, Note, compare_notes
from real.rank._receives import Receives
from real.rank._transport import Endpoint, Pending, Silence

UNHURRIED = "checkpoint"
"""The stage (`Rank.stage`) in which one rank's slow disk may keep the others waiting for longer than an exchange."""

_NOTES = 1  # tag of the notes before messages
_COMPLAINT_BYTES = 1400


class _Position(msgspec.Struct):
    """Where a rank has been blocked for a while: in a group's `number`-th collective, with the rolling hash `path`.

    `begun`: numbers of collectives of each of its groups that it has begun.
    """

    group: Group
    number: int
    path: bytes
    text: str
    begun: list[tuple[Group, int]]


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
        self.world = CollectiveChecks(endpoint.members, endpoint, rank)
        self.groups = {endpoint.members: self.world}
        self.messages, self.receives = MessageStreams.none(), Receives()
        self._latest: CollectiveChecks | None = None  # those of the last collective
        self.patience_s, self.startup_s = endpoint.patience_s, endpoint.startup_s
        self._since = time.monotonic()  # when the program reached its current effect
        endpoint.stuck = self.stuck

    def enter(self) -> None:
        """The program has reached its next effect: measure the waiting time from now on."""
        self._since = time.monotonic()
        patience_s = self.startup_s if self.rank.stage == UNHURRIED else self.patience_s
        for checks in self.groups.values():
            if checks.joined:
                checks.endpoint.patience_s = patience_s

    def collective(self, effect: Effect) -> Endpoint:
        """Check one collective before it begins, if a check is due; returns the end of its group's exchanges.

        Raises:
            ProgramError: another rank is in another effect, has returned, executed other collectives before, or
                has different row counts.
            Silence: the ranks of a new group did not meet.
        """
        members = effect.among or self.endpoint.members
        if members not in self.groups:
            self.groups[members] = CollectiveChecks(members, None, self.rank)
        self._latest = checks = self.groups[members]
        # While a checkpoint is written, ranks synchronise on the host first: the deadline there is ours, not NCCL's.
        checks.collective(effect, self.endpoint, self._thorough, self.rank.stage == UNHURRIED)
        return checks.endpoint

    def returned(self) -> None:
        """Check at the end that all ranks return, and have received what was sent. Raises as `collective` does."""
        for checks in (self.world, *(self.groups[g] for g in sorted(self.groups) if g != self.world.members)):
            self._latest = checks
            checks.returned()
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
                compare_notes(source, Note.unpack(note.result()), self.endpoint.rank, mine)

        behind = note is not None or self.receives.under_way(source)
        if started and behind:
            return self.receives.start(
                source, check, lambda: start_exchange(self.endpoint, effect), self.endpoint.patience
            )
        check()
        self.receives.settle(source)
        return start_exchange(self.endpoint, effect)

    def stuck(self) -> None:
        """Compare positions with other ranks through the store; called about once a second during a long wait.

        The next rank and the first one are enough: if any two ranks of a group disagree about one of its collectives,
        two of these do.

        Raises:
            ProgramError: another rank is in a collective where this one was in another effect, or waits in that of
                another group for this one, which waits for it.
            Silence: another rank is frozen, and the time that an exchange in an epoch may take is over.
        """
        late = time.monotonic() - self._since > self.patience_s
        if late and any(said.state == "stopped" for said in self.endpoint.words.heard().values()):
            raise Silence(f"had no answer within {self.patience_s:g} s")
        if self._latest is None:
            return
        mine, words = self._position(self._latest), self.endpoint.words
        words.post(msgspec.json.encode(mine))
        for members in {mine.group, self.world.members}:
            after = members[(members.index(self.rank.index) + 1) % len(members)]
            for peer in {members[0], after} - {self.rank.index}:
                posted = words.posted(peer)
                if posted is not None:
                    self._compare_positions(mine, peer, msgspec.json.decode(posted, type=_Position))

    def _position(self, checks: CollectiveChecks) -> _Position:
        last, begun = checks.journal.steps[-1], [(group, each.begun) for group, each in self.groups.items()]
        return _Position(checks.members, checks.begun - 1, last.path, last.effect.text or "its return", begun)

    def _compare_positions(self, mine: _Position, peer: int, theirs: _Position) -> None:
        """Raise ProgramError where another rank's position shows that the two wait for each other."""
        if self.rank.index not in theirs.group:
            return
        checks = self.groups.get(theirs.group)
        at = theirs.number - checks.journal.begun if checks is not None else 0
        here, text = "is", mine.text
        if checks is not None and at < len(checks.journal.steps):
            if at < 0 or checks.journal.steps[at].path == theirs.path:
                return
            here = "is" if at == len(checks.journal.steps) - 1 else "was"
            text = checks.journal.steps[at].effect.text or "its return"
        elif (
            theirs.group == mine.group or peer not in mine.group or dict(theirs.begun).get(mine.group, 0) > mine.number
        ):
            return
        raise ProgramError(
            f"ranks disagree: rank {peer} is in {theirs.text}, but rank {self.rank.index} {here} in {text}"
        )

    @property
    def _thorough(self) -> bool:
        return self.rank.debug or self.endpoint.clock.ended == 0
