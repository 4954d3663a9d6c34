"""Oracle of the network: flows that share links max-min fairly, in rational arithmetic, from the definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class ExactFlow:
    """Bytes over a route of links, which begin at `start` and when all flows `after` have ended, and wait `latency`."""

    route: Sequence[int]
    nbytes: Fraction
    start: Fraction = Fraction(0)
    latency: Fraction = Fraction(0)
    after: Sequence[int] = ()


def exact_shares(capacity: Sequence[Fraction], routes: Sequence[Sequence[int]]) -> list[Fraction]:
    """Progressive filling: the link with the least left per flow freezes its flows, until all are frozen."""
    share: dict[int, Fraction] = {}
    left = list(capacity)
    crossed = [{flow for flow, route in enumerate(routes) if link in route} for link in range(len(capacity))]
    while any(crossed):
        least, link = min((left[link] / len(flows), link) for link, flows in enumerate(crossed) if flows)
        for flow in list(crossed[link]):
            share[flow] = least
            for other in routes[flow]:
                left[other] -= least
                crossed[other].discard(flow)
    return [share[flow] for flow in range(len(routes))]


def exact_finish(capacity: Sequence[Fraction], flows: Sequence[ExactFlow]) -> list[Fraction]:
    """When every flow ends, event by event; routes have links, and no flow follows itself."""
    left, finish, now = [flow.nbytes for flow in flows], dict[int, Fraction](), Fraction(0)
    while len(finish) < len(flows):
        ready = {
            number: max([flow.start, *(finish[other] for other in flow.after)]) + flow.latency
            for number, flow in enumerate(flows)
            if number not in finish and all(other in finish for other in flow.after)
        }
        ended = [number for number, time in ready.items() if time <= now and left[number] == 0]
        if ended:
            finish |= dict.fromkeys(ended, now)
            continue
        active = [number for number, time in ready.items() if time <= now]
        shares = exact_shares(capacity, [flows[number].route for number in active])
        ends = [left[number] / share for number, share in zip(active, shares, strict=True)]
        step = min([*ends, *(time - now for time in ready.values() if time > now)])
        for number, share in zip(active, shares, strict=True):
            left[number] -= share * step
        now += step
    return [finish[number] for number in range(len(flows))]
