"""The default label model: what it decides about votes, and what must not change its answer."""

import numpy as np
import pytest

from dpssl import LabelModel
from dpssl.label_model import adaptive
from dpssl.label_model.adaptive import find_specialists, fit_adaptive
from dpssl.label_model.checks import check_vote_data
from dpssl.label_model.dawid_skene import fit_dawid_skene


def hard_votes(n_rows=6000, n_lfs=20, n_classes=5, seed=0):
    """Specialised LFs that share each row's difficulty and look-alike class, and so err together."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n_rows)
    difficulty = rng.standard_normal(n_rows)
    look_alike = (y + 1 + (rng.random(n_rows) < 0.3)) % n_classes
    votes = np.full((n_rows, n_lfs), -1, dtype=np.int8)
    for k in range(n_lfs):
        known = rng.permutation(n_classes)[: rng.integers(2, 4)]
        knows, fooled = np.isin(y, known), np.isin(look_alike, known)
        right = knows & (rng.random(n_rows) < 1 / (1 + np.exp(1.5 * difficulty - 1.8)))
        wrong = ~right & fooled & (rng.random(n_rows) < 1 / (1 + np.exp(1.0 - 1.5 * difficulty)))
        votes[:, k] = np.where(right, y, np.where(wrong, look_alike, -1))
    return votes, y


def crowd_votes(n_rows=800, n_lfs=30, n_classes=3, seed=0):
    """Workers who each see a block of rows: whether one answers says nothing about the class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n_rows)
    votes = np.full((n_rows, n_lfs), -1, dtype=np.int8)
    for k in range(n_lfs):
        seen = (np.arange(n_rows) - rng.integers(n_rows)) % n_rows < 0.2 * n_rows
        answer = np.where(rng.random(n_rows) < rng.uniform(0.35, 0.95), y, rng.integers(n_classes, size=n_rows))
        votes[:, k] = np.where(seen, answer, -1)
    return votes, y


def proba(votes, n_classes, confidence=None, **given):
    fit = fit_adaptive(votes, n_classes, confidence=confidence, **given)
    return np.exp(fit.predict_log_proba(votes, confidence))


def accuracy(soft_labels, y):
    return (soft_labels.argmax(1) == y).mean()


def log_loss(soft_labels, y):
    return -np.log(np.maximum(soft_labels[np.arange(len(y)), y], 1e-12)).mean()


def test_shared_difficulty_beats_independent_votes_in_accuracy_and_honesty():
    votes, y = hard_votes()
    ours = proba(votes, 5)
    independent = np.exp(fit_dawid_skene(check_vote_data(votes, 5)).predict_log_proba(votes))
    assert accuracy(ours, y) > accuracy(independent, y) + 0.005
    assert log_loss(ours, y) < 0.8 * log_loss(independent, y)


def test_independent_votes_get_no_shared_difficulty(specialist_votes):
    for seed in range(3):
        world = specialist_votes(seed=seed)
        fit = fit_adaptive(world.votes, world.n_classes)
        assert len(fit.level_share) == 1
        ours, table = np.exp(fit.predict_log_proba(world.votes)), fit_dawid_skene(check_vote_data(world.votes, 4))
        assert accuracy(ours, world.y) > accuracy(table.predict_log_proba(world.votes), world.y) - 0.005


def test_silence_is_evidence_for_specialists_and_absence_for_crowds():
    assert fit_adaptive(hard_votes()[0], 5).absence_weight == 1.0
    votes, y = crowd_votes()
    fit = fit_adaptive(votes, 3)
    assert fit.absence_weight == 0.0
    majority = np.stack([(votes == c).sum(1) for c in range(3)], axis=1)
    assert accuracy(np.exp(fit.predict_log_proba(votes)), y) > accuracy(majority, y)


def test_specialists_leave_out_a_class_that_chance_would_not():
    count = np.array([[40, 60, 0], [30, 40, 30], [2, 1, 0], [0, 5, 0]])
    assert find_specialists(count, None).tolist() == [True, False, False, True]
    may_vote_for_all = np.ones((4, 3), dtype=bool)
    assert not find_specialists(count, may_vote_for_all).any()


def test_copies_of_one_lf_count_once():
    votes, y = hard_votes(n_rows=3000)
    copied = np.concatenate([votes, np.repeat(votes[:, :1], 30, axis=1)], axis=1)
    fit = fit_adaptive(copied, 5)
    assert fit.lf_weight[[0, *range(20, 50)]].sum() == pytest.approx(1.0)
    assert accuracy(np.exp(fit.predict_log_proba(copied)), y) > accuracy(proba(votes, 5), y) - 0.01


