"""Fitted stand-ins: files become graphs under `standin:`, and damaged ones are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import datasets
from harness.datasets import _standins as standins
from harness.datasets import read_standin, read_standins, size_of
from harness.errors import InputError

FILE = """
[graph]
nodes = 3000
degree = 8.0
classes = 5
features = 12
communities = 10
homophily = 0.2
agreement = 0.7
standin = "Somewhere"
split = [0.5, 0.2, 0.3]

[fitted]
label_noise = 0.05
signal = 0.4

[[scores]]
what = "full"
method = "single"
parts = 1
source = "a table: a row"
printed = 97.11
ours = 97.02
half_width = 0.1

[fit]
state = "reached"
command = "haloscope standin fit somewhere"
training = "haloscope run"
evaluations = 4
seeds = 5
code = "0123456789abcdef"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one fitted stand-in, in place of the project's."""
    (tmp_path / "somewhere.toml").write_text(FILE)
    monkeypatch.setattr(standins, "STANDINS", tmp_path)
    return tmp_path


def test_a_fitted_stand_in_is_a_graph_with_its_parameters_and_split(folder: Path) -> None:
    graph = datasets.load("standin:somewhere")
    assert graph.num_nodes == 3000 and graph.num_classes == 5 and graph.x is not None and graph.x.shape[1] == 12
    assert [len(part) for part in graph.splits.values() if part is not None] == [1500, 600, 900]
    assert graph.notes == ("stand-in for Somewhere: synthetic graph fitted to printed scores of it",)
    same = datasets.load(
        "synthetic:nodes=3000,degree=8,classes=5,features=12,communities=10,homophily=0.2,agreement=0.7,"
        "label_noise=0.05,signal=0.4",
        split="random:0.5/0.2/0.3",
    )
    assert same.fingerprint() == graph.fingerprint(), "what was fitted is what is loaded"


def test_it_is_scaled_drawn_anew_and_changed_like_any_generated_graph(folder: Path) -> None:
    small = datasets.load("standin:somewhere,scale=0.1,seed=4")
    assert small.num_nodes == 300 and "scale=0.1" in small.notes[0]
    assert datasets.load("standin:somewhere,scale=0.1,seed=5").fingerprint() != small.fingerprint()
    assert size_of("standin:somewhere,scale=0.1") == (300, 2400, 12) and size_of("cora") is None
    states = {datasets.source_state(f"standin:somewhere{more}") for more in ("", ",seed=1", ",signal=0.5")}
    assert len(states) == 3


def test_the_list_shows_what_was_fitted(folder: Path) -> None:
    (row,) = [row for row in datasets.known_datasets() if row[0] == "standin:somewhere"]
    assert row[2] and "stand-in for Somewhere: 3,000 nodes" in row[1]
    assert "full 97.02 (printed 97.11)" in row[1] and "fitted" in row[1]
    (folder / "somewhere.toml").write_text(FILE.replace('"reached"', '"nearest"'))
    assert "not reached" in read_standins(folder)["somewhere"].described()


def test_unknown_and_nameless_stand_ins_are_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="unknown stand-in 'somwhere'; did you mean 'somewhere'"):
        datasets.load("standin:somwhere")
    for text in ("standin:", "standin:scale=0.1"):
        with pytest.raises(InputError, match="name a stand-in, as in standin:somewhere"):
            datasets.load(text)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[graph]", "[graph", "somewhere.toml"),
        ("signal = 0.4", "signl = 0.4", "signl"),
        ('state = "reached"', 'state = "good"', "somewhere.toml"),
        ("seeds = 5", "seed = 5", "seed"),
    ],
)
def test_damaged_files_are_named(folder: Path, old: str, new: str, said: str) -> None:
    assert old in FILE
    path = folder / "somewhere.toml"
    path.write_text(FILE.replace(old, new))
    with pytest.raises(InputError, match=said):
        read_standin(path).recipe()


def test_the_projects_own_stand_ins_load() -> None:
    for name, standin in read_standins().items():
        assert standin.scores and standin.fit.command.startswith(f"haloscope standin fit {name}")
        assert datasets.load(f"standin:{name},scale=0.9").num_nodes == round(standin.recipe().nodes * 0.9)
