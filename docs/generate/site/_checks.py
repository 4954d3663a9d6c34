"""Checks of the built HTML: links and anchors inside the site lead somewhere, nothing is loaded from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

LOADED = {
    "img": ("src", "srcset"), "script": ("src",), "iframe": ("src",), "source": ("src", "srcset"), "video": ("src",),
    "audio": ("src",), "embed": ("src",), "object": ("data",), "input": ("src",), "image": ("href", "xlink:href"),
}  # fmt: skip
"""Elements and attributes whose target a browser loads without being asked; `link` but for what it does not fetch."""

NOT_FETCHED = {"canonical", "next", "prev", "index", "search", "help", "author", "license"}
STYLED = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")
ELSEWHERE = re.compile(r"^(?:[a-z]+:)?//", re.IGNORECASE)


@dataclass
class _Page(HTMLParser):
    """Anchors, links and what is loaded, of one page."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    _style: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        self._style = tag == "style"
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and not NOT_FETCHED & set(given.get("rel", "").split()):
            self.loaded.append(given.get("href", ""))
        self.loaded += [given[name] for name in LOADED.get(tag, ()) if given.get(name)]
        self.loaded += styled(given.get("style", ""))

    def handle_endtag(self, tag: str) -> None:
        self._style = self._style and tag != "style"

    def handle_data(self, data: str) -> None:
        if self._style:
            self.loaded += styled(data)


def styled(css: str) -> list[str]:
    """What a style sheet loads, without what it holds itself (data: and fragments)."""
    found = [first or second for first, second in STYLED.findall(css)]
    return [link for link in found if not link.startswith(("data:", "#"))]


def problems_of(site: Path) -> list[str]:
    """What is wrong with a built site, a line each."""
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    found = [problem for path, page in pages.items() for problem in _problems(path, page, pages, site)]
    for path in sorted(site.rglob("*.css")):
        found += [f"{path.relative_to(site)}: loads {link}" for link in styled(path.read_text()) if _outside(link)]
    return found


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text())
    return page


def _problems(path: Path, page: _Page, pages: dict[Path, _Page], site: Path) -> Iterator[str]:
    name = path.relative_to(site)
    for link in page.loaded:
        if _outside(link):
            yield f"{name}: loads {link}"
    for link in [*page.links, *page.loaded]:
        if _outside(link) or re.match(r"^[a-z]+:", link, re.IGNORECASE) or link in ("", "#"):
            continue
        target, _, anchor = link.partition("#")
        at = (path.parent / unquote(target.partition("?")[0])).resolve() if target else path
        at = at / "index.html" if at.is_dir() else at
        if not at.exists():
            yield f"{name}: {link} leads nowhere"
        elif anchor and at in pages and unquote(anchor) not in pages[at].anchors:
            yield f"{name}: {link}: no such anchor"


def _outside(link: str) -> bool:
    return bool(ELSEWHERE.match(link))
