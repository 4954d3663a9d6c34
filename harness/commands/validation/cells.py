"""One cell of `haloscope validate`: calibrates for it, measures it, predicts it, and keeps all of that in a folder.

    calibration/threads-1/                device and collectives of two ranks over loopback, `reference.json`
    calibration/threads-1/2x1-2/          collectives between the hosts of a lab, or of other numbers of ranks
    blocks/KEY/device.toml                the device with neighbour sums on the blocks of one partition
    measured/ID.json, ID-run2.json        typical seconds and traffic of a real run, and of its repetitions, and what
                                          was trained after it
    predicted/KEY/seconds.json            those of the simulated run, with intervals and the model's ablations
    cells/ID.json                         the record of the cell

A measurement is known by its settings, a prediction by its settings and its calibration. Those that other code has made
are made again, unless they are asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from harness import running
from harness.commands.calibrate import REFERENCE, Reference, measure
from harness.commands.shared.cells import as_json
from harness.commands.validation.pace import PaceTraining, in_turn, pace_of, trained_now, usual_seconds
from harness.config import RunConfig, is_lab, parse_lab
from harness.console import show, stderr
from harness.errors import HaloscopeError, InputError
from harness.machine import code_version, kept_json, write_atomically
from harness.running import validation
from harness.running.drift import reference_seconds, watching
from harness.running.results import Result
from real.measure.calibrate import RANKS, calibrate_links_to
from sims.cluster import load_cluster
from sims.explain import MECHANISMS, at_pace, without
from sims.study import open_driver
from sims.study.calibrated import with_blocks
from sims.uncertainty import interval_of, predicted, replays_for

PACES = (0.7, 1.0, 1.4)
"""Paces of the machine, relative to that of its calibration, for which cells are predicted; between them on a line."""

DECIDE_BLOCKS = ("dataset", "partitioner", "parts", "hidden", "model", "threads", "seed")
"""Settings that decide the blocks that ranks hold, beside whether edges or vertices are cut."""

SUMS = "neighbour sums on the run's own blocks"
"""The one mechanism that is measured for a cell and not for a cluster."""


class CellFailed(HaloscopeError):
    """A cell's run failed, so that it has no times; the other cells continue."""


class Calibration(msgspec.Struct, frozen=True):
    """Files of a device and a cluster, and the reference time beside their measurement; 0 where it is not known.

    `usual`: seconds of the trainings that it was fitted to (`validation_pace`); empty where they are not known.
    """

    device: Path
    cluster: Path
    reference: float = 0.0
    usual: list[float] = []


