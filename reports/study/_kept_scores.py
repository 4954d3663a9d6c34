"""Scores of a study's runs for the tables of its paper: the mean over seeds of every method, in place of a training."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from reports.core.table import STANDS_IN
from reports.core.train import Trained
from reports.study._cells import RunLine, StudyCell, line_score
from reports.study._claims import drawn, file_of, read_file, run_settings
from reports.study._curves import curve_of
from reports.study._items import store_of
from reports.study._study import MOST_SEEDS


def kept_scores(
    study: str, graph: str, rows: Mapping[str, Mapping[str, Any]], *, model: str = "", where: str = ""
) -> Trained:
    """What the runs of a study say of methods on a published graph, or its stand-in for it. Trains nothing.

    Args:
        study: the name of a file of claims.
        graph, model: published names, as the file has them.
        rows: label -> settings over the graph's, such as the method and its parts. A label without runs has no score.
        where: what the rows share, such as "8 parts", for texts.

    Raises:
        InputError: a graph or model that the file does not have, or a damaged file of runs.
    """
    file, store = read_file(file_of(study)), store_of(study)
    found: dict[str, list[RunLine]] = {}
    dataset = ""
    for label, row in rows.items():
        settings = run_settings(file, graph, model, row)
        dataset = str(settings["dataset"])
        lines = list[RunLine]()
        for seed in range(MOST_SEEDS):  # claims pair seeds from 0 on: as many as there are without a gap
            line = store.finished(StudyCell({**settings, "dataset": _of_seed(dataset, seed), "seed": seed}))
            if line is None:
                break
            lines.append(line)
        if lines:
            found[label] = lines
    scores = {label: [line_score(line) for line in lines] for label, lines in found.items()}
    return Trained(
        scores={label: (statistics.fmean(each), _deviation(each)) for label, each in scores.items()},
        records={label: [_record(line) for line in lines] for label, lines in found.items()},
        data=f"{dataset}{STANDS_IN}{graph}" if _stands_in(dataset) else "",
        summary=f"{dataset}: {_counted(found)}; kept runs of `haloscope study {study}`, which judges claims on them",
        commands=tuple(lines[0]["command"] for lines in found.values()),
        where=", ".join(filter(None, (dataset, where))),
    )


def study_run_settings(
    study: str, graph: str, run: Mapping[str, Any], *, model: str = "", seed: int = 0
) -> dict[str, Any]:
    """Settings of one run as a study would train it on its stand-in for a published graph, drawn for that seed.

    Args:
        study, graph, model: as in `kept_scores`.
        run: settings over the graph's, such as the method and its parts.

    Raises:
        InputError: a graph or model that the file of claims does not have.
    """
    settings = run_settings(read_file(file_of(study)), graph, model, run)
    return {**settings, "dataset": _of_seed(str(settings["dataset"]), seed), "seed": seed}


def _stands_in(dataset: str) -> bool:
    """Whether a study's graph is a stand-in, and not the published graph itself."""
    return dataset.startswith("standin:")


def _of_seed(dataset: str, seed: int) -> str:
    """The graph of a seed: a stand-in is drawn anew for each, as claims have it."""
    return drawn(dataset, seed) if _stands_in(dataset) else dataset


def _deviation(scores: list[float]) -> float:
    return statistics.stdev(scores) if len(scores) > 1 else 0.0


def _record(line: RunLine) -> dict[str, Any]:
    """What tables read of a run's record."""
    epochs = [{"epoch": epoch - 1, "test": score / 100, "observed": {}} for epoch, score in curve_of(line["curve"])]
    return {
        "run_id": line["key"],
        "method": line["method"],
        "epochs": epochs,
        "summary": {"test_at_best_val": line_score(line) / 100},
    }


def _counted(found: Mapping[str, list[RunLine]]) -> str:
    """Epochs and seeds, from the fewest to the most."""
    seeds = [len(lines) for lines in found.values()]
    epochs = [int(line["epochs"]) for lines in found.values() for line in lines]
    if not seeds:
        return "no runs"
    return f"{_range(epochs)} epochs, {_range(seeds)} seeds"


def _range(numbers: list[int]) -> str:
    return f"{min(numbers)}" if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"
