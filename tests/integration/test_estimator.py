"""`DPSSLClassifier`: scikit-learn's manners, on real images."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from dpssl import DPSSLClassifier, LabelModel
from dpssl.errors import InputError
from dpssl.labeling.vote import cast_votes

TINY = {
    "n_lfs": 6, "mcl_min_steps": 2, "mcl_max_steps": 4, "steps": 6, "batch_size": 10, "unlabeled_ratio": 1,
    "end_steps": 4, "end_batch_size": 10, "end_unlabeled_ratio": 1, "window": 2, "mcl_window": 2,
}  # fmt: skip
N_IMAGES, N_LABELED = 120, 30

# After so few steps some LFs are silent still, and the label model says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:labeling functions that never vote",
    "ignore:no labeling function votes",
    "ignore:.*of the images have a vote",
)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    pixels, truth = load_digits(return_X_y=True)
    return (pixels[: N_IMAGES + 60].reshape(-1, 8, 8) * 15).astype(np.uint8), truth[: N_IMAGES + 60]


@pytest.fixture(scope="module")
def y(digits: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    return np.where(np.arange(N_IMAGES) < N_LABELED, digits[1][:N_IMAGES], -1)


@pytest.fixture(scope="module")
def fitted(digits: tuple[np.ndarray, np.ndarray], y: np.ndarray) -> DPSSLClassifier:
    classifier = DPSSLClassifier(device="cpu", settings=TINY)
    assert classifier.fit(digits[0][:N_IMAGES], y) is classifier
    return classifier


def test_a_fit_that_has_not_learnt_says_so(
    digits: tuple[np.ndarray, np.ndarray], y: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mostly_silent(network: Any, bank: Any) -> Any:
        found = cast_votes(network, bank)
        found.votes[N_LABELED:], found.votes[:N_LABELED, 0] = -1, found.specialties[0].argmax()
        return found

    monkeypatch.setattr("dpssl.estimator.cast_votes", mostly_silent)
    with pytest.warns(ConvergenceWarning, match="25 % of the images have a vote: .* more steps than 6") as told:
        DPSSLClassifier(device="cpu", settings=TINY).fit(digits[0][:N_IMAGES], y)
    assert [one.filename for one in told if one.category is ConvergenceWarning] == [__file__]


# Conventions


def test_parameters_are_stored_and_cloned() -> None:
    settings = {"steps": 7}
    classifier = DPSSLClassifier(seed=3, device="cpu", settings=settings, verbose=True)
    assert classifier.settings is settings, "__init__ only stores"
    assert classifier.get_params() == {
        "seed": 3, "device": "cpu", "preset": None, "settings": {"steps": 7}, "verbose": True
    }  # fmt: skip
    copy = clone(classifier)
    assert copy is not classifier
    assert copy.get_params() == classifier.get_params()
    assert copy.set_params(seed=4, preset="digits") is copy
    assert (copy.seed, copy.preset, classifier.seed) == (4, "digits", 3)
    assert "seed=4" in repr(copy)
    with pytest.raises(ValueError, match="Invalid parameter 'steps'"):
        copy.set_params(steps=5)


def test_a_clone_of_a_fitted_classifier_is_not_fitted(fitted: DPSSLClassifier) -> None:
    assert not [name for name in vars(clone(fitted)) if name.endswith("_")]


def test_fitted_attributes(fitted: DPSSLClassifier, y: np.ndarray) -> None:
    assert fitted.classes_.tolist() == list(range(10))
    assert fitted.soft_labels_.shape == (N_IMAGES, 10)
    np.testing.assert_allclose(fitted.soft_labels_.sum(1), 1, atol=1e-5)
    assert fitted.votes_.shape == (N_IMAGES, 6)
    np.testing.assert_array_equal(fitted.covered_, (fitted.votes_ >= 0).any(1))
    assert isinstance(fitted.label_model_, LabelModel)


def test_predictions_agree_with_each_other(fitted: DPSSLClassifier, digits: Any) -> None:
    images, truth = digits[0][N_IMAGES:], digits[1][N_IMAGES:]
    probabilities, predicted = fitted.predict_proba(images), fitted.predict(images)
    assert probabilities.shape == (60, 10)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
    np.testing.assert_array_equal(predicted, probabilities.argmax(1))
    assert fitted.score(images, truth) == np.mean(predicted == truth)
    np.testing.assert_allclose(fitted.predict_proba(images[..., None] / 255.0), probabilities)


def test_one_image_is_predicted_as_among_many(fitted: DPSSLClassifier, digits: Any) -> None:
    many = fitted.predict_proba(digits[0][N_IMAGES:])
    np.testing.assert_allclose(fitted.predict_proba(digits[0][N_IMAGES : N_IMAGES + 1]), many[:1], atol=1e-5)


def test_the_seed_decides(fitted: DPSSLClassifier, digits: Any, y: np.ndarray) -> None:
    again = clone(fitted).fit(digits[0][:N_IMAGES], y)
    np.testing.assert_array_equal(again.soft_labels_, fitted.soft_labels_)
    np.testing.assert_array_equal(again.predict_proba(digits[0]), fitted.predict_proba(digits[0]))
    other = clone(fitted).set_params(seed=2).fit(digits[0][:N_IMAGES], y)
    assert not np.array_equal(other.predict_proba(digits[0]), fitted.predict_proba(digits[0]))


def test_labels_need_not_be_contiguous(digits: Any) -> None:
    images, truth = digits
    chosen = np.isin(truth, (3, 7))
    images, truth = images[chosen], truth[chosen]
    y = np.where(np.arange(len(truth)) < 8, truth, -1)
    classifier = DPSSLClassifier(device="cpu", settings=TINY).fit(images, y)
    assert classifier.classes_.tolist() == [3, 7]
    assert classifier.soft_labels_.shape == (len(truth), 2)
    assert set(classifier.predict(images)) <= {3, 7}
    assert 0 <= classifier.score(images, truth) <= 1

    shifted = DPSSLClassifier(device="cpu", settings=TINY).fit(images, np.select([y == 3, y == 7], [0, 1], -1))
    np.testing.assert_array_equal(shifted.predict_proba(images), classifier.predict_proba(images))


def test_labels_may_be_names(fitted: DPSSLClassifier, digits: Any, y: np.ndarray) -> None:
    """The same classifier, of classes in alphabetical order; "" and None are no label."""
    images, truth = digits
    names = np.array([*"abcdefghij", ""])
    for labels in (names[y], np.where(y == -1, None, names[y]), pd.Series(names[y]), names[y].tolist()):
        named = DPSSLClassifier(device="cpu", settings={**TINY, "steps": 2, "end_steps": 2})
        numbered = clone(named).fit(images[:N_IMAGES], y)
        named.fit(images[:N_IMAGES], labels)
        assert named.classes_.tolist() == list("abcdefghij")
        np.testing.assert_array_equal(named.soft_labels_, numbered.soft_labels_)
        answers = named.predict(images[N_IMAGES:])
        np.testing.assert_array_equal(answers, names[numbered.predict(images[N_IMAGES:])])
        assert named.score(images, names[truth]) == numbered.score(images, truth)
        some = np.where(np.arange(len(truth)) < 50, names[truth], None)
        assert named.score(images, some) == numbered.score(images[:50], truth[:50])


def test_missing_numbers_are_no_labels(digits: Any, y: np.ndarray) -> None:
    """As pandas has a column of integers with gaps."""
    gaps = pd.Series(y, dtype=float).where(y >= 0)
    settings = {**TINY, "steps": 2, "end_steps": 2}
    with_gaps, plain = (
        DPSSLClassifier(device="cpu", settings=settings).fit(digits[0][:N_IMAGES], labels) for labels in (gaps, y)
    )
    assert with_gaps.classes_.tolist() == plain.classes_.tolist()
    np.testing.assert_array_equal(with_gaps.soft_labels_, plain.soft_labels_)
    assert with_gaps.score(digits[0][:N_IMAGES], gaps) == plain.score(digits[0][:N_IMAGES], y)


def test_the_label_model_sees_confidence_only_where_asked(digits: Any, y: np.ndarray) -> None:
    sighted, blind = (
        DPSSLClassifier(device="cpu", settings={**TINY, "label_model": "majority", "use_confidence": use})
        .fit(digits[0][:N_IMAGES], y)
        for use in (True, False)
    )  # fmt: skip
    np.testing.assert_array_equal(sighted.votes_, blind.votes_)
    np.testing.assert_allclose(blind.label_model_.predict_proba(blind.votes_), blind.soft_labels_)
    assert not np.allclose(sighted.soft_labels_, blind.soft_labels_)


def test_colour_images_larger_than_digits() -> None:
    draws = np.random.default_rng(0)
    images = draws.integers(0, 256, (12, 20, 18, 3), dtype=np.uint8)
    y = np.r_[0, 1, [-1] * 10]
    settings = {**TINY, "depth": 10, "width": 1, "batch_size": 4, "end_batch_size": 4, "end_uncovered": "prior"}
    classifier = DPSSLClassifier(device="cpu", settings=settings).fit(images, y)
    assert classifier.predict_proba(images).shape == (12, 2)


def test_scikit_learn_takes_it_for_a_classifier() -> None:
    assert is_classifier(DPSSLClassifier())


def test_a_fit_that_takes_hours_says_so_before_they_have_passed(
    digits: Any, y: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpssl.calibrate.LONG_RUN", 0.0)
    monkeypatch.setattr("dpssl.calibrate.seconds_per_image", lambda *_: 60.0)
    with pytest.warns(UserWarning, match="this takes about .* hours on a CPU; a GPU is made for it"):
        DPSSLClassifier(device="cpu", settings=TINY).fit(digits[0][:N_IMAGES], y)


def test_images_of_unknown_class_do_not_count_in_the_score(fitted: Any, digits: Any) -> None:
    images, truth = digits[0], digits[1]
    known = np.where(np.arange(len(truth)) % 3 == 0, truth, -1)
    assert fitted.score(images, known) == fitted.score(images[::3], truth[::3])
    with pytest.raises(InputError, match="no label to score by"):
        fitted.score(images, np.full(len(truth), -1))


def test_settings_of_a_run_are_refused(digits: Any) -> None:
    with pytest.raises(InputError, match="'n_labels' is no setting of a classifier in memory"):
        DPSSLClassifier(settings={"n_labels": 3}).fit(digits[0], np.r_[0, 1, [-1] * (len(digits[0]) - 2)])
    with pytest.raises(InputError, match="'method' is no setting of a classifier in memory"):
        DPSSLClassifier(settings={"method": "fixmatch"}).fit(digits[0], np.r_[0, 1, [-1] * (len(digits[0]) - 2)])
    with pytest.raises(InputError, match="'second_method' is no setting of a classifier in memory"):
        DPSSLClassifier(settings={"second_method": "fixmatch"}).fit(digits[0], np.r_[0, 1, [-1] * (len(digits[0]) - 2)])


# Errors


def test_an_unfitted_classifier_says_so(digits: Any) -> None:
    for method in (DPSSLClassifier().predict, DPSSLClassifier().predict_proba):
        with pytest.raises(NotFittedError, match="not fitted"):
            method(digits[0])
    with pytest.raises(NotFittedError, match="not fitted"):
        DPSSLClassifier().score(digits[0], digits[1])


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, 9, 9), r"images are \(9, 9, 1\).*fitted on \(8, 8, 1\)"),
        ((3, 8, 8, 3), r"images are \(8, 8, 3\).*fitted on \(8, 8, 1\)"),
        ((3, 64), r"\(3, 64\)"),
    ],
)
def test_images_of_another_size(shape: tuple[int, ...], message: str, fitted: DPSSLClassifier) -> None:
    with pytest.raises(InputError, match=message):
        fitted.predict(np.zeros(shape, dtype=np.uint8))


@pytest.mark.parametrize("labels", [np.zeros(59, int), 0])
def test_a_score_needs_one_label_per_image(labels: Any, fitted: DPSSLClassifier, digits: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        fitted.score(digits[0][N_IMAGES:], labels)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["cat", "dog", "none"] * 40, "no -1 .*so there are no unlabelled images"),
        (["cat", "dog", 1] * 40, "row 0: cat is not a class number, but 1 in y, row 2 is"),
        (np.full(N_IMAGES, 0.5), "dtype float64 or fractions"),
        (np.full(N_IMAGES, 1j), "dtype complex128"),
        (np.zeros(N_IMAGES - 1, dtype=int), r"\(119,\).*120 images"),
        (np.full(N_IMAGES, -1), "fewer than two classes"),
        (np.r_[0, 1, -3, np.full(N_IMAGES - 3, -1)], "row 2 is -3"),
        (np.arange(N_IMAGES) % 10, "no -1 .*so there are no unlabelled images"),
    ],
)
def test_unusable_labels(labels: Any, message: str, digits: Any) -> None:
    with pytest.raises(InputError, match=message):
        DPSSLClassifier(settings=TINY).fit(digits[0][:N_IMAGES], labels)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([np.zeros((8, 8)), np.zeros((8, 8)), np.zeros((9, 8))], "image 2 is 9x8, image 0 is 8x8"),
        (np.full((3, 8, 8), np.nan), "image 0 has a pixel of value nan"),
        (np.full((3, 8, 8), -np.inf), "image 0 has a pixel of value -inf"),
        ([], "no images"),
    ],
)
def test_unusable_images(images: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        DPSSLClassifier(settings=TINY).fit(images, np.array([0, 1, -1]))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"settings": {"n_lfz": 6}}, "n_lfz"),
        ({"settings": {"n_lfs": "many"}}, "--n-lfs"),
        ({"settings": {"n_lfs": 2, "specialist_ratio": 0.5, "label_model": "paper"}}, "3 LFs"),
        ({"settings": {"n_lfs": 4, "specialist_ratio": 0.2}}, "--specialist-ratio 0.2"),
        ({"preset": "imagenet"}, "imagenet"),
        ({"device": "abacus"}, "abacus"),
        ({"seed": -1}, "--seed -1"),
    ],
)
def test_unusable_parameters(parameters: dict[str, Any], message: str, digits: Any, y: np.ndarray) -> None:
    with pytest.raises(InputError, match=message):
        DPSSLClassifier(**parameters).fit(digits[0][:N_IMAGES], y)
