"""The context of tables and figures: cached runs, files named by content, trainings by budget."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.config import from_mapping
from harness.errors import InputError
from reports.core import train
from reports.core.context import SHAPES, Context, data_state, demand
from reports.core.train import EPOCHS, accuracies, affordable, chosen_graph
from tests.conftest import real_data

SMALL = {"dataset": "synthetic:nodes=60,degree=4,features=4", "hidden": 4, "epochs": 2, "threads": 1}


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path / "out", seconds=0.01, quiet=True)


def test_runs_are_kept_by_content(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    configs = [{**SMALL, "parts": 2}, {**SMALL, "parts": 3}, {**SMALL, "parts": 2}]
    first = context.runs(configs)
    assert [r["config"]["parts"] for r in first] == [2, 3, 2] and first[0] == first[2]
    monkeypatch.setattr("harness.running.run", lambda config: pytest.fail("run again"))
    assert context.runs(configs) == first
    monkeypatch.setattr("reports.core.context.code_version", lambda *packages: "other code")
    with pytest.raises(pytest.fail.Exception):
        context.runs(configs)


def test_a_described_graph_is_part_of_what_a_run_is_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALOSCOPE_DATA", str(tmp_path))
    graph = {"features": 8, "classes": 3, "train": 50, "dataset": "toy"}
    described = tmp_path / "toy.json"
    described.write_text(json.dumps({"graph": graph, "parts": {"partitioner": "hash"}}))
    (tmp_path / "toy.npz").write_bytes(b"one graph")
    config = from_mapping({"dataset": str(described), "parts": 2, **SHAPES})
    before = data_state(config)
    (tmp_path / "toy.npz").write_bytes(b"another graph")
    assert data_state(config) != before


def test_processes_that_want_one_run_make_it_once(context: Context, tmp_path: Path) -> None:
    """Both begin at once; one waits for the other's record."""
    code = (
        "import json, sys; from pathlib import Path; from reports.core.context import Context\n"
        "from harness import running; run = running.run\n"
        "def counted(config):\n    print('ran'); return run(config)\n"
        "running.run = counted\n"
        "Context(Path(sys.argv[1]), quiet=True).runs([json.loads(sys.argv[2])])"
    )
    argv = [sys.executable, "-c", code, str(tmp_path), json.dumps({**SMALL, "parts": 2})]
    env = {**os.environ, "HALOSCOPE_CACHE": str(tmp_path / "cache")}
    both = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env) for _ in range(2)]
    assert sorted(process.communicate(timeout=120)[0] for process in both) == ["", "ran\n"]
    assert not list((tmp_path / "cache" / "reports" / "runs").glob("*.lock"))


def test_failing_runs_are_records(context: Context) -> None:
    (record,) = context.runs([{**SMALL, "method": "nonsense"}])
    assert record["state"] == "error" and "nonsense" in record["message"] and record["summary"]["seconds"] == {}
    with pytest.raises(InputError, match="nonsense"):
        demand(record)
    with pytest.raises(InputError, match="did you mean 'hidden'"):
        context.runs([{"hiden": 4}])


def test_descriptions_and_rates_are_files(context: Context) -> None:
    graph = {"nodes": 1000, "edges": 8000, "features": 8, "classes": 3, "train": 1000}
    path = context.workload({"graph": graph, "parts": {"count": 2, "boundary": 100}})
    assert path == context.workload({"parts": {"boundary": 100, "count": 2}, "graph": graph})
    method = "bns-gcn:p=0.5:sampling=bes"
    config = {**SHAPES, "dataset": path, "parts": 2, "epochs": 2, "method": method}
    rates = [context.rates(method, {"kept nodes": share}) for share in (0.1, 0.8)]
    few, many = (demand(r)["summary"] for r in context.runs([{**config, "rates": path} for path in rates]))
    assert 0 < few["bytes_per_epoch"] < many["bytes_per_epoch"]
    (refused,) = context.runs([config])
    assert refused["state"] == "error" and "kept nodes" in refused["message"]


