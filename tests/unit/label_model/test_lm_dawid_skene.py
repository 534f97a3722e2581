"""Dawid-Skene by semi-supervised EM: right tables, mergeable counts, bounded chunks."""

import numpy as np
import pytest

from dpssl.label_model import votes as votes_module
from dpssl.label_model.checks import check_vote_data
from dpssl.label_model.dawid_skene import (
    DawidSkeneSettings,
    e_step,
    expected_counts,
    fit_dawid_skene,
    m_step,
)
from dpssl.label_model.one_hot import OneHotVotes


@pytest.fixture
def data(world):
    return check_vote_data(world.votes, world.n_classes, specialties=world.specialties)


def test_with_every_label_known_the_tables_are_counts(world):
    data = check_vote_data(world.votes, 4, y=world.y, specialties=world.specialties)
    fit = fit_dawid_skene(data, DawidSkeneSettings(smoothing=1e-9, prior_strength=1e-9))
    np.testing.assert_allclose(fit.class_balance, np.bincount(world.y) / len(world.y), atol=1e-9)
    for k, c in np.ndindex(world.votes.shape[1], 4):
        of_class = world.votes[world.y == c, k]
        for v in [*np.flatnonzero(world.specialties[k]), -1]:
            assert np.exp(fit.log_table[k, c, v]) == pytest.approx((of_class == v).mean(), abs=1e-6)


def test_tables_are_probabilities(data):
    table = np.exp(fit_dawid_skene(data).log_table)
    outcomes = np.concatenate([data.specialties, np.ones((len(data.specialties), 1), bool)], axis=1)
    np.testing.assert_allclose((table * outcomes[:, None, :]).sum(2), 1.0)


def test_recovers_the_tables_without_labels(specialist_votes):
    world = specialist_votes(n_rows=20_000)
    data = check_vote_data(world.votes, 4, specialties=world.specialties)
    truth = check_vote_data(world.votes, 4, y=world.y, specialties=world.specialties)
    estimated, counted = (np.exp(fit_dawid_skene(part).log_table) for part in (data, truth))
    assert np.abs(estimated - counted).max() < 0.06


def test_likelihood_never_falls(data):
    settings = DawidSkeneSettings(smoothing=1e-6, prior_strength=1e-6)
    votes = OneHotVotes(data.votes, 4)
    posterior = np.random.default_rng(0).dirichlet(np.ones(4), size=len(data.votes))
    prior, table = m_step(expected_counts(votes, posterior, data.sample_weight), data.specialties, None, settings)
    likelihoods = []
    for _ in range(30):
        statistics = e_step(votes, data.y, data.sample_weight, prior, table)
        prior, table = m_step(statistics, data.specialties, None, settings)
        likelihoods.append(statistics.log_likelihood)
    assert (np.diff(likelihoods) > -1e-3).all()
    assert likelihoods[-1] > likelihoods[0]


def test_e_step_equals_the_loop(data):
    """Posterior by the formula: P(y | ŷ) ∝ P(y) Π_k P(ŷ^k | y), abstentions included."""
    fit = fit_dawid_skene(data)
    log_proba = fit.predict_log_proba(data.votes[:20])
    for row in range(20):
        weights = fit.class_balance.copy()
        for k, v in enumerate(data.votes[row]):
            weights *= np.exp(fit.log_table[k, :, v])  # -1 reads the last column: abstain
        np.testing.assert_allclose(np.exp(log_proba[row]), weights / weights.sum(), atol=1e-12)


def test_statistics_of_parts_add_up(data):
    fit = fit_dawid_skene(data)
    whole = e_step(OneHotVotes(data.votes, 4), data.y, data.sample_weight, fit.class_balance, fit.log_table)
    parts = [
        e_step(
            OneHotVotes(data.votes[rows], 4), data.y[rows], data.sample_weight[rows], fit.class_balance, fit.log_table
        )
        for rows in (slice(0, 700), slice(700, None))
    ]
    merged = parts[0] + parts[1]
    np.testing.assert_allclose(merged.vote_mass, whole.vote_mass, atol=1e-9)
    np.testing.assert_allclose(merged.class_mass, whole.class_mass, atol=1e-9)
    assert merged.log_likelihood == pytest.approx(whole.log_likelihood)


@pytest.mark.parametrize("cached", [True, False])
def test_chunks_change_nothing(data, monkeypatch, cached):
    whole = fit_dawid_skene(data)
    monkeypatch.setattr(votes_module, "CHUNK_VOTES", 12 * 300)
    if not cached:
        monkeypatch.setattr("dpssl.label_model.dawid_skene.CACHED_VOTES", 0)
    chunked = fit_dawid_skene(data)
    np.testing.assert_allclose(chunked.log_table, whole.log_table, atol=1e-8)
    np.testing.assert_allclose(chunked.predict_log_proba(data.votes), whole.predict_log_proba(data.votes), atol=1e-8)


def test_abstention_can_be_ignored(data):
    """Then an abstaining LF multiplies by 1, as for a crowd worker who was never asked."""
    fit = fit_dawid_skene(data, DawidSkeneSettings(abstention="ignored"))
    assert (fit.log_table[:, :, -1] == 0).all()
    empty = np.full((1, data.votes.shape[1]), -1)
    np.testing.assert_allclose(np.exp(fit.predict_log_proba(empty))[0], fit.class_balance)


def test_abstention_is_evidence():
    """A specialist of class 0 that always speaks on it: its silence speaks for class 1."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, size=500)
    votes = np.stack([np.where(y == 0, 0, -1), np.where(rng.random(500) < 0.8, y, 1 - y)], axis=1)
    fit = fit_dawid_skene(check_vote_data(votes, 2, y=np.where(np.arange(500) < 100, y, -1)))
    silent_then_zero = np.exp(fit.predict_log_proba(np.array([[-1, 0]])))[0]
    assert silent_then_zero[1] > 0.9


def test_a_given_balance_is_kept(world):
    balance = np.array([0.4, 0.3, 0.2, 0.1])
    fit = fit_dawid_skene(check_vote_data(world.votes, 4, class_balance=balance))
    np.testing.assert_allclose(fit.class_balance, balance)


def test_stopping_is_said(data):
    assert fit_dawid_skene(data).converged
    short = fit_dawid_skene(data, DawidSkeneSettings(max_iter=2))
    assert (short.converged, short.n_iter) == (False, 2)


def test_a_rare_speaker_is_pulled_to_its_own_rates_not_to_uniform():
    """One vote of one LF must not look like a habit of speaking on the classes it was never seen on."""
    votes = np.full((1000, 3), -1)
    votes[:500, :2], votes[500:, :2] = 0, 1
    votes[0, 2] = 0
    table = np.exp(fit_dawid_skene(check_vote_data(votes, 2)).log_table)
    assert table[2, 1, 0] < 0.001
