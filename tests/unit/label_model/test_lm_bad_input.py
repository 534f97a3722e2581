"""Unusable input gets one clear message: what is wrong, where, and what to do."""

import numpy as np
import pytest
import scipy.sparse

from dpssl import LabelModel
from dpssl.errors import InputError, RunFolderError
from dpssl.label_model.baselines import fit_majority
from dpssl.label_model.checks import check_vote_data
from dpssl.label_model.dawid_skene import DawidSkeneSettings
from dpssl.label_model.paper import PaperSettings

VOTES = np.array([[0, 1, -1], [1, 1, 0], [-1, 0, 0], [2, -1, 2]])


def fit(votes=VOTES, n_classes=3, variant="majority", settings=None, **inputs):
    return LabelModel(n_classes, variant, settings=settings).fit(votes, **inputs)


@pytest.mark.parametrize(
    ("votes", "message"),
    [
        ([[0, -2]], r"row 0 has the vote -2 from labeling function 1.*-1 \(abstain\) or 0 to 2"),
        ([[0, 1], [3, 0]], r"row 1 has the vote 3 from labeling function 0.*raise n_classes"),
        ([[0, 0.5]], r"row 0 has the vote 0.5 from labeling function 1.*whole class numbers"),
        ([[0, np.nan]], r"row 0 has the vote nan from labeling function 1; write -1"),
        ([[np.inf, 0]], r"row 0 has the vote inf"),
        (np.empty((0, 3)), r"votes are empty \(shape \(0, 3\)\)"),
        (np.empty((3, 0)), r"votes are empty"),
        ([0, 1, 2], r"votes have shape \(3,\); give a matrix"),
        ([["cat", "dog"]], r"n_classes is 3, but the classes are cat, dog; give all names as class_names"),
        ([["cat", 1]], r"row 0, labeling function 0: cat is not a class number, but 1 in .*labeling function 1 is"),
        ([[np.datetime64("2026-01-01")]], r"votes have type datetime64.*; give class numbers 0 to 2"),
        ([[True, False]], r"votes have type bool"),
    ],
)
def test_votes(votes, message):
    with pytest.raises(InputError, match=message):
        fit(np.asarray(votes))


def test_sparse_votes_out_of_range():
    with pytest.raises(InputError, match="row 0 has the vote 300 from labeling function 1"):
        fit(scipy.sparse.csr_matrix(([300], ([0], [1])), shape=(2, 2)))


def test_sparse_votes_with_a_cell_stored_twice():
    with pytest.raises(InputError, match="one cell twice"):
        fit(scipy.sparse.coo_matrix(([1, 1], ([0, 0], [1, 1])), shape=(2, 2)))


@pytest.mark.parametrize("n_classes", [1, 0, 2.5, "3", True])
def test_number_of_classes(n_classes):
    with pytest.raises(InputError, match=r"n_classes is .*integer of at least 2"):
        fit(n_classes=n_classes)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"y": [0, 1]}, r"y has shape \(2,\) for 4 rows"),
        ({"y": [0, 1, 2, 3]}, r"y\[3\] is 3; labels are 0 to 2"),
        ({"y": [0, 1, -2, 0]}, r"y\[2\] is -2"),
        ({"y": [0, 1, 0.5, 0]}, r"y has type float64 or fractions"),
        ({"y": ["a", "b", "c", "d"]}, r"y holds class names, but the votes are class numbers"),
        ({"class_balance": [0.5, 0.5]}, r"class_balance has shape \(2,\); give 3 numbers"),
        ({"class_balance": [0.5, 0.5, 0.5]}, r"class_balance is .*sum 1.5.*sum to 1"),
        ({"class_balance": [1.5, -0.5, 0.0]}, r"class_balance"),
        ({"class_balance": [np.nan, 0.5, 0.5]}, r"class_balance"),
        ({"sample_weight": [1, 1]}, r"sample_weight has shape \(2,\)"),
        ({"sample_weight": [1, -1, 1, 1]}, r"sample_weight has a negative"),
        ({"sample_weight": [0, 0, 0, 0]}, r"sums to 0"),
        ({"confidence": np.ones((4, 2))}, r"confidence has shape \(4, 2\) but votes have \(4, 3\)"),
        ({"confidence": np.full((4, 3), 1.5)}, r"confidence\[0, 0\] is 1.5"),
        ({"confidence": np.full((4, 3), np.nan)}, r"confidence\[0, 0\] is nan"),
        ({"specialties": np.ones((3, 2), bool)}, r"specialties have shape \(3, 2\)"),
        ({"specialties": np.ones((3, 3))}, r"specialties have shape \(3, 3\) and type float64"),
        (
            {"specialties": np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]])},
            r"row 0: labeling function 1 votes for class 1, outside its specialties \[0, 2\]; add the class",
        ),
    ],
)
def test_what_comes_beside_the_votes(inputs, message):
    with pytest.raises(InputError, match=message):
        fit(**inputs)


