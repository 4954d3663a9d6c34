"""Adds the costs of all operators of real training, and of neighbour sums on given graphs, to a measured device file.

The operators are timed in small training runs of every method (`_profiling`; those of a GPU in runs of one rank,
`_gpu_profiling`), in one process per core at once, so that they share caches and memory as the ranks of a run do. The
graphs are made for this purpose; runs that predictions are validated on are not used. What only real runs show is added
by `real_runs`.
"""

from __future__ import annotations

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

from harness import machine
from harness.config import RunConfig, from_mapping
from harness.errors import HaloscopeError
from harness.machine import core_count
from harness.methods.registry import METHODS
from sims.device import DeviceProfile, Work, fit_cost, load_device, save_device
from sims.study._gpu_profiling import observe_gpu
from sims.study._profiling import (
    SKIPPED_EPOCHS,
    Epoch,
    Observed,
    observe,
    observe_blocks,
    observe_idling,
)
from sims.units import NORMAL_90, SMALLEST, SPREADS, fitted


class Made(NamedTuple):
    """A graph that is made to time operators on."""

    nodes: int
    columns: int
    classes: int = 16


SIZES = Made(1_000, 16), Made(8_000, 48), Made(40_000, 160)
"""The graphs that operators are timed on; `validate` uses none of them."""

BRIEF_METHODS = "vanilla", "bns-gcn:p=0.1", "sylvie-s:bits=1", "ec-graph"
"""Methods of a brief calibration: what `haloscope demo` compares, and the one with most operators of its own. Other
operators are priced by their class."""

BRIEF_GRAPHS = Made(1_000, 16), Made(20_000, 96), Made(30_000, 16, 6)
"""Its graphs: on one of the two large ones alone, costs by the row and by the byte could not be told apart; and a
softmax of fewer than 16 classes takes ten times as long, since torch computes it value by value."""

VARIED = (
    Made(3_000, 8, 4), Made(12_000, 32, 8), Made(12_000, 64, 41), Made(20_000, 128, 7), Made(10_000, 256, 100),
)  # fmt: skip
"""Further graphs for a few methods and models: operators on rows cost by the row too, and more on narrow rows."""

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

WAITS, BRIEF_WAITS = (0.0, 0.002, 0.01, 0.05, 0.3), (0.0, 0.01, 0.1)
"""Seconds for which ranks wait at every effect, to find out what they compute longer after it."""

IDLED, BRIEF_IDLED = (Made(1_000, 16), Made(20_000, 128), Made(40_000, 160)), BRIEF_GRAPHS[:2]
"""The graphs on which they do so: the smallest first."""

SHARING_TURNS = (1, 2, 1, 2, 1, 2, 1)
"""Processes a core, in the order in which they are timed to find out what sharing costs."""

IDLING = "idling:"

LARGE = 1 << 30
"""Bytes of a tensor that an allocator would not keep."""

LIMIT_S = 900.0


class Found(msgspec.Struct):
    """The measurements of one process: operator, its distinct works with their times; typical epochs."""

    samples: dict[str, list[tuple[Work, list[float]]]]
    epochs: list[Epoch]


def workloads(threads: int, quick: bool, only: Sequence[str] = (), sizes: Sequence[Made] = SIZES) -> list[RunConfig]:
    """The training runs in which operators are timed: every method at every size, all codecs and models; or `only`
    these methods at every size."""
    methods = list(only) or [name for name in METHODS.builtin if name != "single"]
    more = [f"sylvie-s:bits={bits}" for bits in (2, 4, 8)] + [f"ec-graph:bits={bits}" for bits in (1, 4, 8)]
    found = [small_run(method, size, threads, quick) for size in sizes for method in methods]
    if only:
        return found
    found += [small_run(method, size, threads, quick) for size in sizes[:2] for method in more]
    for model in ("sage", "gat"):
        found += [small_run("vanilla", size, threads, quick).changed(model=model) for size in sizes]
    for graph in VARIED:
        varied = small_run("sylvie-s:bits=1", graph, threads, quick)
        found += [varied, *(varied.changed(method="vanilla", model=model) for model in ("sage", "gat"))]
        if graph.columns in WIDE_GRADIENTS:
            found += [varied.changed(method=method, layers=3) for method in WIDE_CODECS]
    return found


def small_run(method: str, graph: Made, threads: int, quick: bool) -> RunConfig:
    """A method for a few epochs on a graph; `quick`: fewer epochs."""
    nodes, width, classes = graph
    degree = 10 if nodes != SIZES[1].nodes else 30
    return RunConfig.of(
        dataset=f"synthetic:nodes={nodes},degree={degree},classes={classes},features={width},signal=0.7,seed=77",
        hidden=width, method=method, threads=threads, epochs=SKIPPED_EPOCHS + (4 if quick else 16), eval_every=-1,
        lr=0.02, seed=77,
    )  # fmt: skip


