"""`pyg:NAME` and `ogb:NAME`: finds the raw files of a public graph, or downloads them.

A dataset is searched in the data folder, or in `root=` of the name (`pyg:Reddit,root=/data`), in the layout of PyG and
OGB. Only `download_missing` and `load_external` download; of several processes one does, and the others wait. The
files are read by `_raw`.
"""

from __future__ import annotations

import http.client
import logging
import os
import shutil
import urllib.request
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from harness.datasets import _npz as npz
from harness.datasets import _raw as raw
from harness.errors import InputError, unknown
from harness.graphs import Graph
from harness.machine import building, hidden_name, machine_in_name, replacing, this_machine

_ARCHIVE = "download.zip"
_SECONDS = 60  # without any byte until a download counts as failed
_OGB = "https://snap.stanford.edu/ogb/data/nodeproppred"
_DRIVE = "https://drive.usercontent.google.com/download?confirm=t&id="
_PLANETOID = "https://github.com/kimiyoung/planetoid/raw/master/data"


@dataclass(frozen=True)
class Source:
    """One public graph: its folder under the data folder, the files in it, a reader, and their origin.

    `urls` has one address per file; `archive` is one zip with all of them. `ours` names an npz file that has
    precedence. `by_hand` marks an archive that is too large to download automatically.
    """

    what: str
    folder: str
    files: tuple[str, ...]
    read: raw.Reader
    urls: dict[str, str] = field(default_factory=dict)
    archive: str = ""
    ours: str = ""
    by_hand: bool = False


def _planetoid(name: str) -> Source:
    files = tuple(
        f"ind.{name.lower()}.{part}" for part in ["x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"]
    )
    urls = {f"raw/{file}": f"{_PLANETOID}/{file}" for file in files}
    return Source("citation graph, public split", name, tuple(urls), _in_raw(raw.planetoid), urls, ours=name.lower())


def _saint(name: str, what: str, ids: str) -> Source:
    """`ids` are the Google Drive ids of the four files, as in PyG."""
    files = ("raw/adj_full.npz", "raw/feats.npy", "raw/class_map.json", "raw/role.json")
    urls = dict(zip(files, (_DRIVE + key for key in ids.split()), strict=True))
    return Source(what, name, files, _in_raw(raw.saint), urls)


def _ogb(folder: str, what: str, split: str, archive: str, note: str = "") -> Source:
    tables = ("edge", "node-feat", "node-label")
    files = (*(f"raw/{name}.csv.gz" for name in tables), *_split_files(split))
    return Source(what, folder, files, raw.ogb_csv(split, note), archive=f"{_OGB}/{archive}")


def _split_files(split: str) -> tuple[str, ...]:
    return tuple(f"split/{split}/{part}.csv.gz" for part in ("train", "valid", "test"))


def _in_raw(read: raw.Reader) -> raw.Reader:
    return lambda name, folder: read(name, folder / "raw")