def test_commands_name_what_differs(context: Context) -> None:
    command = context.text_of(
        {"dataset": "cora", "parts": 4, "shapes_only": True, "mode": "sim", "deterministic": False}
    )
    assert (
        command == "haloscope run --dataset cora --order method --parts 4 --mode sim --no-deterministic --shapes-only"
    )
    assert "--dataset 'a b'" in context.text_of({"dataset": "a b"})


@pytest.mark.parametrize(
    ("seconds", "cost", "found"),
    [
        (1000.0, 0.1, (200, 3)),
        (40.0, 0.1, (100, 3)),
        (6.0, 0.1, (30, 2)),
        (3.0, 0.1, (30, 1)),
        (0.0, 1.0, (EPOCHS[0], 1)),
    ],
)
def test_the_budget_buys_epochs_before_seeds(seconds: float, cost: float, found: tuple[int, int]) -> None:
    assert affordable(seconds, cost, 200, 3) == found


def test_fewer_epochs_may_suffice_before_seeds_are_given_up() -> None:
    assert affordable(3.1, 0.1, 200, 3) == (30, 1) and affordable(3.1, 0.1, 200, 3, fewest=10) == (10, 3)


def test_every_graph_has_the_most_similar_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALOSCOPE_DATA", str(real_data()))
    small, large = (Context(tmp_path, seconds=seconds, quiet=True) for seconds in (43.0, 400.0))
    papers = (("reddit", "yelp", "ogbn-products", "amazon"), ("cora", "pubmed", "reddit", "ogbn-papers100m"))
    for context in (small, large):
        for graphs in papers:
            assert len({chosen_graph(context, graph)[0] for graph in graphs}) == len(graphs)
    assert chosen_graph(small, "yelp")[0] == "github_social" and train.caveats("github_social") == ""
    assert chosen_graph(small, "reddit2")[1] == "amazon_computers stands in for reddit2"
    assert chosen_graph(small, "amazon2m")[0] != chosen_graph(small, "reddit2")[0]
    assert train.SETTINGS["pyg:Yelp"] == {"features": "standard"} and "pyg:Reddit" not in train.SETTINGS
    assert train.caveats("amazon_computers") == "; features projected to 256 columns"


def test_training_says_what_stood_in(context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALOSCOPE_DATA", str(tmp_path))
    name, data = chosen_graph(context, "friendster")
    assert data == f"{name} stands in for friendster" and name.startswith("synthetic:")
    small = {"dataset": SMALL["dataset"], "hidden": 4}
    trained = accuracies(context, "friendster", {"a": "vanilla", "b": {"method": "single"}}, parts=2, model=small)
    assert set(trained.scores) == {"a", "b"} and trained.data == data and "6 epochs, 1 seed" in trained.summary
    epochs, scores = trained.curve("a")
    assert epochs[-1] == 6 and len(scores) == len(epochs) and trained.mean("c") is None
    assert trained.records["b"][0]["config"]["parts"] == 1
    assert len(context.commands) == 2 and trained.where == f"{data}, 2 parts"
    more = {"method": "single", "longer": 2.5}
    longer = accuracies(context, "friendster", {"a": "single", "b": more}, parts=2, model=small)
    assert [len(longer.records[label][0]["epochs"]) for label in "ab"] == [6, 15]
    assert trained.majority is not None and 0 < trained.majority < 100
    assert len({trained.evidence(labels) for labels in ("a", "b", "ab", "ba")}) == 3 and trained.evidence("c") == ""
    values = {"a": [trained.majority + 1.5] * 5, "b": [trained.majority + 0.1] * 5}
    assert (
        trained.ordering("x", {"A": "a", "B": "b"}, values=values).verdict == "not judged"
    )  # hardly more than a guess
    assert trained.ordering("x", {"A": "a", "B": "b"}).verdict == "not enough runs"  # of one seed
    values["a"] = [trained.majority + 3] * 5
    assert trained.ordering("x", {"A": "a", "B": "b"}, values=values).verdict == "right"
    with pytest.raises(InputError, match="did you mean 'reddit'"):
        chosen_graph(context, "redit")
    with pytest.raises(InputError, match="nothing to train"):
        accuracies(context, "cora", {}, parts=2, model={})
