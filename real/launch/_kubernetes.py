"""The manifest that runs `real` on Kubernetes: an indexed Job with a pod per node, and a headless Service.

The Service gives the first pod a name in the cluster's DNS, at which the torchruns of all pods meet. Pods are not
restarted in place: one that failed is made anew with the same index. A rank that is lost ends the run on all pods, so
that all of them are made anew, meet again, and go on from the last checkpoint in the volume that they share. A pod that
the cluster itself ends (a drained node, a preemption) gets SIGTERM, and does not count as a failure.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any

import yaml

from harness.errors import InputError
from real.launch._job import SAVING_S, SAVING_VARIABLE, ClusterJob

FOLDER = "/work"
"""Where the volume is mounted: the working folder of the ranks."""

GRACE_S = SAVING_S + 10
"""Seconds from SIGTERM to the end of a pod."""

MEETING_S = 1800
"""Seconds that pods wait for one another: images are pulled meanwhile, and nodes may have to be added."""

HOPELESS = [126, 127]
"""Exit codes of a container that has no torchrun: trying again is of no use."""

_LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@-]*")
_MEMORY = re.compile(r"[1-9]\d*(\.\d+)?([kMGTPE]i?|Ki)?")

LONGEST_NAME = 50
"""Characters of a job's name: its pods' names, with an index and a suffix behind it, may have 63."""


@dataclass(frozen=True, kw_only=True)
class KubernetesJob(ClusterJob):
    """The resources requested from Kubernetes, and what each rank runs.

    Attributes:
        image: container image with haloscope and torchrun on its path.
        claim: persistent volume claim (ReadWriteMany) that all pods mount as their working folder.
        memory: memory of each pod, e.g. 64Gi; empty leaves it to the cluster.
        namespace: empty for the one of kubectl's context.
        queue: local queue of Kueue, which starts all pods at once or none; empty for none.
        retries: how often all pods may be made anew after failures.
        port: port of the first pod at which the torchruns meet.
    """

    image: str
    claim: str
    memory: str = ""
    namespace: str = ""
    queue: str = ""
    retries: int = 3
    port: int = 29400

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.image:
            raise InputError("--image is needed: a container image with haloscope and torchrun")
        if not self.claim:
            raise InputError("--claim is needed: a volume claim (ReadWriteMany) with graphs, results and checkpoints")
        if not _IMAGE.fullmatch(self.image):
            raise InputError(f"--image {self.image!r} is no container image")
        if not _LABEL.fullmatch(self.name) or len(self.name) > LONGEST_NAME:
            raise InputError(
                f"--name {self.name!r}: Kubernetes takes lower-case letters, digits and -, a letter first, "
                f"{LONGEST_NAME} characters at most"
            )
        for flag, word in {"claim": self.claim, "namespace": self.namespace, "queue": self.queue}.items():
            if word and (not _SUBDOMAIN.fullmatch(word) or len(word) > 253):
                raise InputError(f"--{flag} {word!r}: Kubernetes takes lower-case letters, digits, - and .")
        if self.memory and not _MEMORY.fullmatch(self.memory):
            raise InputError(f"--memory {self.memory!r} is no amount of memory; write e.g. 64Gi")
        if self.retries < 0:
            raise InputError("--retries must not be negative")
        if not 1024 <= self.port <= 65535:
            raise InputError("--port must be from 1024 to 65535")

    @property
    def meeting_place(self) -> str:
        """Name of the first pod in the cluster's DNS."""
        return f"{self.name}-0.{self.name}"


