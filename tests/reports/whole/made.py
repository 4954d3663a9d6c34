"""A small report, made up: two papers, tables in the paper's layout, a figure, claims of every outcome."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from reports.core.null_models import Null
from reports.core.table import Fitted, Ordering, PaperTable, Plot, Row
from reports.whole.produce import Entry

NASTY = '<script>document.title="hacked"</script><img src=x onerror=alert(1)> & "quotes"'
CONSTANT = Fitted(testbed="two hosts", constant="factor on bandwidths", value=1.25, row="Reddit, DGL")


def time_row(graph: str, system: str, published: float, ours: float | None, **more: object) -> Row:
    """An epoch time in the paper's cell."""
    given: dict[str, object] = {"how": "simulated", "at": (f"{graph}, {system}", "Total (s)"), **more}
    return Row(
        label=f"{graph}, {system}", quantity="epoch time", unit="s", published=published, ours=ours,
        **given,  # type: ignore[arg-type]
    )  # fmt: skip


def times() -> PaperTable:
    """A table with a fitted row, three times, and orderings."""
    rows = (
        time_row("Reddit", "DGL", 7.28, 7.28, how="fitted"),
        time_row("Reddit", "Sylvie-S", 0.37, 0.36, null=Null(same=7.28, by_bytes=0.23), low=0.2, high=0.6),
        time_row("Yelp", "DGL", 4.98, 9.1, note="the printed communication holds the quantiser"),
        time_row("Yelp", "Sylvie-S", 0.29, None, how="needs data", data="Yelp"),
    )
    orders = (
        Ordering(text="epoch by system", expected=("DGL", "Sylvie-S"), ours=(7.28, 0.36)),
        Ordering(text="epoch by graph", expected=("Reddit", "Yelp"), ours=(7.28, 9.1), claim="by graph"),
        Ordering(text="volume", expected=("DGL", "Sylvie-S"), ours=(32.0, 1.0), theory="a bit for 32"),
    )
    return PaperTable(
        key="sylvie/table3", title="Sylvie Table 3: epochs", rows=rows, orderings=orders, fits=(CONSTANT,),
        assumptions=("boundary nodes are an input",), commands=("haloscope run --parts 8",),
    )  # fmt: skip


def again() -> PaperTable:
    """A table that repeats a claim of `times`, and undecided scores."""
    rows = (Row(label="Reddit", quantity="accuracy", unit="%", published=95.0, ours=94.0, how="trained",
                judge="points", seeds=2),)  # fmt: skip
    order = Ordering(text="again by graph", expected=("Reddit", "Yelp"), ours=(7.28, 9.1), claim="by graph")
    return PaperTable(key="sylvie/table4", title="Sylvie Table 4: scores", rows=rows, orderings=(order,))


def hostile() -> PaperTable:
    """A table with hostile names."""
    rows = (
        Row(label=NASTY, quantity="epoch time", unit="s", published=1.0, ours=1.1, how="simulated", note=NASTY),
        Row(label=NASTY, quantity="epoch time", unit="s", published=2.0, ours=2.1, how="simulated"),
    )
    order = Ordering(text=NASTY, expected=(NASTY, "b"), ours=(2.0, 1.0))
    return PaperTable(
        key="cdfgnn/table1", title=f"Table {NASTY}", rows=rows, orderings=(order,), assumptions=(NASTY,),
        commands=(NASTY,),
    )  # fmt: skip


def drawn(folder: Path) -> Plot:
    """A figure with a hostile title, and a row on which the paper contradicts itself."""
    paths = folder / "figure5.png", folder / "figure5.svg"
    figure = Figure(figsize=(4, 2))
    figure.subplots().set_title("a < b & c")
    for path in paths:
        figure.savefig(path)
    rows = (Row(label="share", quantity="share", unit="%", published=2.0, ours=3.0, how="simulated", conflict="SY6"),)
    return Plot(key="cdfgnn/figure5", title=f"Figure {NASTY}", caption=NASTY, paths=paths, rows=rows)


def report(folder: Path) -> list[Entry]:
    """All of it, and one table that could not be made."""
    return [
        Entry("sylvie/table3", times()),
        Entry("sylvie/table4", again()),
        Entry("cdfgnn/table1", hostile()),
        Entry("cdfgnn/figure5", drawn(folder)),
        Entry("cdfgnn/table3", None, f"reason {NASTY}"),
    ]
