"""LabelModel: one interface for every variant, whatever form the votes come in."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from dpssl import LabelModel
from dpssl.errors import InputError
from dpssl.label_model import VARIANTS, covered
from dpssl.label_model import votes as votes_module

USES_CONFIDENCE = [name for name, variant in VARIANTS.items() if variant.uses_confidence]
pytestmark = pytest.mark.filterwarnings("ignore:variant .* does not use confidence")


@pytest.mark.parametrize("variant", VARIANTS)
def test_labels_most_rows_right(variant, world):
    model = LabelModel(world.n_classes, variant).fit(world.votes, specialties=world.specialties)
    assert model.score(world.votes, world.y) > 0.75
    np.testing.assert_allclose(model.class_balance_.sum(), 1.0)
    assert model.converged_
    assert model.n_iter_ >= 1


def test_dawid_skene_beats_the_plain_vote(specialist_votes):
    for seed in range(3):
        world = specialist_votes(n_rows=4000, seed=seed)
        scores = {
            variant: LabelModel(4, variant).fit(world.votes, specialties=world.specialties).score(world.votes, world.y)
            for variant in ("majority", "dawid-skene")
        }
        assert scores["dawid-skene"] > scores["majority"] + 0.01


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_form_of_votes_gives_the_same_labels(variant, world, tmp_path):
    votes = world.votes[:300]
    stored = np.nonzero(votes != -1)
    sparse = scipy.sparse.coo_matrix((votes[stored].astype(np.int64), stored), shape=votes.shape)
    np.savez(tmp_path / "votes.npz", votes=votes)
    np.savez(tmp_path / "snorkel.npz", L=votes)
    np.save(tmp_path / "votes.npy", votes)
    frame = pd.DataFrame(votes, columns=[f"lf{k}" for k in range(votes.shape[1])])
    frame.replace(-1, np.nan).to_csv(tmp_path / "votes.csv", index=False)
    frame.to_parquet(tmp_path / "votes.parquet")
    files = ["votes.npz", "snorkel.npz", "votes.npy", "votes.csv", "votes.parquet"]
    expected = LabelModel(4, variant).fit(votes).predict_proba(votes)
    for other in [votes.astype(np.int64), votes.astype(float), votes.tolist(), frame, sparse, sparse.tocsr()]:
        np.testing.assert_array_equal(LabelModel(4, variant).fit(other).predict_proba(other), expected)
    for name in files:
        path = tmp_path / name
        np.testing.assert_array_equal(LabelModel(4, variant).fit(path).predict_proba(str(path)), expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_saved_and_loaded_it_predicts_the_same(variant, world, tmp_path):
    model = LabelModel(4, variant, respect_unanimous=False).fit(world.votes, specialties=world.specialties)
    model.save(tmp_path / "model.safetensors")
    loaded = LabelModel.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(world.votes), model.predict_proba(world.votes))
    assert str(loaded.lf_summary()) == str(model.lf_summary())
    assert loaded.variant == variant
    assert loaded.respect_unanimous is False
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_settings_survive_saving(world, tmp_path):
    settings = {"class_prior": "free", "regularizer": "none"}
    model = LabelModel(4, "paper", settings=settings).fit(world.votes)
    model.save(tmp_path / "model.safetensors")
    assert settings.items() <= LabelModel.load(tmp_path / "model.safetensors").settings.items()


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_bytes_twice(variant, world):
    first, second = (LabelModel(4, variant).fit(world.votes).predict_proba(world.votes) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("variant", ["dawid-skene", "paper"])
def test_labels_are_used(variant, world):
    """Votes that mean the opposite: a few labels turn the model round, where it would otherwise trust the LFs."""
    swapped = np.where(world.votes == 0, 1, np.where(world.votes == 1, 0, world.votes))
    y = np.where(np.arange(len(swapped)) < 1000, world.y, -1)
    settings = {"regularizer": "none"} if variant == "paper" else None
    model = LabelModel(4, variant, settings=settings, respect_unanimous=False)
    unlabeled = y == -1
    without = model.fit(swapped).score(swapped[unlabeled], world.y[unlabeled])
    assert model.fit(swapped, y=y).score(swapped[unlabeled], world.y[unlabeled]) > without


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_weight_is_that_many_rows(variant, world):
    votes = world.votes[:60]
    times = np.random.default_rng(0).integers(1, 4, size=60)
    weighted = LabelModel(4, variant).fit(votes, sample_weight=times).predict_proba(votes)
    repeated = LabelModel(4, variant).fit(np.repeat(votes, times, axis=0)).predict_proba(votes)
    np.testing.assert_allclose(weighted, repeated, atol=1e-6)


@pytest.mark.parametrize("variant", USES_CONFIDENCE)
def test_a_weight_is_that_many_rows_with_their_confidences(variant, world):
    """The unsure rows are there more often: ranks of confidences and what counts as sure must go by that."""
    votes, rng = world.votes[:400], np.random.default_rng(0)
    unsure = rng.random(400) < 0.5
    confidence = rng.uniform(0.3, 1.0, votes.shape) - 0.25 * unsure[:, None]
    times = np.where(unsure, 5, 1)
    weighted = LabelModel(4, variant).fit(votes, None, confidence, sample_weight=times)
    repeated = LabelModel(4, variant).fit(
        np.repeat(votes, times, axis=0), confidence=np.repeat(confidence, times, axis=0)
    )
    expected = repeated.predict_proba(votes, confidence)
    np.testing.assert_allclose(weighted.predict_proba(votes, confidence), expected, atol=1e-6)
    once = LabelModel(4, variant).fit(votes, None, confidence).predict_proba(votes, confidence)
    assert variant != "adaptive" or np.abs(once - expected).max() > 1e-3, "weights that change nothing test nothing"


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_row_of_weight_0_is_left_out(variant, world):
    """Its votes, its confidences, and the class that an LF names there alone."""
    votes, rng = world.votes[:300].copy(), np.random.default_rng(0)
    votes[:100] = rng.integers(0, 4, (100, votes.shape[1]))
    confidence = rng.uniform(0.3, 1.0, votes.shape)
    confidence[:100] = 1.0
    with_them = LabelModel(4, variant).fit(votes, None, confidence, sample_weight=np.arange(300) >= 100)
    without = LabelModel(4, variant).fit(votes[100:], None, confidence[100:])
    np.testing.assert_array_equal(with_them.specialties_, without.specialties_)
    assert not with_them.specialties_.all()
    expected = without.predict_proba(votes[100:], confidence[100:])
    np.testing.assert_allclose(with_them.predict_proba(votes[100:], confidence[100:]), expected, atol=1e-9)
    assert str(with_them.lf_summary()) == str(without.lf_summary())


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_are_predicted_a_few_at_a_time_for_many_classes_too(variant, world, monkeypatch):
    model = LabelModel(100, variant, respect_unanimous=False)
    with pytest.warns(UserWarning, match="votes for class"):
        model.fit(world.votes[:200])
    whole = model.predict_proba(world.votes[:50])
    seen, kind = [], type(model.fitted_)
    predict = kind.predict_log_proba

    def spy(self, votes, confidence=None):
        seen.append(len(votes))
        return predict(self, votes, confidence)

    monkeypatch.setattr(kind, "predict_log_proba", spy)
    monkeypatch.setattr(votes_module, "CHUNK_VOTES", 700)
    np.testing.assert_allclose(model.predict_proba(world.votes[:50]), whole, atol=1e-12)
    assert seen == [7] * 7 + [1], "700 cells are 7 rows of 100 classes, not 58 rows of 12 LFs"
    np.testing.assert_allclose(np.exp(predict(model.fitted_, world.votes[:50])).argmax(1), whole.argmax(1))


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_without_a_vote_get_the_given_balance(variant, world):
    balance = np.array([0.1, 0.2, 0.3, 0.4])
    votes = np.vstack([world.votes, np.full((3, world.votes.shape[1]), -1)])
    model = LabelModel(4, variant).fit(votes, class_balance=balance)
    np.testing.assert_allclose(model.predict_proba(votes)[-3:], np.tile(balance, (3, 1)))
    assert not covered(votes)[-3:].any()
    assert (model.predict(votes)[-3:] == -1).all()
    assert (model.predict(votes, tie_break="lowest")[-3:] == 3).all()


@pytest.mark.parametrize("variant", ["majority", "specialist-vote"])
def test_a_thousand_classes_and_lfs_from_sparse_votes(variant):
    """1,000 × 1,000 parameters a table are out of reach for most models, but not for the votes' shares."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 1000, size=300)
    rows = np.repeat(np.arange(300), 5)
    lfs = np.concatenate([rng.choice(1000, size=5, replace=False) for _ in range(300)])
    labels = np.where(rng.random(1500) < 0.7, y[rows], rng.integers(0, 1000, size=1500))
    votes = scipy.sparse.csr_matrix((labels, (rows, lfs)), shape=(300, 1000))
    with pytest.warns(UserWarning, match="never vote|votes for class"):
        model = LabelModel(1000, variant).fit(votes, specialties=np.ones((1000, 1000), dtype=bool))
    assert model.score(votes, y) > 0.9