_CITES = "directed citations were made undirected"
GRAPHS = {
    **{f"pyg:{name}": _planetoid(name) for name in ("Cora", "CiteSeer", "PubMed")},
    "pyg:Reddit": Source(
        "232,965 nodes, 114,615,892 edges, public split",
        "Reddit",
        ("raw/reddit_data.npz", "raw/reddit_graph.npz"),
        _in_raw(raw.raw_reddit),
        archive="https://data.dgl.ai/dataset/reddit.zip",
    ),
    "pyg:Reddit2": _saint(
        "Reddit2",
        "Reddit with a fifth of the edges, 232,965 nodes, 23,213,838 edges, public split",
        "1sncK996BM5lpuDf75lDFqCiDZyErc1c2 1ZsHaJ0ussP1W722krmEIp_8pwKAoi5b3"
        " 1JF3Pjv9OboMNYs2aXRQGbJbc4t_nDd5u 1nJIKd77lcAGU4j-kVNx_AIGEkveIKz3A",
    ),
    "pyg:Flickr": _saint(
        "Flickr",
        "89,250 nodes, 899,756 edges, public split",
        "1crmsTbd1-2sEXsGwa2IKnIB7Zd3TmUsy 1join-XdvX3anJU_MLVtick7MgeAQiWIZ"
        " 1uxIkbtg5drHTsKt-PAsZZ4_yJmgFmle9 1htXCtuktuCW8TR8KiKfrFDAxUgekQoV7",
    ),
    "pyg:Yelp": _saint(
        "Yelp",
        "716,847 nodes, 13,954,819 edges, multi-label, public split",
        "1Juwx8HtDwSzmVIJ31ooVa1WljI4U5JnA 1Zy6BZH_zLEjKlEFSduKE5tV9qqA_8VtM"
        " 1VUcBGr0T0-klqerjAjxRmAqFuld_SMWU 1NI5pa5Chpd-52eSmLW60OnB3WS5ikxq_",
    ),
    "pyg:AmazonProducts": _saint(
        "AmazonProducts",
        "1,569,960 nodes, 264,339,468 edges, multi-label, public split",
        "17qhNA8H1IpbkkR-T2BmPQm8QNW5do-aa 10SW8lCvAj-kb6ckkfTOC5y0l8XXdtMxj"
        " 1LIl4kimLfftj4-7NmValuWyCQE8AaE7P 1npK9xlmbnjNkV80hK2Q68wTEVOFjnt4K",
    ),
    "ogb:ogbn-arxiv": _ogb("ogbn_arxiv", "169,343 nodes, public split", "time", "arxiv.zip", _CITES),
    "ogb:ogbn-products": _ogb(
        "ogbn_products", "2,449,029 nodes, 123,718,024 edges, public split", "sales_ranking", "products.zip"
    ),
    "ogb:ogbn-papers100M": Source(
        "111,059,956 nodes, public split",
        "ogbn_papers100M",
        ("raw/data.npz", "raw/node-label.npz", *_split_files("time")),
        raw.ogb_binary("time", _CITES),
        archive=f"{_OGB}/papers100M-bin.zip",
        by_hand=True,
    ),
}


def load_external(dataset: str, data: Path) -> Graph:
    """The public graph `pyg:NAME` or `ogb:NAME` (optionally `,root=FOLDER`), from `data` or downloaded into it.

    Raises InputError for an unknown name, a damaged file, and for files that are missing and cannot be downloaded:
    the message names the file and the folder to put it into.
    """
    name, source, folders = _named(dataset, data)
    ours = data / f"{source.ours}.npz"
    if source.ours and ours.is_file():
        return npz.read_graph(ours)
    folder = _found(source, folders) or _downloaded(name, source, folders)
    return source.read(name.partition(":")[2], folder)


def download_missing(dataset: str, data: Path) -> None:
    """Download what `load_external` would have to; errors are the same."""
    if not files(dataset, data):
        _downloaded(*_named(dataset, data))


def known_external(data: Path) -> list[tuple[str, str, bool]]:
    """(name, description, whether its files are in `data`) of every graph that `load_external` knows."""
    rows = []
    for name, source in GRAPHS.items():
        here = (
            _found(source, (data / source.folder,)) is not None
            or bool(source.ours)
            and (data / f"{source.ours}.npz").is_file()
        )
        missing = f"; files go to {source.folder}/{os.path.dirname(source.files[0])}"
        rows.append((name, source.what + ("" if here else missing), here))
    return rows


def files(dataset: str, data: Path) -> list[Path]:
    """The files that `load_external` would read now; empty if it would have to download."""
    _, source, folders = _named(dataset, data)
    ours = data / f"{source.ours}.npz"
    if source.ours and ours.is_file():
        return [ours]
    folder = _found(source, folders)
    return [] if folder is None else [folder / file for file in source.files]


