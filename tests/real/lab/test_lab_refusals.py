"""Messages if no lab can be built, or if a run does not fit its lab. Needs no root."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from harness import cli
from harness.config import RunConfig
from harness.errors import InputError
from harness.running import open_run
from real.lab import _namespaces as namespaces


def config(**changes: object) -> RunConfig:
    return RunConfig.of(mode="real", cluster="lab:3x1gbit", **changes)  # type: ignore[arg-type]


def test_without_root_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: f"/sbin/{tool}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert cli.main(["lab", "lab:3x1gbit"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "a lab needs root" in said
    with pytest.raises(InputError, match="a lab needs root"):
        open_run(config(parts=3)).driver.check()


def test_without_tools(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: None)
    with pytest.raises(InputError, match=r"a lab needs ip and tc, .*iproute2"):
        namespaces.require()
    assert cli.main(["lab", "--check"]) == 1
    assert capsys.readouterr().out.count("MISSING") == 3


def test_on_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(InputError, match="Linux network namespaces"):
        namespaces.require()


def test_a_run_must_fit_its_lab() -> None:
    with pytest.raises(InputError, match=r"lab:3x1gbit takes 3 ranks \(3 hosts x 1\), not 4"):
        open_run(config(parts=4)).driver.check()
    with pytest.raises(InputError, match="no link"):
        open_run(RunConfig.of(mode="real", cluster="lab:3x", parts=3)).driver.check()


def test_a_lab_has_no_gpu_per_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    with pytest.raises(InputError, match="share this machine's GPUs"):
        open_run(config(parts=3, device="cuda")).driver.check()


def test_which_lab(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lab"]) == 2
    assert "name a lab" in capsys.readouterr().err
    assert cli.main(["lab", "3x1gbit"]) == 2
    assert "is no lab" in capsys.readouterr().err


def test_what_a_tool_complains_about_is_passed_on() -> None:
    with pytest.raises(InputError, match="`sh -c echo first >&2; exit 3` failed: first"):
        namespaces.tool("sh", "-c", "echo first >&2; exit 3")
    with pytest.raises(InputError, match="no network namespace hs0-none"), namespaces.inside("hs0-none"):
        raise AssertionError


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's list of processes")
def test_a_dead_maker_is_known_although_its_number_is_in_use_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a crash with reused pids: the maker had this process's pid, and another start time."""
    ours = namespaces.name_of("switch")
    reused, gone = f"hs{os.getpid()}-1f-switch", f"hs{2**22 + 1}-1f-0"
    for name in (ours, reused, gone, "hs-switch", f"hs{2**22 + 1}x-1f-0", "blue"):
        (tmp_path / name).touch()
    monkeypatch.setattr(namespaces, "FOLDER", tmp_path)
    assert namespaces.stale() == sorted([reused, gone])
    assert ours != reused and len(ours) <= 255
