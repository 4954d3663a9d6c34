"""The context of every table and figure of a report: output folder, budget of training, cached runs.

A run's record is cached under a key of its config, the state of its graph and the source of the packages that it rests
on (training in one process needs no `sims`): a change of any of them makes a new run. Runs are made in this process,
one after another; the command makes several tables at a time, each in a process of its own.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config import COMMAND_DEFAULTS, RunConfig, from_mapping
from harness.console import show, stderr
from harness.errors import HaloscopeError, InputError
from harness.machine import building, cache_root, write_atomically
from harness.machine import code_version as code_version
from harness.numbers import duration
from harness.running import results
from harness.workloads import is_workload, read_description
from reports.core.inputs import Inputs
from reports.core.table import Fitted

if TYPE_CHECKING:
    from harness.running.results import Result
    from sims.study import Retimed

ROOT = Path(__file__).resolve().parents[2]
PROGRESS_EVERY_S = 20.0  # seconds between lines of progress inside one table
FILES = (".npz", ".toml", ".json")  # datasets and clusters given as files
COMPUTING = ("torch", "numpy", "numba", "pymetis")  # packages whose versions may change results
SHAPES = {"mode": "sim", "shapes_only": True, "eval_every": -1, "deterministic": False}
"""Settings common to runs that only count and time."""


@cache
def versions(*packages: str) -> str:
    """The installed versions of packages, for cache keys: a result is valid only for the libraries it was made with."""
    return " ".join(f"{package} {version(package)}" for package in packages)


@dataclass(frozen=True)
class Context:
    """Given to every function of `TABLES` and `FIGURES`.

    Attributes:
        out: folder of the report.
        seconds: budget of one table for training, in seconds of one core.
        full: the paper's epochs and seeds instead, however long that takes.
        inputs: factors on the model's inputs, in every simulated run that is not a trial of a fit.
        commands: the commands of the runs requested so far, each once.
        fits: the constants fitted so far, each once.
        modelled: the clusters of the simulated runs so far: without any, no number comes from the model.
    """

    out: Path
    seconds: float = 40.0
    full: bool = False
    quiet: bool = False
    inputs: Inputs = Inputs()
    commands: dict[str, None] = field(default_factory=dict, compare=False, repr=False)
    fits: dict[Fitted, None] = field(default_factory=dict, compare=False, repr=False)
    modelled: dict[str, None] = field(default_factory=dict, compare=False, repr=False)

    def runs(
        self,
        configs: Sequence[Mapping[str, Any]],
        what: str = "",
        shown: Iterable[Mapping[str, Any]] | None = None,
        *,
        trial: bool = False,
    ) -> list[dict[str, Any]]:
        """The result records of configs (keys of `RunConfig`), in their order; those not in the cache are run now.

        A run that fails has `state` "error", its reason in `message`, an empty `summary["seconds"]` and no epochs;
        one that does not fit its device or diverges has the state that says so.

        Args:
            shown: configs whose commands are kept in `commands`, if not all of them (without further seeds).
            trial: whether a constant is fitted with them: their commands are not kept, and `inputs` are not applied.

        Raises:
            InputError: a config with an unknown key or a value out of range.
        """
        if not trial:
            self.modelled.update({str(c.get("cluster", "")): None for c in configs if c.get("mode") == "sim"})
            self.commands.update(dict.fromkeys(self.texts_of(configs if shown is None else shown)))
            configs = [self.inputs.applied(config, self.workload) for config in configs]
        wanted = [from_mapping(config, source=what or "report") for config in configs]
        distinct = list(dict.fromkeys(wanted))
        progress, records = _Progress(what or "runs", len(distinct), self.quiet), {}
        for at, config in enumerate(distinct):
            records[config] = _record(config)
            progress.done(at + 1)
        return [records[config] for config in wanted]

    def text_of(self, config: Mapping[str, Any]) -> str:
        """The `haloscope run` command of a config, with the settings that differ from the command's defaults."""
        given, default = from_mapping(config).flat(), COMMAND_DEFAULTS.flat()
        return " ".join(["haloscope run", *(_flag(k, v) for k, v in given.items() if v != default[k])])

    def texts_of(self, configs: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
        """`text_of` every config, each command once."""
        return tuple(dict.fromkeys(map(self.text_of, configs)))

    def workload(self, description: Mapping[str, Any]) -> str:
        """The path of a file with this workload description (docs/workloads.md), named by its content."""
        content = json.dumps(description, sort_keys=True, indent=1).encode()
        return str(_kept("workloads", content))

    def rates(self, method: str, observed: Mapping[str, float], epochs: int = 2) -> str:
        """The path of a record with what `method` observed in every epoch, for `rates` of shapes-only runs."""
        unknown = {"mode": "published", "cluster": "published", "model": "published", "layers": 0, "hidden": 0}
        config = {**unknown, "method": method, "dataset": "published", "parts": 1}
        lines = [{"observed": dict(observed)}] * epochs
        nothing: dict[str, Any] = {"environment": {}, "graph": {}, "facts": {}, "summary": {}, "message": ""}
        what = {"schema": results.SCHEMA, "run_id": "published", "state": "done", "config": config, "epochs": lines}
        record = {**nothing, **what}
        return str(_kept("rates", json.dumps(record, sort_keys=True).encode()))

    def folder(self, *names: str) -> Path:
        """A folder under `out`, made where it is missing."""
        path = self.out.joinpath(*names)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def figure_paths(self, key: str) -> tuple[Path, Path]:
        """Paths (PNG, SVG) of the figure of a key ("sylvie/figure9")."""
        paper, _, name = key.partition("/")
        folder = self.folder(paper)
        return folder / f"{name}.png", folder / f"{name}.svg"


def _flag(name: str, value: Any) -> str:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    text = str(value)
    return f"--{flag} {text}" if text and not set(text) & set(" '\"$;&|<>()*?") else f"--{flag} '{text}'"


def _kept(kind: str, content: bytes) -> Path:
    path = cache_root() / "reports" / kind / f"{hashlib.sha256(content).hexdigest()[:16]}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    return path


def data_state(config: RunConfig) -> str:
    """A hash of the files that the config names, and of the graph behind its dataset's name or description."""
    from harness.datasets import source_state

    named = [config.data.dataset, config.cluster.rates, config.cluster.name.partition(":")[0]]
    parts = [hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in named if _is_file(name)]
    graph = (
        read_description(config.data.dataset)[1].graph.dataset
        if is_workload(config.data.dataset)
        else config.data.dataset
    )
    return " ".join([*parts, source_state(graph)] if graph else parts)


def measured_once(kind: str, key: Sequence[Any], make: Callable[[], Any]) -> Any:
    """What `make` returns, which JSON can hold, from the cache if it was made before under this key."""
    name = hashlib.sha256(json.dumps([*key, versions(*COMPUTING)]).encode()).hexdigest()[:32]
    path = cache_root() / "reports" / kind / f"{name}.json"
    with building(path):
        if not path.exists():
            write_atomically(path, json.dumps(make()).encode())
        return json.loads(path.read_bytes())


def _is_file(name: str) -> bool:
    return name.endswith(FILES) and Path(name).is_file()


def _record(config: RunConfig) -> dict[str, Any]:
    """The cached record of a config, or that of a run made now. Failures are not cached: they are tried again."""
    try:
        packages = ("harness", *{"sim": ("sims",), "real": ("real",)}.get(config.run.mode, ()))
        key = json.dumps([config.run_id(), code_version(*packages), versions(*COMPUTING), data_state(config)])
        path = cache_root() / "reports" / "runs" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
        if path.exists():
            return results.load_result(path)
        with building(path):
            if path.exists():  # made by another process meanwhile
                return results.load_result(path)
            record = _run(config).to_dict()
            write_atomically(path, json.dumps(record).encode())
    except Exception as error:
        return _failed(config, error)
    return record


def _run(config: RunConfig) -> Result:
    from harness import running  # torch: not before there is something to run

    return _retimed().run(config) if config.run.mode == "sim" else running.run(config)


@cache
def _retimed() -> Retimed:
    """The simulated runs of this process: fits and trials of inputs time the same ones on many clusters."""
    from sims.study import Retimed

    return Retimed()


def _failed(config: RunConfig, error: Exception) -> dict[str, Any]:
    message = str(error) if isinstance(error, HaloscopeError) else f"{type(error).__name__}: {error}"
    summary: dict[str, Any] = dict.fromkeys(
        ("epoch_seconds", "bytes_per_epoch", "final_loss", "best_val", "test_at_best_val", "best_test")
    )
    return {
        "schema": results.SCHEMA,
        "run_id": config.run_id(),
        "state": "error",
        "message": " ".join(message.split()),
        "config": config.flat(),
        "graph": {},
        "facts": {},
        "epochs": [],
        "summary": {**summary, "seconds": {}, "peak_memory": 0},
    }


def demand(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record itself where its run is done. Raises InputError with its reason otherwise."""
    if record["state"] != "done":
        config = record["config"]
        raise InputError(f"{config['method']} on {config['dataset']}: {record['state']}: {record['message']}")
    return record


class _Progress:
    """Prints the progress of a table's runs on stderr from time to time."""

    def __init__(self, what: str, total: int, quiet: bool) -> None:
        self.what, self.total, self.quiet = what, total, quiet
        self.begin = self.printed_at = time.monotonic()

    def done(self, count: int) -> None:
        now = time.monotonic()
        if self.quiet or now - self.printed_at < PROGRESS_EVERY_S or count == self.total:
            return
        left = (now - self.begin) / count * (self.total - count)
        show([f"  {self.what}: {count} of {self.total} runs, about {duration(left)} left"], stderr())
        self.printed_at = now
