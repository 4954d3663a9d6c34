"""Names of labs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.config import PAYLOAD_SHARE, LabSpec, burst, is_lab, parse_lab, segment
from harness.config._lab import MOST_HOSTS
from harness.errors import InputError

RATES = st.one_of(
    st.none(),
    st.integers(1, 100_000).map(lambda mbit: mbit * 1e6 / 8),
    st.sampled_from([0.3e9, 2.5e9]).map(lambda b: b / 8),
)
SPECS = st.builds(
    LabSpec,
    st.lists(RATES, min_size=1, max_size=8).map(tuple),
    st.sampled_from([0.0, 1e-6, 250e-6, 1e-3, 2.5e-3, 1.0]),
    st.integers(1, 8),
    st.sampled_from(["", "folder/of.numbers"]),
)


def test_equal_hosts() -> None:
    spec = parse_lab("lab:3x1gbit")
    assert (spec.rates, spec.delay, spec.ranks_per_host) == ((125e6, 125e6, 125e6), 0.0, 1)
    assert (spec.hosts, spec.ranks, spec.name) == (3, 3, "lab:3x1gbit")


def test_hosts_may_differ_and_take_several_ranks() -> None:
    spec = parse_lab("lab:1gbit,1GBIT,100mbit:ranks=2:delay=1ms")
    assert spec.rates == (125e6, 125e6, 12.5e6)
    assert spec.name == "lab:2x1gbit,100mbit:ranks=2:delay=1ms"
    assert [spec.host_of(rank) for rank in range(spec.ranks)] == [0, 0, 1, 1, 2, 2]
    assert spec.delay == pytest.approx(1e-3)
    assert spec.rate_between(0, 1) == 125e6
    assert spec.rate_between(0, 2) == spec.rate_between(2, 0) == 12.5e6


def test_unshaped_hosts() -> None:
    spec = parse_lab("lab:2xunshaped,1gbit:calibration=here")
    assert spec.rates == (None, None, 125e6)
    assert (spec.rate_between(0, 1), spec.rate_between(0, 2)) == (None, 125e6)
    assert spec.calibration == "here"


@given(SPECS)
def test_a_name_is_read_as_the_same_lab(spec: LabSpec) -> None:
    again = parse_lab(spec.name)
    assert again.name == spec.name
    assert (again.ranks_per_host, again.calibration) == (spec.ranks_per_host, spec.calibration)
    assert math.isclose(again.delay, spec.delay, rel_tol=1e-9)
    for mine, theirs in zip(spec.rates, again.rates, strict=True):
        assert (mine is None and theirs is None) or math.isclose(mine or 0, theirs or 0, rel_tol=1e-9)


@given(SPECS)
def test_ranks_fill_one_host_after_the_other(spec: LabSpec) -> None:
    hosts = [spec.host_of(rank) for rank in range(spec.ranks)]
    assert hosts == sorted(hosts)
    assert all(hosts.count(host) == spec.ranks_per_host for host in range(spec.hosts))


@given(st.text(alphabet="lab:x0123456789,=.gmbitunshapedrk ", max_size=30))
def test_any_text_is_a_lab_or_an_input_error(text: str) -> None:
    try:
        spec = parse_lab("lab:" + text)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert 1 <= spec.hosts <= MOST_HOSTS


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("local", "is no lab"),
        ("lab:", "'' is no link"),
        ("lab:3x1gbt", "'3x1gbt' is no link"),
        ("lab:3x", "no link"),
        ("lab:0x1gbit", "0 hosts"),
        ("lab:65x1gbit", "65 hosts"),
        ("lab:40x1gbit,40x1gbit", "80 hosts are too many"),
        ("lab:3x0.1mbit", "out of range"),
        ("lab:3x1tbit", "no link"),
        ("lab:3x1gbit:rank=2", "did you mean 'ranks'"),
        ("lab:3x1gbit:ranks=0", "ranks=0"),
        ("lab:3x1gbit:ranks", "ranks needs one value, e.g. ranks=2"),
        ("lab:3x1gbit:ranks=2:ranks=2", "ranks needs one value"),
        ("lab:60x1gbit:ranks=60", "3600 ranks are too many"),
        ("lab:3x1gbit:delay=1", "delay=1 must be a time"),
        ("lab:3x1gbit:delay=11s", "at most 10 s"),
    ],
)
def test_errors_name_the_word(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_lab(text)


def test_only_the_prefix_makes_a_lab() -> None:
    assert is_lab("lab:3x1gbit") and not is_lab("labour") and not is_lab("local")


def test_depth_of_the_token_bucket_holds_a_segment_and_little_more() -> None:
    for rate in (125e3, 12.5e6, 125e6, 1.25e9, 12.5e9):
        assert segment(rate) <= burst(rate) <= segment(rate) + rate * 1e-3
        assert 4096 <= segment(rate) <= 65536
    assert PAYLOAD_SHARE == 1448 / 1514
