"""Pages whose commands are run while they are built, so that what they show is what a reader gets.

Two kinds of code blocks are more than text:

    ```run [fails] [lines=N] [hidden]      commands, each on a line of its own (`\\` continues it), run in turn;
                                           shown with what they print, or with its first N lines
    ```file NAME                           a file that is written into the page's folder, and shown

A figure that a command made is shown by `![what it is](made/PATH)`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docs.generate.site._sandbox import COLUMNS, Sandbox

BLOCK = re.compile(r"^```(run|file)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MADE = re.compile(r"\]\(made/([^)]+)\)")
LANGUAGES = {".py": "python", ".toml": "toml", ".txt": "text", ".csv": "text"}


@dataclass(frozen=True)
class Block:
    """A block that is run or written: its kind, its words after it, and its lines."""

    kind: str
    words: tuple[str, ...]
    text: str

    def commands(self) -> list[str]:
        """Its commands, each as one text; lines that end in a backslash go on."""
        return [line.strip() for line in re.split(r"(?<!\\)\n", self.text) if line.strip()]

    @property
    def most_lines(self) -> int | None:
        """How many lines of the output are shown; None for all."""
        found = [int(word.partition("=")[2]) for word in self.words if word.startswith("lines=")]
        return found[0] if found else None


def blocks_of(text: str) -> list[Block]:
    """The blocks of a page that are run or written, in order."""
    return [Block(kind, tuple(words.split()), body) for kind, words, body in BLOCK.findall(text)]


def executed(text: str, sandbox: Sandbox | None) -> str:
    """The page with every block replaced by what it shows.

    Args:
        sandbox: where the commands run; None runs none of them and shows them alone.

    Raises:
        CommandFailed: a command failed; it names the command.
    """

    def shown(found: re.Match[str]) -> str:
        (block,) = blocks_of(found[0])
        return _file(block, sandbox) if block.kind == "file" else "\n\n".join(_run(block, sandbox))

    return BLOCK.sub(shown, text)


def _file(block: Block, sandbox: Sandbox | None) -> str:
    (name,) = block.words
    if sandbox is not None:
        path = sandbox.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)
    return f"`{name}`:\n\n```{LANGUAGES.get(Path(name).suffix, 'text')}\n{block.text}```"


def _run(block: Block, sandbox: Sandbox | None) -> Iterator[str]:
    for command in block.commands():
        printed = sandbox.run(command, fails="fails" in block.words) if sandbox is not None else ""
        lines = printed.splitlines()
        if block.most_lines is not None and len(lines) > block.most_lines:
            lines = [*lines[: block.most_lines], "..."]
        if "hidden" not in block.words:
            yield "\n".join(["```console", f"$ {wrapped(command)}", *lines, "```"])


def wrapped(command: str) -> str:
    """A command on lines that fit a page, broken before its flags."""
    lines = [""]
    for word in re.split(r" (?=--)", command):
        if len(lines[-1]) + len(word) > COLUMNS - 4 and lines[-1]:
            lines.append(f"   {word}")
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return " \\\n".join(lines)


def take_figures(text: str, sandbox: Sandbox | None, page: Path) -> None:
    """Copy the figures that a page shows beside it, under `made/`; without a sandbox, an empty picture each.

    Raises:
        FileNotFoundError: no command made it.
    """
    for name in MADE.findall(text):
        place = page.parent / "made" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if sandbox is None:
            place.write_bytes(EMPTY_PNG)
        else:
            shutil.copyfile(sandbox.folder / name, place)


EMPTY_PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c63f8cfc0f01f0005000201"
    "7a1f9cd00000000049454e44ae426082"
)
"""A picture of one pixel, in place of figures that were not made."""
