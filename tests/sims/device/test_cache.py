"""Rows of neighbour sums that a GPU's cache holds: shares that miss, and the prices that follow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sims.device import EVEN, CountedRates, GammaRates, Work, load_device

GPU = load_device("rtx-3090")


def summed(width: int = 128, rows: int = 100_000, reads: int = 10_000_000) -> Work:
    """A neighbour sum without the writing of its result."""
    return Work("spmm", entries=reads * width, width=width, rows=rows, row_bytes=4 * width)


def test_counted_rates_agree_with_the_closed_form_of_gamma_rates() -> None:
    """Quantiles of a gamma distribution with coefficient of variation 1.5."""
    rates = np.sort(np.random.Generator(np.random.Philox(0)).gamma(1 / 1.5**2, size=20_000))
    counted, closed = CountedRates(rates, np.ones(len(rates))), GammaRates(1.5)
    for kept in (0.02, 0.1, 0.3, 0.7):
        assert counted.missed(kept) == pytest.approx(closed.missed(kept), rel=0.05)


@pytest.mark.parametrize("law", [EVEN, GammaRates(2.0), CountedRates([1, 5], [3, 1])])
def test_a_larger_cache_misses_less(law: GammaRates | CountedRates) -> None:
    missed = [law.missed(kept) for kept in (0.0, 0.1, 0.5, 0.9, 1.0)]
    assert missed[0] == pytest.approx(1.0) and missed[-1] == 0.0
    assert missed == sorted(missed, reverse=True)


def test_hot_rows_are_found_more_often() -> None:
    assert EVEN.missed(0.1) == pytest.approx(0.9)
    assert CountedRates([1.0], [7]).missed(0.1) == pytest.approx(0.9)
    assert GammaRates(1.5).missed(0.1) == pytest.approx(0.9 ** (1 + 1.5**2))


def test_the_first_read_of_a_row_always_misses() -> None:
    assert GPU.cache is not None
    assert GPU.cache.missed(summed(rows=1_000, reads=5_000), EVEN) == pytest.approx(0.2)


def test_wide_rows_go_through_the_cache_in_turns() -> None:
    assert GPU.cache is not None
    wide, narrow = (GPU.cache.missed(summed(width), GammaRates(1.5)) for width in (512, 128))
    assert wide == pytest.approx(narrow)
    assert GPU.cache.missed(summed(64), GammaRates(1.5)) < 0.7 * narrow


def test_a_cached_row_is_cheaper_and_never_dearer() -> None:
    plain = replace(GPU, cache=None)
    for width in (32, 128, 512):
        small, large = summed(width, rows=1_000), summed(width, rows=10**8)
        assert GPU.seconds(small) < 0.7 * plain.seconds(small)
        assert GPU.seconds(large) == pytest.approx(plain.seconds(large), rel=1e-3)
        assert GPU.seconds(summed(width), GammaRates(1.5)) < GPU.seconds(summed(width))


def test_profiles_of_measured_devices_have_no_cache() -> None:
    """Their prices were measured with whatever their caches did."""
    for name in ("cpu-epyc-1core", "cpu-epyc-2core", "h100-80gb", "h100-80gb-vm"):
        profile = load_device(name)
        assert profile.cache is None
        assert profile.seconds(summed(), GammaRates(1.5)) == profile.seconds(replace(summed(), rows=0, row_bytes=0))
