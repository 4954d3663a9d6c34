"""The page on wrong numbers: its comparison of drivers runs, and what it says of the cache is so."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import pytest

import harness
from harness.machine import cache_root

PAGE = Path(__file__).resolve().parents[2] / "docs" / "debugging.md"


def test_the_drivers_agree_as_the_page_compares_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert printed is not None
    (tmp_path / "example.py").write_text(printed[1])
    runpy.run_path(str(tmp_path / "example.py"))
    lines = [line for line in capsys.readouterr().out.splitlines() if "[" in line]
    assert [line.partition(" ")[0] for line in lines] == ["loopback", "sim", "real"]
    assert len({line.partition(" ")[2] for line in lines}) == 1, lines
    assert len(ast.literal_eval(lines[0].partition(" ")[2].rpartition(" ")[0])) == 3


def test_folders_of_the_cache_are_those_that_a_run_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path / "cache"))
    graph = "synthetic:nodes=20000,degree=60,features=4"
    harness.run(dataset=graph, mode="loopback", epochs=1, out=tmp_path / "runs", quiet=True)
    made = {path.name for path in cache_root().iterdir() if path.is_dir()}
    assert {"partitions", "prepared", "graphs"} <= made
    assert not [
        name
        for name in ("partitions", "prepared", "graphs", "reports", "machine")
        if f"`{name}`" not in PAGE.read_text()
    ]
