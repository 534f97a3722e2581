"""Plans as pure functions: the machine is a formula for the seconds an image takes."""

from itertools import pairwise
from typing import Any

import pytest

from dpssl.config import Config, with_values
from dpssl.plan import (
    AFTERWORK,
    AIM,
    CPU_RUNGS,
    GPU_RUNGS,
    Plan,
    end_model_cost,
    images_of,
    make_plan,
    minutes_for_step,
    seconds_to_train,
)

N_IMAGES = 3000


def pace(config: Config, side: int) -> float:
    """Seconds an image: about those of two slow cores."""
    shape = config.backbone
    return 4e-10 * side**2 * shape.depth * (16 * shape.width) ** 2 / shape.strides[0] ** 2


def plan_for(minutes: float, given: dict[str, Any] | None = None, side: int = 32, speed: float = 1.0) -> Plan:
    given = given or {}
    return make_plan(
        with_values(Config(), given),
        given,
        N_IMAGES,
        side,
        60 * minutes,
        CPU_RUNGS,
        lambda config, side: pace(config, side) / speed,
    )


MINUTES = (0.5, 1, 2, 5, 10, 30, 120, 600, 3000, 100_000)


@pytest.mark.parametrize("minutes", MINUTES[1:])
def test_a_plan_fits_its_minutes_and_wastes_few(minutes: float) -> None:
    plan = plan_for(minutes)
    assert plan.seconds <= seconds_to_train(60 * minutes)
    is_all_that_was_asked = plan.config.labeling.steps == Config().labeling.steps
    assert is_all_that_was_asked or plan.seconds > 0.8 * seconds_to_train(60 * minutes)


def test_a_short_budget_leaves_time_for_what_comes_after_training() -> None:
    assert seconds_to_train(30) == 30 - AFTERWORK
    assert seconds_to_train(300) == AIM * 300
    assert seconds_to_train(6) > 0


def test_more_minutes_never_buy_less() -> None:
    plans = [plan_for(minutes) for minutes in MINUTES]
    sizes = [plan.config.backbone.depth * plan.config.backbone.width for plan in plans]
    assert sizes == sorted(sizes)
    for before, after in pairwise(plans):
        if before.config.backbone == after.config.backbone:
            assert before.config.labeling.steps <= after.config.labeling.steps
            assert before.config.end_model.end_steps <= after.config.end_model.end_steps
    assert len(set(sizes)) == len(CPU_RUNGS)


def test_with_all_the_time_of_the_world_the_usual_settings_stay() -> None:
    usual, planned = Config(), plan_for(1e6, side=64).config
    assert planned.labeling.steps == usual.labeling.steps
    assert planned.end_model.end_steps < usual.end_model.end_steps * 1.01
    assert planned.backbone.depth == usual.backbone.depth
    assert planned.data.image_size == 0
    assert planned.optim == usual.optim


def test_a_faster_machine_is_as_good_as_more_time() -> None:
    assert plan_for(5, speed=8).config.backbone == plan_for(40).config.backbone


def test_what_is_given_is_not_chosen() -> None:
    given = {"depth": 16, "n_lfs": 7, "end_steps": 33, "image_size": 48, "ema_decay": 0.9, "batch_size": 5}
    config = plan_for(5, given, side=48).config
    assert [config.backbone.depth, config.labeling.n_lfs, config.end_model.end_steps] == [16, 7, 33]
    assert [config.data.image_size, config.optim.ema_decay, config.labeling.batch_size] == [48, 0.9, 5]
    assert config.labeling.steps != Config().labeling.steps


@pytest.mark.parametrize("given", [{"strides": (1, 2, 2, 2), "depth": 13}, {"pseudo_labels": "own"}, {"n_lfs": 4}])
def test_settings_that_belong_together_are_given_together(given: dict[str, Any]) -> None:
    config = plan_for(5, given).config
    assert config.backbone.depth == given.get("depth", 10)
    assert config.labeling.adaptive_threshold == ("pseudo_labels" not in given)
    assert config.labeling.n_lfs == given.get("n_lfs", 20)


def test_larger_images_are_brought_down_where_time_is_short() -> None:
    assert plan_for(5, side=64).config.data.image_size == 32
    assert plan_for(5, side=32).config.data.image_size == 0
    assert plan_for(5, side=64).config.labeling == plan_for(5, side=32).config.labeling


def test_next_to_no_time_still_gives_a_plan() -> None:
    for minutes in (-1, 0, 0.01):
        config = plan_for(minutes).config
        assert config.labeling.steps == config.labeling.window
        assert config.end_model.end_steps >= 1


