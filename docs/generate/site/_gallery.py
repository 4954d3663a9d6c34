"""The gallery: every figure with the command that made it, from the table `docs/site/gallery.toml`; and the scripts.

A figure is made by the build, unless its study is long: such a figure is one that the repository keeps, and says so.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from docs.generate.site._executed import EMPTY_PNG, wrapped
from docs.generate.site._sandbox import REPOSITORY, Sandbox

TABLE = REPOSITORY / "docs" / "site" / "gallery.toml"
SCRIPTS = REPOSITORY / "docs" / "examples"


class Entry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One figure of the gallery.

    Attributes:
        name: names its files.
        title, text: what is to be seen.
        commands: what made it; run by the build unless it is kept.
        figure: the picture that the commands write; of a kept one its path in the repository.
        page: a page that the commands write, shown by a link.
        kept: why it is not made anew; empty where it is.
    """

    name: str
    title: str
    text: str
    commands: list[str]
    figure: str
    page: str = ""
    kept: str = ""


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    figure: list[Entry]


def entries() -> list[Entry]:
    """The table. Raises msgspec.ValidationError where it is not one."""
    return msgspec.toml.decode(TABLE.read_bytes(), type=_Table).figure


def make(entry: Entry, sandbox: Sandbox) -> None:
    """Run the commands of an entry that is made by the build."""
    for command in entry.commands if not entry.kept else ():
        sandbox.run(command)


def gallery_page(made: Path | None, folder: Path, extra: Path) -> str:
    """The page; copies pictures to `folder`, and pages to `extra`, both below the site's root.

    Args:
        made: folder with a sandbox per entry; None for empty pictures.
    """
    lines = [
        "# Gallery", "",
        "Every figure with the command that makes it. Those without a remark were made by this build of the site; the",
        "others come from studies that take longer, and are kept in the repository.", "",
    ]  # fmt: skip
    for entry in entries():
        lines += _shown(entry, made, folder, extra)
    return "\n".join(lines)


def _shown(entry: Entry, made: Path | None, folder: Path, extra: Path) -> Iterator[str]:
    picture = folder / f"{entry.name}{Path(entry.figure).suffix}"
    picture.parent.mkdir(parents=True, exist_ok=True)
    if entry.kept:
        shutil.copyfile(REPOSITORY / entry.figure, picture)
    elif made is None:
        picture.write_bytes(EMPTY_PNG)
    else:
        shutil.copyfile(made / entry.name / entry.figure, picture)
    yield f"## {entry.title}"
    yield ""
    yield entry.text
    yield ""
    yield f"![{entry.title}](made/{picture.name})"
    yield ""
    if entry.page:
        place = extra / "live" / f"{entry.name}.html"
        place.parent.mkdir(parents=True, exist_ok=True)
        if made is None:
            place.write_text("<!doctype html><title>not made</title>")
        else:
            shutil.copyfile(made / entry.name / entry.page, place)
        yield f'<a href="live/{entry.name}.html">Open the page</a>: one file that needs no network.'
        yield ""
    if entry.kept:
        yield f"Kept: {entry.kept}"
        yield ""
    yield "\n".join(["```", *map(wrapped, entry.commands), "```", ""])


def scripts() -> list[Path]:
    """The scripts that are shown with what they print."""
    return sorted(SCRIPTS.glob("*.py"))


def script_page(path: Path) -> str:
    """A page that runs a script: its text, then what it prints and draws (to be executed)."""
    text = path.read_text()
    title, _, rest = text.removeprefix('"""').partition('"""\n')
    said = title.partition("\n")[0]
    figures = [part.partition('"')[0] for part in rest.split('.savefig(folder / "')[1:]]
    head, body = said.partition(": ")[::2]
    lines = [
        f"# {head.rstrip('.')}", "", f"{body[:1].upper()}{body[1:]}" if body else said, "",
        f"`docs/examples/{path.name}`, as this build runs it:", "", f"```python\n{rest.strip()}\n```", "",
        "It prints", "", f"```run\npython {path.name} .\n```", "",
    ]  # fmt: skip
    return "\n".join([*lines, *(f"![{name.partition('.')[0]}](made/{name})\n" for name in figures)])
