"""Writes the tables of generated graphs in `docs/graphs.md`: the parameters of `synthetic:` and named sets of them.

python -m docs.generate.recipes            # write the tables
python -m docs.generate.recipes --check    # exit code 1 if the page does not have what would be written
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from docs.generate.pages import between_marks, table_lines, write_or_check
from harness.datasets import PRESETS, Recipe

PAGE = Path(__file__).resolve().parent.parent / "graphs.md"
HEAD = ("parameter", "default", "meaning")
PRESET_HEAD = ("name", "stands in for", "nodes", "degree", "features", "classes", "split, shares")
MARK = "python -m docs.generate.recipes"


def tables() -> str:
    """Both tables."""
    return "\n".join([*table_lines(HEAD, _parameters()), "", *table_lines(PRESET_HEAD, _presets()), ""])


def _parameters() -> Iterator[tuple[str, ...]]:
    for member in fields(Recipe):
        if "help" in member.metadata:
            yield f"`{member.name}`", f"`{member.default}`", member.metadata["help"]


def _presets() -> Iterator[tuple[str, ...]]:
    for name, recipe in PRESETS.items():
        split = " / ".join(f"{share:.2g}" for share in recipe.split or ())
        classes = f"{recipe.classes}{', several a node' * recipe.multilabel}"
        sizes = f"{recipe.nodes:,}", f"{recipe.degree:.1f}", str(recipe.features), classes
        yield f"`synthetic:{name}`", recipe.standin, *sizes, split


def main(arguments: list[str] | None = None) -> int:
    """Write the tables into the page, or with --check compare them."""
    page = between_marks(PAGE.read_text(), MARK, tables())
    return write_or_check(page, PAGE, arguments, __doc__ or "", "what the recipes say")


if __name__ == "__main__":
    sys.exit(main())
