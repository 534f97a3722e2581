"""`--class-prior`: words and numbers become shares, from the given labels alone."""

import numpy as np
import pytest

from dpssl.class_prior import alignment_prior, check_class_prior, class_prior, label_shares
from dpssl.errors import InputError

GIVEN = np.array([0, 0, 0, -1, 1, -1, 2, -1])


def test_words_and_numbers_become_shares() -> None:
    assert class_prior("estimated", GIVEN, 3) is None
    for setting, expected in {
        "uniform": [1 / 3, 1 / 3, 1 / 3],
        "labels": [0.6, 0.2, 0.2],
        "0.5,0.3,0.2": [0.5, 0.3, 0.2],
        "50 30 20": [0.5, 0.3, 0.2],
        "1, 1, 2": [0.25, 0.25, 0.5],
    }.items():
        assert np.allclose(class_prior(setting, GIVEN, 3), expected), setting  # type: ignore[arg-type]
        check_class_prior(setting)
    assert label_shares(GIVEN, 4).tolist() == [0.6, 0.2, 0.2, 0]
    assert alignment_prior("estimated", GIVEN, 3).tolist() == [0.6, 0.2, 0.2]
    assert alignment_prior("1,1,2", GIVEN, 3).tolist() == [0.25, 0.25, 0.5]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("equal", r"--class-prior 'equal': choose estimated, labels or uniform, or give a number above 0"),
        ("", "choose estimated"),
        ("0.5,0.5,0", "a number above 0"),
        ("0.5,nan,0.5", "a number above 0"),
        ("inf,1,1", "a number above 0"),
        ("-1,1,1", "a number above 0"),
    ],
)
def test_other_values_are_named(setting: str, message: str) -> None:
    for use in (lambda: check_class_prior(setting), lambda: class_prior(setting, GIVEN, 3)):
        with pytest.raises(InputError, match=message):
            use()


def test_as_many_numbers_as_classes_and_a_label_for_each() -> None:
    with pytest.raises(InputError, match=r"has 2 numbers for 3 classes"):
        class_prior("0.5,0.5", GIVEN, 3)
    with pytest.raises(InputError, match=r"--class-prior labels: class 3 has no label"):
        class_prior("labels", GIVEN, 4)
