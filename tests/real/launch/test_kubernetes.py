"""The Kubernetes manifest: its fields as the API knows them, and the execution of its pods' command on loopback."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from lightkube.models.batch_v1 import Job as ApiJob
from lightkube.models.core_v1 import Service as ApiService

from harness import cli
from harness.errors import InputError
from harness.running import results
from real.launch import KubernetesJob, manifest
from real.launch._kubernetes import literal

JOB = KubernetesJob(arguments=["--epochs", "3"], nodes=2, gpus_per_node=4, image="reg.example/halo:1", claim="data")
FLAGS = "--dataset synthetic:nodes=90,degree=6,classes=3,features=8 --threads 1 --quiet --out runs"
PLACES = ["--image", "reg.example/halo:1", "--claim", "data"]


def documents(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Service and Job of a manifest."""
    service, job = yaml.safe_load_all(text)
    return service, job


def container(text: str) -> dict[str, Any]:
    [found] = documents(text)[1]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def unknown(model: Any, content: dict[str, Any]) -> str:
    """The content that the API's own types do not have, as a difference in words; empty where there is none."""
    known = model.from_dict(content, lazy=False).to_dict()
    return "" if known == content else f"{content} has more than {known}"


def expanded(command: str, environment: dict[str, str]) -> str:
    """A command as Kubernetes starts it: `$(NAME)` is a variable's value if there is one, `$$` is `$`."""

    def one(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return environment.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", one, command)


def written(tmp_path: Path, *words: str) -> str:
    """The output of `haloscope launch kubernetes`."""
    out = tmp_path / "job.yaml"
    assert cli.main(["launch", "kubernetes", "--out", str(out), *PLACES, *words]) == 0
    return out.read_text()


def test_torchrun_waits_for_checkpoints_nearly_as_long_as_the_cluster() -> None:
    pod = documents(manifest(JOB))[1]["spec"]["template"]["spec"]
    waits = {row["name"]: row.get("value") for row in pod["containers"][0]["env"]}["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"]
    assert 60 < int(waits) < pod["terminationGracePeriodSeconds"]


EVERYTHING = replace(JOB, memory="64Gi", cpus_per_node=48, namespace="ml", queue="gpus", interface="eth0", restarts=2)


@pytest.mark.parametrize("job", [JOB, EVERYTHING, replace(JOB, gpus_per_node=0)], ids=["plain", "everything", "cpu"])
def test_every_field_is_one_of_the_api(job: KubernetesJob) -> None:
    service, asked = documents(manifest(job))
    assert unknown(ApiService, service) == "" and unknown(ApiJob, asked) == ""
    asked["spec"]["template"]["spec"]["restartPolice"] = "Never"
    assert unknown(ApiJob, asked) != "", "a misspelt field would not be found"


def test_pods_meet_at_the_first_one() -> None:
    service, job = documents(manifest(replace(JOB, name="train", port=29501)))
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2)
    assert service["spec"]["clusterIP"] == "None" and service["metadata"]["name"] == pod["subdomain"] == "train"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": "train"}
    [inside] = pod["containers"]
    assert {"name": "FIRST_POD", "value": "train-0.train"} in inside["env"]
    assert inside["ports"][0]["containerPort"] == service["spec"]["ports"][0]["port"] == 29501
    assert '--rdzv-endpoint="$FIRST_POD:29501"' in inside["command"][-1]
    mounted = {mount["name"]: mount["mountPath"] for mount in inside["volumeMounts"]}
    assert mounted == {"work": "/work", "shm": "/dev/shm"} == mounted and inside["workingDir"] == mounted["work"]
    assert {volume["name"] for volume in pod["volumes"]} == set(mounted)


