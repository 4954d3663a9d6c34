"""What commands and keywords start from, which is one set of defaults wherever a user comes in."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.commands.arguments import config_of, parse_arguments
from harness.commands.python.interface import _config
from harness.config import COMMAND_DEFAULTS, RunConfig
from harness.running.sweep import read_sweep
from reports.core.context import Context


def test_only_the_order_differs_from_the_records() -> None:
    ours, records = COMMAND_DEFAULTS.flat(), RunConfig().flat()
    assert {key for key in ours if ours[key] != records[key]} == {"order"}
    assert (ours["order"], records["order"]) == ("auto", "method")


def test_every_way_in_has_the_same_defaults(tmp_path: Path) -> None:
    file, grid = tmp_path / "run.toml", tmp_path / "grid.toml"
    file.write_text("epochs = 3\n")
    grid.write_text('[run]\nepochs = 3\n[grid]\nmethod = ["vanilla"]\n')
    wanted = COMMAND_DEFAULTS.changed(epochs=3)
    assert config_of(parse_arguments(["run", "--epochs", "3"])) == wanted
    assert config_of(parse_arguments(["run", "--config", str(file)])) == wanted
    assert config_of(parse_arguments(["compare", "--methods", "vanilla", "--epochs", "3"])) == wanted
    assert [cell.config for cell in read_sweep(grid)] == [wanted]
    assert _config(None, {"epochs": 3}) == wanted


def test_a_config_that_is_given_keeps_its_order(tmp_path: Path) -> None:
    assert _config(RunConfig(), {}).model.order == "method"
    file = tmp_path / "run.toml"
    file.write_text('order = "method"\n')
    assert config_of(parse_arguments(["run", "--config", str(file)])).model.order == "method"
    assert config_of(parse_arguments(["run", "--config", str(file), "--order", "auto"])) == COMMAND_DEFAULTS


@pytest.mark.parametrize("order", ["method", "auto", "linear-first"])
def test_a_reports_command_trains_what_the_report_trained(order: str) -> None:
    given = {"order": order, "method": "bns-gcn:p=0.1", "parts": 4, "lr": 0.5}
    words = Context(Path()).text_of(given).split()[1:]
    assert ("--order" in words) == (order != "auto")
    assert config_of(parse_arguments(words)) == RunConfig.of(**given)


def test_help_prints_the_default_that_holds(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["run", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "has no order of its own (default: auto)" in text
