"""What-if: crossovers of known curves, their sentences, and the whole command."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

from harness import cli
from harness.commands.curves.crossings import (
    LEVEL,
    PRECISION,
    Crossing,
    crossings,
    crossover_text,
    fastest,
    level_from,
    levels,
)
from harness.config import RunConfig
from harness.running import run
from reports.draw.what_if import what_if as draw
from sims.cluster import _load as topology
from sims.replay import settled_epochs

XS = np.geomspace(1.0, 1000.0, 13).tolist()
GRAPH = "synthetic:nodes=2000,degree=16,classes=4,features=16"
FLAGS = ["--dataset", GRAPH, "--layers", "3", "--hidden", "64", "--partitioner", "hash", "--parts", "4"]


def cost(fixed: float, payload: float) -> Callable[[float], float]:
    """Seconds of an epoch with given compute and payload as a function of the bandwidth."""
    return lambda x: fixed + payload / x


@given(fixed=st.floats(0.01, 5), extra=st.floats(0.01, 5), payload=st.floats(1, 100), share=st.floats(0.01, 0.9))
def test_a_constructed_crossover_is_found(fixed: float, extra: float, payload: float, share: float) -> None:
    """Fewer bytes for more compute: faster below payload (1 - share) / extra only."""
    dear, cheap = cost(fixed, payload), cost(fixed + extra, payload * share)
    where = payload * (1 - share) / extra
    found = crossings(cheap, dear, XS)
    if XS[0] * (1 + PRECISION) < where < XS[-1] * (1 - PRECISION):
        assert found == [Crossing(pytest.approx(where, rel=2 * PRECISION), falls=False)]
    elif not XS[0] * (1 - PRECISION) < where < XS[-1] * (1 + PRECISION):
        assert found == []


def test_curves_may_cross_twice_and_touch() -> None:
    wave = lambda x: 10 + 3 * math.sin(2 * math.log10(x) * math.pi / 2)  # noqa: E731
    found = crossings(wave, lambda _: 10.0, XS)
    assert [(crossing.falls, round(math.log10(crossing.x), 2)) for crossing in found] == [(True, 1.0), (False, 2.0)]
    step = lambda x: 1.0 if x < 10 else 2.0 if x < 100 else 3.0  # noqa: E731
    assert crossings(step, lambda _: 2.0, XS) == [Crossing(pytest.approx(100, rel=2 * PRECISION), falls=False)]
    assert crossings(step, step, XS) == []


def test_sentences() -> None:
    names, say = ("1-bit sylvie-s", "vanilla"), lambda x: f"{x:.0f} Gb/s"
    dear = cost(1.0, 200.0)

    def said(curve: Callable[[float], float]) -> str:
        return crossover_text(names, (curve, dear), XS, say)

    assert said(cost(2.0, 20.0)).startswith("1-bit sylvie-s stops paying above 180 Gb/s (against vanilla; at most ")
    assert "at 1 Gb/s)" in said(cost(2.0, 20.0))
    assert said(cost(0.5, 300.0)).startswith("1-bit sylvie-s begins to pay above 200 Gb/s")
    assert said(cost(1.0, 100.0)).startswith("1-bit sylvie-s pays everywhere from 1 Gb/s to 1000 Gb/s: 1.09 to 1.99")
    assert said(cost(2.0, 400.0)).startswith(
        "1-bit sylvie-s never pays: vanilla is 2.00 to 2.00 times as fast everywhere"
    )
    assert said(dear) == "1-bit sylvie-s takes as long as vanilla everywhere from 1 Gb/s to 1000 Gb/s"


def test_the_fastest_along_the_range() -> None:
    curves = {"dear": cost(1.0, 200.0), "cheap": cost(2.0, 20.0), "never": cost(9.0, 900.0)}
    (first, a, b), (second, c, d) = fastest(curves, XS)
    assert (first, second) == ("cheap", "dear") and (a, d) == (XS[0], XS[-1])
    assert b == c == pytest.approx(180, rel=2 * PRECISION)


@given(fixed=st.floats(0.1, 5), payload=st.floats(10, 100), kink=st.floats(2, 900))
def test_where_a_curve_becomes_level(fixed: float, payload: float, kink: float) -> None:
    curve = lambda x: fixed + payload / min(x, kink)  # noqa: E731
    found, end = level_from(curve, XS), curve(XS[-1])
    assert curve(found) <= end * (1 + LEVEL) and found <= kink * (1 + LEVEL)
    assert found == XS[0] or curve(found / (1 + 2 * LEVEL)) > end * (1 + LEVEL / 2)
    slow = lambda x: fixed + payload * max(x, kink)  # noqa: E731
    assert slow(level_from(slow, XS[::-1])) <= slow(XS[0]) * (1 + 2 * LEVEL)


def test_levels_of_all_or_of_some() -> None:
    early, late = (lambda x: 1 + 90 / min(x, 10)), (lambda x: 1 + 90 / min(x, 100))
    ((nobody, x),) = levels({"a": early, "b": late}, XS)
    assert nobody == "" and x == pytest.approx(100, rel=0.01)
    ((name, x),) = levels({"a": early, "c": cost(0.1, 200.0)}, XS)
    assert name == "a" and x == pytest.approx(10, rel=0.01)
    assert levels({"c": cost(0.1, 200.0)}, XS) == []


@pytest.fixture
def what_if(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any], str]]:
    """Runs the command, without bands unless they are asked for; returns exit code, JSON and stderr."""

    def command(*argv: str) -> tuple[int, dict[str, Any], str]:
        capsys.readouterr()
        bands = [] if "--replays" in argv else ["--replays", "0"]
        code = cli.main(["what-if", *argv, *bands, "--out", str(tmp_path / "out"), "--json", "-"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else {}, err

    return command


Command = Callable[..., tuple[int, dict[str, Any], str]]


def test_the_command_from_flags_to_figure(what_if: Command, tmp_path: Path) -> None:
    methods = ["--methods", "vanilla,sylvie-s,bns-gcn:p=0.5", "--bits", "1,8"]
    argv = [*methods, *FLAGS, "--cluster", "ethernet-1g", "--points", "4", "--bandwidth", "nic=100Mb/s..400Gb/s"]
    code, found, err = what_if(*argv)
    assert code == 0 and "recording sylvie-s:bits=8" in err and "stand-in" in err and "are assumed" in err
    names = ["vanilla", "sylvie-s:bits=1", "sylvie-s:bits=8", "bns-gcn:p=0.5"]
    frame = pd.read_csv(tmp_path / "out" / "what-if.csv")
    assert list(dict.fromkeys(frame["method"])) == names and len(frame) == 4 * 5  # the cluster's own value beside four
    assert found["nominal"] == 125e6 and 125e6 in set(frame["value"])
    assert imread(tmp_path / "out" / "what-if.png").shape[2] == 4
    for name in names:  # more bandwidth never slows a synchronous method
        times = frame[frame["method"] == name].sort_values("value")["epoch_seconds"].to_numpy()
        assert (np.diff(times) <= 1e-12).all() and times[0] > 2 * times[-1]
    assert any(line.startswith("fastest: 1-bit sylvie-s from 100 Mb/s") for line in found["said"])
    assert "recording" not in what_if(*argv)[2], "recorded again what was recorded before"
    assert "recording vanilla" in what_if(*argv, "--force")[2]


def test_the_caption_says_what_is_assumed(what_if: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    def seen(*args: Any, caption: Sequence[str], **options: Any) -> Path:
        lines.extend(caption)
        return draw(*args, caption=caption, **options)

    monkeypatch.setattr("harness.commands.what_if.draw_what_if", seen)
    what_if("--methods", "vanilla", *FLAGS, "--cluster", "ethernet-1g", "--points", "2")
    assert re.fullmatch(r"cluster ethernet-1g: \d+ of \d+ values are assumed", lines[-1])


def test_a_point_is_what_a_run_would_say(what_if: Command) -> None:
    argv = [
        "--methods",
        "vanilla",
        *FLAGS,
        "--cluster",
        "ethernet-1g",
        "--points",
        "2",
        "--bandwidth",
        "nic=1Gb/s..9Gb/s",
    ]
    _, found, _ = what_if(*argv)
    config = RunConfig.of(
        dataset=GRAPH, layers=3, hidden=64, partitioner="hash", parts=4, mode="sim", epochs=2, eval_every=-1,
        cluster="ethernet-1g:links.nic.bandwidth=9Gb/s", order="auto",
    )  # fmt: skip
    seconds = run(config).summary()["seconds"]
    row = next(row for row in found["rows"] if row["value"] == 9e9 / 8)
    assert {name: row[f"{name}_seconds"] for name in seconds} == seconds


def test_a_knob_that_changes_nothing_is_said(what_if: Command) -> None:
    tiny = ["--dataset", "synthetic:nodes=100", "--parts", "2", "--points", "2", "--quiet"]
    quiet = ["--methods", "vanilla", *tiny]
    _, found, _ = what_if(*quiet, "--cluster", "cdfgnn-2x8a800:hosts.spread=false")
    assert found["said"] == ["this cluster has no inter-host traffic with 2 ranks: links.nic.bandwidth changes nothing"]
    _, found, _ = what_if(*quiet, "--cluster", "cdfgnn-2x8a800", "--bandwidth", "nic=1TB/s..2TB/s")
    assert found["said"] == ["links.nic.bandwidth changes nothing from 8 Tb/s to 16 Tb/s: never the bottleneck"]
    code, _, err = what_if(*quiet, "--cluster", "h100-8")
    assert code == 2 and "has no nic link, so links.nic.bandwidth changes nothing there" in err
    _, found, _ = what_if(*quiet, "--cluster", "ethernet-1g", "--latency", "nic=1us..1ms")
    assert (
        found["knob"] == "links.nic.latency" and found["rows"][0]["epoch_seconds"] < found["rows"][1]["epoch_seconds"]
    )


def test_a_ceiling_is_named(what_if: Command) -> None:
    argv = ["--methods", "vanilla,sylvie-s:bits=16", *FLAGS, "--cluster", "ethernet-1g", "--points", "4", "--quiet"]
    _, found, _ = what_if(*argv, "--bandwidth", "nic=100Mb/s..400Gb/s")
    said = re.match(r"links.nic.bandwidth changes nothing above ([0-9.]+) Gb/s: (.*)", found["said"][0])
    assert said and said[2] == "the process ceiling of gloo (1.07 GB/s) is the bottleneck"
    assert 7 < float(said[1]) <= 8.58
    few = ["--methods", "vanilla,ec-graph", *argv[2:], "--recorded", "2"]
    _, found, _ = what_if(*few, "--hidden", "8", "--bandwidth", "nic=100Mb/s..400Gb/s")
    assert any(re.search(r"above .* is the bottleneck( of vanilla)?$", line) for line in found["said"])
    _, found, _ = what_if(*argv, "--bandwidth", "nic=20Gb/s..400Gb/s")
    assert found["said"][0].endswith(f"from 20 Gb/s to 400 Gb/s: {said[2]}")
    _, found, _ = what_if(*argv, "--latency", "nic=1ns..1ms")
    assert found["said"][0].startswith("links.nic.latency changes nothing below ") and ": the" not in found["said"][0]


def test_methods_that_settle_late(what_if: Command) -> None:
    methods = ["--methods", "vanilla,cdfgnn,ec-graph,sylvie-a", "--dataset", GRAPH, "--parts", "4"]
    argv = [*methods, "--cluster", "ethernet-1g", "--points", "2"]
    _, found, err = what_if(*argv)
    assert "cdfgnn: 4 epochs recorded" in err and "ec-graph: 22 epochs recorded" in err
    assert "times are of epochs from number 3 on" in err and "means of epochs 12 to 21, whole periods" in err
    _, _, few = what_if(*argv, "--recorded", "3")
    assert "ec-graph: 3 epochs recorded, too few: settled epochs begin with number 12 (--recorded 22)" in few
    assert "vanilla: 1 epochs" not in err and "sylvie-a: 3" not in err
    assert all(row["bytes_per_epoch"] > 0 and row["fits"] == "yes" for row in found["rows"])
    (later,) = {row["bytes_per_epoch"] for row in found["rows"] if row["method"] == "cdfgnn"}
    first = run(RunConfig.of(dataset=GRAPH, parts=4, method="cdfgnn", mode="sim", cluster="ethernet-1g", epochs=1))
    assert later < first.summary()["bytes_per_epoch"]


def test_a_point_at_the_cluster_as_it_is_is_the_epoch_of_a_run(what_if: Command) -> None:
    """The mean of the settled epochs of a run with as many epochs as were recorded."""
    epochs = {"vanilla": 2, "bns-gcn:p=0.5": 2, "sylvie-a": 3, "cdfgnn": 4, "sylvie-a:staleness=2": 4}
    argv = ["--methods", ",".join(epochs), "--dataset", "synthetic:nodes=500", "--cluster", "bns-10x2080ti"]
    argv += ["--layer0", "auto"]  # every method as a run has it
    _, found, _ = what_if(*argv, "--points", "2", "--bandwidth", "bus=1GB/s..12GB/s")
    for row in (row for row in found["rows"] if row["value"] == found["nominal"]):
        method = row["method"]
        config = RunConfig.of(
            dataset="synthetic:nodes=500", method=method, mode="sim", cluster="bns-10x2080ti", epochs=epochs[method],
            eval_every=-1, order="auto",
        )  # fmt: skip
        ran = run(config)
        settled = [ran.epochs[number] for number in settled_epochs(config).of(len(ran.epochs))]
        expected = np.mean([epoch["seconds"]["epoch"] for epoch in settled])
        assert row["epoch_seconds"] == pytest.approx(expected, rel=1e-12), method
        if method == "vanilla":  # all epochs after the first are alike, so it is what any longer run says too
            longer = run(config.changed(epochs=5)).summary()["epoch_seconds"]
            assert row["epoch_seconds"] == pytest.approx(longer, rel=1e-9)


def test_synchronous_epochs_weigh_as_often_as_they_come(what_if: Command) -> None:
    """One of five epochs waits for its rows, which the median epoch would not show."""
    methods = "sylvie-a,sylvie-s,sylvie-a:staleness=2,sylvie-a:staleness=5"
    argv = ["--methods", methods, *FLAGS, "--cluster", "ethernet-1g", "--points", "2"]
    _, found, err = what_if(*argv, "--bandwidth", "nic=100Mb/s..1Gb/s")
    assert "staleness=5: 7 epochs recorded" in err and "staleness=2: 4 epochs recorded" in err
    slowest = {row["method"]: row["epoch_seconds"] for row in found["rows"] if row["value"] == 1e8 / 8}
    late, now, often, rarely = (slowest[method] for method in methods.split(","))
    assert late < 0.97 * now
    assert 0.3 < (often - late) / (now - late) < 0.8 and 0.08 < (rarely - late) / (now - late) < 0.45


def test_what_does_not_fit_is_said(what_if: Command, tmp_path: Path) -> None:
    devices = Path(topology.__file__).parents[1] / "device" / "presets"
    small = tmp_path / "small.toml"
    text = (devices / "cpu-epyc-1core.toml").read_text()
    small.write_text(text.replace('value = "24 GB"', 'value = "1 MB"'))
    cluster = tmp_path / "small-cluster.toml"
    text = (topology.CLUSTERS / "ethernet-1g.toml").read_text()
    cluster.write_text(text.replace('device = "cpu-epyc-1core"', f'device = "{small}"'))
    _, found, err = what_if("--methods", "vanilla", *FLAGS, "--cluster", str(cluster), "--points", "2")
    assert {row["fits"] for row in found["rows"]} == {"no"}
    assert "vanilla does not fit: 4 ranks do not fit: rank" in err and "its device has 1.00 MB" in err
    assert set(pd.read_csv(tmp_path / "out" / "what-if.csv")["fits"]) == {"no"}
    assert found["said"] == ["nothing fits its devices, so that nothing is compared"]
    assert (
        cli.main(["explain", *FLAGS, "--cluster", str(cluster), "--replays", "8", "--json", str(tmp_path / "e.json")])
        == 0
    )
    assert any("it does not fit: 4 ranks" in line for line in json.loads((tmp_path / "e.json").read_text())["said"])


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--methods", "vanila"], "did you mean 'vanilla'"),
        (["--methods", "vanilla,nosuch"], "unknown method 'nosuch'; known: adaqp, agl, aligraph-fg, "),
        (["--methods", ","], "names no method"),
        (["--methods", "sylvie-s", "--bits", "3"], "bits must be"),
        (["--methods", "vanilla,bns-gcn", "--bits", "1,2"], "--bits changes nothing: none of the methods has bits"),
        (["--methods", "vanilla", "--bandwidth", "1Gb/s"], "is not LINK=LOW..HIGH"),
        (["--methods", "vanilla", "--bandwidth", "nic=9Gb/s..1Gb/s"], "the range must rise"),
        (["--methods", "vanilla", "--bandwidth", "nic=9Gbs..1Gb/s"], "'9Gbs' is not a bandwidth"),
        (["--methods", "vanilla", "--cluster", "no-such"], "no-such"),
        (["--methods", "vanilla", "--parts", "65"], "takes"),
        (["--methods", "vanilla", "--points", "1"], "--points: must be from 2 to 10,000, not '1'"),
        (["--methods", "vanilla", "--points", "-5"], "--points: must be from 2"),
        (["--methods", "vanilla", "--recorded", "1"], "--recorded 1: at least 2, for times are those of epochs after"),
    ],
)
def test_bad_flags(flags: list[str], says: str, what_if: Command, tmp_path: Path) -> None:
    code, found, err = what_if("--cluster", "ethernet-1g", *flags)
    assert code == 2 and says in err and err.count("\n") == 1 and not found
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("spread", [1.0, 100.0])
def test_figures_of_any_rows(spread: float, tmp_path: Path) -> None:
    def rows(method: str, bits: int | None, factor: float, variant: str = "") -> Sequence[dict[str, Any]]:
        return [
            {
                "method": method,
                "bits": bits,
                "variant": variant,
                "value": x,
                "epoch_seconds": factor * (1 + spread / x),
                "speedup": 1 / factor,
            }
            for x in XS
        ]

    some = [*rows("vanilla", None, 1.0), *rows("sylvie-s:bits=1", 1, 0.4), *rows("sylvie-s:bits=2", 2, 0.5)]
    some += [*rows("vanilla", None, 2.0, "on l4"), *rows("sylvie-s:bits=1", 1, 0.9, "on l4")]
    options: dict[str, Any] = {
        "knob": ("nic bandwidth", XS[3]),
        "ticks": [1.0, 10.0],
        "written": str,
        "caption": ["so"],
    }
    path = draw(some, tmp_path / "a.png", **options)
    assert path.stat().st_size > 10_000
    assert draw(rows("vanilla", None, 1.0), tmp_path / "b.png", **options).exists()
