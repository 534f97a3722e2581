"""Which part of every batch a process computes, where several train one network together."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dpssl.errors import InputError


@dataclass(frozen=True)
class Share:
    """The share of process `rank` among `size` processes: equal, contiguous slices of what one process would have."""

    rank: int = 0
    size: int = 1

    def count(self, n: int, flag: str) -> int:
        """This process' part of a batch of `n`, which the setting `flag` decides."""
        if n % self.size:
            raise InputError(f"{flag}: a batch of {n} cannot be shared evenly by {self.size} processes; change either")
        return n // self.size

    def of(self, whole: Tensor, dim: int = 0, sizes: Sequence[int] = ()) -> Tensor:
        """This process' slice of a tensor drawn for the whole batch.

        Where a batch is put together from parts, each of them is shared; `sizes` are those of this process' shares.
        """
        if self.size == 1:
            return whole
        parts = whole.split([self.size * n for n in sizes], dim) if sizes else (whole,)
        return torch.cat([part.chunk(self.size, dim)[self.rank] for part in parts], dim)

    def in_whole_batch(self, images: Tensor) -> Tensor:
        """Something of the shape of the whole batch whose share is `images`; costs no memory."""
        return images if self.size == 1 else images[:1].expand(len(images) * self.size, -1, -1, -1)


WHOLE = Share()
