"""Joins the process group that the environment describes, and leaves it.

The variables are torchrun's; our launcher sets the same. A run of one rank joins nothing. The ranks first meet in the
key-value store (`_assembly`), so that a rank that is slow to start, or runs something else, is named instead of a
timeout inside the library.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from harness.effects import Group
from harness.errors import HaloscopeError, InputError
from harness.machine import Terminated
from harness.trampoline import blame
from real.rank._assembly import Assembly, assemble
from real.rank._channel import Channel, join_members
from real.rank._device_waits import LATER_S
from real.rank._gloo_threads import schedule_gloo_threads
from real.rank.health import LastWords, RankLost, follow_launcher
from real.rank.place import Activity

STARTUP_S = 300.0
"""How long ranks may take to find each other, and each exchange before the first epoch or beside a checkpoint."""

PREPARE_S = 3600.0
"""How long the first rank of a machine may take to load and partition a graph, by default."""

SHARING = "HALOSCOPE_NCCL_SHARES_GPUS"
"""Variable that lets ranks share a GPU over NCCL, for tests; with it every rank needs an NCCL_HOSTID of its own."""

RECORDER_VARIABLES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""How many collectives torch's flight recorder keeps; the second name is that of older versions."""

LEAVE_S = 10.0
"""How long a rank may take to leave the process group at the end; after that it exits without leaving."""


@dataclass(frozen=True, eq=False)
class Connection:
    """This process's place in a run.

    Attributes:
        rank, size: which rank of how many.
        device: the device of its tensors.
        backend: `gloo`, `nccl`, or `none` for a run of one rank.
        timeout_s, startup_s: seconds one exchange may take, in an epoch and before the first one.
        prepare_s: seconds the first rank of a machine may take to load and partition the graph.
        words: how ranks learn of each other's failures.
        activity: this rank's current activity, for its launcher.
        assembly: the ranks in the run's key-value store; None for a run of one rank.
        group: the process group of payloads; None is the default one, which always takes host tensors over gloo.
        beside: that of exchanges which a second thread starts; None as well is the default one.
        host: index of this process's machine in the run.
        batched: messages between two ranks go in batches (`_meetings`), as they have to over NCCL.
        joined: group of ranks -> its channels for checks and for payloads, once this rank has used it.
        pairs: the channels of batches.
        programs: numbers the programs of this process, as on all ranks.
    """

    rank: int
    size: int
    device: torch.device
    backend: str
    timeout_s: float
    startup_s: float
    prepare_s: float
    words: LastWords
    activity: Activity
    assembly: Assembly | None
    group: dist.ProcessGroup | None
    beside: dist.ProcessGroup | None
    host: int
    batched: bool = False
    joined: dict[Group, tuple[Channel, Channel]] = field(default_factory=dict)
    pairs: list[Channel] = field(default_factory=list)
    programs: Iterator[int] = field(default_factory=count)

    @property
    def store(self) -> Store | None:
        """The run's key-value store; None for a run of one rank."""
        return None if self.assembly is None else self.assembly.store

    def agree_on_data(self, facts: Mapping[str, str]) -> None:
        """Compare what all ranks have prepared, once all have: some hosts may have had it, others not.

        Args:
            facts: see `Assembly.agree`.

        Raises:
            InputError: the ranks' data differ; names what, and the ranks.
            RankLost: another rank failed meanwhile, or had not prepared its data within `prepare_s`.
        """
        if self.assembly is not None:
            late = "had not prepared its data within {:g} s; raise --prepare-timeout"
            self.assembly.agree("data", facts, self.prepare_s, late)

    @contextmanager
    def host_by_host(self) -> Iterator[None]:
        """Let the first rank of every machine through the `with` alone, then the others: it fills their cache.

        Raises:
            RankLost: another rank failed meanwhile, or the first rank of this machine took longer than `prepare_s`.
        """
        key = f"prepared/{self.host}"
        first = _number(os.environ, "LOCAL_RANK", self.rank) == 0
        self.activity.before("preparation of the data" if first else "the wait for the data")
        if self.assembly is not None and not first and not self.assembly.wait([key], self.prepare_s):
            late = f"the data were not ready within {self.prepare_s:g} s; raise --prepare-timeout"
            raise RankLost(f"rank {self.rank}: {late}")
        self.activity.before("preparation of the data")
        yield
        if self.store is not None and first:
            self.store.set(key, "done")

    def join(self, group: Group) -> tuple[Channel, Channel]:
        """The channels of a group for host tensors and for payloads; all its members must be about to call this."""
        if group not in self.joined:
            assert self.store is not None
            store = PrefixStore(members_key(group), self.store)
            limit = timedelta(seconds=max(self.timeout_s, self.startup_s))
            host = payload = join_members("gloo", PrefixStore("gloo", store), group, self.rank, limit)
            if self.backend != "gloo":
                limit += timedelta(seconds=LATER_S)
                payload = join_members(self.backend, PrefixStore(self.backend, store), group, self.rank, limit)
            self.joined[group] = host, payload
        return self.joined[group]

    def join_pair(self, peer: int, number: int) -> Channel:
        """The channel of the batches of this rank and another, which must be about to call this.

        Args:
            number: of the program. A program has channels of its own: what one that failed has begun stays on its own.
        """
        assert self.store is not None
        low, high = sorted((self.rank, peer))
        store = PrefixStore(f"messages/{number}/{low}-{high}", self.store.clone())  # type: ignore[attr-defined]
        limit = timedelta(seconds=max(self.timeout_s, self.startup_s) + (0 if self.backend == "gloo" else LATER_S))
        channel = join_members(self.backend, store, (low, high), self.rank, limit)
        self.pairs.append(channel)
        return channel


