"""The rules of the house, read off the syntax trees: who imports whom, how long things are, what is never called."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = ("harness", "sims", "real", "reports")
MAY_IMPORT = {
    "harness": {"harness"},
    "sims": {"sims", "harness"},
    "real": {"real", "harness"},
    "reports": {"reports", "harness"},
}
TOP_LEVEL = {
    *PACKAGES,
    "pyproject.toml",
    "tests",
    "benchmarks",
    "README.md",
    "Makefile",
    "LICENSE",
    "CHANGELOG.md",
    "constraints.txt",
    "docs",
    ".ci",
    ".gitignore",
}
FILE_LINES, FUNCTION_LINES = 320, 45
LONG_FUNCTIONS: set[str] = set()  # "file:function", each with its reason beside it
MAY_PRINT = {"harness/cli.py", "harness/console.py", "real/launch.py", "real/__main__.py"}
MODULES = sorted(path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py"))
EVERYTHING = sorted([*MODULES, *(REPOSITORY / "tests").glob("*.py"), *(REPOSITORY / "benchmarks").rglob("*.py")])


def name_of(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), name_of(path))


def imported(tree: ast.AST) -> Iterator[str]:
    """First names of everything imported anywhere in the tree, inside functions and under TYPE_CHECKING too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." if node.level else (node.module or "").partition(".")[0]


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Dotted name of everything called by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield ast.unparse(node.func), node


def forbidden(tree: ast.AST) -> Iterator[str]:
    """Ways to run what a file says: pickle and its friends, eval, loads that unpickle."""
    yield from (f"import {name}" for name in imported(tree) if name in ("pickle", "dill", "cloudpickle", "marshal"))
    for name, call in calls(tree):
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        if name in ("eval", "exec"):
            yield name
        if name == "torch.load" and keywords.get("weights_only") != "True":
            yield "torch.load without weights_only=True"
        if name in ("np.load", "numpy.load") and keywords.get("allow_pickle") != "False":
            yield f"{name} without allow_pickle=False"


def too_long(path: Path) -> Iterator[str]:
    """Functions over the limit, counted from `def` to the last line, docstring included."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            if lines > FUNCTION_LINES and f"{name_of(path)}:{node.name}" not in LONG_FUNCTIONS:
                yield f"{node.name} has {lines} lines"


def test_the_checks_see_what_they_look_for() -> None:
    bad = ast.parse(
        "import pickle\nfrom sims.x import y\ndef f():\n    import real\n    eval('1')\n"
        "    torch.load(p)\n    np.load(p)\n    torch.load(p, weights_only=True)\n    np.load(p, allow_pickle=False)\n"
    )
    assert set(imported(bad)) == {"pickle", "sims", "real"}
    assert sorted(forbidden(bad)) == [
        "eval",
        "import pickle",
        "np.load without allow_pickle=False",
        "torch.load without weights_only=True",
    ]
    assert len(MODULES) > 40


def test_imports_point_one_way() -> None:
    """reports -> harness <- sims, harness <- real; sims and real never meet; harness imports nothing above it."""
    wrong = {}
    for path in MODULES:
        package = name_of(path).partition("/")[0]
        wrong[name_of(path)] = sorted((set(imported(tree_of(path))) & {*PACKAGES, "."}) - MAY_IMPORT[package])
    assert not {name: found for name, found in wrong.items() if found}


def test_files_and_functions_stay_short() -> None:
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in EVERYTHING}
    assert not {name: lines for name, lines in lengths.items() if lines > FILE_LINES}
    functions = {name_of(path): list(too_long(path)) for path in EVERYTHING}
    assert not {name: found for name, found in functions.items() if found}


def test_every_module_says_why_it_exists() -> None:
    assert not [name_of(p) for p in EVERYTHING if p.read_text().strip() and not ast.get_docstring(tree_of(p))]


def test_nothing_is_unpickled_or_evaluated() -> None:
    found = {name_of(path): list(forbidden(tree_of(path))) for path in EVERYTHING}
    assert not {name: calls for name, calls in found.items() if calls}


def test_only_commands_print() -> None:
    printing = {name_of(path) for path in MODULES if "print" in {name for name, _ in calls(tree_of(path))}}
    assert printing <= MAY_PRINT


def test_top_level_is_fixed() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.skip("not a git checkout: what is ours cannot be told from what was left there")
    found = {line.partition("/")[0] for line in listed.stdout.splitlines()}
    assert found <= TOP_LEVEL, f"not in the plan of the house: {sorted(found - TOP_LEVEL)}"


def test_constraints_pin_what_the_project_asks_for() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert pins["torch"] == "2.13.0"
    assert not [pin for pin, number in pins.items() if "+" in number], "no local versions"
    wanted = {re.split(r"[<>=\[;]", line)[0].replace("_", "-").lower() for line in asked}
    assert wanted <= set(pins), f"not pinned: {sorted(wanted - set(pins))}"
