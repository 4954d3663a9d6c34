"""Claims on accuracy as data: which paper, which sentence, which two rows, on which graph, and when it holds.

A file of `claims/` holds those of one paper, a user's own file those of theirs. Printed scores are looked up
(`_printed`); a file names tables and rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness import keys
from harness.errors import InputError, unknown
from reports.statistics import Band, above, within
from reports.study._cells import RunLine, StudyCell
from reports.study._margins import Margin, Scatter, printed_margin
from reports.study._metrics import (
    BYTES,
    BYTES_TO_TARGET,
    DROP,
    METRICS,
    OSCILLATION,
    RATIOS,
    TO_BEST,
    TO_TARGET,
    check_metric,
    gap_of,
    log_ratio,
    resolution_of,
)
from reports.study._printed import printed_score
from reports.study._standins import SHARED, design_of

CLAIMS = Path(__file__).with_name("claims")
JudgeKind = Literal["order", "size", "no worse", "level"]
LARGEST_LOSS = "largest printed loss"
SMALLEST_MARGIN = 0.1  # points; printed scores have two decimals and scatter by more
USUAL_PRECISION = 0.5
"""Width of the interval that is asked for, end to end, as a share of the printed difference or of twice the margin.

From a difference as printed (of margins: from none) to the edge of the band it is then twice half of the interval."""
UNPRINTED = 1.0  # width of an interval that is asked for where no difference is printed; points
UNPRINTED_OTHERS = {DROP: 0.2, OSCILLATION: 0.2, BYTES: 5.0} | dict.fromkeys(
    (TO_BEST, TO_TARGET, BYTES_TO_TARGET), 20.0
)  # the same, of other metrics: points, and per cent


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two things that a claim compares."""

    method: str = keys.key("the method and its options")
    table: str = keys.key("the published table that prints its score, where it is not the claim's", default="")
    where: dict[str, Any] = keys.key("column -> value of the row that prints its score", default={})
    settings: dict[str, Any] = keys.key("settings of its runs", default={})


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One or several claims of the same sentence on several graphs."""

    name: str = keys.key("short name, such as the figure and what it shows")
    text: str = keys.key("what is claimed")
    judge: list[str] = keys.key(
        "order: first is ahead; size: by as much as printed; no worse, level: within the margin"
    )
    first: Side = keys.key("what is claimed to be better, or no worse")
    second: Side = keys.key("what it is compared with")
    each: list[dict[str, Any]] = keys.key("columns (dataset, partitions, model) of every graph that it is claimed of")
    table: str = keys.key("the published table that prints both scores; empty where none is printed", default="")
    reduction: dict[str, Any] = keys.key(
        "column -> value of the one row that prints by how many per cent the second is below the first", default={}
    )
    metric: str = keys.key(f"{' | '.join(METRICS)}: what of a run is compared", default="test")
    target_below: float | None = keys.key(
        "of a target: points below the best test score that the second reaches with the same seed", default=None
    )
    margin: float | str = keys.key(f"points, or {LARGEST_LOSS!r} in the table", default=0.0)
    margin_from: str = keys.key("why this margin", default="")
    settings: dict[str, Any] = keys.key("settings of the runs of both", default={})


@dataclass(frozen=True, kw_only=True)
class GraphPlace:
    """The graph that stands for a published one."""

    standin: str = keys.key("name of a stand-in; its design gives the settings", default="")
    dataset: str = keys.key("name of any other graph; beside `standin`, the stand-in with other parameters", default="")
    settings: dict[str, Any] = keys.key("settings of the runs, over the design's", default={})


@dataclass(frozen=True, kw_only=True)
class ClaimFile:
    """A file of claims."""

    paper: str = keys.key("key of the paper, or any name")
    graphs: dict[str, Any] = keys.key(
        'published name of a graph, or "GRAPH, MODEL" for one model alone -> what it is trained on'
    )
    claims: list[dict[str, Any]] = keys.key("what is claimed")
    models: dict[str, dict[str, Any]] = keys.key("published name of a model -> settings", default={})
    title: str = keys.key("what the study is about, in a few words", default="")
    matters: str = keys.key("for whom its answers matter", default="")
    remarks: str = keys.key("what readers of its verdicts have to know", default="")
    scatter: dict[str, dict[str, Any]] = keys.key(
        "published name of a graph -> rows that print how far its scores scatter, where a claim's own rows do not",
        default={},
    )


def drawn(standin: str, seed: int, scale: float = 1.0) -> str:
    """The graph of a seed: a stand-in is drawn anew for each."""
    return ",".join([standin, *([f"scale={scale:g}"] if scale != 1 else []), f"seed={seed}"])


@dataclass(frozen=True, kw_only=True)
class AccuracyClaim:
    """One claim, to be judged by itself.

    Attributes:
        key: "sylvie/Table 2, reddit, GCN (order)".
        band: differences (first - second) at which it holds.
        difference: the printed difference; None where none is printed.
        width: of the interval that is asked for, from end to end, at the usual precision.
        settings: of both sides, without seed.
        standin: the stand-in that it needs; "" for another graph.
        margin_from: where the band's ends come from; of "order" the smallest difference that counts.
        below: points of the target below the best score of the second; None where there is no target.
    """

    key: str
    text: str
    judge: JudgeKind
    band: Band
    difference: float | None
    width: float
    settings: tuple[Mapping[str, Any], Mapping[str, Any]]
    metric: str = "test"
    standin: str = ""
    margin_from: str = ""
    below: float | None = None

    def width_at(self, precision: float) -> float:
        """Of the interval that is asked for at another precision."""
        return self.width * precision / USUAL_PRECISION

    def cells(self, seed: int, scale: float = 1.0) -> tuple[StudyCell, StudyCell]:
        """The two runs of a seed; a stand-in is drawn anew for every seed."""
        first, second = (
            StudyCell({**one, "dataset": self._dataset(one, seed, scale), "seed": seed}) for one in self.settings
        )
        return first, second

    def _dataset(self, settings: Mapping[str, Any], seed: int, scale: float) -> str:
        name = str(settings["dataset"])
        return drawn(name, seed, scale) if self.standin else name

    def gap(self, first: RunLine, second: RunLine) -> float:
        """First minus second: points, or per cent for bytes and epochs (`gap_of`)."""
        return gap_of(self.metric, first, second, self.below or 0.0)

    def resolution(self, first: RunLine, second: RunLine) -> float:
        """The step in which the difference can change."""
        return resolution_of(self.metric, first, second, self.below or 0.0)

    @property
    def unit(self) -> str:
        """Of the difference."""
        return "%" if self.metric in RATIOS else "points"


def names() -> list[str]:
    """The studies that come with the project."""
    return sorted(path.stem for path in CLAIMS.glob("*.toml"))


def file_of(name: str) -> Path:
    """The file of a study: of its name, or a path. Raises InputError where there is none."""
    if name.endswith(".toml"):
        if not Path(name).is_file():
            raise InputError(f"{name}: no such file of claims")
        return Path(name)
    if name not in names():
        raise unknown("study", name, names())
    return CLAIMS / f"{name}.toml"


def read_file(path: Path) -> ClaimFile:
    """A file of claims, of which every table is still to be read. Raises InputError for a damaged one."""
    return keys.convert(keys.read_table(path, "file of claims"), ClaimFile, path.name)


def read_claims(path: Path) -> list[AccuracyClaim]:
    """Every claim of a file.

    Raises:
        InputError: a damaged file, an unknown key, table, row, graph, model or stand-in.
    """
    file = read_file(path)
    graphs = {
        name: keys.convert(place, GraphPlace, f"{path.name}: graphs.{name}") for name, place in file.graphs.items()
    }
    statements = [keys.convert(one, Statement, f"{path.name}: claims[{at}]") for at, one in enumerate(file.claims)]
    found = [claim for statement in statements for claim in _claims(file, graphs, statement)]
    doubles = {claim.key for claim in found if sum(claim.key == other.key for other in found) > 1}
    if doubles:
        raise InputError(f"{path.name}: two claims are called {min(doubles)!r}")
    return found


def _claims(file: ClaimFile, graphs: Mapping[str, GraphPlace], statement: Statement) -> Iterator[AccuracyClaim]:
    if statement.metric not in METRICS:
        raise unknown(f"metric of claim {statement.name}:", statement.metric, METRICS)
    wrong = check_metric(statement.metric, statement.target_below)
    if wrong:
        raise InputError(f"claim {statement.name}: {wrong}")
    rows = [(each, _difference(statement, each)) for each in statement.each]
    stated = _margin(statement, [difference for _, difference in rows if difference is not None])
    scatters = {name: keys.convert(one, Scatter, f"scatter.{name}") for name, one in file.scatter.items()}
    for each, difference in rows:
        place = _place(graphs, each, file.paper)
        settings = _settings(file, statement, place, each)
        on = ", ".join(f"{value} parts" if key == "partitions" else str(value) for key, value in each.items())
        printed = _uncertainty(file, statement, each, scatters) if difference is not None else None
        for judge in statement.judge:
            band, width, margin_from = _judged_by(judge, difference, stated, printed, statement)
            yield AccuracyClaim(
                key=f"{file.paper}/{statement.name}, {on} ({judge})", text=f"{statement.text}: {on}", judge=judge,  # type: ignore[arg-type]
                band=band, difference=difference, width=width, settings=settings, metric=statement.metric,
                standin=place.standin, margin_from=margin_from, below=statement.target_below,
            )  # fmt: skip


def _place(graphs: Mapping[str, GraphPlace], each: Mapping[str, Any], paper: str) -> GraphPlace:
    """The graph of "DATASET, MODEL" where a file has one for a model alone, else that of the data set."""
    dataset = str(each.get("dataset", ""))
    own = graphs.get(f"{dataset}, {each.get('model')}")
    return own if own is not None else _named(graphs, dataset, f"graph in the claims of {paper}")


def _uncertainty(
    file: ClaimFile, statement: Statement, each: Mapping[str, Any], scatters: Mapping[str, Scatter]
) -> Margin | None:
    """How far the printed difference of a claim may be off; None where its paper prints no two scores."""
    if statement.metric in RATIOS or statement.reduction:
        return None
    rows = [(side.table or statement.table, {**each, **side.where}) for side in (statement.first, statement.second)]
    return printed_margin(file.paper, (rows[0], rows[1]), scatters.get(str(each.get("dataset", ""))))


def _difference(statement: Statement, each: Mapping[str, Any]) -> float | None:
    """First minus second as printed; a row of a side wins over the columns of `each`. None where none is printed."""
    if statement.reduction:
        if statement.metric not in RATIOS:
            raise InputError(f"claim {statement.name}: reduction goes with {', '.join(RATIOS)}")
        return round(log_ratio(100.0, 100.0 - printed_score(statement.table, statement.reduction)), 4)
    found: list[float] = []
    for side in (statement.first, statement.second):
        table = side.table or statement.table
        if not table:
            return None
        found.append(printed_score(table, {**each, **side.where}))
    return round(log_ratio(*found) if statement.metric in RATIOS else found[0] - found[1], 4)


def _margin(statement: Statement, differences: list[float]) -> Margin:
    """The margin of "no worse" and "level" that the file states."""
    if statement.margin == LARGEST_LOSS:
        points = round(max(SMALLEST_MARGIN, *(-difference for difference in differences)), 4)
        return Margin(points, f"the {LARGEST_LOSS} that the paper calls none, at least {SMALLEST_MARGIN:g}")
    if isinstance(statement.margin, str):
        raise InputError(f"claim {statement.name}: margin is a number of points or {LARGEST_LOSS!r}")
    return Margin(statement.margin, statement.margin_from)


def _judged_by(
    judge: str, difference: float | None, stated: Margin, printed: Margin | None, statement: Statement
) -> tuple[Band, float, str]:
    """The band of a claim, the width of the interval that it asks for, and where the band's ends come from."""
    if judge == "order":
        if difference is not None and difference <= 0:
            raise InputError(f"claim {statement.name}: first is not ahead as printed ({difference:+g})")
        width = UNPRINTED_OTHERS.get(statement.metric, UNPRINTED) if difference is None else difference / 2
        return above(least=round(width / 2, 4)), width, _least(difference)
    if judge == "size":
        if not difference:
            raise InputError(f"claim {statement.name}: no difference is printed, so that its size cannot be judged")
        margin = Margin(abs(difference) / 2, "half of the printed difference").or_wider(printed)
        return within(margin.points, difference), margin.points, margin.source
    if judge not in ("no worse", "level"):
        raise unknown(f"judge of claim {statement.name}:", judge, ("order", "size", "no worse", "level"))
    if stated.points <= 0:
        raise InputError(f"claim {statement.name}: {judge} needs a margin above 0")
    margin = stated.or_wider(printed)
    return (above(-margin.points) if judge == "no worse" else within(margin.points)), margin.points, margin.source


