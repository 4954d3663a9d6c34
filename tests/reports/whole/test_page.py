"""The report as a page: claims, anchors, what is damaged; filters, rows and figures in a browser."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from matplotlib.image import imread

from harness.cli import main
from reports.core.table import OUTCOMES, Plot
from reports.whole import papers, produce
from reports.whole.page import page
from reports.whole.produce import Entry
from reports.whole.verdicts import claim_counts
from tests.reports.whole.made import NASTY, drawn, hostile, report, time_row, times
from tests.support.browser import Tab, browser


class Tags(HTMLParser):
    """Collects tags, links, ids and the attributes of claims."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.outside: list[str] = []
        self.ids: list[str] = []
        self.targets: set[str] = set()
        self.states: list[dict[str, list[str]]] = []
        self.claims: list[dict[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        given = dict(attrs)
        assert not any(name.startswith("on") or name == "style" for name in given), given
        for name in ("src", "href"):
            if not (given.get(name) or "#").startswith(("data:", "#")):
                self.outside.append(str(given[name]))
        if (given.get("href") or "").startswith("#"):
            self.targets.add(str(given["href"])[1:])
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if "data-state" in given:
            self.states.append(parse_qs(str(given["data-state"])))
        if "data-verdict" in given:
            self.claims.append(given)


@pytest.fixture
def entries(tmp_path: Path) -> list[Entry]:
    return report(tmp_path)


def made_page(entries: list[Entry]) -> str:
    return page(entries, f"haloscope report all --only {NASTY}")


def damage(text: str) -> str:
    found = re.search(r'<(p|div) class="damage".*?</\1>', text, re.DOTALL)
    return re.sub(r"<[^>]+>", "", found[0]) if found else ""


def test_the_page_is_one_file_and_escaped(entries: list[Entry]) -> None:
    text = made_page(entries)
    tags = Tags(text)
    assert tags.tags["script"] == 1 and tags.tags["img"] == 1 and not tags.outside
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy and policy[1].startswith("default-src 'none'") and "unsafe" not in policy[1]
    assert "&lt;script&gt;" in text and "https:" not in text and "http:" not in text
    assert len(re.findall(r"haloscope report all --only sylvie/table3 --html", text)) == 1


def test_every_link_has_its_place_and_every_place_one_name(entries: list[Entry]) -> None:
    tags = Tags(made_page(entries))
    assert tags.targets <= set(tags.ids) and len(tags.ids) == len(set(tags.ids))
    named = {"filters", "shown", "enlarged", "enlarged-title", "papers"}  # parts of the page, no places of results
    lists = {name for name in tags.ids if re.fullmatch(r"(sylvie|cdfgnn)-[a-z-]+", name)}
    folds = {"skill", "wrong", "not-counted"}
    assert set(tags.ids) - tags.targets - lists - folds <= named
    assert "sylvie-table3--yelp-dgl--epoch-time" in tags.ids and "sylvie-table3--order--epoch-by-graph" in tags.ids


def test_anchors_stay_when_rows_come(entries: list[Entry]) -> None:
    before = Tags(made_page(entries)).ids
    table = times()
    more = replace(table, rows=(time_row("Amazon", "DGL", 3.0, 3.1), *table.rows), orderings=table.orderings[::-1])
    after = Tags(made_page([Entry(more.key, more), *entries[1:]])).ids
    assert set(before) < set(after)


def test_numbers_on_top_are_those_of_the_rows(entries: list[Entry]) -> None:
    """Of every paper and outcome: the number shown, the rows marked as counting, and the counts of the summary."""
    text = made_page(entries)
    tags = Tags(text)
    for key in ("sylvie", "cdfgnn"):
        counts = claim_counts([entry for entry in entries if entry.paper == key])
        for outcome in OUTCOMES:
            verdict = outcome.replace(" ", "-")
            mine = [c for c in tags.claims if str(c["id"]).startswith(key) and c["data-verdict"] == verdict]
            assert sum("data-counts" in claim for claim in mine) == counts[outcome]
            shown = re.search(rf'data-state="paper={key}&amp;verdict={verdict}&amp;at=[^"]*">(\d+)<', text)
            assert (int(shown[1]) if shown else 0) == counts[outcome]
    repeated = [c for c in tags.claims if c["id"] == "sylvie-table4--order--again-by-graph"]
    assert repeated[0]["data-verdict"] == "contradicted" and "data-counts" not in repeated[0]
    assert {c["data-verdict"] for c in tags.claims} == {o.replace(" ", "-") for o in OUTCOMES} | {"no-claim"}


def test_a_whole_report_has_no_line_on_damage(entries: list[Entry]) -> None:
    assert damage(made_page(entries[:4])) == ""
    assert "1 of 5 tables and figures" in damage(made_page(entries))


def test_damaged_figures_are_named_and_the_other_file_is_shown(tmp_path: Path, entries: list[Entry]) -> None:
    plot = entries[3].item
    assert isinstance(plot, Plot)
    png, svg = plot.paths
    svg.write_bytes(svg.read_bytes()[:-20])
    text = made_page(entries[:4])
    assert "cdfgnn/figure5 (its SVG is damaged)" in damage(text) and 'src="data:image/png' in text
    png.write_bytes(png.read_bytes()[:-20])
    text = made_page(entries[:4])
    assert "cdfgnn/figure5 (its SVG is damaged; its PNG is damaged)" in damage(text) and "<img" not in text
    svg.unlink()
    assert "its SVG is missing; its PNG is damaged" in damage(made_page(entries[:4]))


def test_many_damaged_items_are_behind_a_click(entries: list[Entry]) -> None:
    lost = [Entry(key, None, "it was not made") for key in papers.everything()]
    text = made_page([*entries[:1], *(entry for entry in lost if entry.key != entries[0].key)])
    assert '<div class="damage" role="alert"><details>' in text and "bns-gcn/table8" in damage(text)


def test_a_page_of_what_is_kept_makes_nothing_and_names_what_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, made = tmp_path / "out", {"n": 0}

    def counted(context: Any) -> Any:
        made["n"] += 1
        return times()

    def figure(context: Any) -> Plot:
        return replace(drawn(context.folder("cdfgnn")), paths=tuple(context.figure_paths("cdfgnn/figure5")))

    items = {"sylvie/table3": counted, "cdfgnn/table1": lambda _: hostile(), "cdfgnn/figure5": figure}
    monkeypatch.setattr(papers, "everything", lambda: items)
    monkeypatch.setattr(produce, "everything", lambda: items)
    kept = ["report", "page", "--out", str(out), "--quiet"]
    assert main(kept) == 2 and not out.exists()
    assert "haloscope report all makes them" in capsys.readouterr().err
    assert main(["report", "all", "--out", str(out), "--jobs", "1", "--quiet"]) == 0
    assert main(kept) == 0 and made["n"] == 1 and damage((out / "index.html").read_text()) == ""
    assert main([*kept, "--budget", "3m"]) == 0
    assert damage((out / "index.html").read_text()).count("it was made of other code, data or --budget") == 1
    table = out / "sylvie" / "table3.json"
    table.write_bytes(table.read_bytes()[:-300])
    (out / "cdfgnn" / "table1.json").unlink()
    assert main(kept) == 1 and made["n"] == 1
    line = damage((out / "index.html").read_text())
    assert "sylvie/table3 (its file is damaged)" in line and "cdfgnn/table1 (it was not made)" in line
    assert line.startswith("This page is not whole. 2 of 3") and "figure5" not in line


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    (folder / "index.html").write_text(made_page(report(folder)))
    return folder


@pytest.fixture(scope="module")
def opened(place: Path) -> Iterator[Tab]:
    with Tab(browser(), (place / "index.html").as_uri(), place) as tab:
        yield tab


@pytest.fixture
def tab(opened: Tab, place: Path) -> Iterator[Tab]:
    """The page as it opens on a desk."""
    opened.resize(1200, 900)
    opened.open((place / "index.html").as_uri())
    yield opened
    assert opened.errors == []


VISIBLE = """[...document.querySelectorAll("[data-verdict]")].filter((claim) => claim.checkVisibility())"""


@pytest.fixture(scope="module")
def claims(place: Path) -> dict[str, str]:
    """Verdict by anchor, as the file has them."""
    return {str(c["id"]): str(c["data-verdict"]) for c in Tags((place / "index.html").read_text()).claims}


def shown(tab: Tab) -> set[str]:
    return set(tab.run(VISIBLE + ".map((claim) => claim.id)"))


def choose(tab: Tab, value: str) -> None:
    """Go to a check box and press the space bar."""
    tab.run(f"document.querySelector('#filters input[value={value}]').focus()")
    tab.press(" ", 32, " ")


def test_filters_by_keyboard_show_the_rows_and_their_number(tab: Tab, claims: dict[str, str]) -> None:
    choose(tab, "contradicted")
    assert shown(tab) == {name for name, verdict in claims.items() if verdict == "contradicted"}
    choose(tab, "sylvie")
    choose(tab, "undecided")
    wanted = {n for n, v in claims.items() if n.startswith("sylvie") and v in ("contradicted", "undecided")}
    assert shown(tab) == wanted and len(wanted) == 4
    assert tab.run("location.hash") == "#paper=sylvie&verdict=contradicted,undecided"
    assert tab.run("document.getElementById('shown').textContent") == f"4 of {len(claims)} rows and orderings: 3 claims"
    tab.run("history.back()")
    tab.wait("!location.hash.includes('undecided')")
    assert len(shown(tab)) == 3
    tab.run("document.querySelector('#filters [type=reset]').click()")
    tab.wait("location.hash === ''")
    assert tab.run("document.querySelectorAll('[data-verdict][hidden], .item[hidden]').length") == 0
    assert tab.run("document.querySelectorAll('.all-rows[open]').length") == 0


def test_orderings_that_follow_from_theory_are_folded_until_they_are_asked_for(
    tab: Tab, claims: dict[str, str]
) -> None:
    inside = "[...document.querySelectorAll('.by-theory li')].map((line) => line.dataset.verdict)"
    assert tab.run(inside) and set(tab.run(inside)) == {"theory"}
    assert tab.run("document.querySelectorAll('.by-theory[open]').length") == 0
    choose(tab, "theory")
    assert shown(tab) == {name for name, verdict in claims.items() if verdict == "theory"}
    assert tab.run("[...document.querySelectorAll('.by-theory')].every((fold) => fold.open)")
    choose(tab, "theory")
    choose(tab, "contradicted")
    assert tab.run("[...document.querySelectorAll('.by-theory')].every((fold) => fold.hidden)")


def test_a_link_restores_filter_and_place(tab: Tab, place: Path, claims: dict[str, str]) -> None:
    tab.open(
        (place / "index.html").as_uri() + "#paper=sylvie&verdict=contradicted&at=sylvie-table3--yelp-dgl--epoch-time"
    )
    assert shown(tab) == {n for n, v in claims.items() if n.startswith("sylvie") and v == "contradicted"}
    assert tab.run("document.querySelector('.here').id") == "sylvie-table3--yelp-dgl--epoch-time"
    assert tab.run("[...document.querySelectorAll('#filters :checked')].map((box) => box.value)") == [
        "sylvie",
        "contradicted",
    ]
    tab.run("document.querySelector('a[href$=cdfgnn-table1]').click()")
    tab.wait("document.querySelector('.here').id === 'cdfgnn-table1'")
    assert tab.run("location.hash") == "#cdfgnn-table1"  # the filter hid it, and is gone
    assert tab.run("document.querySelectorAll('#filters :checked').length") == 0


def test_a_number_on_top_leads_to_its_rows(tab: Tab, claims: dict[str, str]) -> None:
    tab.run("document.querySelector('.summary [data-state*=\"paper=sylvie&verdict=contradicted\"]').click()")
    tab.wait("document.querySelector('.here') !== null")
    assert tab.run("document.querySelector('details.here[open]').querySelectorAll('li').length") == 2
    assert shown(tab) == {n for n, v in claims.items() if n.startswith("sylvie") and v == "contradicted"}


def test_links_that_lead_nowhere_are_said(tab: Tab, place: Path) -> None:
    for address in ("#sylvie-table99", "#paper=nobody&verdict=<script>&at=a%22b", "#%E0%A4%A"):
        tab.open((place / "index.html").as_uri() + address)
        assert "no place named" in tab.run("document.getElementById('shown').textContent"), address
        assert tab.run("document.querySelectorAll('[data-verdict][hidden]').length") == 0


def test_a_cell_leads_to_its_row_and_the_row_opens_what_is_behind_it(tab: Tab) -> None:
    tab.run("document.querySelector('.paper td.v-contradicted a').click()")
    tab.wait("document.querySelector('.here') !== null")
    assert tab.run("document.querySelector('.here').id") == "sylvie-table3--yelp-dgl--epoch-time"
    tab.run("document.querySelector('.here .more').focus()")
    tab.press("Enter", 13, "\r")
    behind = tab.run("document.querySelector('.here + .opened').innerText")
    for said in ("haloscope report all --only sylvie/table3", "haloscope run --parts 8", "factor on bandwidths x 1.25",
                 "boundary nodes are an input", "Judged by its error", "holds the quantiser"):  # fmt: skip
        assert said in behind
    assert tab.run("document.querySelector('.here .more').getAttribute('aria-expanded')") == "true"
    tab.press("Enter", 13, "\r")
    assert tab.run("document.querySelector('.opened')") is None


def test_a_figure_is_enlarged_by_enter_and_closed_by_escape(tab: Tab) -> None:
    small = tab.run("document.querySelector('.enlarge img').getBoundingClientRect().width")
    tab.run("document.querySelector('.enlarge').focus()")
    tab.press("Enter", 13, "\r")
    assert tab.run("document.querySelector('dialog').open")
    tab.wait("document.querySelector('dialog img').complete")
    assert tab.run("document.querySelector('dialog img').getBoundingClientRect().width") > small
    assert tab.run("document.querySelector('dialog img').naturalWidth") > 0
    tab.press("Escape", 27)
    assert not tab.run("document.querySelector('dialog').open")
    assert tab.run("document.activeElement.className") == "enlarge"
    tab.run("document.querySelector('.enlarge').click(); document.querySelector('dialog .close').click()")
    assert not tab.run("document.querySelector('dialog').open")


@pytest.mark.parametrize(("width", "dark"), [(375, False), (375, True), (1440, False), (1920, True)])
def test_it_fits_every_width_and_follows_the_scheme(tab: Tab, tmp_path: Path, width: int, dark: bool) -> None:
    tab.resize(width, 900, dark)
    assert tab.run("document.documentElement.scrollWidth") <= width
    tab.picture(tmp_path / "page.png")
    pixels = imread(tmp_path / "page.png")[..., :3]
    assert (pixels[5, 5].mean() < 0.3) == dark and pixels.std() > 0.03


def test_the_browser_tells_of_errors(opened: Tab, tmp_path: Path) -> None:
    """What the tests above rely on."""
    file = tmp_path / "broken.html"
    file.write_text("<!doctype html><script>console.error('tripped'); undefined.x</script>")
    opened.open(file.as_uri())
    assert any("tripped" in error for error in opened.errors) and any("TypeError" in e for e in opened.errors)
    opened.errors.clear()