def members_key(group: Group) -> str:
    """Where a group of ranks meets in the key-value store."""
    return f"members/{'-'.join(map(str, group))}"


@contextmanager
def connect(
    *,
    device: str = "cpu",
    backend: str = "auto",
    timeout_s: float = 60.0,
    startup_s: float = STARTUP_S,
    prepare_s: float = PREPARE_S,
    batched: bool | None = None,
    facts: Mapping[str, str] | None = None,
) -> Iterator[Connection]:
    """Join the run that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe; leave it at the end.

    Args:
        backend: `auto` is NCCL where every rank of the run has a GPU of its own, and gloo elsewhere.
        batched: see `Connection`; None: over NCCL, where it cannot be False.
        facts: name -> value of whatever must be equal on all ranks, which is compared before anything else.

    SIGTERM that follows the failure of another rank, as an agent of torchrun sends it, is raised as that failure.
    After an error the group is not destroyed: that would wait for exchanges in flight, which never complete with a dead
    or frozen rank. End the process with `real.rank.health.end_process`, which closes its connections.

    Raises:
        InputError: a variable is missing or malformed, there is no such device or backend, on this rank or another, or
            the ranks do not run the same.
        RankLost: not all ranks joined within `startup_s`, or another rank had failed when SIGTERM ended this one.
    """
    follows, env = follow_launcher(), os.environ
    activity, launched = Activity(follows), follows is not None
    activity.before("start-up")
    size, rank, host = _number(env, "WORLD_SIZE", 1), _number(env, "RANK", 0), _number(env, "GROUP_RANK", 0)
    limits = (timeout_s, startup_s, prepare_s)
    if size == 1:
        place = _device(device, _number(env, "LOCAL_RANK", rank))
        none = LastWords(None, rank, size)
        yield Connection(rank, size, place, "none", *limits, none, activity, None, None, None, host)
        return
    asked = {"--device": device, "--backend": backend, **(facts or {})}
    assembly, place, backend = _meet(env, rank, size, device, backend, asked, startup_s, launched)
    words = assembly.words
    try:
        assembly.beat()
        groups = _join_groups(backend, PrefixStore("group", assembly.store), rank, size, timeout_s, startup_s)
        in_batches = backend == "nccl" or bool(batched)
        connection = Connection(
            rank, size, place, backend, *limits, words, activity, assembly, *groups, host, in_batches
        )
        yield connection
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):  # a signal, to this rank or to all: no failure of a rank
            how = "was ended by SIGTERM" if isinstance(error, Terminated) else "was interrupted"
            words.leave("lost", how)
            if isinstance(error, Terminated) and (culprit := words.hindrance()) is not None:
                raise RankLost(f"{culprit} (rank {rank} {how})", culprit.kind) from error
        elif not isinstance(error, RankLost):
            words.leave("failed", blame(error), type(error).__name__)
        raise
    activity.before("shutdown")
    _leave(connection)


