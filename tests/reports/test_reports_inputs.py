"""Inputs of the model set off by a factor: in every simulated run, not in fits; what never flips is theory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import InputError
from reports.core.clusters import hosts_slowed
from reports.core.context import SHAPES, Context
from reports.core.inputs import SET_OFF, Inputs
from reports.core.predict import Testbed, parts_of
from reports.core.rendering import rows_frame, with_interval
from reports.core.table import Item, Ordering, PaperTable, Row
from reports.whole.flips import RANGES, _key, _with_range, with_flips

CLUSTER = "bns-10x2080ti"


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Testbed:
    monkeypatch.setenv("HALOSCOPE_CACHE", str(tmp_path / "cache"))
    return Testbed(
        context=Context(out=tmp_path, quiet=True),
        cluster=CLUSTER,
        model={"model": "sage", "layers": 2, "hidden": 16, "layer0": "precompute"},
        workload=parts_of(4000, 40_000, 32, 5, count=2, boundary=900),
        parts=2,
    )


def off(bed: Testbed, **inputs: float) -> Testbed:
    return replace(bed, context=replace(bed.context, inputs=Inputs(**inputs)))


def test_each_input_moves_its_part_of_an_epoch(bed: Testbed) -> None:
    plain = bed.seconds("vanilla")
    assert off(bed, bandwidth=0.5).seconds("vanilla").comm > 1.2 * plain.comm
    assert off(bed, compute=0.5).seconds("vanilla").compute == pytest.approx(2 * plain.compute)
    assert off(bed, boundary=2.0).seconds("vanilla").comm > plain.comm
    assert off(bed).seconds("vanilla") == plain


def test_a_fit_is_made_with_the_inputs_as_they_are(bed: Testbed) -> None:
    """Otherwise it would make up for them, and no ordering could ever flip."""
    wanted = 1.3 * bed.seconds("vanilla").epoch
    fit = bed.fitted("vanilla", wanted, source="a row")
    assert off(bed, bandwidth=0.5).fitted("vanilla", wanted, source="a row") == fit
    (fitted,) = bed.context.fits
    assert (fitted.testbed, fitted.row, fitted.value) == (CLUSTER, "a row", fit.bandwidth)
    assert off(bed, bandwidth=0.5).seconds("vanilla", fit).epoch > wanted


def test_a_slow_host_stays_slower(bed: Testbed) -> None:
    slow = replace(bed, cluster=f"{CLUSTER}:stragglers.hosts.0=3")
    plain = slow.seconds("vanilla")
    assert off(slow, compute=2.0).seconds("vanilla").compute == pytest.approx(plain.compute / 2)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (900, 1800),
        ([100, 200], [200, 400]),
        ({"value": 900, "from": "published"}, {"value": 1800, "from": "published"}),
        ({"mean": 10.0, "spread": 0.4}, {"mean": 20.0, "spread": 0.4}),
        ({"value": {"quantiles": [[0.0, 0.5], [1.0, 8.0]]}}, {"value": {"quantiles": [[0.0, 1.0], [1.0, 16.0]]}}),
    ],
)
def test_boundary_nodes_in_all_their_forms(tmp_path: Path, given: object, wanted: object) -> None:
    described = tmp_path / "w.json"
    described.write_text(json.dumps(parts_of(4000, 40_000, 32, 5, count=2, boundary=given)))
    kept: list[object] = []

    def keep(description: object) -> str:
        kept.append(description)
        return "kept"

    config = {**SHAPES, "dataset": str(described), "parts": 2}
    assert Inputs(boundary=2.0).applied(config, keep)["dataset"] == "kept"  # type: ignore[arg-type]
    assert kept[0]["parts"]["boundary"] == wanted  # type: ignore[index]


def test_mirrors_of_a_vertex_cut_are_those_beyond_one_copy(tmp_path: Path) -> None:
    described = tmp_path / "w.json"
    described.write_text(json.dumps(parts_of(4000, 40_000, 32, 5, count=2, replication=1.5)))
    kept: list[dict[str, dict[str, float]]] = []
    config = {**SHAPES, "dataset": str(described), "parts": 2}
    Inputs(boundary=0.5).applied(config, lambda found: (kept.append(dict(found)), "kept")[1])  # type: ignore[func-returns-value]
    assert kept[0]["parts"]["replication"] == pytest.approx(1.25)


def test_what_is_trained_for_real_has_no_such_inputs() -> None:
    config = {"dataset": "synthetic:nodes=60", "mode": "real", "cluster": CLUSTER}
    assert Inputs(bandwidth=2.0).applied(config, lambda _: "kept") == config


def orderings_of(bed: Testbed, context: Context) -> Item:
    here = replace(bed, context=context)
    whole = here.seconds("vanilla")
    claims = {
        "an epoch is more than its compute": (whole.epoch, whole.compute),
        "communication takes longer than compute": (whole.comm, whole.compute),
        "printed": (2.0, 1.0),
    }
    return PaperTable(
        key="k/table1",
        title="t",
        orderings=tuple(Ordering(text=text, expected=("a", "b"), ours=ours) for text, ours in claims.items()),
    )


def test_what_holds_with_every_input_off_is_theory(bed: Testbed) -> None:
    """Messages take time at any bandwidth; whether they take longer than compute depends on the bandwidth."""
    whole = bed.seconds("vanilla")
    slower = whole.comm / 1.4 / whole.compute
    level = replace(bed, cluster=hosts_slowed(CLUSTER, 2, slower))  # messages take 1.4 times as long as compute
    item = orderings_of(level, bed.context)
    found = with_flips(item, lambda context: orderings_of(level, context), bed.context)
    assert [o.perturbed for o in found.orderings] == ["never flips", "flips", ""]
    assert [o.outcome for o in found.orderings] == ["theory", "reproduced", "reproduced"]
    assert "off by 2" in found.orderings[0].line()


def test_no_variant_is_made_once_every_ordering_has_flipped(bed: Testbed) -> None:
    """The first variant turns the only ordering round."""

    def turning(context: Context) -> Item:
        calls.append(context.inputs)
        ours = (2.0, 1.0) if context.inputs == Inputs() else (1.0, 2.0)
        return PaperTable(key="k/t", title="t", orderings=(Ordering(text="o", expected=("a", "b"), ours=ours),))

    calls: list[Inputs] = []
    found = with_flips(turning(bed.context), turning, bed.context)
    assert found.orderings[0].perturbed == "flips" and len(calls) == 2


def test_a_variant_that_cannot_run_is_left_out(bed: Testbed) -> None:
    item, made = orderings_of(bed, bed.context), []

    def make(context: Context) -> Item:
        if context.inputs.boundary != 1.0:
            raise InputError("more boundary nodes than there are")
        made.append(context.inputs)
        return orderings_of(bed, context)

    assert with_flips(item, make, bed.context).orderings[2].perturbed == ""
    assert len(made) == len(SET_OFF) - 2


def times_of(bed: Testbed, context: Context) -> Item:
    whole = replace(bed, context=context).seconds("vanilla")
    rows = (
        Row(label="a", quantity="epoch", unit="s", published=1.0, ours=whole.epoch, how="simulated"),
        Row(label="a", quantity="gain", unit="x", published=1.0, ours=1.0, how="simulated"),
        Row(label="b", quantity="epoch", unit="s", published=1.0, ours=whole.epoch, how="fitted"),
        Row(label="a", quantity="sent", unit="MB", published=1.0, ours=2 * whole.epoch, how="simulated"),
    )
    return PaperTable(key="k/table2", title="t", rows=rows)


def test_predicted_times_have_ranges(bed: Testbed) -> None:
    """Around them, wider than what one input does and narrower than all at once; what does not move has none."""
    item = times_of(bed, bed.context)
    found = with_flips(item, lambda context: times_of(bed, context), bed.context)
    first, *rest = found.rows
    ours = item.rows[0].ours
    assert first.low is not None and first.high is not None and ours is not None and first.low < ours < first.high
    ends = [times_of(bed, replace(bed.context, inputs=inputs)).rows[0].ours or ours for inputs in SET_OFF]
    assert first.low <= min(ends) and max(ends) <= first.high < ours * 2 ** (3**0.5) * 1.001
    assert all(row.low is None for row in rest) and found.assumptions == (RANGES,)
    assert f"({first.low:.3g}"[:4] in with_interval(first) and list(rows_frame(found)["high"])[0] == first.high


def test_a_range_adds_up_independent_factors() -> None:
    row = Row(label="a", quantity="epoch", unit="s", published=1.0, ours=8.0, how="simulated")
    values = {Inputs(bandwidth=0.5): 16.0, Inputs(bandwidth=2.0): 8.0, Inputs(compute=0.5): 16.0}
    found = _with_range(row, {inputs: {_key(row): value} for inputs, value in values.items()})
    assert (found.low, found.high) == (8.0, pytest.approx(8 * 2**2**0.5))
