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

from harness.commands.advise_arguments import ADVISED, add_advise
from harness.commands.calibrate_arguments import add_calibrate, add_validate
from harness.commands.checkpoint_arguments import add_checkpoints
from harness.commands.cluster_arguments import add_lab, add_launch, split_arguments
from harness.commands.engine_arguments import add_engine
from harness.commands.export_arguments import add_export, add_tensorboard
from harness.commands.flag_numbers import MOST_EPOCHS, number, whole, whole_in
from harness.commands.study_arguments import add_standin, add_study
from harness.commands.welcome import FIRST_FLAGS, command_list, examples_of
from harness.commands.what_if_arguments import add_replays, add_serve, add_what_if
from harness.config import COMMAND_DEFAULTS, RUN_SETTINGS, RunConfig, from_mapping, from_toml
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
OWN_GRAPHS = """a graph of your own is one .npz file of plain arrays (np.savez), N nodes, E directed edges:
  edge_index   integers [2, E]        from row 0 to row 1; both directions where messages go both ways
  x            numbers [N, F]         or sparse rows: x_indptr, x_indices, x_data, and x_shape = [N, F]
  y            integers [N]           classes from 0, -1 for none; or 0 and 1 [N, C], several classes a node
  train_idx    integers               node numbers; also val_idx, test_idx; without them --split draws some
  num_classes, notes, num_nodes       where the arrays do not say it
or --dataset edges:EDGES.parquet,features=X.npy,labels=Y.csv, or a .pt file of PyG,
or a .bin file of DGL, or a folder of .npy files, for graphs beyond memory; more: docs/graphs.md"""
MODELLED = ("what-if", "serve", "explain", "advise")
"""Commands whose mode is sim."""

RECORDED = ("method", "mode", "epochs", "eval_every")
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


def config_of(args: argparse.Namespace) -> RunConfig:
    """The config from file and flags; a flag overrides the file.

    Raises:
        InputError: as `from_toml` and `from_mapping`.
    """
    base = COMMAND_DEFAULTS if args.config is None else from_toml(args.config, COMMAND_DEFAULTS)
    given = {key: getattr(args, key) for key in RUN_SETTINGS if hasattr(args, key)}
    return from_mapping(given, base, source="command line")


def check_settings(args: argparse.Namespace) -> None:
    """Raise the InputError of settings, methods' names and clusters that are wrong, before anything heavy is imported.

    Options of methods, and what settings need of data and machine, are checked by the code that uses them.
    """
    if not hasattr(args, "config"):
        return
    config = config_of(_with_mode(args))
    texts = args.methods.split(",") if hasattr(args, "methods") else [config.training.method]
    for text in texts:
        if name := text.strip().partition(":")[0]:
            METHODS.check(name)
    if config.run.mode == "sim" or config.cluster.name != COMMAND_DEFAULTS.cluster.name:
        from sims.cluster import load_cluster

        load_cluster(config.cluster.name)


def _with_mode(args: argparse.Namespace) -> argparse.Namespace:
    """The arguments with the mode that the command will set; not every setting is valid in every mode."""
    modes = (getattr(args, "modes", None) or "").partition(",")[0].strip()
    mode = "sim" if args.command in MODELLED else modes if modes in ("loopback", "sim", "real") else None
    return args if mode is None else argparse.Namespace(**{**vars(args), "mode": mode})


def settings_given(args: argparse.Namespace) -> set[str]:
    """Keys of the settings that flags or the config file give, as opposed to defaults."""
    file = read_table(args.config, "config file") if args.config is not None else {}
    return {key.replace("-", "_") for key in file} | {key for key in RUN_SETTINGS if hasattr(args, key)}


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
            description=text.capitalize() + ".",
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
    """A flag for every setting of a run. Flags not given are not in the namespace, since a file may set them."""
    groups, defaults = dict[str, Any](), COMMAND_DEFAULTS.flat()
    first = [key for key in FIRST_FLAGS if key in RUN_SETTINGS]
    for key in [*first, *(key for key in RUN_SETTINGS if key not in first)]:
        setting = RUN_SETTINGS[key]
        if key in leave_out or (only is not None and key not in only):
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
    add_engine(parser, "runs")
    add_replays(parser)
    _add_config(parser, leave_out=("method",))
    _add_outputs(parser, "runs")


