"""Draws a cluster: hosts with their devices, switches and adapters, racks and spine, and the figures of each link.

Draws an outline given as plain data (see `Outline`), independent of cluster files. Of equal hosts the first and the
last are drawn, with the number of the others between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Arc, FancyBboxPatch

from reports.draw.figures import STYLE

COLOURS = {
    "nic": "#D55E00",
    "rack": "#882255",
    "spine": "#661100",
    "bus": "#0072B2",
    "switch": "#56B4E9",
    "root": "#595959",
    "loopback": "#999933",
    "peer": "#009E73",
    "mesh": "#009E73",
}
WHAT = {
    "nic": "adapter - network",
    "rack": "rack - other racks, shared by its hosts",
    "spine": "core between the racks, shared by all",
    "bus": "device - host",
    "switch": "PCIe switch - host, shared by its devices",
    "root": "host's root ports, shared by all its devices",
    "loopback": "host memory, shared by its processes",
    "peer": "device - NVLink switch",
    "mesh": "NVLink between two devices",
}
SLOT, GAP, LEFT = 0.92, 1.9, 1.35  # widths: of a device, of the gap between the drawn hosts, of the host's own column
NETWORK_Y, NIC_Y, SWITCH_Y, DEVICE_Y, PEER_Y = 5.0, 3.7, 2.4, 1.1, 0.15


@dataclass(frozen=True)
class Outline:
    """The elements of a cluster.

    Attributes:
        title, subtitle: two lines above the picture.
        hosts, racks: numbers; a rack has `per_rack` hosts.
        devices: names of the devices of the first and of the last host.
        switches: PCIe switches per host, 0 for none.
        nics: adapters per host; 0 where hosts are not connected.
        nics_on_switches: the adapters are connected to the PCIe switches, not to the host.
        mesh: groups of devices, by number, whose members are connected pairwise.
        links: kind -> its label (bandwidth and latency); the kinds are the keys of COLOURS.
    """

    title: str
    subtitle: str
    hosts: int
    racks: int
    per_rack: int
    devices: tuple[Sequence[str], Sequence[str]]
    switches: int
    nics: int
    nics_on_switches: bool
    mesh: Sequence[Sequence[int]]
    links: dict[str, str]


def draw(outline: Outline, path: Path) -> None:
    """Write the picture to `path` (.png, .svg or .pdf); its folder must exist."""
    shown = 1 if outline.hosts == 1 else 2
    widths = [_width(outline, names) for names in outline.devices[:shown]]
    gap = 0.5 if outline.hosts == shown else GAP
    width = sum(widths) + gap * (shown - 1)
    with matplotlib.rc_context(STYLE):
        scale = min(1.0, 13.0 / width)
        figure = Figure(figsize=(max(width * scale, 6.4), 6.6 * scale + 0.5 + 0.17 * len(outline.links)))
        axes = figure.add_axes((0.01, 0.0, 0.98, 1.0))
        axes.set_axis_off()
        starts = [0.0, widths[0] + gap][:shown]
        for number, (start, names) in enumerate(zip(starts, outline.devices, strict=False)):
            _host(axes, outline, start, names, 0 if number == 0 else outline.hosts - 1)
        if outline.hosts > 2:
            _left_out(axes, outline, widths[0] + gap / 2)
        _network(axes, outline, list(zip(starts, widths, strict=True)))
        _words(axes, outline, width)
        axes.set_xlim(-0.2, width + 0.2)
        axes.set_aspect("equal", anchor="N")
        figure.savefig(
            path, dpi=200, bbox_inches="tight", metadata={"Software": None} if path.suffix == ".png" else None
        )


def _width(outline: Outline, names: Sequence[str]) -> float:
    """Width of a host: its own column, and one for every device; CPUs are in the host's own."""
    return LEFT + (SLOT * len(names) + 0.3 if "bus" in outline.links else 0.2)


def _bottom(outline: Outline) -> float:
    """Lower edge of the hosts."""
    if {"peer", "mesh"} & set(outline.links):
        return PEER_Y - 0.45
    return DEVICE_Y - 0.7 if "bus" in outline.links else SWITCH_Y - 0.95


