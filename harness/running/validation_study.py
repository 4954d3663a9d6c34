"""The cells of `haloscope validate --study`, by a rule that spreads the methods over links, hosts, models and parts.

In round r the i-th place trains the (i + r)-th workload with `vanilla`, which the order of methods is judged against,
and with the next `EACH` methods in turn that take the workload. So every prefix of the study mixes all kinds of links
and numbers of hosts, and a method comes back on other links with another model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from harness.config import RunConfig
from harness.errors import InputError
from harness.graphs import Totals
from harness.methods.registry import parse_method, typical_methods
from harness.nn import build_model
from harness.running import validation


class StudyPlace(NamedTuple):
    """A lab and the number of ranks in it."""

    cluster: str
    ranks: int


PLACES = (
    StudyPlace("lab:2xunshaped", 2),
    StudyPlace("lab:3x1gbit", 3),
    StudyPlace("lab:2x1gbit", 2),
    StudyPlace("lab:4xunshaped", 4),
    StudyPlace("lab:2x100mbit", 2),
    StudyPlace("lab:2x1gbit:ranks=2", 3),  # two ranks on one host, one on the other
    StudyPlace("lab:2x10gbit", 2),
    StudyPlace("lab:2x1gbit,100mbit", 3),  # one slow link among fast ones
    StudyPlace("lab:4x1gbit", 4),
    StudyPlace("lab:3xunshaped", 3),
)
"""Labs of 2, 3 and 4 hosts; neighbours in this order differ in links and hosts."""

ROUNDS, EACH = 4, 2
"""Rounds: every place trains every workload once. Methods beside `vanilla` of a place and round."""


def study_rounds(base: RunConfig, places: Sequence[StudyPlace] = PLACES, rounds: int = ROUNDS) -> list[list[RunConfig]]:
    """The real runs of the study's cells, round by round, in the order in which they are measured.

    Args:
        base: settings that all cells share; one thread a rank.
    """
    names, waiting = list(validation.WORKLOADS), list[str]()  # waiting: passed over, as they do not take a workload
    following, found = _in_turn(), list[list[RunConfig]]()
    for number in range(rounds):
        found.append([])
        for at, place in enumerate(places):
            values = validation.WORKLOADS[names[(at + number) % len(names)]]
            config = base.changed(**values, cluster=place.cluster, parts=place.ranks, mode="real", threads=1)
            for method in ("vanilla", *_next_methods(config, waiting, following)):
                found[-1].append(validation.with_method(config, method))
    return found


def _in_turn() -> Iterator[str]:
    """Names of all methods of several ranks but `vanilla`, over and over."""
    names = [text.partition(":")[0] for text in typical_methods(2)]
    while True:
        yield from (name for name in names if name != "vanilla")


def _next_methods(config: RunConfig, waiting: list[str], following: Iterator[str]) -> list[str]:
    """The next `EACH` methods that take a workload, as they are typical of its depth; those that waited are first."""
    texts = {text.partition(":")[0]: text for text in typical_methods(config.model.layers)}
    chosen = list(islice((name for name in waiting if takes_model(texts[name], config)), EACH))
    for name in chosen:
        waiting.remove(name)
    while len(chosen) < EACH:
        name = next(following)
        if name in chosen or name in waiting:
            continue
        (chosen if takes_model(texts[name], config) else waiting).append(name)
    return [texts[name] for name in chosen]


def takes_model(method: str, config: RunConfig) -> bool:
    """Whether a method can train the model of a config, as far as that can be told without its graph."""
    ours = Totals(1_000, 10_000, 500, 200, 300, 8, 4, False, True)
    try:
        model = build_model(config.model, ours.num_features, ours.num_classes, config.training.seed)
        parse_method(method, layer0=config.training.layer0).check(model, ours, config.cut.parts)
    except InputError:
        return False
    return True
