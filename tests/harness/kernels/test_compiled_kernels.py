"""Every Triton kernel compiles to the machine code of a GPU, here, where there may be none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.support.kernel_devices import VARIABLE


@pytest.mark.skipif(find_spec("triton") is None, reason="no Triton on this machine")
def test_every_kernel_compiles_for_a_gpu(tmp_path: Path) -> None:
    folder = REPOSITORY / "harness" / "kernels"
    expected = {
        f"harness.kernels.{file.stem}.{name}"
        for file in folder.glob("*_cuda.py")
        for name in re.findall(r"^def (_\w*kernel)\(", file.read_text(), re.MULTILINE)
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.compiled_kernels"],
        cwd=REPOSITORY, env={**os.environ, VARIABLE: "0", "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == expected
