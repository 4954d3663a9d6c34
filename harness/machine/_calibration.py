"""Where the calibration of this machine is kept, so that every run can be modelled on it by the name `here`."""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path

from harness.machine._cache import cache_root
from harness.machine._cores import core_count, processor
from harness.machine._source import code_version

HERE = "here"
"""The name of the cluster that this machine is, as it was measured."""

_MEASURES = ("real/measure", "real/rank", "sims/study")
"""The sources that make a calibration: what they measured before they were changed is not what they measure now."""


def calibration_folder() -> Path:
    """The folder of this machine's calibration in the cache: by host, processor, usable cores and the code that
    measures. It need not exist."""
    stamp = json.dumps([platform.node(), processor(), core_count(), code_version(*_MEASURES)])
    return cache_root() / "machine" / hashlib.sha256(stamp.encode()).hexdigest()[:16]
