"""The calibration of this machine that is kept, so that every run can be modelled on it by the name `here`."""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path
from typing import Literal

import msgspec

from harness.machine._code import listed_code
from harness.machine._cores import core_count, processor
from harness.machine._files import kept_json
from harness.user_cache import cache_root

HERE = "here"
"""The name of the cluster that this machine is, as it was measured."""

Depth = Literal["brief", "quick", "full"]
"""How much of the machine a calibration measures."""

FOREIGN = 0.15
"""Share of the machine's cores used by other programs above which what is measured beside them is disturbed."""

_MEASURES = (
    "real/measure", "real/rank", "harness/kernels",
    "sims/device/_costs.py", "sims/device/_operators.py", "sims/units.py",
    *(f"sims/study/{name}.py" for name in ("calibrated", "real_runs", "_profiling", "_gpu_profiling")),
)  # fmt: skip
"""The sources that make a calibration: what measures, what is timed, and what fits costs to the times."""


class KeptCalibration(msgspec.Struct, frozen=True):
    """About the calibration that is kept for this machine.

    Attributes:
        depth, date: how much was measured, and when.
        foreign_load: share of the machine's cores that other programs used meanwhile.
        reference: seconds of the reference work (`harness.running.drift`) then: how fast the machine was.
    """

    depth: Depth
    date: str
    foreign_load: float
    reference: float

    @property
    def disturbed(self) -> str:
        """What disturbed it, for people; empty where nothing did."""
        if self.foreign_load <= FOREIGN:
            return ""
        return f"other programs used {self.foreign_load:.0%} of the cores while this machine was measured"

    def text(self) -> str:
        """For people."""
        return f"{self.depth} calibration of {self.date}"


def calibration_folder() -> Path:
    """The folder of this machine's calibration in the cache: by host, processor, usable cores and the code that
    measures. It need not exist."""
    stamp = json.dumps([platform.node(), processor(), core_count(), listed_code(*_MEASURES)])
    return cache_root() / "machine" / hashlib.sha256(stamp.encode()).hexdigest()[:16]


def kept_calibration() -> KeptCalibration | None:
    """About this machine's calibration, or None where none is kept."""
    folder = calibration_folder()
    found = kept_json(folder / "about.json", KeptCalibration)
    return found if found is not None and (folder / "cluster.toml").exists() else None
