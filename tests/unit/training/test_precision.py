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


def test_out_of_device_memory_names_the_flag_and_a_smaller_batch() -> None:
    with (
        pytest.raises(TrainingError, match="--batch-size 32 \\(now 64\\)"),
        batch_that_fits("--batch-size", 64),
    ):
        raise torch.OutOfMemoryError
