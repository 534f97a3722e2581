"""`DPSSLClassifier`: the three steps in memory, with scikit-learn's manners.

clf = DPSSLClassifier(seed=1).fit(images, y)      # y: class numbers, -1 where unlabelled; or names, "" where unlabelled
clf.soft_labels_, clf.predict(new_images), clf.predict_proba(new_images), clf.score(test_images, test_y)
"""

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from dpssl.calibrate import hours_ahead
from dpssl.checks import check, check_settled
from dpssl.class_prior import class_prior
from dpssl.config import Config, alone, default_preset, load_preset, options, with_values
from dpssl.constants import UNLABELED
from dpssl.data.batches import ImageBank
from dpssl.data.table import as_uint8_images
from dpssl.end_model.predict import predict_probabilities
from dpssl.end_model.train import train_end_model
from dpssl.errors import InputError
from dpssl.label_model import LabelModel, confidence_for, covered
from dpssl.labeling.train import train_lfs
from dpssl.labeling.vote import cast_votes
from dpssl.named_classes import ClassReader
from dpssl.nets.backbones import check_backbone
from dpssl.training.precision import pick_device
from dpssl.training.watch import Watch
from dpssl.warm_start import train_warm_start

LEARNT = 0.5  # of the images have a vote


class DPSSLClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is not annotated
    """Label images from a few labels, and classify new ones.

    seed: of the weights and every draw.
    device: "cpu", "cuda" or "auto".
    preset: name of the settings to start from; None chooses by the size of the images. A second opinion that a preset
        asks for (`cifar10-40`) is for `dpssl run` alone.
    settings: dict of settings of the method, such as {"n_lfs": 30, "steps": 5000}; `dpssl run --help` lists them.
    verbose: show progress bars.

    After `fit`: `classes_`, `soft_labels_` (n, C) of the images fitted on, `covered_` (n,) which of them have a vote,
    `votes_` (n, K), `label_model_` and `end_model_`.
    """

    def __init__(
        self,
        *,
        seed: int = 1,
        device: str = "auto",
        preset: str | None = None,
        settings: dict[str, Any] | None = None,
        verbose: bool = False,
    ) -> None:
        self.seed = seed
        self.device = device
        self.preset = preset
        self.settings = settings
        self.verbose = verbose

    def fit(self, images: Any, y: Any) -> "DPSSLClassifier":
        """Learn from images and the labels of some.

        images: (n, H, W) or (n, H, W, channels).
        y: (n,) class numbers, -1 where unlabelled, or class names, "" or None where unlabelled.
        """
        pixels = as_uint8_images(images)
        self.classes_, given = _read_labels(y, len(pixels))
        self.config_ = alone(self._config(pixels))
        check(self.config_)
        check_settled(self.config_)
        check_backbone(self.config_.backbone)
        n_classes, device = len(self.classes_), pick_device(self.device)
        class_prior(self.config_.label_model.class_prior, given, n_classes)  # fails before the minutes of training
        labels = torch.from_numpy(given)
        if told := hours_ahead(self.config_, pixels, given, device):
            warnings.warn(
                f"at the pace of its first steps this takes about {told} on a CPU; a GPU is made for it. Fewer steps "
                "and a smaller network are faster: settings={'steps': …, 'depth': 10, 'width': 1}",
                stacklevel=2,
            )
        bank = ImageBank.from_numpy(pixels, device)
        watch = Watch(progress=self.verbose)

        warm = None
        if self.config_.n_warm_steps:
            warm = train_warm_start(bank, torch.arange(len(pixels)), self.config_, watch)
        network = train_lfs(bank, labels, n_classes, self.config_, watch, backbone_start=warm)
        found = cast_votes(network, bank)
        settings = self.config_.label_model
        confidence = confidence_for(settings.label_model, found.confidence) if settings.use_confidence else None
        self.votes_ = found.votes
        balance = class_prior(settings.class_prior, given, n_classes)
        self.label_model_ = LabelModel(n_classes, settings.label_model).fit(
            found.votes, given, confidence, found.specialties, class_balance=balance
        )
        self.soft_labels_ = self.label_model_.predict_proba(found.votes, confidence)
        self.covered_ = covered(found.votes)
        if (share := self.covered_.mean()) < LEARNT:
            warnings.warn(
                f"{100 * share:.0f} % of the images have a vote: the labeling functions have not learnt the classes; "
                f"try more steps than {self.config_.labeling.steps} (settings={{'steps': …}})",
                ConvergenceWarning,
                stacklevel=2,
            )
        start = network.backbone.state_dict() if self.config_.end_model.end_start == "lfs" else warm
        self.end_model_ = train_end_model(
            bank,
            labels,
            torch.from_numpy(self.soft_labels_),
            torch.from_numpy(self.covered_),
            self.config_,
            watch,
            backbone_start=start,
        )
        self._bank = bank.with_images(pixels[:0])
        self.n_features_in_ = int(np.prod(pixels.shape[1:]))
        return self

    def predict_proba(self, images: Any) -> NDArray[np.float32]:
        """Class probabilities (n, C) of the end model, columns in the order of `classes_`."""
        check_is_fitted(self, "end_model_")
        pixels = as_uint8_images(images)
        trained_on = (*self._bank.images.shape[2:], self._bank.images.shape[1])
        if pixels.shape[1:] != trained_on:
            raise InputError(f"images are {pixels.shape[1:]}, but the classifier was fitted on {trained_on}")
        return np.asarray(predict_probabilities(self.end_model_, self._bank.with_images(pixels)))

    def predict(self, images: Any) -> NDArray[Any]:
        """The likeliest class of each image, one of `classes_`."""
        best = self.predict_proba(images).argmax(1)
        return np.asarray(self.classes_[best])

    def score(self, images: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on the images whose label is known: those of -1, "" or None are left out."""
        truth = np.asarray(y)
        known = _is_label(truth)
        if truth.shape != (len(images),) or known.all():
            return float(super().score(images, truth, sample_weight))  # or its error
        if not known.any():
            raise InputError("y holds no label to score by; give the true classes, -1 where one is not known")
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(super().score(np.asarray(images)[known], np.asarray(truth[known].tolist()), weight))

    def _config(self, pixels: NDArray[np.uint8]) -> Config:
        preset = self.preset or default_preset("", max(pixels.shape[1:3]))
        config = Config() if preset is None else load_preset(preset)
        settings = self.settings or {}
        elsewhere = {entry.name for entry in options() if entry.section in ("run", "data", "baseline", "second_run")}
        for name in settings:
            if name in elsewhere:
                raise InputError(
                    f"settings: {name!r} is no setting of a classifier in memory; seed and device are arguments, and "
                    "`dpssl run` and `dpssl fit` have the others"
                )
        return with_values(config, {"seed": self.seed, "device": self.device, **settings})


def _read_labels(y: Any, n_images: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The classes, and each image's place among them, -1 where it has no label."""
    labels = np.asarray(y)
    if labels.shape != (n_images,):
        raise InputError(f"y has shape {labels.shape}, but there are {n_images} images; give one label each, -1 = none")
    reader = ClassReader()
    numbers = reader.read(labels, lambda row: f"y, row {row}")
    if numbers.dtype.kind == "f":  # as pandas has integers with gaps
        numbers = np.where(np.isnan(numbers), UNLABELED, numbers)
    if numbers.dtype.kind not in "iuf" or (numbers != np.floor(numbers)).any():
        raise InputError(
            f"y has dtype {labels.dtype} or fractions; give class numbers, -1 where unlabelled, or names, '' where "
            "unlabelled"
        )
    numbers = numbers.astype(np.int64)
    if (numbers < UNLABELED).any():
        row = int(np.argmax(numbers < UNLABELED))
        raise InputError(f"y of row {row} is {labels[row]}; labels are 0, 1, 2, …, and -1 where unlabelled")
    if reader.met_names:
        names, order = reader.in_order()
        classes, given = np.array(names), order[numbers].astype(np.int64)
    else:
        classes = np.unique(numbers[numbers != UNLABELED])
        given = np.where(numbers == UNLABELED, UNLABELED, np.searchsorted(classes, numbers))
    if len(classes) < 2:
        raise InputError("y holds labels of fewer than two classes; give at least one labelled image per class")
    if not (given == UNLABELED).any():
        raise InputError(
            "y has no -1 (or '' among names), so there are no unlabelled images; mark those to be labelled"
        )
    return classes, given


def _is_label(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Which entries are labels: not -1, NaN or empty."""
    numbers = ClassReader().read(labels, lambda row=0, *_: f"y, row {row}")
    return np.asarray((numbers != UNLABELED) & (numbers == numbers))
