"""Where everything stands on the page: anchors that stay when other rows come or go, and where each claim counts."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from reports.core.claims import distinct_claims
from reports.core.table import Item, Ordering, Outcome, Row
from reports.whole.papers import PAPERS, Paper
from reports.whole.produce import Entry

LONGEST = 64  # characters of a name in an anchor; what is longer ends with a digest of the whole
NO_CLAIM = "no claim"


def slug(text: str) -> str:
    """Text as part of an address: small letters, digits and hyphens."""
    plain = unicodedata.normalize("NFKD", text.lower())
    name = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    if len(name) <= LONGEST:
        return name
    return f"{name[:LONGEST].rstrip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def item_anchor(key: str) -> str:
    """The anchor of a table or figure."""
    return key.replace("/", "-")


def list_anchor(paper: Paper, outcome: Outcome) -> str:
    """The anchor of the list of a paper's claims of one outcome."""
    return f"{paper.key}-{slug(outcome)}"


def state_of(paper: str = "", verdict: str = "", at: str = "") -> str:
    """The part of the address behind # that filters the page, and the place to go to."""
    given = {"paper": paper, "verdict": verdict, "at": at}
    return "&".join(f"{name}={value}" for name, value in given.items() if value)


def verdict_of(claim: Row | Ordering) -> str:
    """The outcome of a claim; `NO_CLAIM` for inputs, fitted numbers, and numbers that only orderings judge."""
    return claim.outcome or NO_CLAIM


class Anchors:
    """The anchor of every row and ordering of a report, and whether a claim counts there or in another place.

    An anchor is made of what names the row, not of its position: a link stays right when the table grows.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._rows: dict[str, list[str]] = {}
        self._orderings: dict[str, list[str]] = {}
        self._of: dict[int, str] = {}
        self._counted: set[int] = set()
        for entry in entries:
            if entry.item is not None:
                self._name(entry.key, entry.item)
        for paper in PAPERS:
            items = (entry.item for entry in entries if entry.item is not None and entry.paper == paper)
            self._counted.update(id(claim) for _, (_, claim) in distinct_claims(items))

    def _name(self, key: str, item: Item) -> None:
        taken: Counter[str] = Counter()

        def free(*names: str) -> str:
            anchor = "--".join([item_anchor(key), *(slug(name) or "row" for name in names)])
            taken[anchor] += 1
            return anchor if taken[anchor] == 1 else f"{anchor}--{taken[anchor]}"

        self._rows[key] = [free(row.label, row.quantity) for row in item.rows]
        self._orderings[key] = [free("order", ordering.text) for ordering in item.orderings]
        claims, anchors = (*item.rows, *item.orderings), (*self._rows[key], *self._orderings[key])
        for claim, anchor in zip(claims, anchors, strict=True):
            self._of.setdefault(id(claim), anchor)

    def rows(self, key: str) -> list[str]:
        """The anchors of an item's rows, in their order."""
        return self._rows[key]

    def orderings(self, key: str) -> list[str]:
        """The anchors of an item's orderings, in their order."""
        return self._orderings[key]

    def of(self, claim: Row | Ordering) -> str:
        """The anchor of a row or ordering that is on the page."""
        return self._of[id(claim)]

    def attributes(self, claim: Row | Ordering, anchor: str) -> str:
        """Its anchor and verdict as attributes, and whether it is the place of its paper where the claim counts."""
        counts = " data-counts" * (id(claim) in self._counted and claim.outcome is not None)
        return f' id="{anchor}" data-verdict="{slug(verdict_of(claim))}"{counts}'

    def repeats(self, claim: Row | Ordering) -> bool:
        """Whether it is a claim that counts in another place of its paper."""
        return claim.outcome is not None and id(claim) not in self._counted
