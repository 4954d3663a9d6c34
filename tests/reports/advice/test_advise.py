"""A whole advice on a small graph: its numbers are those of the runs behind it, and nothing is computed twice."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import cli
from harness.commands.arguments import config_of, parse_arguments
from harness.config import RunConfig
from harness.datasets import load, write_graph
from harness.errors import InputError
from harness.running import plan_of, run
from reports.advice import Advice, Question, make_advice
from reports.advice import _training as training
from reports.advice._intervals import EpochDraws
from sims.cluster import load_cluster, varied

GRAPH = "synthetic:nodes=600,degree=10,classes=4,features=16,homophily=0.8"
BASE = RunConfig.of(
    dataset=GRAPH, hidden=8, epochs=8, lr=0.05, partitioner="hash", cluster="ethernet-1g", threads=1, order="auto"
)


def question(out: Path, **changes: Any) -> Question:
    settings: dict[str, Any] = {
        "base": BASE,
        "parts": (2,),
        "methods": ("sar", "sylvie-s:bits=1", "bns-gcn:p=0.5"),
        "within": 30.0,
        "seeds": 2,
        "budget": 600.0,
        "price": 3600.0,
        "out": out,
    }
    return Question(**{**settings, **changes})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("advice")


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
def advice(folder: Path, told: list[str]) -> Advice:
    return make_advice(question(folder), lambda what, left: told.append(what))


def test_times_are_those_of_a_simulated_run(advice: Advice) -> None:
    """Of the same settings: to the last bit, for a replay is exact."""
    for choice in advice.choices:
        if choice.method in ("vanilla", "sylvie-s:bits=1"):
            config = choice.priced.candidate.config.changed(epochs=2, eval_every=-1)
            assert run(config).summary()["epoch_seconds"] == pytest.approx(choice.priced.epoch, rel=1e-12)


def test_accuracies_are_those_of_training(advice: Advice) -> None:
    """The best validation over seeds less what may be lost is the target; exact methods share one training."""
    exact = [run(BASE.changed(seed=seed, eval_every=1)).summary() for seed in (0, 1)]
    best = [100 * found["best_val"] for found in exact]
    assert advice.target == pytest.approx(sum(best) / 2 - 30.0)
    rows = advice.frame().set_index("method")
    tests = [100 * found["test_at_best_val"] for found in exact]
    for name in ("single", "vanilla", "sar"):
        assert rows.accuracy[name] == pytest.approx(sum(tests) / 2)
    assert list(rows.keeps_accuracy[["single", "vanilla", "sar"]]) == ["exact"] * 3


def test_a_row_is_whole(advice: Advice) -> None:
    frame = advice.frame()
    assert set(frame.method) == {"single", "vanilla", "sar", "sylvie-s:bits=1", "bns-gcn:p=0.5"}
    reached = frame[frame.seconds_to_target.notna()]
    assert len(reached) >= 3
    assert np.allclose(reached.seconds_to_target, reached.epochs_to_target * reached.epoch_seconds)
    assert np.allclose(reached.cost, reached.seconds_to_target * reached.devices)  # 3600 for an hour is 1 for a second
    assert list(reached.seconds_to_target) == sorted(reached.seconds_to_target)
    assert (frame.memory_bytes > 0).all() and frame.fits.all()
    dropped = frame[frame.seeds < 2]
    assert (dropped.note != "").all(), "what is not trained to the end says why"


def test_the_advice_is_possible_and_no_exact_method_is_quicker(advice: Advice) -> None:
    found = advice.verdict
    assert found is not None and found.chosen.possible and found.chosen.seconds is not None
    quicker = [
        each for each in advice.choices
        if each.keeps == "exact" and each.seconds is not None and each.seconds < found.chosen.seconds
    ]  # fmt: skip
    assert not quicker
    said = " ".join(advice.sentences)
    for word in ("Run ", "Memory:", "Bottleneck:", "Bandwidth:", "How sure:", "Accuracy:", "costs"):
        assert word in said


def test_commands_can_be_typed(advice: Advice) -> None:
    """They are read without an error, and mean what was advised."""
    chosen = advice.verdict.chosen.priced.candidate.config if advice.verdict else None
    assert chosen is not None
    for what in ("predict", "run"):
        config = config_of(parse_arguments(advice.commands[what].split()[1:]))
        plan_of(config)
        assert (config.training.method, config.cut) == (chosen.training.method, chosen.cut)
        assert config.run.mode == {"predict": "sim", "run": "real"}[what]
    if chosen.cut.parts > 1:
        assert "--nnodes 2 --nproc-per-node 1" in advice.commands["torchrun"]
        words = advice.commands["slurm"].replace("--out job.sh", "").split()[1:]
        assert cli.main(words) == 0


def test_it_goes_on_where_it_was_stopped(
    advice: Advice, folder: Path, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that is finished is trained or recorded again, and the answer is the same."""
    assert any("trained exact training" in line for line in told)
    assert not list((folder / "checkpoints").glob("*/*")) or (folder / "trainings").exists()

    def never(job: Any) -> Any:
        raise AssertionError("trained again")

    monkeypatch.setattr(training, "carry_out", never)
    again = make_advice(question(folder))
    assert again.content()["candidates"] == advice.content()["candidates"]
    monkeypatch.undo()
    lost = sorted((folder / "trainings").glob("*.json"))[0]
    lost.unlink()
    assert make_advice(question(folder)).content()["candidates"] == advice.content()["candidates"]


