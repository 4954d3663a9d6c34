"""The constants of EC-Graph's testbed: three for EC-Graph's code on the clusters, one for each library on one machine.

EC-Graph's code base has two systems with printed times, EC-Graph and the authors' DistGNN. The constants are fitted on
rows of DistGNN: the device's on Reddit, which computes, then that of the messages' software on Cora, which hardly does,
and that of the tables of vertex numbers on Pubmed, which has seven times Cora's vertices and as few bytes to send. They
serve all data sets, depths, numbers of machines, EC-Graph-S, and the second cluster, of which no baseline is
printed. The wire has its printed bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from harness.errors import InputError
from reports.core.context import Context
from reports.core.table import Fitted
from reports.ec_graph._times import DATASETS, DISTGNN, LAYERS, PARTS, Constants, Machines, alone, cell

FIRST = LAYERS[0]
ROUNDS_OF_ALL = 3
ROUNDS, HIT = 10, 0.002  # secant steps at most; relative distance from the printed time at which a fit is done
DEVICE_ON, MESSAGES_ON, NUMBERS_ON = "reddit", "cora", "pubmed"
GUESS = 5e-7  # seconds of a vertex number, from which its fit starts
LIBRARY_ON = {"DGL": "reddit", "PyG": "pubmed"}
"""Data sets whose rows of two layers the constants are fitted on."""


@dataclass(frozen=True)
class Timing:
    """The testbed with its fitted constants."""

    context: Context
    code: Constants
    libraries: dict[str, float]

    @classmethod
    def fitted(cls, context: Context, *libraries: str) -> Timing:
        """With the constants of EC-Graph's code, and of these libraries on one machine."""
        return cls(context, code_constants(context), {system: library(context, system) for system in libraries})

    def machines(self, dataset: str, layers: int, parts: int = PARTS, *, printed: bool = False) -> Machines:
        """A data set at one depth on the paper's machines."""
        return Machines(self.context, dataset, layers, parts, self.code, printed=printed)


def code_constants(context: Context) -> Constants:
    """The three constants of EC-Graph's code, listed in `Context.fits`."""

    def distgnn(dataset: str, device: float, messages: float, number: float) -> float:
        factors = Constants(device, messages, number)
        return Machines(context, dataset, FIRST, constants=factors, trial=True).seconds(DISTGNN)

    device, messages, number = 1.0, 1.0, GUESS
    for _ in range(ROUNDS_OF_ALL):  # every row has a little of what the others are fitted on
        device = solved(partial(distgnn, DEVICE_ON, messages=messages, number=number), DEVICE_ON, "DistGNN", device)
        messages = solved(partial(distgnn, MESSAGES_ON, device, number=number), MESSAGES_ON, "DistGNN", messages)
        number = solved(partial(distgnn, NUMBERS_ON, device, messages), NUMBERS_ON, "DistGNN", number)
    _list(context, "ec-graph", "factor on device speed", 1 / device, DEVICE_ON, "DistGNN")
    _list(context, "ec-graph", "factor on the time of the messages' software", messages, MESSAGES_ON, "DistGNN")
    _list(context, "ec-graph", "factor on a microsecond for a vertex number", number * 1e6, NUMBERS_ON, "DistGNN")
    return Constants(device, messages, number)


def library(context: Context, system: str) -> float:
    """The factor on the operators' time of DGL or PyG on one machine, listed in `Context.fits`."""
    dataset = LIBRARY_ON[system]
    factor = solved(lambda slow: alone(context, dataset, FIRST, system, slow, trial=True).epoch, dataset, system)
    _list(context, f"one machine of ec-graph, {system}", "factor on device speed", 1 / factor, dataset, system)
    return factor


def fitted_row(dataset: str, system: str) -> str:
    """The description of a row that a constant is fitted on."""
    return f"{DATASETS[dataset]}, {FIRST} layers, {system}"


def solved(seconds: Callable[[float], float], dataset: str, system: str, start: float = 1.0) -> float:
    """The factor at which `seconds`, nearly linear in it, has the printed time; `start` is a first guess.

    Raises:
        InputError: the rest of the epoch alone takes longer than the printed time, or no factor was found.
    """
    printed = cell(dataset, FIRST, system) or 0.0
    before, at = (start / 2, seconds(start / 2)), start
    for _ in range(ROUNDS):
        now = seconds(at)
        if abs(now / printed - 1) < HIT:
            return at
        slope = (now - before[1]) / (at - before[0])
        before, at = (at, now), at + (printed - now) / slope if slope > 0 else 0.0
        if at <= 0:
            raise InputError(f"what is not fitted takes longer than the printed {printed:.3g} s ({system}, {dataset})")
    raise InputError(f"no factor gives {printed:.3g} s: {now:.3g} s after {ROUNDS} trials ({system}, {dataset})")


def _list(context: Context, testbed: str, constant: str, value: float, dataset: str, system: str) -> None:
    context.fits[Fitted(testbed=testbed, constant=constant, value=value, row=fitted_row(dataset, system))] = None
