"""The cache folder of this user, and the place in it of compiled kernels where hosts may share the installation.

numba keeps compiled kernels beside their source, and chooses the file of a new one by an index that it reads and writes
without a lock. Of two hosts that compile at once in a folder that both see, one may load the machine code of the other,
whose processor may have instructions that its own lacks. There, every kind of processor gets a folder of its own.

Only the standard library is imported: the variable must be set before numba is imported.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from collections.abc import MutableMapping
from pathlib import Path

NUMBA_VARIABLE = "NUMBA_CACHE_DIR"

SHARED_SYSTEMS = (
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse", "gfs2", "glusterfs", "gpfs", "lustre", "nfs", "ocfs2", "orangefs",
    "panfs", "pvfs2", "smb", "virtiofs", "wekafs",
)  # fmt: skip
"""How the names of file systems begin that several hosts may see."""


def cache_root() -> Path:
    """`$HALOSCOPE_CACHE`, or `~/.cache/haloscope`; the folder need not exist yet."""
    named = os.environ.get("HALOSCOPE_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "haloscope"


def instructions() -> bytes:
    """What Linux says of the first core: its kind and the instructions that it has; elsewhere nothing."""
    with contextlib.suppress(OSError):
        first = Path("/proc/cpuinfo").read_bytes().partition(b"\n\n")[0]
        kept = (b"flags", b"Features", b"model", b"cpu family", b"CPU part", b"vendor_id", b"isa")
        return b"\n".join(line for line in first.splitlines() if line.startswith(kept))
    return b""


def keep_kernels_apart(package: Path, environment: MutableMapping[str, str] = os.environ) -> None:
    """Have numba keep kernels in a folder of the cache per processor if `package` is on a file system that hosts share.

    A folder that somebody else named is kept; one that this function named in the process that started this one is not,
    since a job may start on another host. Where the cache cannot be written to numba goes on without it.
    """
    if not file_system(package).startswith(SHARED_SYSTEMS):
        return
    words = [platform.machine().encode(), instructions(), _installed().encode()]
    kind = hashlib.sha256(b"\0".join(words)).hexdigest()[:16]
    with contextlib.suppress(RuntimeError):  # a user without a home
        ours = (cache_root() / "kernels").absolute()
        named = environment.get(NUMBA_VARIABLE)
        if not named or Path(named).parent == ours:
            environment[NUMBA_VARIABLE] = str(ours / kind)


def _installed() -> str:
    """The version: numba does not see that a kernel of another file, which it has compiled in, is another one now."""
    from importlib.metadata import PackageNotFoundError, version  # takes longer than all else here

    try:
        return version("haloscope")
    except PackageNotFoundError:
        return ""


def file_system(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The kind of file system that a path is on, as Linux names it; empty where that is not known.

    Args:
        mounts: the table of mounts, whose lines are described in proc_pid_mountinfo(5).
    """
    found, kind, place = -1, "", str(path.resolve())
    with contextlib.suppress(OSError):
        for line in mounts.read_text(errors="replace").splitlines():
            mount, _, system = line.partition(" - ")
            fields = mount.split()
            if len(fields) < 5 or not system:
                continue
            point = fields[4].replace("\\040", " ")
            inside = place == point or place.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= found:  # of mounts on one point the last one is seen
                found, kind = len(point), system.split()[0]
    return kind
