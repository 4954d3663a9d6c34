"""The page of methods: fresh, complete, and what a new method has to state for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from docs.generate import methods
from harness.methods.bases.base import Facts
from harness.methods.registry import METHODS
from harness.methods.vanilla import Vanilla

README = Path(__file__).resolve().parents[2] / "README.md"
LONGEST = 180  # characters of a statement in the table


def test_the_page_is_what_the_methods_state(capsys: pytest.CaptureFixture[str]) -> None:
    assert methods.main(["--check"]) == 0, "run make reference"


def test_a_stale_page_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(methods, "PAGE", tmp_path / "methods.md")
    assert methods.main(["--check"]) == 1
    assert methods.main([]) == 0 and methods.main(["--check"]) == 0
    methods.PAGE.write_text(methods.PAGE.read_text().replace("## vanilla", "## plain"))
    assert methods.main(["--check"]) == 1
    assert "stale: run make reference" in capsys.readouterr().out


@pytest.mark.parametrize("name", METHODS.builtin)
def test_every_method_states_what_the_page_needs(name: str) -> None:
    kind = METHODS.find(name)
    assert methods.missing(name, kind) == [], "what is listed here has to be stated in the method's docstring"
    for key, text in methods.section(kind, "In brief").items():
        assert len(text) <= LONGEST, f"{name}: `{key}` is too long for a cell; the rest belongs in the docstring's text"
    assert f"- `{name}`: " in README.read_text(), f"{name}: a line in the README's list of methods"


def test_what_a_method_does_not_state_is_named() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Silent(Vanilla):
        """Rows.

        In brief:
            travels: rows | codes
                and more
            colour: red
        """

        often: int = 1
        facts = Facts(cut="edge", exact=False, staleness=2)

    assert methods.missing("silent", Silent) == [
        "silent: `bytes` in the section `In brief:` of its docstring",
        "silent: `memory` in the section `In brief:` of its docstring",
        "silent: no `colour` is expected in `In brief:`",
        "silent: `often` in the section `Options:`",
        "silent: the source, `paper` of its facts",
    ]
    cells = methods.cells("silent", Silent)
    assert cells[1:6] == ("edges", "no", "2", "rows | codes and more", "not stated")
    assert methods.prose(Silent) == ["Rows."]


def test_sections_take_several_names_and_lines() -> None:
    meanings = methods.meanings(METHODS.find("cdfgnn"))
    assert meanings["mu1"] == meanings["mu2"] == "how far accuracy must fall below or rise above its mean."
    assert meanings["servers"].endswith("bytes an epoch.") and "layer0" in meanings
    assert methods.meanings(METHODS.find("ec-graph-s"))["wire"] == "what travels: paper (H and G), or product."
    assert methods.meanings(METHODS.find("subgraph-approximation"))["fanouts"].endswith("these are GraphSAGE's.")


def test_the_table_has_a_row_of_equal_width_for_every_method() -> None:
    lines = methods.page().splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    assert len(rows) == len(METHODS.builtin) + 2
    assert {row.replace("\\|", "").count("|") for row in rows} == {len(methods.HEAD) + 1}
    assert [line.removeprefix("## ") for line in lines if line.startswith("## ")] == list(METHODS.builtin)
    row = next(row for row in rows if row.startswith("| [`bns-gcn`]"))
    assert "| edges | with `p=1.0`, unbiased | 0 |" in row and "[`bns_gcn.py`](../harness/methods/bns_gcn.py)" in row
