"""Figures and frames of made-up results: files exist, are valid and repeatable, and contain the required notes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import msgspec
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread

from harness.config import RunConfig
from harness.errors import InputError
from harness.rank import COMPONENTS
from harness.running.results import Result
from reports.core import load
from reports.draw.figures import (
    COMPONENT_COLOURS,
    METHOD_COLOURS,
    _breakdown,
    breakdown_and_accuracy,
    method_colours,
    shades,
)

ODD = "bns-gcn:p=0.1 & <more>"


def result(method: str, mode: str = "real", epochs: int = 4, speed: float = 1.0, **facts: Any) -> Result:
    """A made-up run whose epoch e takes (1 + e) * speed seconds, evaluated every other epoch."""
    rows = []
    for epoch in range(epochs):
        seconds = {name: speed * (1 + epoch) * (at + 1) / 28 for at, name in enumerate(COMPONENTS)}
        score = 1 - math.exp(-epoch) if epoch % 2 else None
        rows.append(
            {
                "epoch": epoch,
                "loss": 1 / (1 + epoch),
                **dict.fromkeys(("train", "val", "test"), score),
                "seconds": {} if mode == "loopback" else {"epoch": sum(seconds.values()), **seconds, "hidden": 0.0},
                "bytes": {"forward": [0, 10], "backward": [0, 10], "reduce": 4, "other": 1, "tiers": {"pcie": 25}},
                "peak_memory": [1000, 2000],
            }
        )
    graph = {"name": "toy", "fingerprint": "f", "notes": ["stand-in for <Toy>"]}
    return Result(RunConfig.of(method=method, mode=mode), "done", rows, graph, {"layer0": "cache", **facts})  # type: ignore[arg-type]


def record(*args: Any, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(result(*args, **options).to_dict()))
    return found


def texts(svg: Path) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")]


@pytest.fixture
def pair() -> Iterator[list[dict[str, Any]]]:
    yield [record(method, mode) for method in ("vanilla", ODD) for mode in ("sim", "real")]


def test_figure_names_every_method_and_the_stand_in(pair: list[dict[str, Any]], tmp_path: Path) -> None:
    png, svg = breakdown_and_accuracy(pair, tmp_path / "a.b")
    assert (png.name, svg.name) == ("a.b.png", "a.b.svg")
    found = texts(svg)
    assert any(ODD in text for text in found) and any("stand-in for <Toy>" in text for text in found)
    assert {"sim", "real", *COMPONENTS} <= set(found), "legends"
    assert [text for text in found if "(s)" in text], "units"
    assert "3.00" in found, "the median of 2, 3 and 4 s at the end of the bar; the first epoch is left out"


def test_figure_says_where_runs_were_and_all_of_their_settings(tmp_path: Path) -> None:
    runs = [record("vanilla", "sim"), record("vanilla", "real"), record("vanilla", "loopback")]
    runs[0]["config"] |= {"cluster": "ethernet-10g", "hidden": 64}
    (caption,) = (text for text in texts(breakdown_and_accuracy(runs, tmp_path / "f")[1]) if text.startswith("toy; "))
    assert "gcn 2 x 64" in caption and "or gcn 2 x 16" in caption
    assert caption.endswith("; sim on cluster ethernet-10g, real on this machine"), "loopback has no clock and no bar"


def test_figure_is_repeatable_and_its_picture_is_not_blank(pair: list[dict[str, Any]], tmp_path: Path) -> None:
    first, second = (breakdown_and_accuracy(pair, tmp_path / name) for name in ("one", "two"))
    assert first[1].read_bytes() == second[1].read_bytes()
    assert first[0].read_bytes() == second[0].read_bytes()
    picture = imread(first[0])
    assert picture.shape[1] > 1000 and len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 50


def test_bars_add_up_to_the_epoch_and_modes_differ_by_hatch(tmp_path: Path) -> None:
    axes = Figure().subplots()
    _breakdown(axes, [record("vanilla", "sim"), record("vanilla", "real")])
    bars = [bar for bar in axes.patches if bar.get_width()]  # type: ignore[attr-defined]
    assert len(bars) == 2 * len(COMPONENTS)
    for mode_bars, hatched in ((bars[:7], True), (bars[7:], False)):
        assert sum(bar.get_width() for bar in mode_bars) == pytest.approx(3.0)  # type: ignore[attr-defined]
        assert all(bool(bar.get_hatch()) is hatched for bar in mode_bars)
    assert matplotlib.rcParams["svg.fonttype"] == "path", "the figure's style stays in the figure"


def test_figure_without_times_says_so(tmp_path: Path) -> None:
    svg = breakdown_and_accuracy([record("vanilla", "loopback")], tmp_path / "f")[1]
    assert "no run has a clock" in texts(svg)


def test_method_colours_are_fixed_by_name_and_all_different() -> None:
    alone = method_colours(["sylvie-s:bits=1"])["sylvie-s:bits=1"]
    among = method_colours(["own-one", "vanilla", "sylvie-s:bits=1", "sylvie-s:bits=4", "own-two"])
    assert among["sylvie-s:bits=1"] == alone
    assert len(set(among.values())) == 5
    assert len(set(METHOD_COLOURS.values())) == len(METHOD_COLOURS)
    assert set(COMPONENT_COLOURS) == set(COMPONENTS)


def test_variants_of_a_method_stay_visible_on_white() -> None:
    """The eighth variant is no paler than 2/3 of the way to white, and all differ."""
    many = list(method_colours([f"cdfgnn:period={at}" for at in range(8)]).values())
    ordered = shades("ec-graph", 5)
    assert len(set(many)) == 8 and len(set(ordered)) == 5
    assert ordered == sorted(ordered), "from dark to light"
    for colour, base in [(each, METHOD_COLOURS["cdfgnn"]) for each in many] + [
        (each, METHOD_COLOURS["ec-graph"]) for each in ordered
    ]:
        assert sum(1 - c for c in colour) > 0.3 * sum(1 - c for c in to_rgb(base))


def test_frames_of_a_folder(tmp_path: Path) -> None:
    for made in (result("vanilla"), result("bns-gcn:p=0.1", speed=0.5)):
        made.save(tmp_path)
    epochs, runs = load.epochs(tmp_path), load.runs(tmp_path)
    assert len(epochs) == 8 and len(runs) == 2
    assert set(runs["method"]) == {"vanilla", "bns-gcn:p=0.1"} == set(epochs["config.method"])
    by_method = runs.set_index("method")
    assert by_method.loc["vanilla", "epoch_seconds"] == pytest.approx(3.0)
    assert by_method.loc["bns-gcn:p=0.1", "epoch_seconds"] == pytest.approx(1.5)
    assert set(runs["layer0"]) == {"cache"} and set(runs["bytes_per_epoch"]) == {25}


def test_a_folder_that_is_none_and_a_file_that_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        load.epochs(tmp_path / "nowhere")
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(InputError, match="not a haloscope result"):
        load.runs(tmp_path)
