"""What to train in the minutes there are: a ladder of settings, and the highest rung that the time pays for.

Comes in: the configuration as asked, the number of images, the seconds left, and a function that measures how long an
image of a training step takes under some settings on this machine. Goes out: a `Plan`, the settings chosen. Nothing
here trains or knows a device; dpssl.calibrate measures.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from dpssl.config import (
    BYOL,
    DP_SSL,
    SMALL_SIDE,
    WARM_RATES,
    WIDE_RESNET,
    BackboneConfig,
    Config,
    combined_config,
    with_values,
)
from dpssl.run_folder import START, RunFolder

AIM = 0.9  # share of the time that is planned with; the rest is for the label model, the report and a slow moment
AFTERWORK = 8  # seconds that those take at least
END_SHARE = 0.4  # steps of step 3 for one of step 1, as in preset digits
MCL_SHARE = 0.2  # most steps of the first phase for one of the second
PASSES = 4  # over all images when training is done: votes, probabilities, embeddings, the test images
BACKWARD = 3  # a training step costs about three forward passes
ENOUGH_STEPS = 5000  # below this, labels are what a short time allows: say so. Half of what FixMatch needs on CIFAR-10
ENOUGH_FOR_SMALL = 1000  # of images of at most SMALL_SIDE: digits are 97 % right after 1,200 steps, docs/reproduce.md
EMA_STEPS = 5  # the averaged weights look back over one part in this many of all steps
CLIMB = 2.0  # the next rung costs at least this many times as much


@dataclass(frozen=True)
class Rung:
    """Settings by name that go together, and the steps below which a cheaper rung labels better."""

    values: Mapping[str, Any]
    needs_steps: int
    largest_side: int = 0  # image files are brought down to this side; 0 = left as they are


@dataclass(frozen=True)
class Plan:
    """The settings chosen, by name, and what they are expected to take."""

    config: Config
    seconds: float  # of all training, by the measurement
    affordable_steps: int  # of step 1, were there no cap on them

    @property
    def leaves_time(self) -> bool:
        """Whether all that was asked for takes less than half of the minutes: they decide on nothing."""
        return self.affordable_steps > 2 * self.config.labeling.steps

    @property
    def has_few_steps(self) -> bool:
        return self.config.labeling.steps < ENOUGH_STEPS


def was_too_short(folder: RunFolder, config: Config, side: int) -> bool:
    """Whether a run on images of that side had so few steps, from nothing, that what it is sure of may be wrong."""
    enough = ENOUGH_FOR_SMALL if side <= SMALL_SIDE else ENOUGH_STEPS
    return config.labeling.steps < enough and not folder.path(START).is_dir()


SHORT_RUN = {  # as in the presets for photographs
    "bn_momentum": 0.01,
    "end_start": "lfs",
    # After 1,000 steps on 3,000 pictures of Fashion-MNIST: 68.8 % against 64.1 of own pseudo-labels (one label seed).
    "pseudo_labels": "consensus",
    "adaptive_threshold": True,
}
SMALL_RATE = 0.25  # of a warm start's own learning rate, for an eighth of its images
SMALL_RUN = SHORT_RUN | {
    "batch_size": 16,
    "unlabeled_ratio": 3,  # more steps for the time: 70.7 % against 68.8 on Fashion-MNIST, 97.6 against 94.2 on digits
    "end_batch_size": 16,
    "end_unlabeled_ratio": 6,
    "window": 10,
    "n_lfs": 20,
    "warm_batch_size": 64,
    "learning_rate": 0.06,
    "end_learning_rate": 0.06,
}
CPU_RUNGS = (
    Rung(SMALL_RUN | {"depth": 10, "width": 1, "strides": (2, 2, 1)}, 0, 32),
    Rung(SMALL_RUN | {"depth": 10, "width": 2, "strides": (2, 2, 1)}, 3000, 32),
    Rung(SMALL_RUN | {"depth": 16, "width": 2, "strides": (1, 2, 2)}, 5000, 32),
    Rung(SHORT_RUN, 10000),
)
GPU_RUNGS = (Rung(SHORT_RUN, 0),)
TOGETHER = (  # who gives one of these has decided on all: not every combination is allowed
    {"depth", "width", "strides"},
    {"pseudo_labels", "adaptive_threshold", "curriculum_threshold"},
    {"n_lfs", "specialist_ratio"},
)


def seconds_to_train(seconds: float) -> float:
    """What a budget of so many seconds leaves for training."""
    return max(min(AIM * seconds, seconds - AFTERWORK), seconds / 3)


def make_plan(
    asked: Config,
    given: Collection[str],
    n_images: int,
    side: int,
    seconds: float,
    rungs: tuple[Rung, ...],
    seconds_per_image: Callable[[Config, int], float],
) -> Plan:
    """Climb the ladder as long as the time pays for it. `given` names the settings that are not to be chosen.

    `seconds_per_image(config, side)` measures one image of a training step.
    """
    if asked.end_model.has_own_network:  # which cannot begin with the weights of step 1
        given = {*given, "end_start"}
    best: Plan | None = None
    for rung in rungs:
        if best is not None and best.affordable_steps < CLIMB * rung.needs_steps:
            break
        small = {"image_size": rung.largest_side} if 0 < rung.largest_side < side else {}
        values = {**rung.values, **small}
        if "warm_batch_size" in values:
            values["warm_learning_rate"] = SMALL_RATE * WARM_RATES[asked.warm_start.warm_method]
        config = with_values(asked, _free(values, given))
        cost = seconds_per_image(config, config.data.image_size or side)
        plan = _longest(config, given, n_images, seconds_to_train(seconds), cost)
        if best is not None and plan.affordable_steps < rung.needs_steps:
            break
        best = plan
    assert best is not None  # the first rung is taken in any case
    return best


def images_of(config: Config, n_images: int) -> dict[str, float]:
    """Work of each step in images of a training step, with the passes over all images that end it, in order."""
    warm, lfs, end = config.warm_start, config.labeling, config.end_model
    passes, end_cost = n_images * PASSES / BACKWARD / 2, end_model_cost(config)
    slow_copy = warm.warm_method == BYOL  # goes forward only
    first = lfs.batch_size * (lfs.steps * (1 + 2 * lfs.unlabeled_ratio) + lfs.mcl_max_steps)
    return {
        "warm": 2 * min(warm.warm_batch_size, n_images) * config.n_warm_steps * (1 + slow_copy / BACKWARD),
        "lfs": first + passes,
        "train": end_cost * (end.end_batch_size * end.end_steps * (1 + end.end_unlabeled_ratio) + passes),
    }


def images_of_all_runs(config: Config, n_images: int) -> float:
    """As `images_of`, of a whole run: with a second opinion it is three, of which the first makes the warm start."""
    work = images_of(config, n_images)
    total = sum(work.values())
    if config.has_second_run:
        both, again = images_of(combined_config(config), n_images), config.second_run.second_method == DP_SSL
        total += work["lfs"] + again * work["train"] + both["lfs"] + both["train"]
    return total


def end_model_cost(config: Config) -> float:
    """Multiplications of the end model's network for one of step 1's; 1 where step 1 has one that is not ours."""
    if config.backbone.backbone != WIDE_RESNET:
        return 1.0
    return _multiplications(config.end_backbone) / _multiplications(config.backbone)


def _multiplications(shape: BackboneConfig) -> float:
    """Of a Wide ResNet's 3x3 convolutions, up to a factor that all have in common."""
    n_convolutions, side, total = (shape.depth - len(shape.strides) - 1) / len(shape.strides), 1.0, 0.0
    for stage, stride in enumerate(shape.strides):
        side /= stride
        total += n_convolutions * (shape.width * 2**stage * side) ** 2
    return total


