"""Seconds of an epoch on a paper's testbed, from counts only: shapes-only runs, with constants fitted on a baseline.

Constants are fitted on baseline rows alone, as few as a testbed allows (`Fit`): factors on bandwidths, on the speed of
devices, on what software moves and takes for a message, and the time of a program's host, where nothing is printed of
it. Every other row is then predicted by a run of the method's own code, with the all-reduce as the library does it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Literal

from harness.errors import InputError
from harness.methods.registry import parse_method
from harness.rank import COMPONENTS
from reports.core.clusters import all_faster, hosts_slowed, messages_slowed
from reports.core.context import SHAPES, Context, demand
from reports.core.table import Fitted

ROUNDS = 8  # secant steps at most
HIT = 0.002  # relative distance from the printed epoch at which a fit is done

Free = Literal["bandwidth", "process", "messages"]
OF_LINKS, OF_DEVICE, OF_HOST = "factor on the bandwidth of links", "factor on device speed", "host in an epoch"
CONSTANTS: dict[Free, str] = {
    "bandwidth": "factor on bandwidths",
    "process": "factor on the ceiling of a process",
    "messages": "factor on the fixed time of a message",
}
"""What one row of epochs can tell; device speed and host are told by two (`device_and_host`)."""


@dataclass(frozen=True)
class Fit:
    """The constants of a testbed. `Context.fits` says on which rows they were fitted.

    Attributes:
        bandwidth: factor on the bandwidth of every link, and on the ceiling of a process where `process` is None.
        process: factor on what the software of one process moves at most; None where it is not fitted apart.
        compute: factor on compute seconds.
        messages: factor on the seconds that software takes for a message, whatever its size.
        host: seconds of an epoch in which the host of a paper's program keeps its device waiting; a part of compute.
        host_per_part: the same for every other part of the graph, where the program works for one after the other.
    """

    bandwidth: float = 1.0
    process: float | None = None
    compute: float = 1.0
    messages: float = 1.0
    host: float = 0.0
    host_per_part: float = 0.0

    def text(self) -> str:
        """One sentence with the values, for a table's assumptions."""
        links = "bandwidths" if self.process is None else "bandwidth of links"
        factors = [f"{links} x {self.bandwidth:.3g}"] if self.bandwidth != 1.0 else []
        factors += [f"ceiling of a process x {self.process:.3g}"] if self.process is not None else []
        factors += [f"compute x {self.compute:.3g}"] if self.compute != 1.0 else []
        factors += [f"time of messages x {self.messages:.3g}"] if self.messages != 1.0 else []
        each = f" and {1e3 * self.host_per_part:.3g} ms for every other part" if self.host_per_part else ""
        factors += [f"host {1e3 * self.host:.3g} ms an epoch{each}"] if self.host or each else []
        return "constants: " + (", ".join(factors) or "none")

    def of_program(self, host: float, per_part: float = 0.0) -> Fit:
        """The same testbed under a program whose host takes `host` seconds an epoch, `per_part` for each other part."""
        return replace(self, host=host, host_per_part=per_part)

    def host_s(self, parts: int) -> float:
        """Seconds of an epoch of so many parts that the host takes."""
        return self.host + self.host_per_part * (parts - 1)

    def timed(self, record: Mapping[str, Any]) -> Seconds:
        """The median epoch of a run with these constants, with what the host takes. Raises InputError if it failed."""
        modelled, host = Seconds.of(record), self.host_s(int(record["config"]["parts"]))
        return modelled.each(lambda one: replace(one, epoch=one.epoch + host, compute=one.compute + host))