def test_failures_and_disruptions() -> None:
    spec = documents(manifest(replace(JOB, retries=5)))[1]["spec"]
    assert spec["template"]["spec"]["restartPolicy"] == "Never", "what a policy of failures needs"
    assert spec["backoffLimit"] == 5 * 2
    ignored, hopeless = spec["podFailurePolicy"]["rules"]
    assert (ignored["action"], ignored["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")
    assert hopeless["onExitCodes"]["containerName"] == container(manifest(JOB))["name"]


def test_resources() -> None:
    asked = container(manifest(EVERYTHING))["resources"]
    assert asked == {
        "requests": {"cpu": "48", "memory": "64Gi", "nvidia.com/gpu": "4"},
        "limits": {"memory": "64Gi", "nvidia.com/gpu": "4"},
    }
    job = documents(manifest(EVERYTHING))[1]
    assert job["metadata"]["namespace"] == "ml" and job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    plain = manifest(replace(JOB, gpus_per_node=0))
    for word in ("resources:", "namespace", "kueue", "IFNAME", "nvidia"):
        assert word not in plain, "what was not asked for"


@given(st.lists(st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), min_size=1), max_size=4))
def test_any_words_reach_the_ranks(words: list[str]) -> None:
    """Through YAML, Kubernetes' variables and the shell."""
    try:
        text = manifest(replace(JOB, arguments=words))
    except InputError as error:
        assert "control characters" in str(error)
        return
    shell = expanded(container(text)["command"][-1], {"FIRST_POD": "wrong"})
    last = shell.split("-m real", 1)[1]
    done = subprocess.run(["sh", "-c", f"printf '%s\\n' {last}"], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == (words or [""])


def test_variables_of_kubernetes_stay_text() -> None:
    for text in ("$(A)", "$$", "$$(A)", "$A", "$", "$$$(A) $(", "$(A)$(A)"):
        assert expanded(literal(text), {"A": "wrong"}) == text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"nodes": 0}, "--nodes must be at least 1"),
        ({"image": ""}, "--image is needed"),
        ({"image": "a b"}, "no container image"),
        ({"claim": ""}, "--claim is needed"),
        ({"claim": "My_Claim"}, "--claim 'My_Claim'"),
        ({"name": "Train"}, "lower-case"),
        ({"name": "a" * 51}, "50 characters at most"),
        ({"namespace": "a\nb"}, "--namespace"),
        ({"memory": "64 GB"}, "write e.g. 64Gi"),
        ({"retries": -1}, "--retries"),
        ({"port": 80}, "--port must be from 1024"),
        ({"interface": "$(id)"}, "--interface .* is no name"),
        ({"arguments": ["a\nb"]}, "control characters"),
    ],
)
def test_what_kubernetes_would_not_take(change: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        replace(JOB, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["kubernetes", *PLACES, "--time", "02:00:00"], "--time is for launch slurm"),
        (["slurm", "--image", "a"], "--image is for launch kubernetes"),
        (["kubernetes", *PLACES, "--", "--parts", "3"], "3 parts, but 1 nodes x 1 are 1 ranks"),
        (["kubernetes", *PLACES, "--clam", "x"], "did you mean --claim"),
        (["kubernets"], "kubernetes"),
    ],
)
def test_errors_appear_now_and_not_on_the_cluster(
    flags: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["launch", *flags]) == 2
    said = capsys.readouterr()
    assert says in said.err and said.out == ""


def test_the_same_job_is_the_same_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--nodes", "2", "--gpus-per-node", "4", "--", "--epochs", "2"]
    text = written(tmp_path, *words)
    assert f"submit it: kubectl apply -f {tmp_path}/job.yaml" in re.sub(r"\s+", " ", capsys.readouterr().err)
    assert cli.main(["launch", "kubernetes", *PLACES, *words]) == 0
    assert capsys.readouterr().out == text
    assert "--epochs 2 --parts 8 --device cuda --checkpoint checkpoints" in text


# -- on loopback, as the controller of Jobs would start them ----------------------------------------------------------


@contextmanager
def pods(text: str, folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """The processes of all pods, in `folder` instead of the volume; ended with the block."""
    job, inside = documents(text)[1], container(text)
    fixed = {each["name"]: each["value"] for each in inside["env"] if "value" in each}
    here = {
        **os.environ, **fixed, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "POD_IP": "127.0.0.1",
        "FIRST_POD": "127.0.0.1", "HALOSCOPE_CACHE": str(folder / "cache"),
    }  # fmt: skip
    command = [expanded(word, fixed) for word in inside["command"]]
    started = [
        subprocess.Popen(
            command, cwd=folder, env={**here, "JOB_COMPLETION_INDEX": str(index)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )
        for index in range(job["spec"]["completions"])
    ]  # fmt: skip
    try:
        yield started
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=60)


def free_port() -> int:
    """A port of loopback that nothing listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def losses(folder: Path) -> list[float]:
    """The losses of the one result in a folder."""
    [file] = folder.glob("*.json")
    record = results.load_result(file)
    assert (record["state"], record["config"]["mode"], record["config"]["parts"]) == ("done", "real", 2)
    return [epoch["loss"] for epoch in record["epochs"]]


@pytest.mark.processes
def test_pods_train_and_those_made_anew_go_on(tmp_path: Path) -> None:
    """One pod's node is drained, and all stop: made anew, they end with the losses of a run that never stopped."""
    epochs = ["--epochs", "60", "--checkpoint-every", "2"]
    asked = ["--nodes", "2", "--port", str(free_port()), "--", *FLAGS.split(), *epochs]
    text = written(tmp_path, *asked)
    with pods(text, tmp_path) as started:
        deadline = time.monotonic() + 120
        while not list((tmp_path / "checkpoints").glob("*/*")):
            assert time.monotonic() < deadline and all(process.poll() is None for process in started)
            time.sleep(0.02)
        started[1].terminate()  # a drained node: torchrun passes SIGTERM on to its ranks
        assert all(process.wait(timeout=120) != 0 for process in started)
    [stopped] = (tmp_path / "runs").glob("*.json")
    assert results.load_result(stopped)["state"] == "interrupted"
    with pods(text, tmp_path) as again:
        assert [process.wait(timeout=240) for process in again] == [0, 0]
    plain = [*FLAGS.replace("--out runs", f"--out {tmp_path}/plain").split(), "--epochs", "60", "--mode", "real"]
    assert cli.main(["run", *plain, "--parts", "2"]) == 0
    assert losses(tmp_path / "runs") == losses(tmp_path / "plain")
