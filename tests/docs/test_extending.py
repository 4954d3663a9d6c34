"""What pages print of other packages works: the package of `docs/extending.md`, and the method of the README."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harness.cli import main
from harness.methods.registry import METHODS
from harness.partition import PARTITIONERS
from sims.cluster import load_cluster
from sims.transport import LIBRARIES

REPOSITORY = Path(__file__).resolve().parents[2]
README = REPOSITORY / "README.md"
PAGE = REPOSITORY / "docs" / "extending.md"
BLOCK = re.compile(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's files in a folder that is searched for packages, with the metadata that an installer would write."""
    files = dict(BLOCK.findall(PAGE.read_text()))
    project = tomllib.loads(files.pop("pyproject.toml"))["project"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    _describe(tmp_path, project["name"], project["version"], project["entry-points"])
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("haloscope_example", None)


def _describe(folder: Path, name: str, version: str, groups: Mapping[str, Mapping[str, str]]) -> None:
    """Write the metadata of a package: group of entry points -> name -> place."""
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {at}\n" for name, at in points.items()) for group, points in groups.items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def codec_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of the method with the page's codec, whose module is as printed."""
    printed = re.search(r"^## A codec$.*?^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert printed is not None
    (tmp_path / "codec_example.py").write_text(printed[1])
    _describe(tmp_path, "codec-example", "1.0", {"haloscope.methods": {"byte-halo": "codec_example:ByteHalo"}})
    monkeypatch.syspath_prepend(tmp_path)
    yield "byte-halo"
    sys.modules.pop("codec_example", None)


@pytest.fixture
def readme_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of the README's method, whose module is as printed."""
    printed = re.search(r"^## Add a method$.*?^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    assert printed is not None
    (tmp_path / "readme_example.py").write_text(printed[1])
    points = {"haloscope.methods": {"half-forward": "readme_example:HalfForward"}}
    _describe(tmp_path, "readme-example", "1.0", points)
    monkeypatch.syspath_prepend(tmp_path)
    yield "half-forward"
    sys.modules.pop("readme_example", None)


def test_the_method_of_the_readme_keeps_its_promises(readme_method: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"`haloscope check-method {readme_method}`" in README.read_text()
    assert main(["check-method", readme_method, "--quick"]) == 0, capsys.readouterr().out
    said = capsys.readouterr().out
    assert "bounded" in said and "FAILED" not in said


def test_the_printed_codec_has_the_bytes_that_its_method_states(
    codec_method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check-method", codec_method, "--quick"]) == 0, capsys.readouterr().out
    codec = METHODS.find(codec_method)().exchange.__globals__["ByteRows"]()
    rows = torch.tensor([[1.0, -2.0, 0.3], [0.0, 0.0, 0.0]])
    payload = codec.encode(rows, 0)
    assert [(part.shape[1], part.dtype) for part in payload] == list(codec.payload(3, rows.dtype))
    assert sum(part.nbytes for part in payload) == 2 * (3 + 4)
    assert (codec.decode(payload, 3, rows.dtype) - rows).abs().max() <= 2.0 / 127 / 2


def test_the_printed_package_is_found_by_name(installed: None) -> None:
    for registry, name in ((METHODS, "half-forward"), (PARTITIONERS, "stripes"), (LIBRARIES, "pairwise")):
        assert name in registry.names() and name not in registry.builtin
    assert load_cluster("ethernet-1g:transport.kind=pairwise").transport.staged
    printed = re.search(r"--cluster (hosts=\S*library=pairwise)", PAGE.read_text())
    assert printed is not None
    described, lender = load_cluster(printed[1]), load_cluster(LIBRARIES.find("pairwise").software)
    assert described.transport == replace(lender.transport, kind="pairwise") and "loopback" in described.links


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