def minutes_for_step(config: Config, n_images: int, step: str, minutes: float) -> float:
    """How many of the `minutes` left for the run a step that starts now may take: later ones keep their part."""
    work = images_of(config, n_images)
    if step not in work:
        return minutes
    left = list(work.values())[list(work).index(step) :]
    return minutes * left[0] / sum(left)


def _longest(config: Config, given: Collection[str], n_images: int, seconds: float, cost: float) -> Plan:
    """The longest schedule that `seconds` pay for, and no longer than the one without a limit."""
    window = config.labeling.window
    low, high = 1, max(2, int(seconds / cost / window) + 1)  # windows of step 1; an image a step is the least
    while high - low > 1:
        middle = (low + high) // 2
        fits = sum(images_of(_scheduled(config, given, middle * window), n_images).values()) * cost <= seconds
        low, high = (middle, high) if fits else (low, middle)
    scheduled = _scheduled(config, given, min(low * window, config.labeling.steps))
    return Plan(scheduled, sum(images_of(scheduled, n_images).values()) * cost, low * window)


def _scheduled(config: Config, given: Collection[str], steps: int) -> Config:
    """All that depends on the number of steps."""
    least_memory = 1 - EMA_STEPS / max(steps, 10 * EMA_STEPS)  # of drawn weights, by moving averages
    values = {
        "steps": steps,
        "warm_steps": min(config.warm_start.warm_steps, steps),
        "end_steps": max(1, min(config.end_model.end_steps, int(END_SHARE * steps))),
        "mcl_max_steps": max(1, min(config.labeling.mcl_max_steps, int(MCL_SHARE * steps))),
        "ema_decay": min(config.optim.ema_decay, least_memory),
        "warm_target_decay": min(config.warm_start.warm_target_decay, least_memory),
    }
    return with_values(config, _free(values, given))


def _free(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    decided = set(given).union(*(group for group in TOGETHER if group.intersection(given)))
    return {name: value for name, value in values.items() if name not in decided}