def test_the_command_prints_and_writes_it(folder: Path, capsys: pytest.CaptureFixture[str], advice: Advice) -> None:
    flags = [
        "--dataset", GRAPH, "--hidden", "8", "--epochs", "8", "--lr", "0.05", "--partitioner", "hash", "--cluster",
        "ethernet-1g", "--threads", "1", "--parts", "2", "--methods", "sar,sylvie-s:bits=1,bns-gcn:p=0.5", "--within",
        "30", "--seeds", "2", "--budget", "600s", "--price", "3600", "--jobs", "1", "--out", str(folder), "--json", "-",
    ]  # fmt: skip
    assert cli.main(["advise", *flags]) == 0
    output = capsys.readouterr()
    content = json.loads(output.out)
    assert content["candidates"] == json.loads(json.dumps(advice.content()["candidates"]))
    said = " ".join(output.err.split())  # lines are wrapped between words
    for sentence in advice.sentences:
        assert sentence in said
    assert "predict:  haloscope run" in output.err and "about" in output.err
    assert (folder / "advice.png").stat().st_size > 10_000 and (folder / "advice.csv").exists()


def test_a_part_of_the_graph_is_trained_on_and_said(tmp_path: Path) -> None:
    found = make_advice(question(tmp_path, sample=200, methods=("bns-gcn:p=0.5",), seeds=1))
    assert any("200 of 600 nodes" in note for note in found.notes)
    assert found.graph["nodes"] == 600
    sample = load(str(next(tmp_path.glob("sample-*.npz"))))
    assert sample.num_nodes == 200
    assert make_advice(question(tmp_path, sample=200, methods=("bns-gcn:p=0.5",), seeds=1)).content() == found.content()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base": BASE.changed(cluster="h100-1")}, "has one device"),
        ({"base": BASE.changed(cluster="nowhere")}, "unknown cluster"),
        ({"base": BASE.changed(cluster="hosts=2,device=cpu-epyc-1core")}, "without links between them"),
        ({"base": BASE.changed(cluster="hosts=2,device=l4,nic=1Gb/s")}, "has no links.bus"),
        ({"base": BASE.changed(dataset="workload:reddit-10")}, "known by counts only"),
        ({"base": BASE.changed(split="counts:300/0/100")}, "no validation nodes"),
        ({"base": BASE.changed(split="counts:300/100/0")}, "no test nodes"),
        ({"base": BASE.changed(model="nonsense")}, "unknown model"),
        ({"base": BASE.changed(layers=0)}, "layers must be"),
        ({"parts": (1,)}, "from 2 to 8"),
        ({"parts": (9,)}, "from 2 to 8"),
        ({"methods": ("vanila",)}, "did you mean 'vanilla'"),
        ({"within": -1.0}, "--within"),
        ({"price": float("nan")}, "--price"),
        ({"seeds": 0}, "--seeds"),
    ],
)
def test_bad_questions_are_refused_in_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        make_advice(question(tmp_path, **changes))
    assert "\n" not in str(error.value)


def test_a_graph_without_labels_is_refused(tmp_path: Path) -> None:
    graph = load(GRAPH)
    write_graph(tmp_path / "bare.npz", dataclasses.replace(graph, y=None, train=None, val=None, test=None))
    base = BASE.changed(dataset=str(tmp_path / "bare.npz"))
    with pytest.raises(InputError, match="no labels"):
        make_advice(question(tmp_path, base=base))


def test_bad_flags_end_with_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flags in (["--parts", "two"], ["--budget", "soon"], ["--jobs", "-1"], ["--epochs", "0"]):
        assert cli.main(["advise", "--dataset", GRAPH, "--out", str(tmp_path), *flags]) == 2
        assert capsys.readouterr().err.count("\n") <= 2


def test_intervals_are_around_what_is_said(advice: Advice) -> None:
    """Of the advice and what it is compared with; the sentences and the table have them."""
    found = advice.verdict
    assert found is not None and (found.chosen.method, found.chosen.parts) in advice.intervals
    assert len(advice.intervals) > 1
    rows = advice.frame().set_index(["method", "devices"])
    for key, (low, high) in advice.intervals.items():
        assert low < rows.epoch_seconds[key] < high < 4 * low
        assert (rows.epoch_low_seconds[key], rows.epoch_high_seconds[key]) == (low, high)
    assert "(90 %: " in advice.sentences[0] and "; 90 %: " in advice.sentences[1]


def test_a_notebook_shows_it(advice: Advice, tmp_path: Path) -> None:
    html = advice._repr_html_()
    assert "Run single" in html and "<table" in html and "haloscope run" in html and "90 %" in html
    assert len(advice.plot(tmp_path / "drawn.png").subfigs) == 2 and (tmp_path / "drawn.png").exists()


def test_a_border_has_an_interval(advice: Advice) -> None:
    """Two candidates of the same draws: level at a bandwidth between two ends, which more draws do not leave."""
    by = {(each.method, each.parts): each.priced for each in advice.choices}
    one, many = by["single", 1], by["vanilla", 2]
    cluster = load_cluster("ethernet-1g")
    fast = min(one.epoch, many.epoch_on(varied(cluster, "nic", "bandwidth", 1e12)))
    epochs = 0.5 * (fast + many.epoch) / one.epoch  # one device is level with two at some bandwidth between
    drawn = EpochDraws(cluster, 16)
    span = drawn.border("nic", 125e6, (one, epochs), (many, 1.0))
    assert span is not None and span[0] < span[1]
    assert EpochDraws(cluster, 0).border("nic", 125e6, (one, 1.0), (many, 1.0)) is None
    assert drawn.border("nic", 125e6, (one, 1.0), (one, 1.0)) is None, "their ratio does not change"
    low, high = drawn.share((one, 1.0), (many, 1.0)) or (0.0, 0.0)
    assert low < one.epoch / many.epoch < high
