import math

import pytest

from dpssl.errors import InputError
from dpssl.labeling.losses import count_specialists


@pytest.mark.parametrize(
    ("n_lfs", "ratio", "expected"),
    [
        (50, 0.2, 10),
        (100, 0.29, 29),
        (10, 0.1, 1),
        (10, 0.19, 1),
        (3, 1 / 3, 1),
        (7, 1.0, 7),
        (1, 1.0, 1),
    ],
)
def test_floor_of_rho_k(n_lfs: int, ratio: float, expected: int) -> None:
    assert count_specialists(n_lfs, ratio) == expected


@pytest.mark.parametrize("n_lfs", [7, 29, 50, 100, 1000])
def test_binary_rounding_loses_no_specialist(n_lfs: int) -> None:
    """.29 * 100 is 28.999… in binary; m / K times K is m for every m."""
    assert math.floor(0.29 * 100) == 28
    assert [count_specialists(n_lfs, m / n_lfs) for m in range(1, n_lfs + 1)] == list(range(1, n_lfs + 1))
    assert [count_specialists(100, m / 100) for m in range(1, 101)] == list(range(1, 101))


@pytest.mark.parametrize(("n_lfs", "ratio"), [(50, 0.01), (10, 0.099), (3, 0.2), (10, 0.0), (10, -0.5), (10, 1.2)])
def test_a_ratio_that_leaves_none_or_too_many_is_refused(n_lfs: int, ratio: float) -> None:
    with pytest.raises(InputError, match=rf"--specialist-ratio {ratio:g} with --n-lfs {n_lfs} .*choose a ratio from"):
        count_specialists(n_lfs, ratio)
