"""`haloscope flows`: the reference scenarios, and invalid files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from harness.cli import main
from harness.errors import InputError
from sims.network import FluidNetwork, route_table, run_flows
from sims.network._completions import WINDOW
from sims.study import run_file
from sims.study._scenarios import sizes
from tests.conftest import REPOSITORY

REFERENCE = REPOSITORY.parent / "shared" / "reference" / "flows.json"

SMALL: dict[str, Any] = {
    "name": "two",
    "links": {"up": {"bandwidth_Bps": 1000.0}, "down": {"bandwidth_Bps": 500}},
    "flows": [
        {"id": "a", "route": ["up", "down"], "bytes": 100, "start_s": 1.0, "latency_s": 0.5},
        {"id": "b", "route": ["up"], "bytes": 1000, "after": ["a"]},
        {"id": "c", "route": [], "bytes": 7, "latency_s": 0.25},
    ],
}
BIG: dict[str, Any] = {
    "name": "grid",
    "size_formula": "bytes(s->d) = (1 + ((7*s + 13*d) mod 17)) * 20000 for every ordered pair s != d",
    "nodes": 2,
    "gpus_per_node": 2,
    "pcie_Bps": 22.7e9,
    "nic_Bps": 8.27e9,
    "latency_intra_s": 1e-05,
    "latency_inter_s": 3e-05,
}


def write(folder: Path, content: Any) -> Path:
    path = folder / "file.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def reference() -> dict[str, Any]:
    if not REFERENCE.exists():
        pytest.skip(f"no reference scenarios at {REFERENCE}")
    found: dict[str, Any] = json.loads(REFERENCE.read_text())
    return found


def expected(content: dict[str, Any]) -> dict[str, tuple[float, dict[str, float]]]:
    """Makespan and known finish times of every scenario."""
    small = {s["name"]: (s["makespan_s"], {f["id"]: f["finish_s"] for f in s["flows"]}) for s in content["scenarios"]}
    return small | {s["name"]: (s["makespan_s"], s["sample_finish_s"]) for s in content["big_scenarios"]}


@pytest.mark.parametrize(("flags", "makespan", "each"), [([], 1e-9, 1e-9), (["--coalesce", str(WINDOW)], 0.005, 0.03)])
def test_reference_scenarios(flags: list[str], makespan: float, each: float, tmp_path: Path) -> None:
    """Every transfer of the small ones and the samples of the big ones, exact and coalesced."""
    known, out = expected(reference()), tmp_path / "out.json"
    assert main(["flows", str(REFERENCE), "--json", str(out), *flags]) == 0
    found = json.loads(out.read_text())["scenarios"]
    assert [scenario["name"] for scenario in found] == list(known)
    for scenario in found:
        ends, finish = {f["id"]: f["finish_s"] for f in scenario["flows"]}, known[scenario["name"]][1]
        assert scenario["makespan_s"] == pytest.approx(known[scenario["name"]][0], rel=makespan), scenario["name"]
        assert {name: ends[name] for name in finish} == pytest.approx(finish, rel=each), scenario["name"]
        assert scenario["makespan_s"] == max(ends.values()) >= scenario["bound_s"] * (1 - makespan)
        assert (scenario["window_s"] == 0) or flags


def test_quantiles_of_the_big_ones() -> None:
    content = reference()
    outcomes = {outcome.name: outcome for outcome in run_file(REFERENCE)}
    for scenario in content["big_scenarios"]:
        finish = outcomes[scenario["name"]].schedule.finish_s
        assert len(finish) == scenario["n_flows"]
        assert finish.mean() == pytest.approx(scenario["mean_finish_s"], rel=1e-9)
        for share, seconds in scenario["quantiles_s"].items():
            assert np.quantile(finish, float(share)) == pytest.approx(seconds, rel=1e-6)


def test_times_and_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Defaults: start 0, no latency, no predecessors. With --json -, stdout has only JSON."""
    path = write(tmp_path, {"scenarios": [SMALL], "big_scenarios": [BIG]})
    assert main(["flows", str(path), "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)["scenarios"]
    assert [f["finish_s"] for f in found[0]["flows"]] == pytest.approx([1.7, 2.7, 0.25])
    assert found[0]["makespan_s"] == pytest.approx(2.7) and found[0]["bound_s"] == pytest.approx(1.1)
    assert [f["id"] for f in found[1]["flows"]][:4] == ["0->1", "0->2", "0->3", "1->0"]
    assert main(["flows", str(path), "--exact"]) == 0
    shown = capsys.readouterr().out
    assert "two" in shown and "2.70000" in shown and "and 4 more" in shown and "every time is exact" in shown


@pytest.mark.parametrize(("start", "beside"), [(0.0, True), (1e3, True), (1e5, True), (1e6, False), (1e7, False)])
def test_short_transfers_late_in_a_long_simulation_take_as_long(start: float, beside: bool, tmp_path: Path) -> None:
    """Microseconds after months: as far as numbers of 64 bits tell times apart, 2 ns at 1e7 s.

    `beside` another one that has been in flight all along, of whose time 1e-12 counts as no time.
    """
    flows = [{"id": "long", "route": ["slow"], "bytes": 1e7, "start_s": 0.0}] * beside
    lengths = {"one": 500, "two": 1000, "three": 3000}
    flows += [{"id": name, "route": ["fast"], "bytes": size, "start_s": start} for name, size in lengths.items()]
    links = {"slow": {"bandwidth_Bps": 1.0}, "fast": {"bandwidth_Bps": 1e9}}
    (outcome,) = run_file(write(tmp_path, {"scenarios": [{"name": "late", "links": links, "flows": flows}]}))
    ends = np.asarray(outcome.schedule.finish_s)
    assert not beside or ends[0] == pytest.approx(1e7)
    assert ends[-3:] - start == pytest.approx([1.5e-6, 2.5e-6, 4.5e-6], rel=1e-9, abs=4 * np.spacing(start))


@pytest.mark.parametrize("start", [0.0, 1e3, 1e6, 1e7])
def test_short_transfers_of_a_long_run_take_as_long(start: float) -> None:
    """The same on the clock of a simulation, which every busy period of the network begins anew."""
    env, ends = simpy.Environment(start), dict[int, float]()
    network = FluidNetwork(env, np.asarray([1e9]))

    def transfer(nbytes: int) -> Iterator[simpy.Event]:
        yield env.timeout(start * 1e-3)
        group, done = network.group(1)
        network.add(np.zeros((1, 1), np.int32), np.asarray([nbytes]), np.zeros(1), np.asarray([[group, -1]]))
        begun = env.now
        yield done
        ends[nbytes] = env.now - begun

    for nbytes in (500, 1000, 3000):
        env.process(transfer(nbytes))
    env.run()
    wanted = {500: 1.5e-6, 1000: 2.5e-6, 3000: 4.5e-6}
    assert ends == pytest.approx(wanted, rel=1e-9, abs=4 * np.spacing(1.001 * start))


def change(content: Any, path: list[Any], value: Any) -> Any:
    """A copy with one member replaced, or removed for None."""
    copy = json.loads(json.dumps(content))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return copy


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["flows", 0, "route", 1], "dwn", r"scenarios\[0\].flows\[0\].route: 'dwn'; did you mean 'down'"),
        (["flows", 1, "after", 0], "z", r"unknown flow in .*flows\[1\].after: 'z'"),
        (["flows", 0, "bytes"], -1, r"flows\[0\].bytes: must be a number of at least 0"),
        (["flows", 0, "bytes"], None, r"flows\[0\]: bytes is missing"),
        (["flows", 0, "bytes"], "7", "must be a number"),
        (["flows", 0, "latency_s"], float("nan"), "latency_s: must be a number"),
        (["flows", 1, "id"], "a", "two flows have the same id"),
        (["flows", 0, "after"], ["b"], r"flow 0 follows itself through other flows \(the first is flow 0\)"),
        (["flows", 0, "route"], "up", "route: must be a list"),
        (["flows", 0], 3, r"flows\[0\]: must be an object"),
        (["links", "up", "bandwidth_Bps"], 0, "links.up.bandwidth_Bps: must be a number more than 0"),
        (["links"], None, "links is missing"),
        (["flows", 0, "latency"], 0.1, r"unknown key in .*flows\[0\]: 'latency'; did you mean 'latency_s'"),
        (["flows", 0, "start"], 1.0, r"flows\[0\]: 'start'; did you mean 'start_s'"),
        (["links", "up", "bandwidth"], 1.0, "links.up: 'bandwidth'; did you mean 'bandwidth_Bps'"),
        (["flow"], [], r"scenarios\[0\]: 'flow'; did you mean 'flows'"),
        (["name"], 5, "name: must be a string"),
    ],
)
def test_bad_scenarios_give_one_line(
    path: list[Any], value: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, {"scenarios": [change(SMALL, path, value)]})
    with pytest.raises(InputError, match=message) as error:
        list(run_file(file))
    assert "file.json" in str(error.value)
    assert main(["flows", str(file)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["nodes"], 0, "nodes: must be a whole number of at least 1"),
        (["nodes"], 10**6, "2000000 GPUs; at most"),
        (["nic_Bps"], None, "nic_Bps is missing"),
        (["latency_inter"], 1e-6, "'latency_inter'; did you mean 'latency_inter_s'"),
        (["size_formula"], "20000", "does not begin with"),
        (["size_formula"], "bytes = __import__('os')", "cannot read .__import__"),
        (["size_formula"], "bytes = (s + 1", "a bracket is not closed"),
        (["size_formula"], "bytes = s d", "unexpected 'd' after the formula"),
        (["size_formula"], "bytes = 2 *", "'the end' where a number"),
        (["size_formula"], "bytes = s - d", "gives a size that is below 0"),
        (["size_formula"], "bytes = s mod 0", "not a number"),
        (["size_formula"], "bytes = " + "(" * 60 + "s" + ")" * 60, "where a number"),
    ],
)
def test_bad_big_scenarios_give_one_line(path: list[Any], value: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as error:
        list(run_file(write(tmp_path, {"big_scenarios": [change(BIG, path, value)]})))
    assert "\n" not in str(error.value) and "file.json" in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ([], "must be an object"),
        ({}, "neither scenarios nor big_scenarios; docs/network.md has an example"),
        ({"scenarios": {}}, "scenarios: must be a list"),
        ({"scenarios": [], "big_scenario": []}, "'big_scenario'; did you mean 'big_scenarios'"),
        ({"format": "other/2", "scenarios": []}, "format 'other/2' is not 'flow-reference/1'"),
    ],
)
def test_bad_files_give_one_line(content: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as error:
        list(run_file(write(tmp_path, content)))
    assert "\n" not in str(error.value)


def test_unreadable_file_and_bad_window(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flows", str(tmp_path / "none.json")]) == 2
    assert "cannot read" in capsys.readouterr().err
    assert main(["flows", str(write(tmp_path, {"scenarios": []})), "--coalesce", "0.5"]) == 2
    assert "--coalesce: must be" in capsys.readouterr().err


TERM = st.one_of(st.integers(0, 99).map(str), st.sampled_from(["s", "d"]))
FORMULA = st.recursive(
    TERM, lambda inner: st.tuples(inner, st.sampled_from(["+", "*", "%"]), inner).map(lambda t: f"({' '.join(t)})")
)


@given(FORMULA)
def test_formulas_mean_what_they_say(text: str) -> None:
    """Compared with the evaluation of the bracketed formula, with numbers in place of s and d."""
    src, dst = np.asarray([3]), np.asarray([8])
    shown = f"bytes(s->d) = {text.replace('%', 'mod')} for every ordered pair s != d"
    value = by_brackets(text, {"s": 3.0, "d": 8.0})
    if value is None or value > 1e300:
        with pytest.raises(InputError, match="not a number"):
            sizes(shown, src, dst, "here")
    else:
        assert sizes(shown, src, dst, "here") == pytest.approx([value])


def by_brackets(text: str, names: dict[str, float]) -> float | None:
    """The value of a fully bracketed formula; None if it is undefined."""
    if not text.startswith("("):
        return names[text] if text in names else float(text)
    deep, inner = 0, text[1:-1]
    for at, character in enumerate(inner):
        deep += {"(": 1, ")": -1}.get(character, 0)
        if deep == 0 and character in "+*%":
            left, right = by_brackets(inner[: at - 1], names), by_brackets(inner[at + 2 :], names)
            if left is None or right is None or (character == "%" and right == 0):
                return None
            return left + right if character == "+" else left * right if character == "*" else left % right
    raise AssertionError(text)


def test_precedence_and_spelling() -> None:
    src, dst = np.asarray([5]), np.asarray([2])
    for text, value in (("2 + 3*s mod 4", 2 + 15 % 4), ("10 - 3 - s + d*1.5", 5.0), ("(s+d)%4*2", 6), ("64000", 64000)):
        assert sizes(f"bytes = {text}", src, dst, "here").tolist() == [value]


def test_a_scenario_without_transfers_takes_no_time() -> None:
    assert route_table([]).shape == (0, 0)
    assert len(run_flows(np.array([1e9]), route_table([]), np.zeros(0))) == 0


def test_the_example_of_the_page_takes_as_long_as_it_says(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "network.md").read_text()
    printed = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(printed) == 1
    (found,) = run_file(write(tmp_path, printed[0]))
    assert dict(zip(found.ids, found.schedule.finish_s.tolist(), strict=True)) == pytest.approx(
        {"a": 2.0, "b": 2.5, "c": 3.1}
    )
