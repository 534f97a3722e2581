"""A learner whose logits a test chooses, and digits to train on."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from dpssl.baselines.registry import SYSTEMS, method_settings
from dpssl.baselines.system import Batch, System, Task
from dpssl.config import Config, with_values

WEAK, STRONG, N_VIEWS = 1, 2, 3  # a view adds to the pixels of its image, which are 0, 3, 6, …
FIRST_UNLABELED = 120  # the pixels of the first unlabelled image


class ChosenLogits:
    """Stands for a learner: its views are the images, marked, and its passes return what the test chose, in order.

    The joint pass (with `features` where a method asks for them), the teacher and the guess have logits of their own,
    a row per image, so that none can stand for another. Rows may require a gradient; as with a real learner it reaches
    neither teacher nor guess. A test sees which views were asked for, and which of them went through each pass, in
    order: `seen` has "L0 weak, U0 strong" for the first labelled and the first unlabelled image of `make_batch`.
    """

    def __init__(
        self,
        *joint: Tensor,
        teacher: Sequence[Tensor] = (),
        guess: Sequence[Tensor] = (),
        features: Sequence[Tensor] = (),
    ) -> None:
        self.given = {"joint": [*joint], "teacher": [*teacher], "guess": [*guess], "features": [*features]}
        self.asked: list[str] = []
        self.seen: list[str] = []
        self.n_targets = 0
        self.generator = torch.Generator().manual_seed(0)

    def weak(self, images: Tensor) -> Tensor:
        self.asked.append("weak")
        return images + WEAK

    def strong(self, images: Tensor, turns: Tensor | None = None) -> Tensor:
        self.asked.append("strong" if turns is None else "strong by turns")
        return images + STRONG

    def logits(self, *views: Tensor, n_targets: int = 0) -> tuple[Tensor, ...]:
        self.n_targets = n_targets
        return self._of_each("joint", views)

    def logits_and_features(self, *views: Tensor, n_targets: int = 0) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        return self.logits(*views, n_targets=n_targets), self._of_each("features", views)

    def inputs(self, images: Tensor) -> Tensor:
        return images.float()

    def logits_of(self, inputs: Tensor) -> Tensor:
        return self._next("joint", inputs)

    features_of = logits_of

    def teacher_logits(self, images: Tensor) -> Tensor:
        return self._next("teacher", images).detach()

    def guess_logits(self, images: Tensor) -> Tensor:
        return self._next("guess", images).detach()

    def head(self, features: Tensor) -> Tensor:
        return features

    def _of_each(self, name: str, views: Sequence[Tensor]) -> tuple[Tensor, ...]:
        n_learnt = len(views) - self.n_targets
        rows = [self._next(name, view) for view in views]
        return (*rows[:n_learnt], *(row.detach() for row in rows[n_learnt:]))

    def _next(self, name: str, images: Tensor) -> Tensor:
        assert self.given[name], f"the test chose nothing more for: {name}"
        rows = self.given[name].pop(0)
        assert len(rows) == len(images), f"{name}: {len(images)} images, but the test chose {len(rows)} rows"
        if name != "features":  # they come with a pass that is noted
            self.seen.append(", ".join(view_name(pixel) for pixel in images[:, 0, 0, 0].tolist()))
        return rows


def view_name(pixel: float) -> str:
    """What a pixel says: "U0 strong" is a strong view of the first unlabelled image, "U0" the image as it is."""
    if pixel != int(pixel):
        return "mixed"
    letter, mark = ("U", int(pixel) - FIRST_UNLABELED) if pixel >= FIRST_UNLABELED else ("L", int(pixel))
    return f"{letter}{mark // N_VIEWS}" + {0: "", WEAK: " weak", STRONG: " strong"}[mark % N_VIEWS]


@pytest.fixture
def learner() -> type[ChosenLogits]:
    return ChosenLogits


@pytest.fixture
def make_system() -> Callable[..., System]:
    """`make_system("fixmatch", threshold=0.8)`: for 3 classes, 10 images and 100 steps unless told otherwise."""

    def make(method: str, *, task: dict[str, Any] | None = None, **settings: object) -> System:
        sizes: dict[str, Any] = {
            "n_classes": 3, "n_images": 10, "n_features": 4, "n_steps": 100, "n_labeled": 6, "image_size": (4, 4),
        }  # fmt: skip
        sizes |= task or {}
        balance = torch.full((sizes["n_classes"],), 1 / sizes["n_classes"])
        given = [f"{name}={value}" for name, value in settings.items()]
        return SYSTEMS[method](method_settings(method, given), Task(**{"class_balance": balance, **sizes}))

    return make


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    """`make_batch(labels=[0], n_unlabeled=2)`: images whose pixels tell them apart; positions count up from 0."""

    def marked(n_images: int, first: int) -> Tensor:
        pixels = first + N_VIEWS * torch.arange(n_images)
        return pixels.to(torch.uint8).view(-1, 1, 1, 1).repeat(1, 1, 4, 4)

    def make(labels: Sequence[int] = (0,), n_unlabeled: int = 1, positions: Sequence[int] | None = None) -> Batch:
        where = torch.arange(n_unlabeled) if positions is None else torch.tensor(positions)
        return Batch(marked(len(labels), 0), torch.tensor(labels), marked(n_unlabeled, FIRST_UNLABELED), where)

    return make


@pytest.fixture(scope="session")
def tiny_config() -> Callable[..., Config]:
    """`tiny_config("fixmatch", steps=2)`: a WRN-10-1 and a few steps, with fields replaced."""

    def make(method: str, *settings: str, **values: object) -> Config:
        small = {
            "depth": 10, "width": 1, "strides": (1, 2, 1), "bn_momentum": 0.1, "flip": False, "steps": 6, "window": 2,
            "batch_size": 6, "unlabeled_ratio": 2, "ema_decay": 0.9, "method": method, "method_settings": settings,
        }  # fmt: skip
        return with_values(Config(), {**small, **values})

    return make
