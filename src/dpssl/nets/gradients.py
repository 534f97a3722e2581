"""Gradients that are made smaller, or larger, on their way back."""

from typing import Any, cast

import torch
from torch import Tensor


class ScaleGradient(torch.autograd.Function):
    """The identity, with its gradient multiplied by a factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float | Tensor) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factor, None


def scale_gradient(x: Tensor, factor: float | Tensor) -> Tensor:
    """x, with its gradient multiplied by `factor`."""
    return cast(Tensor, ScaleGradient.apply(x, factor))  # type: ignore[no-untyped-call]
