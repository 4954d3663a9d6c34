"""Many ranks with shapes only: scaling, cost of further epochs, and rates from recorded runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch._ops import OpOverload

from harness.config import from_mapping
from harness.errors import InputError
from harness.rank import Rank
from harness.running import run
from harness.running._rates import load_rates
from sims.device import _shapes as shapes
from tests.conformance.test_drivers import config

PAPERS: dict[str, Any] = {
    "dataset": "workload:papers100m-hash", "model": "sage", "layers": 3, "hidden": 128, "dropout": 0.5,
    "mode": "sim", "shapes_only": True, "cluster": "bns-32x6v100", "eval_every": -1,
}  # fmt: skip


def papers(parts: int, **values: Any) -> Any:
    return run(from_mapping({**PAPERS, "parts": parts, "epochs": 1, **values}))


def test_further_epochs_and_further_ranks_work_no_shape_out_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """With equal parts every rank's calls are those of the first; epochs repeat them."""
    missed: list[int] = []
    call = shapes.ShapeMemory.call

    def counted(
        self: shapes.ShapeMemory, func: OpOverload, args: Any, kwargs: dict[str, Any], inputs: list[Any]
    ) -> tuple[Any, shapes.Call | None]:
        before = len(self._known)
        found = call(self, func, args, kwargs, inputs)
        missed[-1] += len(self._known) - before
        return found

    monkeypatch.setattr(shapes.ShapeMemory, "call", counted)
    for parts, epochs in ((4, 2), (4, 5), (12, 2)):
        missed.append(0)
        papers(parts, epochs=epochs)
    assert missed[0] > 30
    assert missed[1] == missed[0], "three more epochs, no more shapes"
    assert missed[2] <= 3 * missed[0], "12 ranks have at most a few sizes of shares"


def test_boundary_and_bytes_follow_the_closed_form() -> None:
    """A hash partition's boundary in all grows with P while mean degree exceeds it; a rank's shrinks."""
    found = {parts: papers(parts) for parts in (6, 24, 96)}
    rows = {parts: result.graph["partition"]["volume"] for parts, result in found.items()}
    assert rows[6] < rows[24] < rows[96] and rows[96] / 96 < rows[24] / 24 < rows[6] / 6
    for parts, result in found.items():
        layers = result.epochs[0]["bytes"]["forward"]
        assert layers[1] == layers[2] == rows[parts] * 128 * 4 and layers[0] == 0, "layer 0 is precomputed"
    seconds = {parts: result.epochs[0]["seconds"]["compute"] for parts, result in found.items()}
    assert seconds[96] < seconds[24] / 3 < seconds[6] / 9


def test_sampling_cuts_bytes_and_memory() -> None:
    full, tenth = papers(12), papers(12, method="bns-gcn:p=0.1")
    layers = [result.epochs[0]["bytes"]["forward"][1] for result in (full, tenth)]
    assert layers[1] == pytest.approx(0.1 * layers[0], rel=1e-3)
    assert tenth.epochs[0]["bytes"]["other"] > 0, "what was drawn is announced"
    assert tenth.epochs[0]["peak_memory"][0] < full.epochs[0]["peak_memory"][0]
    assert full.state == tenth.state == "out_of_memory", "9 M nodes a device, 16 GB each"
    assert full.facts["memory"]["contributors"] != tenth.facts["memory"]["contributors"]


# -- rates ---------------------------------------------------------------------------------------------------------


def recorded(folder: Path, observed: list[dict[str, float]], method: str = "vanilla") -> Path:
    """A result file with these ratios."""
    record = run(config(method, epochs=1)).to_dict()
    record["epochs"] = [{**record["epochs"][0], "observed": ratios} for ratios in observed]
    path = folder / "recorded.json"
    path.write_text(json.dumps(record))
    return path


def test_rates_are_means_after_the_first_epoch(tmp_path: Path) -> None:
    path = recorded(tmp_path, [{"sent/1": 1.0}, {"sent/1": 0.25, "bits": 4}, {"sent/1": 0.75}])
    rates = load_rates(path, "vanilla:dtype=fp16")
    assert rates.values == {"sent/1": 0.5, "bits": 4}
    assert rates.run["method"] == "vanilla" and rates.run["epochs"] == 3 and len(rates.run["run_id"]) == 64
    assert load_rates(recorded(tmp_path, [{"sent/1": 1.0}]), "vanilla").values == {"sent/1": 1.0}


def test_rates_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a run of vanilla, whose rates say nothing of sylvie-s"):
        load_rates(recorded(tmp_path, [{"sent/1": 1.0}]), "sylvie-s:bits=1")
    with pytest.raises(InputError, match="no observed ratios"):
        load_rates(recorded(tmp_path, [{}]), "vanilla")
    for damaged in ({"sent/1": "half"}, {"sent/1": -0.5}, [0.5]):
        with pytest.raises(InputError, match="is damaged"):
            load_rates(recorded(tmp_path, [damaged]), "vanilla")  # type: ignore[list-item]
    path = recorded(tmp_path, [{"sent/1": 0.5}])
    record = json.loads(path.read_text())
    del record["config"]["parts"]
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match="is damaged: .*parts"):
        load_rates(path, "vanilla")
    with pytest.raises(InputError, match="cannot read result"):
        load_rates(tmp_path / "gone.json", "vanilla")
    with pytest.raises(InputError, match="rates are for --shapes-only"):
        config("vanilla", rates=str(tmp_path / "recorded.json"))


def test_ranks_get_the_rates_and_the_result_names_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = recorded(tmp_path, [{"sent/1": 1.0}, {"sent/1": 0.5}])
    seen: set[float] = set()
    issued = Rank.issued

    def ask(self: Rank, effect: Any) -> None:
        seen.add(self.rate("sent", 1))
        issued(self, effect)

    monkeypatch.setattr(Rank, "issued", ask)
    result = run(config("vanilla", mode="sim", shapes_only=True, cluster="ethernet-1g", rates=str(path)))
    assert seen == {0.5}
    assert result.facts["rates"]["values"] == {"sent/1": 0.5}
    assert result.facts["rates"]["run_id"] == json.loads(path.read_text())["run_id"]
