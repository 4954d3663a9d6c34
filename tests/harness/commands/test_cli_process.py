"""The command as a separate process: loaded modules, exit codes, formats of numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from harness import cli
from harness.console import byte_text, significant

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
