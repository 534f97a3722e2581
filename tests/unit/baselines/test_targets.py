"""Which views a method learns from, and which only make its targets: a gradient reaches the former alone."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch


@pytest.mark.parametrize(
    ("method", "settings", "n_targets"),
    [
        ("pi-model", {"ramp": 0}, 1),
        ("uda", {}, 1),
        ("fixmatch", {}, 1),
        ("fixmatch-cta", {"cta_depth": 0}, 2),  # the probe is the second
        ("flexmatch", {}, 1),
        ("freematch", {}, 1),
    ],
)
def test_no_gradient_reaches_a_target(
    make_system: Callable[..., Any],
    make_batch: Callable[..., Any],
    learner: Any,
    method: str,
    settings: dict[str, Any],
    n_targets: int,
) -> None:
    """UDA, Eq. 1: a target is made with a fixed copy of the weights; FixMatch's code of the Π-Model: stop_gradient.

    A pseudo-label carries none anyway; but unless a view is given as a target, the backward pass goes through it.
    """
    learnt = [torch.zeros(1, 3, requires_grad=True) for _ in range(2)]
    sure = [math.log(p) for p in (0.98, 0.01, 0.01)]  # where the learnt views say nothing, so that they have a loss
    targets = [torch.tensor([sure], requires_grad=True) for _ in range(n_targets)]
    chosen = learner(*learnt, *targets)
    loss, _ = make_system(method, **settings).loss(make_batch(), chosen)
    gradients = torch.autograd.grad(loss, [*learnt, *targets], allow_unused=True)
    assert all(gradient is not None and gradient.any() for gradient in gradients[:2])
    assert gradients[2:] == (None,) * n_targets
    assert chosen.n_targets == n_targets
