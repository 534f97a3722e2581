"""What a report is made from: the files of a run folder, read once and joined to the images by id.

Every part but the data may be missing: a run that has only votes, a baseline without labeling functions, a run that was
stopped. The sections of the page that need it are then left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.config import Config
from dpssl.data.split import Split
from dpssl.data.table import Dataset
from dpssl.label_model import LabelModel
from dpssl.label_model.analysis import LFSummary
from dpssl.plan import was_too_short
from dpssl.run_folder import RunFolder
from dpssl.step_files import SoftLabelFile, VoteFile

VOTES, SOFT_LABELS, EMBEDDINGS = "votes.npz", "soft_labels.npz", "embeddings.npz"
LABEL_MODEL, SUMMARY, METRICS = "label_model.safetensors", "summary.json", "metrics.jsonl"


@dataclass(frozen=True)
class Labels:
    """The soft labels of the unlabelled images that have a vote, and what follows from them."""

    rows: NDArray[np.int64]  # (m,) positions into the images
    soft_labels: NDArray[np.float32]  # (m, C)
    n_unlabeled: int  # those without a vote included

    @cached_property
    def label(self) -> NDArray[np.int64]:
        return np.asarray(self.soft_labels.argmax(axis=1))  # (m,)

    @cached_property
    def confidence(self) -> NDArray[np.float32]:
        return np.asarray(self.soft_labels.max(axis=1))  # (m,)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """(C,) images that got each class."""
        return np.bincount(self.label, minlength=self.soft_labels.shape[1])

    @cached_property
    def expected_wrong(self) -> NDArray[np.float64]:
        """(C,) Σ (1 - confidence) over the images that got each class."""
        doubt = 1.0 - self.confidence.astype(np.float64)
        return np.bincount(self.label, doubt, self.soft_labels.shape[1]).astype(np.float64)

    @cached_property
    def mean_confidence(self) -> NDArray[np.float64]:
        """(C,) over the images that got each class; NaN without any."""
        return np.where(self.counts > 0, 1 - self.expected_wrong / np.maximum(self.counts, 1), np.nan)


@dataclass(frozen=True)
class RunContents:
    """A run as the report sees it; rows follow `dataset.ids`."""

    folder: RunFolder
    config: Config
    environment: Mapping[str, str]
    dataset: Dataset
    split: Split
    summary: dict[str, Any]
    log: list[dict[str, Any]]
    votes: VoteFile | None
    soft_labels: SoftLabelFile | None
    lf_summary: LFSummary | None
    embeddings: NDArray[np.float16] | None  # (n, D)

    @cached_property
    def labels(self) -> Labels | None:
        """None where there are no soft labels, or none of an image with a vote."""
        if self.soft_labels is None:
            return None
        unlabeled = self.split.unlabeled
        rows = unlabeled[self.soft_labels.covered[unlabeled]]
        return Labels(rows, self.soft_labels.soft_labels[rows], len(unlabeled)) if len(rows) else None

    @cached_property
    def had_few_steps(self) -> bool:
        """Whether it was too short to rely on what it is sure of."""
        return was_too_short(self.folder, self.config, max(self.dataset.images.shape[1:3]))

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.dataset.class_names


def read_contents(
    folder: RunFolder, config: Config, environment: Mapping[str, str], dataset: Dataset, split: Split
) -> RunContents:
    """Everything the folder holds. A damaged file is an error; a missing one is a part left out."""
    votes = folder.read_votes(dataset.ids) if folder.has(VOTES) else None
    has_model = votes is not None and folder.has(LABEL_MODEL)
    return RunContents(
        folder=folder,
        config=config,
        environment=environment,
        dataset=dataset,
        split=split,
        summary=folder.read_json(SUMMARY) if folder.has(SUMMARY) else {},
        log=folder.read_jsonl(METRICS) if folder.has(METRICS) else [],
        votes=votes,
        soft_labels=folder.read_soft_labels(dataset.ids) if folder.has(SOFT_LABELS) else None,
        lf_summary=LabelModel.load(folder.path(LABEL_MODEL)).lf_summary() if has_model else None,
        embeddings=_read_embeddings(folder, dataset) if folder.has(EMBEDDINGS) else None,
    )


def _read_embeddings(folder: RunFolder, dataset: Dataset) -> NDArray[np.float16] | None:
    arrays = folder.read_arrays(EMBEDDINGS, "ids", "embeddings")
    position = {name: row for row, name in enumerate(arrays["ids"].tolist())}
    if any(name not in position for name in dataset.ids.tolist()):
        return None  # of other images: good for nothing here
    return np.asarray(arrays["embeddings"][[position[name] for name in dataset.ids.tolist()]], dtype=np.float16)
