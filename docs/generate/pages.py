"""What generators of pages share: their command line, tables, and the part of a page that is made."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

BAR = "\\|"
"""A bar inside a cell of a table."""


def write_or_check(text: str, page: Path, arguments: list[str] | None, about: str, fresh: str) -> int:
    """Write the page, or with --check compare it; returns the exit code.

    Args:
        about: the generator's docstring.
        fresh: what a page that is not stale is, such as "what the records say".
    """
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where the page is stale")
    if parser.parse_args(arguments).check:
        same = page.exists() and page.read_text() == text
        print(f"{page.name} is {fresh if same else 'stale: run make reference'}")
        return 0 if same else 1
    page.write_text(text)
    print(f"wrote {page.name}, {len(text.splitlines())} lines")
    return 0


def table_lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table, a line per row; bars inside cells are escaped."""
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', BAR) for cell in row)} |"


def between_marks(page: str, command: str, made: str) -> str:
    """A page written by hand, with what a command made between its two marks.

    Raises:
        ValueError: the page has no marks of this command.
    """
    begin, end = f"<!-- made by {command}, from here -->", "<!-- to here -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no lines {begin!r} and {end!r}")
    return f"{before}{begin}\n\n{made}\n{end}{after}"
