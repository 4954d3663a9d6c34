"""Recordings that are made once and kept, and under which key one is found again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from harness.config import RunConfig
from harness.machine import used_code
from harness.running import Progress, data_inputs, plan_of, prepare
from harness.running.results import environment
from sims.cluster import Placement
from sims.device import load_device
from sims.replay import RECORDING_FORMAT, Recording, load_recording, on_device, record_placed

WHERE = ("mode", "cluster", "timeout", "startup_timeout", "prepare_timeout", "backend", "device")
"""Settings that a recording does not depend on."""


def kept_recording(
    config: RunConfig,
    placement: Placement,
    folder: Path,
    progress: Callable[[], AbstractContextManager[Progress | None]],
    *,
    again: bool = False,
) -> Recording:
    """The config's recording on ranks with devices of the same kinds, from the folder or made now.

    Args:
        progress: opens what is told of every epoch; called only where a recording is made.
        again: makes it even if it is there.
    """
    config = on_device(config, placement)
    decides = {key: value for key, value in config.flat().items() if key not in WHERE}
    plan = plan_of(config)
    # a rank's memory holds copies for its host on CPUs, where they are the tensors themselves, and not on GPUs
    kinds = {name: load_device(name).kind for name in dict.fromkeys(placement.profile_of)}
    devices = [kinds[name] for name in placement.profile_of]
    data = [*prepare(config, plan.cut).made_of(), data_inputs(plan), used_code(record_placed), devices]
    stamp = [RECORDING_FORMAT, environment()["versions"], decides, *data]
    path = folder / f"{hashlib.sha256(json.dumps(stamp, sort_keys=True).encode()).hexdigest()}.rec"
    if path.exists() and not again:
        return load_recording(path)
    with progress() as told:
        made = record_placed(plan, placement, told)
    made.save(path)
    return made
