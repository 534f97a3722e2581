"""A process alone: nothing talks, and everything is its own. Several are tested in tests/integration."""

import pytest
import torch

from dpssl.config import AugmentConfig
from dpssl.data.augment import Augmenter
from dpssl.data.share import WHOLE, Share
from dpssl.errors import InputError
from dpssl.training import distributed


def test_a_process_alone_is_the_writer_and_has_everything() -> None:
    values = torch.tensor([1.0, 2.0])
    assert distributed.is_writer()
    assert distributed.share() == Share(0, 1)
    assert distributed.my_rows(7) == (0, 7)
    assert distributed.all_rows(values, 2) is values
    assert distributed.average(values).tolist() == [1.0, 2.0]
    assert distributed.add_up(values).tolist() == [1.0, 2.0]
    assert distributed.anyone(True)
    assert not distributed.anyone(False)
    assert distributed.on_writer(lambda: {"a": (1, 2)}) == {"a": (1, 2)}  # as it is, not as JSON


def test_the_writers_error_is_raised_as_it_is() -> None:
    def fail() -> None:
        raise InputError("--out: no")

    with pytest.raises(InputError, match="--out: no"):
        distributed.on_writer(fail)


@pytest.mark.parametrize("n", [0, 1, 5, 8])
def test_every_row_is_taken_once(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    taken = []
    for rank in range(3):
        monkeypatch.setattr(distributed, "share", lambda rank=rank: Share(rank, 3))
        taken += list(range(*distributed.my_rows(n)))
    assert taken == list(range(n))


@pytest.mark.parametrize("rank", range(4))
def test_shares_of_a_view_are_the_view_of_the_whole_batch(rank: int) -> None:
    images = torch.randint(256, (12, 3, 12, 12), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    alone, one_of_four = (
        Augmenter(AugmentConfig(), torch.Generator().manual_seed(1), share=share) for share in (WHOLE, Share(rank, 4))
    )
    share = one_of_four.share
    assert torch.equal(one_of_four.strong(share.of(images)), share.of(alone.strong(images)))
    sizes = (1, 2)  # of a batch put together from a part of 4 and one of 8 images
    assert torch.equal(one_of_four.weak(share.of(images, 0, sizes), sizes), share.of(alone.weak(images), 0, sizes))
