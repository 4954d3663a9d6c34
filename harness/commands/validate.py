"""`haloscope validate`: predicts and measures the same runs, component by component, and reports the errors.

Finished cells are cached: a measurement by its settings, a prediction by its settings and its calibration. Results of
another version of the code are made again.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from harness import running
from harness.commands.calibrate import measure
from harness.commands.cells import as_json, deliver, json_target, writable
from harness.commands.tables import table
from harness.config import RunConfig, check, is_lab, parse_lab
from harness.console import duration, show, significant, stderr, time_unit
from harness.errors import HaloscopeError, InputError
from harness.machine import code_version, core_count, write_atomically
from harness.running import validation
from harness.running.results import Result
from harness.running.sweep import seconds_of
from reports.draw.validation import write_validation
from sims.study import open_driver
from sims.study.calibrated import with_blocks
from sims.uncertainty import interval_of, predicted, replays_for

HOSTS = max(2, min(3, core_count()))  # a core for every rank, if there are that many
STUDY = tuple(f"lab:{HOSTS}x{rate}" for rate in ("100mbit", "1gbit", "unshaped"))


def main(args: argparse.Namespace) -> int:
    """Calibrate, measure and predict every cell, show and write the records; returns 1 if bytes differ or a run
    failed."""
    if ":" in str(args.out):
        raise InputError(f"--out {args.out}: clusters are named by their files in there, so it must have no colon")
    writable(args.out, folder=True)
    json_target(args.json)
    budget = seconds_of(args.budget)
    configs, refused = _runnable(_configs(args), chosen=args.methods is not None)
    records, failed, late = _run(configs, args, budget)
    if not records:
        raise InputError(f"no cell can be judged: {[*failed, *late, *refused][0]}")
    paths = write_validation(records, args.out)
    lines: list[Any] = [*_tables(records), f"{validation.verdict(records)}"]
    lines += [f"left out: {why}" for why in (*failed, *late, *refused)]
    deliver(records, [*lines, "written: " + ", ".join(map(str, paths))], args.json, args.quiet)
    return 0 if not failed and all(found["bytes_equal"] for found in records) else 1


def _configs(args: argparse.Namespace) -> list[RunConfig]:
    if args.epochs <= validation.WARM_UP:
        raise InputError(f"--epochs must be more than the {validation.WARM_UP} that warm up; 25 measure 20")
    given = {name: getattr(args, name) for name in ("model", "layers", "hidden", "partitioner")}
    workloads = {name: validation.WORKLOADS.get(name, {"dataset": name, **given}) for name in args.datasets}
    clusters = STUDY if args.study else args.cluster
    for cluster in clusters:
        if cluster != "local" and not is_lab(cluster):
            raise InputError(f"--cluster {cluster}: only this machine (local) and its labs (lab:3x1gbit) are measured")
    base = RunConfig.of(epochs=args.epochs, eval_every=-1, lr=0.02)
    return validation.cells(clusters, workloads, args.methods, args.parts, base)


def _runnable(configs: Sequence[RunConfig], *, chosen: bool) -> tuple[list[RunConfig], list[str]]:
    """The configs that can run, and why the others cannot: methods need not take every model and graph.

    Raises:
        InputError: none can run, or one of `chosen` methods cannot.
    """
    found, refused = [], dict[str, InputError]()
    for config in configs:
        check(config)
        try:
            opened = running.open_run(config)
            running.make_job(opened.plan)
        except InputError as error:
            if chosen:
                raise
            refused[f"{config.training.method} on {_graph_of(config.data.dataset)}: {error}"] = error
            continue
        opened.driver.check()
        found.append(config)
    if not found:
        raise next(iter(refused.values()))
    return found, list(refused)


class _Failed(HaloscopeError):
    """A cell's run failed, so that it has no times; the other cells continue."""


