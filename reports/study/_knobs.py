"""How the full score and the isolation loss of a stand-in move with each parameter: runs, and the figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.datasets import StandIn, read_standins
from harness.errors import InputError, unknown
from reports.draw.drawing import AS_PRINTED, COLOURS, panels
from reports.statistics import Estimate, estimate
from reports.study._cells import StudyCell, line_score
from reports.study._runs import Runs
from reports.study._standins import MODEL_WIDTH, TRAIN_SHARE, Design, design_of

KNOBS = ("signal", "homophily", "agreement", "degree", "communities", "label_noise", TRAIN_SHARE, MODEL_WIDTH)
FACTORS = (0.6, 0.8, 1.0, 1.25, 1.6)  # of a value that can be any positive number
SHIFTS = (-0.15, -0.075, 0.0, 0.075, 0.15)  # of a share
NOISES = (0.0, 0.02, 0.05, 0.1, 0.2)
COMMUNITIES_OF_A_CLASS = (2, 3, 4, 6)
SHARES = ("homophily", "agreement", TRAIN_SHARE)
HIGHEST = {"homophily": 0.98, "agreement": 0.98, TRAIN_SHARE: 0.9}


@dataclass(frozen=True)
class Sweep:
    """One parameter's values with both scores."""

    knob: str
    values: tuple[float, ...]
    full: tuple[Estimate, ...]
    isolated: tuple[Estimate, ...]


def places(design: Design, standin: StandIn, knob: str) -> tuple[float, ...]:
    """The values of a parameter that are trained: the stand-in's, and two on either side where there is room."""
    if knob == "label_noise":
        return NOISES
    at = {"communities": design.graph["classes"], **design.graph, **standin.fitted}.get(knob)
    at = {TRAIN_SHARE: design.graph["split"][0], MODEL_WIDTH: design.training["hidden"]}.get(knob, at)
    if at is None:
        raise InputError(f"stand-in {standin.name} has no parameter {knob}")
    if knob in SHARES:
        return tuple(round(float(at) + by, 4) for by in SHIFTS if 0 < at + by <= HIGHEST[knob])
    if knob == "communities":  # a multiple of the classes, which all have as many; agreement needs two of each at least
        return tuple(float(design.graph["classes"] * each) for each in COMMUNITIES_OF_A_CLASS)
    found = [at * factor for factor in FACTORS]
    return tuple(float(round(value)) if knob == MODEL_WIDTH else float(f"{value:.4g}") for value in found)


def sweep(name: str, knobs: Sequence[str], runs: Runs, seeds: int, scale: float = 1.0) -> list[Sweep]:
    """Train a fitted stand-in with one parameter at a time off; parameters that the budget left out are missing.

    `scale` is of the design's number of nodes.

    Raises:
        InputError: an unknown parameter, or a stand-in that is not fitted.
    """
    design, standins = design_of(name), read_standins()
    if name not in standins:
        raise InputError(f"stand-in {name} is not fitted yet: haloscope standin fit {name}")
    for knob in knobs:
        if knob not in KNOBS:
            raise unknown("parameter of a stand-in", knob, KNOBS)
    standin, found = standins[name], []
    for knob in knobs:
        values = places(design, standin, knob)
        cells = [
            [[StudyCell(design.settings({**standin.fitted, knob: value}, aim.method, seed, scale))
              for seed in range(seeds)] for value in values]
            for aim in (design.full, design.isolated)
        ]  # fmt: skip
        if not runs.make([cell for side in cells for point in side for cell in point]):
            continue
        each = [
            [estimate([line_score(runs.store.lines[cell.key]) for cell in point]) for point in side] for side in cells
        ]
        found.append(Sweep(knob, values, tuple(each[0]), tuple(each[1])))
    return found


def draw_parameters(name: str, sweeps: Sequence[Sweep], paths: tuple[Path, Path]) -> None:
    """A panel per parameter: the full score and the isolated one, with the printed scores at the fitted value."""
    design, standin = design_of(name), read_standins()[name]
    with panels(paths, len(sweeps), columns=3, height=2.2) as axes:
        for panel, one in zip(axes, sweeps, strict=True):
            for label, estimates, colour in (("full", one.full, COLOURS[0]), ("isolated", one.isolated, COLOURS[1])):
                means = [found.mean for found in estimates]
                spread = [found.deviation if found.count > 1 else 0.0 for found in estimates]
                panel.errorbar(
                    one.values, means, spread, fmt="o-", color=colour, markersize=3, linewidth=1, label=label
                )
            if one.knob in standin.fitted:
                at = [standin.fitted[one.knob]] * 2
                panel.scatter(at, design.goal.scores, **AS_PRINTED, label="printed")
            panel.set_xlabel(one.knob)
            panel.set_ylabel("test score (%)")


def moved(sweeps: Sequence[Sweep]) -> list[dict[str, float | str]]:
    """A row per value: scores and the isolation loss, as the figure shows them."""
    return [
        {
            "parameter": one.knob,
            "value": value,
            "full": full.mean,
            "isolated": isolated.mean,
            "loss": full.mean - isolated.mean,
        }
        for one in sweeps
        for value, full, isolated in zip(one.values, one.full, one.isolated, strict=True)
    ]
