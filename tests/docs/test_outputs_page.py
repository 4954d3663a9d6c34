"""The page of outputs: fresh, and its names are those that small runs write, no more and no fewer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from docs.generate import outputs
from harness.cli import main
from harness.commands.arguments import parsers
from harness.config import RunConfig
from harness.rank import COMPONENTS
from reports.core.table import Ordering, PaperTable, Row
from reports.whole import verdicts
from reports.whole.produce import Entry

GRAPH = ("--dataset", "synthetic:nodes=200,degree=6,features=8", "--parts", "2", "--quiet")
MODEL = ("--cluster", "ethernet-10g", "--replays", "8")
RARE = {
    "facts.halo rows in memory at a time (rows)": "of sar", "facts.halo rows (rows)": "of sar",
    "facts.prepared_bytes": "of agl", "facts.kept_bytes": "of agl", "facts.rates": "of shapes with rates",
    "facts.restarts": "of ranks that failed", "facts.shared_cores": "of a machine that is in use",
    "facts.network.network_bound_s": "of many transfers", "facts.interval.depth": "of calibrated devices",
    "skill.NAME": "of null models",
    "fitted_constants.NAME": "of fits", "failed.reason": "", "uncounted_orderings.REASON": "",
}  # fmt: skip
"""Documented names that the runs of these tests need not write."""
GRID = """\
[run]
dataset = "synthetic:nodes=200,degree=6,features=8"
epochs = 2
parts = 2
mode = "loopback"
[grid]
method = ["vanilla", "bns-gcn"]
p = [0.2, 0.5]
"""
FLOWS = {
    "format": "flow-reference/1",
    "scenarios": [
        {"name": "two", "links": {"up": {"bandwidth_Bps": 100}}, "flows": [{"id": "a", "route": ["up"], "bytes": 100}]}
    ],
}


def names_in(content: Any, place: str = "") -> Iterator[str]:
    """The paths of all values, lists of records without their numbers; an empty table or list has its own path."""
    if isinstance(content, dict) and content:
        for name, value in content.items():
            yield from names_in(value, f"{place}.{name}".strip("."))
    elif isinstance(content, list) and content and isinstance(content[0], dict):
        for each in content:
            yield from names_in(each, place)
    else:
        yield place


def undocumented(found: set[str], documented: Sequence[str]) -> list[str]:
    """Names that no documented one stands for; a table or list without content is what its inside is."""
    patterns = [pattern_of(name) for name in documented]
    tables = {name.rpartition(".")[0] for name in documented if "." in name}
    return sorted(name for name in found - tables if not any(each.fullmatch(name) for each in patterns))


def unused(found: set[str], documented: Sequence[str]) -> list[str]:
    """Documented names that nothing has."""
    return [name for name in documented if not any(pattern_of(name).fullmatch(each) for each in found)]


def pattern_of(name: str) -> re.Pattern[str]:
    """A word of capitals stands for any text, that of components for these."""
    escaped = re.escape(name).replace("COMPONENT", "|".join(("epoch", "hidden", *COMPONENTS)).join("()"))
    return re.compile(re.sub(r"(?<![A-Za-z|(])[A-Z]{3,}(?![A-Za-z|])", ".+", escaped))


def compared(title: str, found: set[str]) -> None:
    documented = outputs.sections()[title].names
    assert undocumented(found, documented) == []
    assert [name for name in unused(found, documented) if name not in RARE] == []


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which small runs of all modes have left their results, with checkpoints and an interval."""
    folder = tmp_path_factory.mktemp("written")
    run = ["run", *GRAPH, "--epochs", "3", "--eval-every", "2"]
    runs = ["--out", str(folder / "runs")]
    assert main([*run, *runs, "--method", "ec-graph", "--mode", "sim", *MODEL]) == 0
    assert main([*run, *runs, "--mode", "loopback", "--checkpoint", str(folder / "kept")]) == 0
    assert main([*run, *runs, "--method", "bns-gcn:p=0.5", "--mode", "real"]) == 0
    return folder


def test_the_page_is_what_its_source_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert outputs.main(["--check"]) == 0, "run make reference"


def test_what_is_rare_is_documented() -> None:
    assert RARE.keys() <= {name for section in outputs.sections().values() for name in section.names}


