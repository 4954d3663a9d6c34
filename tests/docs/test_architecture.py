"""The drawing and table of the architecture: fresh, and made by functions that see what they should."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate import architecture, drawing
from docs.generate.imports import circles, code_of, components, folder_imports, levels, reduced, upward

DIAMOND = {"top": {"left", "right", "low"}, "left": {"low"}, "right": {"low"}, "low": set[str]()}
RING = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": set[str](), "e": {"a", "d"}}


def checkout(root: Path, files: dict[str, str]) -> Path:
    """A folder with these modules, and an `__init__` in every folder of theirs."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in path.relative_to(root).parents:
            if folder.name:
                (root / folder / "__init__.py").touch()
        path.write_text(text)
    return root


def test_drawing_and_table_are_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert architecture.main(["--check"]) == 0, "run make reference"


def test_what_is_stale_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = architecture.PAGE.read_text()
    monkeypatch.setattr(architecture, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(architecture, "PICTURE", tmp_path / "picture.svg")
    architecture.PAGE.write_text(page.replace("`sims/engine/`", "`sims/engines/`"))
    assert architecture.main(["--check"]) == 1
    assert "stale: page.md, picture.svg" in capsys.readouterr().out
    assert architecture.main([]) == 0 and architecture.main(["--check"]) == 0
    assert architecture.PAGE.read_text() == page
    first = architecture.PICTURE.read_bytes()
    assert architecture.main([]) == 0 and architecture.PICTURE.read_bytes() == first, "the same file for the same code"
    assert b">engine<" in first and b">harness.commands<" in first


def test_the_table_has_a_row_for_every_folder_and_loose_file() -> None:
    code = code_of(architecture.DOCS.parent)
    made = architecture.table(code)
    for folder in folder_imports(code):
        path = folder.replace(".", "/") + ("/" if folder in code.folders else ".py")
        assert f"| [`{path}`](../{path}) | {code.documents[folder]} |" in made, folder
    assert "| [`harness/commands/`](../harness/commands/) |" in made and "| [`real/__main__.py`]" in made


def test_graphs() -> None:
    assert levels(DIAMOND) == {"low": 0, "left": 1, "right": 1, "top": 2}
    assert reduced(DIAMOND) == {**DIAMOND, "top": {"left", "right"}}
    assert circles(DIAMOND) == [] and components(DIAMOND)[0] == ["low"]
    assert circles(RING) == [["a", "b", "c"]]
    assert levels(RING) == {"d": 0, "a": 1, "b": 1, "c": 1, "e": 2}
    assert reduced(RING)["e"] == {"a"} and reduced(RING)["b"] == {"c", "d"}


def test_imports_are_read_wherever_they_stand(tmp_path: Path) -> None:
    code = code_of(
        checkout(
            tmp_path,
            {
                "harness/effects.py": '"""What may be\nasked for.\n\nMore."""\n',
                "harness/graphs/_part.py": "def f():\n    from harness import effects\n",
                "harness/graphs/_whole.py": "from ._part import f\nimport numpy\n",
                "sims/cluster/_load.py": "import_module('harness.graphs._part')\n",
                "sims/network/_links.py": "from sims.cluster._load import load\nfrom real.rank import driver\n",
                "real/rank/driver.py": "from harness.graphs import _whole\n",
            },
        )
    )
    assert code.imports["harness.graphs._part"] == {"harness.effects"}
    assert code.imports["harness.graphs._whole"] == {"harness.graphs._part"}
    assert code.imports["sims.cluster._load"] == {"harness.graphs._part"}
    assert folder_imports(code)["sims.network"] == {"sims.cluster", "real.rank"}
    assert code.documents["harness.effects"] == "What may be asked for." and code.lines["harness.effects"] == 4
    assert upward(code) == [("sims.network._links", "real.rank.driver")]


def test_a_flat_checkout_is_measured_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = checkout(
        tmp_path,
        {
            "harness/rank.py": "from harness.tape import Tape\n",
            "harness/tape.py": "from harness.rank import Rank\nfrom sims import clock\n",
            "harness/commands/run.py": "import reports.table\n",
            "sims/clock.py": "",
            "sims/driver.py": "import sims.clock\n",
            "real/launch.py": "",
            "reports/table.py": "",
        },
    )
    assert architecture.main(["--root", str(root)]) == 0
    text = capsys.readouterr().out
    for words in (
        "imports upward between packages: 1\n  harness.tape -> sims.clock",
        "files that import each other: 1\n  harness.rank harness.tape", "harness/commands",
    ):  # fmt: skip
        assert words in text


def test_arrows_point_down_and_boxes_do_not_overlap() -> None:
    picture = drawing.outline(code_of(architecture.DOCS.parent))
    assert set(picture.blocks) == {"harness", "sims", "real", "reports", "commands"}
    assert not {("harness", "sims"), ("sims", "real"), ("real", "sims"), ("sims", "reports")} & picture.between
    for block in picture.blocks.values():
        assert all(block.level[upper] > block.level[lower] for upper, lower in block.arrows)
        for row in block.rows:
            boxes = sorted(block.x[name] for name in row if "@" not in name)
            assert all(right - left > drawing.WIDTH for left, right in zip(boxes, boxes[1:], strict=False))
