"""Compiling is announced once, when it is long; a kernel is the same code however it came to be compiled."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from numba import njit

from harness.kernels import first_use
from tests.conftest import REPOSITORY


@pytest.mark.parametrize(("limit", "lines"), [(0.0, [first_use.MESSAGE]), (1e9, [])])
def test_long_compiling_is_said_once(monkeypatch: pytest.MonkeyPatch, limit: float, lines: list[str]) -> None:
    monkeypatch.setattr(first_use, "LONG_S", limit)
    said: list[str] = []

    @njit
    def inner(x: float) -> float:
        return x + 1

    @njit
    def outer(x: float) -> float:
        return inner(x) + 1

    with first_use.compiling_said(said.append):
        assert outer(1) == 3 and said == lines
        assert outer(1.5) == 3.5 and said == lines, "another type compiles again, and is not said again"
    monkeypatch.setattr(first_use, "LONG_S", 0.0)
    assert outer(1 + 1j) == 3 + 1j and said == lines, "nobody listens any more"


def reordered_parts(file: Path) -> dict[str, set[str]]:
    """Compiled functions that other ones of the file call and whose sums may be reordered, with their options."""
    tree = ast.parse(file.read_text())
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    options = {
        name: {word.arg or "" for word in decorator.keywords}
        for name, node in functions.items()
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "njit"
    }
    called = {
        call.func.id
        for name in options
        for call in ast.walk(functions[name])
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    }
    reordered = {
        name
        for name, node in functions.items()
        for word in ast.walk(node)
        if isinstance(word, ast.keyword) and word.arg == "fastmath" and may_reorder(word.value)
    }
    return {name: options[name] for name in called & options.keys() & reordered}


def may_reorder(flags: ast.expr) -> bool:
    """Whether a value of `fastmath` allows it: all but a set of flags that says otherwise."""
    return not isinstance(flags, ast.Set) or "reassoc" in ast.unparse(flags)


def test_what_is_reordered_is_compiled_whole() -> None:
    """A part that is found in the cache could be reordered otherwise than one that is compiled: ranks would differ."""
    files = [file for folder in ("harness", "sims") for file in sorted((REPOSITORY / folder).rglob("*.py"))]
    parts = {f"{file.stem}.{name}": found for file in files for name, found in reordered_parts(file).items()}
    assert "_trend_cpu._distance" in parts and len(parts) > 3
    assert [name for name, found in parts.items() if "inline" not in found] == []
