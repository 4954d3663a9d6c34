"""Runs of one config on many clusters: simulated in full on the first, timed by replay on the others.

The results are those of full simulations, at the cost of the network alone, but for the memory of what is held behind
compute, which is that on the first cluster. Fits of a cluster's constants and trials of other bandwidths time the same
run again and again.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from harness.config import RunConfig
from harness.running import open_run, run_opened
from harness.running.results import Result
from sims.cluster import Placement
from sims.engine import Simulation
from sims.replay import Recorder, Replay, needed
from sims.study._execute import SimulatedCluster, cluster_facts


@dataclass(frozen=True, eq=False)
class _Recorded:
    """A run on the cluster on which it was simulated in full."""

    result: Result
    simulation: Simulation
    replay: Replay


class Retimed:
    """Results of runs on modelled clusters, by replay where the same run was simulated before on alike devices.

    Methods whose decisions depend on when messages arrive are simulated in full each time.

    Args:
        most: recordings that are kept, the last used ones.
    """

    def __init__(self, most: int = 400) -> None:
        self._most = most
        self._known: dict[Hashable, _Recorded] = {}

    def run(self, config: RunConfig) -> Result:
        """The result of `harness.running.run` for a config of mode `sim`.

        Raises:
            InputError, HaloscopeError: as that.
        """
        opened = open_run(config)
        driver = opened.driver
        if not isinstance(driver, SimulatedCluster) or opened.plan.method.facts.timed:
            return run_opened(opened)
        inputs = opened.inputs()
        key = _alike(config, driver.placement, inputs)
        before = self._known.pop(key, None)
        if before is None:
            recorder = Recorder(config.cut.parts)
            recording = SimulatedCluster(driver.placement, [recorder])
            result = run_opened(replace(opened, driver=recording))
            simulation = recording.simulations[-1]
            made = recorder.recording(config.flat(), result.graph, {}, needed(simulation), skew=simulation.skew)
            before = _Recorded(result, simulation, Replay(made))
        else:
            result = _again(before, config, driver.placement, inputs)
        self._known[key] = before
        if len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        return result


def _alike(config: RunConfig, placement: Placement, inputs: dict[str, str]) -> Hashable:
    """What a run depends on beside its times: its settings, its data, and which device is where."""
    settings = tuple(sorted((k, v) for k, v in config.flat().items() if k != "cluster"))
    data = tuple(sorted((k, v) for k, v in inputs.items() if k != "cluster"))
    kind = placement.cluster.transport.kind
    return settings, data, kind, tuple(placement.profile_of), tuple(placement.host.tolist())


def _again(before: _Recorded, config: RunConfig, placement: Placement, inputs: dict[str, str]) -> Result:
    """The result on another cluster: other seconds, and what is said of the cluster."""
    timed = before.replay.time(placement.cluster)
    known = before.simulation
    simulation = replace(timed.simulation, source_seconds=known.source_seconds, unknown_ops=known.unknown_ops)
    epochs = [{**old, "seconds": new["seconds"]} for old, new in zip(before.result.epochs, timed.epochs, strict=True)]
    facts = {**before.result.facts, **cluster_facts(simulation, placement, config), "rank_seconds": timed.rank_seconds}
    return replace(
        before.result, config=config, epochs=epochs, inputs=inputs, message=simulation.too_large,
        state="out_of_memory" if simulation.too_large else "done",
        facts=facts,
    )  # fmt: skip