def _run(
    configs: Sequence[RunConfig], args: argparse.Namespace, budget: float
) -> tuple[list[dict[str, Any]], list[str], list[str]]:
    """The records of all cells, with a line of progress after each; the messages of those that failed, and of those
    that were not begun, since they would have ended after `budget` seconds."""
    begin, done = time.monotonic(), list[tuple[RunConfig, float]]()
    if not args.quiet:
        expected = duration(validation.seconds_left(done, _ahead(configs, args)))
        show([f"{len(configs)} cells: about {expected} after calibrating, of at most {duration(budget)}"], stderr())
    calibrations = {name: _calibration(config, args) for name, config in {_machine(c): c for c in configs}.items()}
    records, failed, late = [], list[str](), list[str]()
    for number, config in enumerate(configs, 1):
        start, ahead = time.monotonic(), _ahead([config], args)
        if start - begin + validation.seconds_left(done, ahead) > budget:
            late.append(f"{_cell(config)}: it would end after the budget of {duration(budget)}")
            continue
        try:
            measured = _measured(config, args)
            predicted = _predicted(config, calibrations[_machine(config)], args)
        except _Failed as error:
            failed.append(str(error))
            show([f"[{number}/{len(configs)}] {error}"], stderr())
            continue
        done += [(config, time.monotonic() - start)] * len(ahead)
        same = measured.pop("traffic") == predicted.pop("traffic")
        records.append(validation.validation_record(config, measured, predicted, same))
        if not args.quiet:
            left = validation.seconds_left(done, _ahead(configs[number:], args))
            show([_progress(records[-1], number, len(configs), left)], stderr())
    return records, failed, late


def _ahead(configs: Sequence[RunConfig], args: argparse.Namespace) -> list[RunConfig]:
    """The cells whose measurement is not kept yet."""
    return [config for config in configs if args.force or not _measurement(config, args).exists()]


def _measurement(config: RunConfig, args: argparse.Namespace) -> Path:
    """Where the measurement of a cell is kept."""
    folder: Path = args.out / "measured"
    return folder / f"{config.run_id()}.json"


def _cell(config: RunConfig) -> str:
    return f"{config.training.method} on {_graph_of(config.data.dataset)}, {config.cluster.name}"


def _machine(config: RunConfig) -> str:
    """The setting that a calibration is valid for: this machine's loopback, or a number of hosts and ranks of a lab."""
    lab = parse_lab(config.cluster.name) if is_lab(config.cluster.name) else None
    return f"{'local' if lab is None else f'{lab.hosts}x{lab.ranks_per_host}'}-{config.run.threads}"


def _calibration(config: RunConfig, args: argparse.Namespace) -> Path:
    """The folder of the calibration: the given one, an earlier one, or one made now."""
    if args.calibration is not None:
        given = Path(args.calibration)
        if missing := [name for name in ("device.toml", "cluster.toml") if not (given / name).is_file()]:
            raise InputError(
                f"--calibration {given}: no {' and no '.join(missing)} there; make it with calibrate --out"
            )
        return given
    folder: Path = args.out / "calibration" / _machine(config)
    if args.force or not (folder / "cluster.toml").exists():
        hosts = parse_lab(config.cluster.name) if is_lab(config.cluster.name) else None
        measure(folder, depth="quick", quiet=args.quiet, threads=config.run.threads, hosts=hosts)
    return folder


def _measured(config: RunConfig, args: argparse.Namespace) -> dict[str, Any]:
    """Typical seconds, traffic and foreign load of a real run, from the cache or measured now."""
    path, code = _measurement(config, args), code_version("harness", "real")
    if (kept := _kept(path, code, f"measured {config.training.method} on {config.cluster.name}", args)) is not None:
        return kept
    opened = running.open_run(config)
    running.make_job(opened.plan)  # data are prepared before the measurement
    with validation.watching() as load:
        result = running.run_opened(opened)
    return _keep(path, code, {**_epochs(result), "foreign_load": load.foreign})


