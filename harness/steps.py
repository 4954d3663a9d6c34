"""What a long preparation is doing, for whoever wants to say so: loading a graph, cutting it.

The code that does it names its step; a command listens. Where nobody does, as in ranks and workers, nothing happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


FEW_EDGES = 200_000
"""Directed edges below which a graph is generated and cut in about a second, and nothing is said of it."""


def begin_step(what: str, num_edges: int) -> None:
    """Tell the listener, if there is one, what begins now; nothing of graphs of less than `FEW_EDGES`.

    Args:
        what: one line, such as "loading synthetic:nodes=100000".
        num_edges: directed edges of the graph.
    """
    say = _listener.get()
    if say is not None and num_edges >= FEW_EDGES:
        say(what)


@contextmanager
def steps_told(say: Callable[[str], None]) -> Iterator[None]:
    """Meanwhile `say` gets a line for every step that begins in this context."""
    token = _listener.set(say)
    try:
        yield
    finally:
        _listener.reset(token)
