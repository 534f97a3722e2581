"""Step 2 with an oracle: the paper's label model, its class-wise R (Sec. 4.3) fed with exact accuracies.

It counts them with the truth of the unlabelled images, which no method knows: a bound to compare with, reached from the
cells of `dpssl paper oracle-regularizer` alone. A file in the run folder says so.
"""

import numpy as np

from dpssl.class_prior import class_prior
from dpssl.constants import UNLABELED
from dpssl.errors import RunFolderError
from dpssl.label_model import covered
from dpssl.label_model.accuracy import true_accuracy
from dpssl.label_model.checks import check_vote_data
from dpssl.label_model.paper import PaperSettings, fit_paper
from dpssl.pipeline import ORACLE, SOFT_LABELS
from dpssl.runs import Run


def resolve_votes_with_truth(run: Run) -> None:
    """votes.npz, the given labels and the truth -> soft_labels.npz and soft_labels.csv."""
    if run.folder.has(SOFT_LABELS):
        if not run.folder.has(ORACLE):
            raise RunFolderError(f"{run.folder.folder}: was labelled without the oracle; delete this run folder")
        return
    with run.step("label"):
        file, n_classes = run.folder.read_votes(run.dataset.ids), run.dataset.n_classes
        balance = class_prior(run.config.label_model.class_prior, run.split.given_labels, n_classes)
        data = check_vote_data(
            file.votes, n_classes, run.split.given_labels, None, file.specialties, class_balance=balance
        )
        known = run.dataset.truth != UNLABELED
        exact = true_accuracy(file.votes[known], run.dataset.truth[known], n_classes).class_accuracy
        settings = PaperSettings(regularizer="class-wise", accuracy_estimator="em")  # "em": not used, the oracle is
        fitted = fit_paper(data, settings, oracle_accuracy=exact)
        soft_labels = np.exp(fitted.predict_log_proba(file.votes))
        votes_cast = covered(file.votes)
        soft_labels[~votes_cast] = fitted.class_balance
        soft_labels /= soft_labels.sum(axis=1, keepdims=True)
        run.folder.write_json(ORACLE, {"label_model": "paper, class-wise R with true accuracies", "uses_truth": True})
        run.folder.write_soft_labels(file.ids, file.class_names, soft_labels, votes_cast)
