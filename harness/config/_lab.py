"""What a lab is: hosts on one switch, each with a link of its own, written `lab:3x1gbit:ranks=2`. Values only.

`real.lab` builds it on this machine and `sims` models it, both from this one description.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby

from harness.errors import InputError, unknown

PREFIX = "lab:"

MTU = 1500
"""Bytes of an IP packet on a lab's links."""

PAYLOAD_SHARE = (MTU - 52) / (MTU + 14)
"""Payload bytes per byte that a shaped link lets through.

Of a full frame of 1514 bytes (as the kernel's shapers count it: with the Ethernet header, without preamble and
checksum) 20 are IP's and 32 are TCP's with its timestamps.
"""

ACKNOWLEDGED = 0.75 * 66 / (MTU - 52)
"""Bytes of acknowledgements that a host's link carries for every byte of payload that the host receives.

An acknowledgement is a frame of 66 bytes; a receiver sends one for every frame, or for two of them (RFC 1122, 4.2.3.2).
Exchanges that go both ways get less payload through for it: of 100 Mb/s 92 to 93 % in each direction, and 95.7 % where
one is quiet (`python -m benchmarks.lab`).
"""

QUEUE_S = 80e-3
"""Length of the queue at either end of a link, in seconds at its rate; further packets are dropped."""

AHEAD_BYTES = 3.0 * 2**20
"""A sender is done when its socket has taken the last byte. What its receiver lacks by then is in the socket and in the
queues of the links: QUEUE_S at the link's rate, and at most so many bytes.

Of messages that follow each other over one connection, up to 1 MiB are ahead at 100 Mb/s, 0.74 to 1.23 of larger ones;
up to 2 MiB at 1 Gb/s, and 2.8 to 3.6 of larger ones (`python -m benchmarks.lab`).
"""

BURST_S = 250e-6
"""Seconds' worth of bytes that a link saves up while idle; less, and a timer that is late by that much costs rate."""

MOST_HOSTS, MOST_RANKS = 64, 256

_BITS = {"mbit": 1e6, "gbit": 1e9}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_OPTIONS = ("ranks", "delay", "calibration")


@dataclass(frozen=True)
class LabSpec:
    """Hosts joined by one switch that is never the bottleneck.

    Attributes:
        rates: bytes/s of each host's link, frames included, in each direction; None is not shaped.
        delay: seconds from any host to any other, one way, on top of what the machine itself needs.
        ranks_per_host: ranks that a host takes, in blocks: the first host has ranks 0, 1, ...
        calibration: folder of a calibration, for models of the lab; a real lab has no use for it.
    """

    rates: tuple[float | None, ...]
    delay: float = 0.0
    ranks_per_host: int = 1
    calibration: str = ""

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return len(self.rates)

    @property
    def ranks(self) -> int:
        """Ranks that the lab takes."""
        return self.hosts * self.ranks_per_host

    @property
    def name(self) -> str:
        """The text that `parse_lab` reads as this lab, in its shortest form."""
        runs = [(rate, len(list(same))) for rate, same in groupby(self.rates)]
        hosts = ",".join(f"{count}x{_rate_text(rate)}" if count > 1 else _rate_text(rate) for rate, count in runs)
        ranks = f":ranks={self.ranks_per_host}" if self.ranks_per_host > 1 else ""
        delay = f":delay={_delay_text(self.delay)}" if self.delay else ""
        calibration = f":calibration={self.calibration}" if self.calibration else ""
        return f"{PREFIX}{hosts}{ranks}{delay}{calibration}"

    @property
    def unshaped(self) -> LabSpec:
        """As many hosts and ranks, with links as fast as the machine makes them."""
        return LabSpec((None,) * self.hosts, 0.0, self.ranks_per_host)

    def host_of(self, rank: int) -> int:
        """The host of a rank."""
        return rank // self.ranks_per_host

    def rate_between(self, source: int, target: int) -> float | None:
        """Bytes/s of frames from one host to another: the slower of their links; None where neither is shaped."""
        shaped = [rate for rate in (self.rates[source], self.rates[target]) if rate is not None]
        return min(shaped, default=None)


def segment(rate: float) -> int:
    """Most bytes that a host hands to its link of `rate` bytes/s at once: 100 us' worth, within the kernel's limits."""
    return int(min(65536, max(4096, rate * 100e-6)))


