"""Closed forms of the variance and bias of sampled sums, against many draws of the samplers themselves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from harness.kernels.boundary import draw_rows
from harness.kernels.importance import importance_draw, inclusion
from harness.sampling import (
    column_squares,
    fixed_variance,
    neighbour_variance,
    poisson_variance,
    replacement_variance,
    sample_neighbours,
)

DRAWS, ROWS, COLUMNS, SAMPLE = 2500, 25, 40, 12


def merging_bias(p: sp.csr_matrix, y: np.ndarray, q: np.ndarray, count: int) -> float:
    """|E Z~ - Z|^2 of `count` independent draws by q if a column drawn several times counts once (AS-GCN's code): its
    mean weight is then (1 - (1 - q)^count) / (count q), less than 1."""
    mean = np.divide(1 - (1 - q) ** count, count * q, out=np.ones_like(q), where=q > 0)
    return float(((p @ (y * (mean - 1)[:, None])) ** 2).sum())


def matrix(hub: bool) -> sp.csr_matrix:
    """Targets with 0 to 9 neighbours and weights that differ by column; with a hub, a node next to all of them."""
    rng = np.random.default_rng(4)
    dense = (rng.random((ROWS, COLUMNS)) < 0.12).astype(float)
    dense[:, -1] = 0.0  # a node that nobody reads
    dense[3] = 0.0  # a target without neighbours
    dense[5], dense[5, 7] = 0.0, 1.0  # and one with a single one
    if hub:
        dense[:, 2] = 1.0
    scale = rng.random(COLUMNS) + 0.5
    degree = np.maximum(dense.sum(1), 1)
    return sp.csr_matrix(dense * scale / degree[:, None])


def rows() -> np.ndarray:
    found: np.ndarray = np.random.default_rng(5).standard_normal((COLUMNS, 3)) + 0.5
    return found


def squares(estimate: Callable[[int], np.ndarray], z: np.ndarray) -> tuple[float, float, np.ndarray]:
    """Mean of |Z~ - Z|^2, its standard error, and the mean of Z~ - Z."""
    errors = np.array([estimate(key) - z for key in range(DRAWS)])
    found = np.square(errors).sum((1, 2))
    return float(found.mean()), float(found.std() / DRAWS**0.5), errors.mean(0)


def by_importance(p: sp.csr_matrix, y: np.ndarray, q: np.ndarray, draw: str) -> Callable[[int], np.ndarray]:
    dense, share, nodes = p.toarray(), torch.from_numpy(q), torch.arange(COLUMNS)

    def estimate(key: int) -> np.ndarray:
        places, weights = (t.numpy() for t in importance_draw(share, nodes, SAMPLE, draw, key, 0))
        found: np.ndarray = dense[:, places] @ (weights[:, None] * y[places])
        return found

    return estimate


def share_of(p: sp.csr_matrix) -> np.ndarray:
    """Probabilities in proportion to column norms."""
    found: np.ndarray = np.sqrt(column_squares(p))
    return found / found.sum()


@pytest.mark.parametrize("hub", [False, True])
@pytest.mark.parametrize("fanout", [1, 2, 100])
def test_of_sampled_neighbours(hub: bool, fanout: int) -> None:
    p, y = matrix(hub), rows()

    def estimate(key: int) -> np.ndarray:
        positions = np.arange(p.nnz)  # entries as nodes, so that each keeps its own weight
        starts, drawn = sample_neighbours(p.indptr, positions, np.arange(ROWS), fanout, key)
        degree, taken = np.diff(p.indptr), np.diff(starts)
        weights = np.repeat(degree / np.maximum(taken, 1), taken) * p.data[drawn]
        found: np.ndarray = sp.csr_matrix((weights, p.indices[drawn], starts), shape=p.shape) @ y
        return found

    measured, error, _ = squares(estimate, p @ y)
    formula = neighbour_variance(p, y, fanout)
    assert abs(measured - formula) <= 4 * error + 1e-12
    assert (formula > 0) == (fanout < 100)
    still = neighbour_variance(p, y - y, fanout)  # VR-GCN with exact histories
    assert still == 0


@pytest.mark.parametrize("hub", [False, True])
def test_of_draws_with_replacement(hub: bool) -> None:
    p, y = matrix(hub), rows()
    q = share_of(p)
    measured, error, _ = squares(by_importance(p, y, q, "replace"), p @ y)
    assert abs(measured - replacement_variance(p, y, q, SAMPLE)) <= 4 * error
    assert replacement_variance(p, y, q, 2 * SAMPLE) == pytest.approx(replacement_variance(p, y, q, SAMPLE) / 2)
    wide = 0.5 * q + 0.5 / COLUMNS  # FastGCN's: also of nodes that nobody reads
    measured, error, _ = squares(by_importance(p, y, wide, "replace"), p @ y)
    assert abs(measured - replacement_variance(p, y, wide, SAMPLE)) <= 4 * error


def test_the_probabilities_of_least_variance_have_the_norm_and_not_its_square() -> None:
    p, y = matrix(hub=True), rows()
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    norm, square = share_of(p), column_squares(p) / column_squares(p).sum()
    assert replacement_variance(p, y, norm, SAMPLE) < 0.9 * replacement_variance(p, y, square, SAMPLE)


@pytest.mark.parametrize("hub", [False, True])
def test_of_poisson_draws(hub: bool) -> None:
    p, y = matrix(hub), rows()
    q = share_of(p)
    chance = np.zeros(COLUMNS)
    chance[q > 0] = inclusion(q[q > 0], SAMPLE)
    measured, error, _ = squares(by_importance(p, y, q, "poisson"), p @ y)
    assert abs(measured - poisson_variance(p, y, chance)) <= 4 * error


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("share", [0.3, 0.06, 0.04, 1.0])
def test_of_boundary_nodes(fixed: bool, share: float) -> None:
    """Of three owners one has a single node, of which a fixed share below 1 keeps none; 0.04 keeps none of any."""
    p, y = matrix(hub=True), rows()
    counts = [21, 1, 18]
    owner, dense = np.repeat(np.arange(3), counts), p.toarray()
    scale = np.array([n / max(int(share * n), 1) for n in counts]) if fixed else np.full(3, 1 / share)

    def estimate(key: int) -> np.ndarray:
        places = draw_rows(torch.empty(COLUMNS, dtype=torch.int64), counts, share, fixed, key, 0).numpy()
        found: np.ndarray = dense[:, places] @ (scale[owner[places], None] * y[places])
        return found

    measured, error, _ = squares(estimate, p @ y)
    formula = fixed_variance(p, y, owner, share) if fixed else poisson_variance(p, y, np.full(COLUMNS, share))
    assert abs(measured - formula) <= 4 * error + 1e-9
    assert (formula > 0) == (share < 1)


def test_of_repeated_draws_that_count_once() -> None:
    """AS-GCN's code; its mean is off by exactly the closed form."""
    p, y = matrix(hub=True), rows()
    q = share_of(p)
    counted = by_importance(p, y, q, "replace")
    dense, share, nodes = p.toarray(), torch.from_numpy(q), torch.arange(COLUMNS)

    def merged(key: int) -> np.ndarray:
        places = importance_draw(share, nodes, SAMPLE, "replace", key, 0)[0].numpy()
        found: np.ndarray = dense[:, places] @ (y[places] / (SAMPLE * q[places, None]))
        return found

    for estimate, wanted in ((counted, 0.0), (merged, merging_bias(p, y, q, SAMPLE))):
        variance, _, off = squares(estimate, p @ y)
        assert np.square(off).sum() == pytest.approx(wanted, rel=0.1, abs=4 * variance / DRAWS)
    assert merging_bias(p, y, q, SAMPLE) > 20 * squares(counted, p @ y)[0] / DRAWS
