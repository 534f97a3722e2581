"""The end model for other programs: ONNX, or a program of torch.export (.pt2). The one export that loads a network.

Input `images`: uint8 (batch, height, width, channels), pixels 0..255 as Pillow and numpy hold them, of the size the run
was trained on; the batch may be any. Output `probabilities`: float32 (batch, C). Normalisation and softmax are inside,
and class names and image size go along as metadata.
"""

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from dpssl.end_model.storage import EndModel, load_end_model
from dpssl.errors import InputError, RunFolderError
from dpssl.run_folder import RunFolder

IMAGES = "images.json"
INPUT, OUTPUT = "images", "probabilities"
CLASS_NAMES = "class_names.json"  # in the .pt2


class PixelsToProbabilities(nn.Module):
    """uint8 (B, H, W, channels) -> float32 (B, C)."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: EndModel) -> None:
        super().__init__()
        self.network = model.network
        self.register_buffer("mean", model.bank.mean)
        self.register_buffer("std", model.bank.std)

    def forward(self, images: Tensor) -> Tensor:
        pixels = images.permute(0, 3, 1, 2).to(torch.float32)
        return torch.softmax(cast(Tensor, self.network((pixels - self.mean) / self.std)), -1)


def write_torch(folder: RunFolder, path: Path) -> None:
    """A .pt2 file: `torch.export.load(path).module()(images)` needs neither dpssl nor timm."""
    model = load_end_model(folder, torch.device("cpu"))
    with path.open("wb") as file:
        torch.export.save(_program(folder, model), file, extra_files={CLASS_NAMES: json.dumps(list(model.class_names))})


def write_onnx(folder: RunFolder, path: Path) -> None:
    try:
        import onnx
        import onnxscript  # noqa: F401  # torch's exporter needs it
    except ModuleNotFoundError as problem:
        raise InputError(f"--to onnx needs {problem.name}: pip install 'dpssl[onnx]'") from problem
    model = load_end_model(folder, torch.device("cpu"))
    with _quiet():
        exported = torch.onnx.export(
            _program(folder, model), dynamo=True, input_names=[INPUT], output_names=[OUTPUT], verbose=False
        )
    assert exported is not None
    proto = exported.model_proto
    for key, value in {"class_names": json.dumps(list(model.class_names)), "producer": "dpssl"}.items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, value
    onnx.checker.check_model(proto)
    path.write_bytes(proto.SerializeToString())


def image_shape(folder: RunFolder) -> tuple[int, int, int]:
    """Height, width and channels of the images of a run, from images.json."""
    recorded = folder.read_json(IMAGES)
    shape = recorded.get("shape") if isinstance(recorded, dict) else None
    if not (isinstance(shape, list) and len(shape) == 3 and all(isinstance(side, int) and side > 0 for side in shape)):
        raise RunFolderError(f"{folder.path(IMAGES)}: is damaged (shape {shape!r}); take it from a copy of the run")
    return shape[0], shape[1], shape[2]


def _program(folder: RunFolder, model: EndModel) -> torch.export.ExportedProgram:
    example = torch.zeros(2, *image_shape(folder), dtype=torch.uint8)  # a batch of 1 would be taken as the only size
    batch = torch.export.Dim("batch", min=1)
    with _quiet():
        return torch.export.export(
            PixelsToProbabilities(model).eval(), (example,), dynamic_shapes={INPUT: {0: batch}}, strict=False
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """torch's exporters warn of their own insides and of packages that no backbone needs."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
