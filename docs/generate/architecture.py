"""Measures the imports between modules, draws them as `docs/architecture.svg`, and writes the table of
`docs/architecture.md`.

python -m docs.generate.architecture                 # print the measures; write the drawing and the table
python -m docs.generate.architecture --root PATH     # print the measures of another checkout; write nothing
python -m docs.generate.architecture --check         # exit code 1 if drawing or table are not what would be written
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from docs.generate import drawing
from docs.generate.imports import (
    FACE,
    PACKAGES,
    Code,
    circles,
    code_of,
    folder_imports,
    height_of,
    levels,
    reduced,
    upward,
    within,
)
from docs.generate.pages import between_marks

DOCS = Path(__file__).resolve().parent.parent
PAGE, PICTURE = DOCS / "architecture.md", DOCS / "architecture.svg"
HEAD = ("level", "folder or file", "what it is for", "imports here", "imports elsewhere")
ABOUT_COMMANDS = "What a command line starts, and the commands; they may import everything."


def measures(code: Code) -> Iterator[str]:
    """The measures of a checkout, as lines of text."""
    heads = ("files", "lines", "folders", "loose", "chain", "levels", "file circles", "folder circles")
    yield f"{'package':<10}" + "".join(f"{head:>{len(head) + 3}}" for head in heads)
    inside = folder_imports(code)
    for package in PACKAGES:
        files = within(code.imports, package)
        parts = within(inside, package)
        folders = [folder for folder in parts if folder in code.folders]
        size, loose = sum(code.lines[name] for name in files), len(parts) - len(folders)
        chains = 1 + max(levels(files).values()), 1 + max(levels(parts).values())
        numbers = (len(files), size, len(folders), loose, *chains, len(circles(files)), len(circles(parts)))
        yield f"{package:<10}" + "".join(f"{n:>{len(head) + 3}}" for n, head in zip(numbers, heads, strict=True))
    commands = [name for name in code.lines if height_of(name) == 3]
    yield f"{'commands':<10}{len(commands):>8}{sum(code.lines[name] for name in commands):>8}"
    yield f"{'all':<10}{len(code.lines):>8}{sum(code.lines.values()):>8}"
    yield f"longest chain of imports through all packages: {1 + max(levels(code.imports).values())} files"
    yield ""
    yield from _listed("imports upward between packages", [f"{a} -> {b}" for a, b in upward(code)])
    yield from _listed("files that import each other", [" ".join(names) for names in circles(code.imports)])
    yield ""
    yield "files by folder:"
    count = Counter(_folder(code, name) for name in code.lines)
    lines: Counter[str] = Counter()
    for name, number in code.lines.items():
        lines[_folder(code, name)] += number
    yield from (f"  {folder:<36}{count[folder]:>4} files{lines[folder]:>7} lines" for folder in sorted(count))


def _listed(title: str, found: list[str]) -> Iterator[str]:
    yield f"{title}: {len(found)}"
    yield from (f"  {line}" for line in found)


def _folder(code: Code, module: str) -> str:
    folder = module if module in code.folders else module.rpartition(".")[0]
    return folder.replace(".", "/")


def table(code: Code) -> str:
    """Every folder and loose file with its purpose and its imports, from the top down."""
    inside, lines = folder_imports(code), []
    commands = {name: others for name, others in inside.items() if height_of(name) == height_of(FACE)}
    groups = {f"`{name}`": (code.documents[name], within(inside, name)) for name in reversed(PACKAGES)}
    for title, (about, parts) in {"The command line": (ABOUT_COMMANDS, commands), **groups}.items():
        level, direct = levels(parts), reduced(parts)
        lines += [f"### {title}", "", about, "", f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
        for folder in sorted(parts, key=lambda name: (-level[name], name)):
            elsewhere = sorted(other for other in inside[folder] if other not in parts)
            path = folder.replace(".", "/") + ("/" if folder in code.folders else ".py")
            lines.append(
                f"| {level[folder]} | [`{path}`](../{path}) | {code.documents[folder]} | {_names(direct[folder])} | "
                f"{', '.join(f'`{name}`' for name in elsewhere)} |"
            )
        lines.append("")
    return "\n".join(lines)


def _names(found: set[str]) -> str:
    return ", ".join(f"`{name.partition('.')[2]}`" for name in sorted(found))


def with_table(page: str, made: str) -> str:
    """The page with the table between its two marks."""
    return between_marks(page, "python -m docs.generate.architecture", made)


def main(arguments: list[str] | None = None) -> int:
    """Print the measures; write or check drawing and table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--root", type=Path, help="another checkout: its measures are printed, and nothing is written")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where something is stale")
    chosen = parser.parse_args(arguments)
    code = code_of(chosen.root or DOCS.parent)
    if chosen.root is not None:
        print("\n".join(measures(code)))
        return 0
    picture, page = drawing.outline(code), PAGE.read_text()
    if chosen.check:
        stale = [PAGE.name] * (page != with_table(page, table(code)))
        stale += [PICTURE.name] * (not PICTURE.exists() or picture.digest() not in PICTURE.read_text())
        print(
            f"stale: {', '.join(stale)}; run make reference" if stale else "drawing and table are what the imports say"
        )
        return 1 if stale else 0
    print("\n".join(measures(code)))
    drawing.draw(picture, PICTURE)
    PAGE.write_text(with_table(page, table(code)))
    print(f"\nwrote {PAGE.name} and {PICTURE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
