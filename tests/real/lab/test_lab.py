"""The lab on this machine: construction, shaping, and removal in every case."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import cli
from harness.config import PAYLOAD_SHARE, parse_lab
from harness.errors import HaloscopeError, InputError
from real.lab import _hosts as lab
from real.lab import _namespaces as namespaces
from real.lab import _probe as lab_probe
from real.launch import launch
from real.launch._launcher import RankFailed
from tests.conftest import REPOSITORY
from tests.support.labs import namespaces_of, needs_lab

pytestmark = pytest.mark.alone

LATE = 60.0  # seconds that something on a busy machine may take

BUILDER = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background are started with Ctrl-C ignored
from harness.config import parse_lab
from real import lab
with lab.built(parse_lab("lab:2x100mbit")) as hosts:
    with hosts.inside(0):
        child = subprocess.Popen(["sleep", "60"])
    print(child.pid, flush=True)
    child.wait()
"""


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    needs_lab()
    yield
    assert namespaces_of(os.getpid()) == []


def builder() -> tuple[subprocess.Popen[str], int]:
    """A process with a lab, and the process that sleeps on the lab's first host."""
    process = subprocess.Popen([sys.executable, "-c", BUILDER], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def eventually(gone: int) -> None:
    """Wait until a process has ended."""
    deadline = time.monotonic() + LATE
    while Path(f"/proc/{gone}").exists() and "\nState:\tZ" not in Path(f"/proc/{gone}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_hosts_see_each_other_and_nothing_else() -> None:
    with lab.built(parse_lab("lab:3x100mbit,unshaped:ranks=2")) as hosts:
        assert namespaces_of(os.getpid()) == sorted([*hosts.hosts, hosts.switch])
        assert len(hosts.hosts) == 4
        for rank in (0, 7):
            with hosts.inside(rank):
                assert {name for _, name in socket.if_nameindex()} == {"lo", lab.INTERFACE}
                destinations = [
                    line.split()[1] for line in Path("/proc/thread-self/net/route").read_text().splitlines()
                ]
            assert destinations == ["Destination", "0000560A"]  # 10.86.0.0, and no way out
        assert lab.INTERFACE not in {name for _, name in socket.if_nameindex()}
    assert namespaces_of(os.getpid()) == []


def best_rate(hosts: lab.Lab, flows: list[lab_probe.Flow], enough: float) -> float:
    """The highest rate of up to eight transfers: a busy machine may delay a sender, but a link is never faster."""
    best = 0.0
    for _ in range(8):
        best = max(best, lab_probe.throughput(hosts, flows))
        if best > enough:
            break
    return best


def test_a_link_has_the_rate_that_was_asked_for() -> None:
    with lab.built(parse_lab("lab:2x100mbit,20mbit")) as hosts:
        fast = 100e6 / 8 * PAYLOAD_SHARE
        for flow, rate in (((0, 1), fast), ((1, 0), fast), ((0, 2), fast / 5), ((2, 0), fast / 5)):
            assert best_rate(hosts, [flow], 0.9 * rate) == pytest.approx(rate, rel=0.1)
        both = best_rate(hosts, [(1, 0), (2, 0)], 0.65 * fast)  # they share the last link, TCP willing
        assert 0.65 * fast < both < 1.1 * fast
        assert 0 < lab_probe.round_trip(hosts, 0, 2, pings=5) < 0.5


def test_neighbours_on_a_host_are_not_shaped() -> None:
    size = 2 << 20  # 16 s at the link's rate
    with lab.built(parse_lab("lab:2x1mbit:ranks=2")) as hosts:
        with hosts.inside(0), socket.create_server((hosts.addresses[0], 0)) as listener:
            near = socket.create_connection(listener.getsockname(), LATE)
            far, _ = listener.accept()
        with near, far:
            begun = time.monotonic()
            sender = threading.Thread(target=near.sendall, args=(bytes(size),))
            sender.start()
            received = 0
            while received < size:
                received += len(far.recv(1 << 20))
            sender.join()
        assert time.monotonic() - begun < 8


def test_every_pair_is_measured_and_then_all_to_one() -> None:
    deadline = time.monotonic() + LATE
    with lab.built(parse_lab("lab:2x20mbit,10mbit")) as hosts:
        found = list(lab_probe.links(hosts))
        while not all(m.rate > 0.5 * (m.asked or 0) for m in found) and time.monotonic() < deadline:
            found = list(lab_probe.links(hosts))  # this machine was busy elsewhere
    pairs = [(m.source, m.target) for m in found]
    assert pairs == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1), (None, 0), (None, 1), (None, 2)]
    asked = [round((m.asked or 0) * 8e-6 / PAYLOAD_SHARE) for m in found]
    assert asked == [20, 10, 20, 10, 10, 10, 20, 20, 10]
    assert all(0.5 < m.rate / (m.asked or 1) < 1.3 for m in found)
    assert [m.round_trip is None for m in found] == [False] * 6 + [True] * 3


def test_an_exception_takes_the_lab_down() -> None:
    with pytest.raises(ZeroDivisionError), lab.built(parse_lab("lab:2xunshaped")):
        _ = 1 // 0


def test_a_build_that_fails_half_way_is_taken_down(monkeypatch: pytest.MonkeyPatch) -> None:
    shaped: list[str] = []

    def shape(name: str, interface: str, rate: float | None, delay: float) -> None:
        shaped.append(name)
        if len(shaped) == 3:
            raise InputError("no more")

    monkeypatch.setattr(lab, "_shape", shape)
    with pytest.raises(InputError, match="no more"), lab.built(parse_lab("lab:3x1gbit")):
        raise AssertionError
    assert len(shaped) == 3


