"""What the figures of a report share: panels in one style, saved twice, with one legend below them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.draw.figures import INCHES, STYLE

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#595959", "#882255")  # Okabe and Ito
DASHES: Any = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
LETTERS, KEY = 17, 6  # letters of a legend that an inch has, and those that the key of an entry takes
AS_PRINTED: Any = {"facecolors": "white", "edgecolors": "#202020", "linewidths": 0.9, "s": 22, "zorder": 5}


@contextmanager
def panels(paths: tuple[Path, Path], count: int, *, height: float = 2.6, columns: int = 3) -> Iterator[list[Axes]]:
    """`count` axes, up to `columns` beside each other, over two columns of a paper; saved to PNG and SVG at the end.

    Series that have a label stand in one legend under all panels.
    """
    with matplotlib.rc_context({**STYLE, "svg.fonttype": "path"}):  # an embedded image cannot use the reader's fonts
        columns = min(columns, count)
        rows = -(-count // columns)
        figure = Figure(figsize=(INCHES if count > 1 else INCHES * 0.6, height * rows + 0.3), layout="constrained")
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for spare in axes[count:]:
            spare.remove()
        yield axes[:count]
        named = {}
        for each in axes[:count]:
            named.update({label: handle for handle, label in zip(*each.get_legend_handles_labels(), strict=True)})
            each.grid(axis="y", linewidth=0.4, color="#E0E0E0")
            each.set_axisbelow(True)
        if named:
            across = int(figure.get_figwidth() * LETTERS / (max(map(len, named)) + KEY))
            figure.legend(
                named.values(), named.keys(), loc="outside lower center", ncols=max(1, min(len(named), across)),
                frameon=False,
            )  # fmt: skip
        png, svg = paths
        figure.savefig(png, dpi=200, metadata={"Software": None})
        figure.savefig(svg, metadata={"Date": None, "Creator": None})