@pytest.mark.parametrize("variant", ["triplet", "paper"])
def test_too_few_lfs_names_what_works(variant):
    with pytest.raises(InputError, match=r"at least 3 labeling functions, there are 2.*'dawid-skene' or 'majority'"):
        fit(VOTES[:, :2], variant=variant)


@pytest.mark.parametrize("variant", ["dawid-skene", "paper", "snorkel", "triplet"])
def test_too_many_classes_names_what_works(variant):
    votes = np.random.default_rng(0).integers(-1, 2000, size=(5, 100))
    with (
        pytest.raises(InputError, match="use variant 'specialist-vote' or 'majority'"),
        pytest.warns(UserWarning, match=r"votes for class \[0, .* and \d+ more"),
    ):
        fit(votes, n_classes=2000, variant=variant)


@pytest.mark.parametrize(
    ("variant", "settings", "message"),
    [
        ("adam", None, "variant is 'adam'; choose one of adaptive, majority, "),
        ("majority", {"epochs": 3}, "variant 'majority' has no setting epochs; it has: none"),
        ("paper", {"potental": "snorkel"}, "no setting potental; it has: potential, "),
        ("paper", DawidSkeneSettings(), "settings are DawidSkeneSettings; variant 'paper' takes PaperSettings"),
        ("paper", {"potential": "five-part"}, "potential is 'five-part'; choose one of four-part, "),
        ("paper", {"regularizer": "class-wise"}, "needs accuracy_estimator='em'"),
        ("dawid-skene", {"smoothing": 0.0}, "smoothing is 0.0; give a number above 0"),
        ("dawid-skene", {"abstention": "maybe"}, "abstention is 'maybe'"),
    ],
)
def test_variants_and_settings(variant, settings, message):
    with pytest.raises(InputError, match=message):
        fit(variant=variant, settings=settings)


def test_settings_are_checked_when_made():
    with pytest.raises(InputError, match="reduction is 'max'"):
        PaperSettings(reduction="max")


def test_dead_lfs_and_unvoted_classes_are_named():
    votes = np.column_stack([VOTES, np.full(4, -1)])
    with pytest.warns(UserWarning, match=r"labeling functions that never vote: \[3\]"):
        model = fit(votes)
    assert model.lf_summary().dead == [3]
    assert "never vote: 3" in str(model.lf_summary())
    with pytest.warns(UserWarning, match=r"no labeling function votes for class \[3, 4\]"):
        fit(n_classes=5)


def test_before_fit():
    model = LabelModel(3)
    uses = (lambda: model.predict_proba(VOTES), model.lf_summary, lambda: model.class_balance_, lambda: model.save("x"))
    for use in uses:
        with pytest.raises(InputError, match="not fitted; call fit"):
            use()


def test_predicting_with_other_lfs():
    with pytest.raises(InputError, match="votes have 2 columns, but the model was fitted on 3"):
        fit().predict_proba(VOTES[:, :2])
    specialties = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 1]])
    with pytest.raises(InputError, match="labeling function 1 votes for class 2, outside its specialties"):
        fit(specialties=specialties).predict_proba([[0, 2, 0]])


def test_a_vote_never_seen_in_fitting_is_no_evidence():
    """Specialties read off the votes are not a promise: a new class from an LF neither fails nor yields NaN."""
    for variant in ("dawid-skene", "paper", "snorkel", "triplet"):
        model = fit(np.tile(VOTES, (5, 1)), variant=variant)
        proba = model.predict_proba([[-1, 2, -1], [0, 2, 0]])
        assert np.isfinite(proba).all()


@pytest.mark.parametrize("content", [b"", b"not a model", None])
def test_damaged_model_file(tmp_path, content):
    path = tmp_path / "model.safetensors"
    if content is None:
        fit().save(path)
        path.write_bytes(path.read_bytes()[:-20])
    else:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"model.safetensors: damaged, or not a label model"):
        LabelModel.load(path)


def test_model_files_that_are_something_else(tmp_path):
    from safetensors.numpy import save_file

    save_file({"weights": np.zeros(3)}, tmp_path / "network.safetensors")
    with pytest.raises(InputError, match=r"network.safetensors: not a label model of this version"):
        LabelModel.load(tmp_path / "network.safetensors")
    with pytest.raises(InputError, match="no such file"):
        LabelModel.load(tmp_path / "missing.safetensors")
    with pytest.raises(RunFolderError, match="cannot write the label model"):
        fit().save(tmp_path / "no" / "such" / "folder.safetensors")


def test_the_checked_data_is_what_models_get():
    data = check_vote_data(VOTES.tolist(), 3, y=[0, -1, -1, 2])
    assert data.votes.dtype == np.int8
    assert data.specialties.tolist() == [[True, True, True], [True, True, False], [True, False, True]]
    assert fit_majority(data).class_balance.tolist() == pytest.approx([1 / 3] * 3)
