"""Writing or checking a page that is made from code: the command line of every generator of one page."""

from __future__ import annotations

import argparse
from pathlib import Path


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
