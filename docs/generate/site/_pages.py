"""The source of the site: pages of `docs` and pages made from code in one tree, every link turned to where it leads.

A link to a file of the repository that is no page of the site leads to a page with its text.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from docs.generate.site._sandbox import REPOSITORY

DOCS = REPOSITORY / "docs"
GUIDE = {
    "advise": "decide", "graphs": "decide", "workloads": "decide", "lab": "decide",
    "validation": "evidence", "validation-history": "evidence", "accuracy": "evidence", "studies": "evidence",
    "gpu": "evidence", "network": "evidence",
    "reference": "reference", "outputs": "reference", "api": "reference", "glossary": "reference",
    "architecture": "inside", "extending": "inside", "debugging": "inside", "mutations": "inside",
}  # fmt: skip
"""Page of `docs` -> the part of the site that it stands in; `methods` is made anew, a page a method."""

LINK = re.compile(r"(?<=\])\(([^()\s]+)\)")
FENCE = re.compile(r"^(`{3,}).*?^\1`*$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
LANGUAGES = {".py": "python", ".toml": "toml", ".md": "markdown", ".json": "json"}


class Tree:
    """The source of the site in a folder, filled page by page.

    Attributes:
        folder: where it lies.
        problems: links that lead nowhere, a line each.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: list[str] = []
        self._code: dict[Path, Path] = {}

    def add(self, place: str, text: str, origin: Path) -> Path:
        """Write a page.

        Args:
            place: its path in the site, such as methods/vanilla.md.
            origin: the file of the repository that its links are relative to.
        """
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._linked(text, origin, path))
        return path

    def add_guide(self) -> None:
        """The pages of `docs`, the changes, and the limits that the README states."""
        for name, part in GUIDE.items():
            page = DOCS / f"{name}.md"
            self.add(f"{part}/{name}.md", page.read_text(), page)
        changes = REPOSITORY / "CHANGELOG.md"
        self.add("reference/changes.md", changes.read_text(), changes)
        readme = REPOSITORY / "README.md"
        self.add("evidence/limits.md", f"# Limits\n{section_of(readme.read_text(), 'Limits')}", readme)

    def finish(self) -> None:
        """Write the pages of the code that others link to."""
        for path, place in self._code.items():
            title = path.relative_to(REPOSITORY).as_posix()
            language = LANGUAGES.get(path.suffix, "text")
            head = "---\norphan: true\nnosearch: true\n---\n"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f"{head}# {title}\n\n``````{language}\n{path.read_text().rstrip()}\n``````\n")

    def _linked(self, text: str, origin: Path, page: Path) -> str:
        """The text with links of the repository turned to the site's; code is left as it is."""
        kept: list[str] = []

        def keep(found: re.Match[str]) -> str:
            kept.append(found[0])
            return f"\0{len(kept) - 1}\0"

        text = SPAN.sub(keep, FENCE.sub(keep, text))
        text = LINK.sub(lambda found: f"({self._target(found[1], origin, page)})", text)
        while "\0" in text:
            text = re.sub(r"\0(\d+)\0", lambda found: kept[int(found[1])], text)
        return text

    def _target(self, link: str, origin: Path, page: Path) -> str:
        """Where a link leads in the site, as a path relative to the page."""
        if "://" in link or link.startswith(("#", "made/")):
            return link
        target, _, anchor = link.partition("#")
        at = Path(os.path.normpath(origin.parent / target))
        if not at.exists():
            self.problems.append(f"{origin.relative_to(REPOSITORY)}: {link} leads nowhere")
            return link
        place, anchor = self._place(at, anchor, page)
        return f"{os.path.relpath(place, page.parent)}{f'#{anchor}' if anchor else ''}"

    def _place(self, at: Path, anchor: str, page: Path) -> tuple[Path, str]:
        """The page of the site that shows a file of the repository, and the anchor there."""
        if at == DOCS / "methods.md":
            return self.folder / "methods" / f"{anchor or 'index'}.md", ""
        if at.parent == DOCS and at.stem in GUIDE and at.suffix == ".md":
            return self.folder / GUIDE[at.stem] / at.name, anchor
        if at == REPOSITORY / "CHANGELOG.md":
            return self.folder / "reference" / "changes.md", anchor
        if at == REPOSITORY / "README.md":
            return self.folder / ("evidence/limits.md" if anchor == "limits" else "index.md"), ""
        if at == DOCS / "site" / "gallery.toml":
            return self.folder / "gallery.md", anchor
        if at.parent == DOCS / "examples" and at.suffix == ".py":
            return self.folder / "examples" / f"{at.stem}.md", anchor
        if DOCS / "site" in at.parents and at.suffix == ".md":
            return self.folder / at.relative_to(DOCS / "site"), anchor
        if at.suffix in (".png", ".svg"):
            place = page.parent / at.name
            shutil.copyfile(at, place)
            return place, ""
        if at.is_dir():
            at = at / "__init__.py" if (at / "__init__.py").exists() else next(iter(sorted(at.glob("*.py"))))
        place = self.folder / "code" / f"{at.relative_to(REPOSITORY).as_posix().replace('/', '.')}.md"
        self._code[at] = place
        return place, ""


def section_of(text: str, title: str) -> str:
    """What stands below one heading of the second level."""
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def toctrees(parts: Mapping[str, list[str]]) -> Iterator[str]:
    """The tables of contents of the first page: a caption and its pages each."""
    for caption, pages in parts.items():
        yield "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])