def add_operators(
    device: Path,
    *,
    threads: int,
    quick: bool = True,
    only: Sequence[str] = (),
    sizes: Sequence[Made] = SIZES,
) -> None:
    """Time every operator and write its costs, and the overhead of Python around it, into the device file.

    Args:
        only: the methods whose operators are timed, all by default.
        sizes: the graphs.

    Raises:
        InputError: the device file cannot be read or written.
        HaloscopeError: a measuring process failed.
    """
    profile = load_device(device)
    copies = max(1, core_count() // threads)
    observed = measure_operators("epochs", workloads(threads, quick, only, sizes), copies)
    step, launch, effect, byte = observed.overheads()
    profile = replace(
        profile,
        launch=fitted(max(launch, 1e-8), "Python and autograd around an operator"),
        effect=fitted(effect, "of the program around an exchange"),
        step=fitted(step, "of the program in every epoch"),
        release=fitted(1 / byte, "memory that goes back and comes again") if byte >= SMALLEST else None,
        operators=observed.costs(),
    )
    save_over(profile, device)


def add_idling(device: Path, *, threads: int, brief: bool = False) -> None:
    """Measure what ranks compute longer after they have waited, and write it into the device file.

    The same training is timed with sleeps of several lengths at every effect. The seconds that a wait costs are the
    mean over the larger graphs; the factor is that of the smallest, whose stretches of compute are shorter than what
    they are slowed by.

    Raises:
        InputError: the device file cannot be read or written.
        HaloscopeError: a measuring process failed.
    """
    waits, graphs = (BRIEF_WAITS, BRIEF_IDLED) if brief else (WAITS, IDLED)
    configs = [small_run("vanilla", graph, threads, quick=True).changed(model="sage") for graph in graphs]
    copies = max(1, core_count() // threads)
    epochs = measure_operators(IDLING + ",".join(map(str, waits)), configs, copies).epochs
    seconds = np.reshape([epoch.seconds for epoch in epochs], (copies, len(configs), len(waits))).mean(axis=0)
    stretches = np.reshape([epoch.effects for epoch in epochs], (copies, *seconds.shape))[0]
    longer = np.maximum(seconds[:, 1:] - seconds[:, :1], 0.0) / stretches[:, 1:]
    usual = float(seconds[0, 0] / stretches[0, 0])
    idle = {
        round(1e3 * wait): fitted(float(cost)) for wait, cost in zip(waits[1:], longer[1:].mean(axis=0), strict=True)
    }
    factor = fitted(1 + float(longer[0, -1]) / usual, f"after {waits[-1]:g} s, of stretches of {1e3 * usual:.2f} ms")
    save_over(replace(load_device(device), idle=idle, idle_factor=factor), device)


def add_sharing(device: Path, *, threads: int) -> None:
    """Measure what ranks compute longer where two share each core, and write it into the device file.

    The same training is timed in as many processes as there are cores and in twice as many, in turn (SHARING_TURNS),
    by the processor's time that each takes. Ranks of several threads, whose time cannot be told from their turns, keep
    what is assumed.

    Raises:
        InputError: the device file cannot be read or written.
        HaloscopeError: a measuring process failed.
    """
    if threads > 1:
        return
    configs = [small_run("vanilla", graph, threads, quick=True).changed(model="sage") for graph in IDLED]

    def seconds(copies: int) -> np.ndarray:
        epochs = measure_operators(IDLING + "0", configs, copies).epochs
        return np.asarray(np.reshape([epoch.seconds for epoch in epochs], (copies, -1)).mean(axis=0))

    turns = np.stack([seconds(core_count() * number) for number in SHARING_TURNS])
    shared = np.asarray(SHARING_TURNS) > 1
    longer = np.log(turns[shared].mean(axis=0) / turns[~shared].mean(axis=0))
    note = f"{2 * core_count()} ranks on {core_count()} cores, of {len(configs)} graphs"
    end = math.exp(math.hypot(NORMAL_90 * float(longer.std(ddof=1)), math.log(SPREADS["measured"])))
    sharing = fitted(math.exp(float(longer.mean())), note)
    sharing = replace(sharing, range=(sharing.value / end, sharing.value * end))
    save_over(replace(load_device(device), sharing=sharing), device)


def gpu_workloads(quick: bool) -> list[RunConfig]:
    """The training runs in which operators of a GPU are timed."""
    return [
        small_run("single", Made(nodes, width // model.get("heads", 1)), 1, quick).changed(
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
    save_over(replace(profile, operators=observe_gpu(gpu_workloads(quick)).costs()), device)


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
    save_over(replace(profile, operators={**profile.operators, **sums}), to)


SUMS = ("haloscope::gather_sum",)
"""Operators whose cost depends on the graph."""


def measure_operators(what: str, configs: Sequence[RunConfig], copies: int) -> Observed:
    """Measurements of `copies` concurrent processes on these configs; `what` is "epochs", "blocks", or IDLING
    and waits in seconds: epochs without their operators, with each of the waits, config by config."""
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


def save_over(profile: DeviceProfile, path: Path) -> None:
    """Overwrite a profile, keeping the comments at the top of the file."""
    remarks = [line for line in path.read_text().splitlines() if line.startswith("#")]
    save_device(profile, path)
    path.write_text("\n".join([*remarks, path.read_text()]))


def _environment() -> dict[str, str]:
    """As of ranks that hold large tensors."""
    return {**os.environ, "OMP_NUM_THREADS": "1", **machine.large_tensors(LARGE)}


def _merged(parts: Iterable[Found]) -> Observed:
    total = Observed()
    for part in parts:
        total.epochs += part.epochs
        for name, calls in part.samples.items():
            for work, times in calls:
                total.samples[name][work] += times
    return total


def _main(what: str, asked: str, answer: str) -> None:
    configs = [
        from_mapping(values) for values in msgspec.json.decode(Path(asked).read_bytes(), type=list[dict[str, Any]])
    ]
    machine.keep_heap()  # as ranks of a run do
    observed = Observed()
    if what == "blocks":
        for config in configs:
            observe_blocks(config, observed)
    elif what.startswith(IDLING):
        waits = [float(wait) for wait in what.removeprefix(IDLING).split(",")]
        observed.epochs += [epoch for config in configs for epoch in observe_idling(config, waits)]
    else:
        observe(configs, observed)
    samples = {name: list(calls.items()) for name, calls in observed.samples.items()}
    Path(answer).write_bytes(msgspec.msgpack.encode(Found(samples, observed.epochs)))


if __name__ == "__main__":
    machine.end_with(int(sys.argv[1]))  # who may have ended before this process could ask for its parent
    _main(*sys.argv[2:])
