"""The interface of a rank to its program: index, communication, clock, traffic and random keys.

Drivers make one `Rank` per rank and interpret the effects that its methods build. A rank holds no model and no graph.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor

from harness.effects import (
    AllReduce,
    AllToAll,
    Background,
    Broadcast,
    Component,
    Conversion,
    Direction,
    Effect,
    Group,
    Handle,
    HostCopy,
    Recv,
    Rows,
    Send,
    Site,
    Start,
    Tag,
    Wait,
    in_words,
)
from harness.errors import InputError, ProgramError
from harness.traffic import Traffic

COMPONENTS: tuple[str, ...] = get_args(Component)
"""The components of an epoch, in the order of tables."""

# Frames of these files are not the method author's: messages name the innermost line outside them.
_HERE = Path(__file__).parent
_SEAM = frozenset(
    str(path)
    for path in (
        *(_HERE / name for name in ("rank.py", "tape.py", "effects.py", "trampoline.py")),
        *(_HERE / "exchanges").glob("*.py"),
    )
)

E = TypeVar("E", bound=Effect)


class Clock(Protocol):
    """One rank's time, as its driver measures or models it. Seconds."""

    def begin_epoch(self) -> None: ...

    def end_epoch(self) -> dict[str, float]:
        """Seconds of this rank's epoch: COMPONENTS, `hidden` and `epoch`; empty for a driver without time."""
        ...

    def span(self, kind: Component) -> AbstractContextManager[None]:
        """Count the compute inside under `kind` instead of compute; `Rank.span` has checked it."""
        ...

    def pause(self, paused: bool) -> None:
        """Nothing is counted while paused (evaluation)."""
        ...

    def peak_memory(self) -> int:
        """Peak bytes of this rank since the start, 0 when unknown."""
        ...


class NoClock:
    """The clock of a driver without time (loopback)."""

    def begin_epoch(self) -> None:
        """Does nothing."""

    def end_epoch(self) -> dict[str, float]:
        """Empty: there are no seconds."""
        return {}

    def span(self, kind: Component) -> AbstractContextManager[None]:
        """Counts nothing."""
        return nullcontext()

    def pause(self, paused: bool) -> None:
        """Does nothing."""

    def peak_memory(self) -> int:
        """0: unknown."""
        return 0


