"""The LF table, the effective number of LFs, the reliability table; and the baselines, by hand."""

import numpy as np
import pytest

from dpssl import LabelModel
from dpssl.errors import InputError
from dpssl.label_model import effective_lfs, reliability_table
from dpssl.label_model.baselines import fit_triplets
from dpssl.label_model.checks import check_vote_data

VOTES = np.array([[0, 0, -1], [0, 1, -1], [1, -1, -1], [-1, -1, -1], [1, 1, 1]])


def test_lf_table_by_hand():
    y = [0, -1, 0, -1, 1]
    summary = LabelModel(2, "majority").fit(VOTES, y=y).lf_summary()
    first, second, third = summary.to_dicts()
    assert first["n_votes"] == 4
    assert first["coverage"] == pytest.approx(0.8)
    assert first["overlaps"] == pytest.approx(0.6)
    assert first["conflicts"] == pytest.approx(0.2)
    assert first["specialties"] == [0, 1]
    assert first["estimated_accuracy"] == pytest.approx((1 + 0.5 + 1 + 1) / 4)
    assert first["standard_error"] == pytest.approx(np.sqrt(0.875 * 0.125 / 4))
    assert (first["n_labeled"], first["labeled_accuracy"]) == (3, pytest.approx(2 / 3))
    assert second["conflicts"] == pytest.approx(0.2)
    assert third["specialties"] == [1]
    assert third["labeled_accuracy"] == 1.0


def test_lf_table_counts_merged_rows_and_weights():
    votes = np.repeat(VOTES, 3, axis=0)
    whole = LabelModel(2, "majority").fit(votes).lf_summary()
    weighted = LabelModel(2, "majority").fit(VOTES, sample_weight=np.full(5, 3.0)).lf_summary()
    assert whole.to_dicts() == weighted.to_dicts()
    assert whole.n_votes.tolist() == [12.0, 9.0, 3.0]


@pytest.mark.parametrize("with_confidence", [False, True])
def test_lf_table_from_soft_labels_that_are_known(with_confidence, world, tmp_path):
    """Rows that are merged or left out must meet their own soft labels, in `lf_summary` and in `save`."""
    votes, weight = world.votes, np.arange(len(world.votes)) % 3
    confidence = np.random.default_rng(0).uniform(0.3, 1.0, votes.shape) if with_confidence else None
    predicted, known, saved = (LabelModel(4).fit(votes, world.y, confidence, sample_weight=weight) for _ in range(3))
    soft_labels = predicted.predict_proba(votes, confidence)
    for name, values in vars(known.lf_summary(soft_labels)).items():
        if values is None:  # nothing has a name here
            continue
        np.testing.assert_allclose(values, getattr(predicted.lf_summary(), name), rtol=1e-9, err_msg=name)
    saved.save(tmp_path / "model.safetensors", np.full(soft_labels.shape, 0.25, dtype=np.float32))
    loaded = LabelModel.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(loaded.lf_summary().estimated_accuracy, 0.25, err_msg="taken as they are")


def test_soft_labels_of_other_rows_are_refused():
    model = LabelModel(2, "majority").fit(VOTES)
    with pytest.raises(InputError, match=r"soft_labels have shape \(4, 2\) .* fitted on, \(5, 2\)"):
        model.lf_summary(np.full((4, 2), 0.5))
    with pytest.raises(InputError, match="type int64"):
        model.lf_summary(np.ones((5, 2), dtype=np.int64))


def test_the_printed_table_is_aligned():
    lines = str(LabelModel(2, "majority").fit(VOTES).lf_summary()).splitlines()
    assert len(lines) == 4
    assert len({len(line) for line in lines}) == 1
    assert "coverage" in lines[0]
    assert "80.0%" in lines[1]


def test_estimated_accuracy_is_close_to_the_truth(world):
    summary = LabelModel(4, "dawid-skene").fit(world.votes).lf_summary()
    for k, estimated in enumerate(summary.estimated_accuracy):
        spoken = world.votes[:, k] != -1
        assert estimated == pytest.approx((world.votes[spoken, k] == world.y[spoken]).mean(), abs=0.06)


def test_copies_count_once():
    rng = np.random.default_rng(0)
    independent = np.where(rng.random((20_000, 4)) < 0.5, 0, -1)
    assert effective_lfs(independent, np.ones((4, 1), bool))[0] == pytest.approx(4.0, abs=0.01)
    copies = np.repeat(independent[:, :1], 4, axis=1)
    assert effective_lfs(copies, np.ones((4, 1), bool))[0] == pytest.approx(1.0)


def test_classes_without_specialists_have_no_lfs():
    specialties = np.array([[True, False], [True, False]])
    assert effective_lfs(np.array([[0, -1], [-1, 0]]), specialties).tolist() == [pytest.approx(1.0), 0.0]


def test_reliability_by_hand():
    proba = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.3, 0.7]])
    table = reliability_table(proba, np.array([0, 1, 1, -1]), n_bins=10)
    assert table.count.tolist() == [0] * 6 + [1, 0, 0, 2]
    assert table.accuracy[9] == 0.5
    assert table.ece == pytest.approx((2 * 0.4 + 1 * 0.4) / 3)
    assert table.log_loss == pytest.approx(-(np.log(0.9) + np.log(0.1) + np.log(0.6)) / 3)
    assert table.brier == pytest.approx((2 * 0.01 + 2 * 0.81 + 2 * 0.16) / 3)
    assert "0.90–1.00        2  0.900  0.500" in str(table)


def test_specialist_vote_divides_by_the_number_of_specialists():
    """One specialist of class 0 against two of three of class 1: 1 beats 2/3."""
    specialties = np.array([[1, 0], [0, 1], [0, 1], [0, 1]])
    votes = [[0, 1, 1, -1], [0, 1, 1, 1]]
    model = LabelModel(2, "specialist-vote").fit(votes, specialties=specialties)
    np.testing.assert_allclose(model.predict_proba(votes), [[0.6, 0.4], [0.5, 0.5]])
    assert LabelModel(2, "majority").fit(votes).predict(votes).tolist() == [1, 1]


def test_triplet_log_odds_where_the_assumptions_hold():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, size=50_000)
    rates = np.array([0.9, 0.8, 0.7, 0.6])
    votes = np.where(rng.random((50_000, 4)) < rates, y[:, None], 1 - y[:, None])
    fit = fit_triplets(check_vote_data(votes, 2))
    expected = np.log(rates / (1 - rates))
    np.testing.assert_allclose(fit.log_odds, np.stack([expected, expected], axis=1), atol=0.1)


def test_triplet_posterior_equals_naive_bayes():
    rng = np.random.default_rng(1)
    data = check_vote_data(rng.integers(-1, 2, size=(100, 4)), 2)
    fit = fit_triplets(data)
    proba = np.exp(fit.predict_log_proba(data.votes))
    for row in range(100):
        odds = sum(
            fit.log_odds[k] * np.where(v == np.arange(2), 1, -1) for k, v in enumerate(data.votes[row]) if v >= 0
        )
        tasks = 1 / (1 + np.exp(-np.asarray(odds) * np.ones(2)))
        np.testing.assert_allclose(proba[row], tasks / tasks.sum(), atol=1e-12)
