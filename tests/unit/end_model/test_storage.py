"""A trained end model read back from its file alone, and files that do not hold what they say."""

from pathlib import Path

import numpy as np
import pytest
import torch

from dpssl.config import BackboneConfig
from dpssl.data.batches import ImageBank
from dpssl.end_model.storage import END_MODEL, load_end_model, save_end_model
from dpssl.errors import RunFolderError
from dpssl.nets.backbones import build_backbone
from dpssl.nets.classifier import Classifier
from dpssl.run_folder import RunFolder

SHAPE = BackboneConfig(depth=7, width=1, strides=(1, 2))
CPU = torch.device("cpu")


@pytest.fixture
def saved(tmp_path: Path) -> tuple[RunFolder, Classifier, ImageBank]:
    images = np.random.default_rng(0).integers(0, 255, (4, 8, 8, 1), np.uint8)
    network, bank = Classifier(build_backbone(SHAPE, 1), 3).eval(), ImageBank.from_numpy(images, CPU)
    save_end_model(RunFolder(tmp_path), network, bank, ("a", "b", "c"), SHAPE)
    return RunFolder(tmp_path), network, bank


def test_what_was_saved_is_read(saved: tuple[RunFolder, Classifier, ImageBank]) -> None:
    folder, network, bank = saved
    model = load_end_model(folder, CPU)
    assert (model.class_names, model.n_channels) == (("a", "b", "c"), 1)
    assert not model.network.training
    with torch.no_grad():
        assert torch.equal(
            model.network(model.bank.network_input(bank.images)), network(bank.network_input(bank.images))
        )


@pytest.mark.parametrize(
    ("change", "lost"), [({"width": 2}, "size mismatch"), ({"class_names": None}, "NoneType"), ({}, "head.bias")]
)
def test_a_file_that_does_not_fit_itself_is_refused(
    saved: tuple[RunFolder, Classifier, ImageBank], change: dict[str, object], lost: str
) -> None:
    folder, _, _ = saved
    tensors, metadata = folder.read_safetensors(END_MODEL)
    if not change:
        del tensors["head.bias"]
    folder.write_safetensors(END_MODEL, tensors, metadata | change)
    with pytest.raises(
        RunFolderError, match=f"does not hold the model it says it holds .*{lost}.*dpssl train .* --redo"
    ):
        load_end_model(folder, CPU)
