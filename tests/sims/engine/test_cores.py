"""Shared cores: turns on a core, ranks that awake take one over, idle cores take jobs over, total work bounded by the
cores, shares freed by ranks that leave."""

from __future__ import annotations

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.idle_core import delays
from sims.device import LiveMemory
from sims.engine import SimClock
from sims.engine._cores import CoreJob, Cores, Turns

TURNS = Turns(tick=4.0, kept=1.5)
JOBS = st.lists(st.tuples(st.floats(0, 10), st.floats(0.01, 10)), min_size=1, max_size=8)


def ends(jobs: list[tuple[float, float]], number: int, width: int, turns: Turns | None = None) -> list[float]:
    """When each (start, seconds) ends."""
    env = simpy.Environment()
    cores, found = Cores(env, number, width, turns), [0.0] * len(jobs)

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
    """Work shorter than a slice runs undivided, and who comes meanwhile waits; long work changes places at ticks."""
    assert ends([(0.0, 1.0), (0.0, 1.0)], 1, 1, TURNS) == pytest.approx([1.0, 2.0])
    assert ends([(0.0, 9.0), (1.0, 1.0)], 1, 1, TURNS) == pytest.approx([10.0, 5.0])
    assert ends([(0.0, 6.0), (0.0, 6.0)], 1, 1, TURNS) == pytest.approx([10.0, 12.0])
    assert ends([(0.0, 9.0), (0.0, 9.0), (0.0, 9.0)], 2, 1, TURNS) == pytest.approx([13.0, 9.0, 17.0]), "one moves"


def test_an_idle_core_takes_over_who_waits_at_the_next_tick() -> None:
    """The second job ends at 2, when the third waits for the first; at 4 the first has had its slice and moves."""
    three = [(0.0, 9.0), (0.0, 2.0), (0.0, 9.0)]
    assert ends(three, 2, 1, TURNS) == pytest.approx([9.0, 2.0, 13.0])
    assert ends([*three, (3.0, 0.5)], 2, 1, TURNS) == pytest.approx([9.0, 2.0, 13.0, 3.5]), "work of its own first"
    assert ends([*three, (3.0, 2.0)], 2, 1, TURNS) == pytest.approx([13.0, 2.0, 13.0, 5.0]), "busy at 4, idle at 8"
    assert ends(three, 2, 1) == pytest.approx([10.0, 2.0, 10.0]), "at once where jobs take no turns: 9 and 9 of 18"


def test_measured_delays_are_of_those_who_wait_at_another_core() -> None:
    """Begin, end and core of gaps in which others did not run, when one goes to sleep on a core."""
    gaps = [(0.5, 1.3, 1), (1.8, 2.4, 0), (2.9, 3.1, 0), (2.8, 3.4, 0)]
    assert delays([(1.0, 0)], gaps) == pytest.approx([0.3]), "the idle core 0 takes it over"
    assert not len(delays([(2.0, 0)], gaps)), "it waited at this core, and has it now"
    assert delays([(3.0, 1), (5.0, 1)], gaps) == pytest.approx([0.1]), "the first of two; nobody waited at 5"


def test_ticks_are_those_of_the_clock() -> None:
    assert ends([(2.0, 6.0), (2.0, 1.0)], 1, 1, TURNS) == pytest.approx([9.0, 5.0]), "after 2 seconds"
    assert ends([(3.0, 6.0), (3.0, 1.0)], 1, 1, TURNS) == pytest.approx([10.0, 9.0]), "at 4 its slice is not over"


def test_who_awakes_takes_the_core_from_one_that_has_had_its_slice() -> None:
    assert ends([(0.0, 9.0), (1.4, 1.0)], 1, 1, TURNS) == pytest.approx([10.0, 5.0]), "too early: waits for a tick"
    assert ends([(0.0, 9.0), (1.5, 1.0)], 1, 1, TURNS) == pytest.approx([10.0, 2.5])
    assert ends([(0.0, 9.0), (6.0, 1.0)], 1, 1, TURNS) == pytest.approx([10.0, 7.0])
    assert ends([(0.0, 9.0), (2.0, 1.0), (2.5, 1.0)], 1, 1, TURNS) == pytest.approx([11.0, 3.0, 9.0]), "who ran less"
    assert ends([(0.0, 9.0), (3.0, 6.0)], 1, 1, TURNS) == pytest.approx([14.0, 15.0]), "until it has had more"