def test_every_component_is_defined() -> None:
    assert list(outputs.components()) == [*COMPONENTS, "hidden"]
    assert all(f"| `{name}` |" in outputs.page() for name in COMPONENTS)


def test_every_command_with_json_is_listed() -> None:
    _, commands = parsers()
    assert set(outputs.json_of()) == {name for name, each in commands.items() if "--json FILE" in each.format_help()}


def test_result_files(written: Path) -> None:
    records = [json.loads(path.read_text()) for path in (written / "runs").glob("*.json")]
    assert {record["config"]["mode"] for record in records} == {"sim", "loopback", "real"}
    found = {name for record in records for name in names_in(record)}
    compared("Result files", found)
    assert set(records[0]["config"]) == set(RunConfig.of().flat()), "documented as the keys of run files"


def test_a_row_per_epoch(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collect", str(written / "runs"), "--to", str(written / "all.csv")]) == 0
    frame = pd.read_csv(written / "all.csv")
    compared("A row per epoch", set(frame.columns))
    assert isinstance(frame["bytes.forward"][0], str) and isinstance(frame["peak_memory"][0], str), "lists are texts"


def test_a_row_per_run_and_per_cell(tmp_path: Path) -> None:
    methods = ["--methods", "vanilla,bns-gcn:p=0.5", "--modes", "sim", "--epochs", "2"]
    assert main(["compare", *GRAPH, *methods, *MODEL, "--out", str(tmp_path / "out")]) == 0
    compared("A row per run", set(pd.read_csv(tmp_path / "out" / "comparison" / "table.csv").columns))
    (tmp_path / "grid.toml").write_text(GRID)
    assert main(["sweep", str(tmp_path / "grid.toml"), "--quiet", "--jobs", "1", "--out", str(tmp_path / "cells")]) == 0
    found = set(pd.read_csv(tmp_path / "cells" / "sweep.csv").columns)
    names = outputs.sections()
    assert found == {*names["A row per run"].names, *names["Only in sweeps"].names, "p"}


def test_a_row_per_point(tmp_path: Path) -> None:
    asked = ["--methods", "vanilla,sylvie-s:bits=1", "--points", "2", "--out", str(tmp_path)]
    assert main(["what-if", *GRAPH, *MODEL, *asked]) == 0
    frame = pd.read_csv(tmp_path / "what-if.csv")
    compared("A row per point of what-if", set(frame.columns))
    assert frame["value"].min() == 125e6 and frame["knob"][0] == "links.nic.bandwidth", "1 Gb/s, in bytes/s"


def test_raw_flows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "flows.json").write_text(json.dumps(FLOWS))
    assert main(["flows", str(tmp_path / "flows.json"), "--json", str(tmp_path / "out.json")]) == 0
    compared("Raw flows", set(names_in(json.loads((tmp_path / "out.json").read_text()))))


def test_the_summary_of_a_report() -> None:
    rows = (
        Row(label="x", quantity="epoch time", unit="s", published=1.0, ours=1.1, how="simulated"),
        Row(label="y", quantity="z", unit="%", published=1.0, ours=None, how="needs data"),
    )
    order = Ordering(text="a over b", expected=("a", "b"), ours=(1.0, 2.0))
    made = PaperTable(key="cdfgnn/table1", title="T", rows=rows, orderings=(order,))
    found = verdicts.summary([Entry("cdfgnn/table1", made), Entry("cdfgnn/table3", None, "no data")])
    names = {name for name in names_in(found) if name != "skill" or found["skill"]}
    assert names, "a summary has fields"
    compared("Summary of a report", names)


def test_the_comparison_sees_what_it_looks_for() -> None:
    found = set(names_in({"a": [{"b": 1, "seconds": {"halo": 2, "weather": 3}}], "notes": [], "of": {"x y": 1}}))
    assert found == {"a.b", "a.seconds.halo", "a.seconds.weather", "notes", "of.x y"}
    documented = ["a.seconds.COMPONENT", "of.NAME", "notes", "gone"]
    assert undocumented(found, documented) == ["a.b", "a.seconds.weather"]
    assert unused(found, documented) == ["gone"]