@dataclass(frozen=True)
class Seconds:
    """Modelled seconds of one epoch, mean over ranks: all of it, and its parts."""

    epoch: float
    comm: float  # halo exchange, swaps and waiting for others
    compute: float  # with codec and sampling
    codec: float
    sample: float
    reduce: float
    wait: float = 0.0  # for other ranks, which compute for longer
    tail: float = 0.0  # of compute: after the last exchange of the epoch
    decode: float = 0.0  # of codec: turning received codes into rows, where it is priced apart
    blocked: Mapping[str, float] = field(default_factory=dict)  # label of effects -> waiting for them
    ranks: tuple[Seconds, ...] = ()  # the same epoch of every rank; its end, which all wait for, is no part of `epoch`

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Seconds:
        """The median epoch of a result record. Raises InputError where the run failed."""
        seconds = demand(record)["summary"]["seconds"]
        facts = record["facts"]
        blocked, by_rank = facts.get("blocked_s", {}), facts.get("rank_seconds", {})
        tails = facts.get("tail_s") or [0.0] * len(by_rank.get("epoch", ()))
        ranks = tuple(
            replace(cls._of({name: by_rank[name][rank] if name in by_rank else 0.0 for name in COMPONENTS}), tail=tail)
            for rank, tail in enumerate(tails)
            if by_rank
        )
        mean = replace(cls._of(seconds), epoch=seconds["epoch"], blocked=blocked, tail=fmean(tails or [0.0]))
        return replace(mean, ranks=ranks)

    def each(self, change: Callable[[Seconds], Seconds]) -> Seconds:
        """The same with a change that is made to the mean over ranks and to every rank."""
        return replace(change(self), ranks=tuple(map(change, self.ranks)))

    @classmethod
    def mean(cls, record: Mapping[str, Any], skip: int = 2) -> Seconds:
        """Mean over a record's epochs but the first ones, also of one that would not fit its machines.

        Raises:
            InputError: the run failed.
        """
        timed = record if record["state"] == "out_of_memory" else demand(record)
        epochs = [epoch["seconds"] for epoch in timed["epochs"][skip:]]
        return cls._of({name: fmean(seconds[name] for seconds in epochs) for name in epochs[0]})

    @classmethod
    def _of(cls, seconds: Mapping[str, float]) -> Seconds:
        comm = seconds["halo"] + seconds["swap"] + seconds["wait"]
        compute = seconds["compute"] + seconds["codec"] + seconds["sample"]
        codec, sample, reduce, wait = (seconds[name] for name in ("codec", "sample", "reduce", "wait"))
        return cls(comm + compute + reduce, comm, compute, codec, sample, reduce, wait)

    @property
    def logged(self) -> float:
        """Compute as programs log it that wait for the device before exchanges and at the all-reduce: without codec."""
        return self.compute - self.codec - self.tail

    @property
    def work(self) -> float:
        """The part that grows with a slower device: computing, sampling, and waiting for other ranks; not the codec."""
        return self.compute - self.codec + self.wait


