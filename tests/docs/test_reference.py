"""The reference of the files: fresh, complete, and with examples that are read."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from docs.generate import reference
from harness.config import from_toml
from harness.running.sweep import read_sweep
from harness.workloads import load_workload
from sims.cluster import load_cluster, place
from sims.device import DeviceProfile, Work, load_device
from sims.records import path_of
from sims.transport._tuning import load_tuning

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_page_is_what_the_records_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main(["--check"]) == 0, "run make reference"


def test_a_stale_page_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reference, "PAGE", tmp_path / "reference.md")
    assert reference.main(["--check"]) == 1
    assert reference.main([]) == 0 and reference.main(["--check"]) == 0
    text = reference.PAGE.read_text()
    reference.PAGE.write_text(text.replace("| `nics` |", "| `nicks` |"))
    assert reference.main(["--check"]) == 1
    assert "stale: run make reference" in capsys.readouterr().out


def test_every_key_has_a_row() -> None:
    text = reference.page()
    for member in fields(DeviceProfile):
        name = path_of(member).rpartition(".")[2]
        assert f"| `{name}` |" in text or f"[{name}]" in text or f"[{name}.NAME]" in text, name
    for key in ("ranks_per_host", "groups", "jitter", "prepare_timeout", "replication", "plateau_from", "started"):
        assert f"| `{key}` |" in text
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) > 120 and not [row for row in rows if row.replace("\\|", "").count("|") != len(reference.HEAD) + 1]


def test_examples_are_read() -> None:
    files = {name: REPOSITORY / path for name, path in reference.EXAMPLES.items()}
    assert "bns-gcn:p=0.1" in repr(from_toml(files["run"]))
    titles = [cell.title for cell in read_sweep(files["sweep"])]
    assert len(titles) == (1 + 2 + 1) * 2 * 2  # methods with their bits and p, parts, bandwidths
    assert "sylvie-s, bits=8, parts=4, links.nic.bandwidth=10 Gb/s" in titles
    assert load_workload(str(files["workload"]), 4).num_parts == 4
    cluster = load_cluster(files["cluster"])
    assert place(cluster, 8).host.tolist() == [0] * 4 + [1] * 4 and cluster.stragglers.ranks == {3: 1.5}
    assert load_device(files["device"]).seconds(Work("copy", 8 * 10**9)) == pytest.approx(0.01)
    assert load_tuning(files["transport"]) == load_tuning()
