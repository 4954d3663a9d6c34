"""Adds the costs of all operators of real training, and of neighbour sums on given graphs, to a measured device file.

The operators are timed in small training runs of every method (`_profiling`; those of a GPU in runs of one rank,
`_gpu_profiling`), in one process per core at once, so that they share caches and memory as the ranks of a run do. The
slowdown of compute in real runs, and the host time of a GPU, are measured in real runs. The graphs are made for this
purpose; runs that predictions are validated on are not used.
"""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from scipy.optimize import nnls

from harness import machine, running
from harness.config import LabSpec, RunConfig, from_mapping
from harness.errors import HaloscopeError
from harness.machine import core_count
from harness.methods.registry import METHODS
from harness.running.results import Result
from sims.cluster import load_cluster
from sims.device import DeviceProfile, Work, fit_cost, load_device, save_device
from sims.replay import Changes, Replay, record
from sims.study._gpu_profiling import observe_gpu
from sims.study._profiling import (
    SCALES,
    SKIPPED_EPOCHS,
    Epoch,
    Observed,
    observe,
    observe_blocks,
    observe_unwatched,
)
from sims.units import NORMAL_90, SMALLEST, Quantity, fitted

SIZES = ((1_000, 16), (8_000, 48), (40_000, 160))
"""Nodes and columns of the graphs that operators are timed on; `validate` uses none of them."""

BRIEF_METHODS, BRIEF_GRAPHS = ("vanilla", "bns-gcn:p=0.1", "sylvie-s:bits=1"), ((1_000, 16), (20_000, 96))
"""Of a calibration that takes seconds: what `haloscope demo` compares. Other operators are priced by their class."""

VARIED = ((3_000, 8, 4), (12_000, 32, 8), (12_000, 64, 41), (20_000, 128, 7), (10_000, 256, 100))
"""Nodes, columns and classes of further graphs for a few methods and models: operators on rows cost by the row too, and
more on narrow rows."""

WIDE_GRADIENTS, WIDE_CODECS = (64, 128), ("ec-graph", "ec-graph-s:fanouts=10/5/5")
"""Widths of those in which EC-Graph's codecs are timed too, with three layers: with two, the gradients that they
convert are as narrow as there are classes, and what they cost by the row and by the byte cannot be told apart."""

GPU_GRAPHS = ((2_000, 10, 32), (20_000, 15, 128), (60_000, 25, 64), (150_000, 12, 256), (250_000, 35, 128))
"""Nodes, neighbours and columns of the graphs that operators of a GPU are timed on."""

GPU_MODELS: tuple[dict[str, Any], ...] = (
    {"model": "gcn"}, {"model": "sage"}, {"model": "gat"}, {"model": "gat", "heads": 4},
    {"model": "sage", "norm": "layer", "dropout": 0.5}, {"model": "gcn", "dropout": 0.5},
)  # fmt: skip
"""And the networks, of three layers."""

LOCAL = ("compute", "codec", "sample", "swap")
"""Components of an epoch that are a rank's own work."""

LIMIT_S = 900.0

ACCOMPANIED, ACCOMPANIED_EPOCHS = tuple(itertools.product(("vanilla", "sylvie-s", "cdfgnn"), SIZES)), 14
"""What `add_contention` trains for real: method, nodes and columns of the graph."""

BRIEF_ACCOMPANIED = (*itertools.product(("vanilla",), BRIEF_GRAPHS), ("sylvie-s:bits=1", BRIEF_GRAPHS[-1]))
"""What a brief calibration trains for that."""

ALONE_EPOCHS = SKIPPED_EPOCHS + 6
"""Epochs of the same training without exchanges."""

STEP_S, STRETCH = 1e-3, 1e3
"""Seconds by which it changes the cost of an effect, to find the number of effects; the factor by which `add_host`
stretches what operators take the host beyond a launch, to find their sum."""


class Found(msgspec.Struct):
    """The measurements of one process: operator, its distinct works with their times; typical epochs."""

    samples: dict[str, list[tuple[Work, list[float]]]]
    epochs: list[Epoch]


