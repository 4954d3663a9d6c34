"""Which runs are compared: no speed-up and no order across graphs, models, machines or numbers of parts."""

from __future__ import annotations

import platform
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.config import RunConfig
from harness.running.alike import (
    LIKE,
    bases_of,
    group_names,
    groups_of,
    likeness,
    limit_lines,
    place_of,
    place_warnings,
    preset_notes,
    unlike_settings,
)
from harness.running.intervals import order_lines, speedup_interval
from harness.running.summary import comparison, notes_of, score_name

OTHER: dict[str, Any] = {
    "seed": 3, "split": "public", "protocol": "inductive", "features": "row",
    "model": "sage", "layers": 3, "linear_layers": 1,
    "hidden": 64, "heads": 2, "hidden_heads": "mean", "dropout": 0.5, "norm": "layer", "attention": "fused",
    "precision": "bf16", "partitioner": "hash", "hosts": 2, "renumber": "0", "mode": "real", "cuda_graphs": True,
    "deterministic": False, "shapes_only": True, "cluster": "ethernet-1g", "parts": 4,
}  # fmt: skip
"""Another value of every setting that decides what a run may be compared with."""

INDIFFERENT: dict[str, Any] = {
    "epochs": 7, "lr": 0.5, "weight_decay": 0.1, "eval_every": 1, "layer0": "cache", "order": "linear-first",
    "timeout": 5.0, "rates": "rates.json",
}  # fmt: skip


def run(method: str = "vanilla", seconds: float = 1.0, fingerprint: str = "f", host: str = "", **settings: Any) -> Any:
    """A finished run, predicted unless `mode` says otherwise."""
    config = {**RunConfig.of(method=method, mode="sim", cluster="ethernet-10g").flat(), **settings}
    predicted = config["mode"] == "sim"
    interval = {"replays": 4, "ratios": [0.9, 1.0, 1.1, 1.2], "seconds": {}, "share": 0.9, "inputs": []}
    whole = {"cut": "none"} if method == "single" else {"cut": "edge"}
    return {
        "run_id": f"{method} {sorted(settings.items())} {fingerprint} {host}",
        "state": "done", "message": "", "config": config, "epochs": [],
        "graph": {"name": "g", "fingerprint": fingerprint, "notes": []},
        "environment": {"inputs": {"host": host} if host else {}},
        "facts": {"cluster": config["cluster"], **whole, **({"interval": interval} if predicted else {})},
        "summary": {
            "epoch_seconds": seconds, "seconds": {"epoch": seconds}, "bytes_per_epoch": 1.0, "peak_memory": 1,
            "test_at_best_val": None, "best_test": None,
        },
    }  # fmt: skip


def speedups(*records: Any) -> list[float | None]:
    return [row["speedup"] for row in comparison(records)]


def test_every_setting_is_either_of_those_that_must_be_equal_or_indifferent() -> None:
    known = set(RunConfig().flat())
    assert set(LIKE) | {"cluster", "parts"} == set(OTHER) and set(OTHER) | set(INDIFFERENT) <= known
    left = known - set(OTHER) - set(INDIFFERENT)
    places = {"device", "backend", "threads"}  # where a run is real
    free = {"method", "dataset", "evaluate", "startup_timeout", "prepare_timeout"}
    assert left == places | free, "a new setting: does it change the time of an epoch?"


@given(name=st.sampled_from(sorted(OTHER)))
def test_runs_that_differ_in_one_of_these_are_not_compared(name: str) -> None:
    base, other = run(), run("sylvie-s", 0.5, **{name: OTHER[name]})
    assert speedups(base, other) == [1.0, 1.0] and order_lines([base, other]) == []
    assert name == "mode" or unlike_settings([base, other]) == [name]
    if name != "parts":
        assert speedup_interval(other, base) is None


@given(given=st.dictionaries(st.sampled_from(sorted(INDIFFERENT)), st.just(None)))
def test_runs_that_differ_in_others_are_compared(given: dict[str, None]) -> None:
    base, other = run(), run("sylvie-s", 0.5, **{name: INDIFFERENT[name] for name in given})
    assert speedups(base, other) == [1.0, 2.0] and unlike_settings([base, other]) == []
    (line,) = order_lines([base, other])
    assert line.startswith("sylvie-s is faster than vanilla: ")


def test_other_graphs_under_one_name_are_told_apart() -> None:
    base, other = run(), run("sylvie-s", 0.5, fingerprint="g")
    assert speedups(base, other) == [1.0, 1.0] and unlike_settings([base, other]) == ["dataset"]
    shapes = [run(shapes_only=True, fingerprint=text) for text in "ab"]  # of counts, which go by the number of parts
    assert likeness(shapes[0]) == likeness(shapes[1])


def test_a_cluster_that_was_measured_again_is_another() -> None:
    old, new = run(cluster="here"), run("sylvie-s", 0.5, cluster="here")
    for record, known in ((old, "1"), (new, "2")):
        record["environment"]["inputs"]["cluster"] = known
    assert speedups(old, new) == [1.0, 1.0] and order_lines([old, new]) == []


