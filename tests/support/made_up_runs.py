"""Replacements for simulated and trained runs in tests of reports: numbers computed from the method's text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from harness.config import RunConfig
from reports.core.context import Context
from reports.core.predict import Fit, Seconds, Testbed
from reports.core.table import ENOUGH
from reports.core.train import Trained

SENT = {
    "vanilla": 1.0, "p=0.1": 0.1, "p=0.01": 0.01, "p=0": 0.0, "bits=1": 0.04, "bits=2": 0.07, "bits=4": 0.14,
    "bits=8": 0.27, "sampling=bes": 0.4, "sampling=dropedge": 0.9,
}  # fmt: skip
SCORE = {"p=0": 60.0, "scope=all": 50.0, "staleness=5": 68.0, "staleness=2": 69.0, "sylvie-a": 67.0}
TOTAL = 3.0  # seconds of a vanilla epoch before a fit
UNEVEN = 0.002  # seconds by which each of two ranks computes for less or longer than the mean


def sent(method: str) -> float:
    """The share of rows that a method sends: by the last of its options that SENT has."""
    options = method.split(":")
    return next((share for option, share in reversed(SENT.items()) if option in options), 0.5)


def seconds(
    method: str, fit: Fit | None = None, *, total: float = TOTAL, reduce: float = 0.02, parts: int = 8,
    crosses: bool = True,
) -> Seconds:  # fmt: skip
    """Communication in proportion to the share that is sent, and a fixed time for messages; little compute, less in
    smaller parts; a fixed all-reduce. Between hosts (`crosses`) links are slower than processes, within one not. Of two
    ranks, one waits for the other (`UNEVEN`)."""
    fit = fit or Fit()
    hidden = 0.5 if method.startswith("sylvie-a") else 1.0
    messages = 0.001 * fit.messages if sent(method) else 0.0
    rate = fit.bandwidth if crosses or fit.process is None else fit.process
    comm, compute = (
        hidden * total * sent(method) / rate + messages,
        0.4 / max(parts, 4) * fit.compute + fit.host_s(max(parts, 1)),
    )
    codec = 0.001 if "bits" in method else 0.0
    whole = Seconds(comm + compute + codec + reduce, comm, compute + codec, codec, 0.0, reduce)
    ranks = tuple(replace(whole, comm=comm - late, compute=whole.compute + late) for late in (-UNEVEN, UNEVEN))
    return replace(whole, ranks=ranks)


def trained(
    context: Context, graph: str, rows: Mapping[str, str | Mapping[str, Any]], *, parts: int, **options: Any
) -> Trained:
    """A curve per label that ends at the method's score."""
    scores, records = {}, {}
    for label, row in rows.items():
        text = row if isinstance(row, str) else str(row["method"])
        last = next((score for key, score in SCORE.items() if text.endswith(key) or key in text.split(":")), 70.0)
        scores[label] = (last, 0.0)
        epochs = [
            {"epoch": e, "test": last / 100 * (e + 1) / 4, "observed": {"kept nodes": sent(text)}} for e in range(4)
        ]
        summary = {"test_at_best_val": last / 100}
        one = {"run_id": f"{graph} {text} {options}", "epochs": epochs, "summary": summary}
        records[label] = [one] * ENOUGH
    return Trained(
        scores=scores, records=records, data=f"a toy stands in for {graph}", summary="toy", commands=(),
        where=f"a toy stands in for {graph}, {parts} parts", majority=30.0,
    )  # fmt: skip


@contextmanager
def quick(monkeypatch: pytest.MonkeyPatch, *modules: str) -> Iterator[None]:
    """Replace predictions and trainings of the named modules."""

    def all_seconds(self: Testbed, wanted: Sequence[Any], what: str = "", *, trial: bool = False) -> list[Seconds]:
        model = RunConfig.of(**self.model).model
        side_by_side = model.heads if model.hidden_heads == "concat" else 1
        total = TOTAL if model.name != "gat" else 0.2 * TOTAL * side_by_side * model.hidden / 256
        latency = re.search(r"latency=(\S+) us", self.cluster)
        reduce = 0.02 + (4e-4 * float(latency[1]) if latency else 0.0)
        crosses, parts = "hosts.count=1" not in self.cluster, self.parts
        return [seconds(m, fit, total=total, reduce=reduce, parts=parts, crosses=crosses) for m, fit, _ in wanted]

    def runs(
        self: Context, configs: Sequence[Mapping[str, Any]], what: str = "", shown: object = None
    ) -> list[dict[str, Any]]:
        made = []
        for config in configs:
            now = seconds(config["method"])
            parts = {"compute": now.compute, "codec": now.codec, "sample": 0.0, "halo": now.comm, "swap": 0.0}
            summary = {"seconds": {"epoch": now.epoch, "reduce": now.reduce, "wait": 0.0, **parts}}
            facts = {"memory": {"setup": False}}
            share = sent(config["method"])
            epochs = [{"peak_memory": [1000, 500 if share < 1 else 1100], "observed": {"kept nodes": share}}]
            made.append({"state": "done", "config": dict(config), "summary": summary, "facts": facts, "epochs": epochs})
        return made

    with monkeypatch.context() as patch:
        patch.setattr(Testbed, "all_seconds", all_seconds)
        patch.setattr(Context, "runs", runs)
        for module in modules:
            patch.setattr(f"reports.{module}.accuracies", trained)
        yield