def test_costly_rungs_are_not_even_measured() -> None:
    measured = []

    def note(config: Config, side: int) -> float:
        measured.append(config.backbone.depth)
        return pace(config, side)

    make_plan(Config(), (), N_IMAGES, 32, 300, CPU_RUNGS, note)
    assert 28 not in measured


def test_on_a_gpu_time_decides_on_steps_alone() -> None:
    config = make_plan(Config(), (), 27_000, 64, 600, GPU_RUNGS, lambda config, side: 5e-5).config
    assert config.backbone.depth == Config().backbone.depth
    assert config.data.image_size == 0
    assert 0 < config.labeling.steps < Config().labeling.steps


def test_the_first_step_leaves_the_third_its_part() -> None:
    config = plan_for(5).config
    config = with_values(config, {"warm_steps": 100})
    warm, first, third = images_of(config, N_IMAGES).values()
    assert warm == 100 * 2 * config.warm_start.warm_batch_size
    slower = images_of(with_values(config, {"warm_method": "byol"}), N_IMAGES)["warm"]
    assert slower == pytest.approx(warm * 4 / 3), "a slow copy goes forward beside forward and backward"
    assert minutes_for_step(config, N_IMAGES, "warm", 4) == pytest.approx(4 * warm / (warm + first + third))
    assert minutes_for_step(config, N_IMAGES, "lfs", 4) == pytest.approx(4 * first / (first + third))
    assert minutes_for_step(config, N_IMAGES, "train", 4) == 4
    assert minutes_for_step(config, N_IMAGES, "fit", 4) == 4


def test_a_warm_start_gets_as_many_steps_as_the_labeling_functions_at_most() -> None:
    asked = with_values(Config(), {"warm_steps": 20_000})
    plan = make_plan(asked, (), N_IMAGES, 32, 300, CPU_RUNGS, pace)
    assert plan.config.warm_start.warm_steps == plan.config.labeling.steps
    assert plan.config.labeling.steps < plan_for(5).config.labeling.steps, "both share the minutes"
    assert plan.config.warm_start.warm_target_decay**plan.config.n_warm_steps < 0.01, "little is left of drawn weights"
    given = with_values(asked, {"backbone_weights": "weights.safetensors"})
    plan = make_plan(given, ("backbone_weights",), N_IMAGES, 32, 300, CPU_RUNGS, pace)
    assert plan.config.labeling.steps == plan_for(5).config.labeling.steps, "nothing is to be warmed"


@pytest.mark.parametrize(("method", "rate"), [("simclr", 0.1), ("byol", 0.05)])
def test_a_small_warm_start_has_a_quarter_of_its_methods_rate(method: str, rate: float) -> None:
    asked = with_values(Config(), {"warm_steps": 20_000, "warm_method": method})
    assert asked.warm_start.learning_rate == pytest.approx(4 * rate)
    planned = make_plan(asked, (), N_IMAGES, 32, 300, CPU_RUNGS, pace).config.warm_start
    assert [planned.warm_batch_size, planned.learning_rate] == [64, pytest.approx(rate)]
    planned = make_plan(
        with_values(asked, {"warm_learning_rate": 0.3}), ("warm_learning_rate",), N_IMAGES, 32, 300, CPU_RUNGS, pace
    ).config.warm_start
    assert planned.learning_rate == 0.3


def test_an_end_model_with_a_network_of_its_own_has_its_own_cost() -> None:
    config = with_values(Config(), {"depth": 10, "width": 1, "strides": (1, 2, 2)})
    assert end_model_cost(config) == 1
    wide = with_values(config, {"end_width": 2})
    assert end_model_cost(wide) == 4
    assert end_model_cost(with_values(config, {"end_depth": 28})) == 4
    # stages of 1, 2 and 4 channels at sides of 1/2, 1/2 and 1/2, against 1, 1/2 and 1/4: (1/4 + 1 + 4) / 3
    assert end_model_cost(with_values(config, {"end_strides": (2, 1, 1)})) == pytest.approx(1.75)
    assert images_of(wide, 100)["train"] == 4 * images_of(config, 100)["train"]
    assert images_of(wide, 100)["lfs"] == images_of(config, 100)["lfs"]
    assert end_model_cost(with_values(wide, {"backbone": "timm:resnet18"})) == 1


def test_a_plan_leaves_the_start_of_an_end_model_with_a_network_of_its_own() -> None:
    assert plan_for(30).config.end_model.end_start == "lfs"
    assert plan_for(30, {"end_width": 2}).config.end_model.end_start == "scratch"
