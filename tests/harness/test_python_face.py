"""`import harness`: light until something is used, and results with frames, figures and HTML."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import harness
from harness import cli
from harness.commands.advise import question_of
from harness.commands.arguments import parse_arguments
from reports.advice import Question

TINY = harness.Config.of(dataset="synthetic:nodes=120,degree=6,classes=3,features=8", epochs=3, eval_every=1)


def test_importing_loads_nothing_heavy() -> None:
    """Neither torch nor pandas, nor what is above the core, until a function is used."""
    heavy = "[n for n in sys.modules if n.split('.')[0] in ('torch', 'pandas', 'numpy', 'reports', 'sims', 'real')]"
    probe = f"import sys, harness; dir(harness); harness.Config; print({heavy})"
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", probe], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_every_name_is_there_and_says_what_it_does() -> None:
    assert sorted(harness.FACE) == harness.__all__ and set(harness.__all__) <= set(dir(harness))
    assert all(getattr(harness, name).__doc__ for name in harness.__all__)
    with pytest.raises(AttributeError, match="'harness' has no attribute 'comparre'"):
        harness.comparre  # noqa: B018


def test_runs_and_comparisons(tmp_path: Path) -> None:
    one = harness.run(TINY, method="vanilla", out=tmp_path, quiet=True)
    assert list(one.frame()["epoch"]) == [0, 1, 2] and one.path.exists()
    assert one.summary["method"] == "vanilla" and one.summary["test"] == one.frame()["test"].max()
    found = harness.compare(["vanilla", "cdfgnn"], TINY, mode="sim", out=tmp_path, quiet=True)
    frame = found.frame()
    assert list(frame["method"]) == ["vanilla", "cdfgnn"] and frame["speedup"][0] == 1
    assert set(frame["layer0"]) == {"precompute"} and set(frame["order"]) == {"aggregate-first"}
    assert (frame["epoch_low_seconds"] < frame["epoch_seconds"]).all() and frame["speedup_high"].notna().all()
    (order,) = found.order
    assert ("faster than" in order or "cannot be told apart" in order) and order in str(found)
    html = found._repr_html_()
    assert order in html and "90 % intervals" in html
    bare = harness.compare(["vanilla"], TINY, mode="sim", out=tmp_path / "bare", quiet=True, replays=0)
    assert bare.frame()["epoch_low_seconds"].isna().all() and "90 %" not in bare._repr_html_()
    assert "layer0 precompute" in html and "cdfgnn" in html and "<table" in html and "all rows: " in str(found)
    assert "&lt;" not in one._repr_html_() and "loss" not in html
    for outcome in (one, found):
        assert outcome.plot().axes[0].get_title(loc="left") == "Epoch time by component"
    own = harness.compare("vanilla,cdfgnn", TINY, mode="sim", layer0="auto", out=tmp_path, quiet=True)
    assert list(own.frame()["layer0"]) == ["precompute", "exchange"] and "cdfgnn *" in own._repr_html_()
    (tmp_path / "other.json").write_text("{}")
    loaded = harness.load_results(tmp_path)
    assert set(loaded.frame()["run_id"]) == {*frame["run_id"], *own.frame()["run_id"], one.record["run_id"]}
    assert len(loaded.left_out) == 1 and "other.json" in loaded._repr_html_()


def test_results_of_other_graphs_and_models_are_not_compared(tmp_path: Path) -> None:
    """A folder may hold anything; a speed-up is over a run that differs in its method alone."""
    other = TINY.data.dataset.replace("120", "400")
    for changes in ({}, {"hidden": 64}, {"dataset": other}):
        harness.run(TINY, mode="sim", method="vanilla", out=tmp_path, quiet=True, replays=8, **changes)
    harness.run(TINY, mode="sim", method="sylvie-s", hidden=64, out=tmp_path, quiet=True, replays=8)
    loaded = harness.load_results(tmp_path)
    frame = loaded.frame()
    assert list(frame["speedup"][:3]) == [1.0, 1.0, 1.0] and list(frame["base"][:3]) == list(frame["run_id"][:3])
    assert frame["base"][3] == frame["run_id"][1]
    assert frame["speedup"][3] == pytest.approx(frame["epoch_seconds"][1] / frame["epoch_seconds"][3])
    (order,) = loaded.order
    assert order.startswith(f"{other}, hidden 64: ") or order.split(": ")[0].endswith("hidden 64")
    said = "runs differ in dataset, hidden: speed-ups and orders are between runs with the same of these"
    assert said in str(loaded) and said in loaded._repr_html_()
    caption = loaded.plot()._suptitle.get_text()  # type: ignore[attr-defined]
    assert "gcn 2 x 16" in caption and "gcn 2 x 64" in caption and other in caption, "the figure is of all of them"


def test_scores_of_several_labels_are_called_micro_f1(tmp_path: Path) -> None:
    graph = "synthetic:nodes=120,degree=6,classes=3,features=8,multilabel=1"
    found = harness.compare("vanilla,sylvie-s", TINY, dataset=graph, mode="sim", out=tmp_path, quiet=True, replays=0)
    one = harness.run(TINY, dataset=graph, method="vanilla", mode="sim", out=tmp_path, quiet=True, replays=0)
    assert set(found.frame()["score"]) == {"micro-F1"} and one.summary["score"] == "micro-F1"
    figure = found.plot()
    texts = [*(axes.get_title(loc="left") for axes in figure.axes), *(axes.get_ylabel() for axes in figure.axes)]
    texts += [text.get_text() for part in figure.subfigs for text in (leg.get_title() for leg in part.legends)]
    shown = " ".join([str(found), str(one), *texts])
    for words in (
        "test micro-F1 at the best validation",
        "test micro-F1 at best validation",
        "train micro-F1, last",
        "Test micro-F1 over training time",
        "test micro-F1 (%)",
    ):
        assert words in shown
    assert "accuracy" not in shown
    plain = harness.run(TINY, method="vanilla", mode="sim", out=tmp_path, quiet=True, replays=0)
    assert plain.summary["score"] == "accuracy" and "train accuracy, last" in str(plain)


def test_settings_come_in_mappings_paths_and_numpy_numbers(tmp_path: Path) -> None:
    graph = {"dataset": TINY.data.dataset, "eval-every": 1}
    one = harness.run(graph, epochs=np.int64(2), lr=np.float32(0.5), out=tmp_path, quiet=True)
    assert one.record["config"]["epochs"] == 2 and one.record["config"]["lr"] == 0.5
    plain = harness.run(dataset=graph["dataset"], eval_every=1, epochs=2, lr=0.5, out=tmp_path, quiet=True)
    assert plain.path == one.path
    left = harness.compare(["vanilla", "cdfgnn"], {**graph, "layer0": "auto"}, mode="sim", epochs=1, out=tmp_path,
                           quiet=True, replays=0)  # fmt: skip
    assert list(left.frame()["layer0"]) == ["precompute", "exchange"], "asked for, as by a keyword"
    with pytest.raises(harness.InputError, match="unknown setting key 'datset'; did you mean 'dataset'"):
        harness.run({"datset": "x"})
    with pytest.raises(harness.InputError, match="a list is no config: give a harness.Config, a mapping"):
        harness.run([])  # type: ignore[arg-type]
    with pytest.raises(harness.InputError, match="out=None: give a folder"):
        harness.run(TINY, out=None)  # type: ignore[arg-type]
    with pytest.raises(harness.InputError, match=r"no such file|nowhere"):
        harness.run(dataset=tmp_path / "nowhere.npz", out=tmp_path)
    with pytest.raises(harness.InputError, match="Expected `int`"):
        harness.run(TINY, epochs=np.float64(2.5))


def test_results_are_short_in_a_terminal(tmp_path: Path) -> None:
    one = harness.run(TINY, out=tmp_path, quiet=True)
    assert repr(one) == f"RunOutcome(vanilla, loopback, 2 parts, done, 3 epochs, '{one.path}')"
    assert "test accuracy at best validation" in str(one) and "record" not in str(one)
    many = harness.commands.python.outcomes.Comparison([one.record] * 7, [one.path] * 7)
    assert repr(many).startswith("Comparison(vanilla, loopback, 2 parts, done; ") and repr(many).endswith("; 2 more)")
    assert len(repr(many)) < 300
    cut = harness.partition_graph(TINY, parts=3, partitioner="hash")
    assert repr(cut).endswith("' in 3 parts by hash)") and len(repr(cut)) < 200


def test_what_if_and_partitions(tmp_path: Path) -> None:
    found = harness.what_if(
        ["vanilla", "sylvie-s"], TINY, parts=4, cluster="ethernet-1g", points=2, bandwidth="nic=2Gb/s..400Gb/s",
        out=tmp_path, quiet=True,
    )  # fmt: skip
    frame = found.frame()
    assert set(frame["method"]) == {"vanilla", "sylvie-s"} and len(frame) == 2 * 3
    assert found.said and found.said[-1].startswith("fastest (90 %): ") and found.said[-1] in str(found)
    assert "400 Gb/s" in found._repr_html_() and "90 % interval" in found._repr_html_()
    assert len(found.plot().axes) == 2
    assert repr(found) == "WhatIf(vanilla, sylvie-s over 2 values of links.nic.bandwidth)"
    cut = harness.partition_graph(TINY, parts=3, partitioner="hash")
    assert list(cut.frame()["inner"]) == [40, 40, 40] and cut.summary["replication"] > 1
    assert len(cut.plot().axes) == len(cut.frame().columns) - 1 and "by hash" in cut._repr_html_()


def test_advice_is_asked_as_the_command_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = TINY.changed(eval_every=harness.Config().run.eval_every, order="auto")
    asked: list[Question] = []
    with monkeypatch.context() as patched:
        patched.setattr("harness.commands.python.interface.make_advice", lambda question, tell: asked.append(question))
        harness.advise(
            short, cluster="ethernet-1g", parts=(2, 4), methods="vanilla, sylvie-s", budget="90s", out=tmp_path
        )
    line = ["advise", "--parts", "2,4", "--methods", "vanilla,sylvie-s", "--budget", "90s", "--out", str(tmp_path)]
    flags = ["--dataset", TINY.data.dataset, "--epochs", "3", "--cluster", "ethernet-1g"]
    assert asked == [question_of(parse_arguments([*line, *flags]))]
    with pytest.raises(harness.InputError, match="--within must be from 0"):
        harness.advise(short, cluster="ethernet-1g", within=-1, out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_bad_settings_are_refused_in_one_line(tmp_path: Path) -> None:
    for call, says in (
        (lambda: harness.run(epoch=5), "did you mean 'epochs'?"),
        (lambda: harness.run(TINY, epochs=0), "epochs must be at least 1"),
        (lambda: harness.compare("vanilla,vanila", TINY), "did you mean 'vanilla'?"),
        (lambda: harness.what_if("vanilla", TINY, bandwidth="1Gb/s"), "is not LINK=LOW..HIGH"),
        (lambda: harness.load_results(tmp_path), "no result files in it"),
        (lambda: harness.load_results(tmp_path / "none"), "no such folder"),
    ):
        with pytest.raises(harness.InputError, match=says):
            call()
    assert not list(tmp_path.iterdir())