def _add_sweep(parser: Parser) -> None:
    parser.add_argument(
        "file", type=Path, metavar="FILE.toml", help="tables [run], [grid] and [cluster] (docs/reference.md)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of results (default: sweeps/NAME of the file)")
    add_engine(parser)
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
    _add_config(parser, leave_out=("mode",))
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
    parser.add_argument(
        "--json", metavar="FILE", help="also write the counts here; - for stdout, with the tables on stderr"
    )


def _add_completion(parser: Parser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="whose script to write to stdout")


def _add_datasets(parser: Parser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = OWN_GRAPHS


def _add_methods(parser: Parser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="show everything about this one")


def _add_check_method(parser: Parser) -> None:
    parser.add_argument("method", metavar="NAME:OPTION=VALUE:...", help="the method; options as --method has them")
    parser.add_argument("--quick", action="store_true", help="fewer graphs, models and draws")


def _add_clusters(parser: Parser) -> None:
    parser.add_argument("action", nargs="?", choices=("show",), metavar="show", help="show one cluster")
    parser.add_argument("name", nargs="?", metavar="NAME|FILE.toml", help="which one")
    text = "ask for hosts, devices and links, and write a cluster file, which --cluster FILE.toml then takes"
    parser.add_argument("--ask", type=Path, metavar="FILE.toml", help=text)
    parser.add_argument("--draw", type=Path, metavar="FILE.png", help="also draw it: hosts, switches, adapters, racks")


def _add_flows(parser: Parser) -> None:
    parser.add_argument(
        "file", type=Path, metavar="FILE.json", help="scenarios, format flow-reference/1 (docs/network.md)"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--exact", action="store_true", help="compute every completion exactly (default)")
    how.add_argument(
        "--coalesce", type=number, metavar="SHARE", help="combine completions within this share of the bound"
    )
    parser.add_argument("--json", metavar="FILE", help="write the times here; - for stdout, with the tables on stderr")


def _add_collect(parser: Parser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of result files")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE", help="a .parquet or .csv file")


def _add_report(parser: Parser) -> None:
    what = "make the report (default), list its items, or write the page of what --out holds and make nothing"
    parser.add_argument("what", nargs="?", choices=("all", "list", "page"), default="all", help=what)
    only = "tables, figures or papers: sylvie/table3,bns-gcn (default: all)"
    parser.add_argument("--only", metavar="KEY,...", help=only)
    parser.add_argument("--html", action="store_true", help="also write index.html: one page that needs no network")
    budget = "time for all training on two cores: 90s, 1h (default: 10m)"
    parser.add_argument("--budget", default="10m", metavar="TIME", help=budget)
    parser.add_argument("--full", action="store_true", help="the papers' epochs, seeds and graphs; hours to days")
    add_engine(parser, "tables and figures")
    _add_outputs(parser, "report")


def _add_doctor(parser: Parser) -> None:
    parser.add_argument("--clean", action="store_true", help="list and remove what dead runs left")
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), metavar="DIR", help="folder of results to look into (default: runs/)"
    )


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
    "methods": _add_methods,
    "partitioners": _add_methods,
    "check-method": _add_check_method,
    "datasets": _add_datasets,
    "clusters": _add_clusters,
    "flows": _add_flows,
    "lab": add_lab,
    "launch": add_launch,
    "collect": _add_collect,
    "export": add_export,
    "doctor": _add_doctor,
    "report": _add_report,
    "study": add_study,
    "standin": add_standin,
    "completion": _add_completion,
}
