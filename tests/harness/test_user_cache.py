"""The cache folder, and numba's kernels where hosts may share the installation."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import harness
from harness import user_cache
from harness.user_cache import NUMBA_VARIABLE, file_system, keep_kernels_apart
from tests.conftest import REPOSITORY

MOUNTS = """\
22 1 252:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:30 / /home rw,relatime - nfs4 server:/home rw,vers=4.2
31 30 0:31 / /home/with\\040space rw - tmpfs tmpfs rw
32 22 0:32 / /scratch rw - tmpfs hidden rw
33 22 0:33 / /scratch rw - lustre mds@tcp:/scratch rw,localflock
a line that cannot be read
"""


@pytest.mark.parametrize(
    ("path", "system"),
    [
        ("/opt/haloscope/harness", "ext4"),
        ("/homes/me", "ext4"),
        ("/home", "nfs4"),
        ("/home/me/harness", "nfs4"),
        ("/home/with space/harness", "tmpfs"),
        ("/scratch/env", "lustre"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(path: str, system: str, tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    table.write_text(MOUNTS)
    assert file_system(Path(path), table) == system
    assert file_system(Path(path), tmp_path / "none") == ""


@pytest.mark.parametrize(
    ("system", "apart"),
    [("nfs4", True), ("lustre", True), ("fuse.sshfs", True), ("ext4", False), ("overlay", False), ("", False)],
)
def test_kernels_have_a_folder_per_processor_where_hosts_share_the_installation(
    system: str, apart: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path))
    monkeypatch.setattr(user_cache, "file_system", lambda _: system)
    found = list[str | None]()
    for processor in (b"one", b"another", b"one"):
        monkeypatch.setattr(user_cache, "instructions", lambda kind=processor: kind)
        environment = dict[str, str]()
        keep_kernels_apart(tmp_path, environment)
        found.append(environment.get(NUMBA_VARIABLE))
    if not apart:
        assert found == [None] * 3
        return
    assert found[0] == found[2] != found[1] and all(
        name and Path(name).parent == tmp_path / "kernels" for name in found
    )
    inherited = {NUMBA_VARIABLE: str(found[1])}
    keep_kernels_apart(tmp_path, inherited)
    assert inherited == {NUMBA_VARIABLE: found[0]}, "of a login node, say, that has queued this job"
    named = {NUMBA_VARIABLE: "mine"}
    keep_kernels_apart(tmp_path, named)
    assert named == {NUMBA_VARIABLE: "mine"}


def test_the_package_asks_for_it_when_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Path]()
    with monkeypatch.context() as patched:
        patched.setattr(user_cache, "keep_kernels_apart", asked.append)
        importlib.reload(harness)
    importlib.reload(harness)
    assert asked == [REPOSITORY / "harness" / "__init__.py"]


def test_it_is_asked_for_before_numba_reads_it(tmp_path: Path) -> None:
    """Nothing that is imported before sets numba's place, and numba keeps kernels where the variable says."""
    code = (
        "import sys\nimport harness.user_cache\nassert not {'numba', 'numpy', 'torch'} & set(sys.modules)\n"
        "import numpy as np\nfrom harness.machine._checksum import checksum\nchecksum(np.ones(3))"
    )
    environment = {**os.environ, NUMBA_VARIABLE: str(tmp_path), "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)
    assert [path.name.partition(".")[0] for path in tmp_path.rglob("*.nbi")] == ["_checksum"]
