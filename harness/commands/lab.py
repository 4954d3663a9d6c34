"""`haloscope lab`: hosts on this machine as network namespaces; measure their links, or run a command among them."""

from __future__ import annotations

import argparse
from typing import Any

from harness.commands.shared.tables import table
from harness.config import parse_lab
from harness.console import show, stderr, stdout
from harness.errors import InputError
from harness.numbers import percent, significant
from real import lab
from real import lab as lab_probe
from real import lab as namespaces

MBIT = 8e-6  # bytes/s to Mb/s


def main(args: argparse.Namespace) -> int:
    """Measure, or run a command; returns the command's exit code. `--check` returns 1 if no lab can be built."""
    if args.check:
        return _check()
    if args.clean:
        namespaces.require()
        left = namespaces.stale()
        namespaces.remove(left)
        show([f"removed {len(left)} namespaces of dead processes"], stdout())
        return 0
    if args.spec is None:
        raise InputError("name a lab, e.g. `haloscope lab lab:3x1gbit`, or --check, or --clean")
    spec = parse_lab(args.spec)
    with lab.built(spec) as built:
        return int(lab.run_on_first(built, args.words)) if args.words else _measure(built)


def _measure(built: Any) -> int:
    """Print a table of requested and measured rates of every pair of hosts."""
    show(
        [f"measuring the links of {built.spec.name} (at most {built.spec.hosts**2} transfers of half a second)"],
        stderr(),
    )
    rows = []
    for found in lab_probe.links(built):
        who = "all others" if found.source is None else str(found.source)
        share = None if found.asked is None else found.rate / found.asked
        asked = "unshaped" if found.asked is None else significant(found.asked * MBIT)
        trip = None if found.round_trip is None else found.round_trip * 1e6
        rows.append([who, str(found.target), asked, significant(found.rate * MBIT), percent(share), significant(trip)])
    columns = ["from host", "to host", "asked Mb/s", "measured Mb/s", "share", "round trip us"]
    note = "rates are of payload over TCP, which is 95.6 % of a link's rate; the hosts share this machine's cores"
    show([table(built.spec.name, columns, rows, left=1), note], stdout())
    return 0


def _check() -> int:
    marks = {True: "ok", False: "MISSING", None: "not here"}
    found = list(lab_probe.abilities())
    show([table("", ["what", "state", "found"], [[a.what, marks[a.good], a.found] for a in found], left=3)], stdout())
    return 1 if any(ability.good is False for ability in found) else 0
