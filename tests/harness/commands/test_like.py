"""Like beside like: which settings methods of one table share, who stands apart, and tables that fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from harness import cli
from harness.commands.shared.like import unified
from harness.commands.shared.tables import comparison_report, table
from harness.config import RunConfig
from harness.console import show
from harness.errors import InputError
from harness.running.summary import comparison, standing_apart

TINY = "synthetic:nodes=120,degree=6,classes=3,features=8"
BASE = RunConfig.of(dataset=TINY, epochs=2, mode="sim")


def chosen(*methods: str, asked: tuple[str, ...] = (), **settings: Any) -> list[str]:
    return [config.training.layer0 for config in unified(BASE.changed(**settings), methods, asked)]


def test_one_input_layer_for_all() -> None:
    """A method that does so by itself keeps auto, so that its result is the one of `haloscope run`."""
    assert chosen("vanilla", "ec-graph", "cdfgnn") == ["auto", "precompute", "precompute"]
    assert chosen("vanilla", "ec-graph", "sancus") == ["cache", "auto", "auto"]
    assert chosen("vanilla", "sylvie-s", "sancus", "graphsage-ns")[0] == "exchange"  # what all four can take
    assert chosen("vanilla", "graphsage-ns") == ["exchange", "auto"]
    assert chosen("vanilla", "ec-graph", model="gat") == ["auto", "auto"]  # attention has nothing to precompute


def test_a_wish_is_granted() -> None:
    assert chosen("vanilla", "ec-graph", asked=("layer0",)) == ["auto", "auto"]
    assert chosen("vanilla", "cdfgnn", layer0="cache", asked=("layer0",)) == ["cache", "auto"]
    assert chosen("vanilla", "ec-graph:layer0=exchange", "pipegcn") == ["auto", "auto", "auto"]
    assert chosen("ec-graph") == ["auto"]


def test_one_order_for_all_and_one_part_for_whole_graphs() -> None:
    pair = unified(BASE, ["single", "vanilla"])
    assert [config.model.order for config in pair] == ["aggregate-first"] * 2
    assert [config.cut.parts for config in pair] == [1, 2]
    assert {config.model.order for config in unified(BASE, ["single", "vanilla"], {"order"})} == {"method"}
    assert {config.model.order for config in unified(BASE.changed(order="auto"), ["single", "vanilla"])} == {"auto"}


def test_what_cannot_run_is_refused_before_anything_runs() -> None:
    with pytest.raises(InputError, match="adaqp needs layers whose aggregation is linear"):
        unified(BASE.changed(model="gat"), ["vanilla", "adaqp"])


def row(**given: Any) -> dict[str, Any]:
    return {"method": "m", "layer0": "cache", "order": "aggregate-first", "norm": "none", **given}


def test_rows_that_stand_apart() -> None:
    rows = [row(), row(layer0="exchange", norm="l2"), row(), row(layer0=None, order=None)]
    common, apart = standing_apart(rows)
    assert common == {"layer0": "cache", "order": "aggregate-first", "norm": "none"}
    assert apart == {1: "layer0 exchange, norm l2"}
    assert standing_apart([row()])[1] == {}


def printed(items: list[Any], width: int) -> list[str]:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    show(items, console)
    console.file.close()
    return console.export_text().splitlines()


@given(width=st.integers(50, 160), numbers=st.integers(1, 14), name=st.integers(5, 40))
def test_numbers_and_headings_are_never_wrapped(width: int, numbers: int, name: int) -> None:
    headings = [f"column{at} ms" for at in range(numbers)]
    cells = [f"{at},123.5" for at in range(numbers)]
    lines = printed([table("", ["method", *headings], [["m" * name, *cells]])], width)
    text = "\n".join(lines)
    assert all(word in text for word in (*headings, *cells))
    assert max(map(len, lines)) <= width
    assert text.replace("\n", "").count("m" * min(name, width // 2 - 4)) >= 1


def test_the_command_says_once_what_is_true_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    base = ["--dataset", TINY, "--epochs", "2", "--eval-every", "1", "--order", "aggregate-first"]
    base += ["--mode", "sim", "--cluster", "ethernet-1g"]
    assert cli.main(["compare", "--methods", "vanilla,sancus,ec-graph", *base]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("all rows: ") and "layer0 cache; 2 parts; mode sim" in lines[0]
    tables = [line for line in lines if line.startswith((" method", " vanilla", " sancus"))]
    assert max(map(len, tables)) <= 80 and any("epoch us" in line for line in tables)
    assert not any("layer0" in line for line in tables)
    assert cli.main(["compare", "--methods", "vanilla,sancus,ec-graph", *base, "--layer0", "precompute"]) == 0
    out = capsys.readouterr().out
    assert "sancus *" in out and "vanilla *" not in out
    assert "* not like the others (layer0 precompute, order aggregate-first, norm none): sancus: layer0 cache" in out
    what_if = ["--points", "2", "--bandwidth", "nic=1Gb/s..2Gb/s", *base[:2], *base[-2:], "--order", "aggregate-first"]
    assert cli.main(["what-if", "--methods", "vanilla,sancus", *what_if]) == 0
    out = capsys.readouterr().out
    assert "all rows: " in out and "layer0 cache" in out and " *" not in out
    assert cli.main(["compare", "--methods", "vanilla,sancus", *base[:-6], *base[-4:]]) == 0
    assert "sancus: order aggregate-first" in capsys.readouterr().out, "others map the last layer's rows first"


def test_settings_that_differ_are_columns() -> None:
    record = {
        "config": RunConfig.of(hidden=8).flat(), "graph": {"name": "g"}, "facts": {}, "state": "done", "run_id": "1",
        "summary": {"seconds": {}, "epoch_seconds": None, "bytes_per_epoch": 1.0, "test_at_best_val": None,
                        "best_test": None,
                    "peak_memory": 0},
    }  # fmt: skip
    other = {**record, "config": RunConfig.of(hidden=32).flat()}
    lines = printed(comparison_report(comparison([record, other])), 140)
    assert any("width" in line and "method" in line for line in lines) and "wide" not in lines[0]
    assert "wide" in printed(comparison_report(comparison([record])), 140)[0]
