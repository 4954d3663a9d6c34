"""`haloscope clusters --ask`: answers become a cluster file; what does not fit is asked again, or refused if piped."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from harness import cli
from sims.cluster import load_cluster

GPUS = "4\na100-80gb\n8\n\n240GB/s\n100Gb/s\n2\n\n"


class Typed(io.StringIO):
    """Answers that somebody types."""

    def isatty(self) -> bool:
        return True


def asked(monkeypatch: pytest.MonkeyPatch, answers: str, path: Path, typed: bool = False) -> int:
    monkeypatch.setattr("sys.stdin", (Typed if typed else io.StringIO)(answers))
    return cli.main(["clusters", "--ask", str(path)])


def test_answers_become_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.toml"
    assert asked(monkeypatch, GPUS, path) == 0
    cluster = load_cluster(path)
    line = load_cluster("hosts=4,device=a100-80gb,devices=8,bus=24GB/s,peer=240GB/s,nic=100Gb/s,nics=2,library=nccl")
    assert (cluster.hosts, cluster.devices, cluster.nics) == (4, 8, 2)
    assert cluster.links == line.links and cluster.transport == line.transport
    assert cluster.links["nic"].latency.source == "assumed", "an empty line says nothing"
    assert cluster.name == "own" and cluster.summary.startswith("4 hosts x 8 a100-80gb, 2 x 100Gb/s each")
    out = capsys.readouterr().out
    assert "hosts: 4, each with 8 devices" in out and f"--cluster {path}" in out


def test_empty_lines_take_what_is_in_brackets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "own.toml"
    assert asked(monkeypatch, "\n" * 6, path) == 0
    cluster = load_cluster(path)
    assert (cluster.hosts, cluster.devices, cluster.transport.kind) == (4, 1, "gloo")
    assert cluster.links["nic"].bandwidth.value == 1.25e9


def test_hosts_may_be_named_as_slurm_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, "gpu[01-03],login\n\n2\n\n\n\n\n", tmp_path / "own.toml") == 0
    assert load_cluster(tmp_path / "own.toml").hosts == 4


def test_a_terminal_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.toml"
    assert asked(monkeypatch, "many\n0\n3\nabacus\nl4\n1\n10 horses\n12GB/s\n\n\nsoon\n5us\n", path, typed=True) == 0
    cluster = load_cluster(path)
    assert cluster.hosts == 3 and cluster.links["bus"].bandwidth.value == 12e9
    assert cluster.links["nic"].latency.value == 5e-6 and cluster.links["nic"].latency.source == "datasheet"
    assert capsys.readouterr().err.count("how many hosts") == 3


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ("0\n", "no whole number from 1"),
        ("4\nabacus\n", "unknown device"),
        ("2\n\n1\n10zB\n", "not a bandwidth"),
        ("2\n\n1\n\n\nsoon\n", "not a time"),
        ("gpu[4-1]\n", "is no range"),
        ("4\nl4", "answers end before 'how many of them"),
        ("", "answers end before 'how many hosts"),
    ],
)
def test_piped_answers_that_do_not_fit_are_refused(
    answers: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(monkeypatch, answers, tmp_path / "own.toml") == 2
    assert says in capsys.readouterr().err.splitlines()[-1] and not (tmp_path / "own.toml").exists()


def test_the_file_must_be_a_cluster_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, GPUS, tmp_path / "own.txt") == 2
    (tmp_path / "file").write_text("")
    assert asked(monkeypatch, GPUS, tmp_path / "file" / "own.toml") == 2


def test_advice_asks_only_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --cluster: the answers are kept beside the advice; piped, one line says what to give."""
    command = ["advise", "--dataset", "synthetic:nodes=300", "--out", str(tmp_path), "--parts", "99"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n" * 6))
    assert cli.main(command) == 2 and "which cluster?" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", Typed("\n" * 6))
    assert cli.main(command) == 2 and "--parts 99: from 2 to 4 on cluster cluster" in capsys.readouterr().err
    assert load_cluster(tmp_path / "cluster.toml").hosts == 4
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert cli.main(command) == 2 and "--parts 99" in capsys.readouterr().err, "the answers are used again"
