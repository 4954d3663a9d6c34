"""Checkpoints on disk: one folder per run and epoch, one file per rank, and a marker that is written last.

    DIR/<training id>/epoch-000120/rank-0.pt, rank-1.pt, ..., complete.json

Every file is written under another name, synced, renamed, and its folder synced. A folder without the marker is not a
checkpoint. The marker names the run, its graph, and size and hash of every rank's file. One run at a time writes to
DIR/<training id>, under a lock.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import torch

from harness.errors import InputError
from harness.machine import Lock, replacing, synchronise

CHECKPOINT_FORMAT = 4
MARKER = "complete.json"

SEEN_S = 30.0
"""Seconds until a file written by another host must be visible: NFS caches the absence of files."""

_NAME = re.compile(r"epoch-(\d{6,})")


class RankFile(msgspec.Struct, frozen=True):
    """One rank's file.

    Attributes:
        threads: CPU threads of the rank that wrote it; another number may change the last bit of sums.
    """

    bytes: int
    sha256: str  # hex
    threads: int


class Identity(msgspec.Struct, frozen=True):
    """The properties that a checkpoint must share with the run that resumes from it.

    Attributes:
        training_id: SHA-256 of the config without settings of duration and output, and without threads.
        data: key of the graph and its partition.
        torch, haloscope: versions; others may change the last bit of sums.
    """

    training_id: str
    data: str
    ranks: int
    torch: str
    haloscope: str

    @classmethod
    def of(cls, training_id: str, data: str, ranks: int) -> Identity:
        """The identity with the installed versions."""
        try:
            ours = version("haloscope")
        except PackageNotFoundError:
            ours = "(not installed)"
        return cls(training_id, data, ranks, str(torch.__version__), ours)

    def refuse(self, found: Identity) -> str:
        """The reason why a checkpoint of `found` does not belong to this run; empty if it does."""
        reasons = {
            "training_id": f"it belongs to run {found.training_id[:12]}, not {self.training_id[:12]}",
            "data": "the graph or its partition is another one now",
            "ranks": f"it has {found.ranks} ranks, this run {self.ranks}",
            "torch": f"it was written with torch {found.torch}, this is {self.torch}",
            "haloscope": f"it was written by haloscope {found.haloscope}, this is {self.haloscope}",
        }
        return next((why for name, why in reasons.items() if getattr(self, name) != getattr(found, name)), "")


class Marker(msgspec.Struct, frozen=True):
    """`complete.json`, which marks a complete checkpoint."""

    format: int
    epochs: int  # number of completed epochs
    identity: Identity
    files: list[RankFile]  # in rank order
    config: dict[str, Any]  # for the reader


def home_of(folder: Path, training_id: str) -> Path:
    """The folder of the checkpoints of one run."""
    return folder / training_id


def folder_of(home: Path, epochs: int) -> Path:
    """The folder of the checkpoint after `epochs` epochs."""
    return home / f"epoch-{epochs:06d}"


def make_home(home: Path) -> Lock:
    """Make the folder of a run's checkpoints, so that errors occur before hours of training, and lock it.

    Raises:
        InputError: it cannot be made or written to, or another run keeps its checkpoints there.
    """
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot keep checkpoints in {home.parent}: {_reason(error)}") from None
    if not os.access(home, os.W_OK):
        raise InputError(f"cannot keep checkpoints in {home.parent}: it is not writable")
    try:
        return Lock(home)
    except InputError as error:
        raise InputError(f"{error}: let that run end, or give this one another --checkpoint") from None


def newest(home: Path) -> int:
    """Epochs done at the newest complete checkpoint; 0 if there is none."""
    return max(_complete(home), default=0)


def write_rank(folder: Path, rank: int, content: dict[str, Any], threads: int) -> RankFile:
    """Write one rank's tensors and numbers, which it computed with so many threads.

    Raises:
        InputError: the folder cannot be written to, or is full.
    """
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            synchronise(folder.parent)
        return RankFile(*_publish(folder / _rank_name(rank), content), threads)
    except (OSError, RuntimeError) as error:  # torch wraps exceptions of its stream
        raise InputError(f"cannot write checkpoint {folder}: {_reason(error)}") from None


def write_marker(folder: Path, marker: Marker) -> None:
    """Declare the checkpoint complete.

    Raises:
        InputError: a rank's file is not visible here (the folder is not shared by all hosts), or the marker cannot be
            written.
    """
    deadline = time.monotonic() + SEEN_S
    while lacking := _lacking(folder, marker):
        if time.monotonic() > deadline:
            raise InputError(
                f"cannot complete checkpoint {folder}: rank {lacking[0].rank} has written {lacking[0].name}, but on "
                f"the host of rank 0 it {lacking[0].what} after {SEEN_S:g} s; --checkpoint must name a folder that all "
                "hosts share"
            )
        time.sleep(SEEN_S / 300)
    try:
        _publish(folder / MARKER, msgspec.json.format(msgspec.json.encode(marker), indent=1))
    except OSError as error:
        raise InputError(f"cannot write checkpoint {folder}: {_reason(error)}") from None


def read_marker(home: Path, epochs: int, identity: Identity) -> Marker:
    """The marker of a checkpoint from which this run may resume.

    Raises:
        InputError: it is damaged, of another format or run, or a rank's file is missing or truncated.
    """
    folder = folder_of(home, epochs)
    try:
        raw = (folder / MARKER).read_bytes()
        if (found := msgspec.json.decode(raw)).get("format") != CHECKPOINT_FORMAT:
            raise checkpoint_error(folder, f"its format is {found.get('format')}, not {CHECKPOINT_FORMAT}")
        marker = msgspec.json.decode(raw, type=Marker)
    except OSError as error:
        raise checkpoint_error(folder, f"{MARKER} cannot be read here: {_reason(error)}") from None
    except (msgspec.DecodeError, AttributeError, UnicodeDecodeError, RecursionError):
        raise checkpoint_error(folder, f"{MARKER} is damaged") from None
    if why := identity.refuse(marker.identity):
        raise checkpoint_error(folder, why)
    if marker.epochs != epochs or len(marker.files) != identity.ranks:
        raise checkpoint_error(folder, f"{MARKER} is of epoch {marker.epochs} and names {len(marker.files)} ranks")
    for _, name, what in _lacking(folder, marker):
        raise checkpoint_error(folder, f"{name} {what}; all hosts must see the same folder")
    return marker


def read_rank(home: Path, marker: Marker, rank: int, device: torch.device, threads: int) -> dict[str, Any]:
    """Load one rank's file, to `device`.

    Raises:
        InputError: the file is not the one that the marker names, or was not written with so many threads.
    """
    folder = folder_of(home, marker.epochs)
    if marker.files[rank].threads != threads:
        raise checkpoint_error(folder, _other_threads(marker, rank, threads))
    path = folder / _rank_name(rank)
    try:
        with path.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != marker.files[rank].sha256:
                raise checkpoint_error(folder, f"{path.name} is corrupted: its SHA-256 is not the one in {MARKER}")
        content: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except OSError as error:
        raise checkpoint_error(folder, f"{path.name} cannot be read here: {_reason(error)}") from None
    return content


def _other_threads(marker: Marker, rank: int, threads: int) -> str:
    had = [file.threads for file in marker.files]
    if len(set(had)) == 1:
        return f"its ranks had {had[0]} threads each, here rank {rank} has {threads}: give --threads {had[0]}"
    listed = ", ".join(map(str, had))
    return (
        f"rank {rank} had {had[rank]} threads, here it has {threads}: run it on hosts with as many cores as before, in "
        f"the same order (threads of the ranks: {listed})"
    )


def prune(home: Path, epochs: int, keep: int) -> None:
    """After the checkpoint of `epochs` is complete: remove all but the newest `keep`, and all incomplete ones.

    Raises:
        InputError: one cannot be removed.
    """
    complete = _complete(home)
    for found in _folders(home):
        if found < epochs and found not in complete[-keep:]:
            _remove(folder_of(home, found))


def clear(home: Path) -> None:
    """Remove every checkpoint of a run. Raises InputError if one cannot be removed."""
    for epochs in _folders(home):
        _remove(folder_of(home, epochs))


def checkpoint_error(folder: Path, why: str) -> InputError:
    """The error for a checkpoint that cannot be used."""
    return InputError(
        f"checkpoint {folder}: {why}; remove the folder to go on from an earlier one, or give --no-resume"
    )


class _Hashing:
    """A stream that hashes and counts written bytes."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.hash, self.size = stream, hashlib.sha256(), 0

    def write(self, data: Any) -> int:
        """Write to the underlying stream; returns the number of bytes."""
        count = self.stream.write(data)
        self.hash.update(data)
        self.size += count
        return count

    def flush(self) -> None:
        """Flush the underlying stream."""
        self.stream.flush()