def framing_rate(rate: float) -> float:
    """Bytes/s that one core takes through links shaped to `rate` bytes/s, beside the copies at both ends.

    They are cut into frames, queued, let through by the shapers of both hosts and acknowledged. The kernel does most of
    it in interrupts, which no process is charged for; the slower the link, the fewer frames at a time. Two ranks at
    10 Gb/s spend 0.4 ns a byte on it, two to four at 1 Gb/s 1.8 to 3.2, three at 100 Mb/s 7 (`python -m
    benchmarks.lab`: seconds of cores a byte, less the copies): 2.5 ns at 1 Gb/s, and less by the root of the rate.
    """
    return float(0.4e9 * (rate / 125e6) ** 0.5)


def burst(rate: float) -> int:
    """Bytes that a link of `rate` bytes/s lets through at once after a rest; a token bucket's depth.

    It must hold a whole segment: cutting segments up halves the rate on a busy machine.
    """
    return segment(rate) + int(rate * BURST_S)


def is_lab(cluster: str) -> bool:
    """Whether a cluster's name means a lab."""
    return cluster.startswith(PREFIX)


def parse_lab(text: str) -> LabSpec:
    """The lab that `lab:HOSTS[:ranks=N][:delay=TIME][:calibration=DIR]` describes.

    HOSTS is a list of `RATE` or `COUNTxRATE`, separated by commas; RATE is a number with mbit or gbit (per second,
    powers of 1000), or `unshaped`. TIME has us, ms or s.

    Raises:
        InputError: one line that says which word is wrong.
    """
    if not is_lab(text):
        raise InputError(f"{text!r} is no lab; write lab:3x1gbit, or lab:1gbit,100mbit:ranks=2")
    hosts, *options = text.removeprefix(PREFIX).split(":")
    rates = tuple(rate for item in hosts.split(",") for rate in _hosts(item, text))
    if len(rates) > MOST_HOSTS:
        raise InputError(f"{text}: {len(rates)} hosts are too many for one machine; at most {MOST_HOSTS}")
    given: dict[str, str] = {}
    for option in options:
        key, _, value = option.partition("=")
        if key not in _OPTIONS:
            raise unknown("option of a lab", key, _OPTIONS)
        if key in given or not value:
            raise InputError(f"{text}: {key} needs one value, e.g. {key}={_example(key)}")
        given[key] = value
    spec = LabSpec(
        rates,
        _delay(given.get("delay", "0s"), text),
        _ranks(given.get("ranks", "1"), text),
        given.get("calibration", ""),
    )
    if spec.ranks > MOST_RANKS:
        raise InputError(f"{text}: {spec.ranks} ranks are too many for one machine; at most {MOST_RANKS}")
    return spec


def _hosts(item: str, text: str) -> list[float | None]:
    found = re.fullmatch(r"(?:(\d{1,6})x)?(unshaped|(\d+(?:\.\d+)?)([mg]bit))", item.strip().lower())
    if found is None:
        raise InputError(f"{text}: {item!r} is no link; write 1gbit, 2x100mbit or 3xunshaped")
    count, rate = int(found[1] or 1), None if found[3] is None else float(found[3]) * _BITS[found[4]] / 8
    if not 1 <= count <= MOST_HOSTS:
        raise InputError(f"{text}: {item!r} is {count} hosts; it must be 1 to {MOST_HOSTS}")
    if rate is not None and not 1e6 / 8 <= rate <= 1e11 / 8:
        raise InputError(f"{text}: {item!r} is out of range; a link has 1mbit to 100gbit")
    return [rate] * count


def _ranks(value: str, text: str) -> int:
    if not value.isdecimal() or not 1 <= int(value) <= MOST_RANKS:
        raise InputError(f"{text}: ranks={value} must be a number of ranks per host, 1 to {MOST_RANKS}")
    return int(value)


def _delay(value: str, text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)", value.lower())
    if found is None or float(found[1]) * _SECONDS[found[2]] > 10:
        raise InputError(f"{text}: delay={value} must be a time of at most 10 s, e.g. 500us or 1ms")
    return float(found[1]) * _SECONDS[found[2]]


def _example(key: str) -> str:
    return {"ranks": "2", "delay": "1ms", "calibration": "DIR"}[key]


def _rate_text(rate: float | None) -> str:
    if rate is None:
        return "unshaped"
    bits = rate * 8
    unit = max((u for u in _BITS if bits >= _BITS[u]), key=_BITS.__getitem__)
    return f"{bits / _BITS[unit]:.12g}{unit}"


def _delay_text(delay: float) -> str:
    unit = max((u for u in _SECONDS if delay >= _SECONDS[u] * (1 - 1e-12)), key=_SECONDS.__getitem__, default="us")
    return f"{delay / _SECONDS[unit]:.12g}{unit}"
