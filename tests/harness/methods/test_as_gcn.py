"""AS-GCN: learned probabilities, the gradient of the variance by which they are learned, and what learning brings."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from harness import loopback
from harness.errors import InputError
from harness.methods.as_gcn import ASGCN, LearnedBatch, LearnedDraw
from harness.methods.registry import parse_method
from harness.rank import Rank
from harness.sampling import column_squares, replacement_variance
from tests.harness.methods.test_layer_wise import crossed, matrix, one_layer, sampled
from tests.support.conformance import make_model, make_parts
from tests.support.graphs import owners

DRAWS = 400


def batches(method: ASGCN, kind: str, w: np.ndarray, epochs: int = 1, num_parts: int = 1) -> list[list[LearnedBatch]]:
    """By rank and epoch, the batch of step 0 for all own nodes, of a model of one layer."""
    graph = crossed()
    parts, model = make_parts(graph, owners(graph, num_parts, "hash"), num_parts), one_layer(kind, graph)

    async def program(rank: Rank) -> list[LearnedBatch]:
        part, found = parts[rank.index], []
        state = await method.setup(rank, part, model)
        memory = {**method.remember(rank, part, model, state), "w": torch.from_numpy(w)}
        ids = state.neighbours.own(torch.arange(len(part.nodes)))
        for epoch in range(epochs):
            rank.epoch = epoch
            found.append(await method.draw(rank, part, model, state, memory, ids, 0))
        return found

    return loopback.run_ranks(program, num_parts)


def learned_q(kind: str, w: np.ndarray) -> np.ndarray:
    """Probabilities by number in the whole graph, all nodes being targets."""
    x = np.asarray(crossed().x, np.float64)
    norms = np.sqrt(column_squares(sp.csr_matrix(matrix(crossed(), kind))))
    q = norms * (1 + np.maximum(x @ w, 0))
    found: np.ndarray = q / q.sum()
    return found


@pytest.mark.parametrize("kind", ["sage", "gcn"])
def test_probabilities_follow_norms_and_learned_scores(kind: str) -> None:
    """Positive exactly for neighbours of the destinations; with w = 0 those of ladies with root norms."""
    reads = matrix(crossed(), kind) > 0
    for w in (np.zeros(5), np.array([1.0, -2.0, 0.5, 0.0, 3.0])):
        (one,) = batches(ASGCN(nodes=9), kind, w)
        draw = one[0].last
        assert draw is not None
        numbers = (draw.ids >> 16).numpy()
        np.testing.assert_allclose(draw.q.numpy(), learned_q(kind, w)[numbers], atol=1e-12)
        assert float(draw.q.sum()) == pytest.approx(1.0)
        assert (draw.q.numpy() > 0).tolist() == reads.any(0)[numbers].tolist()


@pytest.mark.parametrize("sampling", ["replace", "ordered"])
def test_sums_are_unbiased_whatever_was_learned(sampling: str) -> None:
    w, p, y = np.array([1.0, -2.0, 0.5, 0.0, 3.0]), matrix(crossed(), "gcn"), np.asarray(crossed().x, np.float64)
    (drawn,) = batches(ASGCN(nodes=12, sampling=sampling), "gcn", w, DRAWS)  # type: ignore[arg-type]
    errors = np.array([sampled(batch, 0, torch.arange(40), 40) @ y - p @ y for batch in drawn])
    spread = errors.std(0) / DRAWS**0.5 + np.abs(errors).max() / DRAWS
    assert (np.abs(errors.mean(0)) < 4.5 * spread + 1e-12).all()
    if sampling == "replace":
        squares = np.square(errors).sum((1, 2))
        formula = replacement_variance(sp.csr_matrix(p), y, learned_q("gcn", w), 12)
        assert abs(squares.mean() - formula) < 4.5 * squares.std() / DRAWS**0.5


def made_up_draw(scores: np.ndarray, places: np.ndarray, factors: np.ndarray) -> LearnedDraw:
    rng = np.random.default_rng(3)
    squares = rng.random(len(scores)) + 0.1
    q = np.sqrt(squares) * (1 + np.maximum(scores, 0))
    tensors = (torch.from_numpy(a) for a in (squares, scores, q / q.sum(), places, factors))
    return LearnedDraw(torch.arange(len(scores)), *tensors)


def test_the_gradient_equals_finite_differences_at_a_fixed_sample() -> None:
    """The sample and its factors stay; what is estimated with them is sum of factor c |y|^2 / (s q)."""
    rng = np.random.default_rng(4)
    scores, places = rng.standard_normal(20), np.array([1, 4, 5, 11, 19])
    factors, rows, count = rng.random(5) * 3, rng.standard_normal((5, 3)), 7

    def estimate(at: np.ndarray) -> float:
        draw = made_up_draw(at, places, factors)
        drawn, squares = draw.q.numpy()[places], draw.squares.numpy()[places]
        return float((factors * squares * np.square(rows).sum(1) / (count * drawn)).sum())

    found = made_up_draw(scores, places, factors).gradient(torch.from_numpy(rows), count).numpy()
    assert np.abs(found).max() > 0.01
    for u in range(20):
        step = np.zeros(20)
        step[u] = 1e-6
        slope = (estimate(scores + step) - estimate(scores - step)) / 2e-6
        assert found[u] == pytest.approx(slope, rel=1e-5, abs=1e-7)


def test_the_estimated_gradient_is_that_of_the_variance_in_the_mean() -> None:
    w, p, y = np.array([1.0, -2.0, 0.5, 0.0, 3.0]), matrix(crossed(), "gcn"), np.asarray(crossed().x, np.float64)
    (drawn,) = batches(ASGCN(nodes=12), "gcn", w, DRAWS)
    found = []
    for batch in drawn:
        assert batch.last is not None
        gradient, by_number = batch.last.gradient(batch.x, 12), np.zeros(40)  # sources are the drawn nodes, in order
        by_number[(batch.last.ids >> 16).numpy()] = gradient.numpy()
        found.append(y.T @ by_number)
    mean, error = np.mean(found, 0), np.std(found, 0) / DRAWS**0.5

    def variance(at: np.ndarray) -> float:
        return replacement_variance(sp.csr_matrix(p), y, learned_q("gcn", at), 12)

    for k in range(5):
        step = np.zeros(5)
        step[k] = 1e-5
        slope = (variance(w + step) - variance(w - step)) / 2e-5
        assert abs(mean[k] - slope) < 4.5 * error[k]


@pytest.mark.parametrize("num_parts", [1, 3])
def test_learning_lowers_the_variance_and_is_the_same_on_every_rank(num_parts: int) -> None:
    """Features whose first column is the length of a row, so that the best probabilities can be learned. With rate 0
    nothing changes."""
    graph = crossed()
    lengths = np.where(np.arange(40) % 3 == 0, 4.0, 0.2)
    x = np.zeros((40, 5), np.float32)
    x[:, 0] = lengths
    parts = make_parts(graph, owners(graph, num_parts, "hash"), num_parts, torch.float32)
    parts = [replace(part, x=torch.from_numpy(x)[part.nodes]) for part in parts]
    model = make_model("gcn", graph, layers=1, norm="none", dtype=torch.float32)

    def learn(rate: float) -> list[torch.Tensor]:
        made = ASGCN(nodes=10, batch=0, rate=rate)

        async def program(rank: Rank) -> torch.Tensor:
            part, mine = parts[rank.index], copy.deepcopy(model)
            state = await made.setup(rank, part, mine)
            memory = made.remember(rank, part, mine, state)
            memory["w"] = torch.full((5,), 0.01)
            optimizer = made.optimizer(rank, mine, 0.0, 0.0)
            for epoch in range(60):
                rank.epoch = epoch
                await made.epoch(rank, part, mine, state, memory, optimizer)
            found: torch.Tensor = memory["w"]
            return found

        return loopback.run_ranks(program, num_parts)

    start, learned = learn(0.0), learn(0.1)
    assert all(torch.equal(w, learned[0]) for w in learned) and float(start[0][0]) == pytest.approx(0.01)
    assert float(learned[0][0]) > 0.5
    p, norms = sp.csr_matrix(matrix(graph, "gcn")), np.sqrt(column_squares(sp.csr_matrix(matrix(graph, "gcn"))))

    def variance(w: torch.Tensor) -> float:
        q = norms * (1 + np.maximum(x @ w.numpy(), 0))
        return replacement_variance(p, x.astype(np.float64), q / q.sum(), 10)

    assert variance(learned[0]) < 0.8 * variance(start[0])


def test_a_negative_rate_is_refused() -> None:
    with pytest.raises(InputError, match="rate must not be negative"):
        parse_method("as-gcn:rate=-0.1")
