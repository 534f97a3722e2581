"""The shared difficulty against sums over every state and every vote."""

import itertools

import numpy as np
import pytest

from dpssl.label_model import em
from dpssl.label_model.class_votes import count_class_votes
from dpssl.label_model.difficulty import (
    LOOK_ALIKE,
    OTHER,
    TRUTH,
    expected_counts,
    infer_states,
    log_normalizers,
)
from dpssl.label_model.em import EStep, add_difficulty, make_batches, run_em, start_model
from dpssl.label_model.row_sample import WeightedRows
from dpssl.label_model.vote_tables import find_columns, table_parts

N_CLASSES, N_LFS = 3, 3


@pytest.fixture
def model():
    """A model with shared difficulty, a few EM steps from its start."""
    rng = np.random.default_rng(0)
    y = rng.integers(N_CLASSES, size=300)
    votes = np.where(rng.random((300, N_LFS)) < 0.6, y[:, None], rng.integers(-1, N_CLASSES, size=(300, N_LFS)))
    rows = WeightedRows(votes, np.full(300, -1), np.ones(300))
    columns = find_columns(votes, rows.weight, N_CLASSES)
    batches = make_batches(rows, columns, np.ones(N_LFS), 1)
    start = start_model(batches, columns, 1.0, np.ones(N_LFS), None)
    by_class = run_em(start, batches, None, 5, 0.0).model
    return run_em(add_difficulty(by_class), batches, None, 3, 0.0).model


def every_row():
    """All possible rows of votes."""
    return np.array(list(itertools.product(range(-1, N_CLASSES), repeat=N_LFS)))


def slow_joint(model, row):
    """P(row, y, ℓ, h) straight from the formula, (C, C, H)."""
    tables, columns, difficulty = model.tables, model.columns, model.tables.difficulty
    n_levels = len(difficulty.level_share)
    joint = np.zeros((N_CLASSES, N_CLASSES, n_levels))
    for y, m, h in np.ndindex(N_CLASSES, difficulty.look_alikes.shape[1], n_levels):
        alike = difficulty.look_alikes[y, m]
        value = tables.balance[y] * difficulty.look_alike_share[y, m] * difficulty.level_share[h]
        for k, vote in enumerate(row):
            weights = {-1: tables.silent[k, y]}
            for v in range(N_CLASSES):
                role = TRUTH if v == y else LOOK_ALIKE if v == alike else OTHER
                says = tables.says[k * columns.n_codes + columns.code[k, v], y]
                weights[v] = says * np.exp(difficulty.boost[h, role])
            value *= weights[vote] / sum(weights.values())
        joint[y, alike, h] = value
    return joint


def infer(model, votes, weight):
    rows = WeightedRows(votes, np.full(len(votes), -1), weight)
    return make_batches(rows, model.columns, model.lf_weight, 1)


def test_the_posterior_and_likelihood_match_the_sum_over_states(model):
    votes = every_row()
    (batch,) = infer(model, votes, np.ones(len(votes)))
    inferred = EStep(model).infer(batch)
    slow = np.array([slow_joint(model, row).sum((1, 2)) for row in votes])
    np.testing.assert_allclose(np.exp(inferred.log_likelihood), slow.sum(1), rtol=1e-6)
    np.testing.assert_allclose(inferred.joint.sum(0), slow / slow.sum(1, keepdims=True), atol=1e-7)


