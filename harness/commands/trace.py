"""`haloscope trace`: a run's timeline for Perfetto, and figures of its lanes, links and transfers.

The run is repeated: a simulated one gives exactly the same result, a real one is measured again.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.commands.shared.cells import writable
from harness.commands.shared.tables import table
from harness.config import RunConfig, from_record
from harness.console import progress_of, show, stdout
from harness.errors import InputError
from harness.numbers import byte_text, significant, time_unit
from harness.running import OpenedRun, open_run, results
from harness.running.trace import Trace
from real.launch import measured_timeline as measured
from reports.draw import heatmap, timeline
from sims.replay import Replay, record_placed
from sims.replay import traced as simulated
from sims.study import SimulatedCluster


def main(args: argparse.Namespace) -> int:
    """Repeat the run, write its trace, draw figures, print a summary."""
    record = results.load_result(args.run)
    config = from_record(record["config"], source=args.run.name)
    if config.run.mode == "loopback":
        raise InputError(f"{args.run}: a loopback run has no clock; run it with --mode sim or --mode real")
    if args.epochs < 1:
        raise InputError("epochs must be at least 1")
    writable(args.out, folder=False)
    config = config.changed(epochs=min(args.epochs, config.training.epochs))
    opened = open_run(config)
    opened.driver.check()
    with progress_of(
        f"tracing {config.training.method}, {config.run.mode}", config.training.epochs, args.quiet
    ) as progress:
        trace: Trace = _traced(opened, progress)
    trace.facts |= {"title": _title(config, record), "run_id": record["run_id"], "mode": config.run.mode}
    trace.save(args.out)
    written = [args.out, *(_draw(trace, args.out) if args.figures else [])]
    if not args.quiet:
        show([*_report(trace), *_notes(config), f"written: {', '.join(map(str, written))}"], stdout())
    return 0


def _traced(opened: OpenedRun, progress: Any) -> Trace:
    """Simulate once to record the ranks, and replay the recording without tensors for its timeline; or measured."""
    if isinstance(opened.driver, SimulatedCluster):
        recording = record_placed(opened.plan, opened.driver.placement, progress)
        return simulated(Replay(recording), opened.driver.cluster)
    return measured(opened.plan, progress)


def _title(config: RunConfig, record: dict[str, Any]) -> str:
    where = f"simulated on {config.cluster.name}" if config.run.mode == "sim" else "measured"
    graph = record["graph"].get("name", config.data.dataset)
    return f"{config.training.method} on {graph}, {config.cut.parts} ranks, {where}"


def _draw(trace: Trace, out: Path) -> list[Path]:
    """Draw the figures of the trace; empty ones are left out."""
    places = {name: out.with_name(f"{out.stem}-{name}.png") for name in ("timeline", "links", "transfers")}
    window = timeline.after_first_epoch(trace)
    drawn = [timeline.timeline(trace, places["timeline"], window), heatmap.link_heatmap(trace, places["links"])]
    drawn.append(heatmap.completion(trace, places["transfers"]))
    return [path for path in drawn if path is not None]


def _report(trace: Trace) -> list[Any]:
    """Seconds and bytes by component, summed over ranks."""
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    amounts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for span in trace.spans:
        key = span.stream, span.component
        seconds[key] += span.end_s - span.start_s
        amounts[key][0] += 1
        amounts[key][1] += span.nbytes
    factor, unit = time_unit(list(seconds.values()))
    rows: Sequence[Sequence[str]] = [
        [*key, significant(seconds[key] * factor), str(amounts[key][0]), byte_text(amounts[key][1])]
        for key in sorted(seconds)
    ]
    length, own = time_unit([trace.end_s])
    transfers = f", {len(trace.messages):,} transfers" if trace.facts["mode"] == "sim" else ""
    head = f"{trace.facts['title']}: {significant(trace.end_s * length)} {own}{transfers}"
    return [head, table("", ["stream", "component", f"{unit}, all ranks", "spans", "sent"], rows, left=2)]


def _notes(config: RunConfig) -> list[str]:
    if config.run.mode == "sim":
        return ["note: spans of started exchanges last from start to end, and so overlap the compute that hides them"]
    return [
        "note: measured in a run of its own: times differ a little from the result's",
        "note: single transfers and links are seen in simulated runs only; exchanges carry their bytes",
    ]
