"""State that one epoch of a method keeps for the next: error feedback, caches, stale halos."""

from __future__ import annotations

from typing import Any

Memory = dict[str, Any]
"""A tree: str -> Tensor or Memory. Entries are replaced, never written into: a tensor may be shared. Between
`Method.settle` and the next epoch it contains nothing else; during an epoch also handles of started effects."""