def _leave(connection: Connection) -> None:
    """Leave all process groups, in limited time: a rank that does not respond must not block this one at its end."""

    def leave() -> None:
        for channels in connection.joined.values():
            for channel in dict.fromkeys(channels):
                channel.group.shutdown()
        for channel in connection.pairs:
            channel.group.shutdown()
        dist.destroy_process_group()

    thread = threading.Thread(target=leave, daemon=True, name="shutdown")
    thread.start()
    thread.join(LEAVE_S)


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name)
    if text is None:
        return default
    if not text.isdigit():
        raise InputError(f"environment variable {name} is {text!r}; it must be a number, as torchrun sets it")
    return int(text)


def _device(name: str, local_rank: int) -> torch.device:
    """The device of a rank; several ranks share a GPU where there are fewer."""
    if name == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise InputError(f"device {name}: no usable GPU on {socket.gethostname()}; use --device cpu")
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def _backend(name: str, device: torch.device) -> str:
    """The backend for payloads that this rank can have, if no other rank has its GPU."""
    if name == "auto":
        return "nccl" if device.type == "cuda" and dist.is_nccl_available() else "gloo"
    if name == "nccl" and device.type != "cuda":
        raise InputError("backend nccl needs --device cuda; use --backend gloo on CPUs")
    return name


def _gpu(name: str, device: torch.device) -> str:
    """The GPU of a rank, which NCCL refuses where two ranks have the same one; empty where that is no question.

    Numbers of devices do not tell: a rank may see its own GPU only, as number 0, or all of its machine.
    """
    if device.type != "cuda" or (name == "nccl" and SHARING in os.environ):
        return ""
    return str(torch.cuda.get_device_properties(device).uuid)


def _meet(
    env: Mapping[str, str],
    rank: int,
    size: int,
    device: str,
    backend: str,
    facts: Mapping[str, str],
    startup_s: float,
    launched: bool,
) -> tuple[Assembly, torch.device, str]:
    """The ranks of the run, once all have come and agreed, this rank's device, and the backend.

    Args:
        launched: by haloscope's launcher, which makes a new store for each attempt and writes in it too.
    """
    host, port = env.get("MASTER_ADDR"), _number(env, "MASTER_PORT", 0)
    if not host or not port:
        raise InputError("MASTER_ADDR and MASTER_PORT are not set: start the ranks with torchrun, or with --mode real")
    hosted = env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # by torchrun's agent or our launcher
    place, offer, gpu, refusal = torch.device("cpu"), "", "", None
    try:
        place = _device(device, _number(env, "LOCAL_RANK", rank))
        offer, gpu = _backend(backend, place), _gpu(backend, place)
    except InputError as error:  # the others are told, and do not wait for this rank
        refusal = error
    limit = timedelta(seconds=startup_s)
    try:
        tcp = TCPStore(host, port, size, rank == 0 and not hosted, limit, wait_for_workers=False)
        assembly, backend = assemble(
            PrefixStore("haloscope", tcp), rank, size, facts,
            backend=offer, gpu=gpu, error=str(refusal or ""), limit_s=startup_s, hosted=hosted,
            rounds=hosted and not launched,
        )  # fmt: skip
    except RuntimeError as error:
        raise HaloscopeError(f"rank {rank}: no store at {host}:{port}: {str(error).splitlines()[0]}") from error
    except RankLost:
        if refusal is not None:
            raise refusal from None
        raise
    return assembly, place, backend


def _join_groups(
    backend: str, store: Store, rank: int, size: int, timeout_s: float, startup_s: float
) -> tuple[dist.ProcessGroup | None, dist.ProcessGroup | None]:
    """Join the default group, of gloo; returns the groups of payloads where those are others, else None.

    Over NCCL the second thread of a rank has a communicator of its own, which is made when it is first used.

    The default group's own deadline is the longest that anything may take; `Endpoint` waits shorter. Waits on the
    device are ended by `_device_waits`, or long after by NCCL's watchdog.
    """
    _without_recorder()
    limit = timedelta(seconds=max(timeout_s, startup_s))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)
    schedule_gloo_threads()
    if backend == "gloo":
        return None, None
    limit += timedelta(seconds=LATER_S)
    return dist.new_group(backend=backend, timeout=limit), dist.new_group(backend=backend, timeout=limit)


def _without_recorder() -> None:
    """Switch off torch's flight recorder, unless somebody has asked for it; call it before there is a group.

    It keeps the Python stack of every collective, of the last 2,000: memory and time of each epoch for what the journal
    of this package says in fewer bytes. It reads its variable once, when the first group is made.
    """
    if not any(name in os.environ for name in RECORDER_VARIABLES):
        os.environ[RECORDER_VARIABLES[0]] = "0"
