"""The figures of a finished cell: its summary, and other label models on the votes of the same run.

Truth is read to score, nothing else: every label model is fitted on votes and given labels.
"""

import warnings
from typing import Any

from dpssl import metrics
from dpssl.class_prior import class_prior
from dpssl.label_model import LabelModel, covered
from dpssl.pipeline import VOTES, evaluate
from dpssl.runs import Run

# By the name that tables use: which variant of LabelModel, with which settings.
LABEL_MODELS: dict[str, tuple[str, dict[str, Any] | None]] = {
    "majority": ("majority", None),
    "triplet": ("triplet", None),
    "paper": ("paper", None),
    "paper-without-regularizer": ("paper", {"regularizer": "none"}),
}


def cell_figures(run: Run) -> dict[str, Any]:
    """Everything that tables and readers may want to know of the run."""
    return evaluate(run) | label_model_figures(run)


def label_model_figures(run: Run) -> dict[str, Any]:
    """What other label models make of the run's votes, if it has any."""
    if not run.folder.has(VOTES) or run.config.labeling.n_lfs < 3:  # triplets need three
        return {}
    file, rows, n_classes = run.folder.read_votes(run.dataset.ids), run.split.unlabeled, run.dataset.n_classes
    balance = class_prior(run.config.label_model.class_prior, run.split.given_labels, n_classes)
    scores = {}
    for name, (variant, settings) in LABEL_MODELS.items():
        model = LabelModel(n_classes, variant, settings=settings)
        with warnings.catch_warnings():  # about dead LFs: the summary counts them
            warnings.simplefilter("ignore", UserWarning)
            model.fit(file.votes, run.split.given_labels, specialties=file.specialties, class_balance=balance)
        soft_labels = model.predict_proba(file.votes)[rows]
        found = metrics.annotation_metrics(soft_labels, covered(file.votes[rows]), run.dataset.truth[rows])
        scores[name] = {key: value for key, value in found.items() if not isinstance(value, list)}
    return {"label_models": scores}
