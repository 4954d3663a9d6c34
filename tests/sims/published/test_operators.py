"""Published times of operators: files that are well formed, and predictions that stay as good as they are."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import urlparse

import numpy as np
import pytest

from harness.errors import InputError
from sims.published import OperatorTable, load_operators, without_cache
from sims.published._curves import FOLDER

TABLES = {table.name: table for table in load_operators()}
SUMS = TABLES["spmm-a100-cusparse"]


def errors_of_rows(table: OperatorTable, start: str, width: int, *, cached: bool = True) -> np.ndarray:
    """Errors without sign of the rows whose names start so."""
    chosen = [row.name.startswith(start) and row.work.width == width for row in table.rows]
    device = table.device if cached else without_cache(table.device)
    return np.abs(table.errors(device))[np.asarray(chosen)]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_table_says_what_was_timed_and_rates_are_possible(table: OperatorTable) -> None:
    address = urlparse(table.source)
    assert address.scheme == "https" and len(address.path) > 1 and table.software
    assert len(table.rows) > 20 and len({(row.name, row.work.width) for row in table.rows}) == len(table.rows)
    for row in table.rows:
        flops = row.work.flops or 2 * row.work.entries
        assert 0.05e12 < flops / row.seconds < table.device.gemm_peak.value, row.name


def test_kronecker_graphs_of_growing_size_are_predicted() -> None:
    """Nothing is fitted to them: from a graph that fits to one of 50 times the cache."""
    errors = errors_of_rows(SUMS, "kron", 128)
    assert len(errors) == 6 and errors.max() < 0.15
    assert np.median(errors_of_rows(SUMS, "kron", 128, cached=False)) > 0.5
    assert np.median(errors_of_rows(SUMS, "kron", 32)) < 0.25


def test_matrices_without_hot_rows_are_read_from_memory() -> None:
    assert errors_of_rows(SUMS, "GL7d", 128).max() < 0.2


@pytest.mark.parametrize("name", ["gemm-a100-cublas", "gemm-rtx-3090-cublas"])
def test_products_are_within_a_few_percent_of_one_efficiency(name: str) -> None:
    assert np.median(np.abs(TABLES[name].errors())) < 0.05


def test_calibrating_rows_are_named_by_the_table() -> None:
    assert {row.name for row in SUMS.rows if row.calibrating} == {"mouse_gene", "human_gene1", "human_gene2"}


def test_columns_are_checked(tmp_path: Path) -> None:
    shutil.copytree(FOLDER / "operators", tmp_path / "operators")
    shutil.copytree(FOLDER / "devices", tmp_path / "devices")
    shutil.copy(FOLDER / "operators.toml", tmp_path)
    (tmp_path / "operators" / "gemm-a100-cublas.csv").write_text("name,us\nx,1\n")
    with pytest.raises(InputError, match="must have the columns name,rows"):
        load_operators(tmp_path)
