"""Last words: the message that a rank leaves for the other ranks and its launcher when it stops, with the reason.

A rank that fails writes one line to the run's key-value store before it exits. A surviving rank that loses a
connection or waits too long reads the store and names the rank at fault. For a rank that was killed or stopped by a
signal its launcher, which sees that at once, writes the line. Nothing here communicates between healthy ranks, and no
call into the store is trusted to return: its host may be the rank that died.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Literal, NoReturn, TypeVar

import msgspec
from torch.distributed import Store  # type: ignore[attr-defined]

from harness.errors import HaloscopeError

LISTEN_S = 2.0
"""How long a surviving rank waits for the last words of the others."""

BEAT_S = 0.5
"""How often a rank counts up in the store; several times while others listen."""

ERROR_PREFIX = "haloscope: error: "
"""Prefix of the one line that a failing rank writes to stderr; the launcher raises it instead of printing it."""

LAUNCHER_VARIABLE = "HALOSCOPE_LAUNCHER"
"""Set for ranks whose standard input is a pipe that closes when their launcher ends; names the rank's `place` file."""

COUNTER = "last-words-left"
"""Key of the store: how many last words have been left."""

SHARED = ("killed", "stopped", "failed")
"""Keys of the first last words of each of these states, which every waiting rank reads; a rank that was killed has also
failed."""

State = Literal["failed", "lost", "returned", "killed", "stopped"]

T = TypeVar("T")


class RankLost(HaloscopeError):
    """Another rank failed, died, froze or returned; the message names it.

    Attributes:
        kind: the class name of that rank's error; empty where it left none.
    """

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class Words(msgspec.Struct, frozen=True):
    """The last words of a rank in the store, written by itself or by its launcher.

    `failed`: an error of its own; `lost`: it gave up waiting for others in `text`; `returned`: its program ended;
    `killed`, `stopped`: what its launcher saw.
    """

    rank: int
    state: State
    text: str
    kind: str = ""  # class name of the error
    order: int = 0  # the store counts last words, so that the first is known whatever the clocks of hosts say

    def __str__(self) -> str:
        if self.state == "returned":
            return f"rank {self.rank} has returned"
        return f"rank {self.rank} failed: {self.text}" if self.state == "failed" else f"rank {self.rank} {self.text}"

    @property
    def culprit(self) -> bool:
        """Whether this rank is to blame for what others lost."""
        return self.state in ("failed", "killed", "stopped")


class LastWords:
    """Writes one rank's last words and reads those of others; does nothing without a store (a run of one rank).

    Args:
        host: the rank whose process keeps the store; None where that is a launcher's or an agent's.

    Attributes:
        deaf: the store is gone, or did not respond in time; it is not used again.
    """

    def __init__(self, store: Store | None, rank: int, size: int, host: int | None = None) -> None:
        self.rank, self.size, self.host = rank, size, host
        self._store = store
        self.deaf = False
        self._programs = 0

    def beat(self, store: Store, every_s: float = BEAT_S) -> None:
        """From now on count up in the store, in a thread: others see so that this process runs.

        Args:
            store: a connection of the thread's own, since a call on a shared one waits for the others.
        """

        def count() -> None:
            number = 0
            try:
                while True:
                    store.set(f"beat/{self.rank}", str(number))
                    number += 1
                    time.sleep(every_s)
            except RuntimeError:
                pass  # the store is gone; who needs it says so

        threading.Thread(target=count, daemon=True, name="heartbeat").start()

    def beats(self, ranks: Collection[int]) -> dict[int, bytes]:
        """How far other ranks have counted, of those that do."""

        def read(store: Store) -> dict[int, bytes]:
            found = present(store, [f"beat/{rank}" for rank in ranks])
            return {rank: found[f"beat/{rank}"] for rank in ranks if f"beat/{rank}" in found}

        return self._ask(read) or {}

    def leave(self, state: State, text: str, kind: str = "") -> None:
        """Write this rank's last words; never raises, and takes two seconds at most."""
        self._ask(lambda store: leave_words(store, Words(self.rank, state, " ".join(text.split()), kind)))

    def withdraw(self) -> None:
        """Withdraw this rank's last words of an earlier program: it begins another."""
        self._programs += 1
        self._ask(lambda store: store.delete_key(_key(self.rank)))

    def post(self, position: bytes) -> None:
        """Publish where this rank is blocked, as encoded by `_agreement`."""
        self._ask(lambda store: store.set(f"position/{self._programs}/{self.rank}", position.decode()))

    def posted(self, rank: int) -> bytes | None:
        """Where another rank is or was blocked in this program; None when it never was."""
        key = f"position/{self._programs}/{rank}"
        return self._ask(lambda store: store.get(key) if store.check([key]) else None)

    def failure(self) -> Words | None:
        """The first failure of the run, if it is another rank's; reads the store once and does not wait."""
        words = self._ask(lambda store: read_words(store, "failed"))
        return words if words is not None and words.rank != self.rank else None

    def hindrance(self) -> Words | None:
        """Another rank that was killed or is stopped by a signal, or else that failed first.

        Reads three keys of the store, however many ranks there are, and does not wait.
        """
        said = self._ask(lambda store: [read_words(store, state) for state in SHARED]) or []
        found = {words.rank: words for words in reversed(said) if words is not None and words.rank != self.rank}
        return next(iter(_culprits(found)), None)

    def heard(self) -> dict[int, Words]:
        """The last words of every other rank that has left some."""
        keys = [_key(r) for r in range(self.size) if r != self.rank]
        found = self._ask(lambda store: present(store, keys)) or {}
        said = [msgspec.json.decode(line, type=Words) for line in found.values()]
        return {words.rank: words for words in said}

    def explain(self, reason: str) -> RankLost:
        """An error for this rank's `reason` ("waits in ...: connection closed") that names the rank at fault.

        Leaves the reason as this rank's own last words, then reads those of the others until one of them has failed,
        all have left some, or two seconds are over.
        """
        self.leave("lost", reason)
        others, deadline = [r for r in range(self.size) if r != self.rank], time.monotonic() + LISTEN_S
        culprit = self.hindrance()
        before = self.beats(others) if culprit is None else {}
        while culprit is None and time.monotonic() < deadline and not self.deaf:
            left = self._ask(lambda store: store.add(COUNTER, 0))
            if left is not None and left >= self.size and len(self.heard()) == self.size - 1:
                break
            time.sleep(0.05)
            culprit = self.hindrance()
        if culprit is not None:
            return RankLost(f"{culprit} (rank {self.rank} {reason})", culprit.kind)
        heard = self.heard()
        said = [f"rank {self.rank} {reason}", *(str(heard[r]) for r in sorted(heard))]
        if self.deaf:
            keeper = f"rank {self.host}, which keeps it" if self.host is not None else "the process that keeps it"
            return RankLost("; ".join([*said, f"the key-value store does not respond: {keeper}, is dead or frozen"]))
        now = self.beats(others)
        missing = [r for r in others if r not in heard]
        running = [r for r in missing if r in before and now.get(r, before[r]) != before[r]]
        said += _of_ranks([r for r in missing if r not in running], "dead or frozen, without last words")
        said += _of_ranks(running, "running, but not in that exchange")
        return RankLost("; ".join(said))

    def _ask(self, question: Callable[[Store], T]) -> T | None:
        """The result of a call on the store; None if it does not respond in time, and then it is not used again."""
        store = self._store
        if store is None:
            return None
        responses: list[T] = []

        def ask() -> None:
            try:
                responses.append(question(store))
            except (RuntimeError, msgspec.DecodeError):
                self._store, self.deaf = None, True

        thread = threading.Thread(target=ask, daemon=True, name="last-words")
        thread.start()
        thread.join(LISTEN_S)
        if thread.is_alive():
            self._store, self.deaf = None, True
        return responses[0] if responses else None


