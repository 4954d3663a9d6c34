"""Writes `docs/outputs.md`: every field of what commands write, with unit, aggregation and when it is null.

python -m docs.generate.outputs            # write the page
python -m docs.generate.outputs --check    # exit code 1 if the page is not what would be written

What is said of the fields stands in `outputs.toml` beside this file; names of components and the commands that have
`--json` are read from the code.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from docs.generate.pages import table_lines, write_or_check
from harness.rank import COMPONENTS

SOURCE = Path(__file__).with_suffix(".toml")
PAGE = SOURCE.parent.parent / "outputs.md"
HEAD = ("field", "unit", "over ranks and epochs", "null or absent", "meaning")
EXPANDED = "{component}"


@dataclass(frozen=True)
class Fields:
    """The fields of one kind of output.

    Attributes:
        rows: name, unit, aggregation, when null, meaning; of each field.
    """

    title: str
    about: str
    rows: Sequence[tuple[str, str, str, str, str]]

    @property
    def names(self) -> list[str]:
        """The names of all fields, those of components written out."""
        return [name for row in self.rows for name in expanded(row[0])]


@cache
def _source() -> Mapping[str, Any]:
    return tomllib.loads(SOURCE.read_text())


def sections() -> dict[str, Fields]:
    """Title -> fields of that kind of output."""
    made = [Fields(each["title"], each["about"].strip(), each["rows"]) for each in _source()["section"]]
    return {section.title: section for section in made}


def components() -> Mapping[str, tuple[str, str]]:
    """Component, and `hidden` -> what it is over ranks, and its meaning."""
    found: Mapping[str, tuple[str, str]] = _source()["components"]
    return found


def json_of() -> Mapping[str, tuple[str, str]]:
    """Command -> what its `--json` holds, and where that is described."""
    found: Mapping[str, tuple[str, str]] = _source()["json"]
    return found


def expanded(name: str) -> list[str]:
    """The names that a name stands for."""
    return [name.replace(EXPANDED, each) for each in (*COMPONENTS, "hidden")] if EXPANDED in name else [name]


def page() -> str:
    """The whole page."""
    return "\n".join([_text("opening"), *_components(), *_files(), *_json()]).rstrip() + "\n"


def _text(name: str) -> str:
    text: str = _source()[name]
    return text


def _components() -> Iterator[str]:
    yield _text("about_components")
    rows = [(f"`{name}`", over, meaning) for name, (over, meaning) in components().items()]
    yield from table_lines(("component", "over ranks", "what counts"), rows)
    yield ""


def _files() -> Iterator[str]:
    for section in sections().values():
        yield f"## {section.title}"
        yield ""
        yield section.about
        yield ""
        named = [(", ".join(f"`{name}`" for name in expanded(first)), *rest) for first, *rest in section.rows]
        yield from table_lines(HEAD, named)
        yield ""


def _json() -> Iterator[str]:
    yield _text("about_json")
    rows = [(f"`{name}`", what, f"[there]({where})") for name, (what, where) in json_of().items()]
    yield from table_lines(("command", "content", "fields"), rows)


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or with --check compare it."""
    return write_or_check(page(), PAGE, arguments, __doc__ or "", "what its source says")


if __name__ == "__main__":
    sys.exit(main())
