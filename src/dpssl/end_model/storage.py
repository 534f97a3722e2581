"""The trained end model in `end_model.safetensors`: weights, normalisation, architecture and class names.

The file says all that is needed to classify: whoever reads it needs neither the run's settings nor its images.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from dpssl.config import BackboneConfig
from dpssl.data.batches import ImageBank
from dpssl.errors import InputError, RunFolderError
from dpssl.nets.backbones import build_backbone
from dpssl.nets.classifier import Classifier
from dpssl.run_folder import RunFolder

END_MODEL = "end_model.safetensors"
NOT_IN_THE_FILE = ("backbone", "backbone_weights")  # the first is called architecture there; the second is a path


@dataclass(frozen=True)
class EndModel:
    """A classifier ready to predict, with what its input and output mean."""

    network: Classifier
    bank: ImageBank  # without images; normalises as in training
    class_names: tuple[str, ...]
    n_channels: int


def save_end_model(
    folder: RunFolder, network: Classifier, bank: ImageBank, class_names: tuple[str, ...], shape: BackboneConfig
) -> None:
    settings = {name: value for name, value in dataclasses.asdict(shape).items() if name not in NOT_IN_THE_FILE}
    folder.write_safetensors(
        END_MODEL,
        {**network.state_dict(), "mean": bank.mean, "std": bank.std},
        {"architecture": shape.backbone, "class_names": list(class_names), "n_channels": int(bank.images.shape[1])}
        | settings,
    )


def load_end_model(folder: RunFolder, device: torch.device) -> EndModel:
    """The end model of a run, on `device` and in evaluation mode."""
    tensors, metadata = folder.read_safetensors(END_MODEL)
    try:
        mean, std = tensors.pop("mean"), tensors.pop("std")
        n_channels, class_names = int(metadata["n_channels"]), tuple(map(str, metadata["class_names"]))
        network = Classifier(build_backbone(_shape_of(metadata), n_channels), len(class_names))
        network.load_state_dict(tensors)
    except (KeyError, TypeError, RuntimeError) as problem:
        raise RunFolderError(
            f"{folder.path(END_MODEL)}: does not hold the model it says it holds "
            f"({str(problem).splitlines()[-1].strip()}); make it again with `dpssl train {folder.folder} --redo`"
        ) from problem
    except InputError as problem:  # its architecture cannot be built here
        raise InputError(f"{folder.path(END_MODEL)}: {problem}") from problem
    empty = torch.empty(0, dtype=torch.uint8, device=device)
    return EndModel(
        network.to(device).eval(), ImageBank(empty, mean.to(device), std.to(device)), class_names, n_channels
    )


def is_of_shape(metadata: dict[str, Any], shape: BackboneConfig) -> bool:
    """Whether a file with this `metadata` holds weights of the network `shape`."""
    held = _shape_of(metadata)
    return all(getattr(held, name) == getattr(shape, name) for name in ("backbone", "depth", "width", "strides"))


def _shape_of(metadata: dict[str, Any]) -> BackboneConfig:
    names = {field.name for field in dataclasses.fields(BackboneConfig)} - set(NOT_IN_THE_FILE)
    settings = {name: metadata[name] for name in names & metadata.keys()}
    return BackboneConfig(backbone=metadata["architecture"], **settings | {"strides": tuple(metadata["strides"])})
