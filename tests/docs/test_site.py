"""The site: every command that it shows is one, every link leads somewhere, nothing is loaded from elsewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from matplotlib.image import imread

from docs.generate.site import _checks, _gallery, _methods
from docs.generate.site.__main__ import BY_HAND, TUTORIALS, assemble, render
from docs.generate.site._executed import Block, blocks_of, executed, take_figures
from docs.generate.site._pages import DOCS, GUIDE, Tree
from docs.generate.site._sandbox import CommandFailed, Sandbox, make_commands
from harness.commands.arguments import check_settings, parse_arguments
from harness.errors import InputError
from harness.methods.registry import METHODS

PAGES = [BY_HAND / "index.md", *sorted((BY_HAND / "tutorials").glob("*.md"))]


def shown_commands() -> list[tuple[str, list[str], Block]]:
    """The place, words and block of every command of haloscope that a page runs or a figure names."""
    of_pages = [
        (page.name, block, command)
        for page in PAGES
        for block in blocks_of(page.read_text())
        if block.kind == "run"
        for command in block.commands()
    ]
    of_figures = [(e.name, Block("run", (), ""), command) for e in _gallery.entries() for command in e.commands]
    of_methods = [(name, Block("run", (), ""), _methods.command_of(name)) for name in _methods.drawn()]
    found = []
    for place, block, command in [*of_pages, *of_figures, *of_methods]:
        words = shlex.split(command.rpartition("; ")[2].replace("\\\n", ""))
        if words[0] == "haloscope":
            found.append((place, words[1:], block))
    return found


def test_every_command_is_one() -> None:
    """Flags are known; so are settings, methods and clusters, where no page makes them and no command is to fail."""
    commands = shown_commands()
    assert len(commands) > 50
    for place, words, block in commands:
        if "--help" in words:
            continue
        args = parse_arguments(words)
        assert args.command == words[0], place
        made_there = {"half-forward", "two-boxes.toml", "measured/", "mine.npz"}
        if "fails" not in block.words and not any(name in " ".join(words) for name in made_there):
            check_settings(args)


def test_pages_are_the_ones_that_are_listed() -> None:
    assert {path.stem for path in (BY_HAND / "tutorials").glob("*.md")} == set(TUTORIALS)
    assert {path.stem for path in DOCS.glob("*.md")} == {*GUIDE, "methods"}, "a page that the site has not"
    assert {*_methods.drawn(), *_methods.WITHOUT_FIGURE} == METHODS.own().keys()
    for entry in _gallery.entries():
        assert not entry.kept or (DOCS.parent / entry.figure).exists()


def test_the_site_without_its_runs(tmp_path: Path) -> None:
    """Text alone, with warnings as errors; links and anchors lead somewhere, nothing is loaded from outside."""
    tree = assemble(tmp_path / "source", None, 1)
    assert tree.problems == []
    assert render(tree.folder, tmp_path / "html") == 0
    assert _checks.problems_of(tmp_path / "html") == []
    for page in ("index", "gallery", "methods/sylvie-s", "tutorials/validate", "reference/commands", "evidence/limits"):
        assert (tmp_path / "html" / f"{page}.html").exists()
    about = (tmp_path / "html" / "methods" / "sylvie-s.html").read_text()
    assert "ceil(d bits / 8) + 8 a halo row" in about and "haloscope what-if --methods vanilla,sylvie-s" in about


def test_the_figure_of_a_method(tmp_path: Path) -> None:
    _methods.draw("bns-gcn", tmp_path, tmp_path / "recordings")
    assert imread(tmp_path / "bns-gcn.png").std() > 0.01
    assert "fastest (90 %): " in _methods.method_page("bns-gcn", tmp_path)


def test_blocks_are_run_as_they_say(tmp_path: Path) -> None:
    make_commands(tmp_path / "shared")
    sandbox = Sandbox(tmp_path / "page", tmp_path / "shared")
    page = (
        "```file a/numbers.txt\n1\n2\n3\n```\n\n```run lines=2\ncat \\\n  a/numbers.txt\n```\n\n"
        "```run fails\nhaloscope run --method vanila\n```\n\n```run hidden\necho not shown\n```\n"
        "![n](made/a/numbers.txt)\n"
    )
    text = executed(page, sandbox)
    assert "`a/numbers.txt`:\n\n```text\n1\n2\n3\n```" in text
    assert "$ cat \\\n  a/numbers.txt\n1\n2\n...\n```" in text
    assert "did you mean 'vanilla'" in text and "not shown" not in text
    take_figures(text, sandbox, tmp_path / "site" / "page.md")
    assert (tmp_path / "site" / "made" / "a" / "numbers.txt").read_text() == "1\n2\n3\n"
    assert "1\n2" not in executed("```run\ncat a/numbers.txt\n```\n", None)
    with pytest.raises(CommandFailed, match="exit code 3"):
        executed("```run\nexit 3\n```\n", sandbox)
    with pytest.raises(CommandFailed, match="exit code 0"):
        executed("```run fails\ntrue\n```\n", sandbox)


def test_links_of_the_repository_are_followed(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    text = "[a](../graphs.md#pyg) [b](../methods.md#sar) [c](../../harness/rank.py) `[d](gone.md)` [e](gone.md)\n"
    page = tree.add("tutorials/x.md", text, BY_HAND / "index.md")
    assert tree.problems == ["docs/site/index.md: gone.md leads nowhere"]
    links = re.findall(r"\]\(([^)]+)\)", page.read_text())
    assert links == ["../decide/graphs.md#pyg", "../methods/sar.md", "../code/harness.rank.py.md", "gone.md", "gone.md"]
    tree.finish()
    assert "class Rank" in (tmp_path / "code" / "harness.rank.py.md").read_text()


def test_the_checks_see_what_they_look_for(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<link rel="stylesheet" href="https://x.org/a.css"><link rel="canonical" href="https://x.org/">'
        '<script src="//x.org/a.js"></script><img src="gone.png"><a href="https://x.org/">fine</a>'
        '<a href="b.html#here">fine</a><a href="b.html#there">no</a><a href="c.html">no</a><a href="#">fine</a>'
        "<style>@import 'https://x.org/b.css'; p { background: url(data:image/png;base64,AA) }</style>"
    )
    (tmp_path / "b.html").write_text('<p id="here">')
    (tmp_path / "b.css").write_text("@font-face { src: url(https://x.org/font.woff2) } p { fill: url(#p) }")
    assert _checks.problems_of(tmp_path) == [
        "a.html: loads https://x.org/a.css",
        "a.html: loads //x.org/a.js",
        "a.html: loads https://x.org/b.css",
        "a.html: b.html#there: no such anchor",
        "a.html: c.html leads nowhere",
        "a.html: gone.png leads nowhere",
        "b.css: loads https://x.org/font.woff2",
    ]


def test_a_command_that_is_wrong_is_found() -> None:
    """What the test above rests on: a flag that does not exist, a method that does not."""
    for line in ("run --epoks 3", "run --method vanila", "run --mode sim --cluster ethernet-10q"):
        with pytest.raises(InputError):
            check_settings(parse_arguments(line.split()))