@dataclass(frozen=True)
class Validator:
    """Where and how cells are measured and predicted.

    Attributes:
        out: the folder of everything.
        given: a calibration that is there already.
        replays: of intervals; None for as many as usual.
        runs: how often a cell is measured: what a machine does in the seconds of one run is no error of a prediction.
        force: make everything again.
        any_code: keep what other code has measured.
        ablation: also predict without every mechanism of the model.
        paced: train what an own calibration was fitted to after every run, which tells the machine's pace then.
        quiet: no progress.
    """

    out: Path
    given: Path | None = None
    replays: int | None = None
    runs: int = 1
    force: bool = False
    any_code: bool = False
    ablation: bool = False
    paced: bool = False
    quiet: bool = False
    _turn: Iterator[int] = field(default_factory=in_turn, init=False)
    _shared: set[Path] = field(default_factory=set, init=False)  # what this validator has made or found for many cells

    def is_kept(self, config: RunConfig, number: int) -> bool:
        """Whether there is a measurement of a cell's `number`-th run, from 0, that counts."""
        return not self.force and self._measurement(config, number).exists()

    def record(self, config: RunConfig, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Predict a cell, unless that is kept, and hold it against its `runs`; returns its record.

        Raises:
            CellFailed: the simulated run did not reach its end.
            InputError: a calibration that is not there.
        """
        calibration = self.calibration(config)
        foretold = self._predicted(config, calibration)
        traffic, measured = foretold.pop("traffic"), validation.over_runs(runs)
        pace = self._pace(runs, measured, calibration)
        found = validation.validation_record(config, measured, foretold, all(run["traffic"] == traffic for run in runs))
        found |= {"pace": pace, "at_pace": _at(foretold["paces"], pace), "without": foretold["without"]}
        write_atomically(_made(self.out / "cells") / f"{config.run_id()}.json", as_json(found))
        return found

    def _pace(self, runs: Sequence[dict[str, Any]], measured: dict[str, Any], calibration: Calibration) -> float:
        """By which factor the machine was slower beside the runs of a cell than when it was calibrated: by trainings
        where there are some, else by the reference work."""
        beside = [msgspec.convert(run["trained"], PaceTraining) for run in runs if "trained" in run]
        if not beside or not calibration.usual:
            return measured["reference"] / calibration.reference if calibration.reference else 1.0
        kept = (kept_json(path, dict[str, Any]) for path in sorted((self.out / "measured").glob("*.json")))
        known = [msgspec.convert(run["trained"], PaceTraining) for run in kept if run and "trained" in run]
        return pace_of(beside, known, calibration.usual)

    def calibration(self, config: RunConfig) -> Calibration:
        """The given calibration, an earlier one, or one made now: of the device once, of collectives for every number
        of hosts and ranks."""
        if self.given is not None:
            files = [self.given / name for name in ("device.toml", "cluster.toml")]
            if missing := [path.name for path in files if not path.is_file()]:
                raise InputError(
                    f"--calibration {self.given}: no {' and no '.join(missing)} there; make it with calibrate --out"
                )
            return Calibration(files[0], files[1])
        threads, ranks = config.run.threads, config.cut.parts
        folder = self.out / "calibration" / f"threads-{threads}"
        about = folder / REFERENCE
        if self._is_due(about):
            measure(folder, depth="quick", quiet=self.quiet, threads=threads, ranks=(RANKS,))
        reference, usual = msgspec.json.decode(about.read_bytes(), type=Reference).seconds, usual_seconds(folder)
        lab = parse_lab(config.cluster.name) if is_lab(config.cluster.name) else None
        if lab is None and ranks == RANKS:
            return Calibration(folder / "device.toml", folder / "cluster.toml", reference, usual)
        where = f"{'1x' if lab is None else f'{lab.hosts}x{lab.ranks_per_host}'}-{ranks}"
        if self._is_due(folder / where / "cluster.toml"):
            jitter = load_cluster(folder / "cluster.toml").stragglers.jitter
            if not self.quiet:
                show([f"measuring collectives of {ranks} ranks, {where}"], stderr())
            pace = reference / reference_seconds()
            calibrate_links_to(folder / where, ranks, jitter=jitter, threads=threads, hosts=lab, pace=pace)
        return Calibration(folder / "device.toml", folder / where / "cluster.toml", reference, usual)

    def _is_due(self, path: Path) -> bool:
        """Whether a file that serves many cells is to be made now: once, if all is made again."""
        due = not path.exists() or (self.force and path not in self._shared)
        self._shared.add(path)
        return due

    def _measurement(self, config: RunConfig, number: int) -> Path:
        return self.out / "measured" / f"{config.run_id()}{f'-run{number + 1}' if number else ''}.json"

    def measured(self, config: RunConfig, number: int) -> dict[str, Any]:
        """Typical seconds, traffic and foreign load of a cell's `number`-th real run, from 0, and the reference time
        beside it: kept or new.

        Raises:
            CellFailed: the run did not reach its end.
        """
        path, code = self._measurement(config, number), _code(config, "real")
        what = f"measured {config.training.method} on {config.cluster.name}"
        if (kept := self._kept(path, "" if self.any_code else code, what)) is not None:
            return kept
        opened = running.open_run(config)
        running.make_job(opened.plan)  # data are prepared before the measurement
        before = reference_seconds()
        with watching() as load:
            result = running.run_opened(opened)
        found = {**_epochs(result), "foreign_load": load.foreign}
        if self.paced and self.given is None:
            found["trained"] = msgspec.to_builtins(trained_now(next(self._turn), config.run.threads))
        return _keep(path, code, {**found, "reference": (before + reference_seconds()) / 2})

    def _predicted(self, config: RunConfig, calibration: Calibration) -> dict[str, Any]:
        """Typical seconds and traffic of the simulated run on the calibration, with this partition's neighbour sums."""
        device, texts = self._with_blocks(config, calibration), [calibration.cluster.read_bytes()]
        texts += [device.read_bytes(), calibration.device.read_bytes()]
        settings = f"{config.run_id()} {self.replays} {self.ablation}".encode()
        key = hashlib.sha256(b"\n".join([settings, *texts])).hexdigest()
        path, code = self.out / "predicted" / key / "seconds.json", _code(config, "sims")
        what = f"predicted {config.training.method} on {config.cluster.name}"
        if (kept := self._kept(path, code, what)) is not None:
            return kept
        folder = _made(path.parent)
        write_atomically(folder / "device.toml", texts[1])
        write_atomically(folder / "cluster.toml", texts[0])
        modelled = _on(folder, config)
        found: dict[str, Any] = _epochs(running.run(modelled))
        prediction = predicted(modelled, open_driver(modelled).placement)
        if count := replays_for(config.cut.parts, self.replays):
            seconds = {name: found[name] for name in validation.VALIDATED_COMPONENTS}
            interval = interval_of(prediction, seconds, count)
            found |= {"interval": interval["seconds"], "ratios": interval["ratios"]}
            found["depth"] = interval.get("depth", "")
        base = prediction.seconds({})
        found["paces"] = {str(pace): _like(found, base, at_pace(prediction, pace)) for pace in PACES}
        found["without"] = {}
        if self.ablation:
            left_out = {name: without(prediction, name) for name in MECHANISMS}
            plain = predicted_on(calibration.device, folder, config)
            found["without"] = {name: _like(found, base, each) for name, each in (left_out | {SUMS: plain}).items()}
        return _keep(path, code, found)

    def _with_blocks(self, config: RunConfig, calibration: Calibration) -> Path:
        """The device with neighbour sums timed on the blocks of a partition: once for all methods with equal blocks."""
        flat = config.flat()
        decides = {name: flat[name] for name in DECIDE_BLOCKS}
        cut = running.plan_of(config).cut.kind
        key = hashlib.sha256(as_json(decides) + cut.encode() + calibration.device.read_bytes()).hexdigest()
        path = self.out / "blocks" / key / "device.toml"
        if self._is_due(path):
            _made(path.parent)
            pace = calibration.reference / reference_seconds() if calibration.reference else 1.0
            with_blocks(calibration.device, config, path, pace)
        return path

    def _kept(self, path: Path, code: str, what: str) -> dict[str, Any] | None:
        """The kept content of a file; None if there is none, or (reported) it is damaged, or made by other code than
        `code`, unless that is empty."""
        if self.force or not path.exists():
            return None
        found = kept_json(path, dict[str, Any])
        if found is not None and (found.pop("code", None) == code or not code):
            return found
        why = "the code has changed since" if found is not None else f"{path} is damaged"
        show([f"{what}: {why}; it is done again"], stderr())
        return None


def _code(config: RunConfig, package: str) -> str:
    """What code makes a cell: that of this project, and of the config's method and model, which may be of others."""
    inputs = running.data_inputs(running.plan_of(config))
    return " ".join([code_version("harness", package), inputs["method"], inputs.get("model", "")]).strip()


def predicted_on(device: Path, folder: Path, config: RunConfig) -> dict[str, float]:
    """Seconds by component of a prediction with another device file in the place of that in `folder`."""
    beside = _made(folder / "plain")
    for source, name in ((device, "device.toml"), (folder / "cluster.toml", "cluster.toml")):
        write_atomically(beside / name, source.read_bytes())
    modelled = _on(beside, config)
    return predicted(modelled, open_driver(modelled).placement).seconds({})


def _on(folder: Path, config: RunConfig) -> RunConfig:
    """The simulated run on the device and cluster in a folder."""
    cluster = str(folder / "cluster.toml")
    if is_lab(config.cluster.name):
        cluster = replace(parse_lab(config.cluster.name), calibration=str(folder)).name
    return config.changed(mode="sim", cluster=cluster)


def _like(found: dict[str, Any], base: dict[str, float], seconds: dict[str, float]) -> dict[str, float]:
    """Seconds by component of a replay, relative to the replay of the whole model, on the scale of the whole run."""
    ratios = {name: seconds[name] / base[name] if base[name] > 0 else 1.0 for name in validation.VALIDATED_COMPONENTS}
    return {name: ratio * found[name] if found[name] else seconds[name] for name, ratio in ratios.items()}


def _at(paces: dict[str, dict[str, float]], pace: float) -> dict[str, float]:
    """Predicted seconds by component at a pace, on lines between those that were predicted."""
    known = sorted(map(float, paces))
    columns = {name: [paces[str(each)][name] for each in known] for name in validation.VALIDATED_COMPONENTS}
    return {name: float(np.interp(pace, known, column)) for name, column in columns.items()}


def _keep(path: Path, code: str, found: dict[str, Any]) -> dict[str, Any]:
    """Write a result, and return it."""
    _made(path.parent)
    write_atomically(path, as_json({**found, "code": code}))
    return found


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _epochs(result: Result) -> dict[str, Any]:
    if result.state != "done":
        config = result.config
        run = f"{config.training.method} on {config.data.dataset}, {config.cluster.name} ({config.run.mode})"
        raise CellFailed(f"{run}: {result.state}: {result.message}")
    found = {**validation.typical(result.epochs), "traffic": validation.traffic(result.epochs)}
    return dict(msgspec.json.decode(msgspec.json.encode(found)))  # as it will be read back