def test_measured_runs_are_compared_on_one_machine_whatever_its_threads_a_rank() -> None:
    cpu = "2 cores, {} threads a rank, CPU, 3 GHz"
    one, two = (run(m, mode="real", host=f"a, {cpu.format(n)}") for m, n in (("single", 2), ("vanilla", 1)))
    far = run("vanilla", 0.5, mode="real", host=f"b, {cpu.format(1)}")
    assert speedups(one, two, far) == [1.0, 1.0, 1.0]
    assert comparison([one, two, far])[1]["base"] == one["run_id"] != comparison([one, two, far])[2]["base"]
    (line,) = limit_lines([one, two, far])
    assert line.startswith("runs differ in cluster, machine: "), "kept results of another machine (--reuse any)"
    assert unlike_settings([one, two]) == [] and "machine" in unlike_settings([one, far])
    assert speedups(two, run("sylvie-s", 0.5, mode="real", host=two["environment"]["inputs"]["host"])) == [1.0, 2.0]


def test_a_method_that_keeps_the_graph_whole_is_the_base_of_every_number_of_parts_if_it_comes_first() -> None:
    whole, two, four = run("single", 4.0, parts=1), run(seconds=2.0, parts=2), run(seconds=1.0, parts=4)
    assert speedups(whole, two, four) == [1.0, 2.0, 4.0]
    assert speedups(two, whole) == [1.0, 0.5]
    assert speedups(two, whole, four) == [1.0, None, 1.0], "beside which number of parts?"
    assert bases_of([two, whole, four]) == [two, None, four]
    assert [len(group) for group in groups_of([whole, two, four])] == [2, 2]


def test_orders_are_given_within_groups_that_each_line_names() -> None:
    records = [run(m, s, hidden=h) for h in (16, 64) for m, s in (("vanilla", 3.0 * h), ("sylvie-s", 1.0 * h))]
    lines = order_lines(records)
    assert [line.partition(" is ")[0] for line in lines] == ["hidden 16: sylvie-s", "hidden 64: sylvie-s"]
    assert order_lines(records[:2])[0].startswith("sylvie-s is faster than vanilla")
    sized = [run(m, s / n, parts=n) for n in (2, 4) for m, s in (("vanilla", 3.0), ("sylvie-s", 1.0))]
    assert [line.partition(": ")[0] for line in order_lines(sized)] == ["2 parts", "4 parts"]
    assert group_names(groups_of(records[:2])) == [""]
    assert order_lines([run(epochs=5), run(epochs=6)]) == [], "a method is not beside itself"
    seeds = [run(seed=seed, fingerprint=str(seed)) for seed in (0, 1)]  # a split that the seed has drawn
    assert unlike_settings(seeds) == ["seed"] and group_names(groups_of(seeds)) == ["seed 0", "seed 1"]


def test_where_a_run_was() -> None:
    assert place_of(run()) == "ethernet-10g" and place_of(run(mode="loopback")) is None
    assert place_of(run(mode="real", cluster="ethernet-10g")) == "this machine"
    assert place_of(run(mode="real", host=f"{platform.node()}, 2 cores")) == "this machine"
    assert place_of(run(mode="real", host="elsewhere.example, 2 cores")) == "machine elsewhere.example"
    assert place_of(run(mode="real", cluster="lab:3x1gbit")) == "lab:3x1gbit"
    far = {**run(mode="real"), "epochs": [{"bytes": {"tiers": {"loopback": 1, "ethernet": 2}}}]}
    assert place_of(far) == "several machines"


@pytest.mark.parametrize(
    ("sim", "real", "warned"),
    [
        ("ethernet-10g", "ethernet-10g", True),
        ("local", "local", True),
        ("here", "here", False),
        ("here:links.loopback.latency=1us", "here", False),
        ("lab:3x1gbit", "lab:3x1gbit", False),
        ("lab:3x1gbit", "here", True),
        ("measured/cluster.toml", "here", True),
    ],
)
def test_predictions_of_another_place_than_was_measured_are_warned_of(sim: str, real: str, warned: bool) -> None:
    pair = [run(cluster=sim), run(mode="real", cluster=real)]
    warnings = place_warnings(pair)
    assert bool(warnings) == warned and place_warnings(pair[:1]) == place_warnings(pair[1:]) == []
    if warned:
        head = "note" if ".toml" in sim else "warning"  # a file of the user's own may describe this machine
        assert warnings[0].startswith(f"{head}: ")
        assert f"predicted rows are of cluster {sim}, measured ones of this machine" in warnings[0]


def test_the_default_cluster_says_that_it_is_not_this_machine() -> None:
    (said,) = preset_notes("local")
    assert said.startswith("cluster local: a model of one virtual machine with 2 cores, not of this machine")
    assert preset_notes("local:links.loopback.latency=1us") == [said] and said in notes_of(run(cluster="local"))
    assert "of cluster local" in preset_notes("lab:3x1gbit")[0] and not preset_notes("lab:3x1gbit:calibration=x")
    assert not preset_notes("ethernet-10g") and said not in notes_of(run(mode="real", cluster="local"))


def test_what_scores_are() -> None:
    one, many = run(), run()
    many["graph"]["multilabel"] = True
    assert [score_name(records) for records in ([one], [many], [one, many])] == ["accuracy", "micro-F1", "score"]
    assert [row["score"] for row in comparison([one, many])] == ["accuracy", "micro-F1"]
