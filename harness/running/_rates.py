"""Ratios that a run on real tensors observed (shares of rows sent, bits chosen), as input of shapes-only runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import msgspec

from harness.errors import InputError
from harness.running.results import load_result


class _Epoch(msgspec.Struct):
    """Of an epoch's record, what is used here."""

    observed: dict[str, Annotated[float, msgspec.Meta(ge=0)]] | None = None


@dataclass(frozen=True)
class Rates:
    """Recorded ratios by name, and the run that they come from."""

    values: Mapping[str, float]
    run: Mapping[str, Any]

    def facts(self) -> dict[str, Any]:
        """The facts in the result of a run that used these rates."""
        return {"rates": {**self.run, "values": dict(self.values)}}


def load_rates(path: Path, method: str) -> Rates:
    """The ratios of a result file: means over its epochs after the first, which includes set-up.

    `method` is the method text of the run that uses them.

    Raises:
        InputError: no result file, another method, or a run that observed nothing.
    """
    record = load_result(path)
    config = record["config"]
    ran, wanted = (text.partition(":")[0] for text in (config["method"], method))
    if ran != wanted:
        raise InputError(f"{path} is a run of {ran}, whose rates say nothing of {wanted}")
    try:
        epochs = [found.observed or {} for found in msgspec.convert(record["epochs"], list[_Epoch])]
    except msgspec.ValidationError as error:
        raise InputError(f"result {path} is damaged: {error}") from None
    steady = epochs[1:] or epochs
    names = sorted({name for observed in steady for name in observed})
    if not names:
        raise InputError(f"{path} has no observed ratios: {ran} needs none, or the run had no finished epoch")
    values = {name: fmean(seen[name] for seen in steady if name in seen) for name in names}
    run = {
        "run_id": record["run_id"],
        "method": config["method"],
        "dataset": config["dataset"],
        "parts": config["parts"],
        "epochs": len(epochs),
    }
    return Rates(values, run)
