"""A folder of its own in which a page's commands run as a reader would type them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
LONGEST = 600
"""Seconds that one command of a page may take."""

COLUMNS = 90
"""Width of what is printed, in characters: as wide as a page is."""


class CommandFailed(Exception):
    """A command of a page ended otherwise than the page says; the message holds what it printed."""


@dataclass(frozen=True)
class Sandbox:
    """Runs commands in a folder.

    Attributes:
        folder: the working folder; made when it is first used.
        shared: folder of the commands `haloscope` and `python`, and of the cache, for all sandboxes of a build.
    """

    folder: Path
    shared: Path

    def run(self, command: str, *, fails: bool = False) -> str:
        """What a command prints; of one that is to fail, its message.

        Raises:
            CommandFailed: it failed and was not to, or the other way round.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self._environment(), capture_output=True, text=True,
            timeout=LONGEST,
        )  # fmt: skip
        if (done.returncode != 0) != fails:
            raise CommandFailed(f"{command}\nexit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
        printed = done.stderr if fails else done.stdout
        for place, said in ((self.folder, ""), (REPOSITORY, ""), (self.shared / "cache", "~/.cache/haloscope/")):
            printed = printed.replace(f"{place.resolve()}/", said)
        return re.sub(r"[ \t]+$", "", printed, flags=re.MULTILINE).strip("\n")

    def _environment(self) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("HALOSCOPE")}
        path = os.pathsep.join([str(self.shared / "bin"), inherited.get("PATH", "")])
        ours = {"PATH": path, "PYTHONPATH": str(REPOSITORY), "COLUMNS": str(COLUMNS), "MPLBACKEND": "agg"}
        return {**inherited, **ours, "HALOSCOPE_CACHE": str(self.shared / "cache")}


def make_commands(shared: Path) -> None:
    """Write `haloscope` and `python` so that they are this checkout's and this interpreter's."""
    (shared / "bin").mkdir(parents=True, exist_ok=True)
    for name, words in (("haloscope", " -m harness"), ("python", "")):
        path = shared / "bin" / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
        path.chmod(0o755)
