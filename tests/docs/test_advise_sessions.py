"""The sessions of docs/advise.md: their flags are read, and the page has a place for each."""

from __future__ import annotations

import shlex

import pytest

from docs.generate.advise import PAGE, SESSIONS, placed
from harness.commands.advise import question_of
from harness.commands.arguments import parse_arguments
from sims.cluster import load_cluster


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_can_be_asked(name: str) -> None:
    question = question_of(parse_arguments(["advise", *shlex.split(SESSIONS[name])]))
    assert question.parts and max(question.parts) <= load_cluster(question.base.cluster.name).capacity


@pytest.mark.parametrize("name", SESSIONS)
def test_its_output_is_put_between_its_marks(name: str) -> None:
    page = PAGE.read_text()
    once = placed(page, name, "first \nsecond\n")
    assert "\nfirst\nsecond\n```\n" in once and once.count("<!-- session") == page.count("<!-- session")
    assert placed(once, name, "third") != once and "second" not in placed(once, name, "third")
    command = once.partition("$ haloscope advise")[2]
    assert all(word in command for word in shlex.split(SESSIONS[name]))
    with pytest.raises(SystemExit, match="has no place for"):
        placed("", name, "first")
