"""Runs a job for real: connects `harness.running` with the ranks' processes.

The runner calls `LocalRanks.execute` in the launching process: it starts one process per part and reads their records.
`run_rank` is what each of those processes runs, also under torchrun. Ranks read their own part of the
prepared graph from the cache; records are sent as msgpack, which unlike JSON has nan, and never as pickles.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import torch

from harness import machine
from harness.config import RunConfig, is_lab, parse_lab
from harness.errors import InputError
from harness.running import (
    Checkpoints,
    Epochs,
    Execution,
    Job,
    Prepared,
    cpu_threads,
    make_job,
    plan_of,
    program,
    started_anew,
    threads_per_rank,
)
from harness.running.results import RankEpoch, RankResult, environment
from real import lab
from real.lab import HostSetup, ThisMachine
from real.launch._compared import data_compared, settings_compared
from real.launch._fork_server import running_server
from real.launch._gathered import gathered_records
from real.launch._launcher import launch, preload
from real.launch._supervisor import supervise
from real.launch.spare import SpareProcess
from real.rank import connection, run_program


class LaunchOutcome(msgspec.Struct):
    """What rank 0 has at the end: every rank's record, every rank's machine, the backend and the device."""

    ranks: list[RankResult]
    hosts: list[int]
    backend: str
    device: str

    def execution(self) -> Execution:
        """As the runner takes it; bytes inside a machine and between machines are separate tiers."""
        inside = "loopback" if self.device == "cpu" else "inside host"
        tiers = [inside, "ethernet"] if len(set(self.hosts)) > 1 else [inside]
        hosts = np.asarray(self.hosts)
        tier_of = (hosts[:, None] != hosts).astype(np.int8)
        return Execution(self.ranks, tiers, tier_of, {"backend": self.backend, "device": self.device})


@dataclass(frozen=True, eq=False)
class LocalRanks:
    """The driver of real ranks, each in a process of its own on this machine or in a lab on it."""

    config: RunConfig

    def check(self) -> None:
        """Raise InputError for a device that this machine does not have, or a lab that cannot be built."""
        run, cluster = self.config.run, self.config.cluster.name
        if run.device == "cuda" and not torch.cuda.is_available():
            raise InputError("--device cuda, but no GPU is visible here; use --device cpu, or --mode sim")
        if is_lab(cluster):
            lab.check_lab(parse_lab(cluster), self.config.cut.parts, run.device, run.backend)
        if run.device == "cpu" and running_server() is None:
            preload(threads_per_rank(self.config), machine.allocator_environment())  # while the data is prepared

    def reads(self) -> dict[str, str]:
        """The machine, its libraries and this project's code: what is measured holds for them alone."""
        return measured_on(self.config)

    def execute(self, job: Job) -> Execution:
        """As `execute_locally`."""
        return execute_locally(job)


def measured_on(config: RunConfig) -> dict[str, str]:
    """What measured times depend on beside the config and its data, by name."""
    made, threads = environment(), threads_per_rank(config)
    on_gpu = config.run.device == "cuda" and torch.cuda.is_available()
    device = torch.cuda.get_device_name() if on_gpu else machine.processor()
    return {
        "host": f"{platform.node()}, {made['cores']} cores, {threads} threads a rank, {device}",
        "libraries": ", ".join(f"{name} {known}" for name, known in made["versions"].items() if known),
        "code": machine.code_version("harness", "real"),
    }


def open_driver(config: RunConfig) -> LocalRanks:
    """The driver of one run."""
    return LocalRanks(config)


