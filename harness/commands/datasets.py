"""`haloscope datasets`: the graphs that are available to `--dataset`, and where to put missing ones."""

from __future__ import annotations

import argparse

from harness.commands.shared.listing import show_list
from harness.commands.shared.tables import table
from harness.datasets import data_folder, known_datasets
from harness.workloads import shipped

WHERE = """npz files are looked for in {folder} (HALOSCOPE_DATA names another folder); a path to a file works as well
keys of one: edge_index [2, E]; x [N, F], or x_indptr, x_indices, x_data and x_shape; y; train_idx, val_idx, test_idx
a path to a .pt file of PyG's Data or HeteroData works too, and edges:FILE,... of tables (docs/graphs.md)
pyg:NAME and ogb:NAME are downloaded once where that is possible, and otherwise say what to put where"""


def main(args: argparse.Namespace) -> int:
    """Show the table of graphs."""
    rows = [[name, "here" if here else "not here", text] for name, text, here in known_datasets()]
    rows += [[f"workload:{name}", "counts", "for --shapes-only (docs/workloads.md)"] for name in shipped()]
    content = {"datasets": [{"name": name, "state": state, "what": text} for name, state, text in rows]}
    lines = WHERE.format(folder=data_folder().absolute()).splitlines()
    show_list(content, [table("", ["--dataset", "state", "what"], rows, left=3), *lines], args.json)
    return 0
