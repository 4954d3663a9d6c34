"""What ranks choose by the kind of their device, said in the config, so that runs, recordings and replays agree."""

from __future__ import annotations

from harness.config import RunConfig
from sims.cluster import Placement
from sims.device import load_device


def on_device(config: RunConfig, placement: Placement) -> RunConfig:
    """The config of ranks that are placed there: attention `auto` is one operator on GPUs, as on real ones.

    On CPUs it stays `auto`, which is composed there. A recording keeps what was chosen where it was made, also when it
    is timed on devices of another kind.
    """
    attends = config.model.name == "gat" and config.model.attention == "auto"
    if attends and load_device(placement.cluster.device).kind == "gpu":
        return config.changed(attention="fused")
    return config
