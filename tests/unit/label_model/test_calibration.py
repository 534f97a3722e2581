"""What labelled rows may change about the default model's probabilities."""

import numpy as np
import pytest

from dpssl.label_model.calibration import apply_correction, fit_correction


def confident(n_rows, n_classes, classes, probability):
    """log-probabilities that give `probability` to the given class and share the rest."""
    proba = np.full((n_rows, n_classes), (1 - probability) / (n_classes - 1))
    proba[np.arange(n_rows), classes] = probability
    return np.log(proba)


def test_labels_that_all_agree_raise_no_confidence():
    y = np.arange(40) % 4
    slope, bias = fit_correction(confident(40, 4, y, 0.9), y, np.ones(40))
    assert slope == 1.0
    np.testing.assert_allclose(bias, 0.0, atol=1e-9)


def test_labels_that_disagree_lower_it():
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=400)
    said = np.where(rng.random(400) < 0.6, y, (y + 1) % 4)
    log_proba = confident(400, 4, said, 0.999)
    slope, bias = fit_correction(log_proba, y, np.ones(400))
    assert slope < 0.6
    corrected = np.exp(apply_correction(log_proba, slope, bias))
    assert corrected[np.arange(400), said].mean() == pytest.approx(0.6, abs=0.12)


def test_a_class_that_is_overlooked_gains():
    y = np.repeat([0, 1], 100)
    log_proba = confident(200, 2, np.zeros(200, dtype=int), 0.6)
    _, bias = fit_correction(log_proba, y, np.ones(200))
    assert bias[1] > 0.1 > -0.1 > bias[0]


def test_few_labels_change_little():
    y = np.array([0, 1])
    slope, bias = fit_correction(confident(2, 2, 1 - y, 0.7), y, np.ones(2))
    assert slope > 0.7
    assert np.abs(bias).max() < 0.2


def test_corrected_rows_are_distributions():
    rng = np.random.default_rng(0)
    log_proba = np.log(rng.dirichlet(np.ones(5), size=20))
    corrected = apply_correction(log_proba, 0.5, rng.standard_normal(5))
    np.testing.assert_allclose(np.exp(corrected).sum(1), 1.0)
