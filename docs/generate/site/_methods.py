"""A page for every method: what it does, what travels, its bytes, its options, and where it is quicker than `vanilla`.

python -m docs.generate.site._methods FOLDER NAME...    # draw the figures of these methods, with what they say
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from docs.generate.methods import CUTS, HEAD, PAGE, cells, missing, options_lines, page, prose, section
from docs.generate.site._executed import wrapped
from harness.config import laid_over
from harness.methods.bases.base import Method
from harness.methods.registry import METHODS
from harness.registry import short_text, syntax

SETTINGS = (
    ("dataset", "synthetic:nodes=3000,degree=12,classes=8,features=32,signal=0.7"),
    ("model", "sage"),
    ("layers", "2"),
    ("hidden", "64"),
    ("parts", "4"),
    ("cluster", "ethernet-10g"),
)
"""Settings of all figures, small so that a site is built in minutes."""

RANGE, POINTS = "nic=100Mb/s..100Gb/s", 7
WITHOUT_FIGURE = {
    "single": "It runs on one device, so no link can be varied: the figures of the others have none of it."
}


def command_of(name: str) -> str:
    """The command whose figure a method's page shows."""
    flags = " ".join(f"--{key} {value}" for key, value in SETTINGS)
    return f"haloscope what-if --methods {','.join(compared(name))} {flags} --bandwidth {RANGE} --points {POINTS}"


def compared(name: str) -> list[str]:
    """`vanilla`, and the method with the options that studies of all methods give it on a model of two layers."""
    return ["vanilla"] if name == "vanilla" else ["vanilla", short_text(METHODS.own()[name]().typical(2))]


def draw(name: str, folder: Path, recordings: Path) -> None:
    """Write `NAME.png` and `NAME.txt`, the figure and the sentences of `command_of`."""
    import harness

    found = harness.what_if(
        compared(name), laid_over(dict(SETTINGS), None, source="site"), bandwidth=RANGE, points=POINTS, out=recordings,
        quiet=True,
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    found.plot().savefig(folder / f"{name}.png")
    (folder / f"{name}.txt").write_text("\n".join(found.said))


def drawn() -> list[str]:
    """Names of the methods that have a figure."""
    return [name for name in METHODS.own() if name not in WITHOUT_FIGURE]


def index_page() -> str:
    """The table of all methods, with their pages instead of sections."""
    tables = ["```{toctree}", ":hidden:", "", *METHODS.own(), "```"]
    return "\n".join([page().partition("\n## ")[0].rstrip(), "", *tables, ""])


def method_page(name: str, figures: Path | None) -> str:
    """The page of one method.

    Args:
        figures: the folder that `draw` wrote to; None leaves the sentences away.

    Raises:
        ValueError: the method does not state what its page has to say.
    """
    kind = METHODS.own()[name]
    if lacking := missing(name, kind):
        raise ValueError("; ".join(lacking))
    return "\n".join([*_said(name, kind), *_when(name, figures), *_options(name, kind)]).rstrip() + "\n"


def _said(name: str, kind: type[Method]) -> Iterator[str]:
    row = dict(zip(HEAD, cells(name, kind), strict=True))
    yield f"# {name}"
    yield ""
    yield from prose(kind)
    yield ""
    yield "## Bytes, memory, exactness"
    yield ""
    yield f"**Bytes of an epoch**, over all ranks: {row['bytes']}."
    yield ""
    brief = section(kind, "In brief")
    for title, text in (
        ("What travels", brief["travels"]),
        ("Memory", brief["memory"]),
        ("What is cut", CUTS[kind.facts.cut]),
        ("Exact gradients", row["exact"]),
        ("Age of rows in epochs", row["age of rows"]),
        ("Source", row["source"]),
        ("Code", row["file"]),
    ):
        yield f"- {title}: {text}"
    yield ""
    yield f"d is the width of a row that a layer exchanges, P the number of ranks; more on the [list]({PAGE.name})."
    yield ""


def _when(name: str, figures: Path | None) -> Iterator[str]:
    yield "## When it wins"
    yield ""
    if name in WITHOUT_FIGURE:
        yield WITHOUT_FIGURE[name]
        return
    yield f"![Epoch of {name} and of vanilla over the bandwidth of the adapters](made/{name}.png)"
    yield ""
    for sentence in (figures / f"{name}.txt").read_text().splitlines() if figures is not None else ():
        yield f"- {sentence}"
    yield ""
    yield "Epochs only: what a method costs in accuracy is another question ([accuracy](accuracy.md)), and one small"
    yield "graph on one modelled cluster is no ranking. Made by this build, with"
    yield ""
    yield f"```\n{wrapped(command_of(name))}\n```"
    yield ""


def _options(name: str, kind: type[Method]) -> Iterator[str]:
    yield "## Options"
    yield ""
    yield f"`--method {syntax(name, kind)}`"
    yield ""
    yield from options_lines(kind)


def main(arguments: list[str]) -> int:
    """Draw the figures of the methods that are named."""
    folder, *names = arguments
    for name in names:
        draw(name, Path(folder), Path(folder) / "recordings")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
