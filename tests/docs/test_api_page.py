"""The page of the Python API: fresh, complete for `import harness`, and its example runs."""

from __future__ import annotations

import re
import runpy
from importlib import import_module
from pathlib import Path

import pytest

import harness
from docs.generate import api

EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_list_is_what_the_code_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert api.main(["--check"]) == 0, "run make reference"


def test_a_stale_list_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh, found = api.PAGE.read_text(), api.listing()
    kept = tmp_path / "api.md"
    kept.write_text(fresh.replace("load_result(path: Path)", "load_result(file: Path)"))
    monkeypatch.setattr(api, "listing", lambda: found)
    monkeypatch.setattr(api, "PAGE", kept)
    assert api.main(["--check"]) == 1
    assert api.main([]) == 0 and kept.read_text() == fresh


def test_every_name_is_there_and_says_what_it_is() -> None:
    listed = {f"{module}.{name}" for module, names in api.ENTRIES.items() for name in names.split()}
    assert {f"harness.{name}" for name in harness.__all__} <= listed
    for module, names in api.ENTRIES.items():
        assert api.first_sentence(import_module(module)), module
        for name in names.split():
            assert api.first_sentence(getattr(import_module(module), name)).endswith("."), f"{module}.{name}"
            assert not name.startswith("_")


def test_what_is_shown_of_an_entry() -> None:
    made = api.listing()
    assert "load_result(path: Path) -> dict[str, Any]" in made
    assert "- `.frame(...)`: A row per epoch" in made and "- `.record`: the content of the result file" in made
    assert " at 0x" not in made and "<" not in re.sub(r"`[^`]*`", "", made), "defaults are values"
    assert api.first_sentence(api.first_sentence) == "The first sentence of a docstring, in one line."


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    printed = EXAMPLE.search(api.PAGE.read_text())
    assert printed is not None
    (tmp_path / "example.py").write_text(printed[1])
    runpy.run_path(str(tmp_path / "example.py"))
    state, usual, slower = capsys.readouterr().out.split()
    assert state == "done" and float(slower) > 1.2 * float(usual) > 0
