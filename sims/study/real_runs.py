"""Adds the costs that only real runs show to a measured device file: what ranks that exchange compute longer, and what
operators and exchanges take the host of a GPU.

Small training runs on graphs made for this (`calibrated.small_run`) are held against simulations of them; runs that
predictions are validated on are not used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from scipy.optimize import lsq_linear, nnls

from harness import machine, running
from harness.config import LabSpec, RunConfig
from harness.errors import HaloscopeError
from harness.running.results import Result
from sims.cluster import load_cluster
from sims.device import DeviceProfile, load_device, save_device
from sims.replay import Changes, Replay, record
from sims.study._profiling import SKIPPED_EPOCHS
from sims.study.calibrated import BRIEF_GRAPHS, SIZES, Made, save_over, small_run
from sims.units import NORMAL_90, SPREADS, Quantity, fitted

ACCOMPANIED, ACCOMPANIED_EPOCHS = tuple(itertools.product(("vanilla", "sylvie-s", "cdfgnn"), SIZES)), 14
"""What `add_contention` trains for real: method and graph."""

BRIEF_ACCOMPANIED = (*itertools.product(("vanilla",), BRIEF_GRAPHS), ("sylvie-s:bits=1", BRIEF_GRAPHS[1]))
"""What a brief calibration trains for that."""

TRAINED = "trained.json"
"""File beside a calibrated device: typical compute seconds of each of these runs when it was calibrated."""

PASSES, BRIEF_PASSES = 3, 2
"""How often all of these runs are made, one after the other: a virtual machine changes its pace for seconds."""

LEAST_FACTOR = 0.8
"""Below 1 by no more than caches are worth: in noisy runs of small graphs the cost of effects could explain it all."""

SCALE_S = 1e-4
"""About what an effect takes, which scales a column of a fit."""

STEP_S, STRETCH = 1e-3, 1e3
"""Seconds by which it changes the cost of an effect, to find the number of effects; the factor by which `add_host`
stretches what operators take the host beyond a launch, to find their sum."""


def add_contention(
    folder: Path,
    *,
    threads: int,
    hosts: LabSpec | None = None,
    trained: Sequence[tuple[str, Made]] = ACCOMPANIED,
    passes: int = PASSES,
) -> None:
    """Run training for real on graphs made for this, simulate the same runs, and write the missing costs.

    Ranks that exchange compute longer: by a constant per effect, and by a factor, which is below 1 where ranks of one
    process, in which operators were timed, took caches from each other. Both are fitted to the compute seconds of the
    real runs, so predictions are at the pace that the machine had then. Their range is what the fit leaves, with what
    the same run differs by from one time to the next, or what a measured number is off in general if that is more,
    since that pace changes.

    `TRAINED`, a file beside them, has the median seconds of each run.

    Args:
        folder: `device.toml` with operators, and `cluster.toml`.
        hosts: a lab to run in, with as many ranks as it has places; otherwise two ranks of this machine.
        trained: methods, each with its graph.
        passes: how often each is run.

    Raises:
        InputError: a file cannot be read or written, or the lab cannot be built.
        HaloscopeError: a rank failed, or a measuring process did.
    """
    profile, ranks = load_device(folder / "device.toml"), 2 if hosts is None else hosts.ranks
    probe = replace(profile, effect=fitted(profile.effect.value + STEP_S, ""))
    configs = [_accompanied(each, threads, ranks) for each in trained]
    there = "local" if hosts is None else hosts.name
    real = [each.changed(mode="real", cluster=there) for each in configs]
    runs = np.asarray([[_computing(running.run(each)) for each in real] for _ in range(passes)])
    measured = np.median(runs, axis=0)
    cases = (_Case(profile, hosts), _Case(probe, hosts))
    predicted, more = np.transpose([_simulated(each, folder, cases) for each in configs])
    effects = (more - predicted) / STEP_S
    design = np.stack([predicted, effects * SCALE_S], axis=1) / measured[:, None]
    share, extra = lsq_linear(design, np.ones(len(configs)), bounds=([LEAST_FACTOR, 0.0], np.inf)).x
    off = _apart(measured / (predicted * float(share) + effects * float(extra * SCALE_S)))
    again = math.sqrt(np.log(runs).var(axis=0, ddof=1).mean())
    what = f"{len(configs)} real runs of {ranks} ranks, {passes} times each ({100 * again:.0f} % apart)"
    note = f"fitted to {what}, whose compute it leaves {100 * off:.0f} % apart"
    another = max(math.log(SPREADS["measured"]), NORMAL_90 * again)
    crowding, end = fitted(float(share), note), math.exp(math.hypot(NORMAL_90 * off, another))
    crowding = replace(crowding, range=(crowding.value / end, crowding.value * end))
    program = f"{1e6 * profile.effect.value:.0f} us of the program; the rest {note}"
    effect = fitted(profile.effect.value + float(extra * SCALE_S), program)
    save_over(replace(profile, effect=effect, crowding=crowding), folder / "device.toml")
    machine.write_atomically(folder / TRAINED, msgspec.json.encode(measured.tolist()))


def train_again(which: int, *, threads: int) -> float:
    """Compute seconds of one of the runs that `add_contention` was fitted to, now: how fast the machine is.

    Args:
        which: its number in `ACCOMPANIED`; two ranks of this machine.

    Raises:
        HaloscopeError: a rank failed.
    """
    config = _accompanied(ACCOMPANIED[which], threads, 2)
    return _computing(running.run(config.changed(mode="real", cluster="local")))


def _accompanied(each: tuple[str, Made], threads: int, ranks: int) -> RunConfig:
    method, graph = each
    return small_run(method, graph, threads, quick=True).changed(parts=ranks, epochs=ACCOMPANIED_EPOCHS)


def _apart(ratios: np.ndarray) -> float:
    """The standard deviation around 1 of ratios that two constants were fitted to, on a logarithmic scale."""
    return float(np.sqrt(np.sum(np.log(ratios) ** 2) / (len(ratios) - 2)))


def add_host(folder: Path, *, quick: bool = True) -> None:
    """Train tiny graphs on one GPU for real, and write its host time per operator, around effects, and for graphs.

    These runs are bound by the host. The numbers of operators and effects per epoch come from simulations of them.

    Args:
        folder: `device.toml` and `cluster.toml` of a GPU.

    Raises:
        InputError: a file cannot be read or written.
        HaloscopeError: a run failed.
    """
    profile, rows = load_device(folder / "device.toml"), []
    alike = {name: replace(cost, host=Quantity(0.0)) for name, cost in profile.operators.items()}
    slower = {name: replace(c, host=fitted(c.host.value * STRETCH)) for name, c in profile.operators.items()}
    launched = replace(profile, launch=fitted(STEP_S, ""), effect=fitted(0.0, ""), operators=alike)
    around = replace(profile, launch=fitted(1e-9, ""), effect=fitted(STEP_S, ""), operators=alike)
    beyond = replace(profile, launch=fitted(1e-9, ""), effect=fitted(0.0, ""), operators=slower)
    for model, layers in itertools.product(("gcn", "sage", "gat"), (2, 4)):
        config = small_run("single", SIZES[0], 1, quick).changed(parts=1, model=model, layers=layers)
        config = config.changed(epochs=SKIPPED_EPOCHS + (20 if quick else 100))
        # An exchange of one rank is nothing but what its host does around it.
        measured, replayed = (
            _computing(running.run(config.changed(mode="real", device="cuda", cluster="local", cuda_graphs=g)), "epoch")
            for g in (False, True)
        )
        operators, effects, more = _simulated(config, folder, [_Case(each) for each in (launched, around, beyond)])
        rows.append((measured, operators / STEP_S, effects / STEP_S, more / STRETCH, replayed))
    measured, operators, effects, more, replayed = np.asarray(rows).T
    design = np.stack([operators, effects], axis=1) / measured[:, None] * SCALE_S
    launch, effect = nnls(design, np.maximum(measured - more, 0.0) / measured)[0] * SCALE_S
    error = float(np.median(np.abs((operators * launch + effects * effect + more) / measured - 1)))
    note = f"of the host; fits {len(rows)} real runs within {100 * error:.0f} %, median"
    graph = float(np.median(replayed / effects))
    error = float(np.median(np.abs(graph * effects / replayed - 1)))
    note_of_graph = f"of the host; fits {len(rows)} real runs with --cuda-graphs within {100 * error:.0f} %, median"
    found = replace(
        profile, launch=fitted(max(float(launch), 1e-8), note), effect=fitted(float(effect), note),
        graph=fitted(graph, note_of_graph),
    )  # fmt: skip
    save_over(found, folder / "device.toml")


class _Case(NamedTuple):
    """What a run is simulated on: a device, in the cluster of a folder, or in a lab of it."""

    device: DeviceProfile
    hosts: LabSpec | None = None

    def cluster(self, folder: Path) -> str:
        """The cluster's name."""
        if self.hosts is not None:
            return replace(self.hosts, calibration=str(folder)).name
        return str(folder / "cluster.toml")

    def load(self, _: str) -> DeviceProfile:
        """The device, whatever its file's name."""
        return self.device


def _simulated(config: RunConfig, folder: Path, cases: Sequence[_Case]) -> list[float]:
    """Typical compute seconds of a run in each of the cases, with the cluster of `folder`: simulated once, and timed by
    replay."""
    with machine.run_folder() as beside:
        save_device(cases[0].device, beside / "device.toml")
        (beside / "cluster.toml").write_bytes((folder / "cluster.toml").read_bytes())
        replay = Replay(record(config.changed(mode="sim", cluster=cases[0].cluster(beside))))
        timed = [replay.time(load_cluster(case.cluster(beside)), Changes(case.load)) for case in cases]
        return [_typical(each.epochs, "compute") for each in timed]


def _computing(result: Result, component: str = "compute") -> float:
    """Typical seconds of a component, or of the epoch."""
    if result.state != "done":
        raise HaloscopeError(
            f"measuring the compute of {result.config.training.method}: {result.state}: {result.message}"
        )
    return _typical(result.epochs, component)


def _typical(epochs: Sequence[dict[str, Any]], component: str) -> float:
    """Median of the seconds of a component in the epochs after the first ones."""
    return float(np.median([epoch["seconds"][component] for epoch in epochs[SKIPPED_EPOCHS:]]))
