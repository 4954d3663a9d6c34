"""Intervals, verdicts, correction and power: properties that hold for any numbers, and rates found by simulation."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from reports.statistics import (
    FEWEST_SEEDS,
    Band,
    Estimate,
    above,
    adjusted,
    estimate,
    interval_level,
    judged,
    more_seeds,
    p_value,
    power,
    seeds_needed,
    within,
)

numbers = st.floats(-50, 50, allow_nan=False)
values = st.lists(numbers, min_size=FEWEST_SEEDS, max_size=12)
chances = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def verdict(found: Estimate, band: Band) -> str:
    (judgement,) = judged([(found, band)])
    assert judgement.alone == judgement.verdict, "one claim needs no correction"
    return judgement.verdict


@given(values)
def test_the_interval_is_students(sample: list[float]) -> None:
    found = estimate(sample)
    if np.std(sample) < 1e-6:
        return
    low, high = stats.t.interval(0.95, len(sample) - 1, np.mean(sample), stats.sem(sample))
    assert found.interval() == pytest.approx((low, high), rel=1e-6, abs=1e-6)


def test_one_value_has_no_interval_and_equal_values_no_better_one_than_their_step() -> None:
    assert estimate([1.0]).half_width() == math.inf and estimate([1.0]).count == 1
    equal = estimate([2.0] * 6, resolution=0.12)
    assert equal.deviation == pytest.approx(0.12 / math.sqrt(12)) and estimate([2.0] * 6).half_width() == 0
    assert estimate([1.0, 9.0], resolution=0.12).deviation == np.std([1, 9], ddof=1)


@given(values, st.floats(0.01, 20), numbers)
def test_a_verdict_is_that_of_the_interval(sample: list[float], margin: float, centre: float) -> None:
    found = estimate(sample, resolution=1e-3)
    low, high = found.interval()
    bands = (within(margin, centre), above(centre), Band(high=centre))
    if min(abs(end - limit) for end in (low, high) for b in bands for limit in (b.low, b.high)) < 1e-9:
        return  # on the edge within rounding
    for band in bands:
        expected = "undecided"
        if band.low < low and high < band.high:
            expected = "reproduced"
        elif high < band.low or low > band.high:
            expected = "contradicted"
        assert verdict(found, band) == expected


@given(values, st.floats(0.1, 10), numbers)
def test_a_verdict_is_the_same_mirrored_and_moved(sample: list[float], margin: float, by: float) -> None:
    found = estimate(sample, resolution=0.01)
    p, holds = p_value(found, above(-margin))
    mirrored = Estimate(-found.mean, found.deviation, found.count)
    assert p_value(mirrored, Band(high=margin)) == (pytest.approx(p), holds)
    moved = Estimate(found.mean + by, found.deviation, found.count)
    assert p_value(moved, above(by - margin))[0] == pytest.approx(p, abs=1e-9)


@given(values, st.floats(0.1, 5), st.floats(1.0, 4.0))
def test_a_wider_band_is_never_harder_to_reproduce(sample: list[float], margin: float, factor: float) -> None:
    found = estimate(sample, resolution=0.01)
    if verdict(found, within(margin)) == "reproduced":
        assert verdict(found, within(margin * factor)) == verdict(found, above(-margin)) == "reproduced"


def test_few_seeds_decide_nothing_and_are_not_counted_among_the_claims() -> None:
    clear = Estimate(5.0, 0.1, 6)
    few = Estimate(5.0, 0.001, FEWEST_SEEDS - 1)
    found = judged([(few, above()), (None, above()), (clear, above())])
    assert [judgement.verdict for judgement in found] == ["not enough runs", "not enough runs", "reproduced"]
    assert found[2].corrected == found[2].p < 0.05, "corrected for one claim only"


def test_an_empty_band_is_refused_and_nothing_fails_in_a_band_without_ends() -> None:
    with pytest.raises(ValueError, match="is empty"):
        Band(1.0, 1.0)
    assert p_value(Estimate(1.0, 1.0, 5), Band()) == (0.0, True)


@given(values, st.floats(0.0, 5), st.floats(0.5, 5))
def test_no_difference_worth_claiming_contradicts_better(sample: list[float], least: float, shift: float) -> None:
    found = estimate(sample, resolution=1e-3)
    low, high = found.interval()
    if min(abs(end - limit) for end in (low, high) for limit in (0.0, least)) < 1e-9:
        return  # on the edge within rounding
    expected = "reproduced" if low > 0 else "contradicted" if high < least else "undecided"
    assert verdict(found, above(least=least)) == expected
    if least == 0:
        assert p_value(found, above(least=0.0)) == p_value(found, above())
    moved = Estimate(found.mean + shift, found.deviation, found.count)
    here = p_value(found, above(least=least))[0]
    assert p_value(moved, above(shift, least + shift))[0] == pytest.approx(here, abs=1e-9)


def test_an_interval_around_zero_is_undecided_or_says_that_there_is_nothing() -> None:
    close = Estimate(0.01, 0.1, 5)
    assert verdict(close, above()) == "undecided" and verdict(close, above(least=0.5)) == "contradicted"
    assert verdict(Estimate(0.01, 1.0, 5), above(least=0.5)) == "undecided", "too wide to say so"
    assert verdict(Estimate(0.2, 0.01, 5), above(least=0.5)) == "reproduced", "little, but better"
    with pytest.raises(ValueError, match="cannot fail below"):
        Band(0.0, 1.0, least=-0.1)


@given(chances)
def test_the_correction_lies_between_none_and_bonferroni(given_values: list[float]) -> None:
    found = adjusted(given_values)
    for raw, corrected in zip(given_values, found, strict=True):
        assert raw <= corrected + 1e-15 and corrected <= min(1.0, len(given_values) * raw) + 1e-15
    ranked = [found[at] for at in np.argsort(given_values, kind="stable")]
    assert all(first <= second for first, second in pairwise(ranked))


@given(chances, st.randoms(use_true_random=False))
def test_the_correction_does_not_depend_on_the_order(given_values: list[float], random: object) -> None:
    order = list(range(len(given_values)))
    random.shuffle(order)  # type: ignore[attr-defined]
    shuffled = adjusted([given_values[at] for at in order])
    assert dict(zip(order, shuffled, strict=True)) == dict(enumerate(adjusted(given_values)))


def test_the_correction_on_a_worked_example() -> None:
    assert adjusted([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert interval_level([0.01, 0.04, 0.03, 0.005], 0.05) == 0.05, "all are decided: none needs a wider interval"
    assert interval_level([0.01, 0.9, 0.8, 0.7], 0.05) == 0.05 / 4
    assert interval_level([0.9, 0.8], 0.05) == 0.05 / 2, "none is decided, nor by these intervals"
    assert adjusted([]) == [] and interval_level([], 0.05) == 0.05


@given(chances)
def test_scipy_finds_the_same(given_values: list[float]) -> None:
    assert adjusted(given_values) == pytest.approx(stats.false_discovery_control(given_values), abs=1e-12)


@given(st.lists(values, min_size=1, max_size=12), st.floats(0.01, 20), numbers)
def test_many_verdicts_are_those_of_the_intervals_that_are_shown(
    samples: list[list[float]], margin: float, centre: float
) -> None:
    bands = (within(margin, centre), above(centre), Band(high=centre), above(centre, centre + margin))
    claims = [(estimate(sample, resolution=1e-3), bands[at % 4]) for at, sample in enumerate(samples)]
    for (found, band), judgement in zip(claims, judged(claims), strict=True):
        low, high = found.interval(judgement.confidence)
        if min(abs(end - limit) for end in (low, high) for limit in (band.low, band.high, band.fails_below)) < 1e-9:
            continue  # on the edge within rounding
        expected = "undecided"
        if band.low < low and high < band.high:
            expected = "reproduced"
        elif high < band.fails_below or low > band.high:
            expected = "contradicted"
        assert judgement.verdict == expected and 0.95 <= judgement.confidence < 1


def wrong_share(studies: int, rate: float, band_factor: float = 1.0) -> tuple[float, float]:
    """(share of wrong verdicts among those decided, verdicts decided per study) of simulated studies.

    Ten graphs; on each, four methods against the same runs of one device, each judged three times: whether it is
    behind, the same with a smallest difference that counts, and whether by as much as printed. Truths lie on an edge of
    the band, where the claim neither holds nor fails so that
    any verdict is wrong, or far away, where one is right.

    Args:
        band_factor: of the size that is judged; with another than 1 a band that is not the claim's is judged.
    """
    rng, shares, counts = np.random.default_rng(3), [], []
    for _ in range(studies):
        claims: list[tuple[Estimate, Band]] = []
        right: list[str] = []
        for graph in range(10):
            device = rng.normal(size=5)  # shared by all claims of the graph
            for method in range(4):
                printed, least = 2.0, 0.5
                truth = 0.0 if method < 3 else (1.0 if graph % 2 else 9.0)  # 1.0: the size's lower edge
                found = estimate((device - rng.normal(size=5) + truth).tolist())
                size = within(printed / 2 * band_factor, printed)
                claims += [(found, above()), (found, above(least=least)), (found, size)]
                right += ["none" if truth == 0 else "reproduced", "contradicted" if truth == 0 else "reproduced"]
                right += ["none" if truth == 1 else "contradicted"]
        verdicts = [one.verdict for one in judged(claims, rate)]
        decided = [(one, other) for one, other in zip(verdicts, right, strict=True) if one != "undecided"]
        wrong = sum(one != other for one, other in decided)
        shares.append(wrong / max(len(decided), 1))
        counts.append(len(decided))
    return float(np.mean(shares)), float(np.mean(counts))


def test_of_the_decided_claims_at_most_one_in_twenty_is_wrong() -> None:
    share, decided = wrong_share(150, 0.05)
    assert share <= 0.05 and decided > 8, "few are wrong, and not because few are decided"


def test_the_simulation_sees_a_wrong_rate_and_a_wrong_band() -> None:
    assert wrong_share(150, 0.5)[0] > 0.05, "a rate ten times as high"
    assert wrong_share(150, 0.05, band_factor=4.0)[0] > 0.05, "a band four times as wide as the claim's"


@pytest.mark.parametrize(
    ("band", "truth"), [(above(), 0.8), (within(2.0, 1.0), 1.0), (above(-0.5), 0.0), (within(0.3), 0.0)]
)
def test_power_is_the_rate_of_reproduced_claims(band: Band, truth: float) -> None:
    rng = np.random.default_rng(1)
    samples = rng.normal(truth, 1.0, (4000, 8))
    found = [verdict(estimate(sample.tolist()), band) == "reproduced" for sample in samples]
    assert power(truth, 1.0, 8, band) == pytest.approx(np.mean(found), abs=0.025)


@given(st.floats(0.1, 3), st.floats(0.2, 3), st.integers(2, 30))
def test_power_grows_with_seeds_and_effect(truth: float, deviation: float, count: int) -> None:
    mine = power(truth, deviation, count, above())
    assert power(truth, deviation, count + 3, above()) >= mine - 2e-3
    assert power(truth + 0.5, deviation, count, above()) >= mine - 1e-12
    assert power(truth, deviation, count, above(), level=0.005) <= mine + 1e-12


def test_power_without_noise_or_seeds() -> None:
    assert power(1.0, 0.0, 5, above()) == 1.0 and power(-1.0, 0.0, 5, above()) == 0.0
    assert power(1.0, 1.0, 1, above()) == 0.0


@given(st.floats(0.01, 5), st.floats(0.05, 10))
def test_the_seeds_needed_are_the_fewest(deviation: float, width: float) -> None:
    count = seeds_needed(deviation, width)
    wide = 2 * Estimate(0.0, deviation, count).half_width()
    assert wide <= width or count == 10_000
    if count > FEWEST_SEEDS:
        assert 2 * Estimate(0.0, deviation, count - 1).half_width() > width


def test_seeds_are_added_until_the_interval_is_narrow_or_cannot_be() -> None:
    assert more_seeds(None, 1.0, 10) == FEWEST_SEEDS and more_seeds(None, 1.0, FEWEST_SEEDS - 1) is None
    assert more_seeds(Estimate(3.0, 1.0, 3), 1.0, 10) == FEWEST_SEEDS - 3
    narrow, wide = Estimate(3.0, 0.1, 5), Estimate(3.0, 1.0, 5)
    assert more_seeds(narrow, 0.5, 10) == 0
    assert more_seeds(wide, 1.5, 100) == min(5, seeds_needed(1.0, 1.5) - 5)
    assert more_seeds(wide, 0.01, 0) is None, "no more can be had"
    assert more_seeds(wide, 0.01, 3) == 3
    assert more_seeds(wide, 0.01, 10**6) == 5, "never more at a time than there are"


def test_adding_seeds_by_width_keeps_the_rate_of_errors() -> None:
    """A claim that is false by nothing is decided in one of twenty sequential studies, as in one of fixed size."""
    rng = np.random.default_rng(2)
    decided, studies = 0, 400
    for _ in range(studies):
        sample = rng.normal(size=FEWEST_SEEDS).tolist()
        while more := more_seeds(estimate(sample), 1.5, 40 - len(sample)):
            sample += rng.normal(size=more).tolist()
        decided += verdict(estimate(sample), above()) != "undecided"
    assert 0.02 < decided / studies < 0.09
