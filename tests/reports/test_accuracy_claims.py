"""Verdicts on the papers' claims: noise, diverged runs, and tolerances."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.accuracy import table
from benchmarks.accuracy_claims import CLAIMS, Claim, better, fall_of_sent, judged, verdict, verdicts

GRAPHS = [f"g{i}" for i in range(7)]
STRICT = Claim("a beats b", ("a", "b"), better("a", "b"))
WITHIN = Claim("a within 1 of b", ("a", "b"), better("a", "b", -1.0))


def study(values: dict[str, list[float]], graph: str = "cora", parts: int = 4) -> pd.DataFrame:
    """One cell: accuracies by row and seed, nan where a run diverged."""
    lines = [
        {"graph": graph, "parts": parts, "row": row, "seed": seed, "state": "done" if test == test else "diverged"}
        | {"test": test, "sent": 0.5, "sent_early": 0.8, "sent_late": 0.3}
        for row, tests in values.items()
        for seed, test in enumerate(tests)
    ]
    return pd.DataFrame(lines)


def counted(frame: pd.DataFrame, claim: Claim) -> tuple[int, int, int]:
    found = [cell.judged for cell in judged(frame, claim)]
    return found.count("agree"), found.count("undecided"), found.count("against")


@pytest.mark.parametrize(
    ("a", "b", "strict", "within"),
    [
        ([80.0, 81.0, 82.0], [70.0, 70.0, 70.0], "agree", "agree"),
        ([70.0, 70.0, 70.0], [80.0, 81.0, 82.0], "against", "against"),
        ([70.0, 71.0, 69.1], [70.0, 70.0, 70.0], "undecided", "agree"),  # 0.03 with a standard error of 0.55
        ([69.0, 69.1, 69.2], [70.0, 70.0, 70.1], "against", "agree"),
        ([70.4], [70.0], "undecided", "agree"),  # one seed: half a point at least
        ([70.6], [70.0], "agree", "agree"),
        ([69.3], [70.0], "against", "undecided"),
    ],
)
def test_a_cell_is_decided_by_more_than_its_noise(a: list[float], b: list[float], strict: str, within: str) -> None:
    frame = study({"a": a, "b": b})
    assert [cell.judged for cell in judged(frame, STRICT)] == [strict]
    assert [cell.judged for cell in judged(frame, WITHIN)] == [within]


def test_runs_that_diverged_count_against_their_row() -> None:
    nan = float("nan")
    for claim in (STRICT, WITHIN):
        assert counted(study({"a": [nan, 72.0, 72.5], "b": [70.0, 70.0, 70.0]}), claim) == (0, 0, 1)
        assert counted(study({"a": [nan, nan, nan], "b": [70.0, 70.0, 70.0]}), claim) == (0, 0, 1)
        assert counted(study({"a": [70.0, 70.0, 70.0], "b": [nan, 70.0, 70.0]}), claim) == (1, 0, 0)
        assert counted(study({"a": [nan, nan], "b": [nan, nan]}), claim) == (0, 1, 0)
    assert judged(study({"a": [70.0]}), STRICT) == [], "what was not run is not judged"


def test_no_difference_is_hardly_ever_reproduced() -> None:
    """200 studies of 7 graphs x 2 numbers of parts x 3 seeds in which both rows are the same."""
    rng, found = np.random.default_rng(0), []
    for _ in range(200):
        cells = [study({row: rng.normal(70, 1, 3).tolist() for row in "ab"}, g, p) for g in GRAPHS for p in (4, 8)]
        found.append(verdict(*counted(pd.concat(cells), STRICT)))
    assert found.count("reproduced") < 0.05 * 200 and found.count("not reproduced") < 0.05 * 200
    assert found.count("undecided") > 0.5 * 200


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ((14, 0, 0), "reproduced"),
        ((8, 4, 2), "reproduced"),
        ((8, 2, 4), "partly reproduced"),
        ((4, 8, 2), "undecided"),
        ((3, 0, 0), "undecided"),  # too few cells to say more
        ((2, 4, 8), "not reproduced"),
        ((0, 14, 0), "undecided"),
        ((0, 0, 0), "not judged"),
    ],
)
def test_a_verdict_names_what_is_undecided(counts: tuple[int, int, int], says: str) -> None:
    assert verdict(*counts) == says


def test_the_sent_fraction_is_a_claim_of_its_own() -> None:
    (claim,) = [claim for claim in CLAIMS if claim.value is fall_of_sent]
    frame = study({"cdfgnn": [70.0, 70.0]})
    assert counted(frame, claim) == (1, 0, 0) and judged(frame, claim)[0].margin == pytest.approx(50)
    assert counted(frame.assign(sent_late=0.9), claim) == (0, 0, 1)
    assert any(line.startswith(f"| {claim.text} | 1 | 0 | 0 | +50.00 |") for line in verdicts(frame).splitlines())


def test_the_table_says_how_many_runs_finished() -> None:
    nan = float("nan")
    some = {"single": [70.0, 72.0, 71.0], "vanilla": [70.0, nan, 72.0], "bns p=0": [nan, nan], "cdfgnn": [70.0]}
    lines = table(study(some), 4).splitlines()
    assert "| single | 71.0 ± 1.0 |" in lines and "| vanilla | 71.0 ± 1.4 (2 of 3, 1 diverged) |" in lines
    assert "| bns p=0 | diverged |" in lines and "| cdfgnn | 70.0 (1 of 3) |" in lines and "| ec-graph | - |" in lines
