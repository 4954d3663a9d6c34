"""Ranks as forks of a process that has imported torch and this project once: a start takes milliseconds, not seconds.

The launcher's end (`server_for`, `ForkServer`, `ForkedRank`), and the server itself (`serve`, run by `python -m real
--fork`). They share a socket: the launcher sends a rank's arguments, environment, cores, network namespace, input and
output; the server forks, and tells how every rank ended. It ends when the launcher does.

A fork has the environment that libraries read when they were loaded. So a server is of use only while the environment,
apart from what tells one run or rank from another, is that of its start, and only where loading has started no thread.
Everywhere else the launcher starts ranks as new interpreters.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from runpy import run_module
from typing import Any, BinaryIO, NoReturn

import msgspec

from harness.running.drift import count_as_own
from real.rank.health import end_process

SERVER = (sys.executable, "-m", "real", "--fork")
"""The command of a server."""

OF_A_RUN = ("HALOSCOPE_", "LOCAL_", "GROUP_", "MASTER_", "TORCHELASTIC_", "GLOO_")
"""Prefixes of variables that are read when a rank begins, not when a library is loaded."""

OF_A_RANK = frozenset({"RANK", "WORLD_SIZE", "ROLE_RANK", "PYTEST_CURRENT_TEST"})
"""More such variables."""

OF_THE_SERVER = {"OPENBLAS_NUM_THREADS": "1"}
"""NumPy's products, of which ranks have none, start no threads when it is loaded."""

REPLY_S = 120.0
"""How long the server may take to import and fork."""

MESSAGE_BYTES = 1 << 17
CLONE_NEWNET = 0x40000000  # <sched.h>
NAMESPACE = "/proc/thread-self/ns/net"


class Request(msgspec.Struct):
    """A rank to start. Its input, output and network namespace are sent along, as descriptors."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    cores: list[int]


class News(msgspec.Struct):
    """A rank has been forked, or has ended.

    Attributes:
        pid: its process; 0 where the server cannot fork.
        code: its exit code, negative for a signal; None of one that was forked.
        seconds: processor time that it and its children took; of a fork, what the server has taken since the last one.
    """

    pid: int
    code: int | None = None
    seconds: float = 0.0


class ForkedRank:
    """A rank that a server has forked, with the methods of `subprocess.Popen` that a launcher needs."""

    returncode: Any = None

    def __init__(self, server: ForkServer, pid: int, stdin: BinaryIO) -> None:
        self.pid, self.stdin, self._server = pid, stdin, server

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            self.returncode = self._server.code_of(self.pid)
        code: int | None = self.returncode
        return code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return the exit code.

        Raises:
            subprocess.TimeoutExpired: it still runs after `timeout` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = 1.0 if end is None else end - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired("a forked rank", timeout or 0.0)
            self._server.await_news(min(left, 1.0))
        return code

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


RankProcess = subprocess.Popen[bytes] | ForkedRank
"""A rank's process, however it was started."""


class ForkServer:
    """The launcher's end of a server.

    Args:
        environment: of the server's process.

    Attributes:
        forks: false once it is known that a server with this environment cannot.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.key = _key(environment)
        self.forks = True
        self._lock = threading.Lock()
        self._codes: dict[int, int | None] = {}  # of the ranks that were asked for; None while they run
        self._lost, self._counted = False, 0.0
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                SERVER,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # what it cannot import, a rank that starts by itself cannot either
                env={**environment, **OF_THE_SERVER},
                process_group=0,
            )

    def start(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], out: BinaryIO
    ) -> ForkedRank | None:
        """Fork a rank with the calling thread's cores and network namespace; None where the server cannot.

        Args:
            module: what it runs, as `python -m` does.
            out: where its output and errors go.
        """
        if not self.forks:
            return None
        request = Request(module, list(arguments), dict(environment), sorted(os.sched_getaffinity(0)))
        theirs, mine = os.pipe()
        namespace = os.open(NAMESPACE, os.O_RDONLY)
        stdin = os.fdopen(mine, "wb")
        try:
            with self._lock:
                socket.send_fds(self._socket, [msgspec.json.encode(request)], [theirs, out.fileno(), namespace])
                pid = self._forked()
        except OSError:  # the server has ended, or the environment is too long for a message
            pid = 0
        finally:
            os.close(theirs)
            os.close(namespace)
        if not pid:
            stdin.close()
            return None
        return ForkedRank(self, pid, stdin)

    def code_of(self, pid: int) -> int | None:
        """How a rank ended, None while it runs; a rank whose server was killed has ended by SIGKILL."""
        with self._lock:
            while self._codes[pid] is None and not self._lost and self._read(0.0) is not None:
                pass
            if self._codes[pid] is None and self._lost and not _runs(pid):
                self._codes[pid] = -signal.SIGKILL
            return self._codes[pid]

    def await_news(self, limit_s: float) -> None:
        """Return once a rank has ended, or after `limit_s` seconds."""
        if self._lost:
            time.sleep(min(limit_s, 0.01))
        else:
            select.select([self._socket], [], [], limit_s)

    @property
    def ended(self) -> bool:
        """Whether the server has ended by itself, or was killed."""
        return self._process.poll() is not None

    @property
    def descriptor(self) -> int:
        """The socket's, which stays open."""
        return self._socket.fileno()

    @property
    def pid(self) -> int:
        """The server's process."""
        pid: int = self._process.pid
        return pid

    def close(self) -> None:
        """End the server; ranks that run go on."""
        self._socket.close()
        self._process.kill()
        self._process.wait()
        count_as_own(-self._counted)  # the system has now added them to those of this process

    def _forked(self) -> int:
        """The process of the rank that was just asked for; 0 if there is none."""
        end = time.monotonic() + REPLY_S
        while (left := end - time.monotonic()) > 0:
            news = self._read(left)
            if news is not None and news.code is None:
                self.forks = news.pid != 0
                if not self.forks:
                    break
                self._codes[news.pid] = None
                return news.pid
            if self._lost:
                break
        self._process.kill()  # it is of no use, and must not fork later what nobody waits for
        return 0

    def _read(self, limit_s: float) -> News | None:
        """The next message, None where none comes within `limit_s` seconds."""
        if not select.select([self._socket], [], [], limit_s)[0]:
            return None
        try:
            message = self._socket.recv(MESSAGE_BYTES)
        except OSError:
            message = b""
        if not message:
            self._lost = True
            return None
        news = msgspec.json.decode(message, type=News)
        if news.code is not None:
            self._codes[news.pid] = news.code
        count_as_own(news.seconds)
        self._counted += news.seconds
        return news


