"""A lab: hosts built on this machine as network namespaces, joined by a switch over links of given rates.

Every host is a namespace with one interface, whose peer is a port of a bridge in a namespace of its own: nothing of it
is visible outside. Each link is shaped by a token bucket at both ends, one for each direction. Hosts share this
machine's cores, memory and files. Needs root.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from harness.config import MTU, QUEUE_S, LabSpec, burst, segment
from harness.errors import InputError
from harness.machine import ended_by_sigterm
from real.lab import _namespaces as namespaces
from real.lab._site import located

INTERFACE = "lab0"  # of every host
QUEUE_LEAST, QUEUE_MOST = 64 << 10, 4 << 20  # bytes of the queue at either end of a link
LEAVE_S = 3.0  # seconds that a command may take to end after SIGTERM
CONTROLS = ("cubic", "reno")  # window-based congestion control, which at once uses bandwidth that another flow frees
SHAPERS = {"tbf": "tbf rate 1mbit burst 10kb limit 100kb", "netem": "netem delay 1ms"}  # and arguments to test them


@dataclass(frozen=True)
class Lab:
    """Hosts that are up; a `HostSetup` for the launcher.

    Attributes:
        spec: the requested lab.
        hosts: namespace of each host.
        switch: namespace of the bridge, where the launcher's key-value store listens.
    """

    spec: LabSpec
    hosts: tuple[str, ...]
    switch: str

    @property
    def addresses(self) -> list[str]:
        """IPv4 address of each host, meaningful inside the lab only."""
        return [f"10.86.0.{host + 1}" for host in range(self.spec.hosts)]

    @property
    def address(self) -> str:
        """IPv4 address of the switch."""
        return "10.86.0.254"

    @property
    def listens(self) -> str:
        """Every address of the switch: the one in the lab and its own loopback."""
        return "0.0.0.0"

    @contextmanager
    def inside(self, rank: int | None) -> Iterator[None]:
        """While entered, new sockets and processes of this thread belong to a rank's host; None: to the switch."""
        if rank is not None:
            with namespaces.inside(self.hosts[self.spec.host_of(rank)]):
                yield
            return
        with namespaces.inside(self.switch), _no_stderr():  # torch complains that a lab's addresses have no names
            yield

    def environment(self, rank: int, parts: int) -> dict[str, str]:
        """torchrun's variables of a rank in a run of `parts` ranks, which fill one host after the other."""
        host, local = divmod(rank, self.spec.ranks_per_host)
        neighbours = min(self.spec.ranks_per_host, parts - host * self.spec.ranks_per_host)
        return located(local, neighbours, host, INTERFACE)


def check_lab(spec: LabSpec, parts: int, device: str, backend: str) -> None:
    """Raise InputError where a run of `parts` ranks does not fit the lab, or this user cannot build one."""
    if parts > spec.ranks:
        raise InputError(
            f"{spec.name} takes {spec.ranks} ranks ({spec.hosts} hosts x {spec.ranks_per_host}), not {parts}; "
            "use fewer parts, more hosts or ranks=N"
        )
    if device != "cpu" and backend != "gloo":
        raise InputError("the hosts of a lab share this machine's GPUs: use --backend gloo, or --device cpu")
    namespaces.require()


@contextmanager
def built(spec: LabSpec) -> Iterator[Lab]:
    """Build the lab, yield it, and remove it: after an exception, Ctrl-C or SIGTERM too.

    Namespaces left by dead processes are removed first. SIGTERM raises SystemExit(143) within, unless this process
    already handles it otherwise.

    Raises:
        InputError: no root, a missing tool, a shaper that the kernel lacks, or a lab of this process that is still up.
    """
    namespaces.require()
    namespaces.remove(namespaces.stale())
    lab = Lab(spec, tuple(namespaces.name_of(str(host)) for host in range(spec.hosts)), namespaces.name_of("switch"))
    if any((namespaces.FOLDER / name).exists() for name in (lab.switch, *lab.hosts)):
        raise InputError("this process has a lab already")
    with ended_by_sigterm():
        try:
            if spec.delay and not available("netem"):
                raise InputError(f"{spec.name}: this kernel has no netem, which delays packets; leave delay= out")
            _build(lab)
            yield lab
        finally:
            with _undisturbed():
                namespaces.remove((*lab.hosts, lab.switch))


