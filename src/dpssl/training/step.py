"""One optimisation step, run eagerly on a CPU and replayed as a captured CUDA graph on a GPU.

A step is a closure that draws, augments, computes the loss and returns it with a few numbers worth logging. Everything
it touches lives on the device, so that a captured step has no host work left but setting the learning rate.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dpssl.training.distributed import average
from dpssl.training.optim import FlatSGD

LossAndMetrics = tuple[Tensor, Mapping[str, Tensor]]
WARM_UP_STEPS = 3


class TrainState:
    """Every tensor that training changes, by the checkpoint file it goes to."""

    def __init__(self, optimizer: FlatSGD, modules: Mapping[str, nn.Module], generator: torch.Generator) -> None:
        self.optimizer, self.modules, self.generator = optimizer, modules, generator

    def files(self) -> dict[str, dict[str, Tensor]]:
        """File name -> tensors, on the CPU. Weights, average and momentum are a file each: none is large."""
        flat = {name: {name: tensor.detach().cpu().clone()} for name, tensor in self.optimizer.state().items()}
        buffers = {name: buffer.detach().cpu().clone() for name, buffer in self._buffers()}
        buffers["generator"] = self.generator.get_state().cpu().clone()
        return {**flat, "buffers": buffers}

    @torch.no_grad()
    def load(self, files: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Copy the tensors back in place: views and captured graphs keep pointing at them."""
        for name, tensor in self.optimizer.state().items():
            tensor.copy_(files[name][name])
        for name, buffer in self._buffers():
            buffer.copy_(files["buffers"][name])
        self.generator.set_state(files["buffers"]["generator"].to(torch.uint8))

    def _buffers(self) -> list[tuple[str, Tensor]]:
        return [
            (f"{prefix}.{name}", buffer)
            for prefix, module in self.modules.items()
            for name, buffer in module.named_buffers()
        ]


class TrainStep:
    """Calls `compute`, differentiates its loss and updates; sums the metrics until they are read."""

    def __init__(
        self,
        compute: Callable[[], LossAndMetrics],
        state: TrainState,
        prepare: Callable[[], None] = lambda: None,  # called before each step, never captured
    ) -> None:
        self.compute, self.state, self.prepare = compute, state, prepare
        self._names: list[str] = []
        self._taken_up: dict[str, float] = {}
        self._sums: Tensor | None = None
        self._n_summed = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def run(self, learning_rate: float) -> None:
        self.state.optimizer.learning_rate.fill_(learning_rate)
        self.prepare()
        if self._graph is not None:
            self._graph.replay()
        else:
            self._once()
        self._n_summed += 1

    def read_metrics(self) -> dict[str, float]:
        """Means since the last reading. The only place where the host waits for the device."""
        if self._sums is None or self._n_summed == 0:
            return {}
        values = (average(self._sums) / self._n_summed).tolist()
        self._sums.zero_()
        self._n_summed = 0
        return dict(zip(self._names, values, strict=True))

    @property
    def n_unread(self) -> int:
        """Steps since the last reading."""
        return self._n_summed

    def unread(self) -> dict[str, Any]:
        """What was summed since then, for a checkpoint."""
        sums = self._taken_up if self._sums is None else dict(zip(self._names, self._sums.tolist(), strict=True))
        return {"n": self._n_summed, "sums": sums}

    def take_up(self, unread: Mapping[str, Any]) -> None:
        """Go on with what `unread` gave, from the first step on or where a captured one adds to it."""
        self._n_summed, self._taken_up = unread["n"], dict(unread["sums"])
        if self._sums is not None:
            self._sums.copy_(self._first_sums())

    def _first_sums(self) -> Tensor:
        """What was taken up, by name: another version of the program may have logged other fields."""
        first = [self._taken_up.get(name, 0.0) for name in self._names]
        return torch.tensor(first, device=self.state.optimizer.weights.device)

    def capture(self) -> None:
        """Record the step as a CUDA graph. The warm-up steps it needs are undone, random state included."""
        before = self.state.files()
        self.prepare()
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            for _ in range(WARM_UP_STEPS):
                self._once()
        torch.cuda.current_stream().wait_stream(side_stream)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.state.generator)
        # Threads that gather images ahead may pin memory meanwhile; that is no business of the capture.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._once()
        self._graph = graph
        self.state.load(before)
        if self._sums is not None:
            self._sums.zero_()

    def _once(self) -> None:
        loss, metrics = self.compute()
        gradients = torch.autograd.grad(loss, self.state.optimizer.parameters, allow_unused=True)
        parameters = self.state.optimizer.parameters
        self.state.optimizer.step(
            [torch.zeros_like(p) if g is None else g for g, p in zip(gradients, parameters, strict=True)]
        )
        self._add_metrics({"loss": loss, **metrics})

    @torch.no_grad()
    def _add_metrics(self, metrics: Mapping[str, Tensor]) -> None:
        values = torch.stack([value.detach().float() for value in metrics.values()])
        if self._sums is None:
            self._names = list(metrics)
            self._sums = self._first_sums()
        self._sums.add_(values)
