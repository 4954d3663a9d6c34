"""`haloscope check-method` on methods of another package, found through the entry-point group."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import main

STRANGER = '''
"""A package that knows haloscope, and that haloscope does not know."""

from dataclasses import dataclass, replace

import torch

from harness.codecs import Cast
from harness.exchanges import HaloPush
from harness.methods.bases.base import Facts
from harness.methods.bases.edge_cut import EdgeCut


@dataclass(frozen=True, kw_only=True)
class Half(EdgeCut):
    """Rows in half precision, either way."""

    sixteen: bool = True
    name = "half-rows"
    facts = Facts(cut="edge", exact=False, lossy=True, bounded=True, repeats=True, exact_when={"sixteen": False})

    def error_bound(self, num_ranks):
        return 2.0**-11

    def row_bytes(self, model, l, direction):
        return model.widths[l] * (2 if self.sixteen else 4)

    def exchange(self, l, model, state, plan):
        codec = Cast(torch.float16 if self.sixteen else None)
        return HaloPush(state.route, l, codec, codec)


class Liar(Half):
    """The same, with promises that it does not keep."""

    name = "liar"
    facts = replace(Half.facts, exact=True, exact_when={}, unbiased=True, compensated=True, settles=2, timed=True,
                    staleness=1, bounded=True, vanishes_with={"sixteen": True})

    def error_bound(self, num_ranks):
        return 2.0**-14
'''


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package, installed in a folder on the path."""
    (tmp_path / "stranger_of_halos.py").write_text(STRANGER)
    described = tmp_path / "stranger_of_halos-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger-of-halos\nVersion: 1.0\n")
    points = "half-rows = stranger_of_halos:Half\nliar = stranger_of_halos:Liar\n"
    (described / "entry_points.txt").write_text(f"[haloscope.methods]\n{points}")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("stranger_of_halos", None)


def test_a_strangers_method_that_keeps_its_promises(stranger: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-method", "half-rows", "--quick"]) == 0
    text, lines = capsys.readouterr()
    assert "FAILED" not in text
    steps = [line.partition("]")[0] for line in lines.splitlines() if line.startswith("[")]
    assert steps == [f"[{at}/{len(steps)}" for at in range(1, len(steps) + 1)] and len(steps) > 5 and "left" in lines
    assert main(["check-method", "half-rows", "--quick", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    for fact in ("cut", "exact_when", "lossy", "bounded", "repeats"):
        assert fact in text


def test_a_method_that_lies_about_every_fact(stranger: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-method", "liar", "--quick"]) == 1
    text = capsys.readouterr().out
    lies = ("claims", "exact", "vanishes with", "staleness", "unbiased", "bounded", "compensated", "settles", "timed")
    assert [check for check in lies if f"\n{check}: " not in text] == []
    assert "\nrepeats: " not in text and "\ncut: " not in text


def test_an_unknown_method_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-method", "half-row"]) == 2
    assert "unknown method 'half-row'" in capsys.readouterr().err
