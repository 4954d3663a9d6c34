"""What a core computes longer after it has idled: the rule itself, and the epochs of ranks that wait."""

from __future__ import annotations

from dataclasses import replace

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from sims.device import DeviceProfile, LiveMemory, load_device
from sims.engine._clock import SimClock
from sims.engine._cores import Cores
from sims.engine._idle_core import IdleCore
from sims.units import fitted

WAITS = {2: 0.2e-3, 10: 0.8e-3, 300: 4e-3}


def device(factor: float = 5.0) -> DeviceProfile:
    idle = {wait: fitted(seconds) for wait, seconds in WAITS.items()}
    return replace(load_device("cpu-epyc-1core"), idle=idle, idle_factor=fitted(factor))


SECONDS = st.floats(1e-6, 1.0)


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=8))
def test_no_work_takes_longer_than_the_factor_and_no_wait_costs_more_than_what_was_measured(
    turns: list[tuple[float, float]],
) -> None:
    core = IdleCore(device())
    for wait, work in turns:
        core.idled(wait)
        before = core.behind
        more = core.longer(work)
        assert 0 <= more <= min(4 * work, before) * (1 + 1e-9)
        assert core.behind == pytest.approx(before - more)
        assert before <= max(WAITS.values())


@given(SECONDS, SECONDS, SECONDS)
def test_work_takes_as_much_longer_in_two_pieces_as_in_one(wait: float, first: float, second: float) -> None:
    whole, pieces = IdleCore(device()), IdleCore(device())
    whole.idled(wait)
    pieces.idled(wait)
    in_two = pieces.longer(first) + pieces.longer(second)
    assert in_two == pytest.approx(whole.longer(first + second))


@pytest.mark.parametrize(
    ("wait", "lost"), [(0.0, 0.0), (1e-3, 0.1e-3), (2e-3, 0.2e-3), (10e-3, 0.8e-3), (0.3, 4e-3), (9.0, 4e-3)]
)
def test_what_is_lost_grows_with_the_wait_up_to_the_longest_that_was_measured(wait: float, lost: float) -> None:
    core = IdleCore(device())
    core.idled(wait)
    assert core.behind == pytest.approx(lost)


def test_between_two_waits_what_is_lost_is_interpolated_in_the_logarithm() -> None:
    core = IdleCore(device())
    core.idled((2e-3 * 10e-3) ** 0.5)
    assert core.behind == pytest.approx(0.5e-3)


def test_a_rank_computes_longer_after_it_has_waited_and_books_it_as_compute() -> None:
    env = simpy.Environment()
    clock = SimClock(env, LiveMemory(), own=IdleCore(device()))
    clock.begin_epoch()

    def rank() -> simpy.events.ProcessGenerator:
        for wait in (0.0, 0.3):
            yield env.timeout(wait)
            clock.block("halo", "rows", wait)
            clock.charge(0.1)
            yield from clock.work(clock.take_pending())

    env.process(rank())
    env.run()
    seconds = clock.end_epoch()
    assert seconds["compute"] == pytest.approx(0.2 + 4e-3)
    assert seconds["epoch"] == pytest.approx(env.now)


def test_cores_that_ranks_share_have_idled_only_while_none_of_them_computed() -> None:
    env, ends = simpy.Environment(), []
    cores = Cores(env, 1, 1, profile=device())

    def rank(at: float, seconds: float) -> simpy.events.ProcessGenerator:
        yield env.timeout(at)
        yield cores.job(seconds)
        ends.append(env.now - at)

    for at in (0.0, 0.1, 0.5):  # the second begins as the first ends; the third after 0.3 s
        env.process(rank(at, 0.1))
    env.run()
    assert ends == pytest.approx([0.1, 0.1, 0.1 + 4e-3])


def test_the_program_takes_its_constant_once_an_epoch() -> None:
    clock = SimClock(simpy.Environment(), LiveMemory(), step_s=2e-3)
    clock.begin_epoch()
    clock.charge(1e-3)
    assert clock.end_epoch()["compute"] == pytest.approx(3e-3)
    clock.begin_epoch()
    assert clock.end_epoch()["compute"] == pytest.approx(2e-3)
