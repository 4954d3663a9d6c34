"""The command line: bad input gives one line and exit code 2, valid input gives result files."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import cli, running
from harness.commands import doctor
from harness.commands.arguments import config_of, parse_arguments
from harness.config import COMMAND_DEFAULTS, RunConfig
from harness.errors import ProgramError

TINY = "synthetic:nodes=120,degree=6,classes=3,features=8"
QUICK = ["--dataset", TINY, "--epochs", "3", "--eval-every", "1"]
Haloscope = Callable[..., tuple[int, str, str]]
Npz = Callable[..., Path]


@pytest.fixture
def haloscope(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Haloscope]:
    """Runs the command in an empty folder; returns exit code, stdout and stderr."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def command(*argv: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main([str(word) for word in argv])
        return code, *capsys.readouterr()

    yield command


@pytest.fixture
def npz(tmp_path: Path) -> Npz:
    """Writes the file of a ring of 8 nodes, with a given defect."""

    def write(**broken: Any) -> Path:
        nodes = np.arange(8)
        around = np.concatenate([np.stack([nodes, (nodes + 1) % 8]), np.stack([(nodes + 1) % 8, nodes])], axis=1)
        order = np.lexsort((around[0], around[1]))
        arrays: dict[str, Any] = {
            "edge_index": around[:, order].astype(np.int32),
            "x": np.ones((8, 3), np.float32),
            "x_shape": np.array([8, 3]),
            "y": nodes % 2,
            "train_idx": nodes[:4],
            "val_idx": nodes[4:6],
            "test_idx": nodes[6:],
        }
        arrays |= broken
        path = tmp_path / "ring.npz"
        np.savez(path, **{key: array for key, array in arrays.items() if array is not None})
        return path

    return write


