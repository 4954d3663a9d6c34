"""Hashes of code: what a class uses counts, in files of its package, beside it and of this project; nothing else."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.machine import GPU_KERNELS, _calibration, _code, code_version, listed_code, used_code, used_modules
from harness.methods.registry import METHODS, parse_method
from sims.device import _costs
from sims.study import _profiling, calibrated

FILES = {
    "code_pkg/__init__.py": "from code_pkg._used import Used\nfrom code_pkg._other import Other\n",
    "code_pkg/_used.py": '"""A docstring."""\nimport code_beside\n\nclass Used:\n    def run(self):\n'
    '        """Text."""\n        from ._late import LATE\n        return LATE  # why\n',
    "code_pkg/_late.py": "LATE = 1\n",
    "code_pkg/_other.py": "class Other:\n    pass\n",
    "code_pkg/_typing.py": "class Typed:\n    pass\n",
    "code_beside.py": "BESIDE = 1\n",
    "code_plugin.py": "from typing import TYPE_CHECKING\nfrom code_pkg import Used\n\nif TYPE_CHECKING:\n"
    "    from code_pkg._typing import Typed\n\nclass Plugin(Used):\n    pass\n",
}
COUNT = {
    "code_pkg/_used.py": ("return LATE", "return -LATE"),
    "code_pkg/_late.py": ("LATE = 1", "LATE = 2"),
    "code_beside.py": ("BESIDE = 1", "BESIDE = 2"),
    "code_plugin.py": ("    pass", "    x = 1"),
}
DO_NOT = {
    "code_pkg/_other.py": ("    pass", "    x = 1"),
    "code_pkg/_typing.py": ("    pass", "    x = 1"),
    "code_pkg/_used.py": ("# why", "# for another reason"),
    "code_plugin.py": ("class Plugin(Used):\n", 'class Plugin(Used):\n    """Text."""\n\n'),
}


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, type[Any]]:
    """The folder of a plugin's files, and its class."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("code_")]:
        monkeypatch.delitem(sys.modules, name)
    made: type[Any] = importlib.import_module("code_plugin").Plugin
    return tmp_path, made


def changed(folder: Path, name: str, swap: tuple[str, str]) -> None:
    text = (folder / name).read_text()
    assert swap[0] in text
    (folder / name).write_text(text.replace(*swap))
    _code._CONTENTS.clear()  # as in another process


@pytest.mark.parametrize("made_of", [lambda kind: kind, lambda kind: kind(), lambda kind: kind.run])
def test_what_is_used_counts(plugin: tuple[Path, type[Any]], made_of: Callable[[type[Any]], object]) -> None:
    folder, kind = plugin
    thing = made_of(kind)
    for name, swap in COUNT.items():
        if name == "code_plugin.py" and thing is kind.run:
            continue  # a function counts by its own module
        before = used_code(thing)
        changed(folder, name, swap)
        assert used_code(thing) != before, name


def test_what_is_not_used_does_not_and_neither_do_comments_and_docstrings(plugin: tuple[Path, type[Any]]) -> None:
    folder, kind = plugin
    before = used_code(kind)
    for name, swap in DO_NOT.items():
        changed(folder, name, swap)
        assert used_code(kind) == before, name


def test_a_file_is_parsed_once(plugin: tuple[Path, type[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, kind = plugin
    before = used_code(kind)
    with monkeypatch.context() as patch:
        patch.setattr(_code, "_parsed", None)
        assert used_code(kind) == before
    (folder / "cache" / "code.json").write_bytes(b"\xff")
    assert used_code(kind) == before, "a damaged file of what is kept"


def test_a_file_that_cannot_be_parsed_counts_by_its_bytes(plugin: tuple[Path, type[Any]]) -> None:
    folder, kind = plugin
    changed(folder, "code_beside.py", ("BESIDE = 1\n", "def\n"))
    before = used_code(kind)
    changed(folder, "code_beside.py", ("def\n", "def \n"))
    assert used_code(kind) != before


def test_a_loaded_module_counts_as_it_was_until_it_is_loaded_again(plugin: tuple[Path, type[Any]]) -> None:
    """What a process computes after its files were edited is not of the edited code."""
    folder, kind = plugin
    before = used_code(kind)
    path = folder / "code_pkg" / "_used.py"
    path.write_text(path.read_text().replace("return LATE", "return -LATE"))
    assert used_code(kind) == before
    importlib.reload(sys.modules["code_pkg._used"])
    assert used_code(kind) != before


def test_a_method_counts_with_what_it_runs_and_without_other_methods() -> None:
    for name in ("vanilla", "sylvie-a", "cdfgnn"):
        found, own = {*used_modules(parse_method(name))}, METHODS.find(name).__module__
        assert {own, "harness.methods.bases.base", "harness.nn._models", "harness.rank"} <= found
        others = {kind.__module__ for kind in METHODS.own().values()} - {own, "harness.methods.vanilla"}
        assert not found & others
        assert not any(each.startswith(("harness.commands", "harness.datasets", "torch", "numpy")) for each in found)
    whole, on_cpus = (used_modules(parse_method("vanilla"), apart=apart).keys() for apart in ((), GPU_KERNELS))
    assert {"harness.exchanges._push_pull", "harness.kernels._quantize_cpu"} <= on_cpus
    assert "harness.kernels._dropout_cuda" in whole - on_cpus and on_cpus < whole


def test_listed_places_count_without_what_they_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_code, "_ROOT", tmp_path)
    before = listed_code("code_pkg", "code_plugin.py")
    changed(tmp_path, "code_beside.py", COUNT["code_beside.py"])
    changed(tmp_path, "code_plugin.py", DO_NOT["code_plugin.py"])
    assert listed_code("code_pkg", "code_plugin.py") == before
    changed(tmp_path, "code_pkg/_late.py", COUNT["code_pkg/_late.py"])
    assert listed_code("code_pkg", "code_plugin.py") != before
    for place in ("code_pkg/missing.py", "missing", "cache"):
        with pytest.raises(FileNotFoundError, match="has no Python source"):
            listed_code("code_pkg", place)


def test_a_calibration_counts_with_what_measures_and_fits_alone() -> None:
    names = {str(_code._ROOT / place) for place in _calibration._MEASURES}
    assert listed_code(*_calibration._MEASURES), "all of them exist"
    assert {str(Path(module.__file__ or "")) for module in (_costs, calibrated, _profiling)} <= names
    assert not any("explorer" in name or name.endswith("sims/study") for name in names)
    with pytest.raises(FileNotFoundError):
        code_version("no-such-package")