def _least(difference: float | None) -> str:
    """Where the smallest difference that counts comes from: half of the interval that is asked for."""
    if difference is None:
        return "a difference counts from half of the interval that is asked for"
    return "a difference counts from a quarter of the printed one"


def _settings(
    file: ClaimFile, statement: Statement, place: GraphPlace, each: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of both sides: the design's, the model's, the claim's, the side's, each over those before."""
    parts = {"parts": int(each["partitions"])} if "partitions" in each else {}
    both = {**_graph_settings(file, place, str(each.get("model", ""))), **parts, **statement.settings}
    first, second = ({**both, **side.settings, "method": side.method} for side in (statement.first, statement.second))
    return _placed(first), _placed(second)


def _graph_settings(file: ClaimFile, place: GraphPlace, model: str) -> dict[str, Any]:
    """Settings of all runs on a graph, with one of the file's models where it has some."""
    base = {**SHARED, **(design_of(place.standin).training if place.standin else {})}
    own = _named(file.models, model, "model") if model and file.models else {}
    return {**base, **place.settings, **own, "dataset": place.dataset or f"standin:{place.standin}"}


def run_settings(file: ClaimFile, dataset: str, model: str, run: Mapping[str, Any]) -> dict[str, Any]:
    """Settings, without seed, of a run on the stand-in of a published graph, as a claim of the file would have them.

    Args:
        dataset, model: published names; "" for a model where the file has none.
        run: settings over those of the graph: the method, and parts.

    Raises:
        InputError: a graph or model that the file does not have.
    """
    graphs = {name: keys.convert(place, GraphPlace, f"graphs.{name}") for name, place in file.graphs.items()}
    place = _place(graphs, {"dataset": dataset, "model": model}, file.paper)
    return _placed({**_graph_settings(file, place, model), **run})


def _placed(settings: dict[str, Any]) -> dict[str, Any]:
    """A method without parts has one, and no partitioner."""
    if settings["method"] != "single":
        return settings
    return {**{key: value for key, value in settings.items() if key != "partitioner"}, "parts": 1}


def _named(known: Mapping[str, Any], name: str, kind: str) -> Any:
    if name not in known:
        raise unknown(kind, name, known)
    return known[name]
