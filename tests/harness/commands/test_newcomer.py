"""What a newcomer meets: `haloscope` alone, help, completion, the demo, the calibration that is kept."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness import cli
from harness.commands import calibrate, completion, demo, welcome
from harness.commands.arguments import COMMANDS, parse_arguments, parsers
from harness.config import RUN_SETTINGS, RunConfig
from harness.errors import InputError
from harness.machine import HERE, Depth, KeptCalibration, calibration_folder, kept_calibration
from harness.running.drift import Load
from sims.cluster import load_cluster
from sims.cluster._load import CLUSTERS
from sims.device import load_device, save_device


def test_every_command_that_is_suggested_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Each line is parsed as it stands; each command is in one family."""
    suggested = [line for lines in welcome.EXAMPLES.values() for line in lines]
    suggested += [line.strip() for line in (*welcome.NEXT[1:], *welcome.WELCOME.replace("\\\n", "").splitlines())]
    words = [line.partition("  ")[0].partition(" > ")[0].split() for line in suggested if line.startswith("haloscope ")]
    whole = [line for line in words if "|" not in line and len(line) > 1 and "trains" not in line]
    assert len(whole) > 15
    for line in whole:
        assert parse_arguments(line[1:]).command == line[1]
    families = [name for names in welcome.FAMILIES.values() for name in names]
    assert len(families) == len(set(families)) and set(families) <= set(COMMANDS)
    listed = welcome.command_list({**COMMANDS, "advise-me": "a command of no family"})
    assert all(f"  {name} " in listed for name in COMMANDS) and "more:\n  advise-me" in listed
    assert cli.main([]) == 0
    assert "haloscope demo" in capsys.readouterr().out


def test_help_begins_with_the_flags_that_one_needs_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", "--help"]) == 0
    out = capsys.readouterr().out
    places = [out.index(f"  --{flag} ") for flag in ("dataset", "parts", "mode", "cluster", "out", "split")]
    assert places == sorted(places) and "examples:\n  haloscope compare --methods" in out
    assert set(welcome.FIRST_FLAGS) <= RUN_SETTINGS.keys()


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["compare"], "required: --methods; e.g. haloscope compare --methods vanilla"),
        (["run", "--mode", "rael"], "did you mean real?"),
        (["completion", "bsh"], "did you mean bash?"),
        *(
            (["run", "--mode", mode, "--cluster", "ethernet-10"], "unknown cluster 'ethernet-10'; did you mean")
            for mode in ("loopback", "real", "sim")
        ),
        (["run", "--mode", "sim", "--cluster", "here"], "run `haloscope calibrate`"),
    ],
)
def test_errors_say_what_would_work(
    argv: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path))
    assert cli.main(argv) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1


def completed(script: Path, *words: str) -> list[str]:
    """What bash offers for the last of these words."""
    ask = f'source {script}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _haloscope; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", ask, "bash", *words], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "bash"]) == 0
    script = tmp_path / "completion.bash"
    script.write_text(capsys.readouterr().out)
    assert completed(script, "haloscope", "comp") == ["compare", "completion"]
    assert completed(script, "haloscope", "run", "--eval") == ["--eval-every", "--evaluate"]
    assert completed(script, "haloscope", "run", "--mode", "r") == ["real"]
    assert completed(script, "haloscope", "run", "--cluster", "her") == [HERE]
    assert completed(script, "haloscope", "what-if", "--methods", "vanilla,bns") == ["vanilla,bns-gcn"]
    assert completed(script, "haloscope", "flows", "--mo") == []


def test_other_shells_know_the_same_words() -> None:
    words = {name: completion._flags(parser) for name, parser in parsers()[1].items()}
    assert words["calibrate"].keys() >= {"--brief", "--quick", "--full"} and words["run"]["--device"] == []
    lines = completion.fish(words).splitlines()
    assert len(lines) == len(COMMANDS) + sum(map(len, words.values()))
    assert any("-l mode -x -a 'loopback sim real'" in line for line in lines)
    assert completion.zsh(words).endswith(completion.bash(words)) and "bashcompinit" in completion.zsh(words)
    assert completion._quoted("it's") == "'it\\'s'"


