"""The cut tape: gradients across cuts, and how long it holds the tensors after them."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from harness import loopback
from harness.errors import ProgramError
from harness.rank import Rank
from harness.tape import Tape

WIDE = 1 << 12


class Double:
    """x -> 2 x."""

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor, ...]:
        return (2 * x,)

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        return 2 * gradients[0]


class Parts:
    """x -> (x, 3 x, its positions), of which the second lives as long as `watched` says, and the third is integers."""

    def __init__(self) -> None:
        self.watched: weakref.ref[Tensor] | None = None

    async def forward(self, rank: Rank, x: Tensor) -> tuple[Tensor, ...]:
        halo = 3 * x
        self.watched = weakref.ref(halo.untyped_storage())  # type: ignore[arg-type]
        return x, halo, torch.arange(len(x))

    async def adjoint(self, rank: Rank, *gradients: Tensor) -> Tensor:
        own, halo, positions = gradients
        assert positions.dtype == torch.int64 and not positions.any()
        return own + 3 * halo


def on_one_rank(program: Callable[[Rank], object]) -> object:
    async def awaited(rank: Rank) -> object:
        return await program(rank)  # type: ignore[misc]

    return loopback.run_ranks(awaited, 1)[0]


def test_a_tensor_that_skips_a_cut_still_gets_its_gradient() -> None:
    """For models of other packages: tensors before a cut may be used after it without being kept."""
    w = torch.tensor([3.0], dtype=torch.float64, requires_grad=True)

    async def program(rank: Rank) -> float:
        tape = Tape(rank, [w])
        a = w * w
        (b,) = await tape.apply(Double(), a)
        c = b * a  # `a` skips the first cut
        (d,) = await tape.apply(Double(), c)
        await tape.backward((d * a).sum())
        assert w.grad is not None
        return float(w.grad)

    # d * a = 2 * (2 a * a) * a = 4 w^6
    assert on_one_rank(program) == pytest.approx(24 * 3.0**5)


@pytest.mark.parametrize("saved", [False, True])
def test_rows_after_a_cut_live_as_long_as_autograd_needs_them(saved: bool) -> None:
    """A sum of them needs none, their square does."""
    w = torch.ones(WIDE, requires_grad=True)

    async def program(rank: Rank) -> bool:
        tape, exchange = Tape(rank, [w]), Parts()
        own, halo, _ = await tape.apply(exchange, 2 * w)
        h = own + halo * (halo if saved else 1.0)
        del own, halo
        assert exchange.watched is not None
        alive = exchange.watched() is not None
        await tape.backward(h.sum())
        assert w.grad is not None
        # h = 2 w + 36 w^2, or 2 w + 6 w
        assert torch.equal(w.grad, torch.full((WIDE,), 74.0 if saved else 8.0))
        return alive

    assert on_one_rank(program) is saved


def test_outputs_that_nothing_uses_have_zero_gradients_and_kept_rows_their_own() -> None:
    w = torch.tensor([2.0, 5.0], requires_grad=True)

    async def program(rank: Rank) -> list[float]:
        tape = Tape(rank, [w])
        own, _, positions, kept = await tape.apply(Parts(), w * 1, w * w)
        assert positions.tolist() == [0, 1] and not positions.requires_grad
        await tape.backward((own + kept).sum())
        assert w.grad is not None
        return w.grad.tolist()  # type: ignore[no-any-return]

    assert on_one_rank(program) == [1 + 2 * 2.0, 1 + 2 * 5.0]


def test_rows_without_a_gradient_cross_without_a_cut() -> None:
    w = torch.ones(3, requires_grad=True)

    async def program(rank: Rank) -> bool:
        tape = Tape(rank, [w])
        (twice,) = await tape.apply(Double(), torch.ones(3))
        await tape.backward((twice * w).sum())
        return not twice.requires_grad

    assert on_one_rank(program) is True and w.grad is not None and w.grad.tolist() == [2.0, 2.0, 2.0]


def test_a_method_that_differentiates_through_a_cut_by_itself_is_told() -> None:
    w = torch.ones(3, requires_grad=True)

    async def program(rank: Rank) -> None:
        (after,) = await Tape(rank, [w]).apply(Double(), w * 1)
        after.sum().backward()

    with pytest.raises(ProgramError, match="differentiated through a cut"):
        on_one_rank(program)
