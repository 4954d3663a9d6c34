"""The five papers in their order, the studies of accuracy, and every table and figure by its key ("sylvie/table3")."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module

from harness.errors import unknown
from reports.core.context import Context
from reports.core.table import Item

Make = Callable[[Context], Item]


@dataclass(frozen=True)
class Paper:
    """A paper's key (as in `reports/published`), its title, and the module with its `TABLES` and `FIGURES`."""

    key: str
    title: str
    module: str

    def items(self) -> dict[str, Make]:
        """Full key -> function, tables before figures."""
        module = import_module(self.module)
        return {f"{self.key}/{name}": make for name, make in {**module.TABLES, **module.FIGURES}.items()}


PAPERS = {
    paper.key: paper
    for paper in (
        Paper("ec-graph", "EC-Graph: error-compensated messages", "reports.ec_graph"),
        Paper("subgraph-approximation", "Subgraph approximation", "reports.subgraph_approximation"),
        Paper("sylvie", "Sylvie: one-bit messages, bounded staleness", "reports.sylvie"),
        Paper("bns-gcn", "BNS-GCN: sampled boundary nodes", "reports.bns_gcn"),
        Paper("cdfgnn", "CDFGNN: vertex cuts with an adaptive cache", "reports.cdfgnn"),
        Paper("study", "Claims on accuracy, with intervals and power", "reports.study"),
    )
}


def everything() -> dict[str, Make]:
    """Every table and figure, paper by paper."""
    return {key: make for paper in PAPERS.values() for key, make in paper.items().items()}


def chosen(only: Sequence[str]) -> list[str]:
    """The keys selected by a list of keys ("sylvie/table3") and papers ("bns-gcn"), in the report's order.

    Raises:
        InputError: a name that is neither; the nearest one is named.
    """
    keys = list(everything())
    for name in only:
        if name not in keys and name not in PAPERS:
            raise unknown("table, figure or paper", name, [*keys, *PAPERS])
    return [key for key in keys if not only or key in only or key.partition("/")[0] in only]


def by_paper(keys: Sequence[str]) -> Iterator[tuple[Paper, list[str]]]:
    """Papers that have some of the keys, with those."""
    for paper in PAPERS.values():
        mine = [key for key in keys if key.partition("/")[0] == paper.key]
        if mine:
            yield paper, mine
