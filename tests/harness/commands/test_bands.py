"""Bands of known curves: where they can be told apart, and what is said of crossovers."""

from __future__ import annotations

import numpy as np
import pytest

from harness.commands.curves.bands import fastest_possible, interpolated, range_around, undecided_ranges
from harness.commands.curves.crossings import crossover_lines, crossover_text

XS = np.geomspace(1.0, 1000.0, 13).tolist()
OWN = np.linspace(0.8, 1.25, 41)  # an error of one curve alone


def flat(x: float) -> float:
    return 1.0


def falling(x: float) -> float:
    return 30.0 / x


def drawn_flat(x: float) -> np.ndarray:
    return OWN * flat(x)


def drawn_falling(x: float) -> np.ndarray:
    return np.ones(len(OWN)) * falling(x)


def say(x: float) -> str:
    return f"{x:.0f}"


def test_factors_are_interpolated_in_logarithms() -> None:
    drawn = interpolated([1.0, 100.0], np.asarray([[1.0, 2.0], [4.0, 2.0]]))
    assert drawn(10.0) == pytest.approx([2.0, 2.0]) and drawn(1000.0) == pytest.approx([4.0, 2.0])


def test_a_crossover_is_a_range() -> None:
    ((low, high),) = undecided_ranges(drawn_falling, drawn_flat, XS)
    assert low == pytest.approx(30 / 1.228, rel=0.05) and high == pytest.approx(30 / 0.822, rel=0.05)
    assert range_around(30.0, [(low, high)]) == (low, high) and range_around(300.0, [(low, high)]) is None
    said = crossover_text(("falling", "flat"), (falling, flat), XS, say, (drawn_falling, drawn_flat))
    assert said.startswith(f"falling begins to pay above 30 (90 %: {say(low)} to {say(high)}) (against flat")


def test_errors_that_curves_share_leave_no_range() -> None:
    both = lambda x: OWN * flat(x)  # noqa: E731
    assert undecided_ranges(lambda x: OWN * falling(x), both, [1.0, 10.0, 100.0, 1000.0]) == []
    assert undecided_ranges(both, both, XS) == [], "a curve against itself is decided"


def test_it_is_said_where_curves_cannot_be_told_apart() -> None:
    said = crossover_text(("a", "b"), (lambda x: 1.0, lambda x: 1.1), XS, say, (drawn_flat, lambda x: 1.1 * OWN**0))
    assert said.endswith("; cannot be told apart from 1 to 1000 (90 %)") and said.startswith("a pays everywhere")
    sure = crossover_text(("a", "b"), (lambda x: 1.0, lambda x: 2.0), XS, say, (drawn_flat, lambda x: 2.0 * OWN**0))
    assert "told apart" not in sure


def test_all_that_may_be_fastest_are_named() -> None:
    curves, drawn = {"flat": flat, "falling": falling}, {"flat": drawn_flat, "falling": drawn_falling}
    names = [found[0] for found in fastest_possible(curves, drawn, XS)]
    assert names[0] == ("flat",) and names[-1] == ("falling",) and set(names[1]) == {"flat", "falling"}
    assert crossover_lines(curves, XS, say, drawn)[-1].startswith("fastest (90 %): flat from 1 to ")
    assert crossover_lines(curves, XS, say)[-1].startswith("fastest: flat from 1 to 30")
