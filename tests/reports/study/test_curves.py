"""Score curves: kept in short, read back, and what is read from them."""

from __future__ import annotations

import pytest

from reports.study._curves import best_score, curve_of, curve_text, drop, epochs_until, oscillation

CURVE = [(5, 10.0), (10, 61.25), (15, 60.5), (17, 60.0)]


@pytest.mark.parametrize("curve", [CURVE, CURVE[:3], CURVE[:1], [(3, 50.0)], []])
def test_a_curve_is_read_back(curve: list[tuple[int, float]]) -> None:
    assert curve_of(curve_text(curve)) == curve


def test_a_curve_is_short() -> None:
    assert curve_text(CURVE) == "5: 10 61.25 60.5 60 / 17"


def test_the_first_epoch_that_reaches_a_score() -> None:
    assert epochs_until(CURVE, 60.0) == 10 and epochs_until(CURVE, 61.25) == 10 and epochs_until(CURVE, 61.3) is None
    assert best_score(CURVE) == 61.25 and best_score([]) == 0.0


def test_drop_and_oscillation() -> None:
    assert drop(CURVE) == pytest.approx(1.25) and drop([]) == 0.0
    assert oscillation([(at, 50.0 + 2 * (at % 2)) for at in range(10)]) == pytest.approx(2.0)
    assert oscillation([(at, 0.0 if at < 5 else 50.0) for at in range(10)]) == 0.0, "the first half does not count"
    assert oscillation(CURVE[:1]) == 0.0
