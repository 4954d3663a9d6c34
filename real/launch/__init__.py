"""Starts ranks here, in a lab, by Slurm or by Kubernetes; watches them, restarts them, ends all of them."""

from real.launch._execute import CheckpointSettings, open_driver, run_rank, torchrun_config
from real.launch._fork_server import serve
from real.launch._job import ClusterJob
from real.launch._kept_records import KeptRecords
from real.launch._kubernetes import KubernetesJob, manifest
from real.launch._launcher import launch
from real.launch._slurm import SlurmJob, script
from real.launch._timeline import measured_timeline
from real.rank.health import ERROR_PREFIX

__all__ = [
    "CheckpointSettings",
    "ERROR_PREFIX",
    "ClusterJob",
    "KeptRecords",
    "KubernetesJob",
    "SlurmJob",
    "launch",
    "manifest",
    "open_driver",
    "run_rank",
    "script",
    "serve",
    "torchrun_config",
    "measured_timeline",
]
