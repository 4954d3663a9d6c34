"""Tells that a cut is made again because its partitioner's code is not what a kept cut was made by."""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import suppress
from typing import Any

from harness.errors import InputError
from harness.graphs import Graph
from harness.machine import cache_root, kept_json, write_atomically


def tell_of_changed_code(graph: Graph, settings: dict[str, Any]) -> None:
    """Warn in one line if the cut of `graph` was last made by other code; call where it is made.

    The code that made a cut last is kept in the cache folder, by graph and settings.

    Args:
        settings: of the cut, with `code`, `partitioner` and `num_parts`.
    """
    others = {key: value for key, value in settings.items() if key != "code"}
    key = json.dumps([graph.fingerprint(), others], sort_keys=True)
    path = cache_root() / "partition-code" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
    before = kept_json(path, str)
    if before == settings["code"]:
        return
    if before is not None:
        logging.getLogger("haloscope").warning(
            "%s: the code of partitioner %s has changed since the graph was cut into %d parts; it is cut again",
            graph.name, settings["partitioner"].partition(":")[0], settings["num_parts"],
        )  # fmt: skip
    with suppress(OSError, InputError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(settings["code"]).encode(), durable=False)
