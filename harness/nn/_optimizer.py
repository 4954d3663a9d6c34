"""Adam in torch's fused form, one operator a step for all parameters, on tensors with and without numbers.

torch refuses its fused Adam on the meta device although the operator itself is defined there, and a shapes-only run
must execute the same operators as any other, or its costs would differ. Torch's class would also import its compiler
at the first step, which takes a second in every process (`harness.kernels.uncompiled`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


def adam(parameters: Iterable[Tensor], lr: float, weight_decay: float) -> Optimizer:
    """Adam with torch's default betas and epsilon over `parameters`, all on one kind of device."""
    return _FusedAdam(list(parameters), {"lr": lr, "weight_decay": weight_decay})


class _FusedAdam(Optimizer):
    """The operators and the state of torch's Adam with fused=True.

    The state exists from the start, where torch makes it in the first step: all steps, and the memory that every epoch
    begins with, are alike.
    """

    def __init__(self, parameters: list[Tensor], defaults: dict[str, Any]) -> None:
        super().__init__(parameters, defaults)
        for parameter in parameters:
            self.state[parameter] = {
                "step": parameter.new_zeros((), dtype=torch.float32),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One step over the parameters that have gradients."""
        with torch.no_grad():
            for group in self.param_groups:
                held = [p for p in group["params"] if p.grad is not None]
                if held:
                    self._fused(held, group)

    def _fused(self, held: list[Tensor], group: dict[str, Any]) -> None:
        steps, first, second = ([self.state[p][name] for p in held] for name in ("step", "exp_avg", "exp_avg_sq"))
        torch._foreach_add_(steps, 1)
        torch._fused_adam_(
            held, [p.grad for p in held if p.grad is not None], first, second, [], steps,
            amsgrad=False, lr=group["lr"], beta1=0.9, beta2=0.999, weight_decay=group["weight_decay"], eps=1e-8,
            maximize=False, grad_scale=None, found_inf=None,
        )  # fmt: skip
