"""Result records as terminal tables, units in every heading.

Imports nothing heavy at once: commands that only list things use it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from harness.config import is_lab
from harness.numbers import DASH, byte_text, megabytes, percent, significant, time_unit

ROW_SETTINGS = {
    "dataset": "{}",
    "model": "{}",
    "layers": "{} layers",
    "hidden": "{} wide",
    "norm": "norm {}",
    "order": "{}",
    "layer0": "layer0 {}",
    "parts": "{} parts",
    "mode": "mode {}",
    "cluster": "cluster {}",
}
"""Settings of a row that a table says once if they are equal, and in which words."""

BELOW = ("order", "norm")
"""Settings that are too long for a column: a line below the table says which rows differ."""

WORK = ("compute", "codec", "sample")
"""Components in which a rank waits for no other."""

UNEVEN = 1.1
"""By which factor the work of ranks may differ without a word: about what the same work differs by between epochs."""

HEADINGS = {"hidden": "width"}
"""Column headings that are not the name of the setting."""


class FittedTable(Table):
    """A table that is split by columns, the first ones repeated, where it is wider than the output.

    Numbers and their headings are never wrapped.

    Attributes:
        left: columns of text, which every piece begins with.
    """

    left = 1

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for piece in self._pieces(options.max_width):
            yield from Table.__rich_console__(piece, console, options)

    def _pieces(self, width: int) -> list[FittedTable]:
        widths = [self._width(at) for at in range(len(self.columns))]
        if sum(widths) <= width or self.left >= len(self.columns):
            return [self]
        room = width - min(sum(widths[: self.left]), width // 2)
        groups: list[list[int]] = []
        used = room + 1
        for at in range(self.left, len(self.columns)):
            if used + widths[at] > room:
                groups.append([])
                used = 0
            groups[-1].append(at)
            used += widths[at]
        return [self._piece(group) for group in groups]

    def _width(self, at: int) -> int:
        """Cells that a column takes without wrapping, with the space beside it."""
        column = self.columns[at]
        return max(cell_len(str(cell)) for cell in (column.header, *column.cells)) + 2

    def _piece(self, group: Sequence[int]) -> FittedTable:
        """The first columns and these."""
        chosen = [*range(self.left), *group]
        made = _empty(self.title if group[0] == self.left else None)
        for at in chosen:
            column = self.columns[at]
            made.add_column(
                column.header, justify=column.justify, overflow="fold", no_wrap=column.no_wrap and at >= self.left
            )
        for row in zip(*(list(self.columns[at].cells) for at in chosen), strict=True):
            made.add_row(*row)
        return made


def _empty(title: Any) -> FittedTable:
    return FittedTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> Table:
    """A table whose first `left` columns are text and whose others are numbers."""
    made = _empty(Text(title) if title else None)
    made.left = left
    for at, column in enumerate(columns):
        whole = at >= left or at < len(columns) - 1  # names are never cut; a long remark at the end may be
        made.add_column(Text(column), justify="left" if at < left else "right", overflow="fold", no_wrap=whole)
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def entry_lines(head: str, doc: str, flag: str, syntax: str) -> list[str]:
    """Everything about one entry of a registry: its docstring, and the flag with its options and their defaults."""
    return [head, "", doc, "", f"{flag} {syntax}"]


def run_report(record: dict[str, Any]) -> list[Table | str]:
    """All tables of one run."""
    from harness.running.summary import layer_orders

    config, graph = record["config"], record["graph"]
    named = config["mode"] == "sim" or is_lab(config["cluster"])
    where = f"{config['mode']}, cluster {config['cluster']}" if named else config["mode"]
    head = f"{config['method']} on {graph.get('name', config['dataset'])}, {config['parts']} parts, {where}"
    order = layer_orders(record["facts"].get("orders", ())) or config["order"]
    order += {"auto": " (auto)", "method": " (the method's own)"}.get(config["order"], "")
    shape = f"{config['model']}, {config['layers']} layers x {config['hidden']}, {order}"
    parts: list[Table | str] = [f"{head}; {shape}; {record['state']}"]
    if record["summary"]["seconds"]:
        parts += [_time_table(record), *uneven_lines(record["facts"].get("rank_seconds", {}))]
    if record["epochs"]:
        parts += [_byte_table(record["epochs"][-1]["bytes"]), _mean_line(record), _outcome_table(record)]
    return [*parts, *note_lines(record)]


def note_lines(record: dict[str, Any]) -> list[str]:
    """The notes of a record, one line each."""
    from harness.running.summary import notes_of

    return [f"note: {note}" for note in notes_of(record)]


def comparison_report(rows: Sequence[dict[str, Any]]) -> list[Table | str]:
    """What is true of all runs, a table with a row per run, and which of them stand apart.

    A setting is a column only where it differs, and components that are zero in all runs are left out.
    """
    from harness.rank import COMPONENTS
    from harness.running.summary import UNLIKE, standing_apart

    common, apart = standing_apart(rows)
    columns = columns_of(rows)
    factor, unit = time_unit([row["epoch_seconds"] for row in rows])
    shown = [name for name in (*COMPONENTS, "hidden") if any(row[f"{name}_seconds"] for row in rows)]
    sure = any(row["epoch_low_seconds"] is not None for row in rows)
    lines = []
    for at, row in enumerate(rows):
        method = row["method"] if row["state"] == "done" else f"{row['method']} ({row['state']})"
        settings = [DASH if row[name] is None else str(row[name]) for name in columns]
        times = [_scaled(row[f"{name}_seconds"], factor) for name in ("epoch", *shown)]
        speedup = DASH if row["speedup"] is None else f"{row['speedup']:.2f}x"
        amounts = [megabytes(row["bytes_per_epoch"]), percent(row["test"]), megabytes(row["peak_memory"])]
        if sure:
            times.insert(1, span_text((row["epoch_low_seconds"], row["epoch_high_seconds"]), factor))
            amounts.insert(0, gain_text(row["speedup_low"], row["speedup_high"]))
        lines.append([f"{method} {UNLIKE}" if at in apart else method, *settings, *times, speedup, *amounts])
    spread = {"90 %": any(row["epoch_low_seconds"] and not row["rounds"] for row in rows)}
    spread["range"] = any(row["rounds"] for row in rows)
    interval = [" or ".join(name for name, there in spread.items() if there)] if sure else []
    headings = ["method", *(HEADINGS.get(name, name) for name in columns), f"epoch {unit}", *interval, *shown]
    made = table("", [*headings, "speed-up", *interval, "MB", "test", "peak MB"], lines, left=1 + len(columns))
    scores = {row["score"] for row in rows}
    score = scores.pop() if len(scores) == 1 else "score (accuracy, or micro-F1 where nodes have several labels)"
    reading = (
        f"per epoch: {unit} (median; components sum to the epoch, hidden runs behind compute), MB sent by all ranks "
        f"(mean); test {score} at the best validation; peak memory of the fullest rank; "
        "speed-up against the first method of the same mode, graph, model, parts and cluster"
        + ("; 90 %: intervals of predictions, of speed-ups with the same errors of both" if spread["90 %"] else "")
        + ("; range: least and most of the rounds of a measurement, whose median is shown" if spread["range"] else "")
    )
    which = f"all rows but {UNLIKE}" if apart else "all rows"
    return [f"{which}: {said_once(rows, columns)}", made, reading, *unlike_lines(rows, common, apart)]


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Settings that differ between rows, without those that are said below the table. The cluster is one of them also
    where some rows have none."""
    found = [name for name in ROW_SETTINGS if name not in BELOW and _values(rows, name)[1:]]
    return [*found, "cluster"] if len({row["cluster"] for row in rows}) > 1 and "cluster" not in found else found