def _of_ranks(ranks: Sequence[int], what: str) -> list[str]:
    names = ", ".join(map(str, ranks))
    return [f"ranks {names} are {what}" if len(ranks) > 1 else f"rank {names} is {what}"] if ranks else []


def leave_words(store: Store, words: Words) -> None:
    """Write last words under their rank; those of the first failure also under the key that waiting ranks read."""
    words = msgspec.structs.replace(words, order=store.add(COUNTER, 1))
    line = msgspec.json.encode(words).decode()
    store.set(_key(words.rank), line)
    if words.state in ("failed", "killed"):
        store.compare_set(_key("failed"), "", line)
    if words.state in ("killed", "stopped"):
        store.compare_set(_key(words.state), "", line)


def withdraw_words(store: Store, rank: int) -> None:
    """Withdraw those of a rank that a signal had stopped, and that goes on."""
    store.delete_key(_key(rank))
    shared = read_words(store, "stopped")
    if shared is not None and shared.rank == rank:
        store.delete_key(_key("stopped"))


def present(store: Store, keys: Sequence[str]) -> dict[str, bytes]:
    """The values of those keys that are in the store, in few calls where few are missing."""
    if not keys:
        return {}
    if store.check(list(keys)):
        return dict(zip(keys, store.multi_get(list(keys)), strict=True))
    middle = len(keys) // 2
    return present(store, keys[:middle]) | present(store, keys[middle:]) if middle else {}


def read_words(store: Store, who: int | str) -> Words | None:
    """The last words of rank `who`, or of whoever failed first (`"failed"`); None when there are none."""
    key = _key(who)
    return msgspec.json.decode(store.get(key), type=Words) if store.check([key]) else None


def _key(who: int | str) -> str:
    return f"last-words/{who}"


def _culprits(heard: dict[int, Words]) -> list[Words]:
    """Words of the ranks at fault, not of those that only lost others: signals before errors, then in their order."""
    return sorted((w for w in heard.values() if w.culprit), key=lambda w: (w.state == "failed", w.order))


def raised_at(error: BaseException) -> str:
    """`file:line` of the innermost frame outside installed packages, for an error that left a rank program."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "site-packages" not in f.filename and not f.filename.startswith("<")]
    frame = (own or frames or [traceback.FrameSummary("?", 0, "?")])[-1]
    return f"{frame.filename}:{frame.lineno}"


def follow_launcher() -> Path | None:
    """End this process when its launcher ends, in whatever way; returns the file of this rank's `real.rank.place`.

    Does nothing and returns None without a launcher.
    """
    file = os.environ.pop(LAUNCHER_VARIABLE, None)
    if file is None:
        return None

    def watch() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="follow-launcher").start()
    return Path(file)


def refuse_sigterm() -> None:
    """Ignore SIGTERM from now on: this process is about to leave its last words and end.

    torchrun's agent sends it to all ranks a moment after one has died, before they can find out which.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def end_process(code: int) -> NoReturn:
    """End a rank at once: an orderly exit would wait for exchanges in flight, which a lost rank never completes."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
