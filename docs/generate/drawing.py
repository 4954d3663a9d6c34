"""Draws folders and loose files as boxes, one row per level, with an arrow down for every import that no other implies.

Each package is laid out separately (Sugiyama: long arrows get a place in every row they cross, rows are ordered by the
mean place of their neighbours, the order with the fewest crossings is kept), and is drawn above those that it imports.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path as Curve

from docs.generate.imports import Code, folder_imports, height_of, levels, reduced, within

COLORS = {"harness": "#dbe9f6", "sims": "#e2f0d9", "real": "#fde9d0", "reports": "#ece1f3", "commands": "#f4f4f4"}
WIDTH, HEIGHT, ROW, GAP, LANE = 1.32, 0.34, 0.66, 0.22, 0.12
"""Inches: width and height of a box, distance of rows, gaps between boxes, space of an arrow that passes a row."""

STANDS_ON = (("commands", "reports"), ("reports", "sims"), ("sims", "harness"), ("real", "harness"))
"""Packages drawn above each other; other imports between packages are listed as text."""

PANEL = 0.55  # inches between packages, and above a package's title
SWEEPS, STARTS = 12, 60  # of the search for an order of the rows with few crossings


@dataclass
class Block:
    """One package: its boxes by level and the arrows between them."""

    title: str
    level: dict[str, int]
    arrows: list[tuple[str, str]]
    rows: list[list[str]] = field(default_factory=list)  # with arrows that pass, as "from>to@level"
    x: dict[str, float] = field(default_factory=dict)

    @property
    def height(self) -> float:
        """Inches."""
        return ROW * len(self.rows) + PANEL

    @property
    def width(self) -> float:
        """Inches."""
        return max(self.x[name] + _width(name) / 2 for name in self.x) + GAP


@dataclass
class Outline:
    """The drawing: packages and the imports between them."""

    blocks: dict[str, Block]
    between: set[tuple[str, str]]

    def said(self, package: str) -> str:
        """The imports of a package from others, as text."""
        others = [lower for upper, lower in sorted(self.between) if upper == package]
        return f"imports {', '.join(others)}" if others else "imports none of the others"

    def digest(self) -> str:
        """A hash of boxes, levels and arrows: equal for equal drawings."""
        said = [(name, sorted(block.level.items()), sorted(block.arrows)) for name, block in self.blocks.items()]
        return hashlib.sha256(repr((said, sorted(self.between))).encode()).hexdigest()


def outline(code: Code) -> Outline:
    """The boxes and arrows of a checkout."""
    inside = folder_imports(code)
    graphs = {package: within(inside, package) for package in ("harness", "sims", "real", "reports")}
    commands = [name for name in inside if height_of(name) == 3]
    graphs["commands"] = {name: inside[name] & set(commands) for name in commands}
    owner = {name: package for package, graph in graphs.items() for name in graph}
    pairs = {(owner[folder], owner[other]) for folder, others in inside.items() for other in others}
    blocks = {}
    for package, graph in graphs.items():
        arrows = [(name, other) for name, others in sorted(reduced(graph).items()) for other in sorted(others)]
        blocks[package] = _arranged(Block(package, levels(graph), arrows))
    return Outline(blocks, {(upper, lower) for upper, lower in pairs if upper != lower})


def _width(name: str) -> float:
    return LANE if "@" in name else WIDTH


def _chain(block: Block, arrow: tuple[str, str]) -> list[str]:
    """The places that an arrow passes, from its box down to the other."""
    upper, lower = arrow
    passed = range(block.level[upper] - 1, block.level[lower], -1)
    return [upper, *(f"{upper}>{lower}@{level}" for level in passed), lower]


def _arranged(block: Block) -> Block:
    """The block with its rows ordered, so that few arrows cross, and every box placed."""
    near: dict[str, set[str]] = {name: set() for name in block.level}
    row_of = dict(block.level)
    for arrow in block.arrows:
        places = _chain(block, arrow)
        for upper, lower in zip(places, places[1:], strict=False):
            near.setdefault(upper, set()).add(lower)
            near.setdefault(lower, set()).add(upper)
        row_of |= {place: int(place.partition("@")[2]) for place in places if "@" in place}
    first = [sorted(n for n, row in row_of.items() if row == level) for level in range(max(row_of.values()) + 1)]
    orders = (order for start in range(STARTS) for order in _ordered(first, near, random.Random(start)))
    block.rows = min(orders, key=lambda rows: _crossings(rows, near))
    block.x = _placed(block.rows, near)
    return block


def _ordered(rows: list[list[str]], near: dict[str, set[str]], shuffle: random.Random) -> Iterator[list[list[str]]]:
    """Orders of the rows from a random one on, each with every row by the mean place of its neighbours."""
    rows = [shuffle.sample(row, len(row)) for row in rows]
    place = {name: (at + 0.5) / len(row) for row in rows for at, name in enumerate(row)}
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 else reversed(rows):
            row.sort(key=lambda name: (_mean([place[other] for other in near[name]], place[name]), name))
            place |= {name: (at + 0.5) / len(row) for at, name in enumerate(row)}
        yield [list(row) for row in rows]


def _crossings(rows: list[list[str]], near: dict[str, set[str]]) -> int:
    """Pairs of lines between two rows that cross."""
    found = 0
    for lower, upper in zip(rows, rows[1:], strict=False):
        below = {name: at for at, name in enumerate(lower)}
        ends = [below[other] for name in upper for other in sorted(near[name] & below.keys(), key=lambda n: below[n])]
        found += sum(a > b for at, a in enumerate(ends) for b in ends[at + 1 :])
    return found


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _placed(rows: list[list[str]], near: dict[str, set[str]]) -> dict[str, float]:
    """Place of each box: as near to its connected boxes as its neighbours in the row allow."""
    x = {}
    for row in rows:
        total = sum(_width(name) + GAP for name in row)
        at = -total / 2
        for name in row:
            x[name] = at + (_width(name) + GAP) / 2
            at += _width(name) + GAP
    for _ in range(40):
        for row in rows:
            wish = [_mean([x[other] for other in near[name]], x[name]) for name in row]
            space = [(_width(a) + _width(b)) / 2 + GAP for a, b in zip(row, row[1:], strict=False)]
            left, right = list(wish), list(wish)
            for at in range(1, len(row)):
                left[at] = max(left[at], left[at - 1] + space[at - 1])
            for at in range(len(row) - 2, -1, -1):
                right[at] = min(right[at], right[at + 1] - space[at])
            x |= {name: (a + b) / 2 for name, a, b in zip(row, left, right, strict=True)}
    least = min(x[name] - _width(name) / 2 for name in x)
    return {name: value - least + GAP for name, value in x.items()}


def draw(picture: Outline, path: Path) -> None:
    """Write the drawing as a PNG, or as an SVG with real text that is equal for equal drawings."""
    blocks = picture.blocks
    middle = blocks["sims"].width + PANEL + blocks["real"].width
    width = max(middle, blocks["harness"].width, blocks["reports"].width, blocks["commands"].width) + PANEL
    bands = [["harness"], ["sims", "real"], ["reports"], ["commands"]]
    tall = [max(blocks[name].height for name in band) for band in bands]
    height = sum(tall) + PANEL * (len(bands) + 1)
    with matplotlib.rc_context({"svg.hashsalt": "architecture", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure = Figure(figsize=(width, height))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, width)
        axes.set_ylim(0, height)
        axes.axis("off")
        y, frames = PANEL, {}
        for band, most in zip(bands, tall, strict=True):
            x = (width - sum(blocks[name].width for name in band) - PANEL * (len(band) - 1)) / 2
            for name in band:
                _block(axes, blocks[name], x, y, picture.said(name))
                frames[name] = (x, y, blocks[name].width, blocks[name].height)
                x += blocks[name].width + PANEL
            y += most + PANEL
        for upper, lower in STANDS_ON:
            _between(axes, frames[upper], frames[lower])
        said = {"Date": None, "Description": f"imports {picture.digest()}"} if path.suffix == ".svg" else None
        figure.savefig(path, metadata=said, dpi=110)


def _block(axes: Axes, block: Block, left: float, bottom: float, remark: str) -> None:
    """One package: a frame with its title, rows of boxes from the lowest level up, arrows."""
    color, height, commands = COLORS[block.title], block.height, block.title == "commands"
    axes.add_patch(
        FancyBboxPatch(
            (left, bottom), block.width, height, boxstyle="round,pad=0,rounding_size=0.1", facecolor="white",
            edgecolor="#888888", linewidth=1.0, zorder=0,
        )
    )  # fmt: skip
    top = bottom + height - 0.12
    axes.text(
        left + 0.12, top, "command line" if commands else block.title, va="top", fontsize=11, weight="bold", zorder=3
    )
    axes.text(left + 0.12, top - 0.22, remark, va="top", fontsize=7.5, color="#444444", zorder=3)
    middle = {
        name: (left + block.x[name], bottom + ROW * (level + 0.5))
        for level, row in enumerate(block.rows)
        for name in row
    }
    for arrow in block.arrows:
        _arrow(axes, [middle[name] for name in _chain(block, arrow)])
    for name in block.level:
        x, y = middle[name]
        axes.add_patch(
            FancyBboxPatch(
                (x - WIDTH / 2, y - HEIGHT / 2), WIDTH, HEIGHT, boxstyle="round,pad=0,rounding_size=0.06",
                facecolor=color, edgecolor="#444444", linewidth=0.8, zorder=2,
            )
        )  # fmt: skip
        label = name if commands else name.partition(".")[2]
        axes.text(x, y, label, ha="center", va="center", fontsize=8.5 if len(label) < 17 else 7, zorder=3)


def _arrow(axes: Axes, places: list[tuple[float, float]]) -> None:
    """A curve from the lower edge of a box through the places it passes to the upper edge of another."""
    points = [(places[0][0], places[0][1] - HEIGHT / 2), *places[1:-1], (places[-1][0], places[-1][1] + HEIGHT / 2)]
    vertices, codes = [points[0]], [Curve.MOVETO]
    for (x0, y0), (x1, y1) in zip(points, points[1:], strict=False):
        half = (y0 - y1) / 2
        vertices += [(x0, y0 - half), (x1, y1 + half), (x1, y1)]
        codes += [Curve.CURVE4] * 3
    axes.add_patch(
        FancyArrowPatch(
            path=Curve(vertices, codes), arrowstyle="-|>", mutation_scale=7, color="#555555", linewidth=0.7, zorder=1
        )
    )


def _between(axes: Axes, upper: tuple[float, float, float, float], lower: tuple[float, float, float, float]) -> None:
    """A broad arrow from a package down to one below it; frames are left, bottom, width, height."""
    x = (max(upper[0], lower[0]) + min(upper[0] + upper[2], lower[0] + lower[2])) / 2
    ends = (x, upper[1]), (x, lower[1] + lower[3])
    axes.add_patch(
        FancyArrowPatch(*ends, arrowstyle="-|>", mutation_scale=14, color="#222222", linewidth=2.2, zorder=1)
    )
