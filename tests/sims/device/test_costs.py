"""Costs of operators: the fit recovers known costs, files store them, and devices use them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import InputError
from sims.device import OperatorCost, Work, fit_cost, load_device, save_device
from sims.device._costs import LEAST_ERROR, STEPS, UNTESTED
from sims.units import Quantity


def q(value: float) -> Quantity:
    return Quantity(value, "measured")


@given(
    call=st.floats(1e-6, 1e-4),
    byte=st.floats(1e-12, 1e-9),
    further=st.floats(0, 1e-9),
    seed=st.integers(0, 99),
)
def test_fit_finds_calls_and_bytes(call: float, byte: float, further: float, seed: int) -> None:
    made = OperatorCost(q(call), {STEPS[0]: q(byte), STEPS[1]: q(further)}, {}, q(0.01))
    sizes = np.unique(np.geomspace(64, 3e7, 25).astype(int)).tolist()
    noise = np.random.default_rng(seed)
    samples = {}
    for size in sizes:
        work = Work("copy", size, name="clone")
        samples[work] = [made.seconds(work) * f for f in (*noise.uniform(0.99, 1.01, 5).tolist(), 9.0)]  # an outlier
    found = fit_cost(samples)
    for work in samples:
        assert found.seconds(work) == pytest.approx(made.seconds(work), rel=0.05)
    assert found.error.value < 0.02
    assert found.call.value >= 0 and all(cost.value >= 0 for cost in found.bytes.values())


def timed(sizes: Iterable[int], factors: Sequence[float] = (1.0,)) -> dict[Work, list[float]]:
    """Calls of 1 us and 1 ns a byte, off by the factors in turn."""
    return {
        Work("copy", size, name="clone"): [(1e-6 + 1e-9 * size) * factors[at % len(factors)]]
        for at, size in enumerate(sizes)
    }


def test_a_fit_of_as_many_calls_as_terms_says_nothing_of_others() -> None:
    """It passes through the calls, however far these are off."""
    assert fit_cost(timed([1_000])).error.value == UNTESTED
    assert fit_cost(timed([1_000, 100_000], (1.2, 1.0))).error.value == UNTESTED
    many = fit_cost(timed([2**k for k in range(8, 18)]))
    assert many.error.value == LEAST_ERROR, "while calls of many sizes that it leaves nothing of say that it holds"


def test_calls_of_one_size_are_no_further_evidence() -> None:
    """A hundred shapes of two sizes tell two terms as two do."""
    close = [*range(1_000, 1_050), *range(100_000, 100_050)]
    assert fit_cost(timed(close)).error.value == UNTESTED


def test_what_few_calls_leave_counts_for_more() -> None:
    sizes, factors = [2**k for k in range(8, 24)], (0.9, 1.1)
    many = fit_cost(timed(sizes, factors)).error.value
    few = fit_cost(timed(sizes[:4], factors)).error.value
    assert 0.08 < many < 0.14 and few > many


@given(rates=st.lists(st.floats(1e-12, 1e-9), min_size=3, max_size=3))
def test_fit_tells_widths_apart(rates: list[float]) -> None:
    widths = (16, 64, 200)
    samples = {}
    for entries in (1_000, 20_000, 400_000):
        for width, rate in zip(widths, rates, strict=True):
            work = Work("spmm", entries * 4, entries=entries * width, width=width, name="sum")
            samples[work] = [2e-5 + entries * width * rate]
    found = fit_cost(samples)
    for work, (seconds,) in samples.items():
        assert found.seconds(work) == pytest.approx(seconds, rel=0.02)
    between = Work("spmm", 4_000, entries=1_000 * 32, width=32, name="sum")
    low, high = sorted((rates[0], rates[1]))
    floor = 2e-5 * 0.98
    assert floor + between.entries * low * 0.85 <= found.seconds(between) <= 2.1e-5 + between.entries * high * 1.1


def test_narrow_rows_cost_by_the_row() -> None:
    """Rows of 8 columns take ten times as long by the byte as those of 64: bytes alone cannot say so."""
    row = {8: 7e-8, 16: 1e-8, 64: 2e-8}

    def timed(lines: int, width: int) -> tuple[Work, float]:
        work = Work("reduction", 8 * lines * width, lines=lines, width=width, name="_log_softmax")
        return work, 5e-6 + work.nbytes * 1e-10 + lines * row[width]

    found = fit_cost({work: [s] for work, s in (timed(n, w) for n in (100, 2_000, 30_000) for w in row)})
    for width in row:
        work, seconds = timed(10_000, width)
        assert found.seconds(work) == pytest.approx(seconds, rel=0.02)


def test_widths_of_a_fit_are_timed_ones_that_lie_apart() -> None:
    """Two nodes that few samples tell apart would share the cost of a row at random."""
    calls = {16: 9, 17: 1, 18: 2, 48: 3, 50: 3, 160: 1}
    samples = {Work("gather", 4 * n * w, lines=n, width=w, name="index_select"): [1e-5 + n * w * 1e-9] * count
               for w, count in calls.items() for n in (100, 3_000)}  # fmt: skip
    assert set(fit_cost(samples).work) == {16, 48, 160}


def test_calls_that_scatter_are_not_fitted_too_low() -> None:
    """Log-normal times around 1 ns a byte: the median comes out, where errors of the measured alone lose 40 %."""
    noise = np.random.default_rng(5).normal(0.0, 0.6, 400)
    sizes = np.geomspace(1e5, 2.5e5, len(noise)).astype(int).tolist()
    samples = {Work("copy", size, name="clone"): [size * 1e-9 * float(np.exp(z))]
               for size, z in zip(sizes, noise, strict=True)}  # fmt: skip
    cost = fit_cost(samples)
    assert cost.seconds(Work("copy", 200_000, name="clone")) == pytest.approx(2e-4, rel=0.1)


def test_steps_that_no_call_reached_cost_nothing() -> None:
    small = fit_cost({Work("copy", size, name="clone"): [1e-5 + size * 1e-10] for size in (100, 10_000, 200_000)})
    assert set(small.bytes) == {STEPS[0]}


def test_devices_keep_costs_and_use_them(tmp_path: Path) -> None:
    plain = load_device("cpu-epyc-1core")
    cost = OperatorCost(q(3e-6), {1: q(2e-11), 1 << 18: q(1e-11)}, {16: q(1e-10), 64: q(2e-10)}, q(0.07))
    profile = replace(plain, operators={"haloscope::gather_sum": cost, "add": replace(cost, work={})})
    save_device(profile, tmp_path / "made.toml")
    assert load_device(tmp_path / "made.toml") == profile
    work = Work("spmm", 1_000, entries=6_400, width=64, name="haloscope::gather_sum")
    assert profile.seconds(work) == pytest.approx(plain.launch.value + 3e-6 + 1_000 * 2e-11 + 6_400 * 2e-10)
    assert profile.seconds(replace(work, name="other")) == plain.seconds(work)  # by its class
    added = profile.seconds(Work("elementwise", 2**19, name="add")) - plain.launch.value
    in_place = profile.seconds(Work("elementwise", 2**19, name="add_"))  # never timed in place
    assert in_place == added + plain.launch.value
    assert added == pytest.approx(3e-6 + 2**19 * 2e-11 + (2**18 + 1) * 1e-11)


def test_what_python_and_memory_take_is_added(tmp_path: Path) -> None:
    plain = load_device("cpu-epyc-1core")
    profile = replace(plain, release=q(2e10), effect=q(1e-4))
    save_device(profile, tmp_path / "made.toml")
    assert load_device(tmp_path / "made.toml") == profile
    work = Work("copy", 1_000, fresh=500)
    assert profile.seconds(work) - plain.seconds(work) == pytest.approx(500 / 2e10)


def test_costs_that_are_only_rounding_are_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Non-negative least squares may leave 1e-24 where a term is worth nothing; files hold no such number."""
    monkeypatch.setattr("scipy.optimize.nnls", lambda design, _: (np.full(design.shape[1], 1e-26), 0.0))
    sizes = (100, 10_000, 500_000)
    cost = fit_cost({Work("copy", size, name="clone"): [1e-5] for size in sizes})
    assert cost.call.value == 0 and set(cost.bytes.values()) == {q(0.0)}
    save_device(replace(load_device("cpu-epyc-1core"), operators={"clone": cost}), tmp_path / "made.toml")
    assert load_device(tmp_path / "made.toml").operators["clone"] == cost


