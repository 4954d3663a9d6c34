"""The package that `docs/extending.md` prints is one: it is installed as printed, found by name, and runs."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import main
from harness.methods.registry import METHODS
from harness.partition import PARTITIONERS
from sims.cluster import load_cluster
from sims.transport import LIBRARIES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"
BLOCK = re.compile(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's files in a folder that is searched for packages, with the metadata that an installer would write."""
    files = dict(BLOCK.findall(PAGE.read_text()))
    project = tomllib.loads(files.pop("pyproject.toml"))["project"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    metadata = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{name} = {at}\n" for name, at in points.items()) for group, points in groups]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("haloscope_example", None)


def test_the_printed_package_is_found_by_name(installed: None) -> None:
    for registry, name in ((METHODS, "half-forward"), (PARTITIONERS, "stripes"), (LIBRARIES, "pairwise")):
        assert name in registry.names() and name not in registry.builtin
    assert load_cluster("ethernet-1g:transport.kind=pairwise").transport.staged


def test_the_printed_package_runs_as_the_page_says(
    installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = next(line for line in PAGE.read_text().splitlines() if line.startswith("haloscope run "))
    small = ["--dataset", "synthetic:nodes=300", "--epochs", "2", "--parts", "4"]
    assert main([*printed.split()[1:], *small]) == 0
    assert "cluster ethernet-1g:transport.kind=pairwise" in capsys.readouterr().out
    assert main([*printed.split()[1:], *small, "--partitioner", "stripes:width=0"]) == 2
    assert "partitioner stripes: width must be at least 1" in capsys.readouterr().err