def test_ties():
    model = LabelModel(3, "majority").fit([[0, 1], [2, 2], [1, 2]])
    assert model.predict([[0, 1], [2, 2]]).tolist() == [-1, 2]
    assert model.predict([[0, 1], [1, 2]], tie_break="lowest").tolist() == [0, 1]
    draws = model.predict([[0, 1]] * 200, tie_break="random", rng=np.random.default_rng(0))
    assert set(draws.tolist()) == {0, 1}
    with pytest.raises(InputError, match="tie_break is 'first'"):
        model.predict([[0, 1]], tie_break="first")


def test_score_counts_ties_by_their_share_and_skips_unlabelled_rows():
    model = LabelModel(2, "majority").fit([[0, 1], [1, 1]])
    assert model.score([[0, 1], [1, 1], [0, 0]], [0, 1, -1]) == pytest.approx((0.5 + 1.0) / 2)
    with pytest.raises(InputError, match="no known label"):
        model.score([[0, 1]], [-1])


def test_unanimity_can_be_given_up():
    """Two LFs that are wrong together whenever they speak: labels say so, unanimity says otherwise."""
    votes = np.array([[0, 0]] * 50 + [[1, 1]] * 50)
    y = np.array([1] * 50 + [0] * 50)
    y[::2] = -1
    kept = LabelModel(2, "dawid-skene").fit(votes, y=y)
    given_up = LabelModel(2, "dawid-skene", respect_unanimous=False).fit(votes, y=y)
    assert kept.predict([[0, 0]]).tolist() == [0]
    assert given_up.predict([[0, 0]]).tolist() == [1]
    assert kept.predict_proba([[0, 0]])[0, 0] == pytest.approx(0.5, abs=1e-5)  # no more than is needed