def execute_locally(job: Job) -> Execution:
    """Run every rank of the job in a process of its own on this machine.

    Raises:
        InputError: raised by a rank for bad input.
        RankFailed: a rank, which the message names, failed, died or met values that cannot be sent (see its `state`).
    """
    job = started_anew(job)
    config = job.config
    with machine.run_folder() as folder:
        config_file, outcome, epochs, kept = (folder / n for n in ("config.json", "outcome", "epochs", "kept"))
        kept.mkdir()
        config_file.write_bytes(msgspec.json.encode(config.flat()))
        epochs.touch()
        arguments = ["-m", "real", "--config", str(config_file), "--result", str(outcome), "--progress", str(epochs)]
        arguments += ["--keep", str(kept)]
        more, relay = _pass_on(job.checkpoints, folder)
        follow = _follow(epochs, job.progress)

        def beat() -> None:
            follow()
            relay()

        shared: list[str] = []

        def attempt() -> None:
            threads, env = threads_per_rank(config), machine.allocator_environment()
            with _site(config) as site:
                command, parts = [*arguments, *more], config.cut.parts
                fork = config.run.device == "cpu"  # a GPU's libraries do not survive it
                shared.append(launch(command, parts, threads=threads, env=env, poll=beat, site=site, fork=fork))

        try:
            failures = supervise(attempt, job)
        except BaseException:  # also a signal to this process, after which the ranks have ended too
            _hand_over(kept, job)
            raise
        execution = msgspec.msgpack.decode(outcome.read_bytes(), type=LaunchOutcome).execution()
        more_facts = {"restarts": failures, "shared_cores": shared[-1]}
        return replace(execution, facts={**execution.facts, **{k: v for k, v in more_facts.items() if v}})


def _hand_over(folder: Path, job: Job) -> None:
    """Pass on what the ranks of a failed run had recorded; a line that was being written is left out."""
    if job.keep is None:
        return
    for rank in range(job.config.cut.parts):
        with suppress(OSError):
            for line in (folder / str(rank)).read_bytes().split(b"\n")[:-1]:
                job.keep(rank, msgspec.json.decode(line, type=RankEpoch))


class CheckpointSettings(msgspec.Struct):
    """Settings of checkpoints that the launcher passes to its ranks in a file."""

    folder: str
    every: int
    keep: int
    stop: str  # a file; once it is there, the run is to stop

    def options(self, stop: Callable[[], bool]) -> Checkpoints:
        """For a rank that also stops when `stop()` is true."""
        file = Path(self.stop)
        return Checkpoints(Path(self.folder), self.every, keep=self.keep, stop=lambda: stop() or file.exists())


def _pass_on(options: Checkpoints | None, folder: Path) -> tuple[list[str], Callable[[], None]]:
    """Arguments of the ranks about checkpoints, and a function that passes on a request to stop.

    The request is a file, not a signal: a rank that is still starting would not survive the signal.
    """
    if options is None:
        return [], lambda: None
    stop, settings = folder / "stop", folder / "checkpoints.json"
    settings.write_bytes(
        msgspec.json.encode(CheckpointSettings(str(options.folder.absolute()), options.every, options.keep, str(stop)))
    )

    def relay() -> None:
        if options.stop():
            stop.touch()

    return ["--checkpoints", str(settings)], relay


@contextmanager
def _site(config: RunConfig) -> Iterator[HostSetup]:
    """The hosts that the launcher's ranks run on: this machine, or the lab that the config names."""
    if not is_lab(config.cluster.name):
        yield ThisMachine()
        return
    with lab.built(parse_lab(config.cluster.name)) as hosts:
        yield hosts


