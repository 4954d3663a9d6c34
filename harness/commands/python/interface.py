"""The functions behind `import harness`: what the commands do, with settings as keywords and results as objects.

Every setting of a run is a keyword, named as its flag with underscores (`eval_every=5`), or comes in a `harness.Config`
or a mapping that keywords override; paths and NumPy's numbers are fine. A `harness.Config()` has `order="method"`, that
of each method's own system; without one it is `order="auto"` as in the commands. Bad input raises `harness.InputError`
with the line that the command would print.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from pathlib import Path
from typing import Any, SupportsIndex

from harness.commands.arguments import RECORDED
from harness.commands.arguments.advise import ADVISED
from harness.commands.arguments.numbers import whole_numbers
from harness.commands.compare import cells_of, mode_named, run_all
from harness.commands.python.outcomes import Comparison, CutResult, RunOutcome, WhatIf
from harness.commands.shared.cells import Reuse, run_or_reuse
from harness.commands.what_if import Variation, explore
from harness.config import COMMAND_DEFAULTS, RunConfig, check, laid_over
from harness.errors import InputError
from harness.machine import core_count
from harness.running import open_run, prepare, results
from harness.running.sweep import seconds_of
from reports.advice import Advice, Question, Tell, make_advice
from sims.uncertainty import replays_for

StartingConfig = RunConfig | Mapping[str, Any]
"""What keywords are laid over."""

MODELLED = "it predicts, in mode sim, and decides that itself"
TAKEN_BY_WHAT_IF = {"method": "it takes methods", "epochs": "recorded= says how many epochs it records"}
TAKEN_BY_ADVISE = {"method": "it takes methods", "parts": "parts= is a keyword of its own: numbers of devices to try"}
"""Why a function refuses a setting by name."""


def run(
    config: StartingConfig | None = None,
    /,
    *,
    out: str | Path = "runs",
    force: bool = False,
    reuse: Reuse = "same",
    quiet: bool = False,
    replays: int | None = None,
    **settings: Any,
) -> RunOutcome:
    """Train one method, as `haloscope run` does, or use its earlier result.

        harness.run(dataset="synthetic:nodes=2000", method="bns-gcn:p=0.1", parts=2, epochs=20)

    Args:
        config: settings to start from, a `harness.Config` or a mapping such as {"dataset": ..., "parts": 2}; by default
            those of the command line.
        out: folder of result files.
        force: run again even if a finished result exists.
        reuse: which measured results are used again: of the same machine, libraries and code, or of any.
        quiet: no progress on stderr.
        replays: that the 90 % interval of a prediction (mode sim) rests on; 0 for none, by default as the command.
        settings: settings of the run by name, `harness.Config().flat()` lists them.

    Raises:
        InputError: an unknown setting, name or value; the message says what would fit.
    """
    made = _config(config, settings)
    check(made)
    count = replays_for(made.cut.parts, replays)
    cell = run_or_reuse(open_run(made), _folder(out), force=force, reuse=reuse, quiet=quiet, replays=count)
    return RunOutcome(cell.record, cell.path)


def compare(
    methods: str | Sequence[str],
    config: StartingConfig | None = None,
    /,
    *,
    modes: str | Sequence[str] = (),
    out: str | Path = "runs",
    force: bool = False,
    reuse: Reuse = "same",
    quiet: bool = False,
    replays: int | None = None,
    rounds: int = 1,
    **settings: Any,
) -> Comparison:
    """Run several methods on the same data, as `haloscope compare` does: like beside like.

        harness.compare(["vanilla", "sylvie-s:bits=1"], parts=4, mode="sim", cluster="ethernet-10g").frame()

    All methods treat the input layer alike and have one order of linear map and aggregation; `layer0="auto"` and
    `order="method"`, given here, leave each to its own system. The first method is the baseline of speed-ups.

    Args:
        methods: names with options; one text with commas between is fine.
        modes: of loopback, sim and real, one text with commas between is fine; by default the one of the settings.
        config, out, force, reuse, quiet, replays, settings: as for `run`. Of two predictions only `.order` says which
            is faster, where their intervals allow it.
        rounds: how often every real run is measured, all of them in turn; the median counts, and `.order` says which
            method is faster in every round.

    Raises:
        InputError: as `run`.
    """
    _refuse_decided("compare", {"method": "it takes methods"}, config, settings)
    if rounds < 1:
        raise InputError(f"rounds={rounds}: real runs are measured once or more often")
    made = _config(config, settings)
    named = [mode_named(text.strip()) for text in _listed(modes).split(",") if text.strip()]
    runs = cells_of(made, _listed(methods), named or [made.run.mode], _asked(config, settings))
    count = replays_for(made.cut.parts, replays)
    cells = run_all(runs, _folder(out), force=force, reuse=reuse, quiet=quiet, replays=count, rounds=rounds)
    return Comparison([cell.record for cell in cells], [cell.path for cell in cells])


def what_if(
    methods: str | Sequence[str],
    config: StartingConfig | None = None,
    /,
    *,
    bandwidth: str = Variation.bandwidth,
    latency: str | None = None,
    bits: str | None = None,
    devices: str | None = None,
    transports: str | None = None,
    points: int = Variation.points,
    recorded: int | None = None,
    replays: int | None = None,
    out: str | Path = "what-if",
    force: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> WhatIf:
    """Time the same runs under other bandwidths or latencies, as `haloscope what-if` does.

        harness.what_if("vanilla,sylvie-s", parts=4, cluster="ethernet-10g", bandwidth="nic=1Gb/s..100Gb/s").plot()

    Args:
        methods: as for `compare`.
        bandwidth, latency: a link and the range to vary it over; a latency takes the place of the bandwidth.
        bits, devices, transports: variants, with commas between.
        points: of the range; recorded: epochs to record of each method.
        replays: of every band, at each of a few points; 0 for none, by default as the command.
        out: folder whose recordings are used again, unless `force`.
        config, quiet, settings: as for `run`.

    Raises:
        InputError: as `run`, and for a link that the cluster has not.
    """
    question = Variation(
        methods=_listed(methods), bandwidth=bandwidth, latency=latency, bits=bits, devices=devices,
        transports=transports, points=points, recorded=recorded, replays=replays,
    )  # fmt: skip
    _refuse_decided("what_if", dict.fromkeys(RECORDED, MODELLED) | TAKEN_BY_WHAT_IF, config, settings)
    made = _config(config, {**settings, "mode": "sim"})
    check(made)
    return WhatIf(explore(made, question, _folder(out), _asked(config, settings), force=force, quiet=quiet))


def advise(
    config: StartingConfig | None = None,
    /,
    *,
    parts: int | str | Sequence[int] = (),
    methods: str | Sequence[str] = (),
    within: float = 0.5,
    seeds: int = 5,
    budget: str = "15m",
    price: float = 0.0,
    sample: int = 0,
    jobs: int = 0,
    out: str | Path = "advice",
    tell: Tell | None = None,
    **settings: Any,
) -> Advice:
    """Say which method to run, on how many devices, as `haloscope advise` does; `.sentences` has it in words.

        harness.advise(dataset="graph.npz", cluster="ethernet-10g", within=0.5, budget="5m").frame()

    Args:
        parts: numbers of devices to try, or one; a text with commas between is fine; by default powers of two that the
            cluster has.
        methods: to try; by default promising ones.
        within: points of accuracy that may be lost against exact training.
        seeds: paired seeds of the finalists.
        budget: time that everything may take here, such as 90s or 15m.
        price: of one device for one hour, in any currency.
        sample: nodes of the part of the graph that is trained on; 0 for as many as the budget allows.
        jobs: trainings at a time; 0 for one per core.
        out: folder of recordings and finished trainings; the same call goes on from there.
        tell: is told what is done, and the seconds left where known.
        config, settings: as for `run`.

    Raises:
        InputError: as `run`, and for a cluster without links or a graph without labels.
    """
    _refuse_decided("advise", dict.fromkeys(ADVISED, MODELLED) | TAKEN_BY_ADVISE, config, settings)
    texts = _listed(methods).split(",")
    question = Question(
        base=_config(config, {**settings, "parts": 2}), parts=_counts(parts), within=within, seeds=seeds,
        methods=tuple(text.strip() for text in texts if text.strip()), budget=seconds_of(budget), price=price,
        out=_folder(out), jobs=jobs or core_count(), sample=sample,
    )  # fmt: skip
    return make_advice(question, tell or (lambda what, left: None))


def partition_graph(config: StartingConfig | None = None, /, **settings: Any) -> CutResult:
    """Cut a graph as a run would, as `haloscope partition` does; the parts are kept in the cache.

        harness.partition_graph(dataset="synthetic:nodes=2000", parts=4, partitioner="hash").frame()

    Raises:
        InputError: as `run`.
    """
    made = _config(config, settings)
    check(made)
    return CutResult(prepare(made))


def load_results(folder: str | Path = "runs") -> Comparison:
    """All results of a folder, oldest first; files that are no results are left out, and counted in `left_out`.

    Only runs that differ in their method alone are compared: the speed-up of a run is over the first of the same graph,
    model, precision, place, number of parts and seed.

    Raises:
        InputError: no such folder, or no result in it.
    """
    place = Path(folder)
    if not place.is_dir():
        raise InputError(f"{place}: no such folder of results")
    records, paths, left_out = [], [], []
    for path in sorted(place.glob("*.json"), key=lambda path: (path.stat().st_mtime_ns, path.name)):
        try:
            records.append(results.load_result(path))
            paths.append(path)
        except InputError as error:
            left_out.append(str(error))
    if not records:
        raise InputError(f"{place}: no result files in it ({len(left_out)} files that are not results)")
    return Comparison(records, paths, left_out)


def _config(config: StartingConfig | None, settings: dict[str, Any]) -> RunConfig:
    """The settings over a config; ranges are checked once the mode is known."""
    base = COMMAND_DEFAULTS if config is None else config
    if isinstance(base, Mapping):
        base = laid_over(base, COMMAND_DEFAULTS, source="setting")
    if not isinstance(base, RunConfig):
        raise InputError(f"a {type(base).__name__} is no config: give a harness.Config, a mapping, or settings by name")
    return laid_over(settings, base, source="setting")


def _refuse_decided(
    function: str, decided: Mapping[str, str], config: StartingConfig | None, settings: dict[str, Any]
) -> None:
    """Raise InputError for settings given by name that a function decides itself; `decided` says of each why.

    The mode that it has is fine, and a `harness.Config`, which has every setting.
    """
    given = {**(config if isinstance(config, Mapping) else {}), **settings}
    for key, value in given.items():
        name = str(key).replace("-", "_")
        if name in decided and not (name == "mode" and value == "sim" and function != "compare"):
            raise InputError(f"{key}={value!r} is not for harness.{function}: {decided[name]}")


def _counts(parts: int | str | Sequence[int]) -> tuple[int, ...]:
    """Numbers of devices from one number, a text with commas, or several. Raises InputError for what is neither."""
    if isinstance(parts, str):
        return tuple(whole_numbers(parts, "parts", "devices"))
    try:
        return (index(parts),) if isinstance(parts, SupportsIndex) else tuple(map(index, parts))
    except TypeError:
        raise InputError(f"parts={parts!r}: give one number of devices, or several") from None


def _asked(config: StartingConfig | None, settings: dict[str, Any]) -> set[str]:
    """Keys of the settings that the caller gave by name."""
    return {str(key).replace("-", "_") for key in (config if isinstance(config, Mapping) else ())} | set(settings)


def _folder(out: str | Path) -> Path:
    try:
        return Path(out)
    except TypeError:
        raise InputError(f"out={out!r}: give a folder, as text or as a path") from None


def _listed(texts: str | Sequence[str]) -> str:
    return texts if isinstance(texts, str) else ",".join(texts)