def preset(out: Path, **_: Any) -> Path:
    """In place of a measurement: the files of a shipped cluster."""
    shutil.copy(CLUSTERS / "local.toml", out / "cluster.toml")
    (out / "device.toml").write_text("# the cluster names a shipped device\n")
    (out / calibrate.REFERENCE).write_bytes(msgspec.json.encode(calibrate.Reference(0.01)))
    return out / "cluster.toml"


def test_a_calibration_is_kept_for_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(calibrate, "measure", preset)
    with pytest.raises(InputError, match="has not measured it"):
        load_cluster(HERE)
    assert kept_calibration() is None
    assert cli.main(["calibrate", "--brief"]) == 0
    assert f"--cluster {HERE}" in capsys.readouterr().out
    about = kept_calibration()
    assert about is not None and about.text().startswith("brief calibration of 20")
    assert {path.name for path in calibration_folder().iterdir()} == {"about.json", "cluster.toml", "device.toml"}
    assert [path.name for path in calibration_folder().parent.iterdir()] == [calibration_folder().name]
    changed = load_cluster(f"{HERE}:hosts.cores=3")
    assert changed.cores == 3 and changed.links == load_cluster(HERE).links
    assert cli.main(["calibrate"]) == 0
    refined = kept_calibration()
    assert refined is not None and refined.depth == "quick"
    with monkeypatch.context() as patch:  # other probes
        patch.setattr("harness.machine._calibration.listed_code", lambda *packages: "another")
        assert kept_calibration() is None
    assert kept_calibration() == refined
    monkeypatch.setattr("harness.machine._calibration.core_count", lambda: 99)  # another machine
    assert kept_calibration() is None


@pytest.mark.parametrize("depth", ["brief", "quick", "full"])
def test_a_calibration_says_every_step(
    depth: Depth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibrate, "calibrate_to", lambda out, **_: out / "cluster.toml")
    save_device(load_device("cpu-epyc-1core"), tmp_path / "device.toml")
    for name in ("add_operators", "add_idling", "add_sharing", "add_contention"):
        monkeypatch.setattr(calibrate, name, lambda *_, **__: None)
    monkeypatch.setattr(calibrate, "reference_seconds", lambda: 0.01)
    calibrate.measure(tmp_path, depth=depth, quiet=True)
    assert capsys.readouterr().err == ""
    assert load_device(tmp_path / "device.toml").depth == depth
    calibrate.measure(tmp_path, depth=depth)
    first, *steps = capsys.readouterr().err.splitlines()
    count = 4 if depth == "brief" else 5
    assert first.startswith("measuring this machine (") and len(steps) == count
    assert [line.partition(" ")[0] for line in steps] == [f"[{at + 1}/{count}]" for at in range(count)]
    assert all("so far" in line for line in steps[1:])


