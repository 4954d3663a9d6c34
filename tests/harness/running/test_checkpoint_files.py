"""Checkpoint files: content, faults of the file system, and their messages."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.errors import InputError
from harness.running import Checkpoints, run
from harness.running import _checkpoint as checkpoint
from harness.running import _checkpoint_files as files
from harness.running._checkpoint import Carried, History
from real.rank._agreement import UNHURRIED
from tests.conformance.test_drivers import config


def _storages(tree: Any) -> dict[int, int]:
    """Bytes of the storages behind the tensors of a tree, by address."""
    if isinstance(tree, torch.Tensor):
        return {tree.untyped_storage().data_ptr(): tree.untyped_storage().nbytes()}
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else []
    return {address: size for part in parts for address, size in _storages(part).items()}


def _tensors(tree: Any) -> int:
    """Bytes of the tensors of a tree themselves."""
    if isinstance(tree, torch.Tensor):
        return tree.numel() * tree.element_size()
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else []
    return sum(map(_tensors, parts))


def test_files_hold_no_more_than_their_tensors_need(tmp_path: Path) -> None:
    """Views of larger tensors in a method's memory are saved without the rest of those tensors."""
    wide = torch.arange(1_000_000.0)
    model, pieces = torch.nn.Linear(3, 2), {"a": {"b": wide[10:20]}, "c": wide[:4].view(2, 2)}
    carried = Carried(model, torch.optim.Adam(model.parameters()), pieces, [])
    written = files.write_rank(tmp_path / "epoch-000001", 0, checkpoint._content(carried, History()), 1)
    content = torch.load(tmp_path / "epoch-000001" / "rank-0.pt", weights_only=True)
    assert torch.equal(content["memory"]["a"]["b"], wide[10:20]) and torch.equal(content["memory"]["c"], pieces["c"])
    assert written.bytes == (tmp_path / "epoch-000001" / "rank-0.pt").stat().st_size < 20_000


@pytest.mark.parametrize("method", ["sylvie-a", "ec-graph:period=4:bits=1", "cdfgnn"])
def test_files_of_methods_hold_plain_tensors_and_no_more_than_they_need(method: str, tmp_path: Path) -> None:
    setting = config(method, epochs=2, partitioner="ebv" if method == "cdfgnn" else "hash")
    run(setting, None, Checkpoints(tmp_path))
    newest = tmp_path / setting.training_id() / "epoch-000002"
    for rank in range(setting.cut.parts):
        content = torch.load(newest / f"rank-{rank}.pt", weights_only=True)
        assert _tensors(content["memory"]) > 0
        assert sum(_storages(content).values()) == _tensors(content)


def _marker(folder: Path, written: list[files.RankFile]) -> files.Marker:
    return files.Marker(files.CHECKPOINT_FORMAT, 1, files.Identity.of("x", "y", len(written)), written, {})


def test_a_folder_that_hosts_do_not_share_is_said_when_the_first_checkpoint_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message does not advise to remove the checkpoint or to start anew."""
    monkeypatch.setattr(files, "SEEN_S", 0.2)
    folder = files.folder_of(tmp_path, 1)
    mine = files.write_rank(folder, 0, {}, 1)
    with pytest.raises(InputError) as caught:
        files.write_marker(folder, _marker(folder, [mine, mine]))
    assert "rank 1 has written rank-1.pt, but on the host of rank 0 it is missing after 0.2 s" in str(caught.value)
    assert "a folder that all hosts share" in str(caught.value) and "--no-resume" not in str(caught.value)
    assert not (folder / files.MARKER).exists()


def test_every_rank_is_compared_with_its_own_threads(tmp_path: Path) -> None:
    """Hosts of unequal cores give their ranks unequal threads, and such a run can be continued."""
    folder, here = files.folder_of(tmp_path, 1), torch.device("cpu")
    written = [files.write_rank(folder, rank, {"of": rank}, threads) for rank, threads in enumerate([4, 2])]
    files.write_marker(folder, _marker(folder, written))
    marker = files.read_marker(tmp_path, 1, files.Identity.of("x", "y", 2))
    for rank, threads in ((0, 4), (1, 2)):
        assert files.read_rank(tmp_path, marker, rank, here, threads) == {"of": rank}
    with pytest.raises(InputError, match=r"rank 1 had 2 threads, here it has 4: .* \(threads of the ranks: 4, 2\)"):
        files.read_rank(tmp_path, marker, 1, here, 4)


def test_a_file_that_is_seen_late_is_waited_for(tmp_path: Path) -> None:
    """As with NFS, which shows a file of another host, or its end, some seconds after it was written."""
    folder = files.folder_of(tmp_path, 1)
    mine = files.write_rank(folder, 0, {}, 1)
    late = threading.Timer(0.3, lambda: files.write_rank(folder, 1, {}, 1))
    late.start()
    files.write_marker(folder, _marker(folder, [mine, mine]))
    late.join()
    assert files.newest(tmp_path) == 1


def test_errors_of_the_file_system_name_the_file_and_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = files.folder_of(tmp_path, 1)
    marker = _marker(folder, [files.write_rank(folder, 0, {}, 1)])
    (folder / files.MARKER).mkdir()
    with pytest.raises(InputError, match=r"cannot remove checkpoint .*epoch-000001/complete.json: Is a directory"):
        files.clear(tmp_path)
    (folder / "rank-0.pt").unlink()
    with pytest.raises(InputError, match=r"epoch-000001: rank-0.pt cannot be read here: No such file"):
        files.read_rank(tmp_path, marker, 0, torch.device("cpu"), 1)

    def refuses(self: Path) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(Path, "iterdir", refuses)
    with pytest.raises(InputError, match=r"cannot read the checkpoints in .*: Stale file handle"):
        files.newest(tmp_path)


def test_checkpoints_are_written_in_the_stage_that_ranks_wait_longer_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, save = set[str](), checkpoint.Saver.save

    async def watched(saver: checkpoint.Saver, carried: Carried) -> None:
        seen.add(saver.rank.stage)
        await save(saver, carried)

    monkeypatch.setattr(checkpoint.Saver, "save", watched)
    run(config("vanilla", epochs=2), None, Checkpoints(tmp_path, every=1))
    assert seen == {UNHURRIED}
