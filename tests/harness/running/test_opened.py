"""A run is opened once: what its config names is parsed, loaded and placed one time, whatever is done with it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.config import Mode, RunConfig
from harness.errors import InputError
from harness.methods.registry import parse_method
from harness.running import Driver, open_run, plan_of, run, run_opened
from sims.cluster import load_cluster, place
from sims.study import SimulatedCluster

TINY = "synthetic:nodes=60,degree=4,classes=3,features=8"
QUICK = ["--dataset", TINY, "--epochs", "1", "--eval-every", "-1", "--parts", "2", "--quiet"]
ONCE: dict[str, Callable[..., Any]] = {"load": load_cluster, "place": place, "parse": parse_method}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each function of `ONCE` is called, from whichever module."""
    found: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            found[name] += 1
            return function(*args, **more)

        return call

    for name, function in ONCE.items():
        stand_in = counted(name, function)
        for module in list(sys.modules.values()):
            for attribute, value in list(vars(module).items()):
                if value is function and module.__name__.startswith(("harness", "sims", "real", "reports")):
                    monkeypatch.setattr(module, attribute, stand_in)
    return found


def test_a_simulated_run_parses_loads_and_places_once(calls: Counter[str], tmp_path: Path) -> None:
    run_it = ["run", *QUICK, "--mode", "sim", "--cluster", "ethernet-10g", "--replays", "0", "--out", str(tmp_path)]
    assert main(run_it) == 0
    assert calls == {"load": 2, "place": 1, "parse": 1}, (
        "loaded once more to check it before anything heavy is imported"
    )
    calls.clear()
    assert main(run_it) == 0, "and where its result is there already"
    assert calls == {"load": 2, "place": 1, "parse": 1}


def test_so_do_a_comparison_and_a_trace(calls: Counter[str], tmp_path: Path) -> None:
    simulated = ["--mode", "sim", "--cluster", "ethernet-10g", "--replays", "0", "--out", str(tmp_path)]
    assert main(["compare", *QUICK, *simulated, "--methods", "vanilla,sylvie-s"]) == 0
    assert (calls["load"], calls["place"]) == (3, 2), "once for each of two runs, and once to check it"
    result = next(tmp_path.glob("*.json"))
    calls.clear()
    assert main(["trace", str(result), "--out", str(tmp_path / "trace.json"), "--epochs", "1", "--quiet"]) == 0
    assert (calls["load"], calls["parse"]) == (1, 1)


@pytest.mark.parametrize("mode", ["loopback", "sim", "real"])
def test_every_mode_has_a_driver_of_one_shape(mode: Mode) -> None:
    opened = open_run(RunConfig.of(dataset=TINY, mode=mode, cluster="ethernet-10g"))
    driver: Driver = opened.driver
    driver.check()
    read = {"sim": {"cluster", "simulator"}, "real": {"host", "libraries", "code"}}
    assert driver.reads().keys() == read.get(mode, set())
    assert opened.inputs().keys() == {"method", *driver.reads()} and callable(driver.execute)
    assert opened.plan.method == parse_method("vanilla") and opened.plan.cut.partitioner == "auto"


def test_an_opened_run_can_be_carried_out_again() -> None:
    config = RunConfig.of(dataset=TINY, mode="sim", cluster="ethernet-10g", epochs=2)
    opened = open_run(config)
    first, second = run_opened(opened), run_opened(opened)
    assert first.epochs == second.epochs == run(config).epochs
    assert isinstance(opened.driver, SimulatedCluster) and opened.driver.cluster.name == "ethernet-10g"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"method": "vanila"}, "did you mean 'vanilla'"),
        ({"model": "gcm"}, "unknown model 'gcm'; did you mean 'gcn'"),
        ({"partitioner": "metis-cot"}, "did you mean 'metis-cut'"),
        ({"partitioner": "ebv:gama=1"}, "unknown option of ebv 'gama'; did you mean 'gamma'"),
        ({"partitioner": "ebv"}, "method vanilla cuts edges: use partitioner auto, or one of metis-cut, metis, label-"),
        ({"partitioner": "hash", "method": "cdfgnn"}, "cuts vertices; use one of ebv, hep, dne, libra, hdrf"),
        ({"method": "single"}, "runs on one rank: use --parts 1"),
        ({"dataset": "workload:papers100m-192"}, "describes a graph by counts: use --mode sim --shapes-only"),
        ({"mode": "sim", "cluster": "ethernet-10"}, "did you mean 'ethernet-10g'"),
        ({"mode": "sim", "cluster": "l4-4x8", "parts": 33}, "33"),
    ],
)
def test_what_cannot_be_opened_is_refused_before_any_data_is_read(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_run(RunConfig.of(**{"dataset": "no-such-graph", **values}))


def test_a_plan_needs_no_place() -> None:
    plan = plan_of(RunConfig.of(dataset="no-such-graph", mode="sim", cluster="no-such-cluster", method="cdfgnn"))
    assert plan.cut.kind == "vertex" and plan.method.name == "cdfgnn"
