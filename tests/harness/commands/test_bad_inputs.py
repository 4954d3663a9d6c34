"""Input that nobody could mean ends with exit code 2 and one line: more than 500 cases, and all that
`benchmarks.fuzz` found.

Every finding of the fuzzer is a line of `tests/support/bad_inputs.jsonl`: a command line and the files that it reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from benchmarks.fuzz import Case, judge
from benchmarks.fuzz_inputs import GOOD, NASTY, good_files

RUN = ("run", "--dataset", "synthetic:nodes=60,degree=4,classes=3,features=5", "--quiet")
WHOLE = ("parts", "epochs", "layers", "hidden", "heads", "seed", "hosts", "threads", "checkpoint-every")
REAL = ("dropout", "lr", "weight-decay", "timeout", "startup-timeout")
MEANT = {"0", "-1", "1e3", "1.5", "1", "1e-320", "+1"}
"""Texts that are numbers which some flag takes."""

LONG = {"9" * 40, "1" + "0" * 30}
"""Numbers that are long, but finite: a rate may be so large."""

OPTIONS = ("bns-gcn:p=", "sylvie-s:bits=", "ec-graph:period=", "distgnn:r=", "cagnet:c=")
FOUND = Path(__file__).parents[2] / "support" / "bad_inputs.jsonl"


def bad_numbers() -> Iterator[Case]:
    """Every flag with a number and every option of a method, with every text that is none that it takes."""
    texts = [text for text in NASTY if text not in MEANT]
    for flag, text in product((*WHOLE, *REAL), texts):
        if flag in ("lr", "weight-decay") and text in LONG:
            continue
        checkpoint = ("--checkpoint", "kept") if flag == "checkpoint-every" else ()
        yield Case((*RUN, *checkpoint, f"--{flag}={text}"))
    for option, text in product(OPTIONS, texts):
        yield Case((*RUN, f"--method={option}{text}"))


def bad_names() -> Iterator[Case]:
    """Every flag with a name or a file, with texts that are neither."""
    for flag, text in product(("dataset", "method", "partitioner", "config"), NASTY):
        if (flag, text) != ("config", "/dev/null"):  # an empty file says nothing wrong
            yield Case((*RUN, f"--{flag}={text}"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HALOSCOPE_DATA", str(tmp_path))
    return tmp_path


def refusals(cases: Iterator[Case]) -> tuple[int, list[str]]:
    """How many there were, and those that were not refused in one line."""
    count, wrong = 0, []
    for case in cases:
        verdict = judge(case)
        count += 1
        if verdict.code != 2 or verdict.finding:
            wrong.append(f"{' '.join(case.argv[-1:])[:80]!r}: exit {verdict.code}, {verdict.said.strip()[-200:]}")
    return count, wrong


def test_numbers_that_are_none_are_refused(here: Path) -> None:
    count, wrong = refusals(bad_numbers())
    assert count >= 500
    assert not wrong, "\n".join(wrong)
    assert not list(here.iterdir()), "something was half-written"


def test_names_of_nothing_are_refused(here: Path) -> None:
    count, wrong = refusals(bad_names())
    assert count >= 150
    assert not wrong, "\n".join(wrong)


def test_what_the_fuzzer_found_stays_mended(here: Path) -> None:
    """And the files that it changes are taken as they are: nothing behind a refusal would be tried."""
    good_files()
    first = {name: judge(Case(tuple(commands[0]))) for name, commands in GOOD.items()}
    assert not {name: verdict.said for name, verdict in first.items() if verdict.code}
    found = [Case.of(line) for line in FOUND.read_text().splitlines()]
    wrong = [f"{case.argv}: {said}" for case in found if (said := judge(case).finding)]
    assert found and not wrong, "\n".join(wrong)