def _predicted(config: RunConfig, calibration: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Typical seconds and traffic of the simulated run on the calibration, with this partition's neighbour sums."""
    texts = [(calibration / name).read_bytes() for name in ("device.toml", "cluster.toml")]
    replays = str(args.replays).encode()
    key = hashlib.sha256(b"\n".join([config.run_id().encode(), replays, *texts])).hexdigest()
    path, code = args.out / "predicted" / key / "seconds.json", code_version("harness", "sims")
    if (kept := _kept(path, code, f"predicted {config.training.method} on {config.cluster.name}", args)) is not None:
        return kept
    path.parent.mkdir(parents=True, exist_ok=True)
    with_blocks(calibration / "device.toml", config, path.parent / "device.toml")
    write_atomically(path.parent / "cluster.toml", texts[1])
    cluster = str(path.parent / "cluster.toml")
    if is_lab(config.cluster.name):
        cluster = replace(parse_lab(config.cluster.name), calibration=str(path.parent)).name
    modelled = config.changed(mode="sim", cluster=cluster)
    found = _epochs(running.run(modelled))
    count = replays_for(config.cut.parts, args.replays)
    if count:
        prediction = predicted(modelled, open_driver(modelled).placement)
        seconds = {name: found[name] for name in validation.VALIDATED_COMPONENTS}
        found["interval"] = interval_of(prediction, seconds, count)["seconds"]
    return _keep(path, code, found)


def _kept(path: Path, code: str, what: str, args: argparse.Namespace) -> dict[str, Any] | None:
    """The cached content of a file; None if there is none, or if another version of the code made it (reported)."""
    if args.force or not path.exists():
        return None
    found = dict(msgspec.json.decode(path.read_bytes()))
    if found.pop("code", None) == code:
        return found
    show([f"{what}: the code has changed since; it is done again"], stderr())
    return None


def _keep(path: Path, code: str, found: dict[str, Any]) -> dict[str, Any]:
    """Write a result to the cache; returns it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, as_json({**found, "code": code}))
    return found


def _epochs(result: Result) -> dict[str, Any]:
    if result.state != "done":
        config = result.config
        run = f"{config.training.method} on {config.data.dataset}, {config.cluster.name} ({config.run.mode})"
        raise _Failed(f"{run}: {result.state}: {result.message}")
    found = {**validation.typical(result.epochs), "traffic": validation.traffic(result.epochs)}
    return dict(msgspec.json.decode(msgspec.json.encode(found)))  # as it will be read back


def _progress(record: dict[str, Any], number: int, of: int, left: float) -> str:
    times = [record[side]["epoch"] for side in ("predicted", "measured")]
    factor, unit = time_unit(times)
    predicted, measured = (significant(seconds * factor) for seconds in times)
    rest = f"; about {duration(left)} left" if number < of else ""
    name = f"[{number}/{of}] {record['method']}, {_graph_of(str(record['dataset']))}, {record['cluster']}"
    return f"{name}: predicted {predicted}, measured {measured} {unit} ({100 * record['error']:+.0f} %){rest}"


def _graph_of(dataset: str) -> str:
    known = {str(values["dataset"]): name for name, values in validation.WORKLOADS.items()}
    return known.get(dataset, dataset)


def _tables(records: list[dict[str, Any]]) -> list[Any]:
    """One table per graph and cluster: every component predicted / measured, then the error of the epoch."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((_graph_of(str(record["dataset"])), record["cluster"]), []).append(record)
    made = []
    for (graph, cluster), group in groups.items():
        factor, unit = time_unit([record["measured"]["epoch"] for record in group])
        columns = [f"{name} {unit}" for name in validation.VALIDATED_COMPONENTS]
        heading = ["method", *columns, f"90 % {unit}", f"spread {unit}", "error", "bytes", "others"]
        made.append(table(f"{graph}, {cluster}: predicted / measured", heading, [_row(r, factor) for r in group]))
    return made


def _row(record: dict[str, Any], factor: float) -> list[str]:
    pairs = [(record["predicted"][name], record["measured"][name]) for name in validation.VALIDATED_COMPONENTS]
    times = [f"{significant(p * factor)} / {significant(m * factor)}" for p, m in pairs]
    load = record["foreign_load"]
    others = f"{100 * load:.0f} %" + (" busy: left out" if record["disturbed"] else "")
    rest = [f"{100 * record['error']:+.1f} %", "equal" if record["bytes_equal"] else "DIFFER", others]
    ends = record["interval"].get("epoch")
    held = "-" if ends is None else " to ".join(significant(end * factor) for end in ends)
    return [record["method"], *times, held, significant(record["measured"]["spread"] * factor), *rest]
