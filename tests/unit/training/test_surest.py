import pytest
import torch

from dpssl.training.surest import FIRST_SHARE, among_surest, share_learnt_from


def test_the_share_rises_from_its_first_to_all() -> None:
    shares = [share_learnt_from(torch.tensor(float(step)), 100).item() for step in (-5, 0, 50, 100, 1000)]
    assert shares == pytest.approx([FIRST_SHARE, FIRST_SHARE, (1 + FIRST_SHARE) / 2, 1, 1])


@pytest.mark.parametrize(("share", "n_trusted"), [(0.05, 1), (0.3, 3), (0.31, 4), (1.0, 10)])
def test_as_many_as_the_share_says_and_the_surest(share: float, n_trusted: int) -> None:
    confidence = torch.linspace(0.1, 1, 10)[torch.randperm(10, generator=torch.Generator().manual_seed(1))]
    trusted = among_surest(confidence, torch.tensor(share))
    assert trusted.sum() == n_trusted
    assert confidence[trusted].min() > confidence[~trusted].max() if n_trusted < 10 else trusted.all()


def test_equals_are_trusted_together() -> None:
    assert among_surest(torch.tensor([0.9, 0.9, 0.9, 0.1]), torch.tensor(0.25)).tolist() == [True, True, True, False]
