"""A few real digits to train on; run folders made up for the report and the review page, in an instant."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from dpssl.config import Config
from dpssl.constants import UNLABELED
from dpssl.data.batches import ImageBank
from dpssl.data.split import Split
from dpssl.data.table import Dataset
from dpssl.label_model import LabelModel
from dpssl.report.contents import RunContents, read_contents
from dpssl.report.page import write_report
from dpssl.run_folder import RunFolder
from dpssl.step_files import VoteFile

LOG = [
    {"stage": "mcl", "step": 50, "loss": 1.2, "minutes": 0.1},
    {"stage": "mcl", "step": 100, "loss": 0.1, "minutes": 0.2},
    *(
        {
            "stage": "lfs",
            "step": 50 * at,
            "loss": 9 / at,
            "pseudo_label_rate": 0.9,
            "coverage": 0.97,
            "minutes": 0.1 * at,
        }
        for at in range(1, 9)
    ),
    {"stage": "votes", "step": 0, "feature_cosine": 0.4},
    {"stage": "end", "step": 50, "loss": 0.7, "soft_loss": 0.5, "minutes": 0.4},
    {"stage": "end", "step": 100, "loss": 0.4, "soft_loss": 0.3, "minutes": 0.5},
]
SUMMARY = {
    "annotation_accuracy": 0.91, "annotation_macro_f1": 0.9, "coverage": 0.99, "test_accuracy": 0.88, "n_test": 0,
    "minutes_per_step": {"lfs": 1.5, "label": 0.1, "train": 0.4},
}  # fmt: skip


@dataclass
class MadeRun:
    """The parts of a run; `contents()` reads the folder, `page()` writes and returns report.html."""

    folder: RunFolder
    dataset: Dataset
    split: Split
    config: Config = field(default_factory=Config)

    def contents(self, **changes: Any) -> RunContents:
        return replace(read_contents(self.folder, self.config, {"device": "cpu"}, self.dataset, self.split), **changes)

    def page(self) -> str:
        environment = {"dpssl": "0", "device": "cpu, 1 thread"}
        return write_report(self.folder, self.config, environment, self.dataset, self.split).read_text(encoding="utf-8")


MakeRun = Callable[..., MadeRun]


@pytest.fixture(scope="session")
def digits() -> tuple[ImageBank, Tensor]:
    """Zeros, ones and twos, and given labels: four of each class, else -1."""
    images, truth = load_digits(n_class=3, return_X_y=True)
    given = torch.full((90,), -1)
    for label in range(3):
        given[np.flatnonzero(truth[:90] == label)[:4]] = label
    stored = (images[:90].reshape(-1, 8, 8, 1) * 255 / 16).astype(np.uint8)
    return ImageBank.from_numpy(stored, torch.device("cpu")), given


@pytest.fixture(scope="session")
def make_run(tmp_path_factory: pytest.TempPathFactory) -> MakeRun:
    def make(
        n: int = 120,
        n_lfs: int = 6,
        class_names: Sequence[str] = ("cat", "dog", "owl"),
        *,
        size: int = 8,
        n_channels: int = 3,
        known_truth: bool = True,
        files: Sequence[str] = ("votes", "labels", "embeddings", "log", "summary"),
        ids: Sequence[str] | None = None,
        seed: int = 0,
    ) -> MadeRun:
        """Every third LF may name a class; it is right nine times in ten, abstains outside its classes."""
        draws = np.random.default_rng(seed)
        n_classes = len(class_names)
        truth = np.arange(n) % n_classes
        specialties = (np.arange(n_lfs)[:, None] + np.arange(n_classes)) % 3 != 0
        guess = np.where(draws.random((n, n_lfs)) < 0.9, truth[:, None], draws.integers(0, n_classes, (n, n_lfs)))
        votes = np.where(specialties[np.arange(n_lfs), guess], guess, -1)
        images = draws.integers(0, 256, (n, size, size, n_channels), dtype=np.uint8)
        given = np.where(np.arange(n) < 4 * n_classes, truth, UNLABELED)
        names = np.array(ids if ids is not None else [f"image-{row}" for row in range(n)])
        dataset = Dataset(
            name="made up",
            images=images,
            ids=names,
            class_names=tuple(class_names),
            given_labels=given,
            truth=truth if known_truth else given,
            test_images=images[:0],
            test_ids=names[:0],
            test_truth=truth[:0],
        )
        split = Split(np.flatnonzero(given >= 0), np.flatnonzero(given < 0), np.arange(0), given)
        folder = RunFolder.create(str(tmp_path_factory.mktemp("made")))
        if "votes" in files:
            confidence = np.full(votes.shape, 0.9)
            folder.write_votes(VoteFile(votes, confidence, specialties, names, tuple(class_names)))
        if "labels" in files:
            model = LabelModel(n_classes, "majority").fit(votes, specialties=specialties)
            model.save(folder.path("label_model.safetensors"))
            folder.write_soft_labels(names, class_names, model.predict_proba(votes), (votes >= 0).any(axis=1))
        if "embeddings" in files:
            features = np.eye(n_classes)[truth] + draws.normal(0, 0.1, (n, n_classes))
            folder.write_arrays("embeddings.npz", ids=names, embeddings=features.astype(np.float16))
        if "log" in files:
            folder.write_jsonl("metrics.jsonl", LOG)
        if "summary" in files:
            folder.write_json("summary.json", SUMMARY)
        return MadeRun(folder, dataset, split)

    return make