def test_rare_votes_for_one_class_each_stay_close_to_majority_vote():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=3000)
    votes = np.full((3000, 10), -1, dtype=np.int8)
    for k in range(10):
        fires = rng.random(3000) < np.where(y == k % 2, 0.15, 0.05)
        votes[fires, k] = k % 2
    difference = (votes == 1).sum(1) - (votes == 0).sum(1)
    decided = difference != 0
    agrees = proba(votes, 2).argmax(1)[decided] == (difference > 0)[decided]
    assert agrees.mean() > 0.95


def test_order_of_rows_and_lfs_does_not_matter(monkeypatch):
    monkeypatch.setattr(adaptive, "FEWEST_ROWS", 500)
    monkeypatch.setattr(adaptive, "ROWS_PER_CLASS", 100)
    rng = np.random.default_rng(1)
    for votes, n_classes in ((hard_votes(3000)[0], 5), (crowd_votes(300)[0], 3)):
        rows, lfs = rng.permutation(len(votes)), rng.permutation(votes.shape[1])
        np.testing.assert_allclose(proba(votes[rows][:, lfs], n_classes), proba(votes, n_classes)[rows], atol=1e-6)


def test_same_votes_same_answer():
    votes, _ = hard_votes(1000)
    np.testing.assert_array_equal(proba(votes, 5), proba(votes, 5))


@pytest.mark.parametrize("seed", range(60))
def test_any_votes_give_finite_probabilities(seed):
    rng = np.random.default_rng(seed)
    n_rows, n_lfs, n_classes = rng.integers(1, 30), rng.integers(1, 7), rng.integers(2, 6)
    votes = rng.integers(-1, n_classes, size=(n_rows, n_lfs)).astype(np.int8)
    votes[rng.random(votes.shape) < rng.random()] = -1
    y = np.where(rng.random(n_rows) < 0.2, rng.integers(n_classes, size=n_rows), -1)
    confidence = rng.random(votes.shape) if seed % 2 else None
    soft_labels = proba(votes, int(n_classes), confidence, y=y)
    assert np.isfinite(soft_labels).all()
    np.testing.assert_allclose(soft_labels.sum(1), 1.0)


def test_many_votes_on_one_row_do_not_overflow():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=200)
    votes = np.where(rng.random((200, 400)) < 0.6, y[:, None], rng.integers(3, size=(200, 400))).astype(np.int8)
    soft_labels = proba(votes, 3)
    assert np.isfinite(soft_labels).all()
    assert accuracy(soft_labels, y) == 1.0


def test_equal_confidences_change_nothing_and_random_ones_hardly():
    votes, y = hard_votes(4000)
    hard = proba(votes, 5)
    np.testing.assert_allclose(proba(votes, 5, np.full(votes.shape, 0.7)), hard, atol=1e-9)
    noise = np.random.default_rng(0).random(votes.shape)
    assert accuracy(proba(votes, 5, noise), y) > accuracy(hard, y) - 0.005


def test_confidences_that_know_more_help():
    votes, y = hard_votes(4000)
    rng = np.random.default_rng(0)
    confidence = np.clip(0.6 + 0.25 * (votes == y[:, None]) + 0.1 * rng.standard_normal(votes.shape), 0, 1)
    assert accuracy(proba(votes, 5, confidence), y) > accuracy(proba(votes, 5), y) + 0.01


def test_a_model_fitted_with_confidences_predicts_without_them():
    votes, y = hard_votes(2000)
    confidence = np.random.default_rng(0).random(votes.shape)
    fit = fit_adaptive(votes, 5, confidence=confidence)
    assert accuracy(np.exp(fit.predict_log_proba(votes)), y) > 0.8


def test_a_given_class_balance_is_kept():
    votes, _ = hard_votes(1000)
    balance = np.array([0.4, 0.3, 0.1, 0.1, 0.1])
    np.testing.assert_allclose(fit_adaptive(votes, 5, class_balance=balance).class_balance, balance)


def test_sample_weight_counts_rows_as_often_as_it_says():
    votes, _ = hard_votes(800)
    weight = np.random.default_rng(0).integers(0, 4, size=800)
    repeated = fit_adaptive(np.repeat(votes, weight, axis=0), 5)
    weighted = fit_adaptive(votes, 5, sample_weight=weight.astype(np.float64))
    np.testing.assert_allclose(weighted.class_balance, repeated.class_balance, atol=1e-8)


def test_saved_and_loaded_it_predicts_the_same(tmp_path):
    votes, _ = hard_votes(1000)
    confidence = np.random.default_rng(0).random(votes.shape)
    model = LabelModel(5, "adaptive").fit(votes, confidence=confidence)
    model.save(tmp_path / "model.safetensors")
    loaded = LabelModel.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(votes, confidence), model.predict_proba(votes, confidence))