def complaint(outcome: tuple[int, str, str], code: int = 2) -> str:
    """The line on stderr, after checking that it is the only one and that no file was written."""
    assert outcome[0] == code, outcome
    assert outcome[1] == ""
    assert outcome[2].startswith("haloscope: error: ") and outcome[2].count("\n") == 1 and outcome[2].endswith("\n")
    assert "Traceback" not in outcome[2]
    assert not list(Path.cwd().iterdir()), "something was half-written"
    return outcome[2]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["rnu"], "unknown command 'rnu'; did you mean 'run'?"),
        (["run", "--epoch", "5"], "unknown flag --epoch of haloscope run; did you mean --epochs?"),
        (["run", "--epochs", "five"], "--epochs: invalid int value: 'five'"),
        (["run", "--epochs"], "--epochs: expected one argument"),
        (["run", "--epochs", "0"], "epochs must be at least 1"),
        (["run", "--mode", "simulated"], "--mode: invalid choice"),
        (["run", "--dataset", "synthetic:nods=5"], "unknown synthetic parameter 'nods'; did you mean 'nodes'?"),
        (["run", "--dataset", "no-such-graph"], "no-such-graph"),
        (["run", "--dataset", "nowhere.npz"], "nowhere.npz"),
        (["run", *QUICK, "--split", "rnadom"], "rnadom"),
        (["run", *QUICK, "--model", "gnc"], "unknown model 'gnc'; did you mean 'gcn'?"),
        (["run", *QUICK, "--partitioner", "mets"], "unknown partitioner 'mets'; did you mean 'metis'?"),
        (["run", *QUICK, "--method", "vanila"], "unknown method 'vanila'; did you mean 'vanilla'?"),
        (["run", *QUICK, "--method", "bns-gcn:q=0.1"], "unknown option of bns-gcn 'q'"),
        (["run", *QUICK, "--method", "bns-gcn:p=lots"], "method 'bns-gcn:p=lots'"),
        (["run", *QUICK, "--method", "bns-gcn:p=2"], "p must be in [0, 1]"),
        (["run", *QUICK, "--method", "sylvie-s:bits=3"], "bits must be"),
        (["run", *QUICK, "--method", "single"], "--parts 1"),
        (["run", *QUICK, "--mode", "sim", "--cluster", "no-such-cluster"], "no-such-cluster"),
        (["run", *QUICK, "--mode", "sim", "--cluster", "no.toml"], "no.toml"),
        (["run", *QUICK, "--parts", "121"], "120 nodes"),
        (["run", *QUICK, "--config", "no.toml"], "cannot read config file no.toml"),
        (["run", *QUICK, "--json", "/"], "is a folder"),
        (["run", *QUICK, "--out", "/dev/null"], "/dev/null is not a folder"),
        (["compare", *QUICK], "--methods"),
        (["compare", *QUICK, "--methods", "vanilla,vanila"], "did you mean 'vanilla'?"),
        (
            ["compare", *QUICK, "--methods", "vanilla", "--modes", "sim,rael"],
            "unknown mode 'rael'; did you mean 'real'?",
        ),
        (["methods", "vanila"], "did you mean 'vanilla'?"),
        (["partitioners", "metis-cot"], "did you mean 'metis-cut'?"),
        (["clusters", "show"], "name a cluster"),
        (["clusters", "show", "no-such-cluster"], "no-such-cluster"),
        (["collect", "nowhere", "--to", "x.csv"], "nowhere: no such folder"),
        (["collect", "/", "--to", "x.xls"], "write to a .parquet or a .csv file"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_bad_flags(argv: list[str], says: str, haloscope: Haloscope) -> None:
    assert says in complaint(haloscope(*argv))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("epoch = 5", "unknown config.toml key 'epoch'; did you mean 'epochs'?"),
        ("epochs = ", "is not TOML"),
        ("epochs = 'many'", "epochs"),
        ("[run]\nepochs = 5", "key 'run'"),
    ],
)
def test_bad_config_file(text: str, says: str, haloscope: Haloscope, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    assert says in complaint(haloscope("run", "--config", str(file)))


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"edge_index": np.array([[0, 9], [1, 0]], np.int32)}, "9"),
        ({"edge_index": np.array([[0, -1], [1, 0]], np.int32)}, "-1"),
        ({"x": np.where(np.arange(24).reshape(8, 3) == 7, np.nan, 1).astype(np.float32)}, "node 2: feature 1 is nan"),
        ({"y": np.array([0, 1, 0, 1, 0, 1, 0, 12]), "num_classes": np.int64(2)}, "12"),
        ({"y": np.array([0, 1, 0, -7, 0, 1, 0, 1])}, "-7"),
        ({"y": np.array([0, 1, 0])}, "y"),
        ({"y": np.array([None] * 8, object)}, "pickle"),
        ({"edge_index": None}, "edge_index"),
        ({"train_idx": np.array([0, 99])}, "99"),
        ({"train_idx": None, "val_idx": None, "test_idx": None}, "split"),
        ({"x": None, "x_shape": None}, "features"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_bad_graph_file(broken: dict[str, Any], says: str, haloscope: Haloscope, npz: Npz) -> None:
    line = complaint(haloscope("run", "--dataset", str(npz(**broken)), "--split", "public", "--epochs", "1"))
    assert "ring" in line and says in line


def test_damaged_graph_files(haloscope: Haloscope, npz: Npz) -> None:
    path = npz()
    path.write_bytes(path.read_bytes()[:-200])
    assert "truncated" in complaint(haloscope("run", "--dataset", str(path)))
    path.write_bytes(b"\x80\x04\x95 not a zip but the start of a pickle")
    assert "not an npz file" in complaint(haloscope("run", "--dataset", str(path)))


def test_more_parts_than_nodes(haloscope: Haloscope, npz: Npz) -> None:
    line = complaint(haloscope("run", "--dataset", str(npz()), "--split", "public", "--parts", "9"))
    assert "9 parts" in line and "8 nodes" in line


def test_other_failures_are_one_line_too(haloscope: Haloscope, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_with(error: BaseException) -> tuple[int, str, str]:
        def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr(running, "run_opened", fail)
        return haloscope("run", *QUICK, "--quiet")

    assert "rank 1: deadlock in layer 2" in complaint(fail_with(ProgramError("rank 1: deadlock\n  in layer 2")), 1)
    assert "ZeroDivisionError: oh" in complaint(fail_with(ZeroDivisionError("oh")), 1)
    assert "interrupted" in complaint(fail_with(KeyboardInterrupt()), 130)
    assert fail_with(BrokenPipeError()) == (141, "", "")
    monkeypatch.setenv("HALOSCOPE_DEBUG", "1")
    assert "Traceback" in fail_with(ZeroDivisionError("oh"))[2]
    monkeypatch.delenv("HALOSCOPE_DEBUG")


def test_every_field_is_a_flag_and_a_flag_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("hidden = 32\nepochs = 7\neval_every = 2\nshapes_only = true\nmode = 'sim'\n")
    config = config_of(
        parse_arguments(["run", "--config", str(file), "--epochs", "9", "--no-deterministic", "--eval-every", "-1"])
    )
    assert config == COMMAND_DEFAULTS.changed(
        hidden=32, epochs=9, eval_every=-1, shapes_only=True, mode="sim", deterministic=False
    )
    for key, default in RunConfig().flat().items():
        value = [] if isinstance(default, bool) else [str(default)]
        parsed = parse_arguments(["run", f"--{key.replace('_', '-')}", *value])
        assert getattr(parsed, key) == (True if isinstance(default, bool) else default)


def test_help_lists_every_flag_with_its_default(haloscope: Haloscope) -> None:
    code, out, _ = haloscope("run", "--help")
    said = " ".join(out.split())
    assert code == 0 and "--eval-every N epochs between evaluations" in said
    assert not [key for key, default in COMMAND_DEFAULTS.flat().items() if f"(default: {default})" not in said]
    assert haloscope("--version")[1].startswith("haloscope ")
    assert haloscope("--help")[0] == 0
    assert haloscope()[0] == 0


def test_run_writes_one_result_and_uses_it_again(haloscope: Haloscope) -> None:
    code, out, err = haloscope("run", *QUICK, "--out", "results", "--json", "copy.json")
    assert code == 0 and "epoch 1 of 3" in err
    files = list(Path("results").iterdir())
    assert len(files) == 1 and str(files[0]) in out
    record = json.loads(files[0].read_text())
    assert json.loads(Path("copy.json").read_text()) == record
    assert record["run_id"] == files[0].stem and record["state"] == "done" and len(record["epochs"]) == 3
    assert "stand-in" in out and "layer0 = precompute" in out and "loopback" in out and "layer 1" in out
    stamp = files[0].stat().st_mtime_ns
    again = haloscope("run", *QUICK, "--out", "results")
    assert again[0] == 0 and "finished earlier" in again[1] and files[0].stat().st_mtime_ns == stamp
    forced = haloscope("run", *QUICK, "--out", "results", "--force")
    assert "finished earlier" not in forced[1] and files[0].stat().st_mtime_ns > stamp


def test_a_result_of_another_graph_is_not_used_again(haloscope: Haloscope, npz: Npz) -> None:
    argv = ["run", "--dataset", str(npz()), "--split", "public", "--epochs", "1", "--parts", "2"]
    assert "finished earlier" not in haloscope(*argv)[1]
    assert "finished earlier" in haloscope(*argv)[1]
    npz(y=np.arange(8) % 4)
    assert "finished earlier" not in haloscope(*argv)[1]


def test_json_alone_on_stdout(haloscope: Haloscope) -> None:
    code, out, err = haloscope("run", *QUICK, "--json", "-")
    assert code == 0 and json.loads(out)["schema"] == 1 and "final loss" in err
    code, out, err = haloscope("run", *QUICK, "--json", "-", "--quiet")
    assert code == 0 and json.loads(out)["schema"] == 1 and err == ""


def test_compare_writes_tables_and_figures(haloscope: Haloscope) -> None:
    argv = [
        "compare",
        "--methods",
        "single,vanilla,bns-gcn:p=0.5",
        "--modes",
        "loopback,sim",
        *QUICK,
        "--out",
        "results",
    ]
    code, out, _ = haloscope(*argv)
    assert code == 0 and "speed-up" in out and "bns-gcn:p=0.5" in out and "stand-in" in out
    folder = Path("results/comparison")
    assert {path.name for path in folder.iterdir()} == {"table.csv", "table.json", "figure.png", "figure.svg"}
    rows = list(csv.DictReader((folder / "table.csv").read_text().splitlines()))
    assert [(row["method"], row["mode"], row["parts"]) for row in rows] == [
        ("single", "loopback", "1"),
        ("single", "sim", "1"),
        ("vanilla", "loopback", "2"),
        ("vanilla", "sim", "2"),
        ("bns-gcn:p=0.5", "loopback", "2"),
        ("bns-gcn:p=0.5", "sim", "2"),
    ]
    assert json.loads((folder / "table.json").read_text())["rows"][1]["speedup"] == 1.0
    assert len(list(Path("results").glob("*.json"))) == 6
    assert "6 of 6 runs were finished earlier" in haloscope(*argv)[1]
    assert haloscope("collect", "results", "--to", "all.parquet")[1].startswith("6 runs, 18 epochs")


def test_settings_of_one_mode_are_checked_where_the_mode_is_known(haloscope: Haloscope) -> None:
    """The mode may come from --modes, or from a flag beside the file that holds the setting."""
    argv = ["compare", "--methods", "vanilla", *QUICK, "--cluster", "ethernet-1g"]
    assert haloscope(*argv, "--shapes-only", "--modes", "sim", "--quiet")[0] == 0
    (record,) = (json.loads(path.read_text()) for path in Path("runs").glob("*.json"))
    assert record["config"]["mode"] == "sim" and record["config"]["shapes_only"]
    assert "shapes-only needs --mode sim" in haloscope(*argv, "--shapes-only", "--modes", "sim,real")[2]
    Path("shapes.toml").write_text("shapes_only = true\n")
    assert "shapes-only needs --mode sim" in haloscope("run", *QUICK, "--config", "shapes.toml")[2]
    assert haloscope("run", *QUICK, "--config", "shapes.toml", "--mode", "sim", "--quiet")[0] == 0


def test_partition_shows_and_exports(haloscope: Haloscope) -> None:
    argv = ["partition", "--dataset", TINY, "--parts", "3", "--partitioner", "hash", "--export", "p", "--json", "-"]
    code, out, err = haloscope(*argv)
    content = json.loads(out)
    assert code == 0 and [row["inner"] for row in content["parts"]] == [40, 40, 40]
    assert (np.load("p/owner.npy", allow_pickle=False) == np.arange(120) % 3).all()
    assert "replication" in err and "stand-in" in err
    assert re.search(r"memory \d+\.\d\d GiB at most; up to \d+\.\d\d stated, \d+\.\d\d once the cut", err)
    assert "GiB at most" not in haloscope(*argv)[2], "now they are in the cache"


def test_partitioners_side_by_side(haloscope: Haloscope) -> None:
    argv = ["partition", "--dataset", TINY, "--parts", "3", "--json", "-"]
    code, out, err = haloscope(*argv, "--compare")
    rows = {row["partitioner"]: row for row in json.loads(out)["partitioners"]}
    assert code == 0 and list(rows) == [
        "metis-cut", "metis", "label-propagation", "kaminpar", "fennel", "hash", "contiguous", "ranges",
    ]  # fmt: skip
    assert all(row["seconds"] > 0 and row["node_balance"] >= 1 for row in rows.values())
    assert rows["kaminpar"]["volume"] < rows["hash"]["volume"] and "x metis-cut" in err
    code, out, _ = haloscope(*argv, "--compare", "hash,kaminpar:preset=fast")
    named = json.loads(out)["partitioners"]
    assert [row["partitioner"] for row in named] == ["hash", "kaminpar:preset=fast"]
    assert named[0] == rows["hash"], "it comes from the cache, with the seconds that it took"
    code, out, _ = haloscope(*argv, "--compare", "--method", "cdfgnn")
    assert {"ebv", "hdrf"} <= {row["partitioner"] for row in json.loads(out)["partitioners"]}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--dataset", TINY, "--compare", "ebv"], "partitioner ebv does not cut what vanilla does (edge cut)"),
        (["--dataset", TINY, "--compare", "kaminpa"], "did you mean 'kaminpar'?"),
        (["--dataset", "workload:reddit-10", "--parts", "10", "--compare"], "counts without edges"),
        (["--dataset", TINY, "--compare", "--export", "p"], "give one of them"),
    ],
)
def test_partitioners_that_cannot_be_compared(haloscope: Haloscope, words: list[str], says: str) -> None:
    code, out, err = haloscope("partition", *words)
    assert code == 2 and not out and says in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["methods"], ["vanilla", "bns-gcn", "if p=1", "unbiased"]),
        (["methods", "sylvie-s"], ["bits: 1, 2, 4, 8 or 16", "--method sylvie-s:"]),
        (["partitioners"], ["metis-cut", "nodes (cuts edges)", "ebv", "edges (cuts vertices)"]),
        (["partitioners", "hdrf"], ["balance: a part is full", "--partitioner hdrf:lambda=1.1:epsilon=1.0"]),
        (["datasets"], ["synthetic:", "reddit-like", "HALOSCOPE_DATA"]),
        (["clusters"], ["local", "hosts x ranks"]),
        (["clusters", "show", "local"], ["bandwidth", "B/s", "source"]),
        (["doctor"], ["torch", "gloo", "bfloat16", "cache folder"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_listings(argv: list[str], says: list[str], haloscope: Haloscope) -> None:
    code, out, err = haloscope(*argv)
    assert code == 0 and err == ""
    assert not [text for text in says if text not in out]


@pytest.mark.parametrize(
    ("argv", "key", "known"),
    [
        (["methods"], "methods", ("name", "vanilla")),
        (["methods", "sylvie-s"], "name", "sylvie-s"),
        (["partitioners"], "partitioners", ("cuts", "vertex")),
        (["partitioners", "ebv"], "cuts", "vertex"),
        (["datasets"], "datasets", ("name", "synthetic:")),
        (["clusters"], "clusters", ("hosts", 2)),
        (["clusters", "show", "ethernet-10g"], "quantities", ("value", 1.25e9)),
        (["doctor"], "checks", ("what", "torch")),
    ],
)
def test_listings_as_json(argv: list[str], key: str, known: Any, haloscope: Haloscope) -> None:
    """The same as the tables, which go to stderr then."""
    code, out, err = haloscope(*argv, "--json", "-")
    content = json.loads(out)
    assert code == 0 and err
    if isinstance(known, tuple):
        assert known[1] in [row[known[0]] for row in content[key]]
    else:
        assert content[key] == known


def test_doctor_checks_every_extra(haloscope: Haloscope, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of pyproject.toml but for tests and pages; one that lacks a package says how to get it."""
    known = tomllib.loads((Path(cli.__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras = known["optional-dependencies"]
    assert doctor.EXTRAS.keys() == extras.keys() - {"docs", "test"}
    needed = [f'{package}; extra == "{extra}"' for extra, packages in extras.items() for package in packages]
    monkeypatch.setattr(doctor, "requires", lambda name: needed)
    assert doctor.packages_of("serve") == ["plotly", "starlette", "uvicorn"] and doctor.packages_of("none") == []
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "plotly" else "1.0")
    rows = {row["what"]: row for row in json.loads(haloscope("doctor", "--json", "-")[1])["checks"]}
    assert (
        rows["extra serve"]["state"] == "not here" and "pip install 'haloscope[serve]'" in rows["extra serve"]["found"]
    )
    assert rows["extra dask"]["state"] == "ok"
    monkeypatch.setattr(doctor, "requires", lambda name: None)
    assert {found.good for found in doctor._extras()} == {None}


def test_quiet_commands_print_nothing(haloscope: Haloscope) -> None:
    haloscope("run", *QUICK, "--quiet")
    for argv in (["collect", "runs", "--to", "all.csv"], ["partition", "--dataset", TINY, "--compare", "hash,fennel"]):
        loud, silent = haloscope(*argv), haloscope(*argv, "--quiet")
        assert loud[0] == silent[0] == 0 and loud[1] and silent[1:] == ("", "")
    assert "[2/2] fennel; " in haloscope("partition", "--dataset", TINY, "--compare", "hash,fennel")[2]


def test_a_library_that_fails_without_memory_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """SystemError is a defect of a library, unless an allocation has failed in it."""
    error = SystemError("<built-in function empty> returned NULL without setting an exception")
    monkeypatch.setattr("harness.machine.memory_left", lambda: 4_800_000)
    assert cli._lacking(error).startswith("not enough memory: 4.8 MB were left where a library failed (<built-in")
    assert cli._lacking(ValueError("x")) == ""
    for left in (cli.LITTLE, None):
        monkeypatch.setattr("harness.machine.memory_left", lambda left=left: left)
        assert cli._lacking(error) == ""


@pytest.mark.parametrize(("spare", "says"), [(5, "too many open files: 5 more could be opened"), (60, "a defect")])
def test_a_library_without_open_files_left_is_no_defect(spare: int, says: str) -> None:
    """In a process of its own, whose limit is lowered: the launcher's store cannot start its event loop."""
    code = (
        "import os, resource, sys\nfrom harness import cli\n"
        "def fails(*_):\n    raise RuntimeError('Failed to init uv loop')\n"
        "import harness.commands.methods as command\ncommand.main = fails\n"
        f"opened = len(os.listdir('/proc/self/fd')) - 1\nlimit = opened + {spare}\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))\nsys.exit(cli.main(['methods']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert says in done.stderr and done.returncode == (2 if spare == 5 else 1), done.stderr
