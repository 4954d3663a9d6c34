"""The search for two parameters: it ends close to scores that a formula can reach, in few evaluations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.study._search import FreeParameter, Goal, Point, nearest_point, proposed

KNOBS = (FreeParameter("signal", 0.25, 0.5, 2.5), FreeParameter("homophily", 0.3, 0.6, 0.95))


def scores(values: tuple[float, float], offset: float = 0.0) -> tuple[float, float]:
    """Two scores that rise with both parameters; the isolated one falls off faster where homophily is small."""
    signal, homophily = values
    full = 4 * math.log(signal) + 12 * homophily - 1.5 + offset
    loss = 0.1 + 3 * (1 - homophily) ** 2
    return tuple(100 / (1 + math.exp(-at)) for at in (full, full - loss))  # type: ignore[return-value]


def searched(goal: Goal, noise: float = 0.0, most: int = 14) -> list[Point]:
    rng, points = np.random.default_rng(0), list[Point]()
    while len(points) < most and (not points or goal.distance(nearest_point(points, goal).scores) > 1):
        values = proposed(points, KNOBS, goal)
        if values is None:
            break
        found = np.array(scores(values)) + rng.normal(0, noise, 2) if noise else scores(values)
        points.append(Point(values, (float(found[0]), float(found[1]))))
    return points


@given(st.floats(0.3, 2.0), st.floats(0.4, 0.9))
@settings(max_examples=30)
def test_scores_that_can_be_reached_are_reached(signal: float, homophily: float) -> None:
    goal = Goal(scores((signal, homophily)))
    if not 30 < goal.scores[0] < 99.5:
        return  # where nothing moves there is nothing to find
    points = searched(goal)
    assert goal.distance(nearest_point(points, goal).scores) <= 1, [point.scores for point in points]
    assert len(points) <= 14


def test_noise_of_a_twentieth_of_a_point_is_survived() -> None:
    goal = Goal(scores((0.7, 0.7)))
    assert goal.distance(nearest_point(searched(goal, noise=0.05), goal).scores) <= 1


def test_values_stay_in_their_range_and_are_never_tried_twice() -> None:
    goal = Goal((99.9, 20.0))  # out of reach
    points = searched(goal, most=10)
    assert len({point.values for point in points}) == len(points)
    for point in points:
        for knob, value in zip(KNOBS, point.values, strict=True):
            assert knob.low <= value <= knob.high


def test_the_first_points_are_the_start_and_a_step_along_either_parameter() -> None:
    goal = Goal((90.0, 80.0))
    first = proposed([], KNOBS, goal)
    assert first == (0.5, 0.6)
    points = [Point(first, (80.0, 70.0))]
    second = proposed(points, KNOBS, goal)
    assert second is not None and second[0] > 0.5 and second[1] == 0.6
    third = proposed([*points, Point(second, (85.0, 70.0))], KNOBS, goal)
    assert third is not None and third[0] == 0.5 and third[1] > 0.6


def test_a_goal_is_as_far_as_its_worse_score() -> None:
    goal = Goal((97.0, 96.0))
    assert goal.gap_tolerance == 0.25 and Goal((97.0, 96.9)).gap_tolerance == 0.2
    assert goal.distance((97.0, 96.0)) == 0
    assert goal.distance((97.25, 96.25)) == pytest.approx(1)
    assert goal.distance((97.0, 95.5)) == pytest.approx(2), "the gap counts, not the second score"
    near, far = Point((0.5, 0.5), (97.1, 96.1)), Point((0.6, 0.5), (90.0, 89.0))
    assert nearest_point([far, near], goal) is near


def test_places_and_values_are_inverse() -> None:
    for knob in KNOBS:
        assert knob.value(0) == knob.low and knob.value(1) == knob.high
        assert knob.value(knob.place(knob.start)) == knob.start
    assert KNOBS[0].value(0.5) == pytest.approx(math.sqrt(0.25 * 2.5), rel=1e-3), "ratios count"
