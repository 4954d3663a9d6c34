"""The scripts of docs/examples run, and leave what they say."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from matplotlib.image import imread

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
LEAVE = {
    "compare_methods": ("layer0 precompute", "compare.png"),
    "own_graph": ("did you mean 'vanilla'?", "cut.png"),
    "vary_bandwidth": ("fastest (90 %): 1-bit sylvie-s", "what-if.png"),
}
"""Script -> a text that it prints, and a figure that it draws."""


def test_every_script_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == LEAVE.keys()


@pytest.mark.parametrize("name", sorted(LEAVE))
def test_a_script_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, "out"])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    said, figure = LEAVE[name]
    assert said in capsys.readouterr().out
    assert imread(tmp_path / "out" / figure).std() > 0.01, "an empty figure"
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "something was left elsewhere"