def _box(
    axes: Axes, x: float, y: float, size: tuple[float, float], text: str, colour: str, fill: str = "white"
) -> None:
    """A rounded box centred at (x, y)."""
    width, height = size
    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.06",
            facecolor=fill,
            edgecolor=colour,
            linewidth=1.1,
            zorder=3,
        )  # fmt: skip
    )
    axes.text(x, y, text, ha="center", va="center", fontsize=6.5, zorder=4, linespacing=1.15)


def _line(axes: Axes, kind: str, *points: tuple[float, float], width: float = 1.6) -> None:
    axes.plot(*zip(*points, strict=True), color=COLOURS[kind], linewidth=width, zorder=2, solid_joinstyle="round")


def _host(axes: Axes, outline: Outline, start: float, names: Sequence[str], number: int) -> None:
    """One host: its own column with the root on the left, devices to the right, adapters above their attachment."""
    width = _width(outline, names)
    low, high = _bottom(outline), NIC_Y + 0.35
    axes.add_patch(
        FancyBboxPatch(
            (start, low),
            width,
            high - low,
            boxstyle="round,pad=0,rounding_size=0.12",
            facecolor="#F6F6F6",
            edgecolor="#A0A0A0",
            linewidth=0.8,
            zorder=0,
        )  # fmt: skip
    )
    axes.text(start + 0.12, low + 0.12, f"host {number}", fontsize=7.5, color="#404040", weight="bold")
    root = (start + 0.12 + LEFT / 2, SWITCH_Y)
    at = [start + LEFT + 0.15 + SLOT * (slot + 0.5) for slot in range(len(names))]
    own = "CPU and\nmemory"
    if "bus" in outline.links:
        _inside(axes, outline, root, at)
        for x, name in zip(at, names, strict=True):
            _box(axes, x, DEVICE_Y, (SLOT - 0.1, 0.5), name, "#404040", "#DCE9F5")
    else:
        own = "\n".join(dict.fromkeys(names))
    if "loopback" in outline.links:
        own += f"\n{outline.links['loopback'].split(',')[0]}"
    _box(axes, *root, (LEFT - 0.3, 0.72), own, COLOURS["root"], "#EEEBD0")
    if "nic" in outline.links:
        _adapters(axes, outline, root, at)


def _switch_places(outline: Outline, at: Sequence[float]) -> list[float]:
    each = len(at) // outline.switches
    return [(at[s * each] + at[(s + 1) * each - 1]) / 2 for s in range(outline.switches)]


def _inside(axes: Axes, outline: Outline, root: tuple[float, float], at: Sequence[float]) -> None:
    """The links inside a host: a trunk from the root, PCIe switches on it, an NVLink switch or mesh below."""
    trunk_y = SWITCH_Y + 0.55 if outline.switches else DEVICE_Y + 0.6
    trunk = "switch" if outline.switches else "bus"
    taps = _switch_places(outline, at) if outline.switches else list(at)
    _line(
        axes, "root" if "root" in outline.links else trunk, (root[0], root[1]), (root[0], trunk_y), (taps[-1], trunk_y)
    )
    for x in taps:
        _line(axes, trunk, (x, trunk_y), (x, SWITCH_Y if outline.switches else DEVICE_Y))
    if outline.switches:
        each = len(at) // outline.switches
        for number, x in enumerate(taps):
            for device in at[number * each : (number + 1) * each]:
                _line(axes, "bus", (device, DEVICE_Y), (device, SWITCH_Y))
            _box(axes, x, SWITCH_Y, (SLOT * each - 0.14, 0.36), "PCIe switch", COLOURS["switch"])
    if "peer" in outline.links:
        for x in at:
            _line(axes, "peer", (x, DEVICE_Y), (x, PEER_Y), width=2.4)
        text = f"NVLink switch, {outline.links['peer'].split(',')[0]} per device"
        _box(axes, (at[0] + at[-1]) / 2, PEER_Y, (at[-1] - at[0] + SLOT - 0.1, 0.32), text, COLOURS["peer"])
    for group in outline.mesh if "mesh" in outline.links else ():
        for first in group:
            for second in group:
                if first < second < len(at):
                    span, middle = at[second] - at[first], (at[first] + at[second]) / 2
                    deep = 0.35 + 0.28 * (second - first)
                    axes.add_patch(
                        Arc(
                            (middle, DEVICE_Y - 0.25), span, deep, theta1=180, theta2=360, color=COLOURS["mesh"], lw=1.8
                        )
                    )


