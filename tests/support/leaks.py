"""Detects leaks of a test by comparing the state of this process and its machine before and after it."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from io import BytesIO
from pathlib import Path

import torch
from pyarrow import csv
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from real.launch._fork_server import running_server

NAMESPACES = Path("/run/netns")
CHANGES = {"PYTEST_CURRENT_TEST", "KMP_INIT_AT_FORK", "KMP_DUPLICATE_LIB_OK", "TORCHINDUCTOR_CACHE_DIR"}
"""Environment variables that pytest and libraries set by themselves."""

OTHERS_S = 10.0
"""How long another worker may take to remove the network namespaces of a process of its own that has ended."""

LIBRARIES = ("torchinductor_", "torchelastic_")
"""How the folders begin that torch's compiler and torchrun make and never remove."""

OPENED = re.compile(r"(socket|pipe):\[|(?!.*(/site-packages/|\.(so|py|pyc|nbi|nbc|ttf)\b))/(?!dev/|proc/|sys/)")
"""Targets of file descriptors that a test opens; libraries keep devices and their own files open."""


@dataclass(frozen=True)
class State:
    """The state at one moment.

    Attributes:
        environment: variables and values.
        threads: Python threads that are alive and keep the process alive.
        children: process ids.
        files: names in the folder for temporary files.
        descriptors: descriptor -> what it points to, of sockets, pipes and files.
        namespaces: network namespaces that this process or a dead one made.
    """

    environment: dict[str, str]
    threads: frozenset[threading.Thread]
    children: frozenset[str]
    files: frozenset[str]
    descriptors: dict[int, str]
    namespaces: frozenset[str]


def state(folder: Path) -> State:
    """The current state; `folder` is the folder of temporary files.

    The process from which real ranks are forked stays, and ends with this one.
    """
    server = running_server()
    return State(
        environment=dict(os.environ),
        threads=frozenset(t for t in threading.enumerate() if t.is_alive() and not t.daemon),
        children=frozenset(_children() - ({str(server.pid)} if server else set())),
        files=frozenset(entry.name for entry in folder.iterdir() if not entry.name.startswith(LIBRARIES)),
        descriptors=_descriptors(),
        namespaces=frozenset(_namespaces()),
    )


def open_what_stays() -> None:
    """Open what a library keeps open until the process ends, so that no test is held responsible for it.

    The first store of torch.distributed starts libuv, whose signal handling keeps one pipe; so does the first CSV file
    that pyarrow reads while Python handles a signal, and the first use of a GPU another. A shell may start the tests
    with SIGINT ignored.
    """
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    csv.read_csv(BytesIO(b"a\n1\n"))
    signal.signal(signal.SIGINT, usual)
    if torch.cuda.is_available():
        torch.zeros(1, device="cuda")
    TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=10), wait_for_workers=False)


def left(before: State, after: State) -> list[str]:
    """The leaks of a test, one sentence each."""
    both = before.environment.items() ^ after.environment.items()
    said = {
        "environment variables left changed": {name for name, _ in both} - CHANGES,
        "threads left running": {thread.name for thread in after.threads - before.threads},
        "processes left running": after.children - before.children,
        "temporary files left": after.files - before.files,
        "network namespaces left": _still_there(after.namespaces - before.namespaces),
    }
    opened = after.descriptors.items() - before.descriptors.items()
    if len(after.descriptors) > len(before.descriptors):
        gc.collect()  # garbage is not a leak
        said["file descriptors left open"] = {f"{n} ({what})" for n, what in opened & _descriptors().items()}
    return [f"{what}: {sorted(things)}" for what, things in said.items() if things]


def _still_there(namespaces: frozenset[str]) -> frozenset[str]:
    """Those that stay: a dead process may be of a test in another worker, which is about to remove what it made."""
    patience = time.monotonic() + OTHERS_S
    while (namespaces := namespaces & _namespaces()) and time.monotonic() < patience:
        if any(name.startswith(f"hs{os.getpid()}-") for name in namespaces):
            break
        time.sleep(0.1)
    return namespaces


def _children() -> set[str]:
    """Process ids of the children of every thread; empty where the system does not list them."""
    tasks = Path("/proc/self/task")
    found: set[str] = set()
    for task in tasks.iterdir() if tasks.exists() else ():
        with contextlib.suppress(OSError):  # a thread that is just ending can be listed but not read
            found.update((task / "children").read_text().split())
    return found


def _descriptors() -> dict[int, str]:
    """Open sockets, pipes and files; empty where the system does not list them."""
    folder, found, server = Path("/proc/self/fd"), {}, running_server()
    for entry in folder.iterdir() if folder.exists() else ():
        with contextlib.suppress(OSError):  # the listing's own descriptor is closed by now
            target = os.readlink(entry)
            if OPENED.match(target) and (server is None or int(entry.name) != server.descriptor):
                found[int(entry.name)] = target
    return found


def _namespaces() -> set[str]:
    """Network namespaces of this project that no other living process made (`real.lab` names them `hs<pid>-...`)."""
    found = set()
    for entry in NAMESPACES.iterdir() if NAMESPACES.exists() else ():
        made = re.match(r"hs(\d+)-", entry.name)
        if made and (int(made[1]) == os.getpid() or not Path("/proc", made[1]).exists()):
            found.add(entry.name)
    return found
