"""Like beside like: methods that share a table treat the input layer alike and have one order, unless asked otherwise.

`unified` chooses the settings before anything runs; `harness.running.summary.standing_apart` says which rows of a table
stand apart all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from harness.config import RunConfig
from harness.errors import InputError
from harness.graphs import Totals
from harness.methods.registry import cut_of, parse_method
from harness.nn import GNN, build_model
from harness.running import prepare

LAYER0 = ("precompute", "cache", "exchange")
"""Treatments of the input layer; of those that equally many methods can take, the first is chosen."""


def unified(base: RunConfig, methods: Sequence[str], asked: Collection[str] = ()) -> list[RunConfig]:
    """The config of every method: one `layer0` and one `order` for all of them, where they can take it.

    Without a wish `layer0` is the treatment that most methods can take, and `order` is the same for all. A method that
    cannot take it, or whose text says otherwise, keeps its own. `asked` are the settings that the user gave: `layer0`
    auto and `order` method, if asked for, leave every method to its own system. Whole-graph methods get one part.

    Raises:
        InputError: an unknown method or option, or a graph or model that a method cannot run on.
    """
    configs = [base.changed(method=text, parts=1 if cut_of(text) == "none" else base.cut.parts) for text in methods]
    for config in configs:
        _method(config)  # names are checked before any graph is loaded
    if len(configs) < 2:
        return configs
    if "order" not in asked and base.model.order == "method":
        configs = [config.changed(order="aggregate-first") for config in configs]
    wanted: str = base.training.layer0
    if wanted == "auto" and "layer0" in asked:
        return configs
    totals = prepare(_common(configs)).totals
    model = build_model(configs[0].model, totals.num_features, totals.num_classes, base.training.seed)
    able = {value: [_takes(config, value, model, totals) for config in configs] for value in LAYER0}
    if wanted == "auto":
        free = [":layer0=" not in text for text in methods]  # the others have their wish
        wanted = max(LAYER0, key=lambda value: sum(a and b for a, b in zip(able[value], free, strict=True)))
    found = [_with(config, wanted, able[wanted][at], model) for at, config in enumerate(configs)]
    for config in found:
        _method(config, config.training.layer0).check(model, totals, config.cut.parts)
    return found


def _common(configs: Sequence[RunConfig]) -> RunConfig:
    """The config whose prepared data tell the sizes of the graph: the first that is cut at all."""
    return next((config for config in configs if config.cut.parts > 1), configs[0])


def _method(config: RunConfig, layer0: str = "auto") -> Any:
    return parse_method(config.training.method, layer0=layer0)


def _takes(config: RunConfig, layer0: str, model: GNN, totals: Totals) -> bool:
    """Whether a method, with the options of its text, can treat the input layer so."""
    try:
        method = _method(config, layer0)
        method.check(model, totals, config.cut.parts)
        return bool(method.treats_input(model) == layer0)
    except InputError:
        return False


def _with(config: RunConfig, layer0: str, able: bool, model: GNN) -> RunConfig:
    """The config with this treatment, if the method is able to take it and does not by itself."""
    own = config.changed(layer0="auto")
    if not able or _method(own).treats_input(model) == layer0:
        return own
    return own.changed(layer0=layer0)
