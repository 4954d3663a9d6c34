"""How the ranks of a run find each other in its key-value store, and compare what they are about to run.

Rank 0 collects what every rank has to say, compares it with its own and publishes one verdict, so that the reads of the
store grow with the number of ranks and not with its square. A store of torchrun's outlives an attempt of the run, and
the agents of its hosts count restarts on their own: rank 0 therefore draws a random name for every attempt, under which
all keys of the attempt are, and the verdict repeats a number that each rank has drawn, so that no rank takes one of an
earlier attempt for its own.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import msgspec
import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from harness.errors import InputError
from real.rank.health import LISTEN_S, LastWords, RankLost, present

LOOK_S = 1.0
"""How often a rank that waits for others to start checks whether one has failed."""

RENEW_S = 0.25
"""How often a rank that waits for its first verdict checks whether rank 0 has begun another attempt."""

MOST_DIFFERENCES = 8
"""How many settings a verdict names."""


class _Arrival(msgspec.Struct):
    """What a rank tells rank 0."""

    token: str  # drawn at random
    host: str
    facts: dict[str, str]
    backend: str = ""
    gpu: str = ""  # its UUID
    error: str = ""  # why it cannot run


class _Verdict(msgspec.Struct):
    """What rank 0 tells all ranks.

    Attributes:
        tokens: of all ranks, in rank order.
        backend: the one that all of them have.
        error: why the run cannot begin; empty where it can.
        lost: ranks that did not come in time.
    """

    tokens: list[str] = []
    backend: str = ""
    error: str = ""
    lost: list[int] = []


@dataclass(frozen=True, eq=False)
class Assembly:
    """The ranks of one attempt of a run.

    Attributes:
        store: the keys of this attempt.
        words: how its ranks learn of each other's failures.
        hosted: the store is in another process than rank 0.
    """

    store: Store
    words: LastWords
    rank: int
    size: int
    hosted: bool

    def beat(self) -> None:
        """From now on show the others that this process runs (`LastWords.beat`)."""
        self.words.beat(PrefixStore("words", self.store.clone()))  # type: ignore[attr-defined]  # not in torch's stubs

    def agree(self, what: str, facts: Mapping[str, str], limit_s: float, late: str) -> None:
        """Compare facts of all ranks; blocks until all have called this.

        Args:
            what: name of the comparison; each is made once.
            facts: name -> value, equal on all ranks where all is well.
            limit_s: seconds that ranks wait for each other.
            late: continues "rank 3 ..." for a rank that did not come in time.

        Raises:
            InputError: the ranks differ; names the facts, the ranks and their values.
            RankLost: a rank failed, or did not come in time.
        """
        self._announce(what, _Arrival("", socket.gethostname(), dict(facts)))
        if self.rank == 0:
            self._decide(what, limit_s)
        verdict = self._verdict(what) if self.wait([f"{what}/verdict"], limit_s + LISTEN_S) else None
        self._accept(what, verdict, late.format(limit_s))

    def _announce(self, what: str, arrival: _Arrival) -> None:
        self.store.set(f"{what}/rank/{self.rank}", msgspec.json.encode(arrival).decode())

    def _verdict(self, what: str) -> _Verdict:
        return msgspec.json.decode(self.store.get(f"{what}/verdict"), type=_Verdict)

    def _decide(self, what: str, limit_s: float) -> None:
        """Publish what follows from what all ranks say. On rank 0."""
        keys = [f"{what}/rank/{rank}" for rank in range(self.size)]
        complete = self.wait(keys, limit_s)
        found = present(self.store, keys)
        said = {key: msgspec.json.decode(text, type=_Arrival) for key, text in found.items()}
        if complete:
            verdict = compared([said[key] for key in keys])
        else:
            tokens = [said[key].token if key in said else "" for key in keys]
            verdict = _Verdict(tokens, lost=[rank for rank, key in enumerate(keys) if key not in said])
        self.store.set(f"{what}/verdict", msgspec.json.encode(verdict).decode())

    def _missing(self, what: str) -> list[int]:
        keys = [f"{what}/rank/{rank}" for rank in range(self.size)]
        found = present(self.store, keys)
        return [rank for rank, key in enumerate(keys) if key not in found]

    def _accept(self, what: str, verdict: _Verdict | None, late: str) -> None:
        """Raise the error of a verdict, if it has one; None: there was none in time."""
        lost = (self._missing(what) or [0]) if verdict is None else verdict.lost
        if verdict is not None and (verdict.error or lost) and not self.hosted:
            self._let_others_read(what)
        if lost:
            raise RankLost(f"rank {self.rank}: rank {', '.join(map(str, lost))} {late}")
        if verdict is not None and verdict.error:
            raise InputError(verdict.error)

    def _let_others_read(self, what: str) -> None:
        """Keep the store, which ends with this process on rank 0, until others have read the verdict; not for long."""
        deadline = time.monotonic() + LISTEN_S
        with suppress(RuntimeError):
            self.store.add(f"{what}/read", 1)
            while self.rank == 0 and time.monotonic() < deadline and self.store.add(f"{what}/read", 0) < self.size:
                time.sleep(0.05)

    def wait(self, keys: Sequence[str], limit_s: float) -> bool:
        """Wait for keys of the store; False when the time is over.

        Raises:
            RankLost: a rank has failed, or the store does not respond.
        """
        deadline = time.monotonic() + limit_s
        while True:
            remaining = deadline - time.monotonic()
            try:
                self.store.wait(list(keys), timedelta(seconds=max(0.001, min(LOOK_S, remaining))))
                return True
            except RuntimeError as error:
                if self.words.hindrance() is not None or self.words.deaf:
                    raise self.words.explain("waited for the others to start") from error
                if remaining <= LOOK_S:
                    return False


def assemble(
    store: Store,
    rank: int,
    size: int,
    facts: Mapping[str, str],
    *,
    backend: str = "",
    gpu: str = "",
    error: str = "",
    limit_s: float,
    hosted: bool,
    rounds: bool,
) -> tuple[Assembly, str]:
    """Meet the other ranks in a store and compare what they run; returns them, and the backend that all have.

    Args:
        facts: as `Assembly.agree`.
        backend: `nccl` where this rank can use it, else `gloo`.
        gpu: which GPU this rank has; ranks that have the same one use gloo, or are refused where NCCL was asked for.
        error: why this rank cannot run, if it cannot: the other ranks then need not wait for it.
        hosted: the store is in another process than rank 0.
        rounds: the store may have keys of an earlier attempt of the run.

    Raises:
        InputError: the ranks differ, or one has an error.
        RankLost: a rank failed, or did not come within `limit_s`.
    """
    arrival = _Arrival(secrets.token_hex(4), socket.gethostname(), dict(facts), backend, gpu, error)
    late = f"did not come within {limit_s:g} s"
    if not rounds or rank == 0:
        name = secrets.token_hex(8) if rounds else "0"
        found = _assembly(store, name, rank, size, hosted)
        found._announce("start", arrival)
        if rank == 0:
            if rounds:
                store.set("round", name)
            found._decide("start", limit_s)
        verdict = found._verdict("start") if found.wait(["start/verdict"], limit_s + LISTEN_S) else None
    else:
        found, verdict = _follow(store, rank, size, arrival, limit_s + LISTEN_S)
    found._accept("start", verdict, late)
    assert verdict is not None
    return found, verdict.backend


def _assembly(store: Store, name: str, rank: int, size: int, hosted: bool) -> Assembly:
    store = PrefixStore(name, store)
    words = LastWords(PrefixStore("words", store), rank, size, None if hosted else 0)
    return Assembly(store, words, rank, size, hosted)


def _follow(store: Store, rank: int, size: int, arrival: _Arrival, limit_s: float) -> tuple[Assembly, _Verdict | None]:
    """Join the attempt that rank 0 has begun last, until one of its verdicts has this rank's token.

    What ranks of an earlier attempt have left says nothing about this one, so that failures are not looked for.
    """
    deadline, joined = time.monotonic() + limit_s, ""
    found = _assembly(store, "none", rank, size, hosted=True)
    while time.monotonic() < deadline:
        with suppress(dist.DistStoreError):  # a key is not there in time
            store.wait(["round"], timedelta(seconds=RENEW_S))
            name = store.get("round").decode()
            if name != joined:
                found, joined = _assembly(store, name, rank, size, hosted=True), name
                found._announce("start", arrival)
            found.store.wait(["start/verdict"], timedelta(seconds=RENEW_S))
            verdict = found._verdict("start")
            if verdict.tokens[rank] == arrival.token:
                return found, verdict
            time.sleep(RENEW_S)  # of an earlier attempt, or taken by a process that was this rank in an earlier one
    return found, None


def compared(said: Sequence[_Arrival]) -> _Verdict:
    """The verdict on what all ranks say, in rank order."""
    tokens = [arrival.token for arrival in said]
    failed = [rank for rank, arrival in enumerate(said) if arrival.error]
    if failed:
        return _Verdict(tokens, error=f"rank {failed[0]} on {said[failed[0]].host}: {said[failed[0]].error}")
    names = dict.fromkeys(name for arrival in said for name in arrival.facts)
    differ = [name for name in names if len({arrival.facts.get(name) for arrival in said}) > 1]
    if differ:
        shown = [_difference(name, said) for name in differ[:MOST_DIFFERENCES]]
        more = [f"{len(differ) - len(shown)} more"] if len(differ) > len(shown) else []
        return _Verdict(tokens, error=f"the ranks do not run the same: {'; '.join([*shown, *more])}")
    gpus = [arrival.gpu for arrival in said if arrival.gpu]
    shared = len(set(gpus)) < len(gpus)
    if shared and said[0].facts.get("--backend") == "nccl":
        why = "backend nccl: two ranks have the same GPU; use --backend gloo, or as many GPUs as ranks"
        return _Verdict(tokens, error=why)
    return _Verdict(tokens, "nccl" if not shared and all(arrival.backend == "nccl" for arrival in said) else "gloo")


def _difference(name: str, said: Sequence[_Arrival]) -> str:
    """One fact: the value of rank 0, and that of the first rank with the most frequent other value."""
    values = [arrival.facts.get(name, "not given") for arrival in said]
    other, count = Counter(value for value in values if value != values[0]).most_common(1)[0]
    rank = values.index(other)
    more = f" and {count - 1} more" if count > 1 else ""
    return f"{name} is {values[0]} on rank 0 ({said[0].host}) and {other} on rank {rank} ({said[rank].host}){more}"
