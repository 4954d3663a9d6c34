"""The links between hosts of a lab, by the rates that its shapers are set to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.config import ACKNOWLEDGED, AHEAD_BYTES, PAYLOAD_SHARE, QUEUE_S, framing_rate
from sims.cluster._cluster import OF_MANY_SHAPED, OF_SHAPED, Buffers, Cluster, LinkSpec
from sims.units import Quantity

FORWARDED = 25e6
"""Bytes/s of shaped links up to which the cores of a lab's machine forward what all hosts send in time."""


def with_shaped_links(cluster: Cluster, latency: Quantity, rates: Sequence[float | None]) -> Cluster:
    """A cluster of hosts that are one machine, with links of so many bytes/s on the wire; None: unshaped.

    A host's link carries frames, so payload gets PAYLOAD_SHARE of its rate, and acknowledgements of what the host
    receives. What is not shaped is as fast as this machine's loopback. All bytes between hosts are copied by the
    machine's cores, which is the spine; where these are fewer than the hosts, they do not keep fast shaped links full
    (`benchmarks.lab`: sockets between all of 3 or 4 hosts on 2 cores take 1.02 to 1.13 of the ideal at 1 Gb/s, 1.05 at
    300 Mb/s and 1.02 at 100).

    Args:
        latency: of every link.
        rates: of every host.
    """
    copying = cluster.links["loopback"]
    fast, none = copying.bandwidth.value, Quantity(0.0, "measured")
    payload = tuple(fast if rate is None else PAYLOAD_SHARE * rate for rate in rates)
    ends = (ACKNOWLEDGED * 2 / 3, ACKNOWLEDGED * 4 / 3)  # one for two frames, or for every frame
    acknowledged = Quantity(ACKNOWLEDGED, "published", "bytes back per byte of payload, frames of 66", ends)
    slowest = min((rate for rate in rates if rate is not None), default=0.0)
    busy = len(rates) > cluster.cores > 0 and slowest > FORWARDED
    framed = framing_rate(slowest) if slowest else 0.0
    return replace(
        cluster,
        links={
            "loopback": copying,
            "nic": LinkSpec(Quantity(max(payload), "datasheet"), latency, "ethernet"),
            "spine": LinkSpec(copying.bandwidth, none, "ethernet"),
        },
        nic_rates=payload,
        acknowledged=acknowledged if slowest else Quantity(0.0),
        shaped=OF_MANY_SHAPED if busy else OF_SHAPED,
        framing=Quantity(framed, "measured", "benchmarks.lab", (framed / 1.5, framed * 1.5)) if slowest else None,
        buffers=Buffers(QUEUE_S, AHEAD_BYTES, fast) if slowest else None,
    )
