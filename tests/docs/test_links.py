"""What the documents name is there: files they link or mention, and functions that the walks pass."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted([REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
PATH = re.compile(r"`((?:harness|sims|real|reports|tests|benchmarks|docs)/[\w./-]+)`")
STEP = re.compile(r"^\| \[`([\w/]+\.py)`\]\([^)]*\) \| ((?:`[\w.]+`(?:, )?)+) \|", re.MULTILINE)


def missing(page: Path) -> Iterator[str]:
    """Links to files, and paths in backquotes, that lead nowhere."""
    text = page.read_text()
    for link in LINK.findall(text):
        if "://" not in link and not (page.parent / link).exists():
            yield link
    for path in PATH.findall(text):
        if not (REPOSITORY / path).exists():
            yield path


def defined(path: Path) -> set[str]:
    """Names that a file defines at its top level, and `Class.member` for what its classes define."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        names |= _names(node)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{name}" for inner in node.body for name in _names(inner)}
            for function in (inner for inner in node.body if isinstance(inner, ast.FunctionDef)):
                names |= {f"{node.name}.{name}" for name in _set_on_self(function)}
    return names


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.AnnAssign):
        return {ast.unparse(node.target)}
    return {ast.unparse(target) for target in node.targets} if isinstance(node, ast.Assign) else set()


def _set_on_self(function: ast.FunctionDef) -> set[str]:
    stored = (n for n in ast.walk(function) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
    return {node.attr for node in stored if isinstance(node.value, ast.Name) and node.value.id == "self"}


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_files_that_a_page_names_are_there(page: Path) -> None:
    assert not sorted(set(missing(page)))


@pytest.mark.parametrize("name", ["architecture.md"])
def test_functions_that_a_page_walks_through_are_there(name: str) -> None:
    page = REPOSITORY / "docs" / name
    steps = STEP.findall(page.read_text())
    gone = {
        f"{path}: {each}"
        for path, names in steps
        for each in re.findall(r"`([\w.]+)`", names)
        if each not in defined(REPOSITORY / path)
    }
    assert not gone
    assert len(steps) > 20, "the walks have steps"


def test_the_checks_see_what_they_look_for(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("[a](gone.md) [b](https://x.org/y) `harness/rank.py` `harness/gone.py` [c](page.md#part)\n")
    assert list(missing(page)) == ["gone.md", "harness/gone.py"]
    file = tmp_path / "file.py"
    file.write_text("A = 1\nclass B:\n    c: int = 1\n    def d(self):\n        self.e = 2\nasync def f(): ...\n")
    assert defined(file) == {"A", "B", "B.c", "B.d", "B.e", "f"}
    line = "| [`harness/rank.py`](../harness/rank.py) | `Rank.key`, `random_key` | seeds |"
    assert STEP.findall(line) == [("harness/rank.py", "`Rank.key`, `random_key`")]


def test_the_glossary_is_in_order_and_names_files() -> None:
    text = (REPOSITORY / "docs" / "glossary.md").read_text()
    entries = text.split("\n- ")[1:]
    terms = [re.match(r"\*\*([^*]+)\*\* - ", entry) for entry in entries]
    names = [term[1].lower() for term in terms if term]
    assert len(names) == len(entries) > 50
    assert names == sorted(names), [n for n, other in zip(names, sorted(names), strict=True) if n != other][:2]
    assert not [name for name, entry in zip(names, entries, strict=True) if not LINK.search(entry)]


def test_files_of_the_glossary_speak_of_their_terms() -> None:
    """Every word of a term, of three letters and more, stands in the files that its entry links."""
    text = (REPOSITORY / "docs" / "glossary.md").read_text()
    assert not list(unspoken(text))
    assert list(unspoken(text.replace("- **driver** - ", "- **chauffeur** - "))) == ["chauffeur"]


def unspoken(glossary: str) -> Iterator[str]:
    """Words of terms that no file of their entry has."""
    for entry in glossary.split("\n- ")[1:]:
        linked = " ".join((REPOSITORY / "docs" / link).read_text().lower() for link in LINK.findall(entry))
        words = re.findall(r"\w{3,}", entry.partition("** - ")[0].lower())
        yield from (word for word in words if word not in linked)
