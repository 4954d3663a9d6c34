"""The page of what methods cost in accuracy is what the kept runs say."""

from __future__ import annotations

from docs.generate.accuracy import PAGE, page
from reports import study


def test_the_page_is_not_stale() -> None:
    assert page() == PAGE.read_text(), "python -m docs.generate.accuracy writes it"


def test_every_study_has_a_section_and_a_figure_where_it_has_runs() -> None:
    text = PAGE.read_text()
    for name in study.names():
        assert f"\n## {name}\n" in text
        figure = f"accuracy-{name}.png"
        assert (figure in text) == (PAGE.parent / figure).is_file()


def test_remarks_of_a_study_are_on_the_page() -> None:
    remarks = [study.read_file(study.file_of(name)).remarks.strip() for name in study.names()]
    assert any(remarks) and all(each in PAGE.read_text() for each in remarks)