def said_once(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    """The settings that all rows share, or the most of them, those in `columns` left out."""
    shared = {name: _values(rows, name)[:1] for name in ROW_SETTINGS if name not in columns}
    return "; ".join(ROW_SETTINGS[name].format(*values) for name, values in shared.items() if values)


def _values(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """The values of a setting, the most common one first; None, where it does not apply, is none."""
    return [value for value, _ in Counter(row[name] for row in rows if row[name] is not None).most_common()]


def unlike_lines(rows: Sequence[dict[str, Any]], common: Mapping[str, str], apart: Mapping[int, str]) -> list[str]:
    """A line on every row that stands apart."""
    from harness.running.summary import UNLIKE

    said = dict.fromkeys(f"{rows[at]['method']}: {own}" for at, own in apart.items())
    rest = ", ".join(f"{name} {value}" for name, value in common.items())
    return [f"{UNLIKE} not like the others ({rest}): {'; '.join(said)}"] if said else []


def quality_table(summary: dict[str, Any], rows: Sequence[dict[str, int]]) -> list[Table | str]:
    """A partition: counts per part, and the totals."""
    columns = list(rows[0])  # part, inner, halo, sent, edges, cut
    counts = table("", columns, [[f"{row[name]:,}" for name in columns] for row in rows])
    totals = [
        [name.replace("_", " "), f"{value:,}" if isinstance(value, int) else significant(value, 4)]
        for name, value in summary.items()
    ]
    return [counts, table("", ["all parts", "value"], totals)]


def cuts_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Partitioners side by side: their time and the totals of their cuts, and both against the first one's."""
    volume = "volume" if "volume" in rows[0] else "num_mirrors"
    first = rows[0]

    def cell(row: dict[str, Any], name: str) -> str:
        return f"{row[name]:,}" if isinstance(row[name], int) else significant(row[name], 4)

    left_out = ("partitioner", "seconds", "num_parts", volume)
    totals = [name for name in first if name not in left_out and not name.startswith(("max_", "mean_"))]
    columns = ["partitioner", "s", f"x {first['partitioner']}", volume, f"x {first['partitioner']}", *totals]
    cells = [
        [
            row["partitioner"], significant(row["seconds"], 3), _times_first(row, first, "seconds"), cell(row, volume),
            _times_first(row, first, volume), *(cell(row, name) for name in totals),
        ]
        for row in rows
    ]  # fmt: skip
    return table("", [column.replace("_", " ").removeprefix("num ") for column in columns], cells)


def _times_first(row: dict[str, Any], first: dict[str, Any], name: str) -> str:
    return f"{row[name] / first[name]:.2f}" if first[name] else DASH


def _time_table(record: dict[str, Any]) -> Table:
    from harness.rank import COMPONENTS

    seconds = record["summary"]["seconds"]
    factor, unit = time_unit([seconds["epoch"]])
    epoch = seconds["epoch"] or 1.0
    rows = [[name, _scaled(seconds[name], factor), f"{100 * seconds[name] / epoch:.1f}"] for name in COMPONENTS]
    rows.append(["epoch", _scaled(seconds["epoch"], factor), "100.0"])
    rows.append(["hidden (not in the sum)", _scaled(seconds["hidden"], factor), ""])
    if "interval" not in record["facts"]:
        return table("", ["time per epoch, median", unit, "%"], rows)
    names = [*COMPONENTS, "epoch", "hidden"]
    spans = [span_text(record["facts"]["interval"]["seconds"].get(name), factor) for name in names]
    whole = [[*row, span] for row, span in zip(rows, spans, strict=True)]
    return table("", ["time per epoch, median", unit, "%", f"90 % interval {unit}"], whole)


def uneven_lines(by_rank: Mapping[str, Sequence[float]]) -> list[str]:
    """Which rank works longest and which shortest, where they differ by more than `UNEVEN`: others wait for it.

    `by_rank`: seconds by component of every rank (`facts.rank_seconds`).
    """
    if not by_rank:
        return []
    parts = [by_rank[name] for name in WORK if name in by_rank]
    work = [sum(seconds) for seconds in zip(*parts, strict=True)]
    if not work or max(work) <= UNEVEN * min(work):
        return []
    (factor, unit), last, first = time_unit([max(work)]), work.index(max(work)), work.index(min(work))
    most, mean, least = (_scaled(each, factor) for each in (work[last], sum(work) / len(work), work[first]))
    return [
        f"ranks are uneven: rank {last} works {most} {unit} an epoch (compute, codec, sample), the mean one {mean}, "
        f"rank {first} {least}; the others wait for it in halo and reduce"
    ]


def gain_text(low: float | None, high: float | None) -> str:
    """The interval of a speed-up; a dash where there is none, and for the first method."""
    return "-" if low is None or high is None or low == high == 1.0 else f"{low:.2f}-{high:.2f}"


def span_text(ends: Sequence[float | None] | None, factor: float) -> str:
    """An interval; a dash where there is none or nothing."""
    if ends is None or None in ends or not any(ends):
        return "-"
    return "-".join(_scaled(end, factor) for end in ends)


def _mean_line(record: dict[str, Any]) -> str:
    """Mean bytes per epoch over the run, because traffic may differ between epochs."""
    return f"mean of all epochs but the first: {byte_text(round(record['summary']['bytes_per_epoch']))} per epoch"


def _byte_table(counts: dict[str, Any]) -> Table:
    layers = range(len(counts["forward"]))
    columns = ["bytes of the last epoch, all ranks", *(f"layer {l}" for l in layers), "total"]
    rows = [
        [name, *(byte_text(count) for count in counts[name]), byte_text(sum(counts[name]))]
        for name in ("forward", "backward")
    ]
    rows += [[name, *("" for _ in layers), byte_text(counts[name])] for name in ("reduce", "other")]
    named = counts.get("others", {})  # results of earlier versions do not tell them apart
    rows += [[f"other: {name}", *("" for _ in layers), byte_text(n)] for name, n in named.items()]
    rows += [[f"of these over {tier}", *("" for _ in layers), byte_text(n)] for tier, n in counts["tiers"].items()]
    return table("", columns, rows)


def _outcome_table(record: dict[str, Any]) -> Table:
    from harness.running.summary import score_name

    summary, last, score = record["summary"], record["epochs"][-1], score_name([record])
    rows = [
        ["final loss", "-" if summary["final_loss"] is None else f"{summary['final_loss']:.4f}"],
        [f"train {score}, last", percent(last["train"])],
        [f"validation {score}, best", percent(summary["best_val"])],
        [f"test {score} at best validation", percent(summary["test_at_best_val"])],
    ]
    memory = last["peak_memory"]
    rows += [[f"peak memory, rank {rank}", byte_text(count) if count else "-"] for rank, count in enumerate(memory[:8])]
    held = record["facts"].get("feature_bytes") or record["facts"].get("eq4_bytes")  # the name in older results
    if held:
        rows.append(["features kept for the backward pass, fullest rank, by formula", byte_text(int(max(held)))])
    if "clock_overhead_share" in record["facts"]:
        cost, share = (record["facts"][f"clock_overhead_{name}"] for name in ("seconds", "share"))
        rows.append(["cost of the clocks, of an epoch", f"{1e6 * cost:.0f} us, {share:.3%}"])
    if len(memory) > 8:
        rows.append([f"peak memory, fullest of {len(memory)} ranks", byte_text(max(memory))])
    return table("", ["outcome", "value"], rows)


def _scaled(seconds: float | None, factor: float) -> str:
    """Seconds in the table's unit; rounding errors (under a nanosecond) become zero."""
    return significant(None if seconds is None else 0.0 if abs(seconds) < 1e-9 else seconds * factor)
