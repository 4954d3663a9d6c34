"""The live what-if page: its numbers are those of `what-if`, its sliders work in a browser, its server gives away
nothing."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from starlette.testclient import TestClient

import harness
from harness import cli
from harness.commands.arguments import parse_arguments
from harness.commands.live.content import Opened, opened, page_content
from harness.commands.serve import application
from harness.errors import InputError
from reports.live import live_page
from tests.support.browser import Tab, browser, open_page

FLAGS = ["--dataset", "synthetic:nodes=400,degree=6,classes=4,features=8", "--cluster", "ethernet-1g", "--parts", "2"]
METHODS = ["--methods", "vanilla,sylvie-s", "--bits", "1,8", "--ranks", "2,3"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a page, and the table of `what-if` that was written with it."""
    folder = tmp_path_factory.mktemp("live")
    more = ["--bandwidth", "nic=100Mb/s..10Gb/s", "--points", "3", "--quiet", "--out", str(folder)]
    said: list[Any] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("harness.commands.what_if.deliver", lambda content, tables, *_: said.extend(tables))
        assert cli.main(["what-if", *METHODS, *FLAGS, *more, "--html", str(folder / "live.html")]) == 0
    assert str(said[-1]).startswith("written: ") and str(said[-1]).endswith(str(folder / "live.html"))
    return folder


@pytest.fixture(scope="module")
def made(folder: Path) -> Opened:
    return opened(parse_arguments(["serve", *METHODS, *FLAGS, "--quiet", "--out", str(folder)]))


@pytest.fixture(scope="module")
def client(made: Opened) -> Iterator[TestClient]:
    with TestClient(application(made, ["localhost"]), base_url="http://localhost") as client:
        yield client


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])


def table(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "what-if.csv")


def test_every_point_of_the_file_is_what_the_command_prints(folder: Path) -> None:
    data = data_of((folder / "live.html").read_text())
    bandwidth, speed = data["axes"]
    assert [axis["key"] for axis in (bandwidth, speed)] == ["nic.bandwidth", "speed"] and data["first_ranks"] == 2
    assert len(bandwidth["values"]) == 4 and bandwidth["nominal"] == 125e6  # the cluster's own beside three
    assert len(data["grid"]) == 2 * 4 * len(speed["values"])
    for row in table(folder).itertuples():
        place, own = bandwidth["values"].index(row.value), speed["values"].index(1.0)
        (found,) = (each for each in data["grid"][f"2||{place}|{own}"] if each["method"] == row.method)
        assert found["seconds"]["epoch"] == row.epoch_seconds and found["bytes"] == row.bytes_per_epoch


def test_a_page_loads_nothing_and_closes_no_script_early(folder: Path) -> None:
    text = (folder / "live.html").read_text()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy and "default-src 'none'" in unescape(policy[1]) and "http" not in policy[1]
    assert text.count("</script>") == 3 and not re.search(r"<(script|link|img)[^>]+(src|href)=\"?http", text)


def test_the_server_computes_what_the_command_prints(client: TestClient, folder: Path) -> None:
    for row in table(folder).itertuples():
        state = {"ranks": 2, "links": {"nic": {"bandwidth": row.value}}}
        reply = client.get("/point", params={"state": json.dumps(state)})
        (found,) = (each for each in reply.json() if each["method"] == row.method)
        assert found["seconds"]["epoch"] == row.epoch_seconds


def test_faster_devices_and_other_ranks_move_what_they_should(client: TestClient) -> None:
    def point(**state: Any) -> dict[str, Any]:
        found = client.get("/point", params={"state": json.dumps(state)}).json()
        return {row["method"]: row["seconds"] for row in found}

    own, fast = point(ranks=2), point(ranks=2, speed=2.0)
    for method, seconds in own.items():
        assert fast[method]["compute"] == pytest.approx(seconds["compute"] / 2)
    assert fast["vanilla"]["epoch"] < own["vanilla"]["epoch"]
    assert point(ranks=3)["vanilla"]["compute"] < own["vanilla"]["compute"]
    slow = point(ranks=2, links={"nic": {"latency": 1e-2}})
    assert slow["vanilla"]["halo"] > own["vanilla"]["halo"] + 1e-2


