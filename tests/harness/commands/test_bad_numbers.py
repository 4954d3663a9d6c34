"""Numbers and files that nobody could mean: exit code 2 and one line, whichever flag or file they stand in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness import cli

RUN = ["run", "--dataset", "synthetic:nodes=60,degree=4,classes=3,features=8", "--epochs", "1", "--eval-every", "-1"]
SIM = [*RUN, "--mode", "sim", "--cluster"]
Refused = Callable[..., str]


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Runs a command in an empty folder; returns its one line on stderr."""
    monkeypatch.chdir(tmp_path)

    def command(*argv: str) -> str:
        try:
            code = cli.main([*argv])
        except SystemExit as error:  # of argparse
            code = error.code if isinstance(error.code, int) else 1
        said = capsys.readouterr().err.strip()
        assert code == 2, said
        assert "Traceback" not in said
        return said.splitlines()[-1]

    return command


FILES: list[tuple[str, bytes, str]] = [
    ("run.toml", b'method = "\xff\xfe"', "not UTF-8"),
    ("run.toml", b"a = " + b"[" * 3000 + b"]" * 3000, "nested too deeply"),
    ("run.toml", b"epochs = " + b"9" * 5000, "is not TOML"),
    ("run.toml", b"seed = " + b"9" * 30, "seed"),
    ("run.toml", b"lr = inf", "lr must be a finite number"),
    ("run.toml", b"lr = nan", "lr must be"),
    ("run.toml", b"weight_decay = nan", "weight-decay must"),
]


@pytest.mark.parametrize(("name", "content", "words"), FILES)
def test_config_files(name: str, content: bytes, words: str, refused: Refused, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert words in refused(*RUN, "--config", name)


@pytest.mark.parametrize(("name", "content", "words"), FILES[:3])
def test_files_of_clusters_sweeps_and_workloads(
    name: str, content: bytes, words: str, refused: Refused, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    assert words in refused(*SIM, name)
    assert words in refused("sweep", name)
    assert words in refused("run", "--mode", "sim", "--shapes-only", "--dataset", f"./{name}", "--epochs", "1")


SETTINGS = [
    ("--weight-decay", "nan"), ("--weight-decay", "-1"), ("--lr", "inf"), ("--lr", "1e999"), ("--timeout", "inf"),
    ("--timeout", "nan"), ("--startup-timeout", "inf"), ("--prepare-timeout", "inf"), ("--seed", "-1"),
    ("--seed", "9" * 25), ("--renumber", "\u00b2"), ("--renumber", "9" * 30), ("--dropout", "nan"), ("--parts", "1e3"),
    ("--epochs", "9" * 40), ("--method", "sylvie-s:bits=\u00b2"), ("--method", "bns-gcn:p=nan"),
    ("--method", "bns-gcn:p=1e400"),
]  # fmt: skip


@pytest.mark.parametrize(("flag", "value"), SETTINGS)
def test_settings(flag: str, value: str, refused: Refused) -> None:
    assert refused(*RUN, flag, value)
    if flag in ("--seed", "--renumber", "--parts"):
        assert refused("partition", "--dataset", RUN[2], flag, value)


CHANGES = [
    "links.nic.bandwidth=1e999999GB/s", "links.nic.bandwidth=1e-320B/s", "links.nic.bandwidth=1e300GB/s",
    "links.nic.bandwidth=nanB/s", "links.nic.latency=1e999s", "links.nic.latency=-1us", "hosts.count=1e23",
    f"hosts.count={'9' * 30}", "hosts.count=-1", f"stragglers.jitter={'9' * 400}", "stragglers.jitter=nan",
    "stragglers.jitter=1e400",
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_clusters(change: str, refused: Refused) -> None:
    assert change.partition("=")[0].rpartition(".")[2] in refused(*SIM, f"ethernet-1g:{change}")


def test_the_smallest_and_largest_numbers_that_are_taken_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for bandwidth in ("1e-15B/s", "1e21B/s"):
        assert cli.main([*SIM, f"ethernet-1g:links.nic.bandwidth={bandwidth}", "--quiet"]) == 0
