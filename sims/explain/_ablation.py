"""The model of a cluster of CPUs with one of its mechanisms left out, to tell what each is worth in error.

A mechanism is a term that a calibration measures, or a rule of the simulator. Predictions without it are replays of the
recording that the prediction rests on, so that all else is equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from harness.config import PAYLOAD_SHARE
from sims.cluster import Cluster
from sims.device import DeviceProfile, load_device
from sims.replay import Changes
from sims.uncertainty import PACE, RecordedPrediction
from sims.units import Quantity

NOTHING, ENDLESS = Quantity(0.0), Quantity(1e18)

Costs = dict[str, dict[int, Quantity]]
"""Kind of collective -> number of ranks -> seconds."""

Model = tuple[Cluster, Callable[[DeviceProfile], DeviceProfile]]


def _same(profile: DeviceProfile) -> DeviceProfile:
    return profile


def _device(change: Callable[[DeviceProfile], DeviceProfile]) -> Callable[[Cluster], Model]:
    return lambda cluster: (cluster, change)


def _cluster(change: Callable[[Cluster], Cluster]) -> Callable[[Cluster], Model]:
    return lambda cluster: (change(cluster), _same)


def _without_cost(kind: str) -> Callable[[Cluster], Cluster]:
    """A collective's measured software left out; `` for all of them."""

    def change(cluster: Cluster) -> Cluster:
        def kept(known: Costs) -> Costs:
            return {name: dict.fromkeys(by, NOTHING) if kind in ("", name) else by for name, by in known.items()}

        spec = cluster.transport
        changed = replace(
            spec, measured=kept(spec.measured), following=kept(spec.following),
            cores=kept(spec.cores), cores_following=kept(spec.cores_following),
        )  # fmt: skip
        return replace(cluster, transport=changed)

    return change


def _endless(link: str) -> Callable[[Cluster], Cluster]:
    """As many bytes per second as anybody wants over a kind of link."""

    def change(cluster: Cluster) -> Cluster:
        if link not in cluster.links:
            return cluster
        return replace(cluster, links={**cluster.links, link: replace(cluster.links[link], bandwidth=ENDLESS)})

    return change


MECHANISMS: dict[str, Callable[[Cluster], Model]] = {
    "software of a collective": _cluster(_without_cost("")),
    "what starting a hidden exchange takes": _cluster(_without_cost("started")),
    "what hidden exchanges take of compute": _cluster(
        lambda c: replace(c, transport=replace(c.transport, beside=None))
    ),
    "warm caches of collectives that follow each other": _cluster(
        lambda c: replace(c, transport=replace(c.transport, following={}, cores_following={}))
    ),
    "copies between ranks on cores that these share": _cluster(
        lambda c: replace(c, transport=replace(c.transport, copying=None))
    ),
    "frames of shaped links on cores that ranks share": _cluster(lambda c: replace(c, framing=None)),
    "seconds of cores of a collective": _cluster(
        lambda c: replace(c, transport=replace(c.transport, cores={}, cores_following={}))
    ),
    "jitter of the ranks' compute": _cluster(lambda c: replace(c, stragglers=replace(c.stragglers, jitter=0.0))),
    "cores that ranks share": _cluster(lambda c: replace(c, cores=0)),
    "frames around payload": _cluster(lambda c: replace(c, nic_rates=tuple(r / PAYLOAD_SHARE for r in c.nic_rates))),
    "acknowledgements": _cluster(lambda c: replace(c, acknowledged=Quantity(0.0))),
    "senders that are done before their receivers": _cluster(lambda c: replace(c, buffers=None)),
    "copies of all hosts by the same cores": _cluster(_endless("spine")),
    "most that one process moves": _cluster(lambda c: replace(c, transport=replace(c.transport, process=None))),
    "operators by name": _device(lambda p: replace(p, operators={})),
    "time around an exchange": _device(lambda p: replace(p, effect=NOTHING)),
    "the program beside both": _device(lambda p: replace(p, step=NOTHING)),
    "caches that others use while a core idles": _device(lambda p: replace(p, idle={})),
    "Python around an operator": _device(lambda p: replace(p, launch=NOTHING)),
    "memory that goes back": _device(lambda p: replace(p, release=None)),
    "caches of cores that ranks share": _device(lambda p: replace(p, sharing=Quantity(1.0))),
    "slower beside other ranks": _device(lambda p: replace(p, crowding=Quantity(1.0))),
}
"""Mechanism -> the model of a cluster without it."""


def without(prediction: RecordedPrediction, mechanism: str) -> dict[str, float]:
    """Seconds of an epoch by component as predicted without a mechanism, or with all where its name is empty.

    Raises:
        KeyError: no such mechanism.
    """
    cluster, change = MECHANISMS[mechanism](prediction.cluster) if mechanism else (prediction.cluster, _same)
    load = cache(lambda name: change(load_device(name)))
    timed = prediction.replay.time(cluster, Changes(load))
    return timed.typical(prediction.config)[0]


def at_pace(prediction: RecordedPrediction, pace: float) -> dict[str, float]:
    """Seconds of an epoch by component on a machine whose cores take `pace` times as long as when it was calibrated:
    operators, the software of collectives, and copies between its processes; not the links of a lab."""
    return prediction.seconds({f"device.{load_device(name).name}.{PACE}": pace for name in prediction.cluster.profiles})
