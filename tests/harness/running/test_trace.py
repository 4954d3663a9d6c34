"""Traces: validity for Perfetto, agreement with the run, and figures."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

from harness import cli
from harness.config import RunConfig
from harness.rank import COMPONENTS
from harness.running import run
from harness.running.results import Result
from harness.running.trace import STREAMS, Message, Span, Steps, Trace, lanes_of
from reports.draw.heatmap import binned, completion, link_heatmap
from reports.draw.timeline import after_first_epoch, timeline
from sims.cluster import load_cluster, place
from sims.replay import Replay, record, traced

CLUSTER = "sylvie-2x8:hosts.ranks_per_host=2"
CONFIG = RunConfig.of(
    dataset="synthetic:nodes=600,degree=12,classes=4,features=16", layers=3, hidden=32, parts=4, mode="sim",
    method="sylvie-a", cluster=CLUSTER, epochs=3, eval_every=0,
)  # fmt: skip


@pytest.fixture(scope="module")
def trace() -> Trace:
    return traced(Replay(record(CONFIG)), load_cluster(CLUSTER))


def check(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Check properties that viewers need; returns the events by phase."""
    phases: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        phases[event["ph"]].append(event)
        assert event["name"] and event["pid"] >= 0 and event["tid"] >= 0
    threads: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in phases["X"]:
        assert event["ts"] >= 0 and event["dur"] >= 0 and event["args"]["bytes"] >= 0
        threads[event["pid"], event["tid"]].append(event)
    named = {(e["pid"], e["tid"]) for e in phases["M"] if e["name"] == "thread_name"}
    assert set(threads) <= named
    for spans in threads.values():
        nested(spans)
    begun = {event["id"]: event["ts"] for event in phases["s"]}
    assert set(begun) == {event["id"] for event in phases["f"]} and len(begun) == len(phases["s"])
    assert all(event["ts"] >= begun[event["id"]] for event in phases["f"])
    return phases


def nested(spans: list[dict[str, Any]]) -> None:
    """Spans of one thread are disjoint or nested."""
    open_until: list[float] = []
    for span in sorted(spans, key=lambda s: (s["ts"], -s["dur"])):
        end = round(span["ts"] + span["dur"], 3)
        while open_until and open_until[-1] <= span["ts"]:
            open_until.pop()
        assert not open_until or end <= open_until[-1], "spans of one thread overlap"
        open_until.append(end)


times = st.floats(0, 10).map(lambda t: round(t, 4))


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(STREAMS), times, times), max_size=40))
def test_any_spans_nest(found: list[tuple[int, Any, float, float]]) -> None:
    spans = [Span(r, stream, "halo", "x", min(a, b), max(a, b), 1, {"epoch": 0}) for r, stream, a, b in found]
    trace = Trace([0, 0, 1], spans)
    phases = check(list(trace.events()))
    assert len(phases["X"]) == len(spans)
    assert sum(e["dur"] for e in phases["X"]) == pytest.approx(1e6 * sum(s.end_s - s.start_s for s in spans), abs=0.1)
    assert {s for s, _ in lanes_of(spans)} == set(spans)


