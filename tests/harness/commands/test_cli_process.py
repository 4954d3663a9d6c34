"""The command as a separate process: loaded modules, exit codes, formats of numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from harness import cli
from harness.commands import methods
from harness.console import byte_text, significant
from harness.methods.registry import METHODS
from harness.methods.vanilla import Vanilla

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parent.parent)}


def test_installed_as_a_module_and_quick_to_help(tmp_path: Path) -> None:
    """`--help` does not load torch; an error gives exit code 2 and one line."""
    probe = "import sys; from harness.cli import main; main(['run', '--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], env=ENVIRONMENT, stdout=subprocess.DEVNULL).returncode == 0
    wrong = [sys.executable, "-m", "harness", "run", "--method", "vanila"]
    done = subprocess.run(wrong, env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "haloscope: error: unknown method 'vanila'; did you mean 'vanilla'?\n"
    assert not list(tmp_path.iterdir())


def test_methods_are_listed_without_torch_until_the_code_changes(
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
    heavy = "any(name in sys.modules for name in ('torch', 'numba', 'joblib'))"
    probe = f"import sys; from harness.cli import main; main(['methods', *sys.argv[1:]]); sys.exit({heavy})"
    environment = {**ENVIRONMENT, "HALOSCOPE_CACHE": str(kept.parent)}
    for words in ([], ["sar"]):
        command = [sys.executable, "-c", probe, *words]
        assert subprocess.run(command, env=environment, stdout=subprocess.DEVNULL).returncode == 0
    content = kept.read_text()
    for other in (content.replace('"code":"', '"code":"x').replace("depth: rounds", "depth: turns"), "not JSON"):
        kept.write_text(other)
        assert printed("sar") == first[1] and kept.read_text() == content

    point = EntryPoint("sooner", "harness.methods.vanilla:Vanilla", methods.GROUP)
    monkeypatch.setattr(methods, "entry_points", lambda group: [point] * (group == methods.GROUP))
    monkeypatch.setattr(METHODS, "find", lambda name: Vanilla if name == "sooner" else METHODS.builtin[name])
    assert METHODS.group == methods.GROUP
    assert "sooner" in printed() and printed("sooner").startswith("sooner: cut edge") and kept.read_text() == content
    monkeypatch.setenv("HALOSCOPE_CACHE", str(kept))  # a file: nothing can be kept
    assert printed("sar") == first[1]


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    for argv, code in ((["methods"], 141), (["run", "--help"], 0)):
        listing = subprocess.Popen(
            [sys.executable, "-m", "harness", *argv], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert listing.stdout is not None and listing.stderr is not None
        listing.stdout.close()
        with listing.stderr:
            assert listing.stderr.read() == b""
        assert listing.wait() == code


def test_numbers_read_well() -> None:
    assert [significant(v) for v in (None, 0, 0.01234, 1.0, 9.996, 99.96, 123.4, 12345.6)] == [
        "-", "0", "0.0123", "1.00", "10.0", "100", "123", "12,346"
    ]  # fmt: skip
    assert [byte_text(v) for v in (None, 0, 999, 1_234_000, 5e12)] == ["-", "0 B", "999 B", "1.23 MB", "5.00 TB"]
