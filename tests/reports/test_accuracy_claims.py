"""Verdicts on the papers' claims: noise, diverged runs, and tolerances."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.accuracy import table
from benchmarks.accuracy_claims import CLAIMS, Claim, better, fall_of_sent, findings_of, graph_margins, verdicts

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


def test_a_graph_has_the_mean_margin_of_its_seeds_and_parts() -> None:
    frame = pd.concat([study({"a": [80.0, 82.0], "b": [70.0, 70.0]}), study({"a": [76.0], "b": [70.0]}, parts=8)])
    assert graph_margins(frame, STRICT) == {"cora": pytest.approx((11 + 6) / 2)}
    assert graph_margins(frame, WITHIN) == {"cora": pytest.approx((11 + 6) / 2 + 1)}
    assert graph_margins(study({"a": [70.0]}), STRICT) == {}, "what was not run is not judged"


def test_a_run_that_diverged_scores_nothing() -> None:
    nan = float("nan")
    assert graph_margins(study({"a": [nan, 72.0], "b": [70.0, 70.0]}), STRICT) == {"cora": pytest.approx(-34.0)}


def rows_of(rng: np.random.Generator, gain: float) -> pd.DataFrame:
    """7 graphs x 2 numbers of parts x 3 seeds; the first row of every claim is ahead by `gain`."""
    first = {claim.rows[0] for claim in CLAIMS}
    names = sorted({row for claim in CLAIMS for row in claim.rows})
    cells = [
        study({row: (rng.normal(70 + gain * (row in first), 1, 3)).tolist() for row in names}, graph, parts)
        for graph in GRAPHS
        for parts in (4, 8)
    ]
    return pd.concat(cells)


def test_no_difference_is_hardly_ever_reproduced() -> None:
    strict = [claim for claim in CLAIMS if claim.margin is CLAIMS[0].margin]
    rng, found = np.random.default_rng(0), []
    for _ in range(4):
        found += [each.judgement.verdict for each in findings_of(rows_of(rng, 0.0)) if each.claim in strict]
    assert found and set(found) == {"undecided"}


def test_a_difference_on_all_graphs_is_reproduced() -> None:
    first = findings_of(rows_of(np.random.default_rng(0), 5.0))[0]
    assert first.judgement.verdict == "reproduced" and first.found is not None and first.found.count == 7


def test_few_graphs_decide_nothing() -> None:
    frame = study({row: [80.0, 81.0, 82.0] for row in CLAIMS[0].rows})
    assert findings_of(frame)[0].judgement.verdict == "not enough runs"


def test_the_sent_fraction_is_a_claim_of_its_own() -> None:
    (claim,) = [claim for claim in CLAIMS if claim.value is fall_of_sent]
    frame = study({"cdfgnn": [70.0, 70.0]})
    assert graph_margins(frame, claim) == {"cora": pytest.approx(50)}
    assert graph_margins(frame.assign(sent_late=0.9), claim)["cora"] < 0
    line = f"| {claim.text} | 1 | +50.00 | +50.00, +50.00 | not enough runs |"
    assert line in verdicts(frame).splitlines()


def test_the_table_says_how_many_runs_finished() -> None:
    nan = float("nan")
    some = {"single": [70.0, 72.0, 71.0], "vanilla": [70.0, nan, 72.0], "bns p=0": [nan, nan], "cdfgnn": [70.0]}
    lines = table(study(some), 4).splitlines()
    assert "| single | 71.0 ± 1.0 |" in lines and "| vanilla | 71.0 ± 1.4 (2 of 3, 1 diverged) |" in lines
    assert "| bns p=0 | diverged |" in lines and "| cdfgnn | 70.0 (1 of 3) |" in lines and "| ec-graph | - |" in lines
