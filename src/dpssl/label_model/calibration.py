"""Step 2, the default model: what labelled rows may change about its probabilities.

    P'(y | row) ∝ P(y | row)^s · e^{b_y}         s ≤ 1, b shrunk to 0

maximises the conditional likelihood of the labelled rows under a prior that holds s at 1 and b at 0. Labelled rows can
lower the model's confidence and correct its class balance, but never raise confidence: LFs trained on these very rows
vote on them better than elsewhere, so that their agreement with the labels proves nothing.
"""

import numpy as np
from numpy.typing import NDArray

from dpssl.label_model.votes import Floats

Ints = NDArray[np.int64]

SLOPE_PRIOR = 10.0  # pseudo-rows against s < 1
BIAS_PRIOR = 10.0  # pseudo-rows against b ≠ 0
SMALLEST_SLOPE = 0.05
ITERATIONS = 100


def fit_correction(log_proba: Floats, y: Ints, weight: Floats) -> tuple[float, Floats]:
    """s and b (C,) from labelled rows: log_proba (n, C) without use of their labels, y (n,), weight (n,)."""
    n_classes = log_proba.shape[1]
    slope, bias = 1.0, np.zeros(n_classes)
    truth = np.eye(n_classes)[y]
    log_proba = np.maximum(log_proba, -50.0)  # one impossible label must not decide the slope
    curvature_slope = SLOPE_PRIOR + weight @ np.square(log_proba).max(1)
    curvature_bias = BIAS_PRIOR + weight.sum()
    for _ in range(ITERATIONS):
        proba = _softmax(slope * log_proba + bias)
        error = weight[:, None] * (truth - proba)  # (n, C)
        slope += ((error * log_proba).sum() - SLOPE_PRIOR * (slope - 1.0)) / curvature_slope
        slope = float(np.clip(slope, SMALLEST_SLOPE, 1.0))
        bias = bias + (error.sum(0) - BIAS_PRIOR * bias) / curvature_bias
    return slope, bias


def apply_correction(log_proba: Floats, slope: float, bias: Floats) -> Floats:
    """log P', (n, C), normalised."""
    corrected = slope * log_proba + bias
    corrected = corrected - corrected.max(1, keepdims=True)
    normalised: Floats = corrected - np.log(np.exp(corrected).sum(1, keepdims=True))
    return normalised


def _softmax(logits: Floats) -> Floats:
    proba: Floats = np.exp(logits - logits.max(1, keepdims=True))
    proba /= proba.sum(1, keepdims=True)
    return proba