def test_a_misspelt_key_of_an_operator_is_refused(tmp_path: Path) -> None:
    profile = replace(load_device("cpu-epyc-1core"), operators={"add": OperatorCost(q(1e-6), {}, {}, q(0.1))})
    path = tmp_path / "made.toml"
    save_device(profile, path)
    path.write_text(path.read_text().replace("error = ", "eror = "))
    with pytest.raises(InputError, match=r"operators\.add"):
        load_device(path)


def test_many_small_shapes_do_not_outvote_large_ones() -> None:
    """Small shapes cost twice as much by the byte as large ones, and are eighty times as many."""
    samples = {Work("copy", size, name="clone"): [size * 1e-10] * 4 for size in range(40_000, 60_000, 50)}
    large = (200_000, 800_000, 3_000_000, 8_000_000, 30_000_000)
    samples |= {Work("copy", size, name="clone"): [size * 5e-11] * 4 for size in large}
    found = fit_cost(samples)
    for size in large:
        assert found.seconds(Work("copy", size)) == pytest.approx(size * 5e-11, rel=0.05)


def test_new_memory_costs_beside_its_bytes() -> None:
    """Sums of a matrix and a row read half of what those of two matrices do, and write as much."""
    samples = {}
    for rows in (1_000, 9_000, 80_000):
        for read in (1, 2):
            work = Work("elementwise", 256 * rows * (read + 1), fresh=256 * rows, name="add")
            samples[work] = [4e-6 + work.nbytes * 3e-11 + work.fresh * 9e-11]
    found = fit_cost(samples)
    assert found.new.value == pytest.approx(9e-11, rel=0.05)
    for work, (seconds,) in samples.items():
        assert found.seconds(work) == pytest.approx(seconds, rel=0.02)
