"""What one epoch of a method leaves for the next: error feedback, caches, stale halos."""

from __future__ import annotations

from typing import Any

Memory = dict[str, Any]
"""A tree: str -> Tensor or Memory. Entries are replaced, never written into: a tensor may be held elsewhere. Between
`Method.settle` and the next epoch it holds nothing else; an effect in flight may stand in it meanwhile."""
