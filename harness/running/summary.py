"""One flat row per run: the numbers of tables, CSV files and data frames, with the same names in all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.rank import COMPONENTS
from harness.running.alike import bases_of, place_of, preset_notes
from harness.running.intervals import ends_in, interval_note, rounds_of, speedup_interval

SECONDS = ("epoch", *COMPONENTS, "hidden")

TREATMENTS = ("layer0", "order", "norm")
"""Columns of a row that must be equal for times to be comparable."""

UNLIKE = "*"
"""Marks a row that stands apart."""


def row_of(record: dict[str, Any]) -> dict[str, Any]:
    """A result record in one row: seconds and bytes per epoch, scores in [0, 1] (`score` says which, accuracy or
    micro-F1), peak bytes of the fullest rank.

    Keys are always the same; values that a run does not have are None (seconds in loopback, accuracy of shapes).
    """
    summary = record["summary"]
    seconds = {f"{name}_seconds": summary["seconds"].get(name) for name in SECONDS}
    low, high = ends_in(record) or (None, None)
    return {
        **settings_of_run(record),
        "state": record["state"],
        **seconds,
        "epoch_low_seconds": low,
        "epoch_high_seconds": high,
        "rounds": len(rounds_of(record)) or None,
        "bytes_per_epoch": summary["bytes_per_epoch"],
        "test": summary["test_at_best_val"],
        "best_test": summary["best_test"],
        "peak_memory": summary["peak_memory"] or None,
        "run_id": record["run_id"],
    }


def settings_of_run(record: dict[str, Any]) -> dict[str, Any]:
    """The part of a row that says what was run; needs no epochs."""
    config = record["config"]
    return {
        "method": config["method"],
        "mode": config["mode"],
        "cluster": place_of(record),
        "dataset": record["graph"].get("name", config["dataset"]),
        "model": config["model"],
        "layers": config["layers"],
        "hidden": config["hidden"],
        "parts": config["parts"],
        "layer0": record["facts"].get("layer0"),
        "order": layer_orders(record["facts"].get("orders", ())),
        "norm": config["norm"],
        "score": score_name([record]),
    }


def score_name(records: Iterable[Mapping[str, Any]]) -> str:
    """What scores of runs are: micro-F1 where nodes have several labels, else accuracy; "score" for some of both."""
    found = {"micro-F1" if record["graph"].get("multilabel") else "accuracy" for record in records}
    return found.pop() if len(found) == 1 else "score"


def layer_orders(orders: Sequence[str]) -> str | None:
    """The order of all layers that read neighbours, or which of them differ; None where it is not known."""
    if len(set(orders)) < 2:
        return orders[0] if orders else None
    late = [str(l) for l, order in enumerate(orders) if order == "linear-first"]
    return f"linear-first in layer {', '.join(late)}"


def comparison(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of several runs with `speedup`: the epoch time of the first run that this one may be compared with
    (`alike.bases_of`, whose run id is `base`) over this one's; and its interval where both are predicted, or its range
    where both were measured in rounds."""
    rows = [row_of(record) for record in records]
    for row, record, base in zip(rows, records, bases_of(records), strict=True):
        first = None if base is None else base["summary"]["epoch_seconds"]
        row["speedup"] = first / row["epoch_seconds"] if first and row["epoch_seconds"] else None
        ends = None if base is None else speedup_interval(record, base)
        row["speedup_low"], row["speedup_high"] = ends or (None, None)
        row["base"] = None if base is None else base["run_id"]
    return rows


def standing_apart(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, str], dict[int, str]]:
    """What most rows share of `TREATMENTS`, and for every row that stands apart (by number) what it has instead.

    A treatment that does not apply to a row (None) sets no row apart.
    """
    common = {
        name: Counter(row[name] for row in rows if row.get(name) is not None).most_common(1)[0][0]
        for name in TREATMENTS
        if any(row.get(name) is not None for row in rows)
    }
    apart = {}
    for at, row in enumerate(rows):
        own = [f"{name} {row[name]}" for name, value in common.items() if row.get(name) not in (None, value)]
        if own:
            apart[at] = ", ".join(own)
    return common, apart


def unlike_their_bases(rows: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """For every row (by number) that has another treatment than the row which its speed-up is over (`base`), what it
    has, and the other has not."""
    known = {row["run_id"]: row for row in rows}
    apart = {}
    for at, row in enumerate(rows):
        other = known.get(row.get("base"), row)
        pairs = {name: (row.get(name), other.get(name)) for name in TREATMENTS}
        own = [f"{name} {a}, not {b}" for name, (a, b) in pairs.items() if None not in (a, b) and a != b]
        if own:
            apart[at] = ", ".join(own)
    return apart


def notes_of(record: dict[str, Any]) -> list[str]:
    """Notes on the numbers: stand-ins, the input layer, assumptions, and quantities that were not measured."""
    config, facts = record["config"], record["facts"]
    notes = [str(note) for note in record["graph"].get("notes", ())]
    if facts.get("layer0"):
        meaning = _LAYER0_OF.get(facts.get("cut", "edge"), _LAYER0)
        notes.append(f"layer0 = {facts['layer0']}: {meaning[facts['layer0']]}")
    notes += [str(note) for note in facts.get("notes", ())]
    if "interval" in facts:
        notes.append(interval_note(facts["interval"]))
    if config["mode"] in _MEMORY:
        notes.append(f"peak memory in {config['mode']}: {_MEMORY[config['mode']][config['device']]}")
    if config["mode"] == "loopback":
        notes.append("loopback: all ranks in one process, without a clock; use --mode sim or --mode real for times")
    if "shared_cores" in facts:
        notes.append(f"times are worth little: {facts['shared_cores']}")
    if config["mode"] == "sim":
        notes += preset_notes(config["cluster"])
    if config["shapes_only"]:
        notes.append("shapes only: no numbers were computed, so there is no accuracy")
    if record["message"]:
        notes.append(record["message"])
    return notes


_TENSORS = "tensors alive on the rank's device"
_MEMORY = {
    "sim": {"cpu": _TENSORS, "cuda": _TENSORS},
    "real": {"cpu": "what the rank's process grew by while it trained", "cuda": _TENSORS},
}
_LAYER0 = {
    "precompute": "input features are aggregated once, before training, with every boundary node the rank holds",
    "cache": "every rank keeps its boundary nodes' input features",
    "exchange": "input features of boundary nodes are sent every epoch",
}
_LAYER0_ALONE = {
    "precompute": "input features are aggregated once, before training, among the rank's own",
    "cache": "input features are the rank's own; none travel",
    "exchange": "input features are the rank's own; none travel",
}
_LAYER0_OF = {
    "none": _LAYER0_ALONE,
    "overlap": _LAYER0_ALONE,
    "vertex": {
        "precompute": "input features are aggregated once, before training, over all replicas",
        "exchange": "partial sums of the first layer travel every epoch like those of the others",
    },
}
