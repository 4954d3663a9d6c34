"""Importance draws: unbiased weights, the right frequencies, the same draw for whoever asks, and what is charged."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from harness.kernels.importance import DRAWS, importance_draw, inclusion
from harness.kernels.work import declared_work

RNG = np.random.default_rng(3)
NODES = np.sort(RNG.choice(10_000, 40, replace=False))
Q = np.where(np.arange(40) % 8 == 3, 0.0, RNG.random(40) + 0.2)
Y = RNG.standard_normal(40) * (Q > 0)
SUPPORT = np.flatnonzero(Q)
KEYS = 3000


def drawn(draw: str, count: int, key: int, q: np.ndarray = Q) -> tuple[np.ndarray, np.ndarray]:
    places, weights = importance_draw(torch.from_numpy(q), torch.from_numpy(NODES), count, draw, key, 0)
    return places.numpy(), weights.numpy()


def sums(draw: str, count: int) -> np.ndarray:
    """Weighted sums of Y over many keys."""
    found = [drawn(draw, count, key) for key in range(KEYS)]
    return np.array([(weights * Y[places]).sum() for places, weights in found])


@pytest.mark.parametrize("draw", ["replace", "poisson", "ordered"])
@pytest.mark.parametrize("count", [1, 7, 25, 34])
def test_weighted_sums_are_unbiased(draw: str, count: int) -> None:
    found = sums(draw, count)
    assert abs(found.mean() - Y.sum()) < 4 * found.std() / KEYS**0.5


@pytest.mark.parametrize("count", [10, 25])
def test_the_authors_weights_are_biased(count: int) -> None:
    """Without replacement a frequent node is drawn less often than its weight supposes, a rare one more often."""
    places = [drawn("authors", count, key) for key in range(KEYS)]
    mean = np.zeros(40)
    for at, weights in places:
        mean[at] += weights / KEYS
    share = Q / Q.sum()
    assert mean[np.argmax(share)] < 0.98 and mean[SUPPORT[np.argmin(share[SUPPORT])]] > 1.02


@pytest.mark.parametrize("draw", ["poisson", "ordered"])
def test_all_weights_are_one_once_everything_is_drawn(draw: str) -> None:
    for count in (len(SUPPORT), 1000):
        places, weights = drawn(draw, count, 5)
        assert np.array_equal(places, SUPPORT)
        np.testing.assert_allclose(weights, 1.0, rtol=1e-12)


@pytest.mark.parametrize("draw", DRAWS)
def test_nodes_without_probability_are_never_drawn(draw: str) -> None:
    for key in range(50):
        places, _ = drawn(draw, 20, key)
        assert (np.diff(places) > 0).all() and (Q[places] > 0).all()
    assert len(drawn(draw, 0, 1)[0]) == len(drawn(draw, 5, 1, np.zeros(40))[0]) == 0


def test_independent_draws_count_repetitions() -> None:
    """m_u has mean s q and variance s q (1 - q), and all m_u sum to s."""
    count, share = 25, Q / Q.sum()
    times = np.zeros((KEYS, 40))
    for key in range(KEYS):
        places, weights = drawn("replace", count, key)
        times[key, places] = weights * count * share[places]
    assert np.allclose(times, times.round()) and (times.sum(1).round() == count).all()
    spread = np.sqrt(count * share * (1 - share))
    assert (np.abs(times.mean(0) - count * share) <= 4.5 * spread / KEYS**0.5).all()
    assert (np.abs(times.var(0) - spread**2)[SUPPORT] < 0.15 * spread[SUPPORT] ** 2 + 0.02).all()


def test_probabilities_of_poisson_draws_sum_to_their_number() -> None:
    q = np.array([100.0, 30.0, 1.0, 1.0, 2.0, 4.0])
    chance = inclusion(q, 4)
    np.testing.assert_allclose(chance, [1, 1, 0.25, 0.25, 0.5, 1.0])  # 4 is certain only after the larger two are
    assert chance.sum() == pytest.approx(4)
    kept = np.zeros(40)
    for key in range(KEYS):
        kept[drawn("poisson", 12, key)[0]] += 1
    wanted = np.zeros(40)
    wanted[SUPPORT] = inclusion(Q[SUPPORT], 12)
    assert wanted.sum() == pytest.approx(12)
    assert (np.abs(kept - KEYS * wanted) <= 4.5 * np.sqrt(KEYS * wanted * (1 - wanted))).all()


def test_draws_without_replacement_have_the_probabilities_of_draws_one_by_one() -> None:
    """Every set of 2 of 4 nodes, by enumeration of the two orders."""
    q = np.zeros(40)
    q[:4] = 1, 2, 3, 4
    share, seen = q / q.sum(), dict.fromkeys(itertools.combinations(range(4), 2), 0)
    for key in range(KEYS):
        a, b = drawn("ordered", 2, key, q)[0].tolist()
        seen[a, b] += 1
    for (a, b), times in seen.items():
        chance = share[a] * share[b] / (1 - share[a]) + share[b] * share[a] / (1 - share[b])
        assert abs(times - KEYS * chance) < 4 * (KEYS * chance * (1 - chance)) ** 0.5


def test_errors_fall_with_the_number_of_draws() -> None:
    assert sums("replace", 20).var() == pytest.approx(sums("replace", 5).var() / 4, rel=0.15)


@pytest.mark.parametrize("draw", ["poisson", "ordered", "authors"])
def test_a_node_is_drawn_by_its_id(draw: str) -> None:
    """Nodes that cannot be drawn may be listed or not: neither drawn nodes nor weights change."""
    for key in range(20):
        places, weights = drawn(draw, 9, key)
        q, nodes = torch.from_numpy(Q[SUPPORT]), torch.from_numpy(NODES[SUPPORT])
        again, same = importance_draw(q, nodes, 9, draw, key, 0)
        assert np.array_equal(SUPPORT[again.numpy()], places) and np.array_equal(same.numpy(), weights)
    assert len({tuple(drawn(draw, 9, key)[0]) for key in range(20)}) > 15


def test_the_host_is_charged_for_random_numbers_and_what_it_writes() -> None:
    work = declared_work("haloscope::draw_nodes")
    assert work is not None
    q, found = torch.empty(1000, dtype=torch.float64), torch.empty(100, dtype=torch.float64)
    priced = work((q,), [q], [found, found])
    assert (priced.kind, priced.nbytes) == ("host", 16 * 1000 + 2 * 8 * 100)


def test_shapes_alone_have_the_expected_number() -> None:
    q, nodes = torch.empty(50, dtype=torch.float64, device="meta"), torch.empty(50, dtype=torch.int64, device="meta")
    places, weights = importance_draw(q, nodes, 9, "replace", 1, 7)
    assert places.shape == weights.shape == (7,) and weights.dtype == torch.float64
