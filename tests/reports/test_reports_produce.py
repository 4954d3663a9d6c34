"""`haloscope report`: made, cached and remade items; failures; pages of what is kept."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from harness.cli import main
from harness.errors import InputError
from reports.core.context import Context
from reports.core.load import PUBLISHED
from reports.core.table import Ordering, PaperTable, Plot, Row
from reports.whole import papers, produce

NASTY = '<script>document.title="hacked"</script><img src=x onerror=alert(1)> & "quotes"'


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path / "out", seconds=0.01, quiet=True)


def made_up(context: Context) -> PaperTable:
    """A table with hostile names."""
    rows = [
        Row(label=NASTY, quantity="epoch time", unit="s", published=1.0, ours=1.1, how="simulated", note=NASTY),
        Row(label="y", quantity="z", unit="%", published=1.0, ours=None, how="needs data"),
    ]
    order = Ordering(text=NASTY, expected=(NASTY, "b"), ours=(2.0, 1.0))
    return PaperTable(
        key="cdfgnn/table1", title=f"Table {NASTY}", rows=tuple(rows), orderings=(order,), assumptions=(NASTY,),
        commands=(NASTY,),
    )  # fmt: skip


def drawn(context: Context) -> Plot:
    """A figure with a hostile title."""
    paths = context.figure_paths("cdfgnn/figure5")
    figure = Figure(figsize=(2, 1))
    figure.subplots().set_title("a < b & c")
    for path in paths:
        figure.savefig(path)
    rows = (Row(label=NASTY, quantity="share", unit="%", published=2.0, ours=3.0, how="simulated", conflict="SY6"),)
    return Plot(key="cdfgnn/figure5", title=NASTY, caption=NASTY, paths=paths, rows=rows)


def refused(context: Context) -> PaperTable:
    """A table that cannot be made."""
    raise InputError(f"no such thing: {NASTY}")


class Counted:
    """`made_up`, counting its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, context: Context) -> PaperTable:
        self.calls += 1
        return made_up(context)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """A report of one table, one figure and one failure, in place of the papers'."""
    counted = Counted()
    items = {"cdfgnn/table1": counted, "cdfgnn/figure5": drawn, "cdfgnn/table3": refused}
    monkeypatch.setattr(papers, "everything", lambda: items)
    monkeypatch.setattr(produce, "everything", lambda: items)
    return counted


def report(out: Path, *flags: str) -> int:
    return main(["report", "all", "--out", str(out), "--jobs", "1", *flags])