def manifest(job: KubernetesJob) -> str:
    """The text of the manifest, for `kubectl apply`: YAML, the same for the same job."""
    head = f"# {job.ranks} ranks in {job.nodes} pods. Graphs, results and checkpoints are in the claim {job.claim}.\n"
    documents: str = yaml.dump_all([_service(job), _job(job)], Dumper=_Dumper, sort_keys=False, width=120)
    return head + documents


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as such."""


def _lines(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _lines)


def _metadata(job: KubernetesJob, **more: Any) -> dict[str, Any]:
    namespace = {"namespace": job.namespace} if job.namespace else {}
    return {"name": job.name, **namespace, "labels": {"app.kubernetes.io/name": "haloscope", **more}}


def _service(job: KubernetesJob) -> dict[str, Any]:
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,  # pods meet before they are ready
        "selector": {"batch.kubernetes.io/job-name": job.name},
        "ports": [{"name": "rendezvous", "port": job.port}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(job), "spec": spec}


def _job(job: KubernetesJob) -> dict[str, Any]:
    queue = {"kueue.x-k8s.io/queue-name": job.queue} if job.queue else {}
    spec = {
        "completionMode": "Indexed",
        "completions": job.nodes,
        "parallelism": job.nodes,
        "backoffLimit": job.retries * job.nodes,  # pods: all of them fail when one does
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": "ranks", "operator": "In", "values": HOPELESS},
                },
            ]
        },
        "template": {
            "metadata": {"labels": {"app.kubernetes.io/name": "haloscope"}},
            "spec": _pod(job),
        },
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(job, **queue), "spec": spec}


def _pod(job: KubernetesJob) -> dict[str, Any]:
    apart = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"batch.kubernetes.io/job-name": job.name}},
    }
    return {
        "restartPolicy": "Never",
        "subdomain": job.name,  # names of pods in DNS: NAME-INDEX.NAME
        "terminationGracePeriodSeconds": GRACE_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "topologySpreadConstraints": [apart],
        "containers": [_container(job)],
        "volumes": [
            {"name": "work", "persistentVolumeClaim": {"claimName": job.claim}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},  # the default 64 MB are too few for torch and NCCL
        ],
    }


def _container(job: KubernetesJob) -> dict[str, Any]:
    requests = {"cpu": str(job.cpus_per_node)} if job.cpus_per_node else {}
    limits = {}
    if job.memory:
        requests["memory"] = limits["memory"] = job.memory
    if job.gpus_per_node:
        requests["nvidia.com/gpu"] = limits["nvidia.com/gpu"] = str(job.gpus_per_node)
    resources = {name: found for name, found in {"requests": requests, "limits": limits}.items() if found}
    more = {"resources": resources} if resources else {}
    return {
        "name": "ranks",
        "image": job.image,
        "workingDir": FOLDER,
        "command": ["/bin/sh", "-c", literal(_script(job))],
        "env": _environment(job),
        "ports": [{"name": "rendezvous", "containerPort": job.port}],
        **more,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "work", "mountPath": FOLDER}, {"name": "shm", "mountPath": "/dev/shm"}],
    }


def _environment(job: KubernetesJob) -> list[dict[str, Any]]:
    fixed = {
        "FIRST_POD": job.meeting_place,
        "HALOSCOPE_DATA": f"{FOLDER}/data",
        "HALOSCOPE_CACHE": f"{FOLDER}/cache",
        SAVING_VARIABLE: str(SAVING_S),
    }
    if job.interface:
        fixed |= {"GLOO_SOCKET_IFNAME": job.interface, "NCCL_SOCKET_IFNAME": job.interface}
    found: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in fixed.items()]
    return [*found, {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]


def literal(text: str) -> str:
    """Text that Kubernetes turns into this text: it would put the variable NAME where a command has `$(NAME)`."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def _script(job: KubernetesJob) -> str:
    """What a pod runs. The first one hosts the store of the rendezvous, which the others wait for."""
    waits = f"join_timeout={MEETING_S},read_timeout={MEETING_S}"
    return "\n".join(
        [
            'if [ "$JOB_COMPLETION_INDEX" = 0 ]; then host=1; else host=0; fi',
            f"exec torchrun --nnodes={job.nodes} --nproc-per-node={job.per_node} --max-restarts={job.restarts} \\",
            f'  --rdzv-backend=c10d --rdzv-endpoint="$FIRST_POD:{job.port}" --rdzv-id={job.name} \\',
            f'  --rdzv-conf="is_host=$host,{waits}" --local-addr="$POD_IP" \\',
            f"  -m real {shlex.join(job.arguments)}",
            "",
        ]
    )
