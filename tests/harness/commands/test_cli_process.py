"""The command as a separate process: loaded modules, exit codes, formats of numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from harness import cli, registry
from harness.methods.registry import METHODS
from harness.numbers import byte_text, count_text, significant
from harness.running.results import load_result

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parent.parent)}


HEAVY = ("torch", "numba", "scipy", "pandas", "matplotlib", "pyarrow", "joblib")
PROBE = f"""
import sys
from harness.cli import main
code = main(sys.argv[1:])
sys.exit(code if not (heavy := [name for name in {HEAVY} if name in sys.modules]) else str(heavy))
"""
"""Runs a command; the exit code is its own, or 1 with a list on stderr if it loaded heavy packages."""


def without_heavy_packages(*words: str, cache: Path | None = None) -> str:
    """What the command prints in a process of its own; its exit code, and no heavy package, is what it is asked for."""
    environment = ENVIRONMENT if cache is None else {**ENVIRONMENT, "HALOSCOPE_CACHE": str(cache)}
    done = subprocess.run([sys.executable, "-c", PROBE, *words], env=environment, capture_output=True, text=True)
    assert done.returncode in (0, 2), done.stderr
    return done.stderr if done.returncode else done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run --help", "--eval-every"),
        ("clusters", "ethernet-10g"),
        ("run --epochs -1", "epochs"),
        ("run --method vanila", "did you mean 'vanilla'"),
        ("compare --methods vanilla,sylvie-x", "unknown method 'sylvie-x'"),
        ("what-if --methods vanilla,sylvie-x", "unknown method 'sylvie-x'"),
        ("run --mode sim --cluster ethernet-10q", "unknown cluster 'ethernet-10q'"),
        ("methods vanila", "did you mean 'vanilla'"),
    ],
)
def test_lists_and_errors_load_nothing_heavy(words: str, said: str) -> None:
    """Torch alone takes longer to import than all of them may take."""
    assert said in without_heavy_packages(*words.split())


def test_installed_as_a_module(tmp_path: Path) -> None:
    """An error gives exit code 2 and one line."""
    wrong = [sys.executable, "-m", "harness", "run", "--method", "vanila"]
    done = subprocess.run(wrong, env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "haloscope: error: unknown method 'vanila'; did you mean 'vanilla'?\n"
    assert not list(tmp_path.iterdir())


def test_methods_and_partitioners_are_listed_without_torch_until_the_code_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What they state is kept for the code that states it; other packages' methods are never kept."""
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path / "cache"))

    def printed(*words: str) -> str:
        assert cli.main(["methods", *words]) == 0
        return capsys.readouterr().out

    first = printed(), printed("sar")
    kept = tmp_path / "cache" / "methods.json"
    assert (printed(), printed("sar")) == first and "depth: rounds that are on their way" in first[1]
    assert cli.main(["partitioners"]) == 0
    listed = capsys.readouterr().out
    for words, said in ((["methods"], first[0]), (["methods", "sar"], first[1]), (["partitioners"], listed)):
        assert without_heavy_packages(*words, cache=kept.parent) == said
    content = kept.read_text()
    for other in (content.replace('"code":"', '"code":"x').replace("depth: rounds", "depth: turns"), "not JSON"):
        kept.write_text(other)
        assert printed("sar") == first[1] and kept.read_text() == content

    point = EntryPoint("sooner", "harness.methods.vanilla:Vanilla", METHODS.group)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] * (group == METHODS.group))
    assert "sooner" in printed() and printed("sooner").startswith("sooner: cut edge") and kept.read_text() == content
    monkeypatch.setenv("HALOSCOPE_CACHE", str(kept))  # a file: nothing can be kept
    assert printed("sar") == first[1]


@pytest.mark.parametrize(
    "graph",
    [
        "--dataset synthetic:nodes=60,degree=4,classes=3,features=8 --parts 2",
        "--dataset workload:reddit-10 --parts 10 --shapes-only",
    ],
)
def test_a_run_does_without_torchs_compiler(graph: str, tmp_path: Path) -> None:
    """Its import takes as long as torch's own, in every rank; runs at once in one folder leave one whole result."""
    probe = PROBE.replace(str(HEAVY), "('torch._dynamo', 'scipy.optimize', 'matplotlib', 'pandas')")
    words = f"run {graph} --method sylvie-s --mode sim --quiet"
    command = [sys.executable, "-c", probe, *words.split(), "--epochs", "2", "--out", str(tmp_path / "runs")]
    environment = {**ENVIRONMENT, "HALOSCOPE_CACHE": str(tmp_path / "cache")}
    begun = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[1] for process in begun]
    assert [process.returncode for process in begun] == [0, 0], said
    (file,) = (tmp_path / "runs").iterdir()
    assert load_result(file)["state"] == "done"


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    for argv, codes in (
        (["methods"], {141}),
        (["run", "--help"], {0, 141}),
    ):  # argparse of 3.11.2 tells, later ones do not
        listing = subprocess.Popen(
            [sys.executable, "-m", "harness", *argv], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert listing.stdout is not None and listing.stderr is not None
        listing.stdout.close()
        with listing.stderr:
            assert listing.stderr.read() == b""
        assert listing.wait() in codes


def test_numbers_read_well() -> None:
    assert [significant(v) for v in (None, 0, 0.01234, 1.0, 9.996, 99.96, 123.4, 12345.6)] == [
        "-", "0", "0.0123", "1.00", "10.0", "100", "123", "12,346"
    ]  # fmt: skip
    assert [byte_text(v) for v in (None, 0, 999, 1_234_000, 5e12)] == ["-", "0 B", "999 B", "1.23 MB", "5.00 TB"]
    assert [count_text(v, "epoch") for v in (0, 1, 1234, 1.0, 2.5)] == [
        "0 epochs", "1 epoch", "1234 epochs", "1 epoch", "2.50 epochs",
    ]  # fmt: skip
