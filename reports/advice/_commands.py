"""The command lines with which an advice is followed: predicted again, on this machine, by torchrun, by Slurm."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from reports.advice._candidates import Candidate
from reports.core.context import Context
from sims.cluster import Cluster, place
from sims.device import load_device


def commands(candidate: Candidate, cluster: Cluster) -> dict[str, str]:
    """What to type, by what it does; flags at their defaults are left out."""
    config = candidate.config.changed(eval_every=10)
    predicted = Context(Path()).text_of(config.flat())
    real = config.changed(mode="real", cluster="local")
    if load_device(cluster.device).kind == "gpu":
        real = real.changed(device="cuda")
    flags = Context(Path()).text_of(real.flat()).removeprefix("haloscope run").strip()
    words = flags.replace("--mode real", "").replace("  ", " ").strip()
    if candidate.parts == 1:
        return {"predict": predicted, "run": f"haloscope run {flags}"}
    hosts = np.unique(place(cluster, candidate.parts).ranks_on_host)
    nodes, each = int(len(place(cluster, candidate.parts).ranks_on_host)), int(hosts.max())
    where = f"--nnodes {nodes} --nproc-per-node {each}"
    if nodes > 1:
        where += " --rdzv-backend c10d --rdzv-endpoint FIRST_HOST:29500"
    devices = f"--gpus-per-node {each}" if real.run.device == "cuda" else f"--ranks-per-node {each}"
    without = words.replace(f"--parts {candidate.parts}", "").replace("--device cuda", "").replace("  ", " ").strip()
    return {
        "predict": predicted,
        "run": f"haloscope run {flags}",
        "torchrun": f"torchrun {where} -m real {words}",
        "slurm": f"haloscope launch slurm --nodes {nodes} {devices} --out job.sh -- {without}",
    }