def run_on_first(lab: Lab, command: Sequence[str]) -> int:
    """Run a command on the lab's first host; returns its exit code, 128 + N after signal N.

    Its environment has the lab's name in HALOSCOPE_LAB, and each host's namespace and address, separated by blanks, in
    HALOSCOPE_LAB_HOSTS and HALOSCOPE_LAB_ADDRESSES.

    Raises:
        InputError: there is no such command.
    """
    variables = {
        "HALOSCOPE_LAB": lab.spec.name,
        "HALOSCOPE_LAB_HOSTS": " ".join(lab.hosts),
        "HALOSCOPE_LAB_ADDRESSES": " ".join(lab.addresses),
        "GLOO_SOCKET_IFNAME": INTERFACE,
    }
    try:
        with lab.inside(0):
            process = subprocess.Popen(command, env={**os.environ, **variables})
    except OSError as error:
        raise InputError(f"cannot run {command[0]}: {error.strerror}") from None
    with process:
        try:
            code = process.wait()
        except BaseException:
            process.terminate()  # a process that ignores it is killed with the namespace
            with suppress(subprocess.TimeoutExpired):
                process.wait(LEAVE_S)
            process.kill()
            raise
    return code if code >= 0 else 128 - code


def available(shaper: str) -> bool:
    """Whether the kernel has a shaper (`tbf`, `netem`), tested in a temporary namespace."""
    name = namespaces.name_of("trial")
    namespaces.tool("ip", "netns", "add", name)
    try:
        namespaces.tool("tc", "-n", name, "qdisc", "add", "dev", "lo", "root", *SHAPERS[shaper].split())
    except InputError:
        return False
    finally:
        namespaces.remove([name])
    return True


def _build(lab: Lab) -> None:
    namespaces.tool("ip", "netns", "add", lab.switch)
    _quiet(lab.switch)
    bridge = ["link set lo up", "link add switch type bridge", f"addr add {lab.address}/24 dev switch"]
    namespaces.tool("ip", "-n", lab.switch, batch=[*bridge, f"link set switch mtu {MTU} up"])
    for host, (name, address) in enumerate(zip(lab.hosts, lab.addresses, strict=True)):
        namespaces.tool("ip", "netns", "add", name)
        _quiet(name)
        port, rate = f"port{host}", lab.spec.rates[host]
        size = f" gso_max_size {segment(rate)}" if rate is not None else ""
        ends = [INTERFACE, "netns", name, "type", "veth", "peer", "name", port, "netns", lab.switch]
        namespaces.tool("ip", "link", "add", *ends)
        up = ["link set lo up", f"addr add {address}/24 dev {INTERFACE}", f"link set {INTERFACE} mtu {MTU}{size} up"]
        namespaces.tool("ip", "-n", name, batch=up)
        namespaces.tool("ip", "-n", lab.switch, batch=[f"link set {port} master switch mtu {MTU}{size} up"])
        _shape(name, INTERFACE, rate, lab.spec.delay)
        _shape(lab.switch, port, rate, 0.0)


def _quiet(name: str) -> None:
    """Turn off IPv6 in a namespace, as its discovery would use the shaped links, and set TCP up to keep them full."""
    with namespaces.inside(name):
        with suppress(OSError):
            Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
        for control in CONTROLS:
            with suppress(OSError):
                Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text(control)
                break


def _shape(name: str, interface: str, rate: float | None, delay: float) -> None:
    """Limit outgoing traffic of an interface to `rate` bytes/s, and delay it by `delay` seconds."""
    lines, parent = [], "root"
    if rate is not None:
        depth = burst(rate)
        limit = depth + min(QUEUE_MOST, max(QUEUE_LEAST, int(rate * QUEUE_S)))
        lines.append(f"qdisc add dev {interface} root handle 1: tbf rate {rate * 8:.0f}bit burst {depth} limit {limit}")
        parent = "parent 1:1"
    if delay:
        lines.append(f"qdisc add dev {interface} {parent} netem delay {delay * 1e6:.0f}us limit 100000")
    if lines:
        namespaces.tool("tc", "-n", name, batch=lines)


@contextmanager
def _no_stderr() -> Iterator[None]:
    """Discard what C++ libraries write to stderr."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Defer signals that would interrupt this thread."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