@pytest.mark.parametrize("n_votes", [(160, 0, 30), (160, 0, 0), (80, 80, 1), (3, 0, 0)])
def test_more_votes_for_a_class_than_an_exponential_holds(model, n_votes):
    """e^gain of 160 votes overflows: no row of the fit may have so many, but one that is predicted may."""
    difficulty, states = model.tables.difficulty, EStep(model).states
    classes = np.arange(N_CLASSES)
    votes = count_class_votes(1, N_CLASSES, 1, 0 * classes, classes, np.array(n_votes, dtype=float))
    evidence = np.array([[-20.0, -10.0, 0.0]])
    log_joint = np.full((N_CLASSES, N_CLASSES, len(difficulty.level_share)), -np.inf)
    for y, m, h in np.ndindex(states.shape):
        alike = difficulty.look_alikes[y, m]
        role = [TRUTH if v == y else LOOK_ALIKE if v == alike else OTHER for v in classes]
        log_joint[y, alike, h] = states[y, m, h] + evidence[0, y] + difficulty.boost[h, role] @ n_votes
    by_class = np.logaddexp.reduce(log_joint, axis=(1, 2))
    inferred = infer_states(difficulty, states, evidence, votes, np.array([-1]), np.ones(1))
    expected = np.exp(by_class - np.logaddexp.reduce(by_class))
    np.testing.assert_allclose(inferred.joint.sum((0, 1)), expected, atol=1e-9)
    assert inferred.log_likelihood[0] == pytest.approx(np.logaddexp.reduce(by_class))


def test_rows_of_votes_are_a_distribution(model):
    assert sum(slow_joint(model, row).sum() for row in every_row()) == pytest.approx(1.0, abs=1e-6)


def test_counts_of_states_and_roles_match_the_sum_over_states(model):
    votes = every_row()[5:40]
    weight = np.linspace(0.5, 2.0, len(votes))
    counts = EStep(model).count(infer(model, votes, weight)).shared
    alikes = model.tables.difficulty.look_alikes
    states = np.zeros(counts.state_mass.shape)
    roles = np.zeros(counts.role_mass.shape[:2])
    for row, w in zip(votes, weight, strict=True):
        joint = slow_joint(model, row)
        joint *= w / joint.sum()
        states += np.take_along_axis(joint, alikes[:, :, None], axis=1)
        for (y, alike, h), value in np.ndenumerate(joint):
            for vote in row[row >= 0]:
                roles[h, TRUTH if vote == y else LOOK_ALIKE if vote == alike else OTHER] += value
    np.testing.assert_allclose(counts.state_mass, states, atol=1e-6)
    np.testing.assert_allclose(counts.role_mass[:, :, 0], roles, atol=1e-6)


def test_expected_votes_match_the_sum_over_states(model):
    """Rows drawn from the model itself: what it expects is what the weighted rows hold."""
    votes = every_row()
    weight = np.array([slow_joint(model, row).sum() for row in votes])
    counts = EStep(model).count(infer(model, votes, weight))
    parts = table_parts(model.tables, model.columns)
    difficulty = model.tables.difficulty
    normalizer = log_normalizers(difficulty, *parts)
    expected = expected_counts(difficulty, counts.shared.state_mass, *parts, normalizer, np.ones(N_LFS))
    np.testing.assert_allclose(expected.by_role, counts.shared.role_mass[:, :, 0], atol=1e-6)
    own = parts[0] * expected.own
    of_truth = [[counts.vote_mass[k * model.columns.n_codes + y, y] for y in range(N_CLASSES)] for k in range(N_LFS)]
    np.testing.assert_allclose(own, of_truth, atol=1e-6)


def test_counts_of_parts_add_up(model):
    votes = every_row()
    weight = np.ones(len(votes))
    whole = EStep(model).count(infer(model, votes, weight))
    parts = EStep(model).count(infer(model, votes[:20], weight[:20])) + EStep(model).count(
        infer(model, votes[20:], weight[20:])
    )
    np.testing.assert_allclose(parts.vote_mass, whole.vote_mass, atol=1e-9)
    np.testing.assert_allclose(parts.shared.state_mass, whole.shared.state_mass, atol=1e-9)
    assert parts.log_likelihood == pytest.approx(whole.log_likelihood)


def test_small_batches_change_nothing(model, monkeypatch):
    votes = every_row()
    whole = EStep(model).count(infer(model, votes, np.ones(len(votes))))
    monkeypatch.setattr(em, "CHUNK_CELLS", 60)
    batches = infer(model, votes, np.ones(len(votes)))
    assert len(batches) > 10
    np.testing.assert_allclose(EStep(model).count(batches).vote_mass, whole.vote_mass, atol=1e-9)
