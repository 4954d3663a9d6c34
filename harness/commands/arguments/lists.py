"""Arguments of the commands that show what there is, or what a file holds; imports nothing heavy."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.commands.arguments.numbers import number

OWN_GRAPHS = """a graph of your own is one .npz file of plain arrays (np.savez), N nodes, E directed edges:
  edge_index   integers [2, E]        from row 0 to row 1; both directions where messages go both ways
  x            numbers [N, F]         or sparse rows: x_indptr, x_indices, x_data, and x_shape = [N, F]
  y            integers [N]           classes from 0, -1 for none; or 0 and 1 [N, C], several classes a node
  train_idx    integers               node numbers; also val_idx, test_idx; without them --split draws some
  num_classes, notes, num_nodes       where the arrays do not say it
or --dataset edges:EDGES.parquet,features=X.npy,labels=Y.csv, or a .pt file of PyG,
or a .bin file of DGL, or a folder of .npy files, for graphs beyond memory; more: docs/graphs.md"""


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    """`--json` of a command that prints tables."""
    text = f"also write {what} here; - for stdout, with the tables on stderr"
    parser.add_argument("--json", metavar="FILE", help=text)


def add_datasets(parser: argparse.ArgumentParser) -> None:
    """`haloscope datasets`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = OWN_GRAPHS
    add_json(parser, "the list")


def add_methods(parser: argparse.ArgumentParser) -> None:
    """`haloscope methods` and `haloscope partitioners`."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="show everything about this one")
    add_json(parser, "the list, or what is shown of one,")


def add_check_method(parser: argparse.ArgumentParser) -> None:
    """`haloscope check-method`."""
    parser.add_argument("method", metavar="NAME:OPTION=VALUE:...", help="the method; options as --method has them")
    parser.add_argument("--quick", action="store_true", help="fewer graphs, models and draws")
    parser.add_argument("--quiet", action="store_true", help="no progress, no table")


def add_clusters(parser: argparse.ArgumentParser) -> None:
    """`haloscope clusters`."""
    parser.add_argument("action", nargs="?", choices=("show",), metavar="show", help="show one cluster")
    parser.add_argument("name", nargs="?", metavar="NAME|FILE.toml", help="which one")
    text = "ask for hosts, devices and links, and write a cluster file, which --cluster FILE.toml then takes"
    parser.add_argument("--ask", type=Path, metavar="FILE.toml", help=text)
    parser.add_argument("--draw", type=Path, metavar="FILE.png", help="also draw it: hosts, switches, adapters, racks")
    add_json(parser, "the list, or every number of the cluster,")


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """`haloscope doctor`."""
    parser.add_argument("--clean", action="store_true", help="list and remove what dead runs left")
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), metavar="DIR", help="folder of results to look into (default: runs/)"
    )
    add_json(parser, "the checks")


def add_flows(parser: argparse.ArgumentParser) -> None:
    """`haloscope flows`."""
    text = "scenarios, format flow-reference/1 (docs/network.md)"
    parser.add_argument("file", type=Path, metavar="FILE.json", help=text)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--exact", action="store_true", help="compute every completion exactly (default)")
    how.add_argument(
        "--coalesce", type=number, metavar="SHARE", help="combine completions within this share of the bound"
    )
    parser.add_argument("--json", metavar="FILE", help="write the times here; - for stdout, with the tables on stderr")
    parser.add_argument("--quiet", action="store_true", help="no tables")


def add_collect(parser: argparse.ArgumentParser) -> None:
    """`haloscope collect`."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of result files")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE", help="a .parquet or .csv file")
    parser.add_argument("--quiet", action="store_true", help="do not say what was written")


def add_completion(parser: argparse.ArgumentParser) -> None:
    """`haloscope completion`."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="whose script to write to stdout")
