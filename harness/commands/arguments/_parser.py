"""Every command's arguments. The flags of a run are derived from the records of `RunConfig`.

Imports no torch: values are checked later, by the code that uses them.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin

from harness.commands.arguments.advise import ADVISED, add_advise
from harness.commands.arguments.calibrate import add_calibrate, add_validate
from harness.commands.arguments.checkpoints import add_checkpoints
from harness.commands.arguments.clusters import add_lab, add_launch, split_arguments
from harness.commands.arguments.engines import add_engine
from harness.commands.arguments.exports import add_export, add_tensorboard
from harness.commands.arguments.lists import (
    add_check_method,
    add_clusters,
    add_collect,
    add_completion,
    add_datasets,
    add_doctor,
    add_flows,
    add_json,
    add_methods,
)
from harness.commands.arguments.numbers import MOST_EPOCHS, number, whole, whole_in
from harness.commands.arguments.report import add_report
from harness.commands.arguments.study import add_standin, add_study
from harness.commands.arguments.what_if import add_replays, add_serve, add_what_if
from harness.commands.welcome import FIRST_FLAGS, command_list, examples_of
from harness.config import (
    COMMAND_DEFAULTS,
    MEASURED_ONLY,
    RUN_SETTINGS,
    Mode,
    RunConfig,
    check,
    from_toml,
    in_modes,
    laid_over,
)
from harness.errors import InputError, unknown
from harness.keys import read_table
from harness.methods.registry import METHODS

COMMANDS = {
    "advise": "say what to run on your graph, model and cluster: method, devices, time, accuracy, memory, cost",
    "run": "train one method; print its times, bytes, accuracy and memory",
    "compare": "the same for several methods and modes, with a table and a figure",
    "sweep": "run every cell of a grid, in parallel; resumable after a kill",
    "what-if": "time the same runs under other bandwidths, devices, libraries and bits; name the crossovers",
    "explain": "say where a predicted epoch comes from, what it depends on, and what measuring that would buy",
    "serve": "the same live in the browser: sliders for links, devices, bits and ranks",
    "trace": "write a run's timeline for Perfetto, with figures of lanes, links and transfers",
    "demo": "calibrate this machine and compare three methods, simulated beside real",
    "partition": "cut a graph and print the quality of the cut",
    "calibrate": "measure this machine and write a cluster file that --mode sim can use",
    "validate": "run and simulate the same cells on this machine; report the errors of predictions",
    "methods": "list the methods and their options",
    "partitioners": "list the partitioners and their options",
    "check-method": "check that a method, also of another package, has the properties that it declares",
    "datasets": "list the graphs, and where to put those that are missing",
    "clusters": "list the cluster models, or show one",
    "lab": "build hosts on this machine with shaped links (Linux, root); measure them, or run a command there",
    "launch": "write the job file that runs a config on a Slurm or Kubernetes cluster",
    "flows": "simulate the transfers of a file; show when each ends",
    "collect": "gather result files into one Parquet or CSV table",
    "export": "write results for MLflow, Weights & Biases or TensorBoard",
    "report": "reproduce the papers' tables and figures, and compare them with the published numbers",
    "study": "judge claims on accuracy with paired seeds, intervals and power; resumable",
    "standin": "fit generated graphs so that printed scores come out; show what moves their scores",
    "doctor": "check what this machine and installation support; remove what dead runs left",
    "completion": "write the script that completes commands, flags and names in a shell",
}
GROUPS = {  # record of a setting -> its title in --help
    "data": "graph",
    "model": "model",
    "training": "method and training",
    "cut": "partition",
    "run": "where and how it runs",
    "cluster": "cluster",
}
NEEDED_FIRST = "flags that one needs first"
TYPES: dict[type, Callable[[str], Any]] = {str: str, int: whole, float: number}
MODELLED = ("what-if", "serve", "explain", "advise")
"""Commands whose mode is sim."""

REAL_ONLY = (*MEASURED_ONLY, "evaluate")
"""Settings that mean nothing to a command whose mode is sim."""

RECORDED = ("method", "mode", "epochs", "eval_every", *REAL_ONLY)
"""Settings that recordings do not leave to the user."""

DATA_FLAGS = ("dataset", "split", "protocol", "features", "parts", "method", "partitioner", "hosts", "renumber", "seed")


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that raises InputError, and lists its flags."""

    def error(self, message: str) -> NoReturn:
        chosen = re.search(r"invalid choice: '?(.*?)'? \(choose from (.*)\)", message)
        if chosen is not None:
            known = [word.strip(" '\"") for word in chosen[2].split(",")]
            near = difflib.get_close_matches(chosen[1], known, n=1, cutoff=0.5)
            message += f"; did you mean {near[0]}?" if near else ""
        if message.startswith("the following arguments are required"):
            example = examples_of(self.prog.removeprefix("haloscope ")).splitlines()[1:2]
            message += "".join(f"; e.g. {line.strip()}" for line in example)
        raise InputError(f"{message.removeprefix('argument ')} (see `{self.prog} --help`)")

    def flags(self) -> list[str]:
        """Every long flag."""
        return [flag for flag in self._option_string_actions if flag.startswith("--")]


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of one command, with its name in `command`.

    Raises:
        InputError: unknown command or flag (the nearest one is named), or a value of the wrong type.
    """
    if not argv:
        return argparse.Namespace(command="welcome")
    if not argv[0].startswith("-") and argv[0] not in COMMANDS:
        raise unknown("command", argv[0], COMMANDS)
    parser, commands = parsers()
    own, words = split_arguments(argv)
    for word in own:
        if word.startswith("--") and word.endswith("=--"):  # argparse drops this value, and leaves an empty list
            raise InputError(f"{word[:-3]}: '--' is no value")
    args, extra = parser.parse_known_args(own)
    if extra:
        raise _unexpected(extra, commands[args.command])
    if words:
        args.words = words
    return args


def given_config(args: argparse.Namespace) -> RunConfig:
    """The config from file and flags; a flag overrides the file. Ranges are not checked: the mode may not be known yet.

    Keys of the file that the command decides itself (`ignored_keys`) are not taken from it.

    Raises:
        InputError: an unknown key, or a value of the wrong type.
    """
    base = COMMAND_DEFAULTS
    if args.config is not None:
        base = from_toml(args.config, COMMAND_DEFAULTS, args.decided)
    given = {key: getattr(args, key) for key in RUN_SETTINGS if hasattr(args, key)}
    return laid_over(given, base, source="command line")


def config_of(args: argparse.Namespace) -> RunConfig:
    """`given_config`, checked. Raises InputError also for a value out of range, or that the mode has no use for."""
    config = given_config(args)
    check(config)
    return config


def ignored_keys(args: argparse.Namespace) -> list[str]:
    """Keys of the config file that the command decides itself, or has no use for; in the order of the file."""
    if getattr(args, "config", None) is None:
        return []
    keys = (key.replace("-", "_") for key in read_table(args.config, "config file"))
    return [key for key in keys if key in args.decided]


def check_settings(args: argparse.Namespace) -> None:
    """Raise the InputError of settings, methods' names and clusters that are wrong, before anything heavy is imported.

    Options of methods, and what settings need of data and machine, are checked by the code that uses them.
    """
    if not hasattr(args, "config"):
        return
    config = given_config(args)
    modes = _modes_of(args) or [config.run.mode]
    if "sim" in modes or config.cluster.name != COMMAND_DEFAULTS.cluster.name:
        from sims.cluster import load_cluster

        load_cluster(config.cluster.name)
    for each in in_modes(config, modes):
        check(each)
    texts = args.methods.split(",") if hasattr(args, "methods") else [config.training.method]
    for text in texts:
        if name := text.strip().partition(":")[0]:
            METHODS.check(name)


def _modes_of(args: argparse.Namespace) -> list[Mode]:
    """The modes that the command itself sets; not every setting is valid in every mode."""
    texts = ["sim"] if args.command in MODELLED else (getattr(args, "modes", None) or "").split(",")
    return [mode for text in texts for mode in get_args(Mode) if mode == text.strip()]


def settings_given(args: argparse.Namespace) -> set[str]:
    """Keys of the settings that flags or the config file give, as opposed to defaults and to `ignored_keys`."""
    file = read_table(args.config, "config file") if args.config is not None else {}
    named = {key.replace("-", "_") for key in file} - set(args.decided)
    return named | {key for key in RUN_SETTINGS if hasattr(args, key)}


def parsers() -> tuple[Parser, dict[str, Parser]]:
    """The parser of the command line, and that of every command."""
    plain = argparse.RawDescriptionHelpFormatter
    about = "Distributed full-graph GNN training, modelled and real."
    parser = Parser(prog="haloscope", description=about, epilog=command_list(COMMANDS), formatter_class=plain)
    parser.add_argument("--version", action="version", version=f"haloscope {_version()}")
    choices = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands = {
        name: choices.add_parser(
            name,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=examples_of(name),
            formatter_class=plain,
            allow_abbrev=False,
        )
        for name, text in COMMANDS.items()
    }
    for name, add in _ADD.items():
        add(commands[name])
    return parser, commands


def _version() -> str:
    try:
        return version("haloscope")
    except PackageNotFoundError:
        return "(not installed)"


def _unexpected(extra: list[str], parser: Parser) -> InputError:
    flag = next((text for text in extra if text.startswith("-")), None)
    if flag is None:
        return InputError(f"unexpected argument {extra[0]!r} (see `{parser.prog} --help`)")
    name = flag.partition("=")[0]
    near = difflib.get_close_matches(name, parser.flags(), n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"see `{parser.prog} --help`"
    return InputError(f"unknown flag {name} of {parser.prog}; {hint}")


def _add_config(parser: Parser, leave_out: Sequence[str] = (), only: Sequence[str] | None = None) -> None:
    """A flag for every setting of a run. Flags not given are not in the namespace, since a file may set them.

    `decided` of the namespace are the settings without a flag: those left out, or all but `only`.
    """
    groups, defaults = dict[str, Any](), COMMAND_DEFAULTS.flat()
    decided = [key for key in RUN_SETTINGS if key in leave_out or (only is not None and key not in only)]
    parser.set_defaults(decided=tuple(decided))
    first = [key for key in FIRST_FLAGS if key in RUN_SETTINGS]
    for key in [*first, *(key for key in RUN_SETTINGS if key not in first)]:
        setting = RUN_SETTINGS[key]
        if key in decided:
            continue
        title = NEEDED_FIRST if key in first else GROUPS[setting.record]
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        group, kind, default = groups[title], setting.type, defaults[key]
        flag = f"--{key.replace('_', '-')}"
        text = f"{setting.field.metadata['help']} (default: {default})".replace("%", "%%")
        common: dict[str, Any] = {"dest": key, "default": argparse.SUPPRESS, "help": text}
        if kind is bool:
            group.add_argument(flag, action=argparse.BooleanOptionalAction, **common)
        elif get_origin(kind) is Literal:
            group.add_argument(flag, choices=get_args(kind), **common)
        else:
            group.add_argument(flag, type=TYPES[kind], metavar={str: "TEXT", int: "N", float: "X"}[kind], **common)
    parser._action_groups.sort(key=lambda group: group.title != NEEDED_FIRST)
    parser.usage = "%(prog)s [FLAGS], in groups below, those that one needs first at the top"
    parser.add_argument(
        "--config", type=Path, metavar="FILE.toml", help="read these settings from a file; flags override it"
    )


def _add_outputs(parser: Parser, out: str) -> None:
    parser.add_argument(
        "--out", type=Path, default=Path(out), metavar="DIR", help=f"folder of results (default: {out}/)"
    )
    parser.add_argument(
        "--json", metavar="FILE", help="also write the result here; - for stdout, with the tables on stderr"
    )
    parser.add_argument("--force", action="store_true", help="run again even if a finished result exists")
    _add_reuse(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress, no tables")


def _add_reuse(parser: Parser) -> None:
    parser.add_argument(
        "--reuse", choices=("same", "any"), default="same",
        help="which results are used again: of the same code, and measured ones of the same machine and libraries, or "
        "of any (default: same)",
    )  # fmt: skip


def _add_run(parser: Parser) -> None:
    _add_config(parser)
    add_checkpoints(parser)
    add_replays(parser)
    add_tensorboard(parser)
    _add_outputs(parser, "runs")


def _add_compare(parser: Parser) -> None:
    parser.add_argument(
        "--methods", required=True, metavar="A,B:OPTION=VALUE,...", help="methods; the first is the baseline"
    )
    parser.add_argument("--modes", default=None, metavar="sim,real", help="modes (default: the one of --mode)")
    parser.add_argument(
        "--rounds", type=whole_in(1, 99), default=1, metavar="N",
        help="measure every real run N times, all of them in turn; shows the median and the range (default: 1)",
    )  # fmt: skip
    add_engine(parser, "runs", "one, with a bar of its epochs")
    add_replays(parser)
    _add_config(parser, leave_out=("method",))
    _add_outputs(parser, "runs")


def _add_sweep(parser: Parser) -> None:
    parser.add_argument(
        "file", type=Path, metavar="FILE.toml", help="tables [run], [grid] and [cluster] (docs/reference.md)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of results (default: sweeps/NAME of the file)")
    add_engine(parser)
    parser.add_argument("--force", action="store_true", help="run every cell again even if its result is finished")
    _add_reuse(parser)
    add_replays(parser)
    parser.add_argument("--budget", metavar="TIME", help="do not begin cells that would end later, e.g. 30m or 1h30m")
    parser.add_argument(
        "--dry-run", action="store_true", help="count the cells and estimate their time without running them"
    )
    parser.add_argument(
        "--json", metavar="FILE", help="also write the rows here; - for stdout, with the tables on stderr"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress, no tables")


def _add_what_if(parser: Parser) -> None:
    add_what_if(parser)
    _add_config(parser, leave_out=RECORDED)


def _add_serve(parser: Parser) -> None:
    add_serve(parser)
    _add_config(parser, leave_out=RECORDED)


def _add_explain(parser: Parser) -> None:
    what = "result file of a simulated run; without it, the flags say what to predict"
    parser.add_argument("run", type=Path, nargs="?", metavar="RUN.json", help=what)
    parser.add_argument("--out", type=Path, metavar="FILE.png", help="draw the timeline with its critical path")
    add_replays(parser)
    _add_config(parser, leave_out=("mode", *REAL_ONLY))
    parser.add_argument(
        "--json", metavar="FILE", help="also write the result here; - for stdout, with the tables on stderr"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress, no tables")


def _add_trace(parser: Parser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN.json", help="a result file; it is run again to be traced")
    parser.add_argument(
        "--out", type=Path, default=Path("trace.json"), metavar="FILE", help="trace to write (default: trace.json)"
    )
    parser.add_argument(
        "--epochs",
        type=whole_in(1, MOST_EPOCHS),
        default=3,
        metavar="N",
        help="epochs to trace, from the first (default: 3)",
    )
    parser.add_argument("--figures", action="store_true", help="also draw timeline, link utilisation and transfers")
    parser.add_argument("--quiet", action="store_true", help="no tables")


def _add_demo(parser: Parser) -> None:
    parser.add_argument(
        "--out", type=Path, default=Path("demo"), metavar="DIR", help="folder of results (default: demo/)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress, no tables")


def _add_partition(parser: Parser) -> None:
    _add_config(parser, only=DATA_FLAGS)
    parser.add_argument("--export", type=Path, metavar="DIR", help="write the owners and partition.json here")
    parser.add_argument(
        "--compare", nargs="?", const="", metavar="NAMES",
        help="put partitioners side by side, with time, volume and balance, instead of showing one cut: all that cut "
        "what the method does, or those named, as in metis-cut,kaminpar:preset=eco",
    )  # fmt: skip
    add_json(parser, "the counts")
    parser.add_argument("--quiet", action="store_true", help="no progress, no tables")


def _add_advise(parser: Parser) -> None:
    _add_config(parser, leave_out=ADVISED)
    add_advise(parser)
    parser._action_groups.sort(key=lambda group: (group.title != NEEDED_FIRST, group.title != "advice"))


_ADD: dict[str, Callable[[Parser], None]] = {
    "advise": _add_advise,
    "run": _add_run,
    "compare": _add_compare,
    "sweep": _add_sweep,
    "what-if": _add_what_if,
    "explain": _add_explain,
    "serve": _add_serve,
    "trace": _add_trace,
    "demo": _add_demo,
    "partition": _add_partition,
    "calibrate": add_calibrate,
    "validate": add_validate,
    "methods": add_methods,
    "partitioners": add_methods,
    "check-method": add_check_method,
    "datasets": add_datasets,
    "clusters": add_clusters,
    "flows": add_flows,
    "lab": add_lab,
    "launch": add_launch,
    "collect": add_collect,
    "export": add_export,
    "doctor": add_doctor,
    "report": add_report,
    "study": add_study,
    "standin": add_standin,
    "completion": add_completion,
}
