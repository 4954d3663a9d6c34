"""Draws the use of every link of a simulated run over time, and the completion times of its transfers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from harness.numbers import byte_text, time_unit
from harness.running.trace import Message, Steps, Trace
from reports.draw.figures import INCHES, STYLE

BINS = 400  # of time
MOST_LINKS = 48  # drawn: the busiest
WIDE = 20  # largest over smallest transfer from which sizes are drawn on a log scale
IDLE = 1e-3  # links that never reach this share are left out


def binned(steps: Steps, edges: np.ndarray) -> np.ndarray:
    """Mean of a step function between `edges` [bins + 1], float64 [bins]; 0 before its first time."""
    times = np.asarray([-np.inf, *steps.times])
    values = np.asarray([0.0, *steps.values])
    cuts = np.unique(np.concatenate([edges, np.asarray(steps.times, float)]))
    cuts = cuts[(cuts >= edges[0]) & (cuts <= edges[-1])]
    held = values[np.searchsorted(times, cuts[:-1], side="right") - 1]
    area = np.concatenate([[0.0], np.cumsum(held * np.diff(cuts))])
    mean: np.ndarray = np.diff(np.interp(edges, cuts, area)) / np.diff(edges)
    return mean


def link_heatmap(trace: Trace, path: Path) -> Path | None:
    """Draw `path` (PNG): links downwards, time to the right, share of capacity as colour; None without traffic."""
    edges = np.linspace(0.0, max(trace.end_s, 1e-12), BINS + 1)
    shares = {link: binned(steps, edges) for link, steps in trace.links.items()}
    busy = [link for link, share in shares.items() if share.max(initial=0.0) > IDLE]
    if not busy:
        return None
    chosen = set(sorted(busy, key=lambda link: -shares[link].mean())[:MOST_LINKS])
    busy_of = len(busy)
    busy = [link for link in busy if link in chosen]
    factor, unit = time_unit([trace.end_s])
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(1.4 * INCHES, 1.3 + 0.14 * len(busy)), layout="constrained")
        axes = figure.subplots()
        table = 100 * np.stack([shares[link] for link in busy])
        image = axes.imshow(
            np.ma.masked_less(table, 100 * IDLE),
            aspect="auto", interpolation="nearest", cmap="magma_r", vmin=0, vmax=float(table.max()),
            extent=(0.0, trace.end_s * factor, len(busy) - 0.5, -0.5),
        )  # fmt: skip
        axes.set_yticks(range(len(busy)), [f"{link}  {100 * shares[link].mean():.2g} %" for link in busy])
        axes.tick_params(axis="y", length=0, labelsize=6)
        for edge in ("left", "bottom"):
            axes.spines[edge].set_visible(False)
        axes.set_xlabel(f"time ({unit})")
        of = "" if busy_of == len(busy) else f"; the {len(busy)} busiest of {busy_of}"
        how = f"use of links, each transfer's bytes spread evenly; beside each its mean use{of}"
        title = f"{trace.facts.get('title', 'run')}: {how}"
        axes.set_title(fill(title, 130), loc="left", fontsize=8)
        figure.colorbar(image, ax=axes, label="% of capacity", fraction=0.03, pad=0.01)
        figure.savefig(path, dpi=200, metadata={"Software": None})
    return path


def completion(trace: Trace, path: Path) -> Path | None:
    """Draw `path` (PNG): how long transfers took, as a distribution, and against their size; None without transfers."""
    messages = [message for message in trace.messages if message.nbytes]
    if not messages:
        return None
    seconds = np.asarray([message.end_s - message.start_s for message in messages])
    factor, unit = time_unit([float(seconds.max())])
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(INCHES, 2.7), layout="constrained")
        left, right = figure.subplots(1, 2)
        for name, mask, colour in _kinds(messages, trace.hosts):
            if mask.any():
                ordered = np.sort(seconds[mask]) * factor
                share = np.arange(1, len(ordered) + 1) / len(ordered)
                left.step(ordered, 100 * share, where="post", color=colour, label=f"{name}, {len(ordered):,} transfers")
                sizes = np.asarray([message.nbytes for message in messages])[mask]
                right.plot(sizes, seconds[mask] * factor, ".", markersize=2.5, alpha=0.5, color=colour)
        left.set_xlabel(f"time from start to last byte ({unit})")
        left.set_ylabel("transfers done (%)")
        left.set_ylim(0, 102)
        left.set_xlim(left=0)
        left.legend(loc="best", frameon=False)
        right.set_xlabel("size of a transfer")
        right.set_ylabel(f"time ({unit})")
        right.set_ylim(bottom=0)
        if max(m.nbytes for m in messages) > WIDE * min(m.nbytes for m in messages):
            right.set_xscale("log")
        right.xaxis.set_major_formatter(lambda value, _: byte_text(value))
        right.tick_params(axis="x", labelrotation=20)
        figure.suptitle(fill(f"{trace.facts.get('title', 'run')}: transfers", 110), x=0.01, ha="left", fontsize=8)
        figure.savefig(path, dpi=200, metadata={"Software": None})
    return path


def _kinds(messages: Sequence[Message], hosts: Sequence[int]) -> list[tuple[str, np.ndarray, str]]:
    """Transfers inside a host and between hosts."""
    same = np.asarray([hosts[message.source] == hosts[message.to] for message in messages])
    return [("inside a host", same, "#0072B2"), ("between hosts", ~same, "#D55E00")]
