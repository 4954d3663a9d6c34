"""Builds the site from scratch: runs its commands, makes its pages, renders them with Sphinx, checks what came out.

python -m docs.generate.site                  # everything, into build/site/html
python -m docs.generate.site --without-runs   # text alone: commands are shown and not run, figures are left empty
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from docs.generate.site import _checks, _gallery, _methods, _reference
from docs.generate.site._executed import executed, take_figures
from docs.generate.site._pages import DOCS, GUIDE, Tree, toctrees
from docs.generate.site._sandbox import REPOSITORY, CommandFailed, Sandbox, make_commands
from harness.machine import core_count
from harness.methods.registry import METHODS

BY_HAND = DOCS / "site"
TUTORIALS = ("graph", "cluster", "method", "table", "validate")
"""Pages of `docs/site/tutorials`, in the order in which one reads them."""

ALONE = frozenset({"tutorials/validate.md"})
"""Pages that measure this machine: nothing else runs beside them."""


def main(arguments: list[str] | None = None) -> int:
    """Build; returns 1 where a command failed or a link leads nowhere."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=REPOSITORY / "build" / "site", metavar="DIR")
    parser.add_argument("--without-runs", action="store_true", help="run no command")
    parser.add_argument("--jobs", type=int, default=core_count(), help="commands at a time (default: one per core)")
    args = parser.parse_args(arguments)
    begun = time.monotonic()
    out = args.out.resolve()
    runs = None if args.without_runs else out / "runs"
    try:
        source = assemble(out / "source", runs, args.jobs)
    except CommandFailed as error:
        print(f"a command of the site failed: {error}", file=sys.stderr)
        return 1
    for problem in source.problems:
        print(problem, file=sys.stderr)
    if source.problems or render(source.folder, out / "html"):
        return 1
    problems = _checks.problems_of(out / "html")
    for problem in problems:
        print(problem, file=sys.stderr)
    pages = sum(1 for _ in (out / "html").rglob("*.html"))
    print(f"{pages} pages in {time.monotonic() - begun:.0f} s: {out / 'html' / 'index.html'}")
    return 1 if problems else 0


def assemble(folder: Path, runs: Path | None, jobs: int) -> Tree:
    """Write the source of the site anew; its commands run in `runs`, or not at all."""
    for place in (folder, *([runs] if runs else [])):
        shutil.rmtree(place, ignore_errors=True)
    tree, executing = Tree(folder), _Executing(runs, jobs)
    by_hand = [BY_HAND / "index.md", *(BY_HAND / "tutorials" / f"{name}.md" for name in TUTORIALS)]
    texts = {path.relative_to(BY_HAND).as_posix(): (path.read_text(), path) for path in by_hand}
    texts |= {f"examples/{path.stem}.md": (_gallery.script_page(path), path) for path in _gallery.scripts()}
    if runs is not None:
        for script in _gallery.scripts():
            (runs / "examples" / script.stem).mkdir(parents=True)
            shutil.copyfile(script, runs / "examples" / script.stem / script.name)
    for name, (text, origin) in executing.all(texts).items():
        path = tree.add(name, text + (_contents() if name == "index.md" else ""), origin)
        take_figures(text, executing.sandbox(name.removesuffix(".md")), path)
    gallery = _gallery.gallery_page(runs / "gallery" if runs else None, folder / "made", folder / "extra")
    tree.add("gallery.md", gallery, _gallery.TABLE)
    _add_methods(tree, runs)
    tree.add_guide()
    tree.add("reference/commands.md", _reference.commands_page(), DOCS / "reference.md")
    tree.add("reference/python.md", _reference.python_page(), DOCS / "reference.md")
    tree.finish()
    (folder / "extra").mkdir(exist_ok=True)
    shutil.copyfile(BY_HAND / "conf.py", folder / "conf.py")
    return tree


class _Executing:
    """Everything that is run, a few at a time."""

    def __init__(self, runs: Path | None, jobs: int) -> None:
        self.runs, self.jobs = runs, jobs
        if runs is not None:
            make_commands(runs / "shared")

    def sandbox(self, name: str) -> Sandbox | None:
        """The sandbox of a page."""
        return Sandbox(self.runs / name, self.runs / "shared") if self.runs is not None else None

    def all(self, texts: dict[str, tuple[str, Path]]) -> dict[str, tuple[str, Path]]:
        """The pages executed; beside them the figures of the gallery and of the methods are made."""
        work: list[Callable[[], object]] = []
        if self.runs is not None:
            work += [self._gallery_work(entry) for entry in _gallery.entries()]
            names = _methods.drawn()
            work += [self._methods_work(names[at :: self.jobs]) for at in range(self.jobs)]
        with ThreadPoolExecutor(max(1, self.jobs)) as pool:
            made = [pool.submit(each) for each in work]
            waiting = {
                name: pool.submit(executed, text, self.sandbox(name.removesuffix(".md")))
                for name, (text, _) in texts.items()
                if name not in ALONE
            }
            for each in made:
                each.result()
            found = {name: text.result() for name, text in waiting.items()}
        for name in ALONE & texts.keys():
            found[name] = executed(texts[name][0], self.sandbox(name.removesuffix(".md")))
        return {name: (text, texts[name][1]) for name, text in found.items()}

    def _gallery_work(self, entry: _gallery.Entry) -> Callable[[], object]:
        sandbox = self.sandbox(f"gallery/{entry.name}")
        assert sandbox is not None
        return lambda: _gallery.make(entry, sandbox)

    def _methods_work(self, names: list[str]) -> Callable[[], object]:
        assert self.runs is not None
        sandbox = self.sandbox("methods")
        assert sandbox is not None
        return lambda: sandbox.run(f"python -m docs.generate.site._methods . {' '.join(names)}")


def _add_methods(tree: Tree, runs: Path | None) -> None:
    origin = DOCS / "methods.md"
    tree.add("methods/index.md", _methods.index_page(), origin)
    sandbox = Sandbox(runs / "methods", runs / "shared") if runs is not None else None
    for name in METHODS.own():
        text = _methods.method_page(name, runs / "methods" if runs is not None else None)
        path = tree.add(f"methods/{name}.md", text, origin)
        take_figures(text, sandbox, path)


def _contents() -> str:
    """The tables of contents of the first page."""
    parts = {part: [f"{part}/{name}" for name, its in GUIDE.items() if its == part] for part in GUIDE.values()}
    tables = {
        "Begin": ["gallery"],
        "Tutorials": [f"tutorials/{name}" for name in TUTORIALS],
        "Scripts": [f"examples/{path.stem}" for path in _gallery.scripts()],
        "Decide": parts["decide"],
        "Methods": ["methods/index"],
        "Evidence": ["evidence/limits", *parts["evidence"]],
        "Reference": ["reference/commands", "reference/python", *parts["reference"], "reference/changes"],
        "Inside": parts["inside"],
    }
    return "\n" + "\n".join(toctrees(tables))


def render(source: Path, html: Path) -> int:
    """Run Sphinx; warnings are errors. Returns its exit code."""
    shutil.rmtree(html, ignore_errors=True)
    words = ["-b", "html", "-q", "-W", "--keep-going", "-E", "-d", str(source.parent / "doctrees")]
    return subprocess.run([sys.executable, "-m", "sphinx", *words, str(source), str(html)]).returncode


if __name__ == "__main__":
    sys.exit(main())
