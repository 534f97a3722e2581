"""A step of every method can be captured in a CUDA graph: nothing in it waits for the device or for other randomness.

On a CPU no graph is captured, so this looks at the operations themselves: no value is read back to the host, no shape
depends on data, no constant is carried over from the host, every draw names its generator. On a GPU
tests/gpu/run_checks.py compares captured with eager steps.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dpssl.baselines.registry import SYSTEMS
from dpssl.baselines.system import Learner
from dpssl.baselines.trainer import next_batch, start, start_feed
from dpssl.data.batches import ImageBank, LabeledImages
from dpssl.training.optim import FlatSGD

READ_BACK = {"_local_scalar_dense", "nonzero", "masked_select", "bincount", "unique_dim", "_unique2", "equal"}
FROM_THE_HOST = {"lift_fresh", "lift_fresh_copy"}  # torch.tensor(...)
RANDOM = {"rand", "randint", "randn", "randperm", "bernoulli_", "uniform_", "normal_", "_standard_gamma", "multinomial"}


class Watchful(TorchDispatchMode):
    """Notes every operation that a captured step must not have."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        given = [*args, *(kwargs or {}).values()]
        if name in READ_BACK | FROM_THE_HOST:
            self.found.append(name)
        if name in RANDOM and not any(isinstance(value, torch.Generator) for value in given):
            self.found.append(f"{name} without a generator")
        if name in ("index", "index_put_") and any(i is not None and i.dtype == torch.bool for i in args[1]):
            self.found.append("an index whose size depends on data")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("method", SYSTEMS)
def test_a_step_never_leaves_the_device(
    digits: tuple[ImageBank, torch.Tensor], tiny_config: Callable[..., Any], method: str
) -> None:
    bank, given = digits
    config = tiny_config(method)
    if method == "uda":
        config = tiny_config(method, "annealing=log")
    labeled, draws = LabeledImages.of(given), torch.Generator().manual_seed(0)
    feed = start_feed(bank, labeled, torch.arange(len(bank)), config)
    network, system = start(config, 3, bank, labeled)
    optimizer = FlatSGD(torch.nn.ModuleDict({"network": network, "system": system}), 0.9, 5e-4, 0.9)
    learner = Learner(network, lambda: optimizer.averaged(network), bank, config, draws)

    def step() -> None:
        loss, _ = system.loss(next_batch(feed, given), learner)
        gradients = torch.autograd.grad(loss, optimizer.parameters, allow_unused=True)
        optimizer.step(
            [torch.zeros_like(p) if g is None else g for g, p in zip(gradients, optimizer.parameters, strict=True)]
        )

    feed.advance()
    step()  # makes the tables of augmentation, as the warm-up before a capture does
    pointers = {name: buffer.data_ptr() for name, buffer in system.named_buffers()}
    with Watchful() as watch:
        step()
    assert watch.found == []
    assert pointers == {name: buffer.data_ptr() for name, buffer in system.named_buffers()}, "changed, but not in place"


def test_the_watch_sees_what_it_looks_for() -> None:
    with Watchful() as watch:
        x = torch.tensor([1.0, 2.0])
        x[x > 1]
        x.max().item()
        torch.rand(2)
    assert {"lift_fresh", "_local_scalar_dense", "rand without a generator"} <= set(watch.found)
    assert "an index whose size depends on data" in watch.found
