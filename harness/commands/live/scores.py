"""Test scores of earlier results for the live page: of runs like its own, by method and ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.errors import InputError
from harness.running.results import load_result
from sims.study import RecordedRun

LEARNT = (
    "split", "protocol", "features",
    "model", "layers", "linear_layers", "hidden", "heads", "hidden_heads", "dropout", "norm", "precision",
)  # fmt: skip
"""Settings, beside the graph and the number of ranks, that a run must share with the page's for its scores to be shown
there. How long and how fast it learns (epochs, learning rate, seed) is the user's choice."""

MOST_NAMES = 3
"""Files that a line names."""


class FoundScores(NamedTuple):
    """Scores by epoch, a line of the chart each, and what is said of the files that they are not from."""

    lines: list[dict[str, Any]]
    notes: list[str]


def scores_of(folder: Path, runs: Sequence[RecordedRun]) -> FoundScores:
    """The test scores of the results in a folder that are of the same graph, split, model, method and number of ranks
    as one of `runs`: of each the one that was trained for most epochs, then of the lowest seed.

    Raises:
        InputError: no result fits; it says why those of these methods do not.
    """
    fitting: dict[tuple[str, int], list[dict[str, Any]]] = {}
    damaged, unlike = list[str](), dict[str, list[str]]()
    methods = {run.config.training.method for run in runs}
    for path in sorted(folder.glob("*.json")):
        try:
            record = load_result(path)
        except InputError as error:
            damaged.append(f"left out: {error}")
            continue
        if record["config"]["method"] not in methods or not _judged(record):
            continue
        why = _unlike(record, runs)
        if why:
            unlike.setdefault(f"{record['config']['method']}: {why}", []).append(path.name)
        else:
            fitting.setdefault((record["config"]["method"], record["config"]["parts"]), []).append(record)
    notes = [*damaged, *(f"left out of --results: {why} ({_listed(names)})" for why, names in unlike.items())]
    if not fitting:
        found = "no result of these methods with test scores" + " is of this graph, model and number of ranks" * bool(
            unlike
        )
        raise InputError("; ".join([f"--results {folder}: {found}", *notes]))
    chosen = {key: min(records, key=_preference) for key, records in sorted(fitting.items())}
    return FoundScores(
        [_line(record, ranks) for (_, ranks), record in chosen.items()],
        [*notes, *(_several(chosen[key], records) for key, records in fitting.items() if len(records) > 1)],
    )


def _judged(record: Mapping[str, Any]) -> list[tuple[int, float]]:
    """Epochs after which the run was evaluated, and its test scores then."""
    return [(epoch["epoch"] + 1, epoch["test"]) for epoch in record["epochs"] if epoch["test"] is not None]


def _line(record: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    epochs, scores = zip(*_judged(record), strict=True)
    return {"method": record["config"]["method"], "ranks": ranks, "epochs": epochs, "scores": scores}


def _unlike(record: Mapping[str, Any], runs: Sequence[RecordedRun]) -> str:
    """In what a result differs from the page's runs of its method, as "hidden 32 (here 16), parts 4 (here 2 or 3)"."""
    config, graph = record["config"], record["graph"]
    mine = [run for run in runs if run.config.training.method == config["method"]]
    here, shown = mine[0].config.flat(), mine[0].replay.recording.graph
    found = []
    if not _same_graph(record, here, shown):
        found.append(f"graph {graph.get('name', config['dataset'])} (here {shown['name']}, by content)")
    found += [f"{name} {config[name]} (here {here[name]})" for name in LEARNT
              if name in config and config[name] != here[name]]  # fmt: skip
    ranks = dict.fromkeys(run.config.cut.parts for run in mine)
    if config["parts"] not in ranks:
        found.append(f"parts {config['parts']} (here {' or '.join(map(str, ranks))})")
    return ", ".join(found)


def _same_graph(record: Mapping[str, Any], here: Mapping[str, Any], shown: Mapping[str, Any]) -> bool:
    """Whether a result is of the page's graph. Its fingerprint covers the split, which the seed may draw: of another
    seed the name and the counts are compared."""
    config, graph = record["config"], record["graph"]
    if config.get("seed") == here["seed"]:
        return bool(graph.get("fingerprint") == shown.get("fingerprint"))
    counts = ("num_nodes", "num_edges", "num_features", "num_classes")
    return bool(config["dataset"] == here["dataset"] and all(graph.get(name) == shown.get(name) for name in counts))


def _preference(record: Mapping[str, Any]) -> tuple[int, int, str]:
    return -_judged(record)[-1][0], int(record["config"].get("seed", 0)), str(record["run_id"])


def _several(chosen: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> str:
    """Which of several results is shown."""
    config = chosen["config"]
    names = [name for name in config if len({str(each["config"].get(name)) for each in records}) > 1]
    mine = ", ".join(f"{name} {config[name]}" for name in names)
    return (
        f"{len(records)} results of {config['method']} on {config['parts']} ranks fit; shown is "
        f"{chosen['run_id'][:12]} ({mine})"
    )


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    more = f" and {len(found) - MOST_NAMES} more" * (len(found) > MOST_NAMES)
    return ", ".join(found[:MOST_NAMES]) + more
