"""One pass over all images: what a network says of each, un-augmented unless asked otherwise.

Where several processes work together, each looks at its share of the images and all of them get every answer.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from dpssl.data.batches import ImageBank
from dpssl.training.distributed import all_rows, my_rows

CHUNK = 1024  # images in memory at a time


@torch.no_grad()
def answers(ask: Callable[[Tensor], Tensor], bank: ImageBank, view: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """(n, …) on the CPU: `ask` of every image of `bank` as network input, or of the `view` of it that is asked for."""
    chunks = bank.chunks(CHUNK, *my_rows(len(bank)))
    shown = chunks if view is None else map(view, chunks)
    return all_rows(torch.cat([ask(bank.network_input(images)).cpu() for images in shown]), len(bank))
