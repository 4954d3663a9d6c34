"""DGL's files, read without DGL: files that DGL 1.1.3 wrote (folder `dgl`), and what becomes of damaged ones."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.datasets import load
from harness.errors import InputError
from harness.graphs import Graph

FOLDER = Path(__file__).with_name("dgl")
"""One graph in DGL's three formats, and one of two types of nodes; bytes 32 to 4096, which mean nothing, are zero."""

SOURCE, TARGET = [0, 1, 2, 3, 3], [1, 2, 0, 0, 1]
X = np.arange(8, dtype=np.float32).reshape(4, 2)
HEADER = 4096


def edges_of(graph: Graph) -> set[tuple[int, int]]:
    ends = np.repeat(np.arange(graph.num_nodes), graph.in_degree)
    return set(zip(graph.indices.tolist(), ends.tolist(), strict=True))


@pytest.mark.parametrize("form", ["coo", "csr", "csc"])
def test_a_graph_is_read_in_every_format(form: str) -> None:
    graph = load(str(FOLDER / f"{form}.bin"))
    assert graph.name == form and edges_of(graph) == set(zip(SOURCE, TARGET, strict=True))
    assert isinstance(graph.x, np.ndarray) and np.array_equal(graph.x, X)
    assert graph.y is not None and graph.y.tolist() == [0, 1, 1, 0]
    assert [ids.tolist() for ids in graph.splits.values() if ids is not None] == [[0], [1], [2]]


def test_several_types_become_one_graph() -> None:
    """Authors 0 and 1, papers from 2 on; features in columns of their own, labels of papers."""
    graph = load(str(FOLDER / "types.bin"))
    papers = {(s + 2, t + 2) for s, t in zip(SOURCE, TARGET, strict=True)}
    assert edges_of(graph) == papers | {(0, 5), (1, 2)}
    assert graph.y is not None and graph.y.tolist() == [-1, -1, 0, 1, 1, 0]
    assert graph.x is not None and graph.x.shape == (6, 5) and graph.train is not None
    assert graph.train.tolist() == [2, 4] and "2 author, 4 paper" in graph.notes[0]


def written(folder: Path, content: bytes) -> str:
    path = folder / "g.bin"
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize(
    ("at", "form", "value", "message"),
    [
        (0, "<Q", 1, "no mark of DGL at byte 0"),
        (8, "<Q", 1, "written by a DGL before 0.5"),
        (24, "<Q", 2, "holds 2 graphs; keep one"),
        (HEADER, "<Q", 1 << 40, "begins outside"),
        (HEADER + 8, "<Q", 1 << 60, "begins outside"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(tmp_path: Path, at: int, form: str, value: int, message: str) -> None:
    content = bytearray((FOLDER / "coo.bin").read_bytes())
    struct.pack_into(form, content, at, value)
    if at == HEADER + 8:  # a list of labels that would be longer than the file is stepped over, its end is not
        struct.pack_into("<Q", content, HEADER, value)
    with pytest.raises(InputError, match=message) as error:
        load(written(tmp_path, bytes(content)))
    assert "\n" not in str(error.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    for content in (b"", b"no", bytes(HEADER), b"\x80\x04]\x94." * 2000):
        with pytest.raises(InputError, match=r"np\.savez"):
            load(written(tmp_path, content))
    with pytest.raises(InputError, match="no such file"):
        load(str(tmp_path / "nowhere.bin"))


def test_a_file_that_ends_early_is_refused(tmp_path: Path) -> None:
    whole = (FOLDER / "types.bin").read_bytes()
    kept = whole.index(b"cites") + 5 - HEADER
    for length in range(HEADER, HEADER + kept, 7):
        with pytest.raises(InputError):
            load(written(tmp_path, whole[:length]))


@settings(max_examples=300)
@given(data=st.data())
def test_damage_never_does_more_than_refuse(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """Whatever bytes are changed: a graph of at most as many nodes as bytes, or one line."""
    name = data.draw(st.sampled_from(["coo", "csr", "csc", "types"]))
    content = bytearray((FOLDER / f"{name}.bin").read_bytes())
    extreme = st.sampled_from([0, 1, 255, 1 << 31, (1 << 63) - 1, (1 << 64) - 1])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(HEADER, len(content) - 8))
        if data.draw(st.booleans()):
            content[at] = data.draw(st.integers(0, 255))
        else:
            struct.pack_into("<Q", content, at, data.draw(extreme))
    folder = tmp_path_factory.mktemp("damaged")
    try:
        graph = load(written(folder, bytes(content)))
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert graph.num_nodes <= len(content)