def test_a_curve_goes_through_the_point_on_the_screen(client: TestClient) -> None:
    state = json.dumps({"ranks": 2, "links": {"nic": {"bandwidth": 3.3e8}}})
    curve = client.get("/curve", params={"state": state, "axis": "nic.bandwidth"}).json()
    xs = [x for x, _ in curve]
    here = client.get("/point", params={"state": state}).json()
    assert xs == sorted(xs) and curve[xs.index(3.3e8)][1] == here
    speeds = [x for x, _ in client.get("/curve", params={"state": state, "axis": "speed"}).json()]
    assert 1.0 in speeds and min(speeds) == pytest.approx(0.1)


def test_intervals_are_those_of_the_same_draws(client: TestClient, folder: Path, made: Opened) -> None:
    """The server's at any state, the file's at three values; a link that the state sets is exact."""
    data = data_of((folder / "live.html").read_text())
    assert data["drawn"]["axis"] == "nic.bandwidth" and len(data["drawn"]["at"]) == 3
    for at, value in enumerate(data["drawn"]["at"]):
        state = {"ranks": 2, "links": {"nic": {"bandwidth": value}}}
        found = client.get("/ratios", params={"state": json.dumps(state)}).json()
        assert found == {method: ratios[at] for method, ratios in data["drawn"]["ratios"]["2|"].items()}
        assert set(found) == set(made.explorer.methods)
        for ratios in found.values():
            assert len(ratios) == made.draws.count > 8 and min(ratios) < 1 < max(ratios) < 3 * min(ratios)
    free = client.get("/ratios", params={"state": '{"ranks": 2}'}).json()
    fixed = client.get("/ratios", params={"state": '{"ranks": 2, "links": {"nic": {"bandwidth": 125e6}}}'}).json()
    assert free != fixed


def test_a_timeline_holds_the_last_epoch(client: TestClient) -> None:
    found = client.get("/timeline", params={"state": '{"ranks": 3}', "method": "vanilla"}).json()
    assert {span[0] for span in found["spans"]} == {0, 1, 2} and len(found["hosts"]) == 3
    assert all(0 <= start < end <= found["seconds"] * (1 + 1e-9) for *_, start, end, _ in found["spans"])
    assert all(0 <= share <= 1 for share in found["load"].values()) and max(found["load"].values()) > 0.05


@pytest.mark.parametrize(
    ("path", "given", "says"),
    [
        ("point", {"state": "[]"}, "must be a JSON object"),
        ("point", {"state": "{"}, "must be a JSON object"),
        ("point", {"state": "[" * 5000}, "must be a JSON object"),
        ("point", {"state": '{"ranks": 5}'}, "were not recorded; these were: 2, 3"),
        ("point", {"state": '{"ranks": true}'}, "were not recorded"),
        ("point", {"state": '{"rank": 2}'}, "did you mean 'ranks'"),
        ("point", {"state": '{"speed": 0}'}, "speed must be a number from 0.05 to 20"),
        ("point", {"state": '{"speed": NaN}'}, "speed must be a number"),
        ("point", {"state": '{"variant": "on mars"}'}, "no variant 'on mars'"),
        ("point", {"state": '{"variant": []}'}, "no variant"),
        ("point", {"state": '{"links": {"nick": {}}}'}, "did you mean 'nic'"),
        ("point", {"state": '{"links": {"nic": {"colour": 1}}}'}, "takes bandwidth, in B/s"),
        ("point", {"state": '{"links": {"nic": {"bandwidth": "fast"}}}'}, "must be a number"),
        ("point", {"state": '{"links": 3}'}, "links must be a table"),
        ("curve", {"axis": "nic.colour"}, "unknown axis"),
        ("curve", {"axis": "nic.latency", "state": '{"links": {"nic": 3}}'}, "takes bandwidth, in B/s"),
        ("timeline", {"method": "nothing"}, "unknown recorded method"),
    ],
)
def test_a_bad_request_is_one_line(client: TestClient, path: str, given: dict[str, str], says: str) -> None:
    reply = client.get(f"/{path}", params=given)
    assert reply.status_code == 400 and says in reply.json()["error"] and "\n" not in reply.json()["error"]


