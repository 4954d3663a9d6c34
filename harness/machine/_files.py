"""Files that are complete or absent, whatever ends the process or the machine."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import BinaryIO, TextIO, TypeVar

import msgspec

from harness.errors import InputError

T = TypeVar("T")

YOUNG_S = 60.0
_SCRATCH = re.compile(r"\..+\.([0-9a-f]{5})([0-9a-f]{6})([0-9a-f]{5})")  # machine, process, chance


@contextlib.contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A stream whose content becomes the file `path` when the block ends; readers see all of it or the file before.

    It is written under a name of its own in the same folder, so that several processes and hosts may do so at once.
    Errors are those of the operating system, and of the block.

    Args:
        durable: wait until the disk has it, so that it outlives a power cut. What can be made again need not.
    """
    scratch = hidden_name(path)
    try:
        with scratch.open("xb") as stream:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield stream
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    if durable:
        synchronise(path.parent)


class Reserved:
    """A file that is written later, whose space on the disk is taken now, under a name of its own in the same folder.

    Close it in any case; unless it was written nothing is left of it.

    Attributes:
        path: the file.
        scratch: the file that holds the space until then.

    Raises:
        OSError: the folder cannot be written to, or has less space than `num_bytes`.
    """

    def __init__(self, path: Path, num_bytes: int) -> None:
        self.path, self.scratch = path, hidden_name(path)
        self._stream = self.scratch.open("xb")
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(self._stream.fileno(), 0, num_bytes)
        except BaseException:
            self.close()
            raise

    def grow(self, num_bytes: int) -> None:
        """Take so much space in all. Raises OSError where there is less; what was taken stays."""
        os.posix_fallocate(self._stream.fileno(), 0, num_bytes)

    def write(self, content: bytes) -> None:
        """Make or replace the file, as `replacing` does; call once."""
        self._stream.write(content)
        self._stream.truncate()
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self.scratch.replace(self.path)
        synchronise(self.path.parent)

    def close(self) -> None:
        """Give back the space, if the file was not written."""
        self._stream.close()
        self.scratch.unlink(missing_ok=True)


def hidden_name(path: Path) -> Path:
    """A hidden name of its own in the same folder, which tells the machine and the process that take it."""
    return path.with_name(f".{path.name}.{this_machine()}{os.getpid():06x}{secrets.token_hex(3)[:5]}")


def machine_in_name(hidden: Path) -> str:
    """The machine, as `this_machine`, whose process took a name of `hidden_name`; empty for any other name."""
    name = _SCRATCH.fullmatch(hidden.name)
    return "" if name is None else name[1]


@cache
def this_machine() -> str:
    """5 hex digits of where a process number means a process: host, its start, and namespace of processes."""
    words = [os.uname().nodename]
    with contextlib.suppress(OSError):
        words.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        words.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:5]


def _is_dead(machine: str, process: str) -> bool:
    """Whether a process is known to have ended; False for those of other machines."""
    if machine != this_machine():
        return False
    try:
        os.kill(int(process, 16), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False


def write_atomically(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Make or replace a file; arguments as for `replacing`.

    Raises:
        InputError: the folder cannot be written to, or is full.
    """
    try:
        with replacing(path, durable=durable) as stream:
            stream.write(content)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def remove_scratch(folder: Path) -> None:
    """Remove what killed processes left of files that they were writing into a folder; never a living one's."""
    for path in abandoned_scratch(folder):
        path.unlink(missing_ok=True)


def abandoned_scratch(folder: Path) -> list[Path]:
    """Files that killed processes were writing into a folder.

    A file is not among them while its writer has it locked. In its first minute, when it may not be locked yet, it is
    only if its writer was a process of this machine that has ended.
    """
    found = []
    for path in sorted(folder.glob(".*")):
        name = _SCRATCH.fullmatch(path.name)
        if name is None:
            continue
        with contextlib.suppress(OSError), path.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_dead(name[1], name[2]) or time.time() - path.stat().st_mtime > YOUNG_S:
                found.append(path)
    return found


def synchronise(folder: Path) -> None:
    """Synchronise a folder with the disk, so that renames in it survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def kept_json(path: Path, kind: type[T]) -> T | None:
    """The content of a JSON file that this program keeps for later; None where there is none, or it is damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def files_left(most: int) -> int:
    """How many more files this process may open, counted up to `most`."""
    opened = list[int]()
    try:
        while len(opened) < most:
            opened.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    for descriptor in opened:
        os.close(descriptor)
    return len(opened)


def take_lock(path: Path) -> TextIO:
    """A lock file, locked by the kernel until it is closed or the process ends, with the owner in it.

    Who has it removes it before closing it (`give_lock`).

    Raises:
        BlockingIOError: another process has it; the text says which one.
        OSError: the file cannot be written, or the file system has no locks.
    """
    while True:
        stream = path.open("a+")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.fstat(stream.fileno()).st_ino == path.stat().st_ino:
                stream.truncate(0)
                since = time.strftime("%Y-%m-%d %H:%M:%S")
                stream.write(f"process {os.getpid()} on {os.uname().nodename} since {since}")
                stream.flush()
                return stream
        except BlockingIOError:
            stream.seek(0)
            with stream:
                raise BlockingIOError(stream.read().strip() or "another process") from None
        except FileNotFoundError:
            pass
        except OSError:
            stream.close()
            raise
        stream.close()  # the process before has removed this file; a new one has to be locked


def give_lock(path: Path, stream: TextIO) -> None:
    """Let others have the lock."""
    path.unlink(missing_ok=True)  # before it is released: who opened it sees that it is gone, and makes another
    stream.close()


class Lock:
    """A lock on a folder for as long as this process holds it, with who holds it and since when.

    Where the file system has no locks nothing is locked.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock"
        self._stream: TextIO | None = None
        try:
            self._stream = take_lock(self.path)
        except BlockingIOError as held:
            raise InputError(f"{folder} is in use by {held}") from None
        except OSError:
            pass

    def release(self) -> None:
        """End the lock and remove its file; a second call does nothing."""
        if self._stream is not None:
            give_lock(self.path, self._stream)
            self._stream = None
