"""What a command does with settings of a file or of another mode: it takes, names or refuses them, and drops none."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

import harness
from harness import cli
from harness.commands import validate
from harness.commands.arguments import REAL_ONLY, given_config, ignored_keys, parse_arguments, parsers
from harness.commands.arguments.engines import real_jobs
from harness.commands.compare import cells_of
from harness.config import RunConfig
from harness.datasets import GRAPH_SOURCES
from harness.errors import InputError
from harness.methods.registry import METHODS
from harness.partition import PARTITIONERS
from harness.running.sweep import read_sweep

TINY = "synthetic:nodes=120,degree=6,classes=3,features=8"


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line with which a command refuses these words."""
    capsys.readouterr()
    assert cli.main(list(words)) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("run --mode sim --device cuda", "device=cuda needs --mode real"),
        ("run --mode sim --backend nccl", "backend=nccl needs --mode real"),
        ("run --timeout 5", "timeout=5.0 needs --mode real: mode loopback does nothing with it"),
        ("run --mode real --cluster ethernet-10g", "cluster=ethernet-10g needs --mode sim: mode real does nothing"),
        ("run --cluster ethernet-10g", "cluster=ethernet-10g needs --mode sim: mode loopback does"),
        ("compare --methods vanilla --modes loopback,sim --backend gloo", "backend=gloo needs --mode real"),
        ("what-if --methods vanilla --device cuda", "unknown flag --device"),
        ("explain --backend gloo", "unknown flag --backend"),
        ("serve --methods vanilla --timeout 3", "unknown flag --timeout"),
        ("report --reuse=any", "unknown flag --reuse"),
        ("report --only ,", "--only names no table, figure or paper: give keys of `haloscope report list`"),
        ("what-if --methods vanilla --ranks 2,4", "--ranks is of the page with sliders: give --html FILE"),
        ("what-if --methods vanilla --results runs", "--results is of the page with sliders"),
        ("validate --study --methods vanilla", "--study chooses its cells, so that --methods would change nothing"),
        ("validate --study --hidden 32", "--study chooses its cells, so that --hidden would change nothing"),
        ("validate --study --cluster local", "so that --cluster would change nothing"),
        ("validate --hidden 32", "--hidden is for graphs other than heavy, balanced, attention, narrow"),
        ("validate --datasets heavy,narrow --model sage", "--model is for graphs other than heavy"),
        ("clusters --ask a.toml --json -", "--json is of clusters that there are"),
        ("doctor --clean --json -", "--json is of the checks"),
    ],
)
def test_what_would_be_ignored_is_refused(
    words: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert says in refusal(capsys, *words.split())


def test_one_command_for_several_modes_gives_each_what_acts_in_it() -> None:
    """`compare --modes sim,real --backend gloo --cluster ethernet-10g`, and the same in a sweep file."""
    words = ["compare", "--methods", "vanilla", "--modes", "sim,real", "--backend", "gloo", "--cluster", "ethernet-10g"]
    base = given_config(parse_arguments([*words, "--dataset", TINY, "--timeout", "9"]))
    modelled, measured = (each.config for each in cells_of(base, "vanilla", ["sim", "real"]))
    assert (modelled.run.backend, modelled.run.timeout, modelled.cluster.name) == ("auto", 60.0, "ethernet-10g")
    assert (measured.run.backend, measured.run.timeout, measured.cluster.name) == ("gloo", 9.0, "local")
    with pytest.raises(InputError, match="backend=gloo needs --mode real"):
        cells_of(base.changed(mode="sim"), "vanilla", ["sim"])


@pytest.mark.parametrize("grid", ['[grid]\nmode = ["sim", "real"]', '[[grid]]\nmode = "sim"\n[[grid]]\nmode = "real"'])
def test_a_sweep_gives_each_mode_what_acts_in_it(grid: str, tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(f'[run]\ndataset = "{TINY}"\nbackend = "gloo"\ncluster = "ethernet-10g"\n{grid}\n')
    modelled, measured = (cell.config for cell in read_sweep(file))
    assert (modelled.run.backend, modelled.cluster.name) == ("auto", "ethernet-10g")
    assert (measured.run.backend, measured.cluster.name) == ("gloo", "local")
    file.write_text(f'[run]\ndataset = "{TINY}"\nbackend = "gloo"\nmode = "sim"\n[grid]\nseed = [1]\n')
    with pytest.raises(InputError, match="backend=gloo needs --mode real"):
        read_sweep(file)


@pytest.mark.parametrize(
    ("command", "ignored"),
    [
        ("run", []),
        ("compare --methods single", ["method"]),
        ("what-if --methods single", ["method", "epochs", "mode", "device"]),
        ("explain", ["mode", "device"]),
        ("advise --cluster ethernet-1g", ["parts", "method", "mode", "device"]),
        ("partition", ["epochs", "mode", "device"]),
    ],
)
def test_keys_of_a_file_that_a_command_decides_are_named(
    command: str,
    ignored: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        'parts = 3\nmethod = "sylvie-s"\nepochs = 7\nmode = "real"\ndevice = "cuda"\nhidden-heads = "mean"\n'
    )
    args = parse_arguments([*command.split(), "--config", str(file)])
    expected = ignored if command != "partition" else [*ignored, "hidden_heads"]
    assert ignored_keys(args) == expected
    taken = given_config(args).flat()
    given = {"parts": 3, "method": "sylvie-s", "epochs": 7, "mode": "real", "device": "cuda", "hidden_heads": "mean"}
    default = given_config(parse_arguments(command.split())).flat()
    assert all(taken[key] == (default if key in expected else given)[key] for key in given)
    monkeypatch.setattr(f"harness.commands.{command.split()[0].replace('-', '_')}.main", lambda args: 0)
    monkeypatch.setattr(cli, "check_settings", lambda args: None)
    for quiet in ([], ["--quiet"]):
        assert cli.main([*command.split(), "--config", str(file), *quiet]) == 0
        said = capsys.readouterr().err
        line = f"{', '.join(expected)}: not taken from {file}, since {args.command} decides or does without them\n"
        assert said == (line if expected and not quiet else "")


def test_a_job_takes_parts_and_mode_of_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.toml"
    words = ["launch", "slurm", "--nodes", "2", "--", "--config", str(file)]
    file.write_text('mode = "sim"\n')
    assert "mode sim needs no cluster" in refusal(capsys, *words)
    file.write_text("parts = 3\n")
    assert "3 parts, but 2 nodes x 1 are 2 ranks" in refusal(capsys, *words)
    file.write_text('parts = 2\nmode = "real"\nbackend = "gloo"\n')
    assert cli.main(words) == 0 and "--parts" not in capsys.readouterr().out


def test_modelled_commands_have_no_flags_of_real_processes() -> None:
    commands = parsers()[1]
    for name in ("what-if", "serve", "explain", "advise"):
        assert not {f"--{key.replace('_', '-')}" for key in REAL_ONLY} & set(commands[name].flags())
    assert {f"--{key.replace('_', '-')}" for key in REAL_ONLY} <= set(commands["compare"].flags())


def test_descriptions_keep_their_names() -> None:
    commands = parsers()[1]
    assert commands["export"].description == "Write results for MLflow, Weights & Biases or TensorBoard."
    assert commands["launch"].description == "Write the job file that runs a config on a Slurm or Kubernetes cluster."


def test_help_names_every_source_and_partitioner() -> None:
    """Of the registries, and what a method chooses with partitioner auto."""
    text = parsers()[1]["run"].format_help()
    words = " ".join(text.split())
    data, cut = (words.partition(f"--{flag} TEXT")[2].partition("(default:")[0] for flag in ("dataset", "partitioner"))
    assert all(f"{source}:" in data for source in GRAPH_SOURCES.builtin), data
    assert all(kind in data for kind in (".npz", ".pt", ".bin", ".npy")), data
    assert all(name in cut.replace("label- propagation", "label-propagation") for name in PARTITIONERS.builtin), cut
    chosen = {name: METHODS.find(name).default_partitioner for name in METHODS.builtin}
    assert all(f"{name}: {of}" in cut for name, of in chosen.items() if of != "auto"), cut


def test_jobs_that_are_overruled_are_said() -> None:
    said: list[str] = []
    assert real_jobs("local", 8, said.append) == 1 and "--jobs 8: all run one at a time" in said[0]
    assert real_jobs("local", 0, said.append) == real_jobs("local", 1, said.append) == 1 and len(said) == 1
    assert real_jobs("slurm", 8, said.append) == 8 and len(said) == 1


def test_cells_of_a_validation_may_have_commas() -> None:
    words = ["validate", "--cluster", "local,lab:2x1gbit", "--datasets", "narrow,heavy", "--methods", "vanilla"]
    found = {(config.cluster.name, config.data.dataset) for config in validate._rounds(parse_arguments(words))[0]}
    assert len(found) == 4 and {name for name, _ in found} == {"local", "lab:2x1gbit"}
    own = ["validate", "--datasets", TINY, "heavy", "--hidden", "8", "--methods", "vanilla"]
    first, second = validate._rounds(parse_arguments(own))[0]
    assert (first.data.dataset, first.model.hidden, first.model.layers) == (TINY, 8, 3) and second.model.hidden == 128
    plain = validate._rounds(parse_arguments(["validate", "--methods", "vanilla"]))[0]
    assert len(plain) == 2 and all(config.cut.parts == 2 for config in plain)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: harness.compare("vanilla", method="single"), "method='single' is not for harness.compare: it takes"),
        (lambda: harness.compare("vanilla", {"method": "single"}), "method='single' is not for harness.compare"),
        (lambda: harness.compare("vanilla", modes="sim,rael"), "unknown mode 'rael'; did you mean 'real'?"),
        (lambda: harness.what_if("vanilla", epochs=3), "epochs=3 is not for harness.what_if: recorded="),
        (lambda: harness.what_if("vanilla", mode="real"), "mode='real' is not for harness.what_if"),
        (lambda: harness.what_if("vanilla", device="cuda"), "device='cuda' is not for harness.what_if"),
        (lambda: harness.advise(method="vanilla"), "method='vanilla' is not for harness.advise: it takes methods"),
        (lambda: harness.advise({"parts": 4}), "parts=4 is not for harness.advise: parts= is a keyword"),
        (lambda: harness.advise(device="cuda"), "device='cuda' is not for harness.advise"),
        (lambda: harness.advise(mode="real"), "mode='real' is not for harness.advise"),
        (lambda: harness.advise(parts=2.5), "parts=2.5: give one number of devices, or several"),
        (lambda: harness.run(mode="sim", device="cuda"), "device=cuda needs --mode real"),
    ],
)
def test_functions_refuse_what_they_decide(call: Any, says: str) -> None:
    with pytest.raises(InputError, match=f"^{says.replace('?', '[?]')}"):
        call()


@pytest.mark.parametrize(("parts", "counts"), [(4, (4,)), ("2,4", (2, 4)), ((2, 8), (2, 8)), ((), ())])
def test_advice_takes_one_number_or_several(
    parts: Any, counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.commands.python.interface.make_advice", lambda question, tell: question)
    assert harness.advise(parts=parts, mode="sim", cluster="ethernet-1g").parts == counts  # type: ignore[attr-defined]


def test_comparisons_take_modes_as_text(tmp_path: Path) -> None:
    config = RunConfig.of(dataset=TINY, epochs=2, eval_every=0)
    found = harness.compare("vanilla", config, modes="loopback, sim", replays=0, out=tmp_path, quiet=True)
    assert list(found.frame()["mode"]) == ["loopback", "sim"]


def test_a_namespace_without_a_config_has_no_ignored_keys() -> None:
    assert ignored_keys(argparse.Namespace(command="doctor")) == []