def _publish(path: Path, content: dict[str, Any] | bytes) -> tuple[int, str]:
    """Write to a temporary file, sync, rename, and sync the folder; readers see a complete file or none.

    Returns its size and SHA-256 (hex).
    """
    for left in path.parent.glob(f".{path.name}.*"):  # of a rank that was killed: the lock is ours
        left.unlink(missing_ok=True)
    with replacing(path) as stream:
        hashing = _Hashing(stream)
        if isinstance(content, bytes):
            hashing.write(content)
        else:
            torch.save(content, hashing)  # type: ignore[arg-type]  # it writes and flushes, no more
    return hashing.size, hashing.hash.hexdigest()


class _Lacking(NamedTuple):
    """A rank's file that is missing or differs from the marker."""

    rank: int
    name: str
    what: str


def _lacking(folder: Path, marker: Marker) -> list[_Lacking]:
    found = []
    for rank, file in enumerate(marker.files):
        path = folder / _rank_name(rank)
        try:
            size = path.stat().st_size
        except OSError as error:
            what = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be seen ({_reason(error)})"
            found.append(_Lacking(rank, path.name, what))
            continue
        if size != file.bytes:
            found.append(_Lacking(rank, path.name, f"is truncated: {size} of {file.bytes} bytes"))
    return found


def _folders(home: Path) -> list[int]:
    """Epochs of all checkpoint folders, complete or not, ascending."""
    try:
        names = [_NAME.fullmatch(path.name) for path in home.iterdir()] if home.is_dir() else []
    except OSError as error:
        raise InputError(f"cannot read the checkpoints in {home}: {_reason(error)}") from None
    return sorted(int(name[1]) for name in names if name is not None)


def _complete(home: Path) -> list[int]:
    return [epochs for epochs in _folders(home) if (folder_of(home, epochs) / MARKER).is_file()]


def _remove(folder: Path) -> None:
    """Remove a checkpoint, the marker first, so that a partly removed folder is not a checkpoint."""
    try:
        (folder / MARKER).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot remove checkpoint {folder / MARKER}: {_reason(error)}") from None
    shutil.rmtree(folder, ignore_errors=True)


def _rank_name(rank: int) -> str:
    return f"rank-{rank}.pt"


def _reason(error: Exception) -> str:
    return str((error.strerror if isinstance(error, OSError) else None) or error)