class Rank:
    """One rank of `size`. Builds effects (await them), derives random keys, counts traffic and time.

    Args:
        index, size: this rank's number, and how many there are.
        seed: root of every random stream.
        device: of its tensors; `meta` where they have shapes only.
        clock: the driver's clock for this rank.
        deterministic: all-reduce adds in rank order.
        debug: also check that started tensors are not written to.

    Attributes:
        rates: recorded ratios by name, for `rate`.
        paused, stage: whether time and bytes are not counted now, and the name of that activity; empty in an epoch.
        drawn: what each key of the epoch was drawn for (the arguments of `key`), while an epoch is recorded; else None.
    """

    def __init__(
        self,
        index: int,
        size: int,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
        clock: Clock | None = None,
        deterministic: bool = True,
        debug: bool = True,
    ) -> None:
        self.index, self.size, self.seed = index, size, seed
        self.device = torch.device(device)
        self.clock: Clock = clock or NoClock()
        self.deterministic, self.debug = deterministic, debug
        self.epoch = 0
        self.traffic = Traffic(size)
        self.rates: Mapping[str, float] = {}
        self.paused, self.stage = False, ""
        self.drawn: dict[int, tuple[str, int, bool]] | None = None
        self._observed: dict[str, list[float]] = {}
        self._built: Effect | None = None

    @property
    def shapes_only(self) -> bool:
        """Whether tensors carry shapes but no numbers."""
        return self.device.type == "meta"

    # -- effects ---------------------------------------------------------------------------------------------------

    def all_to_all(
        self, parts: Sequence[Rows], *, label: str, direction: Direction = "other", layer: int = -1
    ) -> AllToAll:
        """Rows to and from every rank; see `Rows`. Raises ProgramError when the counts do not fit the tensors."""
        self._check_counts(parts, label)
        return self._build(AllToAll(tag=self._tag(label, direction, layer), site=_caller(), parts=tuple(parts)))

    def all_reduce(
        self,
        tensor: Tensor,
        *,
        label: str,
        direction: Direction = "reduce",
        layer: int = -1,
        group: Sequence[int] | None = None,
    ) -> AllReduce:
        """The sum of `tensor` over all ranks, or over those of a group, this one among them (see `Collective`)."""
        tag, among = self._tag(label, direction, layer), self._group(group, label)
        effect = AllReduce(tag=tag, site=_caller(), tensor=tensor, deterministic=self.deterministic, group=among)
        return self._build(effect)

    def broadcast(
        self,
        tensor: Tensor,
        *,
        root: int,
        label: str,
        direction: Direction = "other",
        layer: int = -1,
        group: Sequence[int] | None = None,
    ) -> Broadcast:
        """The root's tensor on every rank, or on those of a group, this one and the root among them."""
        tag, among = self._tag(label, direction, layer), self._group(group, label, root)
        return self._build(Broadcast(tag=tag, site=_caller(), tensor=tensor, root=root, group=among))

    def send(self, tensor: Tensor, *, to: int, label: str, direction: Direction = "other") -> Send:
        """A tensor to one other rank."""
        self._other(to, label)
        return self._build(Send(tag=self._tag(label, direction, -1), site=_caller(), tensor=tensor, to=to))

    def recv(self, like: Tensor, *, source: int, label: str, direction: Direction = "other") -> Recv:
        """A tensor shaped as `like` from one other rank."""
        self._other(source, label)
        return self._build(Recv(tag=self._tag(label, direction, -1), site=_caller(), like=like, source=source))

    def host_copy(self, tensor: Tensor, *, to_host: bool, label: str) -> HostCopy:
        """A copy to host memory, or from it to this rank's device."""
        return self._build(HostCopy(tag=self._tag(label, "other", -1), site=_caller(), tensor=tensor, to_host=to_host))

    def start(self, effect: Effect) -> Start:
        """Start `effect` without waiting for it; `await` returns a handle for `wait`."""
        self._built = None
        return self._build(Start(tag=effect.tag, site=effect.site, effect=effect))

    def background(
        self,
        parts: Sequence[Rows],
        conversion: Conversion,
        *,
        label: str,
        direction: Direction = "other",
        layer: int = -1,
    ) -> Start:
        """Start an all-to-all whose rows are converted before and after it, beside the rank's own compute.

        `await` returns a handle, whose `wait` returns the result of the conversion. `parts` are on the meta device and
        have the shapes and types of the payload. Raises ProgramError as `all_to_all`, and where counts are unknown.
        """
        self._check_counts(parts, label)
        if any(part.recv is None for part in parts):
            raise ProgramError(f"rank {self.index}: background exchange {label!r} at {_caller()} has no receive counts")
        tag, site = self._tag(label, direction, layer), _caller()
        effect = Background(tag=tag, site=site, parts=tuple(parts), conversion=conversion)
        return self._build(Start(tag=tag, site=site, effect=effect))

    def wait(self, handle: Handle) -> Wait:
        """Suspend until a started effect is done; each handle can be waited for once."""
        return self._build(Wait(tag=handle.effect.tag, site=_caller(), handle=handle))

    def issued(self, effect: Effect) -> None:
        """Called by the driver when an effect reaches it: counts its bytes and checks started tensors."""
        self._built = None
        if not self.paused and not isinstance(effect, Wait):
            self.traffic.add(effect.tag, effect.wire.sent(self.index, self.size))
        if isinstance(effect, Wait):
            if effect.handle.waited:
                raise ProgramError(f"rank {self.index}: waited twice for {effect.handle.effect}")
            effect.handle.waited = True
            if self.debug and effect.handle.changed():
                raise ProgramError(
                    f"rank {self.index}: a tensor was written to before the wait for {effect.handle.effect}"
                )

    def finished(self) -> None:
        """Called by the driver when the program returns: an effect built last must have been awaited."""
        self._check_awaited()

    def _build(self, effect: E) -> E:
        self._check_awaited()
        self._built = effect
        return effect

    def _check_awaited(self) -> None:
        if self._built is not None:
            raise ProgramError(f"rank {self.index}: a forgotten await: {self._built} was built but never awaited")

    def _check_counts(self, parts: Sequence[Rows], label: str) -> None:
        for part in parts:
            if int(part.send.sum()) != part.tensor.shape[0] or len(part.send) != self.size:
                raise ProgramError(
                    f"rank {self.index}: all-to-all {label!r} at {_caller()}: a tensor of {part.tensor.shape[0]} rows "
                    f"was given counts for {int(part.send.sum())} rows to {len(part.send)} of {self.size} ranks"
                )

    def _group(self, ranks: Sequence[int] | None, label: str, root: int | None = None) -> Group | None:
        """A group in ascending order; None for all ranks. Raises ProgramError unless this rank and `root` are in it."""
        if ranks is None:
            return None
        group = tuple(sorted({int(rank) for rank in ranks}))
        wrong = ""
        if not group or group[0] < 0 or group[-1] >= self.size or len(group) < len(ranks):
            wrong = f"is not of distinct ranks of this run: {tuple(ranks)}"
        elif self.index not in group:
            wrong = f"is of {in_words(group)}, to which rank {self.index} does not belong"
        elif root is not None and root not in group:
            wrong = f"is of {in_words(group)}, to which its root {root} does not belong"
        if wrong:
            raise ProgramError(f"rank {self.index} of {self.size}: collective {label!r} at {_caller()} {wrong}")
        return None if len(group) == self.size else group

    def _other(self, peer: int, label: str) -> None:
        if peer == self.index or not 0 <= peer < self.size:
            raise ProgramError(
                f"rank {self.index} of {self.size}: {label!r} at {_caller()} names rank {peer} as its peer"
            )

    def _tag(self, label: str, direction: Direction, layer: int) -> Tag:
        return Tag(label, direction, layer, self.epoch)

    # -- time, traffic, randomness -----------------------------------------------------------------------------------

    def span(self, kind: Component) -> AbstractContextManager[None]:
        """Count the compute inside the `with` under `kind` (`codec`, `sample` or `swap`).

        Raises:
            ProgramError: it is no component, whether the driver has time or not.
        """
        if kind not in COMPONENTS:
            raise ProgramError(
                f"rank {self.index}: no such component of time: {kind!r} at {_caller()}; known: {', '.join(COMPONENTS)}"
            )
        return self.clock.span(kind)

    @contextmanager
    def off_the_clock(self, stage: str = "a pause") -> Iterator[None]:
        """Neither time nor bytes are counted inside; `stage` (set-up, evaluation, checkpoint) names it in messages."""
        self.paused, self.stage = True, stage
        self.clock.pause(True)
        try:
            yield
        finally:
            self.paused, self.stage = False, ""
            self.clock.pause(False)

    def observe(self, name: str, part: float, whole: float = 1.0, layer: int = -1) -> None:
        """Record `part` of `whole` (e.g. rows sent of all rows); the epoch's record has their ratio over all ranks."""
        if not self.paused:
            sums = self._observed.setdefault(_observed_name(name, layer), [0.0, 0.0])
            sums[0] += part
            sums[1] += whole

    def observed(self) -> dict[str, list[float]]:
        """A copy of what `take_observed` would return."""
        return {name: list(sums) for name, sums in self._observed.items()}

    def take_observed(self) -> dict[str, list[float]]:
        """Name -> [part, whole] observed since the last call."""
        observed, self._observed = self._observed, {}
        return observed

    def rate(self, name: str, layer: int = -1) -> float:
        """The ratio that a recorded run observed under this name, for shapes-only runs, which have no data.

        Raises:
            InputError: no recorded run was given, or it has no such ratio.
        """
        key = _observed_name(name, layer)
        if key not in self.rates:
            raise InputError(
                f"this method's traffic depends on the data: give a recorded run with {key!r} (--rates FILE)"
            )
        return self.rates[key]

    def key(self, purpose: str, layer: int = -1, *, per_rank: bool = True) -> int:
        """A 63-bit random key for (seed, rank, epoch, layer, purpose); the same everywhere for the same arguments."""
        key = random_key(self.seed, self.index if per_rank else -1, self.epoch, layer, purpose)
        if self.drawn is not None:
            self.drawn[key] = purpose, layer, per_rank
        return key

    def generator(self, purpose: str, layer: int = -1) -> np.random.Generator:
        """A numpy generator on the stream of `key`.

        Raises:
            ProgramError: the epoch is recorded, and would draw the same whenever it is replayed.
        """
        if self.drawn is not None:
            raise ProgramError(f"rank {self.index}: {purpose!r} is drawn on the host in an epoch that is recorded")
        return np.random.Generator(np.random.Philox(self.key(purpose, layer)))


def _observed_name(name: str, layer: int) -> str:
    return name if layer < 0 else f"{name}/{layer}"


def random_key(seed: int, rank: int, epoch: int, layer: int, purpose: str) -> int:
    """63 bits of BLAKE2b over the arguments: independent streams without a global generator."""
    text = f"{seed}/{rank}/{epoch}/{layer}/{purpose}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def _caller() -> Site:
    """The innermost line of the running program outside the files in `_SEAM`."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename in _SEAM:
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno)