def _named(dataset: str, data: Path) -> tuple[str, Source, tuple[Path, ...]]:
    """Exact name, source, and the folders to search: under `data`, or under `root=` and that folder itself."""
    name, comma, rest = dataset.partition(",")
    exact = {known.lower(): known for known in GRAPHS}.get(name.strip().lower())
    if exact is None:
        raise unknown("dataset", name, GRAPHS)
    if comma and (not rest.startswith("root=") or rest == "root="):
        raise InputError(f"{dataset}: after the name only root=FOLDER is understood, not {rest!r}")
    source, root = GRAPHS[exact], Path(rest.removeprefix("root="))
    return exact, source, (root / source.folder, root) if comma else (data / source.folder,)


def _found(source: Source, folders: tuple[Path, ...]) -> Path | None:
    """The first folder with every file, or None."""
    whole = (folder for folder in folders if all((folder / file).is_file() for file in source.files))
    return next(whole, None)


def _downloaded(name: str, source: Source, folders: tuple[Path, ...]) -> Path:
    """The first of the folders, complete: by this process, or by another one that was waited for."""
    if source.by_hand:
        _complete(name, source, folders[0])
    with building(folders[0]):
        found = _found(source, folders)
        if found is None:
            _complete(name, source, folders[0])
        return found or folders[0]


def _complete(name: str, source: Source, folder: Path) -> None:
    """Download files that `folder` lacks. Raises InputError that names them if that is not possible."""
    missing = [file for file in source.files if not (folder / file).is_file()]
    origin = source.archive or source.urls[missing[0]] + (" and so on" if len(missing) > 1 else "")
    advice = f"put {', '.join(missing)} into {folder} (from {origin})"
    if source.by_hand:
        raise InputError(f"{name} is not in {folder.parent}, and too large to download unasked: {advice}")
    logging.getLogger("haloscope").warning("downloading %s into %s", name, folder)
    try:
        if source.archive:
            _unpack(source.archive, folder, missing)
        for file in missing if source.urls else ():
            _fetch(source.urls[file], folder / file)
    except (OSError, ValueError, http.client.HTTPException, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{name} is not in {folder.parent} and the download failed ({reason}): {advice}") from error


def _fetch(url: str, path: Path) -> None:
    with urllib.request.urlopen(url, timeout=_SECONDS) as answer:
        if answer.headers.get_content_type() == "text/html":  # a quota or consent page instead of the file
            raise OSError(f"{url} returned a web page")
        promised = answer.headers.get("Content-Length", "")
        _write(answer, path, int(promised) if promised.isdigit() else None, url)


def _unpack(url: str, folder: Path, wanted: list[str]) -> None:
    """Extract the wanted files from a zip, matched by the end of their path, or by name in a zip without folders."""
    for left in folder.glob(f".*{_ARCHIVE}.*"):
        if machine_in_name(left) == this_machine():  # of a process that was killed: the lock is ours
            left.unlink(missing_ok=True)
    archive = hidden_name(folder / _ARCHIVE)  # of its own: where locks hold on one host only, others download as well
    try:
        _fetch(url, archive)
        with zipfile.ZipFile(archive) as members:
            for file in wanted:
                ends = (f"/{file}", f"/{os.path.basename(file)}")
                inside = next((m for end in ends for m in members.namelist() if f"/{m}".endswith(end)), None)
                if inside is None:
                    raise ValueError(f"{url} has no {file}")
                with members.open(inside) as content:
                    _write(content, folder / file, members.getinfo(inside).file_size, url)
    finally:
        archive.unlink(missing_ok=True)


def _write(content: IO[bytes], path: Path, size: int | None, url: str) -> None:
    """Write a file of `size` bytes, where that is known. A download that is cut short raises OSError, and no file is
    left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        shutil.copyfileobj(content, file, 1 << 20)
        if size is not None and file.tell() != size:
            raise OSError(f"{url} ended after {file.tell():,} of {size:,} bytes")