@pytest.mark.parametrize("variant", ["majority", "specialist-vote"])
def test_confidence_weighs_votes(variant):
    votes = np.array([[0, 1], [0, 1]])
    model = LabelModel(2, variant).fit(votes)
    proba = model.predict_proba(votes, confidence=np.array([[0.9, 0.6], [0.5, 0.5]]))
    np.testing.assert_allclose(proba, [[0.6, 0.4], [0.5, 0.5]], rtol=1e-6)
    in_bytes = model.predict_proba(votes, confidence=np.array([[255, 51], [0, 255]], dtype=np.uint8))
    np.testing.assert_allclose(in_bytes, [[5 / 6, 1 / 6], [0, 1]], rtol=1e-6)


def test_a_variant_that_cannot_use_confidence_says_so(world):
    with pytest.warns(UserWarning, match="'dawid-skene' does not use confidence"):
        LabelModel(4, "dawid-skene").fit(world.votes, confidence=np.full(world.votes.shape, 0.5))


def test_confidences_in_a_file_are_taken_where_the_variant_uses_them(tmp_path, recwarn):
    votes, confidence = np.array([[0, 1], [0, 1]]), np.array([[0.9, 0.6], [0.2, 0.8]])
    np.savez(tmp_path / "votes.npz", votes=votes, confidence=confidence)
    proba = LabelModel(2, "majority").fit(tmp_path / "votes.npz").predict_proba(tmp_path / "votes.npz")
    np.testing.assert_allclose(proba, [[0.6, 0.4], [0.2, 0.8]], rtol=1e-6)
    LabelModel(2, "dawid-skene").fit(tmp_path / "votes.npz")
    assert not [warning for warning in recwarn if "confidence" in str(warning.message)]


def test_scikit_learns_conventions(world):
    from sklearn.base import clone

    model = LabelModel(4, "paper", settings={"regularizer": "none"}).fit(world.votes)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "fitted_")
    assert copy.set_params(variant="majority", settings=None).variant == "majority"
    assert "variant='majority'" in repr(copy)
    with pytest.raises(InputError, match="no parameter 'epochs'"):
        copy.set_params(epochs=3)


WITHOUT_SCIPY = """
import json, sys

sys.modules.update(dict.fromkeys(("scipy", "sklearn", "pandas", "pyarrow")))  # None: the import fails
import numpy as np
from dpssl.label_model import VARIANTS, LabelModel

votes = np.array(json.load(sys.stdin))
print(json.dumps({name: LabelModel(4, name).fit(votes).predict_proba(votes).tolist() for name in VARIANTS}))
"""


def test_the_same_labels_where_scipy_is_missing(world):
    votes = world.votes[:200]
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_SCIPY],
        input=json.dumps(votes.tolist()),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    for variant, proba in json.loads(result.stdout).items():
        np.testing.assert_allclose(proba, LabelModel(4, variant).fit(votes).predict_proba(votes), atol=1e-6)