_server: tuple[int, ForkServer] | None = None
_starting = threading.Lock()


def server_for(environment: Mapping[str, str]) -> ForkServer | None:
    """The server of this process for ranks with this environment, which is started where there is none.

    Returns at once; a new server loads while this process goes on. None where this system cannot do it.
    """
    global _server
    if not _possible():
        return None
    with _starting:
        if _server is not None and _server[0] != os.getpid():
            _server = None  # of the process that this one was forked from
        if _server is not None and (_server[1].key != _key(environment) or (_server[1].ended and _server[1].forks)):
            close()
        if _server is None:
            _server = os.getpid(), ForkServer(environment)
        return _server[1]


def _possible() -> bool:
    """Whether this system has what a server needs: Linux, with process descriptors and network namespaces."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return os.path.exists(NAMESPACE)


def running_server() -> ForkServer | None:
    """The server of this process, if there is one."""
    return _server[1] if _server is not None and _server[0] == os.getpid() else None


def close() -> None:
    """End this process's server, if there is one."""
    global _server
    server, _server = running_server(), None
    if server is not None:
        server.close()


atexit.register(close)


def _key(environment: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """What must be equal for a server to be of use: the folder, and what libraries may read when they are loaded."""
    return os.getcwd(), {k: v for k, v in environment.items() if k not in OF_A_RANK and not k.startswith(OF_A_RUN)}


def _runs(pid: int) -> bool:
    """Whether a process runs, or has ended and is waited for."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def serve() -> None:
    """The server: loads what ranks need, and forks them until the launcher's end of the socket closes."""
    control = socket.socket(fileno=os.dup(0))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    for name in ("harness.methods.registry", "torch.fx.experimental.symbolic_shapes"):
        import_module(name)  # torch needs the latter for every first backward pass
    from numba import njit  # launchers do without it

    njit(_nothing)()  # type: ignore[call-arg]  # numba sets itself up when it first has a kernel
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # memory that a fork takes from what is free here would not count as its own
    gc.freeze()  # a collection in a fork would copy the pages of everything that was imported
    with suppress(BrokenPipeError, ConnectionResetError):  # the launcher has ended
        _serve(control)


def _nothing() -> None:
    pass


def _serve(control: socket.socket) -> None:
    """Fork a rank for every request and tell how ranks end, until the launcher's end of the socket is closed."""
    ranks: dict[int, int] = {}  # pidfd -> pid
    told = 0.0
    alone = len(os.listdir("/proc/self/task")) == 1  # of several threads a fork would have only one
    while True:
        readable, _, _ = select.select([control.fileno(), *ranks], [], [])
        for pidfd in ranks.keys() & set(readable):
            _tell_end(control, ranks.pop(pidfd))
            os.close(pidfd)
        if control.fileno() not in readable:
            continue
        message, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 3)
        if not message:
            return
        pid = os.fork() if alone else 0
        if alone and not pid:
            control.close()
            for pidfd in ranks:
                os.close(pidfd)
            _become(msgspec.json.decode(message, type=Request), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        if pid:
            with suppress(OSError):  # the rank does it too: whoever is first
                os.setpgid(pid, pid)
            ranks[os.pidfd_open(pid)] = pid
        used = time.process_time()
        control.send(msgspec.json.encode(News(pid, seconds=used - told)))
        told = used


def _tell_end(control: socket.socket, pid: int) -> None:
    _, status, used = os.wait4(pid, 0)
    control.send(msgspec.json.encode(News(pid, os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime)))


def _become(request: Request, stdin: int, out: int, namespace: int) -> NoReturn:
    """Turn this fork into the rank."""
    try:
        with suppress(OSError):
            os.setpgid(0, 0)
        for descriptor, number in ((stdin, 0), (out, 1), (out, 2)):
            os.dup2(descriptor, number)
        os.environ.clear()
        os.environ.update(request.environment)
        _enter(namespace)
        os.sched_setaffinity(0, request.cores)
        for descriptor in (stdin, out, namespace):
            os.close(descriptor)
        random.seed()
        sys.argv[1:] = request.arguments
        run_module(request.module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    end_process(code)


def _enter(namespace: int) -> None:
    """Put this process, which has one thread, into a network namespace."""
    if os.fstat(namespace).st_ino == os.stat(NAMESPACE).st_ino:
        return
    if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "cannot enter the network namespace")