def test_a_traced_run_is_valid_and_complete(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    trace.facts["title"] = "so"
    trace.save(path)
    content = json.loads(path.read_bytes())
    assert content["otherData"]["title"] == "so"
    phases = check(content["traceEvents"])
    assert {e["args"]["name"] for e in phases["M"] if e["name"] == "process_name"} == {"host 0", "host 1"}
    names = {e["args"]["name"] for e in phases["M"] if e["name"] == "thread_name"}
    assert {"rank 3 compute", "rank 0 communication", "rank 0 communication 2", "rank 1 copy"} & names >= {
        "rank 3 compute", "rank 0 communication", "rank 0 communication 2"
    }  # fmt: skip
    assert {e["cat"] for e in phases["X"]} <= set(STREAMS)
    assert len({(e["name"], e["ts"]) for e in phases["C"]}) == len(phases["C"]), "one value of a counter at a time"
    assert all(0 <= e["args"]["%"] <= 100 for e in phases["C"]) and len(phases["s"]) == len(trace.messages) > 100
    labels = {e["name"]: e["args"] for e in phases["X"]}
    assert labels["h1"]["direction"] == "forward" and labels["h1"]["layer"] == 1 and labels["g1"]["layer"] == 1
    assert {span.details["epoch"] for span in trace.spans} - {-1} == {0, 1, 2}  # -1: before the first


def test_spans_hold_the_compute_and_the_bytes_of_the_run(trace: Trace) -> None:
    full = run(CONFIG)
    for component in ("compute", "codec"):
        spans = [s for s in trace.spans if s.stream == "compute" and s.component == component]
        booked = sum(epoch["seconds"][component] for epoch in full.epochs) * CONFIG.cut.parts
        passed = sum(span.end_s - span.start_s for span in spans)
        # A little compute is charged between epochs: it passes, and belongs to none of them.
        assert booked * (1 - 1e-9) <= passed <= booked * (1.05 if component == "compute" else 1 + 1e-9)
    for epoch, found in enumerate(full.epochs):
        sent = sum(s.nbytes for s in trace.spans if s.stream == "communication" and s.details["epoch"] == epoch)
        assert sent == sum(found["bytes"]["tiers"].values())
    assert trace.end_s == pytest.approx(Replay(record(CONFIG)).time(load_cluster(CLUSTER)).simulation.makespan_s)


def test_conversions_beside_the_compute_are_spans_of_their_own(trace: Trace) -> None:
    """Of every exchange that is late, before and after it."""
    spans = [s for s in trace.spans if s.stream == "background"]
    late = [s for s in trace.spans if s.stream == "communication" and s.name in ("h1", "h2", "g1", "g2")]
    assert len(spans) == 2 * len(late) > 0
    assert all(s.component == "codec" and s.details["direction"] in ("forward", "backward") for s in spans)


def test_transfers_and_links_hold_the_bytes_of_the_run(trace: Trace) -> None:
    simulation = Replay(record(CONFIG)).time(load_cluster(CLUSTER)).simulation
    assert sum(message.nbytes for message in trace.messages) == sum(simulation.tiers.values())
    assert all(0 <= message.start_s < message.end_s <= trace.end_s + 1e-12 for message in trace.messages)
    capacity = dict(zip(place(load_cluster(CLUSTER), 4).names, place(load_cluster(CLUSTER), 4).capacity, strict=True))
    for link, steps in trace.links.items():
        assert all(0 <= value <= 1 for value in steps.values) and steps.values[-1] == 0
        area = float(np.dot(np.diff(steps.times), steps.values[:-1])) * capacity[link]
        # Bytes are spread evenly over each transfer, so that a full link may seem fuller, and is capped.
        assert 0.9 * simulation.link_bytes[link] < area < simulation.link_bytes[link] * (1 + 1e-6)


def test_copies_on_a_bus_of_their_own_are_seen_too() -> None:
    """With staging through host memory, copies on a device's bus are not in the network, but in the trace."""
    cluster = load_cluster("sylvie-2x8")
    replay = Replay(record(CONFIG.changed(cluster="sylvie-2x8", epochs=1, eval_every=-1)))
    found, simulation, placement = traced(replay, cluster), replay.time(cluster).simulation, place(cluster, 4)
    capacity = dict(zip(placement.names, placement.capacity, strict=True))
    for link in ("host0.device0.bus.up", "host1.device1.bus.down"):
        steps = found.links[link]
        area = float(np.dot(np.diff(steps.times), steps.values[:-1])) * capacity[link]
        assert area == pytest.approx(simulation.link_bytes[link]) and area > 0


def test_equal_configs_have_equal_traces(trace: Trace) -> None:
    again = traced(Replay(record(CONFIG)), load_cluster(CLUSTER))
    assert [asdict(span) for span in again.spans] == [asdict(span) for span in trace.spans]
    assert again.messages == trace.messages and again.links == trace.links
    shorter = traced(Replay(record(CONFIG.changed(epochs=2, eval_every=-1))), load_cluster(CLUSTER))
    first = [span for span in trace.spans if span.details["epoch"] == 0]
    assert [span for span in shorter.spans if span.details["epoch"] == 0] == first


def test_means_of_step_functions() -> None:
    steps = Steps([1.0, 2.0, 3.0], [0.5, 1.0, 0.0])
    assert binned(steps, np.asarray([0.0, 1.0, 2.0, 4.0])).tolist() == [0.0, 0.5, 0.5]
    assert binned(steps, np.asarray([1.5, 2.5])).tolist() == [0.75]


@given(st.lists(st.tuples(times, st.floats(0, 1)), min_size=1, max_size=20, unique_by=lambda pair: pair[0]))
def test_bins_keep_the_area(changes: list[tuple[float, float]]) -> None:
    ordered = sorted(changes)
    steps = Steps([time for time, _ in ordered] + [11.0], [value for _, value in ordered] + [0.0])
    area = float(np.dot(np.diff(steps.times), steps.values[:-1]))
    edges = np.linspace(0, 12, 38)
    assert float(binned(steps, edges).sum() * (edges[1] - edges[0])) == pytest.approx(area, abs=1e-9)


def test_figures(trace: Trace, tmp_path: Path) -> None:
    window = after_first_epoch(trace)
    assert 0 < window[0] < window[1] == trace.end_s
    for path in (
        timeline(trace, tmp_path / "timeline.png", window),
        link_heatmap(trace, tmp_path / "links.png"),
        completion(trace, tmp_path / "transfers.png"),
    ):
        assert path is not None and imread(path).std() > 0.02
    quiet = Trace([0], [Span(0, "compute", "compute", "compute", 0.0, 1.0)])
    assert link_heatmap(quiet, tmp_path / "none.png") is None and completion(quiet, tmp_path / "none.png") is None
    assert timeline(quiet, tmp_path / "one.png").exists() and not (tmp_path / "none.png").exists()


def test_many_ranks_are_folded(tmp_path: Path) -> None:
    spans = [
        Span(rank, "compute", name, name, at, at + 1.0) for rank in range(40) for at, name in enumerate(COMPONENTS)
    ]
    many = Trace([0] * 40, spans, [Message(0, 1, 0.0, 1.0, 10**size) for size in range(1, 6)])
    assert timeline(many, tmp_path / "many.png").exists() and completion(many, tmp_path / "sizes.png") is not None
    assert imread(tmp_path / "many.png").shape[0] < 3000


@pytest.fixture
def haloscope(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)

    def command(*argv: str) -> tuple[int, str, str]:
        capsys.readouterr()
        return cli.main(list(argv)), *capsys.readouterr()

    return command


def result_of(haloscope: Callable[..., Any], *flags: str) -> str:
    data = "synthetic:nodes=200,degree=6,classes=3,features=8"
    assert haloscope("run", "--dataset", data, "--epochs", "4", "--quiet", "--out", "runs", *flags)[0] == 0
    return str(next(Path("runs").glob("*.json")))


def test_the_command_on_a_simulated_run(haloscope: Callable[..., Any]) -> None:
    path = result_of(haloscope, "--mode", "sim", "--cluster", "ethernet-1g")
    code, out, err = haloscope("trace", path, "--out", "t.json", "--epochs", "2", "--figures")
    assert code == 0 and "simulated on ethernet-1g" in out and "tracing vanilla" in err
    content = json.loads(Path("t.json").read_text())
    check(content["traceEvents"])
    assert content["otherData"]["run_id"] == Path(path).stem
    assert {p.name for p in Path().glob("t-*.png")} == {"t-timeline.png", "t-links.png", "t-transfers.png"}
    before = Path("t.json").read_bytes()
    assert haloscope("trace", path, "--out", "t.json", "--epochs", "2", "--quiet") == (0, "", "")
    assert Path("t.json").read_bytes() == before


@pytest.mark.processes
def test_the_command_on_a_real_run(haloscope: Callable[..., Any]) -> None:
    config = CONFIG.changed(mode="real", parts=2, threads=1)
    path = Result(config, "done", [], {"name": "made up"}).save(Path("runs"))  # tracing measures it anew
    code, out, _ = haloscope("trace", str(path), "--out", "t.json", "--epochs", "3", "--figures")
    assert code == 0 and "measured" in out
    phases = check(json.loads(Path("t.json").read_text())["traceEvents"])
    names = {event["name"] for event in phases["X"]}
    assert {"compute", "h1", "wait h1", "gradients"} <= names
    beside = [event for event in phases["X"] if event["cat"] == "background"]
    assert {event["name"] for event in beside} >= {"h1", "g1"}
    threads = {event["args"]["name"] for event in phases["M"] if event["name"] == "thread_name"}
    assert {"rank 0 compute", "rank 1 compute", "rank 0 communication", "rank 1 communication"} <= threads
    assert {event["args"]["epoch"] for event in phases["X"]} == {0, 1, 2}
    assert min(event["ts"] for event in phases["X"]) == 0
    assert Path("t-timeline.png").exists() and not Path("t-links.png").exists()


def test_what_cannot_be_traced(haloscope: Callable[..., Any], tmp_path: Path) -> None:
    path = result_of(haloscope)
    assert "a loopback run has no clock" in haloscope("trace", path)[2]
    assert "cannot read result" in haloscope("trace", "nowhere.json")[2]
    Path("odd.json").write_text("{}")
    code, _, err = haloscope("trace", "odd.json")
    assert code == 2 and "is not a haloscope result" in err