def test_items_are_made_once_and_failures_again(
    small: Counted, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert report(tmp_path, "--html") == 1
    said = capsys.readouterr()
    assert "[3/3] cdfgnn/table3" in said.err and "FAILED: no such thing" in said.err
    assert "failed: cdfgnn/table3" in said.out
    made = {path.name for path in (tmp_path / "cdfgnn").iterdir()}
    tables, figures = (f"table1.{end}" for end in ("json", "md", "csv", "tex")), ("figure5.json", "figure5.png")
    assert made == {*tables, *figures, "figure5.svg", "table3.json"}
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["papers"][0]["rows"] == 3 and summary["papers"][0]["median_error_of_times"] == pytest.approx(0.1)
    before = (tmp_path / "cdfgnn" / "table1.json").stat().st_mtime_ns
    assert report(tmp_path, "--only", "cdfgnn/table1,cdfgnn/figure5") == 0
    assert small.calls == 1 and (tmp_path / "cdfgnn" / "table1.json").stat().st_mtime_ns == before
    assert report(tmp_path, "--only", "cdfgnn/table1", "--budget", "5m", "--quiet") == 0
    assert report(tmp_path, "--only", "cdfgnn/table1", "--budget", "5m", "--force", "--quiet") == 0
    assert small.calls == 3
    (tmp_path / "cdfgnn" / "table1.md").unlink()
    assert report(tmp_path, "--only", "cdfgnn/table1", "--budget", "5m", "--quiet") == 0
    monkeypatch.setattr(produce, "code_version", lambda *packages: "other code")
    assert report(tmp_path, "--only", "cdfgnn/table1", "--budget", "5m", "--quiet") == 0
    assert small.calls == 5


def test_what_is_kept_comes_back_whole(small: Counted, context: Context) -> None:
    stamps = {key: produce.made_of(key, context) for key in ("cdfgnn/table1", "cdfgnn/figure5", "cdfgnn/table3")}
    for key in ("cdfgnn/table1", "cdfgnn/figure5"):
        assert produce.make(key, context, stamps) == ""
        entry = produce.finished_item(key, context)
        assert entry is not None and entry.reused
        again = {"cdfgnn/table1": made_up, "cdfgnn/figure5": drawn}[key](context)
        assert entry.item == again
    assert produce.make("cdfgnn/table3", context, stamps).startswith("no such thing")
    assert produce.finished_item("cdfgnn/table3", context) is None
    place = context.out / "cdfgnn" / "table1.json"
    whole = place.read_text()
    for damaged in (
        "{",
        whole[:-40],
        "",
        whole.replace('"rows":[', '"rows":{"a":['),
        whole.replace("/table1", "/table2"),
    ):
        place.write_text(damaged)
        assert produce.finished_item("cdfgnn/table1", context) is None
        lost = produce.kept_entry("cdfgnn/table1", context)
        assert lost.item is None and lost.message == "its file is damaged"


def test_what_changes_while_an_item_is_made_has_it_made_again(
    small: Counted, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamps = {"cdfgnn/table1": produce.made_of("cdfgnn/table1", context)}
    monkeypatch.setattr(produce, "versions", lambda *packages: "another torch")
    assert produce.make("cdfgnn/table1", context, stamps) == ""
    assert produce.finished_item("cdfgnn/table1", context) is None
    monkeypatch.undo()
    assert stamps == {"cdfgnn/table1": produce.made_of("cdfgnn/table1", context)}


def test_items_come_of_every_papers_numbers(context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sylvie's graphs are BNS-GCN's."""
    copy = tmp_path / "published"
    shutil.copytree(PUBLISHED, copy)
    monkeypatch.setattr(produce, "PUBLISHED", copy)
    before = produce.made_of("sylvie/table3", context)
    (copy / "bns-gcn-table8.csv").write_text("changed")
    assert produce.made_of("sylvie/table3", context) != before


def test_a_table_depends_on_its_own_sources_only() -> None:
    mine = produce.sources("reports.subgraph_approximation._tables")
    assert {
        "reports.subgraph_approximation._tables",
        "reports.subgraph_approximation._workers",
        "reports.core.context",
        "reports.core.table",
    } <= mine
    assert "reports.sylvie" not in mine and "reports.whole.page" not in mine


def test_listing_and_refusals(small: Counted, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "list", "--out", str(tmp_path / "none")]) == 0
    said = capsys.readouterr().out
    assert "cdfgnn/figure5" in said and "A figure with a hostile title." in said
    assert not (tmp_path / "none").exists()
    assert main(["report", "all", "--only", "cdfgnn/tabel1"]) == 2
    assert "did you mean 'cdfgnn/table1'" in capsys.readouterr().err
    for nothing in ("", " , "):
        assert main(["report", "all", "--only", nothing]) == 2
        assert "names no table, figure or paper" in capsys.readouterr().err
    assert main(["report", "all", "--budget", "soon"]) == 2
    (tmp_path / "file").write_text("")
    assert main(["report", "all", "--out", str(tmp_path / "file")]) == 2


def test_two_processes_make_cheap_tables(tmp_path: Path) -> None:
    """In a separate process, because loky's resource tracker ends with its parent."""
    keys = "subgraph-approximation/table1,cdfgnn/table1"
    argv = [sys.executable, "-m", "harness", "report", "all", "--out", str(tmp_path), "--jobs", "2", "--only", keys]
    done = subprocess.run([*argv, "--json", "-"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [line["tables"] for line in json.loads(done.stdout)["papers"]] == [1, 1, 2]
