"""Intervals in records: what they allow to say about two methods."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from harness.errors import InputError
from harness.running import results
from harness.running.intervals import (
    LEFT_OPEN,
    LEFT_OPEN_BRIEF,
    ends,
    epoch_ends,
    interval_in,
    interval_note,
    left_open,
    order_lines,
    order_text,
    ratio_ends,
    speedup_interval,
)

COMMON = np.linspace(0.5, 2.0, 41)  # what both methods share: a machine that is slower or faster


def record(method: str, seconds: float, ratios: np.ndarray, cluster: str = "here") -> dict[str, Any]:
    """A predicted run."""
    inputs = [{"source": "assumed"}, {"source": "assumed"}, {"source": "measured"}]
    low, high = ends(ratios * seconds)
    interval = {
        "share": 0.9, "replays": len(ratios), "epochs": 2, "seconds": {"epoch": [low, high]},
        "ratios": ratios.tolist(), "inputs": inputs,
    }  # fmt: skip
    facts = {"interval": interval, "cluster": cluster}
    return {"config": {"method": method}, "state": "done", "facts": facts, "summary": {"epoch_seconds": seconds}}


def test_errors_that_both_share_do_not_hide_which_is_faster() -> None:
    fast, slow = record("fast", 1.0, COMMON), record("slow", 1.2, COMMON)
    assert interval_in(fast) == pytest.approx((0.575, 1.925)) and interval_in(fast, "halo") is None
    low, high = 1.2 * math.exp(-LEFT_OPEN.between), 1.2 * math.exp(LEFT_OPEN.between)
    assert speedup_interval(fast, slow) == pytest.approx((low, high)), (
        "what the model leaves out of one of them is left"
    )
    assert order_lines([slow, fast]) == [f"fast is faster than slow: {low:.2f} to {high:.2f} times as fast, 90 %"]


def test_what_the_model_leaves_out_hides_a_small_difference() -> None:
    near = record("near", math.exp(LEFT_OPEN.between / 2), COMMON)
    (said,) = order_lines([record("fast", 1.0, COMMON), near])
    assert "cannot be told apart" in said


def test_what_does_not_fit_its_devices_is_not_faster() -> None:
    large = {**record("large", 0.1, COMMON), "state": "out_of_memory"}
    (said,) = order_lines([record("slow", 2.0, COMMON), large, record("fast", 1.0, COMMON)])
    assert said.startswith("fast is faster than slow")


def test_a_method_beside_itself_is_as_fast() -> None:
    one = record("one", 1.0, COMMON)
    assert speedup_interval(one, one) == pytest.approx((1.0, 1.0), abs=1e-9)
    for more in (LEFT_OPEN, LEFT_OPEN_BRIEF):
        assert ratio_ends(np.ones(9), more) == (1.0, 1.0)


def test_a_brief_calibration_tells_fewer_methods_apart() -> None:
    """It leaves more open of everything; what a quick one says of two methods it may not."""
    assert left_open("quick") == left_open("full") == left_open("") == LEFT_OPEN
    brief = left_open("brief")
    assert brief == LEFT_OPEN_BRIEF and brief.seconds.keys() == LEFT_OPEN.seconds.keys()
    assert brief.between > LEFT_OPEN.between and all(brief.seconds[k] >= LEFT_OPEN.seconds[k] for k in brief.seconds)
    apart = math.exp((brief.between + LEFT_OPEN.between) / 2)
    runs = [record("fast", 1.0, COMMON), record("slow", apart, COMMON)]
    assert order_lines(runs)[0].startswith("fast is faster than slow")
    for run in runs:
        run["facts"]["interval"]["depth"] = "brief"
    assert "cannot be told apart" in order_lines(runs)[0]


def test_an_epoch_has_what_the_model_leaves_out_beside_its_draws() -> None:
    more = LEFT_OPEN.seconds["epoch"]
    assert epoch_ends(np.full(9, 2.0), 2.0, LEFT_OPEN) == pytest.approx((2 * math.exp(-more), 2 * math.exp(more)))
    (low, high), (least, most) = ends(COMMON), epoch_ends(COMMON, 1.0, LEFT_OPEN)
    assert 0 < least < low and high < most < high * math.exp(more)


def test_what_differs_between_two_methods_may_hide_it() -> None:
    fast, slow = record("fast", 1.0, COMMON), record("slow", 1.2, COMMON[::-1].copy())
    (said,) = order_lines([fast, slow])
    assert said.startswith("fast and slow cannot be told apart: fast is 0.")
    assert order_text("a", "b", (0.5, 0.9)).startswith("a is slower than b")


def test_only_draws_of_the_same_inputs_are_compared() -> None:
    fast = record("fast", 1.0, COMMON)
    assert speedup_interval(fast, record("slow", 2.0, COMMON, "elsewhere")) is None
    assert speedup_interval(fast, record("slow", 2.0, COMMON[:20])) is None
    measured = {**fast, "facts": {}}
    assert interval_in(measured) is None and speedup_interval(fast, measured) is None
    assert order_lines([fast, measured]) == []


def test_the_note_counts_inputs_by_source() -> None:
    assert "41 replays with uncertain inputs drawn anew (2 assumed, 1 measured)" in interval_note(
        record("a", 1.0, COMMON)["facts"]["interval"]
    )


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"ratios": [[1]] * 41}, "Expected `float`, got `array`"),
        ({"ratios": [0.0] * 41}, "Expected `float` > 0.0"),
        ({"ratios": [1.0] * 40}, "40 ratios of 41 replays"),
        ({"seconds": {"epoch": [1.0]}}, "Expected `array` of length 2"),
        ({"inputs": [{}]}, "missing required field `source`"),
        ({"replays": None}, "Expected `int`, got `null`"),
    ],
)
def test_a_damaged_interval_is_refused_with_its_result(damage: dict[str, Any], message: str, tmp_path: Path) -> None:
    made = record("vanilla", 1.0, COMMON)
    made["facts"]["interval"] |= damage
    config = {"mode": "sim", "cluster": "here", "dataset": "a", "model": "gcn", "layers": 2, "hidden": 8, "parts": 2}
    whole = {**made, "schema": results.SCHEMA, "run_id": "a", "config": {**made["config"], **config}, "epochs": []}
    path = tmp_path / "result.json"
    path.write_bytes(msgspec.json.encode(whole))
    with pytest.raises(InputError, match="is damaged") as error:
        results.load_result(path)
    assert message in str(error.value)
