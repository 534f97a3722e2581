"""`LabelModel` where scikit-learn's estimators go: clones, pipelines, searches, scorers."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

from dpssl import LabelModel
from dpssl.errors import InputError


def test_a_clone_has_the_parameters_and_nothing_learnt(world):
    model = LabelModel(4, "dawid-skene", settings={"abstention": "ignored"}, respect_unanimous=False)
    copy = clone(model.fit(world.votes))
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "fitted_")
    check_is_fitted(model)


def test_shown_as_it_is_written():
    assert repr(LabelModel(3)) == "LabelModel(n_classes=3)"
    assert repr(LabelModel(class_names=["a", "b"], variant="majority")) == (
        "LabelModel(variant='majority', class_names=['a', 'b'])"
    )
    with pytest.raises(
        InputError, match="LabelModel has no parameter 'epochs'; it has: n_classes, variant, class_names"
    ):
        LabelModel(3).set_params(epochs=5)


def test_at_the_end_of_a_pipeline(world):
    """A first step that leaves out half of the labeling functions."""
    half = FunctionTransformer(lambda votes: votes[:, ::2])
    pipeline = make_pipeline(half, LabelModel(4)).fit(world.votes)
    alone = LabelModel(4).fit(world.votes[:, ::2])
    np.testing.assert_array_equal(pipeline.predict_proba(world.votes), alone.predict_proba(world.votes[:, ::2]))
    assert pipeline.score(world.votes, world.y) == alone.score(world.votes[:, ::2], world.y)
    assert pipeline.classes_.tolist() == [0, 1, 2, 3]


def test_searched_and_cross_validated(world):
    assert is_classifier(LabelModel(4))
    votes, y = world.votes[:400], world.y[:400]
    scores = cross_val_score(LabelModel(4, "majority"), votes, y, cv=4)
    assert scores.mean() == pytest.approx(LabelModel(4, "majority").fit(votes).score(votes, y), abs=0.02)
    search = GridSearchCV(LabelModel(4), {"variant": ["majority", "specialist-vote"]}, cv=2).fit(votes, y)
    assert set(search.cv_results_["param_variant"]) == {"majority", "specialist-vote"}
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    loss = -get_scorer("neg_log_loss")(LabelModel(4).fit(votes, y), votes, y)
    assert 0 < loss < np.log(4)


def test_the_label_model_does_not_import_scikit_learn():
    code = "import sys, dpssl.label_model; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
