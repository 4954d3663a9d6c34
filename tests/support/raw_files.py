"""Tiny raw files in the layouts of Reddit, GraphSAINT and OGB: the path 0 - 1 - 2 - 3, four rows of features."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

PATH = np.array([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])  # 0 - 1 - 2 - 3, both directions
X = np.arange(8, dtype=np.float32).reshape(4, 2)


def table(path: Path, rows: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        np.savetxt(file, rows, fmt="%.9g", delimiter=",")


def write_reddit(root: Path) -> None:
    raw = root / "Reddit" / "raw"
    raw.mkdir(parents=True)
    edges = np.concatenate([PATH, [[1, 0], [1, 1]]], axis=1)  # a self loop and a repeat
    sp.save_npz(raw / "reddit_graph.npz", sp.coo_matrix((np.ones(8), (edges[0], edges[1])), shape=(4, 4)))
    arrays: dict[str, Any] = {
        "feature": X.astype(np.float64),
        "label": np.array([0, 1, 2, 1]),
        "node_types": np.array([1, 3, 2, 1]),
    }
    np.savez(raw / "reddit_data.npz", node_ids=np.arange(4), **arrays)


def write_saint(root: Path, name: str, classes: dict[str, Any]) -> None:
    raw = root / name / "raw"
    raw.mkdir(parents=True)
    sp.save_npz(raw / "adj_full.npz", sp.csr_matrix((np.ones(6), (PATH[0], PATH[1])), shape=(4, 4)))
    np.save(raw / "feats.npy", X.astype(np.float64))
    (raw / "class_map.json").write_text(json.dumps(classes))
    (raw / "role.json").write_text(json.dumps({"tr": [3, 0], "va": [2], "te": [1]}))


def write_split(folder: Path, split: str) -> None:
    for part, ids in (("train", [3, 0]), ("valid", [2]), ("test", [1])):
        table(folder / "split" / split / f"{part}.csv.gz", np.array(ids))


def write_ogb(root: Path, folder: str, split: str) -> None:
    """Every edge once, in one direction, as OGB stores ogbn-products; ogbn-arxiv looks the same."""
    table(root / folder / "raw" / "edge.csv.gz", np.array([[0, 1], [2, 1], [2, 3]]))
    table(root / folder / "raw" / "node-feat.csv.gz", X)
    table(root / folder / "raw" / "node-label.csv.gz", np.array([0, 1, 2, 1]))
    write_split(root / folder, split)


def write_papers(root: Path) -> None:
    folder = root / "ogbn_papers100M"
    write_split(folder, "time")
    (folder / "raw").mkdir()
    edges = np.array([[0, 2, 2, 3], [1, 1, 3, 4]])
    counts: dict[str, Any] = {
        "num_nodes_list": np.array([5]),
        "num_edges_list": np.array([4]),
        "node_year": np.zeros((5, 1)),
    }
    np.savez(folder / "raw" / "data.npz", edge_index=edges, node_feat=np.vstack([X, X[:1]]), **counts)
    np.savez(folder / "raw" / "node-label.npz", node_label=np.array([[0.0], [1], [2], [1], [np.nan]], np.float32))
