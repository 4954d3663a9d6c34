"""Parses `synthetic:` and `standin:` strings: the parameters of a generated graph, and the named sets of them.

Names after `synthetic:` have published statistics, those after `standin:` fitted parameters (`_standins`).
`_synthetic` generates the graph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from harness.errors import InputError, unknown
from harness.keys import key
from harness.registry import pairs

PREFIX, FITTED_PREFIX = "synthetic:", "standin:"


@dataclass(frozen=True)
class Recipe:
    """The parameters of a generated graph; every field but the last four can be set in the string.

    Attributes:
        fixed_homophily: the string sets homophily, so it is not lowered.
        split: shares of training, validation and test nodes; None without a split of its own.
        standin: name of the graph whose statistics these are.
        fitted: name of the stand-in whose parameters were fitted to printed scores.
    """

    nodes: int = key("number of nodes, 2 to 2^31 - 1", default=4000)
    degree: float = key("mean number of neighbours of a node", default=15.0)
    classes: int = key("number of classes", default=7)
    features: int = key("columns of the features", default=64)
    homophily: float = key(
        "share of edges whose ends lie in one community; lowered, with a note, if that many do not fit, unless it is "
        "given",
        default=0.65,
    )
    signal: float = key(
        "norm of the features' mean of a class, beside noise of deviation 1 in every feature; 0: features say nothing",
        default=0.6,
    )
    label_noise: float = key("share of nodes that get another class than their community's", default=0.0)
    communities: int = key(
        "number of communities, at most a third of the nodes; the class of a node is its community modulo `classes`; "
        "0: one per class",
        default=0,
    )
    agreement: float = key(
        "share of edges between nodes of one class, before label noise; where it exceeds `homophily`, so many edges "
        "more run between communities of one class (needs two communities a class), and the others between classes",
        default=0.0,
    )
    exponent: float = key(
        "exponent of the power law of expected degrees, above 2; larger: degrees are more alike", default=2.5
    )
    multilabel: int = key("1: nodes have related classes beside their main one, as indicators [N, C]", default=0)
    order: str = key(
        "how nodes are numbered: `random`, or `community` (those of a community in a row)", default="random"
    )
    seed: int = key("of everything that is drawn; equal lines give equal graphs on every machine", default=0)
    fixed_homophily: bool = False
    split: tuple[float, float, float] | None = None
    standin: str = ""
    fitted: str = ""


def _like(name: str, nodes: int, edges: int, split: tuple[float, float, float], **published: int) -> Recipe:
    recipe = Recipe(nodes, edges / nodes, homophily=0.8, split=split, standin=name)
    return dataclasses.replace(recipe, **published)  # type: ignore[arg-type]


# Nodes, directed edges (both directions counted), features, classes and split shares as published: EC-Graph, Table 3,
# for Reddit, ogbn-products and ogbn-papers100M (1.4 % of its nodes are in the split); BNS-GCN, Table 3, for the shares
# of Reddit, ogbn-products and Yelp; PyG's documentation for the sizes of Yelp and AmazonProducts; GraphSAINT for the
# latter's shares. Homophily, signal, noise and exponent are ours.
_PAPERS = (1_207_179 / 111_059_956, 125_265 / 111_059_956, 214_338 / 111_059_956)
PRESETS = {
    "reddit-like": _like("Reddit", 232_965, 114_615_892, (0.66, 0.10, 0.24), features=602, classes=41),
    "products-like": _like("ogbn-products", 2_449_029, 123_718_024, (0.08, 0.02, 0.90), features=100, classes=47),
    "yelp-like": _like("Yelp", 716_847, 13_954_819, (0.75, 0.10, 0.15), features=300, classes=100, multilabel=1),
    "amazon-like": _like(
        "AmazonProducts", 1_569_960, 264_339_468, (0.85, 0.05, 0.10), features=200, classes=107, multilabel=1
    ),
    "papers-like": _like("ogbn-papers100M", 111_059_956, 3_231_371_744, _PAPERS, features=128, classes=172),
}
for _name, _noise in (("reddit-like", 0.03), ("products-like", 0.15), ("papers-like", 0.3)):
    PRESETS[_name] = dataclasses.replace(PRESETS[_name], label_noise=_noise)
_INTERNAL = ("fixed_homophily", "split", "standin", "fitted")
PARAMETERS = tuple(f.name for f in dataclasses.fields(Recipe) if f.name not in _INTERNAL)


def parse_recipe(dataset: str, fitted: Mapping[str, Recipe] | None = None) -> tuple[Recipe, tuple[str, ...]]:
    """The recipe of `synthetic:[PRESET,]key=value,...` or `standin:NAME,key=value,...` and the settings that differ
    from the named one's.

    `scale` multiplies the number of nodes of a named recipe and keeps its mean degree. `fitted` holds the recipes of
    stand-ins. Raises InputError for an unknown name, a value of the wrong type, or one out of range.
    """
    prefix, _, rest = dataset.partition(":")
    kind, named = ("stand-in", fitted or {}) if f"{prefix}:" == FITTED_PREFIX else ("synthetic preset", PRESETS)
    words = [word.strip() for word in rest.split(",") if word.strip()]
    recipe, scalable = Recipe(), False
    if kind == "stand-in" and (not words or "=" in words[0]):
        raise InputError(f"{dataset}: name a stand-in, as in {FITTED_PREFIX}{next(iter(named), 'NAME')},scale=0.1")
    if words and "=" not in words[0]:
        name = words.pop(0)
        if name not in named:
            raise unknown(kind, name, named)
        recipe, scalable = named[name], True
    parameters = (*PARAMETERS, "scale") if scalable else PARAMETERS
    given = pairs(words, parameters, "synthetic parameter", dataset)
    settings = {name: _value(dataset, name, value) for name, value in given.items()}
    if "scale" in settings:
        if not 0 < float(settings["scale"]) <= 100:
            raise InputError(f"{dataset}: scale must be above 0 and at most 100")
        settings.setdefault("nodes", round(recipe.nodes * float(settings["scale"])))
    changed = {name: value for name, value in settings.items() if name != "scale"}
    recipe = dataclasses.replace(recipe, fixed_homophily="homophily" in given, **changed)  # type: ignore[arg-type]
    recipe = dataclasses.replace(recipe, communities=recipe.communities or recipe.classes)
    if recipe.communities == 1 and not recipe.fixed_homophily:
        recipe = dataclasses.replace(recipe, homophily=1.0)
    _check(dataset, recipe)
    return recipe, tuple(f"{name}={value}" for name, value in given.items() if name != "seed")


def _value(dataset: str, name: str, text: str) -> int | float | str:
    """The value of a field, with the type of its default; integers may be written as 1e6."""
    kind = type(getattr(Recipe, name, 1.0))
    if kind is str:
        return text
    try:
        number = float(text)
        if kind is int and not number.is_integer():
            raise ValueError
        return int(number) if kind is int else number
    except (ValueError, OverflowError):
        wanted = "a whole number" if kind is int else "a number"
        raise InputError(f"{dataset}: {name} must be {wanted}, not {text!r}") from None


def _check(dataset: str, recipe: Recipe) -> None:
    """Check the ranges of all fields; comparisons are false for NaN."""
    r = recipe
    rules = {
        "nodes must be 2 to 2**31 - 1": 2 <= r.nodes < 2**31,
        "degree must be above 0 and at most half the other nodes": 0 < r.degree <= (r.nodes - 1) / 2,
        "classes must be 1 or more": r.classes >= 1,
        "features must be 1 or more": r.features >= 1,
        "homophily must be 0 to 1": 0 <= r.homophily <= 1,
        "label_noise must be 0 to 1": 0 <= r.label_noise <= 1,
        "signal must be 0 or more and finite": 0 <= r.signal < float("inf"),
        "communities must not be fewer than classes": r.classes <= r.communities,
        "agreement must be 0 to 1": 0 <= r.agreement <= 1,
        "agreement above homophily needs at least twice as many communities as classes, and 2 classes": (
            r.agreement <= r.homophily or (r.classes > 1 and r.communities >= 2 * r.classes)
        ),
        "communities must be at most a third of the nodes": r.communities <= r.nodes // 3,
        "exponent must be above 2 and at most 100": 2 < r.exponent <= 100,
        "multilabel must be 0 or 1": r.multilabel in (0, 1),
        "order must be random or community": r.order in ("random", "community"),
        "seed must be 0 or more": r.seed >= 0,
    }
    for rule, holds in rules.items():
        if not holds:
            raise InputError(f"{dataset}: {rule}")
    if r.communities == 1 and r.homophily != 1:
        raise InputError(f"{dataset}: one community holds all edges: homophily must be 1")