@dataclass(frozen=True, kw_only=True)
class Testbed:
    """A cluster, a model and a graph in parts, on which methods are timed.

    Attributes:
        cluster: name of a cluster file, with overrides if any (`sims.cluster`).
        model: settings of the model (`RunConfig` fields).
        workload: name of a shipped workload, or a description (docs/workloads.md) as a mapping.
        epochs: epochs of a run; the median is used.
        hooks: whether the paper's programs sum gradients during the backward pass (`early`).
    """

    __test__ = False  # pytest would collect the class because of its name

    context: Context
    cluster: str
    model: Mapping[str, Any]
    workload: Mapping[str, Any] | str
    parts: int
    epochs: int = 2
    hooks: bool = False

    def config(self, method: str, fit: Fit | None = None, rates: Mapping[str, float] | None = None) -> dict[str, Any]:
        """The run of one method. `rates`: what it observes of the data ("kept nodes": share of halo rows sent)."""
        fixed = {
            "dataset": self._dataset(),
            "parts": self.parts,
            "method": early(method) if self.hooks else method,
            "cluster": self._cluster(fit or Fit()),
            "epochs": self.epochs,
        }
        seen = {"rates": self.context.rates(method, rates, self.epochs)} if rates else {}
        return {**SHAPES, **self.model, **fixed, **seen}

    def seconds(self, method: str, fit: Fit | None = None, rates: Mapping[str, float] | None = None) -> Seconds:
        """One epoch of a method. Raises InputError where the run failed."""
        return self.all_seconds([(method, fit, rates)])[0]

    def all_seconds(
        self,
        wanted: Sequence[tuple[str, Fit | None, Mapping[str, float] | None]],
        what: str = "",
        *,
        trial: bool = False,
    ) -> list[Seconds]:
        """The same for several (method, fit, rates); a `trial` is a run that a constant is fitted with."""
        configs = [self.config(method, fit, rates) for method, fit, rates in wanted]
        records = self.context.runs(configs, what, trial=trial)
        return [(fit or Fit()).timed(record) for record, (_, fit, _) in zip(records, wanted, strict=True)]

    def fitted(
        self,
        method: str,
        printed_s: float,
        *,
        source: str,
        free: Free = "bandwidth",
        start: Fit | None = None,
        listed: bool = True,
        testbed: str = "",
    ) -> Fit:
        """The one constant with which a baseline row has its printed epoch; it is listed in `Context.fits`.

        Args:
            printed_s: printed seconds of the baseline's epoch.
            source: description of the row.
            free: the constant to fit; the others stay as in `start`, by default 1.
            listed: False where the constant will be fitted again, with others beside it.
            testbed: name of what it holds for, by default the cluster's.

        Raises:
            InputError: the part that does not depend on the constant alone takes longer than the printed time, the
                time does not depend on the constant, or no constant was found.
        """
        start, before = start or Fit(), None
        slowness = 1.0  # factor on the time of the fitted part, against `start`; the epoch is nearly linear in it
        for _ in range(ROUNDS):
            fit = _slowed(start, free, slowness)
            (now,) = self.all_seconds([(method, fit, None)], f"fitting {free}", trial=True)
            if abs(now.epoch / printed_s - 1) < HIT:
                if listed:
                    name = OF_LINKS if free == "bandwidth" and fit.process is not None else CONSTANTS[free]
                    found = Fitted(testbed=testbed or self.cluster, constant=name, value=getattr(fit, free), row=source)
                    self.context.fits[found] = None
                return fit
            slope = (now.epoch - before[1]) / (slowness - before[0]) if before else now.comm / slowness
            if slope <= 0:
                raise InputError(f"the epoch does not grow as {free} slows down; nothing to fit ({source})")
            before = slowness, now.epoch
            slowness += (printed_s - now.epoch) / slope
            if slowness <= 0:
                raise InputError(f"what is not fitted takes longer than the printed {printed_s:.3g} s ({source})")
        raise InputError(f"no {free} gives {printed_s:.3g} s: {now.epoch:.3g} s after {ROUNDS} trials ({source})")

    def _cluster(self, fit: Fit) -> str:
        linked = messages_slowed(all_faster(self.cluster, fit.bandwidth, fit.process), fit.messages)
        return hosts_slowed(linked, self.parts, fit.compute)

    def _dataset(self) -> str:
        if isinstance(self.workload, str):
            return f"workload:{self.workload}"
        return self.context.workload(self.workload)


def early(method: str) -> str:
    """The method with gradients that are summed during the backward pass, where it can do that."""
    return f"{method}:gradients=early" if hasattr(parse_method(method), "gradients") else method


def device_and_host(larger: tuple[Testbed, float], smaller: tuple[Testbed, float], source: str, testbed: str) -> Fit:
    """The device's factor and the host's seconds with which two runs have their logged compute (`Seconds.logged`).

    Args:
        larger, smaller: testbeds with parts of two sizes, and the seconds that were logged of full-graph training.
        source: description of both rows.
        testbed: name of what the constants hold for.

    Raises:
        InputError: compute does not grow with the part, or the host would take less than nothing.
    """
    wanted, what = [("vanilla", Fit(), None)], "fitting compute"
    more, less = (bed.all_seconds(wanted, what, trial=True)[0].logged for bed, _ in (larger, smaller))
    slow = (larger[1] - smaller[1]) / (more - less) if more > less else 0.0
    host = larger[1] - slow * more
    if slow <= 0 or host < 0:
        raise InputError(f"no device and host give both rows: compute x {slow:.3g}, host {host:.3g} s ({source})")
    larger[0].context.fits[Fitted(testbed=testbed, constant=OF_DEVICE, value=1 / slow, row=source)] = None
    larger[0].context.fits[Fitted(testbed=testbed, constant=OF_HOST, value=1e3 * host, unit="ms", row=source)] = None
    return Fit(compute=slow, host=host)


def _slowed(start: Fit, free: Free, factor: float) -> Fit:
    if free == "bandwidth":
        return replace(start, bandwidth=start.bandwidth / factor)
    if free == "process":
        return replace(start, process=(start.bandwidth if start.process is None else start.process) / factor)
    return replace(start, messages=start.messages * factor)


def parts_of(nodes: int, edges: int, features: int, classes: int, **parts: Any) -> dict[str, Any]:
    """A workload description: a graph of training nodes only, and its `[parts]` table (docs/workloads.md)."""
    graph = {"nodes": nodes, "edges": edges, "features": features, "classes": classes, "train": nodes}
    return {"name": "published counts", "graph": graph, "parts": parts}
