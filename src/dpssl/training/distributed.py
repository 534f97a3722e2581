"""Several processes that train one network together: who they are, and the few things they tell each other.

`torchrun … -m dpssl run …` starts them. Each computes its share of every batch; one, the writer, also keeps the run
folder, shows progress and decides whatever has to be decided once. Every process runs the same code in the same order,
so each call here that talks is made by all of them. In a process that is alone nothing talks and all of it is free.

There is no DistributedDataParallel around the network: a step has one flat gradient (training.optim), so averaging that
in one message is all such a wrapper would do, and the whole step can still be captured as one CUDA graph.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from dpssl.data.share import WHOLE, Share
from dpssl.errors import DPSSLError, InputError, ReportedElsewhere, TrainingError

Result = TypeVar("Result")

LONGEST_WAIT = timedelta(
    hours=2
)  # for the writer while it fits the label model; a process that died is noticed at once


@contextmanager
def joined() -> Iterator[None]:
    """Be one of the processes that torchrun started, with the GPU that is its own where there are GPUs."""
    has_gpus, n_here = torch.cuda.is_available(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if has_gpus:
        if n_here > torch.cuda.device_count():
            raise InputError(
                f"torchrun --nproc-per-node={n_here}: there are {torch.cuda.device_count()} GPUs here; start a process "
                "for each at most, or set CUDA_VISIBLE_DEVICES to nothing to train on the CPU"
            )
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    with _peers():
        dist.init_process_group("cpu:gloo,cuda:nccl" if has_gpus else "gloo", timeout=LONGEST_WAIT)
    yield
    anyone(False)  # until all are done: one that left early would look dead to the others
    dist.destroy_process_group()  # not after an error: it would wait for the others, and they for this process


def share() -> Share:
    """This process' share of every batch."""
    return Share(dist.get_rank(), dist.get_world_size()) if _is_joined() else WHOLE


def is_writer() -> bool:
    """Whether this process keeps the run folder; one alone does."""
    return share().rank == 0


def add_up(tensor: Tensor) -> Tensor:
    """`tensor`, changed in place to its sum over the processes."""
    if _is_joined():
        with _peers():
            dist.all_reduce(tensor)
    return tensor


def average(tensor: Tensor) -> Tensor:
    """`tensor`, changed in place to its mean over the processes."""
    return add_up(tensor).div_(share().size) if _is_joined() else tensor


def gathered(tensor: Tensor) -> Tensor:
    """Every process' tensor of this shape, (processes, …); constants, no gradient goes back to them."""
    mine = share()
    told = tensor.new_zeros(mine.size, *tensor.shape)
    told[mine.rank] = tensor.detach()
    return add_up(told)


def anyone(flag: bool) -> bool:
    """Whether any process says so."""
    return bool(add_up(torch.tensor(int(flag))).item()) if _is_joined() else flag


def on_writer(work: Callable[[], Any]) -> Any:
    """What `work`, done by the writer alone, returns, a JSON value, in every process. Its error ends all of them."""
    if not _is_joined():
        return work()
    if not is_writer():
        told = _from_writer(b"")
        if "error" in told:
            raise ReportedElsewhere(told["error"])
        return told["value"]
    try:
        value = work()
    except DPSSLError as problem:
        _from_writer(json.dumps({"error": str(problem)}).encode())
        raise
    _from_writer(json.dumps({"value": value}).encode())
    return value


def writer_first(work: Callable[[], Result]) -> Result:
    """What `work` returns in this process; the writer does it first, since it may leave files that the others read."""
    done: list[Result] = []
    on_writer(lambda: done.append(work()))
    return done[0] if done else work()


def spread(files: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Give every process the writer's content of CPU tensors of equal names and shapes, in place."""
    if _is_joined():
        with _peers():
            for name in sorted(files):
                for key in sorted(files[name]):
                    dist.broadcast(files[name][key], src=0)


def my_rows(n: int) -> tuple[int, int]:
    """First and last (exclusive) of `n` rows that this process takes; uneven where they do not divide."""
    mine = share()
    return n * mine.rank // mine.size, n * (mine.rank + 1) // mine.size


def all_rows(mine: Tensor, n: int) -> Tensor:
    """Every process' `my_rows`, (n, …), from each one's own, on the CPU."""
    if not _is_joined():
        return mine
    size = share().size
    longest = -(-n // size)
    padded = torch.zeros(longest, *mine.shape[1:], dtype=mine.dtype)
    padded[: len(mine)] = mine
    as_bytes = padded.reshape(-1).view(torch.uint8)  # gloo knows bytes, and not every type of number
    gathered = [torch.empty_like(as_bytes) for _ in range(size)]
    with _peers():
        dist.all_gather(gathered, as_bytes)
    ends = [n * (rank + 1) // size for rank in range(size)]
    pieces = zip(gathered, [0, *ends], ends, strict=False)
    return torch.cat([piece.view(mine.dtype).view_as(padded)[: end - start] for piece, start, end in pieces])


def _from_writer(text: bytes) -> Any:
    with _peers():
        length = torch.tensor(len(text))
        dist.broadcast(length, src=0)
        content = torch.frombuffer(bytearray(text), dtype=torch.uint8) if text else torch.empty(0, dtype=torch.uint8)
        content = content if is_writer() else torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(content, src=0)
    return json.loads(content.numpy().tobytes())


def _is_joined() -> bool:
    return dist.is_available() and dist.is_initialized()


@contextmanager
def _peers() -> Iterator[None]:
    """A process that cannot reach the others any more ends, and says so."""
    try:
        yield
    except RuntimeError as problem:
        reason = re.sub(r"^\[\S*\] ", "", str(problem)).split(". ")[0]  # without the place in the library's source
        raise TrainingError(
            f"another process of this run ended or cannot be reached ({reason}); its own message says why, and "
            "`dpssl resume` under torchrun continues from the last checkpoint"
        ) from problem
