"""Config -> result: opens the run, prepares the data, hands the job to its driver, merges the ranks."""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from harness.config import RunConfig
from harness.errors import HaloscopeError, InputError
from harness.nn import build_model
from harness.running._job import Checkpoints, Execution, Job, Progress
from harness.running._opened import OpenedRun, Plan, open_run
from harness.running._prepare import Prepared, prepare
from harness.running._rates import load_rates
from harness.running._recorded import RecordedEpochs
from harness.running.results import RankEpoch, Result, ResultFile, merge, rank_seconds
from harness.trampoline import blame


def make_job(
    plan: Plan,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
    ranks: Sequence[int] | None = None,
) -> tuple[Job, Prepared]:
    """The job of a plan: loads and partitions the graph, or finds it in the cache.

    Args:
        ranks: those whose parts must be there, by default all.

    Raises:
        InputError: whatever the user can mend, before anything is written.
    """
    config, method = plan.config, plan.method
    if checkpoints is not None and config.cluster.shapes_only:
        raise InputError("a run of shapes only has nothing to checkpoint: leave out --checkpoint or --shapes-only")
    rates = load_rates(Path(config.cluster.rates), config.training.method) if config.cluster.rates else None
    prepared = prepare(config, plan.cut, ranks)
    totals = prepared.totals
    model = build_model(config.model, totals.num_features, totals.num_classes, config.training.seed)
    method.check(model, totals, config.cut.parts)
    data = f"{prepared.graph['fingerprint']}/{prepared.train.path.name}" if checkpoints is not None else ""
    return Job(config, method, prepared, model, progress, rates=rates, checkpoints=checkpoints, data=data), prepared


def run(config: RunConfig, progress: Progress | None = None, checkpoints: Checkpoints | None = None) -> Result:
    """`run_opened` of a config."""
    return run_opened(open_run(config), progress, checkpoints)


def run_opened(
    opened: OpenedRun,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
    file: ResultFile | None = None,
) -> Result:
    """Carry out a run and return its result; `progress` is called after every epoch with rank 0's record.

    Times and memory of a run that went on from a checkpoint are those of its pieces; everything else is as if it had
    never stopped.

    Args:
        file: where the result is written. Space for the next epochs is taken before each. A run that fails, or is
            interrupted, writes one too, in state `failed` or `killed` and with the epochs that all ranks had recorded;
            then the error is raised.
    """
    config = opened.config
    opened.driver.check()
    read = opened.inputs()  # before they are read: what changes meanwhile has it run again
    job, prepared = make_job(opened.plan, progress, checkpoints)
    recorded = RecordedEpochs(config.cut.parts)
    with file or nullcontext():
        try:
            execution = opened.driver.execute(replace(job, keep=recorded.add, progress=with_room(file, progress)))
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            result = replace(cut_short(error, config, recorded, prepared), inputs=read)
            if result.state != "diverged":
                with suppress(InputError):  # the run's own error is the one to be raised
                    leave_result(file, result, error)
                raise
        else:
            result = replace(finish(config, prepared, execution), inputs=read)
        if file is not None:
            file.write(result)
    return result


def with_room(file: ResultFile | None, progress: Progress | None) -> Progress | None:
    """`progress`, which also has the result file take space for the epochs to come."""
    if file is None:
        return progress

    def follow(record: RankEpoch) -> None:
        file.make_room(record.epoch + 1)
        if progress is not None:
            progress(record)

    return follow


def cut_short(error: BaseException, config: RunConfig, recorded: RecordedEpochs, prepared: Prepared | None) -> Result:
    """The result of a run that an error or a signal has ended, with the epochs that all ranks had recorded.

    Args:
        prepared: the run's data; None where it ended before they were known.
    """
    epochs, graph = recorded.epochs(config.model.layers), {} if prepared is None else prepared.describe()
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        how = "interrupted" if isinstance(error, KeyboardInterrupt) else f"ended with exit code {error.code}"
        if isinstance(error, SystemExit) and error.code == 128 + signal.SIGTERM:
            how = "ended by SIGTERM"
        return Result(config, "killed", epochs, graph, message=f"{how} after {len(epochs)} epochs")
    state = getattr(error, "state", HaloscopeError.state)
    return Result(config, state, epochs, graph, message=" ".join(blame(error).split()))


def leave_result(file: ResultFile | None, result: Result, error: BaseException) -> None:
    """Write the result of a run that has ended early, if it tells something. Raises InputError if the disk refuses it.

    Bad input that is noticed at once leaves nothing; a run that was stopped before its first epoch leaves the result
    of an earlier one. A signal's exception gets a note that names the file.
    """
    stopped = isinstance(error, (KeyboardInterrupt, SystemExit))
    if file is None or not (result.epochs or not (file.path.exists() if stopped else isinstance(error, InputError))):
        return
    file.write(result)
    if stopped:
        error.add_note(f"result: {file.path} ({len(result.epochs)} epochs)")


def finish(config: RunConfig, prepared: Prepared, execution: Execution) -> Result:
    """The result of what the ranks recorded."""
    epochs = merge(execution.ranks, config.model.layers, execution.tiers, execution.tier_of)
    losses = [e["loss"] for e in epochs if e["loss"] is not None]
    diverged = bool(losses) and not math.isfinite(losses[-1])
    if diverged:
        epochs[-1]["loss"] = None
    names = execution.ranks[0].measures
    measures = {name: [rank.measures[name] for rank in execution.ranks] for name in names}
    seconds = rank_seconds([[epoch.seconds for epoch in rank.epochs] for rank in execution.ranks], epochs)
    facts = {
        **execution.ranks[0].facts,
        **measures,
        **execution.facts,
        **({"rank_seconds": seconds} if seconds else {}),
    }
    state, message = "done", ""
    if execution.out_of_memory:
        state, message = "out_of_memory", execution.out_of_memory
    elif diverged:
        state, message = "diverged", f"the loss of epoch {epochs[-1]['epoch']} is not finite"
    elif execution.ranks[0].interrupted:
        state, message = "interrupted", f"asked to stop after epoch {epochs[-1]['epoch']}, and left a checkpoint"
    return Result(config, state, epochs, prepared.describe(), facts, message)
