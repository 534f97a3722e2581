import math

import pytest
import torch

from dpssl.errors import InputError
from dpssl.labeling.losses import claimed_elsewhere, count_specialists, unlabeled_loss


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


# Abstaining only where somebody claims the image


def claimed_elsewhere_slowly(
    probabilities: torch.Tensor, specialties: torch.Tensor, least_claim: float
) -> torch.Tensor:
    n_images, n_lfs, _ = probabilities.shape
    result = torch.zeros(n_images, n_lfs, dtype=torch.bool)
    for image in range(n_images):
        for lf in range(n_lfs):
            for label in range(specialties.shape[1]):
                specialists = [k for k in range(n_lfs) if specialties[k, label]]
                if specialists and not specialties[lf, label]:
                    claim = sum(probabilities[image, k, label].item() for k in specialists) / len(specialists)
                    result[image, lf] |= claim >= least_claim
    return result


def test_an_image_that_nobody_claims_teaches_nobody_to_abstain() -> None:
    specialties = torch.tensor([[True, False], [False, True]])
    sure_to_abstain = torch.tensor([[0.01, 0.0, 0.99], [0.0, 0.02, 0.98]])
    claimed_by_the_second = torch.tensor([[0.01, 0.0, 0.99], [0.0, 0.9, 0.1]])
    claimed = claimed_elsewhere(torch.stack([sure_to_abstain, claimed_by_the_second]), specialties, 0.5)
    assert claimed.tolist() == [[False, False], [True, False]]


def test_claims_follow_their_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    specialties = torch.rand(5, 4, generator=generator) < 0.4
    specialties[:, 3] = False  # a class without specialists is claimed by nobody
    probabilities = torch.softmax(3 * torch.randn(30, 5, 5, generator=generator), -1)
    claimed = claimed_elsewhere(probabilities, specialties, 0.3)
    assert torch.equal(claimed, claimed_elsewhere_slowly(probabilities, specialties, 0.3))
    assert 0 < claimed.float().mean() < 1


def test_an_untrusted_abstention_costs_nothing_and_a_class_is_not_affected() -> None:
    logits = torch.tensor([[[0.0, 0.0, 9.0], [9.0, 0.0, 0.0]]])  # one image: the first LF abstains, the second names 0
    strong = torch.zeros(1, 2, 3)
    probabilities = torch.softmax(logits, -1)
    nobody = torch.zeros(1, 2, dtype=torch.bool)
    loss, _, sure = unlabeled_loss(probabilities, logits, strong, 0.95, may_abstain=nobody)
    assert sure.tolist() == [[False, True]]
    assert loss.item() == pytest.approx(math.log(3))