def run_rank(
    config: RunConfig,
    progress: Callable[[RankEpoch], None] | None = None,
    checkpoints: Checkpoints | None = None,
    keep: Callable[[int, RankEpoch], None] | None = None,
    known: Callable[[Prepared], None] | None = None,
) -> tuple[LaunchOutcome, Prepared] | None:
    """Run this process's rank; rank 0 returns the outcome and the data it was computed on, other ranks None.

    Args:
        keep: called on every rank with its index and each of its records.
        known: called once the data are prepared, before they are compared with those of other ranks.

    Raises:
        InputError: the run has another number of ranks than parts, the ranks' settings or data differ, or whatever
            `plan_of`, `make_job` and `connect` refuse.
        HaloscopeError: see `real.rank.run_program`.
    """
    with connection.connect(
        device=config.run.device,
        backend=config.run.backend,
        timeout_s=config.run.timeout,
        startup_s=config.run.startup_timeout,
        prepare_s=config.run.prepare_timeout,
        facts=settings_compared(config, checkpoints),
    ) as connected:
        if connected.size != config.cut.parts:
            raise InputError(
                f"{config.cut.parts} parts need {config.cut.parts} ranks, but this run has {connected.size}: "
                f"use torchrun --nproc-per-node {config.cut.parts}, or haloscope run --mode real"
            )
        with connected.host_by_host():
            job, prepared = make_job(plan_of(config), progress, checkpoints, _ranks_to_check(connected))
        if known is not None:
            known(prepared)
        connected.agree_on_data(data_compared(prepared))
        machine.keep_heap(prepared.largest_tensor(job.model))
        epochs = _graphed_epochs() if config.run.cuda_graphs else None
        debug = os.environ.get("HALOSCOPE_DEBUG") == "1"
        alone = is_lab(config.cluster.name)  # its hosts share the cores of this machine
        neighbours = config.cut.parts if alone else int(os.environ.get("LOCAL_WORLD_SIZE", config.cut.parts))
        with cpu_threads(threads_per_rank(config, neighbours)), _spare(config, connected.rank) as spare:
            gathered = run_program(
                gathered_records(program(replace(job, spare=spare, keep=keep, epochs=epochs)), connected.host),
                connected,
                seed=config.training.seed,
                deterministic=config.run.deterministic,
                debug=debug,
            )
    if gathered is None:
        return None
    ranks, hosts = zip(*gathered, strict=True)
    return LaunchOutcome(list(ranks), list(hosts), connected.backend, str(connected.device)), prepared


def _ranks_to_check(connected: connection.Connection) -> range:
    """The ranks whose parts this rank looks for: the first of a host looks for all of its host, and makes missing ones.

    If every rank looked for all parts, the file system would be asked P * P times.
    """
    first = int(os.environ.get("LOCAL_RANK", connected.rank)) == 0
    count = int(os.environ.get("LOCAL_WORLD_SIZE", connected.size)) if first else 1
    return range(connected.rank, min(connected.rank + count, connected.size))


def _graphed_epochs() -> Epochs:
    """Imported where it is used: with it comes the compiler of GPU kernels."""
    from real.rank.cuda_graphs import GraphedEpochs

    return GraphedEpochs()


@contextmanager
def _spare(config: RunConfig, rank: int) -> Iterator[SpareProcess | None]:
    """Rank 0's process that evaluates, where the config asks for one."""
    if config.run.evaluate == "ranks" or config.run.eval_every < 0 or rank != 0:
        yield None
        return
    spare = SpareProcess(config)
    try:
        yield spare
    finally:
        spare.close()


def torchrun_config(config: RunConfig, size: int, parts_given: bool) -> RunConfig:
    """A config as `torchrun -m real` interprets it: real mode, and by default as many parts as ranks.

    Raises:
        InputError: it names a lab, which only haloscope's own launcher builds.
    """
    if is_lab(config.cluster.name):
        raise InputError(f"--cluster {config.cluster.name}: haloscope run --mode real builds labs, torchrun does not")
    return config.changed(mode="real", parts=config.cut.parts if parts_given else size)


def _follow(file: Path, progress: Callable[[RankEpoch], None] | None) -> Callable[[], None]:
    """A function that reports the epochs that were appended to a file since it was last called."""
    consumed = 0

    def poll() -> None:
        nonlocal consumed
        if progress is None:
            return
        with file.open("rb") as stream:
            stream.seek(consumed)
            data = stream.read()
        whole = data[: data.rfind(b"\n") + 1]
        consumed += len(whole)
        for line in whole.splitlines():
            progress(msgspec.json.decode(line, type=RankEpoch))

    return poll
