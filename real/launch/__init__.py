"""Starts ranks on this machine, in a lab, or by Slurm; watches them, restarts them after failures, ends all of them."""

from real.launch._execute import CheckpointSettings, open_driver, run_rank, torchrun_config
from real.launch._launcher import launch
from real.launch._slurm import SlurmJob, script
from real.launch._timeline import measured_timeline
from real.rank.health import ERROR_PREFIX

__all__ = [
    "CheckpointSettings",
    "ERROR_PREFIX",
    "SlurmJob",
    "launch",
    "open_driver",
    "run_rank",
    "script",
    "torchrun_config",
    "measured_timeline",
]
