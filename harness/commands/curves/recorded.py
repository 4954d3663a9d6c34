"""The runs that `what-if` and `serve` replay: every method's config and recording, and what the cluster assumes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path

from harness.commands.shared.like import unified
from harness.config import RunConfig
from harness.console import progress_of
from harness.errors import InputError
from harness.methods.registry import parse_method
from harness.running import Progress
from sims.cluster import Placement
from sims.replay import Recording, refusal, settled_epochs
from sims.study import Variant, kept_recording, quantities


def comma_list(text: str | None) -> list[str]:
    """The parts of a text that commas separate."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def configs_of(
    methods: str, bits: str | None, recorded: int | None, base: RunConfig, asked: Collection[str] = ()
) -> list[RunConfig]:
    """The config of every method, or of each of its bits. Raises InputError for bad methods or bits.

    `epochs` are those to record: until stale rows are in use and the traffic has settled, which are not shown, and a
    whole period after that.

    Args:
        asked: settings that the user gave, as in `like.unified`.
    """
    if recorded is not None and recorded < 2:
        raise InputError(f"--recorded {recorded}: at least 2, for times are those of epochs after the first")
    widths = comma_list(bits)
    found: list[str] = []
    useless = bool(widths)
    for text in comma_list(methods):
        method = parse_method(text)
        takes = "bits" in {f.name for f in fields(method)}
        free, useless = takes and ":bits=" not in text, useless and not takes
        if method.facts.timed:
            raise refusal(text)
        found += [f"{text}:bits={width}" for width in widths] if free and widths else [text]
    if not found:
        raise InputError("--methods names no method, e.g. --methods vanilla,sylvie-s")
    if useless:
        raise InputError("--bits changes nothing: none of the methods has bits")
    configs = [config.changed(parts=base.cut.parts) for config in unified(base, list(dict.fromkeys(found)), asked)]
    return [config.changed(epochs=recorded or settled_epochs(config).recorded) for config in configs]


def recording_of(config: RunConfig, placement: Placement, folder: Path, force: bool, quiet: bool) -> Recording:
    """The config's recording, from an earlier call or made now."""

    def progress() -> AbstractContextManager[Progress | None]:
        return progress_of(f"recording {config.training.method}", config.training.epochs, quiet)

    return kept_recording(config, placement, folder, progress, again=force)


def assumed_notes(chosen: Iterable[Variant]) -> list[str]:
    """Notes on assumed numbers of the clusters, and on values taken from other clusters."""
    found = []
    for variant in {variant.label: variant for variant in chosen}.values():
        sources = [quantity.source for quantity in quantities(variant.cluster)]
        name = " ".join([variant.cluster.name, *([variant.label] if variant.label else [])])
        found.append(f"cluster {name}: {sources.count('assumed')} of {len(sources)} values are assumed")
        found += variant.notes
    return list(dict.fromkeys(found))