@pytest.mark.processes
def test_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With a preset in place of the measurement: once measured, twice used, and the errors are printed."""
    measured: list[str] = []

    def measure(out: Path, *, depth: str, quiet: bool) -> Path:
        measured.append(depth)
        return preset(out)

    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(calibrate, "measure", measure)
    monkeypatch.setattr(demo, "METHODS", "vanilla")
    monkeypatch.setattr(demo, "changed_since", lambda known: "")  # whatever other tests do beside it
    small = demo.CONFIG.changed(dataset="synthetic:nodes=200,degree=6,classes=4,features=8", hidden=8, epochs=3)
    monkeypatch.setattr(demo, "CONFIG", small)
    assert cli.main(["demo"]) == 0
    out = capsys.readouterr().out
    assert measured == ["brief"] and "predicted / measured: vanilla" in out and "median error" in out
    assert all(line in out for line in demo.NEXT) and {"figure.png", "table.csv"} <= {
        p.name for p in Path("demo").iterdir()
    }
    monkeypatch.setattr(demo, "run_all", lambda runs, *_, **__: pytest.fail("begun") if measured[1:] else _stop())
    with pytest.raises(KeyboardInterrupt):
        demo.main(argparse.Namespace(out=Path("demo"), quiet=True))


def _stop() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("depth", "load", "pace", "says", "again"),
    [
        ("brief", 0.05, 1.1, "", False),
        ("brief", 0.05, 1.5, "it is 1.5 times as slow now: measured again", True),
        ("brief", 0.05, 0.5, "it is 2.0 times as fast now: measured again", True),
        ("brief", 0.4, 1.0, "other programs used 40% of the cores while this machine was measured: measured", True),
        ("quick", 0.4, 1.0, "haloscope calibrate does it again", False),
    ],
)
def test_the_demo_measures_again_what_no_longer_holds(
    depth: Any, load: float, pace: float, says: str, again: bool, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """A brief calibration that other programs disturbed, or of another pace, is not used again; longer ones are the
    user's own."""
    made: list[str] = []
    monkeypatch.setattr(demo, "kept_calibration", lambda: KeptCalibration(depth, "2026-01-01", load, 0.01))
    monkeypatch.setattr(demo, "reference_seconds", lambda: 0.01 * pace)
    monkeypatch.setattr(demo, "keep", lambda depth, *, quiet: made.append(depth))
    demo.calibrated()
    err = " ".join(capsys.readouterr().err.split())
    assert says in err and made == ["brief"] * again and ("again" in err) == bool(says)


def test_the_demo_says_who_disturbed_it() -> None:
    quiet, loaded = (KeptCalibration("brief", "2026-01-01", load, 0.01) for load in (0.05, 0.4))
    assert demo.disturbance_lines(quiet, Load(0.1)) == []
    (said,) = demo.disturbance_lines(loaded, Load(0.5))
    assert "40% of the cores while this machine was measured and other programs used 50% of the cores during" in said


@pytest.mark.parametrize(
    ("pace", "said"),
    [(1.05, ""), (0.95, ""), (1.25, "1.25 times as slow as"), (0.5, "2.00 times as fast as")],
)
def test_the_demo_says_how_the_pace_has_changed(pace: float, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "reference_seconds", lambda: 0.01 * pace)
    found = demo.pace_now(KeptCalibration("brief", "2026-01-01", 0.0, 0.01))
    assert found == pytest.approx(pace) and demo.pace_now(None) == 1.0
    lines = demo.pace_lines(found)
    assert len(lines) == bool(said) and all(said in line for line in lines)
    assert all(line.endswith(f"too {'short' if pace > 1 else 'long'} by about that") for line in lines)


def test_a_calibration_that_was_disturbed_says_so_wherever_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(calibrate, "measure", preset)
    run = ["run", "--mode", "sim", "--cluster", HERE, "--parts", "2", "--epochs", "1", "--hidden", "8", "--method"]
    run += ["vanilla", "--dataset", "synthetic:nodes=200,degree=6,classes=4,features=8", "--force", "--out"]
    for load, times in ((0.0, 0), (0.4, 1)):
        monkeypatch.setattr(calibrate, "watching", lambda load=load: nullcontext(Load(load)))
        assert cli.main(["calibrate", "--brief"]) == 0
        assert capsys.readouterr().err.count("40% of the cores") == times
        assert cli.main([*run, str(tmp_path / "runs")]) == 0
        assert " ".join(capsys.readouterr().out.split()).count("40% of the cores while this machine") == times
        cli.main(["doctor"])
        assert " ".join(capsys.readouterr().out.split()).count("40% of the cores while this") == times


def test_errors_of_predictions_are_what_they_are() -> None:
    rows = [
        {"method": method, "mode": mode, "epoch_seconds": seconds}
        for method, mode, seconds in (("a", "sim", 0.1), ("a", "real", 0.2), ("b", "sim", 0.3), ("b", "real", 0.2))
    ]
    assert demo.prediction_lines(rows) == [
        "predicted / measured: a 100 / 200 ms (-50%), b 300 / 200 ms (+50%); median error 50%"
    ]
    assert demo.prediction_lines(rows[::2]) == [] and RunConfig.of(cluster=HERE).cluster.name == "here"
