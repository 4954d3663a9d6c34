"""The tables of generated graphs: fresh, with every parameter and every named set."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate import recipes
from docs.generate.pages import between_marks
from harness.datasets import PRESETS, load
from harness.datasets._recipe import PARAMETERS
from harness.errors import InputError


def test_the_tables_are_what_the_recipes_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert recipes.main(["--check"]) == 0, "run make reference"


def test_stale_tables_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = recipes.PAGE.read_text()
    monkeypatch.setattr(recipes, "PAGE", tmp_path / "graphs.md")
    recipes.PAGE.write_text(page.replace("| `degree` | `15.0` |", "| `degree` | `16.0` |"))
    assert recipes.main(["--check"]) == 1
    assert recipes.main([]) == 0 and recipes.PAGE.read_text() == page
    with pytest.raises(ValueError, match="has no lines"):
        between_marks("# A page\n", "python -m docs.generate.recipes", "")


def test_every_parameter_and_every_named_set_has_a_row() -> None:
    made = recipes.tables()
    assert not [name for name in PARAMETERS if f"| `{name}` |" not in made]
    assert not [name for name in PRESETS if f"| `synthetic:{name}` |" not in made]
    row = next(line for line in made.splitlines() if line.startswith("| `nodes` |"))
    nodes = int(row.split("`")[3])
    assert load("synthetic:").num_nodes == nodes, "the default that the page states"
    with pytest.raises(InputError, match="did you mean 'homophily'"):
        load("synthetic:homofily=0.5")