def _adapters(axes: Axes, outline: Outline, root: tuple[float, float], at: Sequence[float]) -> None:
    """The adapters in a row, each connected to its PCIe switch, or to the root."""
    if outline.nics_on_switches:
        each = len(at) / outline.nics
        places = [at[0] - SLOT / 2 + SLOT * each * (n + 0.5) for n in range(outline.nics)]
        for x in places:
            _line(axes, "nic", (x, NIC_Y), (x, SWITCH_Y), width=1.2)
    else:
        places = [root[0] + n * 0.8 for n in range(outline.nics)]
        for x in places:
            _line(axes, "root", (x, NIC_Y), (x, SWITCH_Y + 0.45), (root[0], SWITCH_Y + 0.45), (root[0], SWITCH_Y))
    for x in places:
        _line(axes, "nic", (x, NIC_Y), (x, NETWORK_Y))
        _box(axes, x, NIC_Y, (0.66, 0.34), "NIC", COLOURS["nic"], "#FBE7DA")


def _network(axes: Axes, outline: Outline, hosts: Sequence[tuple[float, float]]) -> None:
    """The switch shared by all hosts, or a switch per rack and the spine above them."""
    if "nic" not in outline.links:
        return
    left, right = hosts[0][0], hosts[-1][0] + hosts[-1][1]
    if outline.racks == 1:
        _box(axes, (left + right) / 2, NETWORK_Y, (right - left, 0.4), "network switch (not a bottleneck)", "#A0A0A0")
        return
    spine_y = NETWORK_Y + 1.05
    for number, (start, width) in zip((0, outline.racks - 1), hosts, strict=False):
        middle = start + width / 2
        _line(axes, "rack", (middle, NETWORK_Y), (middle, spine_y), width=3.0)
        text = f"switch of rack {number} ({outline.per_rack} hosts)"
        if "rack" in outline.links:
            text += f", {outline.links['rack'].split(',')[0]} up and down"
        _box(axes, middle, NETWORK_Y, (width, 0.4), text, COLOURS["rack"], "#F3E3EA")
    spine = outline.links["spine"].split(",")[0] if "spine" in outline.links else "not a bottleneck"
    text = f"spine between {outline.racks} racks, {spine}"
    _box(axes, (left + right) / 2, spine_y, (right - left, 0.4), text, COLOURS["spine"], "#F0E0DC")


def _left_out(axes: Axes, outline: Outline, x: float) -> None:
    text = f"{outline.hosts - 2} more hosts\nlike these"
    if outline.racks > 1:
        text += f"\n({outline.racks} racks of\n{outline.per_rack} hosts)"
    axes.text(
        x, (DEVICE_Y + NIC_Y) / 2, f"· · ·\n{text}\n· · ·", ha="center", va="center", fontsize=7.5, color="#606060"
    )


def _words(axes: Axes, outline: Outline, width: float) -> None:
    """Title above, the list of links with their figures below."""
    top = NETWORK_Y + (1.65 if outline.racks > 1 else 0.6 if "nic" in outline.links else -0.55)
    axes.text(0, top + 0.32, outline.title, fontsize=10, weight="bold", va="bottom")
    axes.text(0, top, outline.subtitle, fontsize=7.5, color="#606060", va="bottom")
    handles = [
        Line2D([], [], color=COLOURS[kind], linewidth=2, label=f"{kind}: {text}   ({WHAT[kind]})")
        for kind, text in outline.links.items()
    ]
    axes.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0, _bottom(outline) - 0.15),
        bbox_transform=axes.transData, frameon=False, fontsize=7.5, borderaxespad=0,
    )  # fmt: skip
    axes.set_ylim(_bottom(outline) - 0.3 - 0.27 * len(handles), top + 0.75)