def test_the_slice_grows_with_the_machine() -> None:
    assert [Turns.of(cores).kept for cores in (0.5, 1, 2, 3, 8, 64)] == pytest.approx(
        [0.7e-3, 0.7e-3, 1.4e-3, 1.4e-3, 2.8e-3, 2.8e-3]
    )


def test_when_a_job_first_ran() -> None:
    env = simpy.Environment()
    cores = Cores(env, 1, 1, TURNS)
    first, second = cores.job(9.0), cores.job(1.0)
    env.run(second)
    assert (first.begun, second.begun, env.now) == (0.0, 4.0, 5.0)
    third = cores.job(1.0)
    assert cores.leave(third) == 1.0 and third.begun is None, "the first has just gone on"
    assert cores.leave(first) == pytest.approx(5.0)


@pytest.mark.parametrize(("at", "codec", "compute"), [(2.0, 2.0, 7.0), (7.5, 3.0, 6.0), (20.0, 2.0, 6.0)])
def test_a_pause_belongs_to_the_component_that_ran(at: float, codec: float, compute: float) -> None:
    """One that decodes, computes and encodes loses its core for a second to a rank that awakes."""
    env = simpy.Environment()
    cores = Cores(env, 1, 1, TURNS)
    clock = SimClock(env, LiveMemory(), cores=cores)
    clock.begin_epoch()
    for kind, seconds in (("codec", 1.0), ("compute", 6.0), ("codec", 1.0)):
        with clock.span(kind):
            clock.charge(seconds)

    def other() -> simpy.events.ProcessGenerator:
        yield env.timeout(at)
        yield cores.job(1.0)

    found = []

    def rank() -> simpy.events.ProcessGenerator:
        found.append((yield from clock.work(clock.take_pending())))

    env.process(rank())
    env.process(other())
    env.run()
    (waited, taken), seconds = found[0], clock.end_epoch()
    assert waited == 0 and taken == pytest.approx({"codec": codec, "compute": compute})
    assert (seconds["codec"], seconds["compute"]) == pytest.approx((codec, compute))


@given(
    jobs=st.lists(st.floats(20, 40), min_size=2, max_size=4),
    tick=st.floats(0.1, 1.0),
    kept=st.floats(0.0, 1.0),
    until=st.floats(5, 40),
)
def test_a_core_is_shared_fairly(jobs: list[float], tick: float, kept: float, until: float) -> None:
    """Of jobs that go on, none has had more than a turn more than another, and all of them what the core has given."""
    env = simpy.Environment()
    cores = Cores(env, 1, 1, Turns(tick, kept))
    running = [cores.job(seconds) for seconds in jobs]
    env.run(until)
    served = [seconds - left for seconds, left in zip(jobs, _left(cores, running), strict=True)]
    assert sum(served) == pytest.approx(min(until, sum(jobs)))
    if until < min(jobs):
        assert max(served) - min(served) <= kept + tick + 1e-6


def _left(cores: Cores, jobs: list[CoreJob]) -> list[float]:
    """What is left of jobs now."""
    return [0.0 if job.triggered else cores.leave(job) for job in jobs]


@given(
    jobs=JOBS,
    number=st.integers(1, 4),
    width=st.integers(1, 3),
    turns=st.sampled_from([None, Turns(0.3, 0.1), Turns(0.3, 0.5), TURNS, Turns(4.0, 0.0)]),
)
def test_no_core_is_used_twice_and_none_is_left_idle(
    jobs: list[tuple[float, float]], number: int, width: int, turns: Turns | None
) -> None:
    found = ends(jobs, number, width, turns)
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