def test_one_lab_at_a_time_and_the_first_survives() -> None:
    with lab.built(parse_lab("lab:2xunshaped")) as hosts:
        with pytest.raises(InputError, match="has a lab already"), lab.built(parse_lab("lab:1xunshaped")):
            raise AssertionError
        assert namespaces_of(os.getpid()) == sorted([*hosts.hosts, hosts.switch])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_a_signal_takes_the_lab_down(number: signal.Signals, code: int) -> None:
    process, inner = builder()
    assert namespaces_of(process.pid)
    with process:
        process.send_signal(number)
        assert process.wait(LATE) == code
    assert namespaces_of(process.pid) == []
    eventually(inner)


def test_what_a_killed_builder_left_is_cleaned_up(capsys: pytest.CaptureFixture[str]) -> None:
    process, inner = builder()
    assert len(namespaces_of(process.pid)) == 3
    with process:
        process.kill()
    assert Path(f"/proc/{inner}").exists()
    assert cli.main(["lab", "--clean"]) == 0
    assert "namespaces of dead processes" in capsys.readouterr().out
    assert namespaces_of(process.pid) == []
    eventually(inner)


def test_names_of_the_living_are_not_stale() -> None:
    with lab.built(parse_lab("lab:1xunshaped")):
        assert not set(namespaces_of(os.getpid())) & set(namespaces.stale())


def test_a_lab_of_a_dead_process_with_our_number_is_not_in_the_way() -> None:
    left = f"hs{os.getpid()}-1f-switch"
    namespaces.tool("ip", "netns", "add", left)
    with lab.built(parse_lab("lab:1xunshaped")):
        assert left not in namespaces_of(os.getpid()) != []
    assert namespaces_of(os.getpid()) == []


def test_ranks_find_their_host_and_the_store(tmp_path: Path) -> None:
    names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "GLOO_SOCKET_IFNAME")
    line = f"""
import os, socket
store = socket.create_connection((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])), 20)
said = ' '.join(os.environ[n] for n in {names}) + ' ' + store.getsockname()[0]
open('{tmp_path}/' + os.environ['RANK'], 'w').write(said)
"""
    with lab.built(parse_lab("lab:2x1gbit:ranks=2")) as hosts:
        launch(["-c", line], 3, site=hosts, deadline_s=LATE)
    found = [(tmp_path / str(rank)).read_text() for rank in range(3)]
    assert found == [
        "0 0 2 0 10.86.0.254 lab0 10.86.0.1",
        "1 1 2 0 10.86.0.254 lab0 10.86.0.1",
        "2 0 1 1 10.86.0.254 lab0 10.86.0.2",
    ]


def test_a_rank_that_dies_in_the_lab_is_named() -> None:
    line = "import os, time\nif os.environ['RANK'] == '1': os.kill(os.getpid(), 9)\ntime.sleep(60)"
    with lab.built(parse_lab("lab:2x1gbit")) as hosts, pytest.raises(RankFailed, match="rank 1 was killed by SIGKILL"):
        launch(["-c", line], 2, site=hosts, grace_s=0.2, deadline_s=LATE)


def test_command_on_the_first_host(tmp_path: Path) -> None:
    line = f'(echo "$HALOSCOPE_LAB $HALOSCOPE_LAB_ADDRESSES"; ip -br -4 a show lab0) > {tmp_path}/said; exit 7'
    assert cli.main(["lab", "lab:2x1gbit", "--", "sh", "-c", line]) == 7
    first, second = (tmp_path / "said").read_text().splitlines()
    assert first == "lab:2x1gbit 10.86.0.1 10.86.0.2"
    assert second.split()[-1] == "10.86.0.1/24"
    assert cli.main(["lab", "lab:1xunshaped", "--", "sh", "-c", "kill -9 $$"]) == 128 + 9


def test_command_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lab", "lab:1xunshaped", "--", "/no/such/command"]) == 2
    assert "cannot run /no/such/command" in capsys.readouterr().err


def test_measured_beside_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lab", "lab:2x50mbit"]) == 0
    said = capsys.readouterr().out
    assert "asked Mb/s" in said and said.count("47.8") >= 2


def test_what_this_machine_can_build(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lab", "--check"]) == 0
    said = capsys.readouterr().out
    assert all(what in said for what in ("network namespaces", "tbf", "netem", "cores"))


def test_delay_needs_netem() -> None:
    if lab.available("netem"):
        with lab.built(parse_lab("lab:2x100mbit:delay=20ms")) as hosts:
            assert lab_probe.round_trip(hosts, 0, 1, pings=5) >= 0.04
    else:
        with pytest.raises(InputError, match="no netem"), lab.built(parse_lab("lab:2x100mbit:delay=20ms")):
            raise AssertionError


def test_transfers_have_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_probe, "PATIENCE_S", 0.05)
    with (
        lab.built(parse_lab("lab:2x1mbit")) as hosts,
        pytest.raises(HaloscopeError, match="a transfer inside the lab failed: timed out"),
    ):
        lab_probe._together([lambda: _silent(hosts)])


def _silent(hosts: lab.Lab) -> None:
    with lab_probe._connected(hosts, [(0, 1)]) as [(_, far)]:
        far.recv(1)


def test_what_another_process_removes_first_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    name, real_tool = namespaces.name_of("trial"), namespaces.tool

    def slow(*words: str, **more: list[str]) -> str:
        said = real_tool(*words, **more)
        if words[:3] == ("ip", "netns", "pids"):
            real_tool("ip", "netns", "del", name)
        return said

    namespaces.tool("ip", "netns", "add", name)
    monkeypatch.setattr(namespaces, "tool", slow)
    namespaces.remove([name, name])
    assert namespaces_of(os.getpid()) == []
