"""Where ranks run: on this machine as it is, or on hosts built on it as network namespaces, joined by a switch."""

from real.lab._hosts import built, check_lab, run_on_first
from real.lab._namespaces import made_by, remove, require, stale
from real.lab._probe import abilities, links
from real.lab._site import LOOPBACK, HostSetup, ThisMachine

__all__ = [
    "LOOPBACK",
    "HostSetup",
    "ThisMachine",
    "abilities",
    "built",
    "check_lab",
    "links",
    "made_by",
    "remove",
    "require",
    "run_on_first",
    "stale",
]
