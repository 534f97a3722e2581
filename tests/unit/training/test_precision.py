from collections.abc import Callable

import pytest
import torch

from dpssl.errors import TrainingError
from dpssl.training.precision import autocast, batch_that_fits, compiles, pick_device


def test_auto_takes_a_gpu_where_there_is_one() -> None:
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert pick_device("cpu").type == "cpu"


def test_a_missing_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(TrainingError, match="--device cuda: torch sees no GPU"):
        pick_device("cuda")


@pytest.mark.parametrize(
    ("precision", "dtype"), [("auto", torch.float32), ("float32", torch.float32), ("bfloat16", torch.bfloat16)]
)
def test_number_format_on_a_cpu(precision: str, dtype: torch.dtype) -> None:
    with autocast(torch.device("cpu"), precision):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype


def test_nothing_is_compiled_on_a_cpu() -> None:
    assert not compiles(torch.device("cpu"), wanted=True)
    assert compiles(torch.device("cuda"), wanted=True)
    assert not compiles(torch.device("cuda"), wanted=False)


def broken_capture() -> None:
    """What torch.cuda.graph does when the step in it runs out of memory."""
    try:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB")
    finally:
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture")


def raises(message: str) -> Callable[[], None]:
    def fail() -> None:
        raise RuntimeError(message)

    return fail


@pytest.mark.parametrize(
    "fail",
    [
        broken_capture,
        raises("Triton Error [CUDA]: out of memory"),
        raises("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        lambda: torch.empty(2**60),
    ],
)
def test_out_of_device_memory_names_the_flag_and_a_smaller_batch(fail: Callable[[], None]) -> None:
    with (
        pytest.raises(TrainingError, match="--batch-size 32 \\(now 64\\)"),
        batch_that_fits("--batch-size", 64),
    ):
        fail()


def test_errors_about_anything_else_are_left_alone() -> None:
    with pytest.raises(RuntimeError, match="shapes differ"), batch_that_fits("--batch-size", 64):
        raise RuntimeError("shapes differ")
    with pytest.raises(TrainingError, match="--image-memory stream"), batch_that_fits("--batch-size", 64):
        raise TrainingError("use --image-memory stream") from torch.OutOfMemoryError()
