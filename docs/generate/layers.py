"""The layers of every package: its folders and loose files from the lowest up. `tests/test_house.py` checks them."""

from __future__ import annotations

FLOORS = {
    "harness": (
        ("errors", "lazily", "numbers", "steps", "user_cache"),
        ("keys",),
        ("effects", "config", "registry"),
        ("traffic", "machine", "kernels"),
        ("rank",),
        ("tape", "trampoline", "rendezvous", "graphs", "static_epochs"),
        ("loopback", "codecs", "datasets", "nn"),
        ("partition", "exchanges"),
        ("workloads", "sampling"),
        ("methods",),
        ("running",),
        ("conformance", "trackers"),
        ("console",),
        ("commands", "cli", "__main__"),
    ),
    "sims": (
        ("units",), ("records",), ("cluster",), ("device",), ("network",), ("transport",), ("engine",), ("replay",),
        ("study", "published", "uncertainty"), ("explain",),
    ),
    "real": (("rank", "lab"), ("launch",), ("measure",), ("__main__",)),
    "reports": (
        ("statistics", "live"), ("core",), ("draw",), ("study", "advice"), ("bns_gcn",),
        ("sylvie", "ec_graph", "cdfgnn", "subgraph_approximation"), ("whole",),
    ),
}  # fmt: skip
"""Package -> its layers, the lowest first; a layer imports from lower ones only."""


def room_of(module: str) -> tuple[str, str]:
    """Package of a module, and the folder or loose file below it ("" for the package itself)."""
    package, _, rest = module.partition(".")
    return package, rest.partition(".")[0]


def floor_of(module: str) -> int:
    """The number of a module's layer inside its package.

    Raises:
        LookupError: the folder or loose file stands in no layer.
    """
    package, room = room_of(module)
    for number, rooms in enumerate(FLOORS[package]):
        if room in rooms:
            return number
    raise LookupError(f"{package}/{room} stands in no layer: add it to FLOORS[{package!r}] in docs/generate/layers.py")
