"""What is installed from a source archive is all of it: data files, the command, and runs far from any checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = ("harness", "sims", "real", "reports")
FILES = (*PACKAGES, "pyproject.toml", "README.md", "LICENSE")
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def clean_environment() -> dict[str, str]:
    """Nothing of this checkout, of the user's settings, or of what is compiled (tiny graphs need none of it)."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HALOSCOPE", "PYTHON", "VIRTUAL_ENV"))}
    return {**kept, "NUMBA_DISABLE_JIT": "1"}


def built(what: str, place: Path, into: Path) -> Path:
    """A source archive or a wheel of the project at `place`, in `into`; needs no network."""
    command = [sys.executable, "-c", BUILD, f"build_{what}", str(into)]
    done = subprocess.run(command, cwd=place, env=clean_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return into / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is made from the source archive, of a copy: builds leave files beside what they build."""
    place = tmp_path_factory.mktemp("built")
    ignored = shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc")
    for name in FILES:
        at = REPOSITORY / name
        shutil.copytree(at, place / "copy" / name, ignore=ignored) if at.is_dir() else shutil.copy(at, place / "copy")
    archive = built("sdist", place / "copy", place)
    with tarfile.open(archive) as packed:
        safe: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since 3.11.4
        packed.extractall(place, **safe)
    return built("wheel", place / archive.name.removesuffix(".tar.gz"), place)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of an environment that has the wheel, and this one's other packages."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(place), "install", "--no-deps", "--no-index", "--quiet"]
    done = subprocess.run([*pip, "--no-compile", str(wheel)], env=clean_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    library = next(place.glob("lib/python*/site-packages"))
    others = [path for path in sys.path if path.endswith("site-packages")]
    (library / "others.pth").write_text("\n".join(others))
    return place / "bin"


def test_every_file_is_packed(wheel: Path) -> None:
    """Modules and data of the four packages, but what compiling leaves."""
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    left = {".pyc", ".nbi", ".nbc"}
    ours = {
        path.relative_to(REPOSITORY).as_posix()
        for package in PACKAGES
        for path in (REPOSITORY / package).rglob("*")
        if path.is_file() and path.suffix not in left and not path.name.startswith(".")
    }
    assert not sorted(ours - names), "package-data in pyproject.toml does not name them"
    extra = {name for name in names - ours if ".dist-info/" not in name}
    assert not extra
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert wheel.name.startswith(f"haloscope-{version}-") and tuple(map(int, version.split("."))) > (0, 1, 0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--version", "haloscope 0."),
        ("methods", "sylvie-s"),
        ("clusters show ethernet-10g", "nic"),
        ("report list", "bns-gcn/table1"),
        ("run --dataset synthetic:nodes=80,features=8 --epochs 1 --parts 2 --partitioner hash", "result: runs/"),
    ],
)
def test_commands_run_without_the_checkout(installed: Path, words: str, says: str, tmp_path: Path) -> None:
    environment = {**clean_environment(), "HALOSCOPE_CACHE": str(tmp_path / "cache")}
    command = [str(installed / "haloscope"), *words.split()]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout


def test_it_is_the_installed_code_that_runs(installed: Path, tmp_path: Path) -> None:
    probe = "import harness, sims, real, reports; print(*(m.__file__ for m in (harness, sims, real, reports)))"
    done = subprocess.run(
        [str(installed / "python"), "-c", probe], cwd=tmp_path, env=clean_environment(), capture_output=True, text=True
    )
    assert done.stderr == "" and str(REPOSITORY) not in done.stdout
    assert all(str(installed.parent) in path for path in done.stdout.split())
