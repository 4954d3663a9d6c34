"""Shared cores: turns on a core, idle cores take jobs over, total work bounded by the cores, shares freed by ranks that
leave."""

from __future__ import annotations

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from sims.engine._cores import Cores

JOBS = st.lists(st.tuples(st.floats(0, 10), st.floats(0.01, 10)), min_size=1, max_size=8)


def ends(jobs: list[tuple[float, float]], number: int, width: int, turn: float = 0.0) -> list[float]:
    """When each (start, seconds) ends."""
    env = simpy.Environment()
    cores, found = Cores(env, number, width, turn), [0.0] * len(jobs)

    def run(at: int, start: float, seconds: float) -> simpy.events.ProcessGenerator:
        yield env.timeout(start)
        yield cores.job(seconds)
        found[at] = env.now

    for at, (start, seconds) in enumerate(jobs):
        env.process(run(at, start, seconds))
    env.run()
    return found


def test_alone_nothing_waits() -> None:
    assert ends([(1.0, 2.0)], 1, 1) == pytest.approx([3.0])
    assert ends([(0.0, 2.0), (0.0, 1.0)], 2, 1) == pytest.approx([2.0, 1.0])


def test_three_on_two_cores() -> None:
    """One is alone and ends early; the idle core takes over one of the other two, which were at half speed."""
    assert ends([(0.0, 3.0), (0.0, 3.0), (0.0, 3.0)], 2, 1) == pytest.approx([4.5, 3.0, 4.5])
    assert ends([(0.0, 1.0), (0.0, 2.0), (0.0, 3.0)], 2, 1) == pytest.approx([2.0, 2.0, 4.0])


def test_more_jobs_on_one_core_take_turns() -> None:
    assert ends([(0.0, 1.0), (0.0, 2.0), (0.0, 3.0)], 1, 1) == pytest.approx([3.0, 5.0, 6.0])


def test_a_job_that_wants_more_cores_than_there_are() -> None:
    assert ends([(0.0, 1.0)], 1, 2) == pytest.approx([2.0])


def test_turns() -> None:
    """What is shorter than a turn runs undivided; who comes second waits for the first, and long work takes turns."""
    assert ends([(0.0, 1.0), (0.0, 1.0)], 1, 1, turn=4.0) == pytest.approx([1.0, 2.0])
    assert ends([(0.0, 9.0), (1.0, 1.0)], 1, 1, turn=4.0) == pytest.approx([10.0, 5.0])
    assert ends([(0.0, 6.0), (0.0, 6.0)], 1, 1, turn=4.0) == pytest.approx([10.0, 12.0])
    assert ends([(0.0, 9.0), (0.0, 9.0), (0.0, 9.0)], 2, 1, turn=4.0) == pytest.approx([13.0, 9.0, 14.0]), "one moves"


def test_who_comes_when_a_turn_is_over_begins_at_once() -> None:
    assert ends([(0.0, 9.0), (6.0, 1.0)], 1, 1, turn=4.0) == pytest.approx([10.0, 7.0])


def test_when_a_job_first_ran() -> None:
    env = simpy.Environment()
    cores = Cores(env, 1, 1, turn=4.0)
    first, second = cores.job(9.0), cores.job(1.0)
    env.run(second)
    assert (first.begun, second.begun, env.now) == (0.0, 4.0, 5.0)
    third = cores.job(1.0)
    assert cores.leave(third) == 1.0 and third.begun is None
    assert cores.leave(first) == pytest.approx(5.0)


@given(jobs=JOBS, number=st.integers(1, 4), width=st.integers(1, 3), turn=st.sampled_from([0.0, 0.3, 4.0]))
def test_no_core_is_used_twice_and_none_is_left_idle(
    jobs: list[tuple[float, float]], number: int, width: int, turn: float
) -> None:
    found = ends(jobs, number, width, turn)
    pace = min(1.0, number / width)
    for (start, seconds), end in zip(jobs, found, strict=True):
        assert end - start >= seconds / pace * (1 - 1e-9)
        assert end - start <= sum(s for _, s in jobs) / pace * (1 + 1e-9)
    begin, last = min(start for start, _ in jobs), max(found)
    assert (last - begin) * number >= sum(s for _, s in jobs) * min(width, number) * (1 - 1e-9)
    if number >= width * len(jobs):
        assert found == pytest.approx([start + seconds for start, seconds in jobs])


def test_leaving_gives_back_what_is_left() -> None:
    env = simpy.Environment()
    cores, left, end = Cores(env, 1, 1), [], []

    def leaver() -> simpy.events.ProcessGenerator:
        job = cores.job(5.0)
        yield env.timeout(4.0)  # two seconds of work, beside the other
        left.append(cores.leave(job))

    def stayer() -> simpy.events.ProcessGenerator:
        yield cores.job(3.0)
        end.append(env.now)

    env.process(leaver())
    env.process(stayer())
    env.run()
    assert left == pytest.approx([3.0])
    assert end == pytest.approx([5.0])
