import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from dpssl.errors import TrainingError
from dpssl.training.checkpoint import TensorFiles
from dpssl.training.loop import run_windows
from dpssl.training.optim import FlatSGD
from dpssl.training.step import TrainState, TrainStep

MakeStep = Callable[..., TrainStep]


def same(first: TensorFiles, second: TensorFiles) -> bool:
    assert first.keys() == second.keys()
    return all(
        first[file].keys() == second[file].keys()
        and all(torch.equal(tensor, second[file][name]) for name, tensor in first[file].items())
        for file in first
    )


def test_a_loaded_state_trains_on_as_the_saved_one(make_step: MakeStep) -> None:
    original, other = make_step(seed=1), make_step(seed=2)
    for _ in range(3):
        original.run(0.1)
    saved = original.state.files()
    other.run(0.1)
    assert not same(saved, other.state.files())
    other.state.load(saved)
    assert same(saved, other.state.files())
    for _ in range(2):
        original.run(0.05)
        other.run(0.05)
    assert same(original.state.files(), other.state.files())


def test_saved_tensors_are_a_copy(make_step: MakeStep) -> None:
    step = make_step()
    saved = step.state.files()
    kept = {file: {name: tensor.clone() for name, tensor in tensors.items()} for file, tensors in saved.items()}
    step.run(0.1)
    assert same(saved, kept)


def test_batch_norm_and_random_state_are_saved(make_step: MakeStep) -> None:
    names = [name for tensors in make_step().state.files().values() for name in tensors]
    assert "network.1.running_mean" in names
    assert "network.1.running_var" in names
    assert "generator" in names


def test_loading_keeps_the_network_on_its_weights(make_step: MakeStep) -> None:
    """Parameters are views of the optimiser's vector; loading must not cut that tie."""
    step = make_step(seed=1)
    step.state.load(make_step(seed=2).state.files())
    linear = step.state.modules["network"][3]
    before = linear.weight.clone()
    step.run(0.1)
    assert not torch.equal(linear.weight, before)


def test_metrics_are_means_since_the_last_reading() -> None:
    network = nn.Linear(1, 1)
    values = iter([1.0, 3.0, 10.0])
    state = TrainState(FlatSGD(network, 0.9, 0.0, 0.9), {"network": network}, torch.Generator())

    def compute() -> tuple[Tensor, dict[str, Tensor]]:
        value = next(values)
        return 0 * network.weight.sum() + value, {"square": torch.tensor(value**2)}

    step = TrainStep(compute, state)
    step.run(0.1)
    step.run(0.1)
    assert step.read_metrics() == pytest.approx({"loss": 2.0, "square": 5.0})
    step.run(0.1)
    assert step.read_metrics() == pytest.approx({"loss": 10.0, "square": 100.0})


def test_sums_of_a_checkpoint_are_taken_up_by_name() -> None:
    """Those of another version may stand in another order, lack a field, and have one that is gone."""
    network = nn.Linear(1, 1)
    state = TrainState(FlatSGD(network, 0.9, 0.0, 0.9), {"network": network}, torch.Generator())

    def compute() -> tuple[Tensor, dict[str, Tensor]]:
        return 0 * network.weight.sum() + 2, {"first": torch.tensor(4.0), "second": torch.tensor(6.0)}

    step = TrainStep(compute, state)
    unread = {"n": 3, "sums": {"loss": 6.0, "gone": 1.0, "first": 12.0}}
    step.take_up(unread)
    assert step.unread() == unread  # nothing was run since
    step.run(0.1)
    assert step.unread() == {"n": 4, "sums": {"loss": 8.0, "first": 16.0, "second": 6.0}}
    assert step.read_metrics() == pytest.approx({"loss": 2.0, "first": 4.0, "second": 1.5})
    step.take_up({"n": 1, "sums": {"second": 5.0, "first": 3.0, "loss": 1.0}})
    assert step.read_metrics() == {"loss": 1.0, "first": 3.0, "second": 5.0}


def test_parameters_outside_the_loss_are_left_alone() -> None:
    network = nn.ModuleDict({"used": nn.Linear(2, 1), "idle": nn.Linear(2, 1)})
    before = network["idle"].weight.clone()
    state = TrainState(FlatSGD(network, 0.9, 0.0, 0.9), {"network": network}, torch.Generator())
    TrainStep(lambda: (network["used"](torch.ones(1, 2)).sum(), {}), state).run(0.1)
    assert torch.equal(network["idle"].weight, before)


# Windows


def test_windows_end_at_multiples_and_at_the_end(make_step: MakeStep) -> None:
    seen, rates = [], []

    def learning_rate(index: int) -> float:
        rates.append(index)
        return 0.01

    def after_window(done: int, metrics: dict[str, float]) -> bool:
        assert metrics["twice"] == pytest.approx(2 * metrics["loss"])
        seen.append(done)
        return False

    done = run_windows(
        make_step(), first_step=4, n_steps=lambda: 11, window=4, learning_rate=learning_rate, after_window=after_window
    )
    assert done == 11
    assert seen == [8, 11]
    assert rates == list(range(4, 11))


def test_a_stage_can_stop_early(make_step: MakeStep) -> None:
    done = run_windows(
        make_step(),
        first_step=0,
        n_steps=lambda: 100,
        window=3,
        learning_rate=lambda _: 0.01,
        after_window=lambda done, _: done >= 6,
    )
    assert done == 6


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_before_anything_is_saved(make_step: MakeStep, value: float) -> None:
    windows = []
    with pytest.raises(TrainingError, match=r"the loss is (nan|inf) after step 2: .*--learning-rate \(now 0\.5\)"):
        run_windows(
            make_step(loss=value),
            first_step=0,
            n_steps=lambda: 10,
            window=2,
            learning_rate=lambda _: 0.5,
            after_window=lambda done, _: bool(windows.append(done)),
        )
    assert windows == []