def test_the_server_replies_to_its_own_name_and_only_reads(client: TestClient) -> None:
    assert client.get("/").status_code == 200
    assert client.get("/", headers={"host": "evil.example"}).status_code == 400
    assert client.post("/point").status_code == 405 and client.get("/../etc/passwd").status_code == 404
    assert client.get("/").headers["x-content-type-options"] == "nosniff"


def test_bad_flags_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    serve = ["serve", *METHODS[:2], *FLAGS, "--quiet", "--out", str(tmp_path)]
    for flags, says in (
        (["--port", "70000"], "--port: must be from 0 to 65,535"),
        (["--host", "no.such.host.invalid"], "--host no.such.host.invalid"),
        (["--ranks", "2,x"], "numbers of ranks"),
        (["--ranks", "2,\u00b2"], "numbers of ranks"),
        (["--results", str(tmp_path)], "no result of these methods"),
    ):
        assert cli.main([*serve, "--port", "0", *flags]) == 2
        assert says in capsys.readouterr().err


def test_damaged_results_are_named_on_the_page(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["serve", *METHODS, *FLAGS, "--quiet", "--out", str(folder), "--results", str(tmp_path)]
    (tmp_path / "broken.json").write_text('{"schema": 1, "config"')
    assert cli.main([*words, "--port", "0"]) == 2  # nothing is left to draw
    assert "broken.json" in capsys.readouterr().err
    run = ["run", *FLAGS, "--method", "vanilla", "--mode", "sim", "--epochs", "2", "--replays", "0", "--quiet"]
    assert cli.main([*run, "--out", str(tmp_path)]) == 0
    made = opened(parse_arguments(words))
    assert [one["method"] for one in made.scores] == ["vanilla"]
    assert [note for note in made.notes if "broken.json" in note]


def test_scores_are_of_the_same_graph_model_and_number_of_ranks(folder: Path, tmp_path: Path) -> None:
    """The others are named with what differs; of several that fit the page has the longest, and says so."""

    def train(method: str, **settings: Any) -> str:
        given = {"dataset": FLAGS[1], "parts": 2, "epochs": 2, "eval_every": 1, **settings}
        return harness.run(given, method=method, out=tmp_path, quiet=True).path.name

    longest = train("vanilla", epochs=3, seed=1)
    train("vanilla")
    unlike = {
        "hidden 32 (here 16)": train("vanilla", hidden=32),
        "parts 4 (here 2 or 3)": train("vanilla", parts=4),
        "graph synthetic:nodes=400,degree=6,classes=4,features=8,seed=5": train(
            "vanilla", dataset=f"{FLAGS[1]},seed=5"
        ),
    }
    train("pipegcn", hidden=32)  # no method of the page
    words = ["serve", *METHODS, *FLAGS, "--quiet", "--out", str(folder), "--results", str(tmp_path)]
    made = opened(parse_arguments(words))
    (line,) = made.scores
    assert (line["method"], line["ranks"], list(line["epochs"])) == ("vanilla", 2, [1, 2, 3])
    notes = [note for note in made.notes if note.startswith("left out")]
    assert len(notes) == 3 and not any("pipegcn" in note for note in notes)
    for why, name in unlike.items():
        assert [note for note in notes if f"vanilla: {why}" in note and f"({name})" in note], (why, notes)
    (several,) = (note for note in made.notes if "results of vanilla" in note)
    assert (
        several.startswith("2 results of vanilla on 2 ranks fit") and longest[:12] in several and "epochs 3" in several
    )
    train("vanilla", parts=3)
    found = opened(parse_arguments(words)).scores
    assert [each["ranks"] for each in found] == [2, 3], "a line for every number of ranks"


def test_a_folder_of_other_graphs_alone_is_refused(folder: Path, tmp_path: Path) -> None:
    harness.run(dataset=f"{FLAGS[1]},seed=5", method="vanilla", epochs=1, out=tmp_path, quiet=True)
    words = ["serve", *METHODS, *FLAGS, "--quiet", "--out", str(folder), "--results", str(tmp_path)]
    with pytest.raises(InputError, match=r"is of this graph, model and number of ranks; left out .*seed=5"):
        opened(parse_arguments(words))


def test_scores_of_several_labels_are_micro_f1(tmp_path: Path) -> None:
    graph = "synthetic:nodes=200,degree=6,classes=4,features=8,multilabel=1"
    flags = ["--dataset", graph, "--cluster", "ethernet-1g", "--parts", "2", "--replays", "0", "--quiet"]
    made = opened(parse_arguments(["serve", "--methods", "vanilla", *flags, "--out", str(tmp_path)]))
    assert made.score == "micro-F1" and page_content(made)["score"] == "micro-F1"
    assert "test ${DATA.score} (%)" in live_page(page_content(made), "")


def test_a_missing_library_is_named(made: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "plotly.offline", None)
    with pytest.raises(InputError, match=r"pip install 'haloscope\[serve\]'"):
        application(made, ["localhost"])


MOVED = """<script>{
const slider = document.getElementById("nic.bandwidth");
const wait = setInterval(() => {
  if (!document.body.dataset.drawn) return;
  clearInterval(wait);
  slider.value = 0;
  slider.dispatchEvent(new Event("input"));
}, 20);
}</script>"""


def test_moving_a_slider_shows_the_numbers_of_the_command(folder: Path, tmp_path: Path) -> None:
    chromium = browser()
    changed = tmp_path / "moved.html"
    shutil.copy(folder / "live.html", changed)
    with changed.open("a") as file:
        file.write(MOVED)
    shown, errors = open_page(chromium, changed.as_uri() + "#m.sylvie-s=sylvie-s%3Abits%3D8&axis=speed", tmp_path)
    assert not errors
    lines = dict(re.findall(r'<tr data-method="([^"]+)" data-epoch="([^"]+)"', shown))
    frame = table(folder)
    lowest = frame[frame["value"] == frame["value"].min()].set_index("method")["epoch_seconds"]
    assert set(lines) == {"vanilla", "sylvie-s:bits=8"}
    for method, seconds in lines.items():
        assert float(seconds) == lowest[method]
    assert "100 Mb/s" in shown and ("is the fastest" in shown or "cannot be told apart" in shown)
    spans = dict(re.findall(r'<tr data-method="([^"]+)" data-epoch="[^"]+" data-interval="([^"]+)"', shown))
    for row in frame[frame["value"] == frame["value"].min()].itertuples():
        if row.method in lines:
            low, high = map(float, spans[row.method].split())
            assert (low, high) == pytest.approx((row.epoch_low_seconds, row.epoch_high_seconds), rel=1e-3)


OVERLAPS = """[...document.querySelectorAll(".chart")].filter((chart) => {
  const legend = chart.querySelector(".legend"), plot = chart.querySelector(".xy .plot");
  return legend && plot && legend.getBoundingClientRect().bottom > plot.getBoundingClientRect().top + 2;
}).map((chart) => chart.id)"""


@pytest.mark.parametrize("width", [390, 1920])
def test_legends_stand_above_the_bars_at_every_width(folder: Path, tmp_path: Path, width: int) -> None:
    """A legend that wraps on a narrow screen must not cover what it explains."""
    with Tab(browser(), (folder / "live.html").as_uri(), tmp_path, width) as tab:
        tab.wait("document.body.dataset.drawn !== undefined")
        assert tab.run("document.querySelectorAll('.chart .legend').length") >= 3
        assert tab.run(OVERLAPS) == []
        assert tab.run("document.documentElement.scrollWidth <= innerWidth")
        assert not tab.errors
