"""Stand-ins whose parameters were fitted to printed scores: one TOML file each, with where everything came from.

`haloscope standin fit NAME` writes the files; they are data, and this module only reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from harness import keys
from harness.datasets._recipe import Recipe

STANDINS = Path(__file__).with_name("standins")


@dataclass(frozen=True, kw_only=True)
class FittedScore:
    """A printed score that the parameters were fitted to, and what training on the stand-in gives."""

    what: str = keys.key("full: exact training; isolated: training that lacks boundary nodes or samples")
    method: str = keys.key("the method that was trained")
    parts: int = keys.key("partitions")
    source: str = keys.key("the table and the row that print the score")
    printed: float = keys.key("the score as printed", unit="per cent")
    ours: float = keys.key("test score at the best validation, mean over the seeds", unit="per cent")
    half_width: float | None = keys.key(
        "of the 95 % interval of that mean; none of one seed", unit="points", default=None
    )

    @property
    def label(self) -> str:
        """How texts call it: the second score is not always of isolated parts, so its method is said."""
        return self.what if self.what == "full" else self.method


@dataclass(frozen=True, kw_only=True)
class FitRecord:
    """How the parameters of a stand-in were found."""

    state: Literal["reached", "nearest"] = keys.key(
        "reached: both scores are as close as asked; else the nearest found"
    )
    command: str = keys.key("the command that fitted it")
    training: str = keys.key("settings of `haloscope run` that the scores are of")
    evaluations: int = keys.key("points of the search that were trained")
    seeds: int = keys.key("graphs and initial weights per point")
    code: str = keys.key("hashes of the code that trained, one of each method")
    note: str = keys.key("what differs from the paper's set-up", default="")


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """A fitted stand-in.

    Attributes:
        graph: parameters that were set, `fitted` those that were found; together the recipe.
        scores: what they were fitted to.
        fit: how.
    """

    graph: dict[str, Any] = keys.key("parameters that were set, as in `synthetic:`, with `split` and `standin`")
    fitted: dict[str, float] = keys.key("parameters that were found")
    scores: list[FittedScore] = keys.key("the printed scores, and ours", default=[])
    fit: FitRecord = keys.key("how they were found")
    name: str = field(default="")

    def recipe(self) -> Recipe:
        """All parameters of the graph. Raises InputError for one that does not exist."""
        found = keys.convert({**self.graph, **self.fitted}, Recipe, f"stand-in {self.name}")
        return replace(found, fitted=self.name)

    def described(self) -> str:
        """One line for the list of data sets."""
        recipe = self.recipe()
        size = f"{recipe.nodes:,} nodes, {round(recipe.nodes * recipe.degree):,} edges"
        scores = " and ".join(f"{s.label} {s.ours:.2f} (printed {s.printed:.2f})" for s in self.scores)
        state = "fitted" if self.fit.state == "reached" else "nearest that was found, not reached"
        many = ", multi-label" * recipe.multilabel
        return f"stand-in for {recipe.standin}: {size}{many}; {state}: {scores}; scale=0.9 shrinks it"


def read_standin(path: Path) -> StandIn:
    """A stand-in's file. Raises InputError where it is damaged; the message names the file."""
    values = keys.read_table(path, "file of a stand-in")
    return replace(keys.convert(values, StandIn, path.name), name=path.stem)


def read_standins(folder: Path | None = None) -> dict[str, StandIn]:
    """Every fitted stand-in by name; those of the project where no folder is given."""
    return {path.stem: read_standin(path) for path in sorted((folder or STANDINS).glob("*.toml"))}


def fitted_recipes() -> dict[str, Recipe]:
    """Name -> recipe of every fitted stand-in."""
    return _recipes(tuple((path, path.stat().st_mtime_ns) for path in sorted(STANDINS.glob("*.toml"))))


@cache
def _recipes(files: tuple[tuple[Path, int], ...]) -> dict[str, Recipe]:
    return {path.stem: read_standin(path).recipe() for path, _ in files}