def workloads(
    threads: int, quick: bool, only: Sequence[str] = (), sizes: Sequence[tuple[int, int]] = SIZES
) -> list[RunConfig]:
    """The training runs in which operators are timed: every method at every size, all codecs and models; or `only`
    these methods at every size."""
    methods = list(only) or [name for name in METHODS.builtin if name != "single"]
    more = [f"sylvie-s:bits={bits}" for bits in (2, 4, 8)] + [f"ec-graph:bits={bits}" for bits in (1, 4, 8)]
    found = [_workload(method, *size, threads, quick) for size in sizes for method in methods]
    if only:
        return found
    found += [_workload(method, *size, threads, quick) for size in sizes[:2] for method in more]
    for model in ("sage", "gat"):
        found += [_workload("vanilla", *size, threads, quick).changed(model=model) for size in sizes]
    for nodes, width, classes in VARIED:
        varied = _workload("sylvie-s:bits=1", nodes, width, threads, quick, classes)
        found += [varied, *(varied.changed(method="vanilla", model=model) for model in ("sage", "gat"))]
        if width in WIDE_GRADIENTS:
            found += [varied.changed(method=method, layers=3) for method in WIDE_CODECS]
    return found


def add_operators(
    device: Path,
    *,
    threads: int,
    quick: bool = True,
    only: Sequence[str] = (),
    sizes: Sequence[tuple[int, int]] = SIZES,
) -> None:
    """Time every operator and write its costs, and the overhead of Python around it, into the device file.

    Args:
        only: the methods whose operators are timed, all by default.
        sizes: nodes and columns of the graphs.

    Raises:
        InputError: the device file cannot be read or written.
        HaloscopeError: a measuring process failed.
    """
    profile = load_device(device)
    copies = max(1, core_count() // threads)
    observed = measure_operators("epochs", workloads(threads, quick, only, sizes), copies)
    launch, effect, byte = observed.overheads()
    profile = replace(
        profile,
        launch=fitted(max(launch, 1e-8), "Python and autograd around an operator"),
        effect=fitted(effect, "of the program around an exchange"),
        release=fitted(1 / byte, "memory that goes back and comes again") if byte >= SMALLEST else None,
        operators=observed.costs(),
    )
    _save(profile, device)


def add_contention(
    folder: Path,
    *,
    threads: int,
    hosts: LabSpec | None = None,
    trained: Sequence[tuple[str, tuple[int, int]]] = ACCOMPANIED,
) -> None:
    """Run training for real on graphs made for this, simulate the same runs, and write the missing costs.

    Ranks that exchange compute longer: by a constant per effect, and memory-bound operators by a share. Both are fitted
    to the compute seconds of the real runs. Before and after these, the same training is timed without exchange,
    as operators are. What it takes longer or shorter than predicted is the pace of the machine: it is divided out of
    the fit, and part of the range of predictions, since it may change again.

    Args:
        folder: `device.toml` with operators, and `cluster.toml`.
        hosts: a lab to run in, with as many ranks as it has places; otherwise two ranks of this machine.
        trained: methods, each with the nodes and columns of its graph.

    Raises:
        InputError: a file cannot be read or written, or the lab cannot be built.
        HaloscopeError: a rank failed, or a measuring process did.
    """
    profile, ranks = load_device(folder / "device.toml"), 2 if hosts is None else hosts.ranks
    probe = replace(profile, effect=fitted(profile.effect.value + STEP_S, ""))
    configs = [
        _workload(method, *size, threads, quick=True).changed(parts=ranks, epochs=ACCOMPANIED_EPOCHS)
        for method, size in trained
    ]
    there, copies = "local" if hosts is None else hosts.name, max(1, core_count() // threads)
    before = _alone(configs, copies)
    measured = np.asarray([_computing(running.run(each.changed(mode="real", cluster=there))) for each in configs])
    alone = (before + _alone(configs, copies)) / 2
    # ranks that are timed one after the other share no cores, whatever the machine has
    own_cores = f":hosts.cores=0:hosts.ranks_per_host={ranks}"
    cases = (_Case(profile, hosts), _Case(probe, hosts), _Case(profile, None, own_cores, LOCAL))
    predicted, more, own = np.transpose([_simulated(each, folder, cases) for each in configs])
    pace, effects = alone / own, (more - predicted) / STEP_S
    at_pace = measured / pace
    design = np.stack([predicted, effects * SCALES[1]], axis=1) / at_pace[:, None]
    (share, extra), _ = nnls(design, (at_pace - predicted) / at_pace)
    explained = predicted * (1 + float(share)) + effects * float(extra * SCALES[1])
    left, off = (_apart(seconds / explained) for seconds in (at_pace, measured))
    note = (
        f"fitted to {len(configs)} real runs of {ranks} ranks, whose compute it leaves {100 * left:.0f} % apart, "
        f"{100 * off:.0f} % with what the machine's pace changed by (x {np.min(pace):.2f} to {np.max(pace):.2f})"
    )
    crowding, end = fitted(1 + float(share), note), math.exp(NORMAL_90 * max(off, 1e-3))
    crowding = replace(crowding, range=(crowding.value / end, crowding.value * end))
    program = f"{1e6 * profile.effect.value:.0f} us of the program; the rest {note}"
    effect = fitted(profile.effect.value + float(extra * SCALES[1]), program)
    _save(replace(profile, effect=effect, crowding=crowding), folder / "device.toml")


def _apart(ratios: np.ndarray) -> float:
    """The standard deviation around 1 of ratios that two constants were fitted to, on a logarithmic scale."""
    return float(np.sqrt(np.sum(np.log(ratios) ** 2) / (len(ratios) - 2)))


def _alone(configs: Sequence[RunConfig], copies: int) -> np.ndarray:
    """Seconds of a rank's epoch of each config without its exchanges, in `copies` concurrent processes: [configs]."""
    few = [config.changed(epochs=ALONE_EPOCHS) for config in configs]
    epochs = measure_operators("unwatched", few, copies).epochs
    seconds: np.ndarray = np.reshape([epoch.seconds for epoch in epochs], (copies, len(configs))).mean(axis=0)
    return seconds


def gpu_workloads(quick: bool) -> list[RunConfig]:
    """The training runs in which operators of a GPU are timed."""
    return [
        _workload("single", nodes, width // model.get("heads", 1), 1, quick).changed(
            dataset=f"synthetic:nodes={nodes},degree={degree},classes=16,features={width},signal=0.7,seed=77",
            parts=1, layers=3, renumber="0", **model,
        )
        for nodes, degree, width in GPU_GRAPHS
        for model in GPU_MODELS
    ]  # fmt: skip


def add_gpu_operators(device: Path, *, quick: bool = True) -> None:
    """Time the operators of training on this machine's first GPU and write their costs into the device file.

    Raises:
        InputError: the device file cannot be read or written.
        HaloscopeError: the host was never ahead of the GPU for a whole epoch.
    """
    profile = load_device(device)
    _save(replace(profile, operators=observe_gpu(gpu_workloads(quick)).costs()), device)


def add_host(folder: Path, *, quick: bool = True) -> None:
    """Train tiny graphs on one GPU for real, and write its host time per operator and around effects.

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
        config = _workload("single", *SIZES[0], 1, quick).changed(parts=1, model=model, layers=layers)
        config = config.changed(epochs=SKIPPED_EPOCHS + (20 if quick else 100))
        real = running.run(config.changed(mode="real", device="cuda", cluster="local"))
        measured = _computing(real, "epoch")  # an exchange of one rank is nothing but what its host does around it
        operators, effects, more = _simulated(config, folder, [_Case(each) for each in (launched, around, beyond)])
        rows.append((measured, operators / STEP_S, effects / STEP_S, more / STRETCH))
    measured, operators, effects, more = np.asarray(rows).T
    design = np.stack([operators, effects], axis=1) / measured[:, None] * SCALES[1]
    launch, effect = nnls(design, np.maximum(measured - more, 0.0) / measured)[0] * SCALES[1]
    error = float(np.median(np.abs((operators * launch + effects * effect + more) / measured - 1)))
    note = f"of the host; fits {len(rows)} real runs within {100 * error:.0f} %, median"
    found = replace(profile, launch=fitted(max(float(launch), 1e-8), note), effect=fitted(float(effect), note))
    _save(found, folder / "device.toml")


class _Case(NamedTuple):
    """What a run is simulated on: a device, in the cluster of a folder with `changes`, or in a lab of it; and which
    components' seconds are wanted, in all."""

    device: DeviceProfile
    hosts: LabSpec | None = None
    changes: str = ""
    components: Sequence[str] = ("compute",)

    def cluster(self, folder: Path) -> str:
        """The cluster's name."""
        if self.hosts is not None:
            return replace(self.hosts, calibration=str(folder)).name
        return f"{folder / 'cluster.toml'}{self.changes}"

    def load(self, _: str) -> DeviceProfile:
        """The device, whatever its file's name."""
        return self.device


def _simulated(config: RunConfig, folder: Path, cases: Sequence[_Case]) -> list[float]:
    """Typical seconds of a run in each of the cases, with the cluster of `folder`: simulated once, and timed by
    replay."""
    with machine.run_folder() as beside:
        save_device(cases[0].device, beside / "device.toml")
        (beside / "cluster.toml").write_bytes((folder / "cluster.toml").read_bytes())
        replay = Replay(record(config.changed(mode="sim", cluster=cases[0].cluster(beside))))
        timed = [replay.time(load_cluster(case.cluster(beside)), Changes(case.load)) for case in cases]
        return [_typical(each.epochs, case.components) for each, case in zip(timed, cases, strict=True)]


def _computing(result: Result, component: str = "compute") -> float:
    """Typical seconds of a component, or of the epoch."""
    if result.state != "done":
        raise HaloscopeError(
            f"measuring the compute of {result.config.training.method}: {result.state}: {result.message}"
        )
    return _typical(result.epochs, (component,))


def _typical(epochs: Sequence[dict[str, Any]], components: Sequence[str]) -> float:
    """Median of the seconds of these components in all, in the epochs after the first ones."""
    seconds = [epoch["seconds"] for epoch in epochs[SKIPPED_EPOCHS:]]
    return float(np.median([sum(each[name] for name in components) for each in seconds]))


def with_blocks(device: Path, config: RunConfig, to: Path, pace: float = 1.0) -> None:
    """Write the device file `device` to `to` with the costs of neighbour sums on the blocks of this config.

    Args:
        pace: factor on the measured times, where the machine was faster or slower than when `device` was measured.

    Raises:
        InputError: as `harness.running.make_job`, or a device file that cannot be read or written.
        HaloscopeError: a measuring process failed.
    """
    profile = load_device(device)
    copies = max(1, core_count() // max(1, config.run.threads))
    observed = measure_operators("blocks", [config], copies)
    sums = {
        name: fit_cost({work: [pace * each for each in times] for work, times in calls.items()})
        for name, calls in observed.samples.items()
        if name in SUMS
    }
    to.write_bytes(device.read_bytes())
    _save(replace(profile, operators={**profile.operators, **sums}), to)


SUMS = ("haloscope::gather_sum",)
"""Operators whose cost depends on the graph."""


def measure_operators(what: str, configs: Sequence[RunConfig], copies: int) -> Observed:
    """Measurements of `copies` concurrent processes on these configs; `what` is "epochs", "unwatched" (epochs without
    their operators) or "blocks"."""
    with machine.run_folder() as folder:
        asked = folder / "configs"
        asked.write_bytes(msgspec.json.encode([config.flat() for config in configs]))
        answers = [folder / f"found{copy}" for copy in range(copies)]
        command = [sys.executable, "-m", "sims.study.calibrated", str(os.getpid()), what, str(asked)]
        processes: list[subprocess.Popen[str]] = []
        try:
            for answer in answers:
                log = subprocess.PIPE
                processes.append(subprocess.Popen([*command, str(answer)], stderr=log, text=True, env=_environment()))
            for process in processes:
                _, said = process.communicate(timeout=LIMIT_S)
                if process.returncode:
                    last = (said.strip().splitlines() or ["no word"])[-1]
                    raise HaloscopeError(f"measuring operators failed: {last}")
        finally:
            for process in processes:
                process.kill()
                process.wait()
        return _merged(msgspec.msgpack.decode(answer.read_bytes(), type=Found) for answer in answers)


def _workload(method: str, nodes: int, width: int, threads: int, quick: bool, classes: int = 16) -> RunConfig:
    degree = 10 if nodes != SIZES[1][0] else 30
    return RunConfig.of(
        dataset=f"synthetic:nodes={nodes},degree={degree},classes={classes},features={width},signal=0.7,seed=77",
        hidden=width, method=method, threads=threads, epochs=SKIPPED_EPOCHS + (4 if quick else 16), eval_every=-1,
        lr=0.02, seed=77,
    )  # fmt: skip


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def _merged(parts: Iterable[Found]) -> Observed:
    total = Observed()
    for part in parts:
        total.epochs += part.epochs
        for name, calls in part.samples.items():
            for work, times in calls:
                total.samples[name][work] += times
    return total


def _save(profile: DeviceProfile, path: Path) -> None:
    """Overwrite a profile, keeping the comments at the top of the file."""
    remarks = [line for line in path.read_text().splitlines() if line.startswith("#")]
    save_device(profile, path)
    path.write_text("\n".join([*remarks, path.read_text()]))


def _main(what: str, asked: str, answer: str) -> None:
    configs = [
        from_mapping(values) for values in msgspec.json.decode(Path(asked).read_bytes(), type=list[dict[str, Any]])
    ]
    machine.keep_heap()  # as ranks of a run do
    observed = Observed()
    if what == "blocks":
        for config in configs:
            observe_blocks(config, observed)
    elif what == "unwatched":
        observe_unwatched(configs, observed)
    else:
        observe(configs, observed)
    samples = {name: list(calls.items()) for name, calls in observed.samples.items()}
    Path(answer).write_bytes(msgspec.msgpack.encode(Found(samples, observed.epochs)))


if __name__ == "__main__":
    machine.end_with(int(sys.argv[1]))  # who may have ended before this process could ask for its parent
    _main(*sys.argv[2:])
